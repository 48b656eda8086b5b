package management

import (
	"bytes"
	"context"
	"encoding/json"
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

// MaxTestedEvents is the maximum and the default of the number of a topic's last events that a filter is tested with.
const MaxTestedEvents = 50

// FilterTest selects the events that a filter is tested with.
type FilterTest struct {
	// Event is one event in the topic's input schema. Absent or null: the topic's last events.
	Event json.RawMessage `json:"event,omitempty" type:"object"`
	Last  *int            `json:"last,omitempty" minimum:"1" maximum:"50" nullable:"true"`
}

// TopicFilterTest is a filter with the events that it is tested with.
type TopicFilterTest struct {
	Filter *filter.Filter `json:"filter,omitempty"`
	FilterTest
}

// FilterResults are the results of a filter, one for each event.
type FilterResults struct {
	Value []FilterResult `json:"value"`
}

// FilterResult is the result of a filter for an event.
type FilterResult struct {
	ID        string `json:"id"`
	EventType string `json:"eventType"`
	Subject   string `json:"subject"`
	// Matched: the event passed all clauses.
	Matched bool           `json:"matched"`
	Clauses []FilterClause `json:"clauses"`
}

// FilterClause is the result of one clause of a filter.
type FilterClause struct {
	// Clause is the path of a property: includedEventTypes, advancedFilters[0].
	Clause string `json:"clause"`
	Passed bool   `json:"passed"`
	// Why is what the event has and what the clause requires; nil if the event passed.
	Why *string `json:"why"`
}

// TestSubscriptionFilterRequest is the request POST /v1/topics/{topic}/subscriptions/{subscription}/testFilter.
type TestSubscriptionFilterRequest struct {
	SubscriptionPath
	Body FilterTest `required:"false"`
}

// TestSubscriptionFilter responds to POST /v1/topics/{topic}/subscriptions/{subscription}/testFilter. It stores and
// delivers nothing.
func (m *Handlers) TestSubscriptionFilter(
	ctx context.Context, r *TestSubscriptionFilterRequest,
) (*FilterResults, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	f, err := query.ReadFilter(ctx, m.Parts.DB.Pool, r.Topic, r.Subscription)
	if err != nil {
		return nil, r.rejected(err)
	}
	return m.testFilter(ctx, &f.Topic, &f.Filter, &r.Body)
}

// TestFilterRequest is the request POST /v1/topics/{topic}/testFilter.
type TestFilterRequest struct {
	TopicPath
	Body TopicFilterTest `required:"false"`
}

// TestFilter responds to POST /v1/topics/{topic}/testFilter. The filter is in the request.
func (m *Handlers) TestFilter(ctx context.Context, r *TestFilterRequest) (*FilterResults, error) {
	topic, err := m.topic(ctx, r.Topic)
	if err != nil {
		return nil, err
	}
	filter := readFilter(optional(r.Body.Filter, filter.Filter{}))
	var found problems
	found.Check(filter.ValidateWithin(m.FilterLimits))
	if err := found.Err(); err != nil {
		return nil, err
	}
	return m.testFilter(ctx, topic, &filter, &r.Body.FilterTest)
}

// testFilter returns the result of a filter for each of the events, in their order.
func (m *Handlers) testFilter(
	ctx context.Context, topic *catalog.Topic, f *filter.Filter, test *FilterTest,
) (*FilterResults, error) {
	events, err := m.testedEvents(ctx, topic, test)
	if err != nil {
		return nil, err
	}
	tested := FilterResults{Value: make([]FilterResult, len(events))}
	for i := range events {
		view := catalog.EventView(topic.Name, &events[i])
		shown := FilterResult{
			ID: events[i].ID, EventType: events[i].Type, Subject: events[i].Subject, Matched: true, Clauses: []FilterClause{},
		}
		for _, c := range f.Explain(&view) {
			shown.Matched = shown.Matched && c.Passed // see filter.Filter.Explain
			shown.Clauses = append(shown.Clauses, FilterClause{Clause: c.Clause, Passed: c.Passed, Why: textOrNull(c.Why)})
		}
		tested.Value[i] = shown
	}
	return &tested, nil
}

// testedEvents are the event in the request, or the topic's last ones.
func (m *Handlers) testedEvents(ctx context.Context, topic *catalog.Topic, test *FilterTest) ([]event.Event, error) {
	given := len(test.Event) > 0 && string(test.Event) != "null"
	last := optional(test.Last, MaxTestedEvents)
	switch {
	case given && test.Last != nil:
		return nil, api.Invalid("last", "must be absent beside event")
	case last < 1 || last > MaxTestedEvents:
		return nil, api.Invalid("last", "must be between 1 and %d, not %d", MaxTestedEvents, last)
	case given:
		return readTestedEvent(topic, test.Event)
	}
	events, err := query.LastEvents(ctx, m.Parts.DB.Pool, topic.ID, last)
	return events, lastEventsRejection(err)
}

func lastEventsRejection(err error) error {
	if errors.Is(err, postgres.ErrTooSlow) {
		return api.Refuse(http.StatusServiceUnavailable, api.CodeUnavailable,
			"the topic's last events were not found in time: very many events of other topics are newer; bring one in event")
	}
	return err
}

// readTestedEvent reads one event in the topic's schema, as if it were published. Its error names what is wrong with
// the event.
func readTestedEvent(topic *catalog.Topic, text []byte) ([]event.Event, error) {
	if text = bytes.TrimSpace(text); len(text) == 0 || text[0] != '{' {
		return nil, api.Invalid("event", "must be an object: one event in schema %s", topic.InputSchema)
	}
	events, err := InputOf(topic).Parse("application/json", bytes.Join([][]byte{[]byte("["), text, []byte("]")}, nil))
	var wrong *event.Error
	switch {
	case errors.As(err, &wrong):
		return nil, eventRejection(wrong)
	case err == nil && len(events) != 1: // "{},{}", which no request can contain
		return nil, api.Invalid("event", "must be one event and not %d", len(events))
	}
	return events, err
}

// eventRejection names the one event as the request does.
func eventRejection(e *event.Error) error {
	const place, member = "events[0]", "event"
	answer := api.Refuse(e.Status, e.Code, "%s", strings.Replace(e.Message, place, member, 1))
	target := member
	if e.Field != "" {
		target += "." + e.Field
	}
	answer.Details = []api.ErrorDetail{{Code: e.Code, Target: target, Message: answer.Message}}
	return answer
}
