package operations

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/google/uuid"

	"postrider/internal/postgres"
	"postrider/internal/query"
	"postrider/server/api"
	v1 "postrider/server/v1"
)

type listEventsRequest struct {
	api.PageParams
	query.EventFilter
}

// ListEvents lists events.
//
// Lists events, the newest first, also those that match no event subscription. Filters by id or time use an index.
//
// Other filters search 20,000 rows a page. A page may therefore have fewer rows than `limit`: follow nextLink until it
// is null.
//
// The rows are without their bodies.
func (m *Handlers) ListEvents(ctx context.Context, r *listEventsRequest) (*api.List[query.EventRow], error) {
	if err := inOrder("publishedFrom", r.From, "publishedUntil", r.To); err != nil {
		return nil, err
	}
	list, err := newestFirst(ctx, r, r.EventFilter, m.Parts.Reader.ReadEvents,
		func(l *query.EventLine) uuid.UUID { return l.SystemID })
	if list, err = named(ctx, m, list, err, r.Topic, ""); err != nil {
		return nil, err
	}
	rows := make([]query.EventRow, len(list.Value))
	for i, line := range list.Value {
		rows[i].EventLine = line
	}
	return &api.List[query.EventRow]{Value: rows, NextLink: list.NextLink}, nil
}

// EventPath names an event.
type EventPath struct {
	SystemID string `path:"systemId" example:"0199f0a4-7b1e-7c52-9d0e-3f6f2b8a4c11"`
}

func (p *EventPath) id() (uuid.UUID, error) {
	id, err := uuid.Parse(p.SystemID)
	if err != nil {
		return id, api.Invalid("systemId", "must be a UUID; it is not the publisher's id")
	}
	return id, nil
}

// ShownEvent is an event with its text byte for byte.
type ShownEvent struct{ *query.EventRow }

// Content implements api.Response.
func (e ShownEvent) Content() (int, any) {
	row := *e.EventRow
	row.Body = nil
	return http.StatusOK, withEvent(row, string(e.Body))
}

// Bodies implements api.Response.
func (ShownEvent) Bodies() map[int]any { return map[int]any{http.StatusOK: query.EventRow{}} }

// GetEvent reads an event.
//
// Returns an event with its deliveries, and its body as it was accepted. An erased event has no body.
func (m *Handlers) GetEvent(ctx context.Context, r *EventPath) (*ShownEvent, error) {
	id, err := r.id()
	if err != nil {
		return nil, err
	}
	row, err := m.Parts.Reader.ReadEvent(ctx, id)
	if err == nil && row.ErasedAt != nil {
		row.Body = nil
	}
	return &ShownEvent{row}, err
}

type redeliverEventRequest struct {
	EventPath
	Body RedeliverEventSpec
}

// RedeliverEventSpec selects the event subscription of a redelivery.
type RedeliverEventSpec struct {
	// Event subscription of the event's topic to deliver to.
	Subscription string `json:"subscription"`
	// true also delivers an event that did not match the event subscription.
	Unmatched bool `json:"unmatched,omitempty" default:"false"`
}

// RedeliverEvent redelivers an event.
//
// Creates a new delivery of a stored event to one event subscription of its topic, also if it was delivered before. If
// its last delivery there became a dead letter, that one is redelivered.
//
// The response is 409 while a delivery of the event to the event subscription is pending. It is also 409 if the event
// did not match the event subscription and `unmatched` is false, or if the event was erased.
func (m *Handlers) RedeliverEvent(ctx context.Context, r *redeliverEventRequest) (*Redelivered, error) {
	id, err := r.id()
	if err != nil {
		return nil, err
	}
	delivery, err := m.Parts.Operator.RedeliverEvent(ctx, id, r.Body.Subscription, r.Body.Unmatched)
	return &Redelivered{DeliveryID: delivery}, err
}

// Erased is the result of an erasure.
type Erased struct {
	// Number of events that were not erased before.
	Events int `json:"events"`
}

// EraseEvent erases an event.
//
// Erases body and subject of the event and of its dead letters, and the endpoints' responses. Pending deliveries are
// canceled first, with the reason EventErased.
//
// Ids, types, times, attempts and states are kept. Its dead letters cannot be redelivered. Exported files and endpoints
// keep their copies. The response is 409 while one of its dead letters is exported.
//
// In the response, `events` is 0 if it was erased before.
func (m *Handlers) EraseEvent(ctx context.Context, r *EventPath) (*Erased, error) {
	id, err := r.id()
	if err != nil {
		return nil, err
	}
	erased, err := m.Parts.Operator.EraseEvent(ctx, id)
	return &Erased{Events: erased}, err
}

type eraseSubjectRequest struct {
	v1.TopicPath
	Body EraseSubjectSpec
}

// EraseSubjectSpec is the subject whose events are erased.
type EraseSubjectSpec struct {
	// The exact subject, not empty.
	Subject string `json:"subject"`
}

