package web

import (
	"context"
	"net/url"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"postrider/query"
	"postrider/web/display"
	"postrider/web/site"
)

// manyView is what dead-letters-many.html shows: which dead letters a bulk operation would change, and how many.
type manyView struct {
	Purge bool
	// Matching are the dead letters before the time when they were counted: later ones are not changed.
	Matching     query.DeadLetterFilter
	Count        query.Matched
	Fresh        int64 // those that were not redelivered before
	Action, Back string
	Form         url.Values // as it was typed
}

func (p *pages) manyToRedeliver(ctx context.Context, c echo.Context) error {
	return p.many(ctx, c, false, "Redeliver all that match?")
}

func (p *pages) manyToPurge(ctx context.Context, c echo.Context) error {
	return p.many(ctx, c, true, "Purge all that match?")
}

// many is the page that confirms a bulk operation.
func (p *pages) many(ctx context.Context, c echo.Context, purge bool, title string) error {
	f, err := p.manyFilter(c)
	if err != nil {
		return err
	}
	found, err := p.parts.Reader.CountDeadLetters(ctx, &f)
	if err != nil {
		return err
	}
	view := manyView{
		Purge: purge, Matching: f, Count: found, Fresh: found.Matched - found.Redelivered, Form: site.Typed(c),
		Action: display.With(c, "to", f.DeadLetteredUntil.Format(time.RFC3339Nano)),
		Back:   display.SameFilter(c, "/ui/dead-letters"),
	}
	return p.Show(c, "dead-letters-many", title, false, view, site.Link{Href: view.Back, Text: "Dead letters"})
}

// manyFilter is the filter of the address, up to now: a user who confirms a number confirms no later dead letters.
func (p *pages) manyFilter(c echo.Context) (query.DeadLetterFilter, error) {
	f := display.FilterOf(c)
	filter := deadLetterQuery(f)
	if filter.WithoutResponse {
		f.Reject("status")
	}
	if filter.DeadLetteredUntil == nil {
		filter.DeadLetteredUntil = new(p.Now().UTC().Truncate(time.Microsecond))
	}
	return filter.DeadLetterFilter, f.Err
}

func (p *pages) redeliverMany(ctx context.Context, c echo.Context) (href string, err error) {
	return p.startMany(c, func(f *query.DeadLetterFilter, form *letterForm) (uuid.UUID, error) {
		return p.parts.Operator.RedeliverAll(ctx, f, form.to, form.rate)
	})
}

func (p *pages) purgeMany(ctx context.Context, c echo.Context) (href string, err error) {
	return p.startMany(c, func(f *query.DeadLetterFilter, form *letterForm) (uuid.UUID, error) {
		return p.parts.Operator.PurgeAll(ctx, f, form.rate)
	})
}

func (p *pages) startMany(
	c echo.Context, start func(*query.DeadLetterFilter, *letterForm) (uuid.UUID, error),
) (href string, err error) {
	f, err := p.manyFilter(c)
	if err != nil {
		return "", err
	}
	form, err := letterFormOf(c)
	if err != nil {
		return "", err
	}
	f.Redelivered = form.redelivered
	id, err := start(&f, &form)
	return operationPath(id) + "?done=started", err
}

func operationPath(id uuid.UUID) string { return "/ui/operations/" + id.String() }

// operationKinds say what the kinds of operations do.
var operationKinds = map[string]string{
	"redeliver": "Redelivers dead letters", "purge": "Purges dead letters", "redeliver_events": "Redelivers past events",
	"erase_subject": "Erases the events of a subject",
}

func (p *pages) operations(ctx context.Context, c echo.Context) error {
	type place = query.DeadLetterPlace
	read := func(ctx context.Context, after place, limit int) ([]query.Operation, error) {
		if after == (place{}) {
			return p.parts.Reader.Operations(ctx, nil, limit)
		}
		from := query.Operation{CreatedAt: after.DeadLetteredAt, OperationID: after.DeadLetterID}
		return p.parts.Reader.Operations(ctx, &from, limit)
	}
	list, err := site.ForwardList(ctx, c, "operation", read, func(o *query.Operation) place {
		return place{DeadLetteredAt: o.CreatedAt, DeadLetterID: o.OperationID}
	})
	return p.ShowList(c, "operations", "Operations", list, err)
}

// operationView is what operation.html shows.
type operationView struct {
	query.Operation
	progress
	All bool // it has no filter
	// Outcomes are the states of its redeliveries; none for a purge or an erasure.
	Outcomes []operationOutcome
}

// progress is how far an operation has come.
type progress struct {
	Running bool
	Seen    int64
	Percent int
	Took    string
	Pace    string // per second; "" = not known yet
	Left    string // the time until its end; "" = not known
}

// operationOutcome is the number of redeliveries in one state, with their list.
type operationOutcome struct {
	Label, State string
	Count        int64
	Failed       bool
}

func progressOf(o query.Operation, now time.Time) (pr progress) {
	pr.Running, pr.Seen = o.State == query.OperationRunning, o.Done+o.Skipped+o.Failed
	if o.Matched != nil && !o.MatchedAtLeast {
		pr.Percent = int(100 * min(pr.Seen, *o.Matched) / max(1, *o.Matched))
	}
	if o.FinishedAt != nil {
		now = *o.FinishedAt
	}
	took := max(0, now.Sub(o.CreatedAt))
	pr.Took = display.Span(took)
	if pr.Seen == 0 || took < time.Second {
		return pr
	}
	pace := float64(pr.Seen) / took.Seconds()
	pr.Pace = display.PerSecond(pace)
	if pr.Running && o.Matched != nil && *o.Matched > pr.Seen {
		pr.Left = display.Span(time.Duration(float64(*o.Matched-pr.Seen) / pace * float64(time.Second)))
	}
	return pr
}

func (p *pages) operation(ctx context.Context, c echo.Context) error {
	id, err := uuidParam(c)
	if err != nil {
		return err
	}
	o, err := p.parts.Reader.Operation(ctx, id)
	if err != nil {
		return err
	}
	view := operationView{Operation: *o, progress: progressOf(*o, p.Now())}
	filter, err := o.Filter.Text()
	if err != nil {
		return err
	}
	view.All = filter == "{}"
	if states := o.Outcomes; states != nil {
		view.Outcomes = []operationOutcome{
			{"Pending", "pending", states.Pending, false},
			{"Delivered", "delivered", states.Delivered, false},
			{"Dead-lettered again", "dead_lettered", states.DeadLettered, true},
			{"Dropped", "dropped", states.Dropped, true},
			{"Canceled", "canceled", states.Canceled, false},
		}
	}
	return p.Show(c, "operation", operationKinds[o.Kind], view.Running, view)
}

func (p *pages) cancelOperation(ctx context.Context, c echo.Context) (href string, err error) {
	id, err := uuidParam(c)
	if err != nil {
		return "", err
	}
	done := "over"
	canceled, err := p.parts.Operator.CancelOperation(ctx, id)
	if canceled {
		done = "stopped"
	}
	return operationPath(id) + "?done=" + done, err
}
