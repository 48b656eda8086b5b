package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"

	"postrider/event"
	"postrider/policy"
	"postrider/store"
)

// mostTested is how many of a topic's last events a filter is tested with at most.
const mostTested = 50

// TestSubscriptionFilter answers POST /v1/topics/{topic}/subscriptions/{subscription}/testFilter. Nothing is stored or delivered.
func (m *management) TestSubscriptionFilter(ctx context.Context, r TestSubscriptionFilterRequestObject) (TestSubscriptionFilterResponseObject, error) {
	sub, err := m.subscription(ctx, r.Topic, r.Subscription)
	if err != nil {
		return nil, err
	}
	events, err := m.testedEvents(ctx, sub, r.Body)
	if err != nil {
		return nil, err
	}
	answer := TestSubscriptionFilter200JSONResponse{Value: make([]FilterResult, len(events))}
	for i := range events {
		answer.Value[i] = filterResult(sub, &events[i])
	}
	return answer, nil
}

// testedEvents are the event that the request brings, or the topic's last ones.
func (m *management) testedEvents(ctx context.Context, sub *store.Subscription, b *FilterTest) ([]event.Event, error) {
	if b == nil {
		b = &FilterTest{}
	}
	brought := len(b.Event) > 0 && string(b.Event) != "null"
	last := optional(b.Last, mostTested)
	switch {
	case brought && b.Last != nil:
		return nil, invalid("last", "must be absent beside event")
	case last < 1 || last > mostTested:
		return nil, invalid("last", "must be between 1 and %d, not %d", mostTested, last)
	case !brought:
		return m.store.LastEvents(ctx, sub.TopicID, last)
	}
	topic, err := m.topic(ctx, sub.Topic)
	if err != nil {
		return nil, err
	}
	return readTested(topic, b.Event)
}

// readTested reads one event in the topic's schema, as if it were published.
func readTested(topic *store.Topic, text json.RawMessage) ([]event.Event, error) {
	if text[0] != '{' {
		return nil, invalid("event", "must be an object: one event in schema %s", topic.InputSchema)
	}
	events, err := inputOf(topic).Parse("application/json", bytes.Join([][]byte{[]byte("["), text, []byte("]")}, nil))
	var wrong *event.Error
	if errors.As(err, &wrong) {
		return nil, eventRefusal(wrong)
	}
	return events, err
}

// eventRefusal names the one event as the request does.
func eventRefusal(e *event.Error) error {
	const place, member = "events[0]", "event"
	answer := refuse(e.Status, e.Code, "%s", strings.Replace(e.Message, place, member, 1))
	target := member
	if e.Field != "" {
		target += "." + e.Field
	}
	answer.details = []ErrorDetail{{Code: e.Code, Target: target, Message: answer.message}}
	return answer
}

// filterResult judges one event. That all clauses passed is what makes an event wanted, see policy.Filter.Explain.
func filterResult(sub *store.Subscription, e *event.Event) FilterResult {
	view := store.EventView(sub.Topic, e)
	shown := FilterResult{Id: e.ID, Matched: true, Clauses: []FilterClause{}}
	for _, c := range sub.Filter.Explain(&view) {
		shown.Matched = shown.Matched && c.Passed
		shown.Clauses = append(shown.Clauses, clauseJSON(c))
	}
	return shown
}

func clauseJSON(c policy.FilterClause) FilterClause {
	return FilterClause{Clause: c.Clause, Passed: c.Passed, Why: textOrNull(c.Why)}
}
