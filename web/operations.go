package web

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"postrider/postgres"
	"postrider/query"
	"postrider/web/display"
)

// operationsView is what operations.html shows.
type operationsView struct {
	Rows   []operationRow
	Paging display.Paging
}

// operationRow is an operation in words.
type operationRow struct {
	query.Operation
	What     string
	Progress string
	Percent  int
	Rate     string
}

// operationWhat says what a kind of operation does.
var operationWhat = map[string]string{
	"redeliver": "Redelivers dead letters", "purge": "Purges dead letters", "redeliver_events": "Redelivers past events",
	"erase_subject": "Erases the events of a subject",
}

func operationRowOf(o query.Operation) operationRow {
	row := operationRow{Operation: o, What: operationWhat[o.Kind], Rate: rateText(o.RatePerSecond)}
	row.Progress, row.Percent = progress(&o)
	return row
}

func operationPath(id uuid.UUID) string { return "/ui/operations/" + id.String() }

func operationPlace(o query.Operation) string {
	return display.DeadLetterPlace(query.DeadLetterPlace{DeadLetteredAt: o.CreatedAt, DeadLetterID: o.OperationID})
}

func (p *pages) operations(c echo.Context) error {
	q := display.QueryOf(c)
	// a moment and an id too; there is no way back but to the first page
	turn := display.TurnOf(q, display.ParseDeadLetterPlace)
	if q.Err != nil {
		return q.Err
	}
	var after *query.Operation
	if turn.Before != nil {
		after = &query.Operation{CreatedAt: turn.Before.DeadLetteredAt, OperationID: turn.Before.DeadLetterID}
	}
	ctx, cancel := pageContext(c)
	defer cancel()
	list, err := p.parts.Reader.Operations(ctx, after, display.PageSize+1)
	if err != nil {
		return err
	}
	page := query.Page[query.Operation]{Rows: list[:min(len(list), display.PageSize)], Older: len(list) > display.PageSize}
	view := operationsView{Paging: display.PagingOf(c, page, operationPlace)}
	for _, o := range page.Rows {
		view.Rows = append(view.Rows, operationRowOf(o))
	}
	return p.show(c, "operations", "Operations", true, view)
}

// operationView is what operation.html shows.
type operationView struct {
	operationRow
	Running bool
	Facts   []fact
	To      string // the event subscription that everything goes to; "" = each its own
	Took    string
	Pace    string // so many a second; "" = nothing to go by yet
	Left    string // how long it takes yet; "" = nobody knows
	// Outcomes say what became of its redeliveries; none for a purge or an erasure.
	Outcomes []operationOutcome
}

// operationOutcome is how many redeliveries are in one state, with the list of them.
type operationOutcome struct {
	Label string
	Count int64
	Href  string
	Tone  string
}

func outcomesOf(o *query.Operation) (outcomes []operationOutcome) {
	if o.Pending == nil {
		return nil
	}
	add := func(label, state string, count *int64, failed bool) {
		outcome := operationOutcome{
			Label: label, Count: *count, Href: "/ui/deliveries?operation=" + o.OperationID.String() + "&state=" + state,
		}
		if failed && *count > 0 {
			outcome.Tone = "bad"
		}
		outcomes = append(outcomes, outcome)
	}
	add("Pending", "pending", o.Pending, false)
	add("Delivered", "delivered", o.Delivered, false)
	add("Dead-lettered again", "dead_lettered", o.DeadLettered, true)
	add("Dropped", "dropped", o.Dropped, true)
	add("Canceled", "canceled", o.Canceled, false)
	return outcomes
}

func (p *pages) operation(c echo.Context) error {
	id, err := uuid.Parse(c.Param("id"))
	if err != nil {
		return postgres.ErrNotFound
	}
	ctx, cancel := pageContext(c)
	defer cancel()
	o, err := p.parts.Reader.Operation(ctx, id)
	if err != nil {
		return err
	}
	view := operationViewOf(o, p.now())
	return p.show(c, "operation", view.What, view.Running, view)
}

func operationViewOf(o *query.Operation, now time.Time) operationView {
	view := operationView{
		operationRow: operationRowOf(*o), Running: o.State == query.OperationRunning, Facts: filterFacts(&o.Filter),
		Outcomes: outcomesOf(o),
	}
	if o.Subscription != nil {
		view.To = *o.Subscription + " of " + display.OrEmpty(o.Topic)
	}
	if o.FinishedAt != nil {
		now = *o.FinishedAt
	}
	took := max(0, now.Sub(o.CreatedAt))
	view.Took = display.Span(took)
	seen := o.Done + o.Skipped + o.Failed
	if seen == 0 || took < time.Second {
		return view
	}
	pace := float64(seen) / took.Seconds()
	view.Pace = display.PerSecond(pace)
	if view.Running && o.Matched != nil && *o.Matched > seen {
		view.Left = display.Span(time.Duration(float64(*o.Matched-seen) / pace * float64(time.Second)))
	}
	return view
}

func (p *pages) cancelOperation(ctx context.Context, c echo.Context) (href string, err error) {
	id, err := uuid.Parse(c.Param("id"))
	if err != nil {
		return "", postgres.ErrNotFound
	}
	done := "over"
	canceled, err := p.parts.Operator.CancelOperation(ctx, id)
	if canceled {
		done = "stopped"
	}
	return operationPath(id) + "?done=" + done, err
}
