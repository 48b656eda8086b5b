package web

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"postrider/policy"
	"postrider/postgres"
	"postrider/query"
	"postrider/web/display"
)

var (
	deliveryStates = query.DeliveryStates
	holdWords      = query.HoldReasons
	outcomeWords   = []string{
		"Delivered", "BadRequest", "Unauthorized", "Forbidden", "NotFound", "TimedOut", "PayloadTooLarge", "Busy",
		"SocketError", "ResolutionError", "Canceled", "GenericError",
		"Probation", "Aborted",
	}
)

// deliveriesView is what deliveries.html shows.
type deliveriesView struct {
	Filter                  query.DeliveryFilter
	States, Holds, Outcomes []choice
	Rows                    []deliveryRow
	Paging                  display.Paging
	Filtered                bool
	SQL                     string
}

// deliverySQL asks for what the page lists.
func deliverySQL(f *query.DeliveryFilter) string {
	var where []string
	for _, c := range []struct{ column, value string }{
		{"topic", f.Topic},
		{"subscription", f.Subscription},
		{"state", f.State},
		{"hold", f.Hold},
		{"last_outcome", f.Outcome},
	} {
		if c.value != "" {
			where = append(where, c.column+" = "+quoteSQL(c.value))
		}
	}
	if id, err := uuid.Parse(f.Event); err == nil {
		where = append(where, "system_id = "+quoteSQL(id.String()))
	} else if f.Event != "" {
		where = append(where, "event_id = "+quoteSQL(f.Event))
	}
	if f.Operation != nil {
		where = append(where, "operation_id = "+quoteSQL(f.Operation.String()))
	}
	return selectSQL("deliveries", where, "delivery_id desc") + " limit 50"
}

// choice is a word of a list to choose from.
type choice struct {
	Word string
	Here bool
}

func choices(words []string, here string) []choice {
	list := make([]choice, len(words))
	for i, word := range words {
		list[i] = choice{word, word == here}
	}
	return list
}

type deliveryRow struct {
	query.DeliveryLine
	Met string
}

func deliveryRows(lines []query.DeliveryLine) []deliveryRow {
	rows := make([]deliveryRow, len(lines))
	for i, line := range lines {
		rows[i] = deliveryRow{DeliveryLine: line}
		if line.Attempts > 0 {
			rows[i].Met = display.Met(line.Attempts, line.LastStatus)
		}
	}
	return rows
}

// deliveryPlace is all that the page's address has to tell: its list runs by id, whatever the filter.
func deliveryPlace(l query.DeliveryLine) string { return display.IDText(l.DeliveryID) }

func parseDeliveryPlace(text string) (query.DeliveryPlace, bool) {
	id, ok := display.ParseID(text)
	return query.DeliveryPlace{DeliveryID: id}, ok
}

func (p *pages) deliveries(c echo.Context) error {
	q := display.QueryOf(c)
	f := query.DeliveryFilter{
		Topic: q.Name("topic"), Subscription: q.Name("subscription"), State: q.OneOf("state", deliveryStates),
		Hold:    q.OneOf("hold", holdWords),
		Outcome: q.Name("outcome"), Event: q.Text("event"),
	}
	if text := q.Text("operation"); text != "" {
		id, err := uuid.Parse(text)
		if err != nil {
			q.Refuse("operation")
		}
		f.Operation = &id
	}
	turn := display.TurnOf(q, parseDeliveryPlace)
	if q.Err != nil {
		return q.Err
	}
	ctx, cancel := pageContext(c)
	defer cancel()
	found, err := p.parts.Reader.ReadDeliveries(ctx, f, turn)
	if err != nil {
		return err
	}
	looked := ""
	if found.SearchedTo != nil {
		looked = display.IDText(found.SearchedTo.DeliveryID)
	}
	return p.show(c, "deliveries", "Deliveries", true, deliveriesView{
		Filter: f, States: choices(deliveryStates, f.State), Holds: choices(holdWords, f.Hold),
		Outcomes: choices(outcomeWords, f.Outcome),
		Rows:     deliveryRows(found.Rows), Paging: display.PagingOf(c, found.Page, deliveryPlace).WithFurther(c, looked),
		Filtered: f != query.DeliveryFilter{}, SQL: deliverySQL(&f),
	})
}

