package web

import (
	"context"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/internal/filter"
	"postrider/internal/query"
	"postrider/web/display"
	"postrider/web/site"
)

func (p *pages) events(ctx context.Context, c echo.Context) error {
	f := display.FilterOf(c)
	f.View, f.Order = "events", "system_id desc"
	filter := query.EventFilter{States: display.TableOf(c, "events", nil).Shows("states")}
	f.Read(&filter, p.Now())
	list, err := site.ListOf(ctx, c, "event", f, filter, p.Parts.Reader.ReadEvents,
		func(l *query.EventLine) uuid.UUID { return l.SystemID })
	view := eventsView{List: list, Data: filter.Data}
	if view.Data != "" {
		view.Paging.Checked = "4 s"
	}
	if err != nil {
		return err
	}
	return p.Show(c, "events", "Events", view.Data == "", view) // a search for a value is not repeated
}

type eventsView struct {
	site.List[query.EventLine]
	Data string // the value that was searched for
}

type eventView struct {
	query.EventRow
	Results []matchResult
	More    bool // the topic has more event subscriptions
	SQL     string
}

// matchResult is the result of an event subscription's filter for an event.
type matchResult struct {
	Subscription string
	Matched      bool
	Newer        bool // the event subscription changed after the event was published
	Clauses      []filter.Clause
}

// matchLimit is the number of event subscriptions whose filters a page evaluates.
const matchLimit = 200

func (p *pages) event(ctx context.Context, c echo.Context, id uuid.UUID) error {
	row, err := p.Parts.Reader.ReadEvent(ctx, id)
	if err != nil {
		return err
	}
	view := eventView{
		EventRow: *row, SQL: "select * from postrider.events where system_id = " + display.QuoteSQL(id.String()),
	}
	if !row.TopicGone {
		if err := p.matchResults(ctx, &view); err != nil {
			return err
		}
	}
	return p.Show(c, "event", "Event", row.Matched == nil, view)
}

type redeliverEventView struct {
	query.EventRow
	To string // the event subscription
}

// redelivering is the page that confirms the redelivery of an event to an event subscription that it does not match.
func (p *pages) redelivering(ctx context.Context, c echo.Context, id uuid.UUID) error {
	row, err := p.Parts.Reader.ReadEvent(ctx, id)
	if err != nil {
		return err
	}
	sub, err := p.Parts.Subscriptions.Get(ctx, row.Topic, c.QueryParam("subscription"))
	if err != nil {
		return err
	}
	return p.Show(c, "event-redeliver", "Redeliver event", false, redeliverEventView{*row, sub.Name},
		display.Link{Href: eventPath(id), Text: "Event"})
}

func (p *pages) redeliverEvent(ctx context.Context, c echo.Context, id uuid.UUID) (href string, err error) {
	delivery, err := p.Parts.Operator.RedeliverEvent(ctx, id, c.FormValue("subscription"), c.FormValue("unmatched") != "")
	return deliveryPath(delivery) + "?done=sent-again", err
}

func eventPath(id uuid.UUID) string { return "/ui/events/" + id.String() }

// matchResults evaluates the current filters of the topic with the functions that publishing uses.
func (p *pages) matchResults(ctx context.Context, view *eventView) error {
	row := &view.EventRow
	subs, err := p.Parts.Subscriptions.List(ctx, row.Topic, "", matchLimit+1)
	if err != nil {
		return err
	}
	if view.More = len(subs) > matchLimit; view.More {
		subs = subs[:matchLimit]
	}
	e := event.Event{
		Schema: event.Schema(row.Schema), ID: row.EventID, Type: row.EventType, Subject: row.Subject,
		Source: display.OrEmpty(row.Source), DataVersion: row.DataVersion, Body: row.Body,
	}
	if row.EventTime != nil && e.Schema == event.Custom {
		e.Time = *row.EventTime
	}
	seen := catalog.EventView(row.Topic, &e)
	for _, sub := range subs {
		result := matchResult{Subscription: sub.Name, Matched: true, Clauses: sub.Filter.Explain(&seen)}
		for _, clause := range result.Clauses {
			result.Matched = result.Matched && clause.Passed
		}
		result.Newer = row.FilterVersion != nil && int64(sub.Version) > *row.FilterVersion
		view.Results = append(view.Results, result)
	}
	return nil
}
