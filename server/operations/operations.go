package operations

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"postrider/internal/postgres"
	"postrider/internal/query"
	"postrider/server/api"
	v1 "postrider/server/v1"
)

// operationKey is the key of an operation in a list.
type operationKey struct {
	CreatedAt   time.Time
	OperationID uuid.UUID
}

// ListOperations lists operations.
//
// Lists running and finished operations with their progress, the newest first. Finished operations are kept for 30
// days.
func (m *Handlers) ListOperations(ctx context.Context, r *api.PageParams) (*api.List[query.Operation], error) {
	read := func(ctx context.Context, after operationKey, limit int) ([]query.Operation, error) {
		if r.Cursor == nil {
			return m.Parts.Reader.Operations(ctx, nil, limit)
		}
		last := query.Operation{CreatedAt: after.CreatedAt, OperationID: after.OperationID}
		return m.Parts.Reader.Operations(ctx, &last, limit)
	}
	return api.ListAfter(ctx, r, read,
		func(o query.Operation) operationKey { return operationKey{o.CreatedAt, o.OperationID} })
}

// OperationPath names an operation.
type OperationPath struct {
	ID uuid.UUID `path:"operationId" example:"0198c5a2-11aa-7d20-8e31-0c9f6b7a5e42"`
}

// GetOperation reads an operation.
//
// Returns the progress of an operation after its last completed step.
func (m *Handlers) GetOperation(ctx context.Context, r *OperationPath) (*query.Operation, error) {
	return m.Parts.Reader.Operation(ctx, r.ID)
}

// CancelOperation stops an operation.
//
// Stops an operation after the current step. Completed steps stay. A finished operation does not change.
func (m *Handlers) CancelOperation(ctx context.Context, r *OperationPath) (*query.Operation, error) {
	if _, err := m.Parts.Operator.CancelOperation(ctx, r.ID); err != nil {
		return nil, err
	}
	return m.GetOperation(ctx, r)
}

type redeliverEventsRequest struct {
	v1.SubscriptionPath
	Body RedeliverEventsSpec
}

// RedeliverEventsSpec selects past events.
type RedeliverEventsSpec struct {
	// Published at this time or later.
	From time.Time `json:"from"`
	// Published before this time; by default now.
	Until         *time.Time `json:"until,omitempty"`
	RatePerSecond *int       `json:"ratePerSecond,omitempty" minimum:"1"`
	DryRun        bool       `json:"dryRun,omitempty" default:"false"`
}

// RedeliverEvents delivers past events to an event subscription.
//
// Starts an operation that delivers a topic's stored events that match the filter, by the time of publishing. Each
// delivery is new, with its own time to live.
//
// With `dryRun` the events are counted for at most five seconds, and nothing is delivered.
func (m *Handlers) RedeliverEvents(ctx context.Context, r *redeliverEventsRequest) (*StartedOperation, error) {
	var found problems
	from, until, rate := r.Body.From, r.Body.Until, found.rate(r.Body.RatePerSecond)
	switch {
	case from.IsZero():
		found.Value("from", "must be an RFC 3339 time, such as 2026-11-20T09:30:00Z")
	case until != nil && !from.Before(*until):
		found.Value("from", "must be before until")
	case !from.Before(m.Parts.Clock.Now()):
		found.Value("from", "must be in the past")
	}
	if err := found.Err(); err != nil {
		return nil, err
	}
	if r.Body.DryRun {
		n, err := m.Parts.Reader.CountEvents(ctx, r.Topic, r.Subscription, from, until)
		return &StartedOperation{Done: &n}, noSubscription(err, r.Topic, r.Subscription)
	}
	id, err := m.Parts.Operator.RedeliverEvents(ctx, r.Topic, r.Subscription, from, until, rate)
	return m.started(ctx, id, noSubscription(err, r.Topic, r.Subscription))
}

// noSubscription is err, or the response 404 if a function of the database rejected the path's event subscription.
func noSubscription(err error, topic, subscription string) error {
	var rejected *postgres.FunctionError
	if errors.As(err, &rejected) && errors.Is(err, postgres.ErrInvalid) && rejected.Field == "subscription" {
		return api.SubscriptionNotFound(topic, subscription)
	}
	return err
}

// started is the response with a started operation, or err.
func (m *Handlers) started(ctx context.Context, id uuid.UUID, err error) (*StartedOperation, error) {
	if err != nil {
		return nil, err
	}
	o, err := m.Parts.Reader.Operation(ctx, id)
	return &StartedOperation{Operation: o}, err
}
