package web

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"postrider/catalog"
	"postrider/event"
	"postrider/policy/filter"
	"postrider/postgres"
	"postrider/query"
	"postrider/web/display"
)

// eventsView is what events.html shows.
type eventsView struct {
	Filter   query.EventFilter
	From, To string
	Rows     []query.EventLine
	Paging   display.Paging
	Filtered bool
	SQL      string
}

// eventSQL asks for what the page lists.
func eventSQL(f *query.EventFilter) string {
	var where []string
	add := func(set bool, condition, value string) {
		if set {
			where = append(where, condition+quoteSQL(value))
		}
	}
	const form = "2006-01-02 15:04:05Z"
	id, err := uuid.Parse(f.Event)
	add(err == nil, "system_id = ", id.String())
	add(f.Event != "" && err != nil, "event_id = ", f.Event)
	add(f.Topic != "", "topic = ", f.Topic)
	add(f.Type != "", "event_type = ", f.Type)
	if f.SubjectPrefix != "" {
		where = append(where, "starts_with(subject, "+quoteSQL(f.SubjectPrefix)+")")
	}
	if f.From != nil {
		add(true, "published_at >= ", f.From.UTC().Format(form))
	}
	if f.To != nil {
		add(true, "published_at < ", f.To.UTC().Format(form))
	}
	if f.Unmatched {
		where = append(where, "matched = 0")
	}
	return selectSQL("events", where, "system_id desc") + " limit 50"
}

func (p *pages) events(c echo.Context) error {
	q := display.QueryOf(c)
	f := query.EventFilter{
		Topic: q.Name("topic"), Event: q.Text("event"), Type: q.Text("type"), SubjectPrefix: q.Text("subject"),
		From: q.Time("from"), To: q.Time("to"), Unmatched: q.Set("unmatched"),
	}
	turn := display.TurnOf(q, display.ParseUUID)
	if q.Err != nil {
		return q.Err
	}
	ctx, cancel := pageContext(c)
	defer cancel()
	found, err := p.parts.Reader.ReadEvents(ctx, f, turn)
	if err != nil {
		return err
	}
	looked := ""
	if found.SearchedTo != nil {
		looked = found.SearchedTo.String()
	}
	return p.show(c, "events", "Events", true, eventsView{
		Filter: f, From: fieldTime(f.From), To: fieldTime(f.To), Rows: found.Rows, Filtered: f != query.EventFilter{},
		SQL: eventSQL(&f),
		Paging: display.PagingOf(c, found.Page, func(l query.EventLine) string { return l.SystemID.String() }).
			WithFurther(c, looked),
	})
}

// eventView is what event.html shows.
type eventView struct {
	query.EventRow
	BodyText   string
	Deliveries []deliveryRow
	Judgements []judgement
	// More: the topic has more event subscriptions than are judged.
	More bool
	SQL  string
}

// judgement is what the filter of an event subscription says of an event.
type judgement struct {
	Subscription string
	Href         string
	Wanted       bool
	Newer        bool // the event subscription was made, or changed, after the event was filtered
	Clauses      []filter.Clause
}

// judged is how many event subscriptions are asked about one event.
const judged = 200

func (p *pages) event(c echo.Context) error {
	id, err := uuid.Parse(c.Param("id"))
	if err != nil {
		return postgres.ErrNotFound
	}
	ctx, cancel := pageContext(c)
	defer cancel()
	row, err := p.parts.Reader.ReadEvent(ctx, id)
	if err != nil {
		return err
	}
	view := eventView{
		EventRow: *row, BodyText: string(row.Body), Deliveries: deliveryRows(row.Deliveries),
		SQL: "select * from postrider.events where system_id = " + quoteSQL(id.String()),
	}
	if !row.TopicGone {
		if view.Judgements, view.More, err = p.judgementsOf(ctx, row); err != nil {
			return err
		}
	}
	return p.show(c, "event", "Event", row.Matched == nil, view)
}

// judgementsOf asks every filter of the topic, as it is now, the same functions that publishing asks.
func (p *pages) judgementsOf(ctx context.Context, row *query.EventRow) (list []judgement, more bool, err error) {
	subs, err := p.parts.Subscriptions.List(ctx, row.Topic, "", judged+1)
	if err != nil {
		return nil, false, err
	}
	if more = len(subs) > judged; more {
		subs = subs[:judged]
	}
	e := event.Event{
		Schema: event.Schema(row.Schema), ID: row.EventID, Type: row.EventType, Subject: row.Subject,
		Source: display.OrEmpty(row.Source), DataVersion: row.DataVersion, Body: row.Body,
	}
	if row.EventTime != nil && e.Schema == event.Custom {
		e.Time = *row.EventTime
	}
	view := catalog.EventView(row.Topic, &e)
	for _, sub := range subs {
		j := judgement{
			Subscription: sub.Name, Href: subscriptionPath(row.Topic, sub.Name), Wanted: true,
			Clauses: sub.Filter.Explain(&view),
		}
		for _, clause := range j.Clauses {
			j.Wanted = j.Wanted && clause.Passed
		}
		j.Newer = row.FilterVersion != nil && sub.Version > *row.FilterVersion
		list = append(list, j)
	}
	return list, more, nil
}

// batchesView is what batches.html shows.
type batchesView struct {
	Filter   query.BatchFilter
	States   []choice
	Rows     []batchRow
	Paging   display.Paging
	Filtered bool
}

