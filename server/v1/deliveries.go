package v1

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"postrider/internal/postgres"
	"postrider/internal/query"
	"postrider/server/api"
)

// maxAttemptsShown is the limit of attempts in a response, and the most that a policy may allow.
const maxAttemptsShown = 1000

type listProblemsRequest struct {
	Topic  string `query:"topic"`
	Within int    `query:"withinInMinutes" minimum:"1" maximum:"10080" default:"60"`
}

// Problems are the outcomes of failed attempts.
type Problems struct {
	Value []query.Problem `json:"value"`
}

// ListProblems responds to GET /v1/problems.
func (m *Handlers) ListProblems(ctx context.Context, r *listProblemsRequest) (*Problems, error) {
	list, err := m.Parts.Reader.ReadProblems(ctx, r.Topic, time.Duration(r.Within)*time.Minute)
	if err == nil && len(list) == 0 {
		err = m.Parts.Reader.CheckNames(ctx, r.Topic, "")
	}
	return &Problems{Value: api.Shown(list)}, err
}

type listDeliveriesRequest struct {
	query.DeliveryFilter
	OperationID *uuid.UUID `query:"operationId"`
	api.PageParams
}

// ListDeliveries responds to GET /v1/deliveries.
func (m *Handlers) ListDeliveries(
	ctx context.Context, r *listDeliveriesRequest,
) (*api.List[query.DeliveryLine], error) {
	if err := inOrder("publishedFrom", r.From, "publishedUntil", r.To); err != nil {
		return nil, err
	}
	r.Operation = r.OperationID
	list, err := newestFirst(ctx, "/v1/deliveries", r, r.DeliveryFilter, m.Parts.Reader.ReadDeliveries,
		(*query.DeliveryLine).Place)
	if err == nil && len(list.Value) == 0 && r.Operation != nil {
		_, err = m.Parts.Reader.Operation(ctx, *r.Operation)
		if errors.Is(err, postgres.ErrNotFound) {
			err = api.NotFound("operation %q does not exist or is no longer stored", *r.Operation)
		}
	}
	return named(ctx, m, list, err, r.Topic, r.Subscription)
}

// DeliveryPath names a delivery.
type DeliveryPath struct {
	ID int64 `path:"deliveryId" example:"1"`
}

// GetDelivery responds to GET /v1/deliveries/{deliveryId}.
func (m *Handlers) GetDelivery(ctx context.Context, r *DeliveryPath) (*query.DeliveryLine, error) {
	return m.Parts.Reader.Delivery(ctx, r.ID)
}

// ListDeliveryAttempts responds to GET /v1/deliveries/{deliveryId}/attempts.
func (m *Handlers) ListDeliveryAttempts(ctx context.Context, r *DeliveryPath) (*DeliveryAttempts, error) {
	if _, err := m.GetDelivery(ctx, r); err != nil {
		return nil, err
	}
	attempts, err := m.Parts.Reader.Attempts(ctx, r.ID, maxAttemptsShown)
	return &DeliveryAttempts{Value: api.Shown(attempts)}, err
}

// CancelDelivery responds to POST /v1/deliveries/{deliveryId}/cancel.
func (m *Handlers) CancelDelivery(ctx context.Context, r *DeliveryPath) (*query.DeliveryLine, error) {
	if err := m.Parts.Operator.Cancel(ctx, r.ID); err != nil {
		return nil, err
	}
	return m.GetDelivery(ctx, r)
}

// RetryDelivery responds to POST /v1/deliveries/{deliveryId}/retryNow.
func (m *Handlers) RetryDelivery(ctx context.Context, r *DeliveryPath) (*query.DeliveryLine, error) {
	if err := m.Parts.Operator.RetryNow(ctx, r.ID); err != nil {
		return nil, err
	}
	return m.GetDelivery(ctx, r)
}

// DeadLetterDelivery responds to POST /v1/deliveries/{deliveryId}/deadLetterNow.
func (m *Handlers) DeadLetterDelivery(ctx context.Context, r *DeliveryPath) (*query.DeliveryLine, error) {
	if _, err := m.Parts.Operator.DeadLetterNow(ctx, r.ID); err != nil {
		return nil, err
	}
	return m.GetDelivery(ctx, r)
}

type listBatchesRequest struct {
	api.PageParams
	query.BatchFilter
}