// EraseSubject erases the events of a topic with a subject.
//
// Erases all stored events of a topic with this subject, like POST /v1/events/{systemId}/erase. Up to 1,000 events that
// are found within a second are erased at once. For more, the response is 202 with an operation.
//
// The audit records the number of events, not the subject. The response is 409 while a running operation's filter has
// the subject.
func (m *Handlers) EraseSubject(
	ctx context.Context, r *eraseSubjectRequest,
) (*api.Started[Erased, query.Operation], error) {
	if r.Body.Subject == "" {
		return nil, api.Invalid("subject", "is required; erase events without a subject by their system id")
	}
	erased, operation, err := m.Parts.Operator.EraseSubject(ctx, r.Topic, r.Body.Subject)
	if err == nil && operation != nil {
		o, err := m.Parts.Reader.Operation(ctx, *operation)
		return &api.Started[Erased, query.Operation]{Operation: o}, err
	}
	return &api.Started[Erased, query.Operation]{Done: &Erased{Events: erased}}, err
}

type listActivityRequest struct {
	Topic string `query:"topic"`
	// Name of the event subscription, for its attempts only. It requires topic.
	Subscription string  `query:"subscription"`
	Cursor       *string `query:"cursor"`
}

// RecentActivity is what happened since the previous page.
type RecentActivity struct {
	// The entries, the oldest first.
	Value []Activity `json:"value"`
	// Path and query of the next page.
	NextLink string `json:"nextLink"`
}

// Activity is a published event or a recorded attempt. Members about the attempt are null for an event.
type Activity struct {
	// When it happened.
	At time.Time `json:"at"`
	// published or attempt.
	Kind  string `json:"kind" enum:"published,attempt"`
	Topic string `json:"topic"`
	// Id of the event from the publisher; empty for a batch.
	EventID      string     `json:"eventId"`
	EventType    string     `json:"eventType"`
	Subject      string     `json:"subject"`
	SystemID     *uuid.UUID `json:"systemId"`
	Subscription *string    `json:"subscription"`
	DeliveryID   *int64     `json:"deliveryId"`
	// Id of the batch.
	BatchID *int64 `json:"batchId"`
	// Number of the attempt.
	Number *int `json:"number"`
	// HTTP status of the attempt; null without a response.
	Status *int `json:"status"`
	// Outcome of the attempt.
	Outcome *string `json:"outcome"`
	// Decision of the retry policy.
	Verdict *string `json:"verdict"`
	// State of the delivery after the attempt.
	State *string `json:"state"`
	// Duration of the attempt in milliseconds.
	DurationMs *float64 `json:"durationMs"`
	// Identifies the entry.
	Place string `json:"place"`
}

// ListActivity follows published events and recorded attempts.
//
// Returns what happened since the previous page, the oldest first. Without a cursor the page is empty. Request nextLink
// about once a second; it is never null.
//
// A page has at most the newest 200 events and 200 attempts. An entry may be repeated on later pages with the same
// `place`. Events whose publish took longer than three seconds may be absent; GET /v1/events has all.
func (m *Handlers) ListActivity(ctx context.Context, r *listActivityRequest) (*RecentActivity, error) {
	if r.Subscription != "" && r.Topic == "" {
		return nil, api.Invalid("topic", "is required with subscription")
	}
	var after string
	err := api.ReadCursor(r.Cursor, &after)
	if err == nil && r.Cursor == nil {
		err = m.Parts.Reader.CheckNames(ctx, r.Topic, r.Subscription)
	}
	if err != nil {
		return nil, err
	}
	f := query.TailFilter{Topic: r.Topic, Subscription: r.Subscription}
	tail := m.Parts.Reader.NewTail(f)
	if r.Cursor != nil {
		tail, err = m.Parts.Reader.ResumeTail(f, after)
		if errors.Is(err, postgres.ErrInvalid) {
			return nil, api.InvalidCursor()
		}
	}
	if err != nil {
		return nil, err
	}
	lines, err := tail.Next(ctx)
	if err != nil {
		return nil, err
	}
	recent := RecentActivity{
		Value: make([]Activity, len(lines)), NextLink: *api.NextLink(ctx, r, tail.Mark()),
	}
	for i := range lines {
		l := &lines[i]
		shown := Activity{
			At: l.At, Kind: l.Kind, Topic: l.Topic, EventID: l.EventID, EventType: l.Type, Subject: l.Subject,
			SystemID: l.SystemID, Place: l.Place,
		}
		if l.Kind == "attempt" {
			shown.Subscription, shown.Number = &l.Subscription, &l.Number
			shown.DeliveryID, shown.BatchID = l.DeliveryID, l.BatchID
			shown.Status, shown.Outcome, shown.Verdict = l.Status, &l.Outcome, &l.Verdict
			shown.DurationMs = &l.DurationMs
			if state, known := stateAfter[l.Verdict]; known {
				shown.State = &state
			}
		}
		recent.Value[i] = shown
	}
	return &recent, nil
}

// stateAfter is the state of a delivery after an attempt by the verdict.
var stateAfter = map[string]string{
	"deliver": "delivered", "retry": "pending", "dead_letter": "dead_lettered", "drop": "dropped",
}
