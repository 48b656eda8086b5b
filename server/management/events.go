package management

import (
	"context"

	"github.com/google/uuid"

	"postrider/query"
	"postrider/server/api"
)

// ListEventsRequest is the request GET /v1/events.
type ListEventsRequest struct {
	api.PageParams
	query.EventFilter
}

// ListEvents responds to GET /v1/events.
func (m *Handlers) ListEvents(ctx context.Context, r *ListEventsRequest) (*api.List[query.EventRow], error) {
	if err := inOrder("publishedFrom", r.From, "publishedUntil", r.To); err != nil {
		return nil, err
	}
	list, err := newestFirst(ctx, "/v1/events", r, &r.PageParams, r.EventFilter, m.Parts.Reader.ReadEvents,
		func(l *query.EventLine) uuid.UUID { return l.SystemID }, idKey)
	if err != nil {
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

// GetEvent responds to GET /v1/events/{systemId}.
func (m *Handlers) GetEvent(ctx context.Context, r *EventPath) (*query.EventRow, error) {
	id, err := r.id()
	if err != nil {
		return nil, err
	}
	row, err := m.Parts.Reader.ReadEvent(ctx, id)
	if err == nil && row.ErasedAt != nil {
		row.Body = nil
	}
	return row, err
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

// EraseSubjectRequest is the request POST /v1/topics/{topic}/eraseSubject.
type EraseSubjectRequest struct {
	Topic string `path:"topic" example:"orders"`
	Body  EraseSubjectSpec
}

// EraseSubjectSpec names the subject whose events are erased.
type EraseSubjectSpec struct {
	Subject string `json:"subject"`
}

// EraseSubject responds to POST /v1/topics/{topic}/eraseSubject.
func (m *Handlers) EraseSubject(
	ctx context.Context, r *EraseSubjectRequest,
) (*api.Started[Erased, query.Operation], error) {
	switch {
	case r.Body.Subject == "":
		return nil, api.Invalid("subject", "is required; erase events without a subject by their system id")
	case !api.Storable(r.Body.Subject):
		return &api.Started[Erased, query.Operation]{Done: &Erased{}}, nil // no event has it
	}
	erased, operation, err := m.Parts.Operator.EraseSubject(ctx, r.Topic, r.Body.Subject)
	if err == nil && operation != nil {
		o, err := m.Parts.Reader.Operation(ctx, *operation)
		return &api.Started[Erased, query.Operation]{Operation: o}, err
	}
	return &api.Started[Erased, query.Operation]{Done: &Erased{Events: erased}}, err
}