// ListBatches responds to GET /v1/batches.
func (m *Handlers) ListBatches(ctx context.Context, r *listBatchesRequest) (*api.List[query.BatchLine], error) {
	list, err := newestFirst(ctx, "/v1/batches", r, r.BatchFilter, m.Parts.Reader.ReadBatches,
		func(l *query.BatchLine) int64 { return l.BatchID })
	return named(ctx, m, list, err, r.Topic, r.Subscription)
}

// BatchPath names a batch.
type BatchPath struct {
	ID int64 `path:"batchId" example:"1"`
}

// GetBatch responds to GET /v1/batches/{batchId}.
func (m *Handlers) GetBatch(ctx context.Context, r *BatchPath) (*query.BatchLine, error) {
	b, err := m.Parts.Reader.ReadBatch(ctx, r.ID, 0, 0)
	if err != nil {
		return nil, err
	}
	return &b.BatchLine, nil
}

type listBatchMembersRequest struct {
	BatchPath
	api.PageParams
}

// ListBatchMembers responds to GET /v1/batches/{batchId}/members.
func (m *Handlers) ListBatchMembers(
	ctx context.Context, r *listBatchMembersRequest,
) (*api.List[query.MemberLine], error) {
	return api.ListAfter(ctx, fmt.Sprintf("/v1/batches/%d/members", r.ID), r,
		func(ctx context.Context, after, limit int) ([]query.MemberLine, error) {
			if after < 0 {
				return nil, api.InvalidCursor()
			}
			b, err := m.Parts.Reader.ReadBatch(ctx, r.ID, after, limit)
			if err != nil {
				return nil, err
			}
			return b.Listed, nil
		}, func(l query.MemberLine) int { return l.Position })
}

// DeliveryAttempts are the attempts of a delivery or a batch.
type DeliveryAttempts struct {
	Value []query.AttemptLine `json:"value"`
}

// ListBatchAttempts responds to GET /v1/batches/{batchId}/attempts.
func (m *Handlers) ListBatchAttempts(ctx context.Context, r *BatchPath) (*DeliveryAttempts, error) {
	b, err := m.Parts.Reader.ReadBatch(ctx, r.ID, 0, 0)
	if err != nil {
		return nil, err
	}
	return &DeliveryAttempts{Value: api.Shown(b.History)}, nil
}

// DeliveriesSpec selects the pending deliveries that an operation retries or cancels.
type DeliveriesSpec struct {
	Filter *query.DeliveryFilter `json:"filter,omitempty"`
	BulkSpec
}

// OnDeliveries responds to POST /v1/deliveries/retryNow and cancel.
func (m *Handlers) OnDeliveries(
	kind string,
) func(context.Context, *api.Body[DeliveriesSpec]) (*StartedOperation, error) {
	return func(ctx context.Context, r *api.Body[DeliveriesSpec]) (*StartedOperation, error) {
		var found problems
		do := found.bulk(kind, &r.Body.BulkSpec)
		if r.Body.Filter == nil {
			found.Value("filter", "is required; {} matches all pending deliveries")
		} else {
			if r.Body.Filter.State != "" && r.Body.Filter.State != "pending" {
				found.Value("filter.state", "must be pending, not %q: others have ended", api.Shorten(r.Body.Filter.State))
			}
			if r.Body.Filter.Hold != "" && !slices.Contains(query.HoldReasons, r.Body.Filter.Hold) {
				found.Value("filter.hold", "must be one of %v, not %q", query.HoldReasons, api.Shorten(r.Body.Filter.Hold))
			}
			if r.Body.Filter.From != nil && r.Body.Filter.To != nil && !r.Body.Filter.From.Before(*r.Body.Filter.To) {
				found.Value("filter.publishedFrom", "must be before publishedUntil")
			}
			if n := len(r.Body.Filter.DeliveryIDs); r.Body.Filter.DeliveryIDs != nil && (n == 0 || n > query.MaxFilterIDs) {
				found.Value("filter.deliveryIds", "must have between 1 and %d ids, not %d", query.MaxFilterIDs, n)
			}
		}
		if err := found.Err(); err != nil {
			return nil, err
		}
		if r.Body.DryRun {
			n, err := m.Parts.Reader.CountDeliveries(ctx, *r.Body.Filter)
			return &StartedOperation{Done: &n}, err
		}
		id, err := m.Parts.Operator.OnDeliveries(ctx, r.Body.Filter, do)
		return m.started(ctx, id, err)
	}
}
