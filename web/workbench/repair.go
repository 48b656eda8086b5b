package workbench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"postrider/internal/event"
	"postrider/internal/jsonscan"
	"postrider/internal/operator"
	"postrider/internal/postgres"
	"postrider/internal/query"
	"postrider/web/display"
	"postrider/web/site"
)

// repairView is the page that edits the event of a dead letter, or the next one, which confirms the changes.
type repairView struct {
	query.DeadLetterRow
	// Text is the event in the editor, with a member per line at first. Version is the version of the dead letter when it
	// was opened.
	Original, Text, Version string
	Form                    url.Values
	Mistake                 *mistake
	// Diff is what was edited, to confirm.
	Diff []operator.Change
}

// openRepair reads the dead letter of the address.
func (p *Pages) openRepair(ctx context.Context, c echo.Context) (view repairView, err error) {
	id, err := uuid.Parse(c.Param("id"))
	if err != nil {
		return view, postgres.ErrNotFound
	}
	row, err := p.Reader.ReadDeadLetter(ctx, id)
	if err != nil {
		return view, err
	}
	if row.BodyText == nil || *row.BodyText == "" {
		return view, site.Rejected(http.StatusConflict, "the event was erased, so it cannot be edited")
	}
	view.DeadLetterRow, view.Original, view.Text, view.Form = *row, *row.BodyText, *row.BodyText, url.Values{}
	var formatted bytes.Buffer // names, values and their order stay
	if json.Indent(&formatted, []byte(view.Original), "", "  ") == nil {
		view.Text = formatted.String()
	}
	if row.Version != nil {
		view.Version = row.Version.String()
	}
	return view, nil
}

// repairForm is the page that edits an event.
func (p *Pages) repairForm(ctx context.Context, c echo.Context) error {
	view, err := p.openRepair(ctx, c)
	if err != nil {
		return err
	}
	return p.showRepair(c, http.StatusOK, "repair", &view)
}

func (p *Pages) showRepair(c echo.Context, status int, name string, view *repairView) error {
	return p.Site.Respond(c, status, name, "Edit and redeliver", view)
}

// repairStep formats the event, shows what was edited, or redelivers it.
func (p *Pages) repairStep(ctx context.Context, c echo.Context) error {
	view, err := p.openRepair(ctx, c)
	if err != nil {
		return err
	}
	view.Form = c.Request().PostForm
	opened := view.Text
	view.Text, view.Version = sentText(view.Original, view.Form.Get("event")), view.Form.Get("version")
	switch view.Form.Get("do") {
	case "edit":
		return p.showRepair(c, http.StatusOK, "repair", &view)
	case "format":
		return p.formatEvent(c, &view)
	case "redeliver":
		return p.redeliverEdited(ctx, c, &view)
	}
	if view.Text == view.Original || strings.ReplaceAll(view.Text, "\r\n", "\n") == opened {
		view.Mistake = &mistake{Title: "The event is unchanged.", Advice: "Edit it, or redeliver the original."}
	} else if err := p.Operator.CheckEdit(ctx, view.DeadLetterID, []byte(view.Text)); err != nil {
		if view.Mistake = eventMistake(err, view.Text); view.Mistake == nil {
			return err
		}
	}
	if view.Mistake != nil {
		return p.showRepair(c, http.StatusBadRequest, "repair", &view)
	}
	view.Diff = operator.Diff([]byte(view.Original), []byte(view.Text))
	return p.showRepair(c, http.StatusOK, "repair-review", &view)
}

// formatEvent shows the event with a member per line. Names, values and their order stay.
func (p *Pages) formatEvent(c echo.Context, view *repairView) error {
	var text bytes.Buffer
	if err := json.Indent(&text, []byte(view.Text), "", "  "); err != nil {
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			view.Mistake = &mistake{Title: "The event is no JSON: " + syntax.Error() + "."}
			view.Mistake.locateByte(view.Text, int(syntax.Offset)-1)
		}
		return p.showRepair(c, http.StatusBadRequest, "repair", view)
	}
	view.Text = text.String()
	return p.showRepair(c, http.StatusOK, "repair", view)
}

// redeliverEdited redelivers the confirmed event, if the dead letter has not changed since it was opened.
func (p *Pages) redeliverEdited(ctx context.Context, c echo.Context, view *repairView) error {
	f := display.FilterOfForm(view.Form)
	to := operator.Target{Subscription: f.Name("", "toSubscription", ""), Topic: f.Name("", "toTopic", "")}
	if f.Err != nil {
		return f.Err
	}
	var version postgres.Version
	if err := version.UnmarshalText([]byte(view.Version)); err != nil {
		return echo.NewHTTPError(http.StatusBadRequest)
	}
	delivery, err := p.Operator.Repair(ctx, view.DeadLetterID, []byte(view.Text), to, view.Form.Get("again") != "",
		postgres.Condition{Versions: []postgres.Version{version}})
	if err == nil {
		return c.Redirect(http.StatusSeeOther, fmt.Sprintf("/ui/deliveries/%d?done=repaired", delivery))
	}
	status := http.StatusBadRequest
	switch {
	case errors.Is(err, postgres.ErrPrecondition):
		status = http.StatusPreconditionFailed
		view.Mistake = &mistake{
			Title:  "Nothing was done: the dead letter has changed since you opened it.",
			Advice: "It may have been redelivered. Open it again to edit it.",
		}
	default:
		if view.Mistake = eventMistake(err, view.Text); view.Mistake == nil {
			return err
		}
	}
	return p.showRepair(c, status, "repair", view)
}

// sentText is the text of a form's field. A browser sends each line end as CR LF; the original's are kept.
func sentText(original, sent string) string {
	if strings.Contains(original, "\r\n") {
		return sent
	}
	return strings.ReplaceAll(sent, "\r\n", "\n")
}

// eventMistake explains why an edited event is rejected; nil for other errors.
func eventMistake(err error, text string) *mistake {
	if invalid, ok := errors.AsType[*event.Error](err); ok {
		m := &mistake{Title: site.Sentence(invalid.About("event"))}
		m.locateByte(text, invalid.Offset)
		return m
	}
	if rejection := site.RejectionOf(err); rejection != nil {
		return &mistake{Title: rejection.Text}
	}
	return nil
}

// locateByte sets the place of the mistake in a text.
func (m *mistake) locateByte(text string, offset int) {
	offset = min(max(offset, 0), len(text))
	m.Line, m.Column = jsonscan.Position([]byte(text), offset)
	m.Position = len([]rune(text[:offset])) + 1
}