// deliveryView is what delivery.html shows.
type deliveryView struct {
	query.DeliveryDetails
	Met      string
	Sentence string // the reason in words
	Attempts []attemptRow
	Limit    string     // how many attempts it may have
	EndsAt   *time.Time // when its time to live is over; nil where it has ended
	TimeLeft string
	Outlook  outlook
	Body     string
	SQL      string
}

// attemptRow is one attempt of a timeline.
type attemptRow struct {
	query.AttemptLine
	Met    string
	Phases []display.Phase
	Times  string // the phases in words
	Waited string // how long it waited after its turn had come; "" = not for long
	Then   string // what the policy decided
}

// longWait is from when on an attempt's wait for its turn is told.
const longWait = 5 * time.Second

func attemptRows(course []query.AttemptLine) []attemptRow {
	longest := 0.0
	for i := range course {
		longest = max(longest, course[i].DurationMs)
	}
	rows := make([]attemptRow, len(course))
	for i, a := range course {
		row := attemptRow{
			AttemptLine: a, Met: display.Met(1, a.Status), Phases: display.PhasesOf(&a, longest), Then: verdictText(&a),
		}
		var times []string
		for _, phase := range row.Phases {
			times = append(times, phase.Name+" "+phase.Text)
		}
		row.Times = display.Phrase(times...)
		if a.DueAt != nil && a.StartedAt.Sub(*a.DueAt) > longWait {
			row.Waited = display.Span(a.StartedAt.Sub(*a.DueAt))
		}
		rows[i] = row
	}
	return rows
}

// verdictText says what a verdict means.
func verdictText(a *query.AttemptLine) string {
	switch a.Verdict {
	case "deliver":
		if a.Late {
			return "late, and counted as delivered: the queued retry was canceled"
		}
		return "delivered"
	case "retry":
		return "another attempt"
	case "dead_letter":
		return "given up: it became a dead letter"
	case "drop":
		return "given up: it was dropped"
	case "note":
		return "late: it changed nothing"
	default:
		return a.Verdict
	}
}

func (p *pages) delivery(c echo.Context) error {
	id, ok := display.ParseID(c.Param("id"))
	if !ok {
		return postgres.ErrNotFound
	}
	ctx, cancel := pageContext(c)
	defer cancel()
	d, err := p.parts.Reader.ReadDelivery(ctx, id)
	if err != nil {
		return err
	}
	view := deliveryView{
		DeliveryDetails: *d, Attempts: attemptRows(d.History), Body: display.OrEmpty(d.BodyText),
		SQL: fmt.Sprintf("select * from postrider.delivery_attempts where delivery_id = %d order by started_at", id),
	}
	if d.Reason != nil {
		view.Sentence = policy.Reason(*d.Reason).Sentence()
	}
	if d.DeliveryLine.Attempts > 0 {
		view.Met = display.Met(d.DeliveryLine.Attempts, d.LastStatus)
	}
	if d.State == "pending" {
		if err := p.pendingView(ctx, &view); err != nil {
			return err
		}
	}
	return p.show(c, "delivery", fmt.Sprintf("Delivery %d", id), d.State == "pending", view)
}

// pendingView adds what comes next for a pending delivery.
func (p *pages) pendingView(ctx context.Context, view *deliveryView) (err error) {
	d := &view.DeliveryDetails
	work := pendingWork{
		topic: d.Topic, subscription: d.Subscription, subscriptionID: d.SubscriptionID, attempts: d.DeliveryLine.Attempts,
		hold: display.OrEmpty(d.DeliveryLine.Hold), job: jobState(d.Job),
		unbatched: d.Job == nil && d.BatchID == nil, due: d.NextAttemptAt,
	}
	if rules, ok := p.parts.Cache.Snapshot().Rules(view.SubscriptionID); ok {
		if n := rules.Limits.MaxAttempts; n > 0 {
			view.Limit = fmt.Sprint(n)
		}
	}
	if ends := view.ExpiresAt; ends != nil {
		view.EndsAt, view.TimeLeft, work.ends = ends, display.Span(max(0, ends.Sub(p.now()))), ends
	}
	view.Outlook, err = p.outlookOf(ctx, &work)
	return err
}
