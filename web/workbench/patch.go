package workbench

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"postrider/operator"
	"postrider/postgres"
	"postrider/web/display"
	"postrider/web/site"
)

// patchView is the page that repairs a selection of dead letters with a patch.
type patchView struct {
	operator.Selection
	Patch   string
	Form    url.Values
	Mistake *mistake
	Preview *operator.RepairPreview
}

// patchDiff is the diff of one event.
type patchDiff struct {
	DeadLetterID uuid.UUID
	Rows         []diffRow
}

// Diffs are those of the preview.
func (v *patchView) Diffs() (list []patchDiff) {
	for _, d := range v.Preview.Diffs {
		list = append(list, patchDiff{d.DeadLetterID, diffRows(d.Lines)})
	}
	return list
}

// Redelivers is the number of dead letters that a repair would redeliver.
func (v *patchView) Redelivers() int {
	if v.Form.Get("includeUnchanged") != "" {
		return v.Preview.Changed + v.Preview.Unchanged
	}
	return v.Preview.Changed
}

func (p *Pages) openPatch(ctx context.Context, c echo.Context) (view patchView, err error) {
	id, err := uuid.Parse(c.Param("id"))
	if err != nil {
		return view, postgres.ErrNotFound
	}
	selection, err := p.Operator.Selection(ctx, id)
	if err != nil {
		return view, err
	}
	if selection.Kind != operator.SelectedDeadLetters {
		return view, postgres.ErrNotFound
	}
	view.Selection, view.Form = *selection, url.Values{}
	view.Patch = "{\n  \"data\": {}\n}"
	return view, nil
}

// patchForm is the page with an empty patch.
func (p *Pages) patchForm(ctx context.Context, c echo.Context) error {
	view, err := p.openPatch(ctx, c)
	if err != nil {
		return err
	}
	return p.showPatch(c, http.StatusOK, &view)
}

func (p *Pages) showPatch(c echo.Context, status int, view *patchView) error {
	return p.Site.Respond(c, status, "repair-selection", "Repair dead letters", view)
}

// patchStep previews the patch, or starts the operation.
func (p *Pages) patchStep(ctx context.Context, c echo.Context) error {
	view, err := p.openPatch(ctx, c)
	if err != nil {
		return err
	}
	if view.Form, err = c.FormParams(); err != nil {
		return echo.NewHTTPError(http.StatusBadRequest)
	}
	view.Patch = strings.ReplaceAll(view.Form.Get("patch"), "\r\n", "\n")
	do, err := patchAction(&view)
	if err == nil && view.Form.Get("do") == "start" {
		var id uuid.UUID
		if id, err = p.Operator.ActOnSelection(ctx, view.ID, do); err == nil {
			return c.Redirect(http.StatusSeeOther, "/ui/operations/"+id.String()+"?done=started")
		}
	} else if err == nil {
		view.Preview, err = p.Operator.PreviewRepair(ctx, view.ID, do)
	}
	var rejected *postgres.FunctionError
	var own *site.RejectionError
	switch {
	case errors.As(err, &rejected):
		view.Mistake = &mistake{Title: capital(rejected.Message)}
	case errors.As(err, &own):
		view.Mistake = &mistake{Title: own.Text}
	case err != nil:
		return err
	default:
		return p.showPatch(c, http.StatusOK, &view)
	}
	return p.showPatch(c, http.StatusBadRequest, &view)
}

// patchAction is the repair that the form describes.
func patchAction(view *patchView) (*operator.Action, error) {
	do, err := ActionOf(display.FilterOfForm(view.Form))
	do.Kind, do.Patch, do.Again = operator.Repair, []byte(view.Patch), view.Form.Get("again") != ""
	do.IncludeUnchanged = view.Form.Get("includeUnchanged") != ""
	return &do, err
}
