package v1

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/google/uuid"

	"postrider/internal/postgres"
	"postrider/internal/query"
	"postrider/server/api"
)

type listEventsRequest struct {
	api.PageParams
	query.EventFilter
}

// ListEvents responds to GET /v1/events.
func (m *Handlers) ListEvents(ctx context.Context, r *listEventsRequest) (*api.List[query.EventRow], error) {
	if err := inOrder("publishedFrom", r.From, "publishedUntil", r.To); err != nil {
		return nil, err
	}
	list, err := newestFirst(ctx, "/v1/events", r, r.EventFilter, m.Parts.Reader.ReadEvents,
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

// GetEvent responds to GET /v1/events/{systemId}.
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

// Erased is the result of an erasure.
type Erased struct {
	Events int `json:"events"`
}

// EraseEvent responds to POST /v1/events/{systemId}/erase.
func (m *Handlers) EraseEvent(ctx context.Context, r *EventPath) (*Erased, error) {
	id, err := r.id()
	if err != nil {
		return nil, err
	}
	erased, err := m.Parts.Operator.EraseEvent(ctx, id)
	return &Erased{Events: erased}, err
}

type eraseSubjectRequest struct {
	Topic string `path:"topic" example:"orders"`
	Body  EraseSubjectSpec
}

// EraseSubjectSpec names the subject whose events are erased.
type EraseSubjectSpec struct {
	Subject string `json:"subject"`
}

// EraseSubject responds to POST /v1/topics/{topic}/eraseSubject.
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
	Topic        string  `query:"topic"`
	Subscription string  `query:"subscription"`
	Cursor       *string `query:"cursor"`
}

// RecentActivity has the published events and recorded attempts since the previous page.
type RecentActivity struct {
	Value    []Activity `json:"value"`
	NextLink string     `json:"nextLink"`
}

// Activity is a published event or a recorded attempt.
type Activity struct {
	At           time.Time  `json:"at"`
	Kind         string     `json:"kind" enum:"published,attempt"`
	Topic        string     `json:"topic"`
	EventID      string     `json:"eventId"`
	EventType    string     `json:"eventType"`
	Subject      string     `json:"subject"`
	SystemID     *uuid.UUID `json:"systemId"`
	Subscription *string    `json:"subscription"`
	DeliveryID   *int64     `json:"deliveryId"`
	BatchID      *int64     `json:"batchId"`
	Number       *int       `json:"number"`
	Status       *int       `json:"status"`
	Outcome      *string    `json:"outcome"`
	Verdict      *string    `json:"verdict"`
	State        *string    `json:"state"`
	DurationMs   *float64   `json:"durationMs"`
	Place        string     `json:"place"`
}

// ListActivity responds to GET /v1/activity.
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
		Value: make([]Activity, len(lines)), NextLink: *api.NextLink("/v1/activity", r, tail.Mark()),
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
			shown.State, shown.DurationMs = textOrNull(stateAfter[l.Verdict]), &l.DurationMs
		}
		recent.Value[i] = shown
	}
	return &recent, nil
}

// stateAfter is the state of a delivery after an attempt by the verdict.
var stateAfter = map[string]string{
	"deliver": "delivered", "retry": "pending", "dead_letter": "dead_lettered", "drop": "dropped",
}
