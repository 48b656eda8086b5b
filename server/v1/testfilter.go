package v1

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/internal/filter"
	"postrider/internal/postgres"
	"postrider/internal/query"
	"postrider/server/api"
)

// MaxTestedEvents is the maximum and the default of a topic's last events in a test.
const MaxTestedEvents = 50

// FilterTest are the events of a filter test; by default the topic's last 50.
type FilterTest struct {
	// An event in the topic's input schema.
	Event json.RawMessage `json:"event,omitempty" type:"object"`
	// Number of the topic's last events.
	Last *int `json:"last,omitempty" minimum:"1" maximum:"50" nullable:"true"`
}

// TopicFilterTest is a filter and the events of its test; by default the topic's last 50.
type TopicFilterTest struct {
	Filter *filter.Filter `json:"filter,omitempty"`
	FilterTest
}

// FilterResults are the results of a filter test.
type FilterResults struct {
	// A result for each event, the newest event first.
	Value []FilterResult `json:"value"`
}

// FilterResult is the result of a filter for an event.
type FilterResult struct {
	// Id of the event.
	ID        string `json:"id"`
	EventType string `json:"eventType"`
	Subject   string `json:"subject"`
	// true if all clauses passed.
	Matched bool `json:"matched"`
	// The results of the filter's clauses.
	Clauses []FilterClause `json:"clauses"`
}

// FilterClause is the result of a clause of a filter.
type FilterClause struct {
	// Setting of the filter, such as advancedFilters[0].
	Clause string `json:"clause"`
	// true if the event passed.
	Passed bool `json:"passed"`
	// Value in the event and the required value; null if the event passed.
	Why *string `json:"why"`
}

type testSubscriptionFilterRequest struct {
	SubscriptionPath
	Body FilterTest `required:"false"`
}

// TestSubscriptionFilter tests the filter of an event subscription.
//
// Shows which events match the filter, and why. It tests the event in the request, or the topic's last events, the
// newest first. Nothing is stored or delivered.
//
// The response is 503 if the last events are not found in time, because the topic had none for long.
func (m *Handlers) TestSubscriptionFilter(
	ctx context.Context, r *testSubscriptionFilterRequest,
) (*FilterResults, error) {
	f, err := query.ReadFilter(ctx, m.Parts.DB.Pool, r.Topic, r.Subscription)
	if err != nil {
		return nil, err
	}
	return m.testFilter(ctx, &f.Topic, &f.Filter, &r.Body)
}

type testFilterRequest struct {
	TopicPath
	Body TopicFilterTest `required:"false"`
}

// TestFilter tests a filter that is not stored.
//
// Shows which events match the filter in the request, and why. It tests the event in the request, or the topic's last
// events.
func (m *Handlers) TestFilter(ctx context.Context, r *testFilterRequest) (*FilterResults, error) {
	topic, err := m.Parts.Topic(ctx, r.Topic)
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

// testFilter returns the result of a filter for each event.
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
			shown.Matched = shown.Matched && c.Passed
			shown.Clauses = append(shown.Clauses, FilterClause{Clause: c.Clause, Passed: c.Passed, Why: textOrNull(c.Why)})
		}
		tested.Value[i] = shown
	}
	return &tested, nil
}

// testedEvents are the event in the request, or the topic's last events.
func (m *Handlers) testedEvents(ctx context.Context, topic *catalog.Topic, test *FilterTest) ([]event.Event, error) {
	given := len(test.Event) > 0 && string(test.Event) != "null"
	last := optional(test.Last, MaxTestedEvents)
	switch {
	case given && test.Last != nil:
		return nil, api.Invalid("last", "must be absent with event")
	case last < 1 || last > MaxTestedEvents:
		return nil, api.Invalid("last", "must be between 1 and %d, not %d", MaxTestedEvents, last)
	case given:
		return readTestedEvent(topic, test.Event)
	}
	events, err := m.Parts.Reader.LastEvents(ctx, topic.ID, last)
	return events, lastEventsError(err)
}

func lastEventsError(err error) error {
	if errors.Is(err, postgres.ErrTooSlow) {
		return api.Reject(http.StatusServiceUnavailable, api.CodeUnavailable,
			"the topic's last events were not found in time, because other topics have many newer events; send one in event")
	}
	return err
}

// readTestedEvent reads one event in the topic's schema, as for a publish.
func readTestedEvent(topic *catalog.Topic, text []byte) ([]event.Event, error) {
	if text = bytes.TrimSpace(text); len(text) == 0 || text[0] != '{' {
		return nil, api.Invalid("event", "must be an object: one event in schema %s", topic.InputSchema)
	}
	events, err := InputOf(topic).Parse("application/json", bytes.Join([][]byte{[]byte("["), text, []byte("]")}, nil))
	var wrong *event.Error
	switch {
	case errors.As(err, &wrong):
		return nil, api.EventRejection(wrong, "event")
	case err == nil && len(events) != 1: // not reachable: the body is valid JSON
		return nil, api.Invalid("event", "must be one event, not %d", len(events))
	}
	return events, err
}
