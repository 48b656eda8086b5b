package management

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"

	"postrider/catalog"
	"postrider/event"
	"postrider/policy/filter"
	"postrider/postgres"
	"postrider/query"
	"postrider/server/api"
)

// MaxTestedEvents is how many of a topic's last events a filter is tested with at most, and when nothing is said.
const MaxTestedEvents = 50

// TestSubscriptionFilter answers POST /v1/topics/{topic}/subscriptions/{subscription}/testFilter. Nothing is stored or
// delivered.
func (m *Handlers) TestSubscriptionFilter(
	ctx context.Context, r api.TestSubscriptionFilterRequestObject,
) (api.TestSubscriptionFilterResponseObject, error) {
	if !api.Storable(r.Topic) || !api.Storable(r.Subscription) {
		return nil, api.SubscriptionNotFound(r.Topic, r.Subscription)
	}
	f, err := query.ReadFilter(ctx, m.Parts.DB.Pool, r.Topic, r.Subscription)
	if errors.Is(err, postgres.ErrNotFound) {
		return nil, api.SubscriptionNotFound(r.Topic, r.Subscription)
	}
	if err != nil {
		return nil, err
	}
	events, err := m.testedEvents(ctx, &f.Topic, r.Body)
	if err != nil {
		return nil, err
	}
	return api.TestSubscriptionFilter200JSONResponse(testFilter(f.Topic.Name, &f.Filter, events)), nil
}

// TestFilter answers POST /v1/topics/{topic}/testFilter. The filter is nobody's yet.
func (m *Handlers) TestFilter(
	ctx context.Context, r api.TestFilterRequestObject,
) (api.TestFilterResponseObject, error) {
	topic, err := m.topic(ctx, r.Topic)
	if err != nil {
		return nil, err
	}
	b := r.Body
	if b == nil {
		b = &api.TopicFilterTest{}
	}
	filter := readFilter(optional(b.Filter, filter.Filter{}))
	var found problems
	found.Check(filter.ValidateWithin(m.FilterLimits))
	if err := found.Err(); err != nil {
		return nil, err
	}
	events, err := m.testedEvents(ctx, topic, &api.FilterTest{Event: b.Event, Last: b.Last})
	if err != nil {
		return nil, err
	}
	return api.TestFilter200JSONResponse(testFilter(topic.Name, &filter, events)), nil
}

// testedEvents are the event that the request brings, or the topic's last ones.
func (m *Handlers) testedEvents(ctx context.Context, topic *catalog.Topic, b *api.FilterTest) ([]event.Event, error) {
	if b == nil {
		b = &api.FilterTest{}
	}
	brought := len(b.Event) > 0 && string(b.Event) != "null"
	last := optional(b.Last, MaxTestedEvents)
	switch {
	case brought && b.Last != nil:
		return nil, api.Invalid("last", "must be absent beside event")
	case last < 1 || last > MaxTestedEvents:
		return nil, api.Invalid("last", "must be between 1 and %d, not %d", MaxTestedEvents, last)
	case brought:
		return readTestedEvent(topic, b.Event)
	}
	events, err := query.LastEvents(ctx, m.Parts.DB.Pool, topic.ID, last)
	return events, lastEventsRefusal(err)
}

func lastEventsRefusal(err error) error {
	if errors.Is(err, postgres.ErrTooSlow) {
		return api.Refuse(http.StatusServiceUnavailable, api.CodeUnavailable,
			"the topic's last events were not found in time: very many events of other topics are newer; bring one in event")
	}
	return err
}

// readTestedEvent reads one event in the topic's schema, as if it were published. Its error says what is wrong with the
// event.
func readTestedEvent(topic *catalog.Topic, text []byte) ([]event.Event, error) {
	if text = bytes.TrimSpace(text); len(text) == 0 || text[0] != '{' {
		return nil, api.Invalid("event", "must be an object: one event in schema %s", topic.InputSchema)
	}
	events, err := InputOf(topic).Parse("application/json", bytes.Join([][]byte{[]byte("["), text, []byte("]")}, nil))
	var wrong *event.Error
	switch {
	case errors.As(err, &wrong):
		return nil, eventRefusal(wrong)
	case err == nil && len(events) != 1: // "{},{}", which is no JSON that a request could hold
		return nil, api.Invalid("event", "must be one event and not %d", len(events))
	}
	return events, err
}

// eventRefusal names the one event as the request does.
func eventRefusal(e *event.Error) error {
	const place, member = "events[0]", "event"
	answer := api.Refuse(e.Status, e.Code, "%s", strings.Replace(e.Message, place, member, 1))
	target := member
	if e.Field != "" {
		target += "." + e.Field
	}
	answer.Details = []api.ErrorDetail{{Code: e.Code, Target: target, Message: answer.Message}}
	return answer
}

// testFilter is what POST …/testFilter answers for these events of the topic, in their order. That all clauses passed
// is what makes an event wanted, see policy.Filter.Explain.
func testFilter(topic string, f *filter.Filter, events []event.Event) api.FilterResults {
	tested := api.FilterResults{Value: make([]api.FilterResult, len(events))}
	for i := range events {
		view := catalog.EventView(topic, &events[i])
		shown := api.FilterResult{
			Id: events[i].ID, EventType: events[i].Type, Subject: events[i].Subject, Matched: true,
			Clauses: []api.FilterClause{},
		}
		for _, c := range f.Explain(&view) {
			shown.Matched = shown.Matched && c.Passed
			shown.Clauses = append(shown.Clauses, api.FilterClause{Clause: c.Clause, Passed: c.Passed, Why: textOrNull(c.Why)})
		}
		tested.Value[i] = shown
	}
	return tested
}