type batchRow struct {
	query.BatchLine
	Met string
}

func batchRowOf(line query.BatchLine) batchRow {
	row := batchRow{BatchLine: line}
	if line.Attempts > 0 {
		row.Met = display.Met(line.Attempts, line.LastStatus)
	}
	return row
}

func (p *pages) batches(c echo.Context) error {
	q := display.QueryOf(c)
	f := query.BatchFilter{
		Topic: q.Name("topic"), Subscription: q.Name("subscription"), State: q.OneOf("state", deliveryStates),
	}
	turn := display.TurnOf(q, display.ParseID)
	if q.Err != nil {
		return q.Err
	}
	ctx, cancel := pageContext(c)
	defer cancel()
	found, err := p.parts.Reader.ReadBatches(ctx, f, turn)
	if err != nil {
		return err
	}
	view := batchesView{
		Filter: f, States: choices(deliveryStates, f.State), Filtered: f != query.BatchFilter{},
		Paging: display.PagingOf(c, found.Page, func(l query.BatchLine) string { return display.IDText(l.BatchID) }).
			WithFurther(c, display.IDOrNothing(found.SearchedTo)),
	}
	for _, line := range found.Rows {
		view.Rows = append(view.Rows, batchRowOf(line))
	}
	return p.show(c, "batches", "Batches", true, view)
}

// batchView is what batch.html shows.
type batchView struct {
	batchRow
	Outlook  outlook
	Attempts []attemptRow
	Listed   []query.MemberLine
	More     string // the page with the members that follow
	SQL      string
}

// memberPage is how many members of a batch a page shows.
const memberPage = 500

func (p *pages) batch(c echo.Context) error {
	id, ok := display.ParseID(c.Param("id"))
	q := display.QueryOf(c)
	from := q.Number("from")
	switch {
	case !ok:
		return postgres.ErrNotFound
	case q.Err != nil:
		return q.Err
	case from == nil:
		from = new(int64)
	}
	ctx, cancel := pageContext(c)
	defer cancel()
	b, err := p.parts.Reader.ReadBatch(ctx, id, int(min(*from, 1<<30)), memberPage+1)
	if err != nil {
		return err
	}
	view := batchView{
		batchRow: batchRowOf(b.BatchLine), Attempts: attemptRows(b.History), Listed: b.Listed,
		SQL: fmt.Sprintf("select * from postrider.batch_members where batch_id = %d order by position", id),
	}
	for i := range view.Attempts {
		view.Attempts[i].BatchID = nil // it is this page
	}
	if len(view.Listed) > memberPage {
		view.Listed = view.Listed[:memberPage]
		view.More = display.With(c, "from", fmt.Sprint(view.Listed[memberPage-1].Position))
	}
	if b.State == "pending" {
		work := pendingWork{
			topic: b.Topic, subscription: b.Subscription, subscriptionID: b.SubscriptionID, attempts: b.BatchLine.Attempts,
			hold: display.OrEmpty(b.Hold), job: jobState(b.Job), due: b.NextAttemptAt, ends: b.ExpiresAt,
		}
		if view.Outlook, err = p.outlookOf(ctx, &work); err != nil {
			return err
		}
	}
	return p.show(c, "batch", fmt.Sprintf("Batch %d", id), b.State == "pending", view)
}

// problemsView is what problems.html shows.
type problemsView struct {
	Topic  string
	Spans  []choice
	Within string
	Rows   []problemRow
}

type problemRow struct {
	query.Problem
	Href, Met, Share string
	Waits, Holds     string
	DeadCount        int
}

// problemSpans are the times that may be looked back over.
var problemSpans = map[string]time.Duration{
	"15m": 15 * time.Minute, "1h": time.Hour, "6h": 6 * time.Hour, "24h": 24 * time.Hour, "7d": 7 * 24 * time.Hour,
}

var problemSpanNames = []string{"15m", "1h", "6h", "24h", "7d"}

// waitingLimit is how far the deliveries that wait for another attempt after such a failure are counted.
const waitingLimit = 1000

func (p *pages) problems(c echo.Context) error {
	q := display.QueryOf(c)
	topic, within := q.Name("topic"), q.OneOf("within", problemSpanNames)
	if q.Err != nil {
		return q.Err
	}
	if within == "" {
		within = "24h"
	}
	ctx, cancel := pageContext(c)
	defer cancel()
	list, err := p.parts.Reader.ReadProblems(ctx, topic, problemSpans[within])
	if err != nil {
		return err
	}
	return p.show(c, "problems", "Problems", true,
		problemsView{Topic: topic, Spans: choices(problemSpanNames,
			within), Within: display.Span(problemSpans[within]), Rows: problemRows(list)})
}

func problemRows(list []query.Problem) []problemRow {
	rows := make([]problemRow, len(list))
	for i, problem := range list {
		rows[i] = problemRow{
			Problem: problem, Href: subscriptionPath(problem.Topic, problem.Subscription),
			Share: display.Percent(problem.Failures, problem.Attempts),
			Waits: atMost(problem.Waiting, waitingLimit), Holds: atMost(problem.Held, heldLimit),
			DeadCount: int(problem.DeadLetters),
		}
		if problem.Status != nil {
			rows[i].Met = display.StatusText(*problem.Status)
		}
	}
	return rows
}
