package management

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"postrider/postgres"
	"postrider/query"
	"postrider/server/api"
)

// ListOperations responds to GET /v1/operations. A cursor has the time and the id of the last operation of the page.
func (m *Handlers) ListOperations(ctx context.Context, r *api.PageParams) (*api.List[query.Operation], error) {
	return api.ListByName(ctx, r, "/v1/operations",
		func(ctx context.Context, cursor string, limit int) ([]query.Operation, error) {
			if r.Cursor == nil {
				return m.Parts.Reader.Operations(ctx, nil, limit)
			}
			after, err := placeOf(cursor)
			if err != nil {
				return nil, err
			}
			last := query.Operation{OperationID: after.id, CreatedAt: after.at}
			return m.Parts.Reader.Operations(ctx, &last, limit)
		}, func(o query.Operation) string { return placeName(o.CreatedAt, o.OperationID) })
}

// OperationPath names an operation.
type OperationPath struct {
	ID string `path:"operationId" example:"0198c5a2-11aa-7d20-8e31-0c9f6b7a5e42"`
}

// GetOperation responds to GET /v1/operations/{operationId}.
func (m *Handlers) GetOperation(ctx context.Context, r *OperationPath) (*query.Operation, error) {
	id, err := uuid.Parse(r.ID)
	if err != nil {
		return nil, operationNotFound(r.ID)
	}
	return m.operation(ctx, id)
}

// CancelOperation responds to POST /v1/operations/{operationId}/cancel.
func (m *Handlers) CancelOperation(ctx context.Context, r *OperationPath) (*query.Operation, error) {
	id, err := uuid.Parse(r.ID)
	if err != nil {
		return nil, operationNotFound(r.ID)
	}
	if _, err := m.Parts.Operator.CancelOperation(ctx, id); err != nil {
		return nil, err
	}
	return m.operation(ctx, id)
}

// RedeliverEventsRequest is the request POST /v1/topics/{topic}/subscriptions/{subscription}/redeliverEvents.
type RedeliverEventsRequest struct {
	SubscriptionPath
	Body RedeliverEventsSpec
}

// RedeliverEventsSpec selects the past events to deliver again.
type RedeliverEventsSpec struct {
	From          time.Time  `json:"from"`
	Until         *time.Time `json:"until,omitempty"`
	RatePerSecond *int       `json:"ratePerSecond,omitempty" minimum:"1"`
	DryRun        bool       `json:"dryRun,omitempty" default:"false"`
}

// RedeliverEvents responds to POST /v1/topics/{topic}/subscriptions/{subscription}/redeliverEvents.
func (m *Handlers) RedeliverEvents(ctx context.Context, r *RedeliverEventsRequest) (*StartedOperation, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
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
	if err != nil {
		return nil, noSubscription(err, r.Topic, r.Subscription)
	}
	o, err := m.operation(ctx, id)
	return &StartedOperation{Operation: o}, err
}

// noSubscription is err, or the response 404 if a function rejected the event subscription of the path as an argument.
func noSubscription(err error, topic, subscription string) error {
	var refusal *postgres.FunctionError
	if errors.As(err, &refusal) && errors.Is(err, postgres.ErrInvalid) && refusal.Field == "subscription" {
		return api.SubscriptionNotFound(topic, subscription)
	}
	return err
}

func (m *Handlers) operation(ctx context.Context, id uuid.UUID) (*query.Operation, error) {
	o, err := m.Parts.Reader.Operation(ctx, id)
	if errors.Is(err, postgres.ErrNotFound) {
		return nil, operationNotFound(id.String())
	}
	return o, err
}

func operationNotFound(id string) error {
	return api.Refuse(http.StatusNotFound, api.CodeNotFound, "operation %q does not exist", api.Shorten(id))
}

// place is where a row stands in a list that is sorted by time.
type place struct {
	at time.Time
	id uuid.UUID
}

func placeName(at time.Time, id uuid.UUID) string {
	return at.UTC().Format(time.RFC3339Nano) + " " + id.String()
}

// placeOf reads the place that a cursor has.
func placeOf(cursor string) (from place, err error) {
	at, id, _ := strings.Cut(cursor, " ")
	var wrong [2]error
	from.at, wrong[0] = time.Parse(time.RFC3339Nano, at)
	from.id, wrong[1] = uuid.Parse(id)
	if errors.Join(wrong[:]...) != nil {
		return from, api.InvalidCursor()
	}
	return from, nil
}
