package web

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"postrider/internal/operator"
	"postrider/internal/postgres"
	"postrider/internal/query"
	"postrider/web/display"
	"postrider/web/site"
)

// The pages that act on the checked rows of a list.
var (
	checkedDeadLetters = []display.Link{
		{Href: "/ui/dead-letters/redeliver", Text: "Redeliver checked …"},
		{Href: "/ui/dead-letters/repair", Text: "Repair checked …"},
		{Href: "/ui/dead-letters/resolve", Text: "Resolve checked …"},
		{Href: "/ui/dead-letters/purge", Text: "Purge checked …"},
	}
	checkedDeliveries = []display.Link{
		{Href: "/ui/deliveries/retry", Text: "Retry checked …"}, {Href: "/ui/deliveries/cancel", Text: "Cancel checked …"},
	}
)

// manyView has the dead letters or deliveries that a bulk operation would change.
type manyView struct {
	Kind string
	// Matching and Deliveries exclude what is created after the count; one of them is used.
	Matching   query.DeadLetterFilter
	Deliveries *query.DeliveryFilter
	Count      query.Matched
	// Checked is the number of dead letters that were checked in a list if only the open ones of them are changed.
	Checked int
	// Until is the time that the count is of.
	Until        time.Time
	Action, Back string
	Form         url.Values // the input of a rejected form, or of one with a preview
	Patch        string
	Preview      *operator.RepairPreview
}

// Redelivers is the number of dead letters that a repair would redeliver.
func (v *manyView) Redelivers() int {
	if v.Form.Get("includeUnchanged") != "" {
		return v.Preview.Changed + v.Preview.Unchanged
	}
	return v.Preview.Changed
}

// Skipped is the number of checked dead letters that are not open.
func (v *manyView) Skipped() int64 { return max(0, int64(v.Checked)-v.Count.Matched) }

// previewKey is the key of a preview in the context of a request.
const previewKey = "postrider.preview"

// many is the page that confirms a bulk operation of a kind.
func (p *pages) many(kind string) site.Page {
	return func(ctx context.Context, c echo.Context) error {
		view := manyView{Kind: kind, Form: site.Input(c), Patch: "{\n  \"data\": {}\n}"}
		list, back, err := p.manyOf(c, &view)
		if err != nil {
			return err
		}
		if view.Preview, _ = c.Get(previewKey).(*operator.RepairPreview); view.Preview != nil {
			view.Form = c.Request().PostForm
		}
		switch {
		case view.Form.Has("matched"): // counted before
			view.Count = countedOf(view.Form)
		case view.Deliveries != nil:
			view.Count, err = p.Parts.Reader.CountDeliveries(ctx, *view.Deliveries)
		default:
			view.Count, err = p.Parts.Reader.CountDeadLetters(ctx, &view.Matching)
		}
		if err != nil {
			return err
		}
		switch {
		case view.Form.Has("patch"):
			view.Patch = view.Form.Get("patch")
		case kind == operator.Repair && c.QueryParams().Has(patchOf):
			if err := p.readPatch(ctx, c, &view); err != nil {
				return err
			}
		}
		view.Back = display.SameFilter(c, back, "id", "", "checked", "", "until", "", patchOf, "")
		name := "many"
		if kind == operator.Repair {
			name = "many-repair"
		}
		return p.Show(c, name, operationKinds[kind], false, &view, display.Link{Href: view.Back, Text: list})
	}
}

// patchOf is the parameter with the delivery whose edit is the merge patch.
const patchOf = "patchOf"

// readPatch reads the edit of a repair as the merge patch for others, with its preview.
func (p *pages) readPatch(ctx context.Context, c echo.Context, view *manyView) error {
	id, err := strconv.ParseInt(c.QueryParam(patchOf), 10, 64)
	if err != nil {
		return postgres.ErrNotFound
	}
	delivery, err := p.Parts.Reader.ReadDelivery(ctx, id)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if json.Indent(&text, delivery.Edit, "", "  ") == nil {
		view.Patch = text.String()
		view.Preview, err = p.Parts.Operator.PreviewRepair(ctx, &view.Matching, &operator.Action{Patch: text.Bytes()})
	}
	return err
}

// manyOf reads the filter of the address up to a fixed time, because the user confirms what was counted.
func (p *pages) manyOf(c echo.Context, view *manyView) (list, back string, err error) {
	ids, now := c.QueryParams()["id"], p.Now().UTC().Truncate(time.Microsecond)
	if c.QueryParams().Has("checked") && len(ids) == 0 {
		return "", "", site.Rejected(http.StatusBadRequest, "no row is checked")
	}
	f := display.FilterOf(c)
	var from *time.Time // a span of the address would move on until the user confirms
	if view.Kind == operator.Retry || view.Kind == operator.Cancel {
		filter := p.deliveryFilter(f)
		if filter.CreatedUntil = &now; c.QueryParams().Has("until") {
			until, err := time.Parse(time.RFC3339Nano, c.QueryParam("until"))
			if err != nil {
				f.Reject("until")
			}
			filter.CreatedUntil = &until
		}
		filter.DeliveryIDs, err = idsOf(ids, func(text string) (int64, error) { return strconv.ParseInt(text, 10, 64) })
		view.Deliveries, view.Until, from = &filter, *filter.CreatedUntil, filter.From
		list, back = "Deliveries", "/ui/deliveries"
	} else {
		filter, wrong := p.deadLetterFilter(f)
		if wrong != nil {
			return "", "", site.Rejected(http.StatusBadRequest, searchProblem(wrong))
		}
		if filter.DeadLetteredUntil == nil {
			filter.DeadLetteredUntil = &now
		}
		if filter.State == nil && view.Kind != operator.Purge {
			filter.State, view.Checked = new("open"), len(ids) // as the operation does
		}
		filter.DeadLetterIDs, err = idsOf(ids, uuid.Parse)
		view.Matching, view.Until, from = filter, *filter.DeadLetteredUntil, filter.DeadLetteredFrom
		list, back = "Dead letters", "/ui/dead-letters"
	}
	f.RejectOthers("id", "checked", "until", "within", patchOf) // an unknown one would change more than the user meant
	if err == nil {
		err = f.Err
	}
	parameter, start := "to", ""
	if view.Deliveries != nil {
		parameter = "until"
	}
	if from != nil {
		start = from.Format(time.RFC3339Nano)
	}
	view.Action = display.With(c, parameter, view.Until.Format(time.RFC3339Nano), "from", start, "within", "", patchOf, "")
	return list, back, err
}

// idsOf reads the ids of checked rows; nil for none.
func idsOf[T any](texts []string, parse func(string) (T, error)) (ids []T, err error) {
	for _, text := range texts {
		id, err := parse(text)
		if err != nil {
			return nil, site.Rejected(http.StatusBadRequest, "an id of the address is invalid")
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// countedOf is the count that a form was confirmed with.
func countedOf(form url.Values) (m query.Matched) {
	m.Matched, _ = strconv.ParseInt(form.Get("matched"), 10, 64)
	m.AtLeast = form.Get("atLeast") != ""
	return m
}

// bulk is the form of a bulk operation of a kind. Pending deliveries end continuously: no number of them is expected.
func (p *pages) bulk(kind string) echo.HandlerFunc {
	return site.Act(func(ctx context.Context, c echo.Context) (href string, err error) {
		view := manyView{Kind: kind}
		if _, _, err := p.manyOf(c, &view); err != nil {
			return "", err
		}
		do, err := actionOf(c, kind)
		if err != nil {
			return "", err
		}
		form := c.Request().PostForm
		view.Count = countedOf(form)
		if view.Deliveries == nil && form.Has("matched") && !view.Count.AtLeast {
			do.Expected = &view.Count.Matched
		}
		var id uuid.UUID
		switch {
		case kind == operator.Repair && form.Get("do") != "start":
			preview, err := p.Parts.Operator.PreviewRepair(ctx, &view.Matching, &do)
			c.Set(previewKey, preview)
			return "", err
		case view.Deliveries != nil:
			id, err = p.Parts.Operator.OnDeliveries(ctx, view.Deliveries, &do)
		default:
			id, err = p.Parts.Operator.OnDeadLetters(ctx, &view.Matching, &do)
		}
		return operationPath(id) + "?done=started", err
	}, p.many(kind))
}

// actionOf reads the fields of the form of an action.
func actionOf(c echo.Context, kind string) (do operator.Action, err error) {
	form := c.Request().PostForm
	f := display.FilterOfForm(form)
	do = operator.Action{
		Kind: kind, To: operator.Target{Subscription: f.Name("", "toSubscription", ""), Topic: f.Name("", "toTopic", "")},
		Again: form.Get("again") != "", Patch: []byte(form.Get("patch")),
		IncludeUnchanged: form.Get("includeUnchanged") != "", Note: strings.TrimSpace(form.Get("note")),
	}
	rate := f.Number("", "rate", "")
	if f.Err != nil || rate != nil && (*rate < 1 || *rate > operator.MaxRate) {
		return do, site.Rejected(http.StatusBadRequest,
			"the rate must be a whole number from 1 to 1,000,000, or empty, and names must be text")
	}
	if rate != nil {
		do.Rate = int(*rate)
	}
	return do, nil
}
