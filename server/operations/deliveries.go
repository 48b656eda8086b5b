package operations

import (
	"context"
	"errors"
	"slices"

	"postrider/internal/operator"
	"postrider/internal/postgres"
	"postrider/internal/query"
	"postrider/server/api"
)

// maxAttemptsShown is the limit of attempts in a response, and the most that a policy may allow.
const maxAttemptsShown = 1000

type listDeliveriesRequest struct {
	query.DeliveryFilter
	api.PageParams
}

// ListDeliveries lists deliveries.
//
// Lists pending and finished deliveries, the newest first. With publishedFrom or publishedUntil they are in the order
// of their events. Filters by event, time, event subscription or the state pending use an index.
//
// Other filters search 20,000 rows a page. A page may therefore have fewer rows than `limit`: follow nextLink until it
// is null.
func (m *Handlers) ListDeliveries(
	ctx context.Context, r *listDeliveriesRequest,
) (*api.List[query.DeliveryLine], error) {
	if err := inOrder("publishedFrom", r.From, "publishedUntil", r.To); err != nil {
		return nil, err
	}
	list, err := newestFirst(ctx, r, r.DeliveryFilter, m.Parts.Reader.ReadDeliveries,
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

// GetDelivery reads a delivery.
//
// Returns a delivery. Finished deliveries are kept until the end of the retention.
func (m *Handlers) GetDelivery(ctx context.Context, r *DeliveryPath) (*query.DeliveryLine, error) {
	return m.Parts.Reader.Delivery(ctx, r.ID)
}

// ListDeliveryAttempts lists the attempts of a delivery.
//
// Lists the first 1,000 attempts with their responses and the decisions of the retry policy. Attempts of its batches
// are included.
func (m *Handlers) ListDeliveryAttempts(ctx context.Context, r *DeliveryPath) (*DeliveryAttempts, error) {
	if _, err := m.GetDelivery(ctx, r); err != nil {
		return nil, err
	}
	attempts, err := m.Parts.Reader.Attempts(ctx, r.ID, maxAttemptsShown)
	return &DeliveryAttempts{Value: api.Shown(attempts)}, err
}

// CancelDelivery cancels a pending delivery.
//
// Ends a delivery with the state canceled and the reason CanceledByOperator. It leaves its batch. The response is 409
// if the delivery has ended.
//
// An attempt in progress, or one that begins within 100 ms, may still reach the endpoint. Its result is not recorded.
func (m *Handlers) CancelDelivery(ctx context.Context, r *DeliveryPath) (*query.DeliveryLine, error) {
	if err := m.Parts.Operator.Cancel(ctx, r.ID); err != nil {
		return nil, err
	}
	return m.GetDelivery(ctx, r)
}

// RetryDelivery retries a pending delivery now.
//
// Makes the next attempt due now. Attempts and time to live do not change. The delivery leaves its batch.
//
// The response is 409 if the delivery has ended, during an attempt, and while its event subscription has a hold.
func (m *Handlers) RetryDelivery(ctx context.Context, r *DeliveryPath) (*query.DeliveryLine, error) {
	if err := m.Parts.Operator.RetryNow(ctx, r.ID); err != nil {
		return nil, err
	}
	return m.GetDelivery(ctx, r)
}

// DeadLetterDelivery dead-letters a pending delivery.
//
// Turns a delivery into a dead letter with the reason DeadLetteredByOperator, even if the event subscription drops dead
// letters. Otherwise it behaves like cancel.
//
// In the response, `deadLetterId` is the dead letter.
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

// ListBatches lists batches.
//
// Lists batches, the newest first. A page may have fewer rows than `limit`, because it searches 20,000 rows. Follow
// nextLink until it is null.
func (m *Handlers) ListBatches(ctx context.Context, r *listBatchesRequest) (*api.List[query.BatchLine], error) {
	list, err := newestFirst(ctx, r, r.BatchFilter, m.Parts.Reader.ReadBatches,
		func(l *query.BatchLine) int64 { return l.BatchID })
	return named(ctx, m, list, err, r.Topic, r.Subscription)
}

// BatchPath names a batch.
type BatchPath struct {
	ID int64 `path:"batchId" example:"1"`
}

// GetBatch reads a batch.
//
// Returns a batch. Finished batches are kept until the end of the retention.
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

// ListBatchMembers lists the deliveries of a batch.
//
// Lists the members in the order of the request, with those that have left the batch.
func (m *Handlers) ListBatchMembers(
	ctx context.Context, r *listBatchMembersRequest,
) (*api.List[query.MemberLine], error) {
	return api.ListAfter(ctx, r,
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
	// The attempts in their order.
	Value []query.AttemptLine `json:"value"`
}

// ListBatchAttempts lists the attempts of a batch.
//
// Lists the newest 200 attempts. An attempt's result holds for all members.
func (m *Handlers) ListBatchAttempts(ctx context.Context, r *BatchPath) (*DeliveryAttempts, error) {
	b, err := m.Parts.Reader.ReadBatch(ctx, r.ID, 0, 0)
	if err != nil {
		return nil, err
	}
	return &DeliveryAttempts{Value: api.Shown(b.History)}, nil
}

// DeliveriesSpec are the pending deliveries of an operation.
type DeliveriesSpec struct {
	// All pending deliveries that match; `{}` matches all.
	Filter *query.DeliveryFilter `json:"filter,omitempty"`
	BulkSpec
}

// RetryDeliveries retries matching deliveries now.
//
// Starts an operation that counts, then makes the next attempt of each pending delivery that matches the filter due
// now. It skips those with an attempt in progress and those that have ended; deliveries on hold fail. With `dryRun`
// they are counted only.
func (m *Handlers) RetryDeliveries(ctx context.Context, r *api.Body[DeliveriesSpec]) (*StartedOperation, error) {
	return m.onDeliveries(ctx, operator.Retry, &r.Body)
}

// CancelDeliveries cancels matching deliveries.
//
// Starts an operation that counts, then cancels each pending delivery that matches the filter. An attempt in progress
// may still reach the endpoint. With `dryRun` they are counted only.
func (m *Handlers) CancelDeliveries(ctx context.Context, r *api.Body[DeliveriesSpec]) (*StartedOperation, error) {
	return m.onDeliveries(ctx, operator.Cancel, &r.Body)
}

// onDeliveries starts an operation for the deliveries that match a filter, or counts them.
func (m *Handlers) onDeliveries(ctx context.Context, kind string, spec *DeliveriesSpec) (*StartedOperation, error) {
	var found problems
	do := found.bulk(kind, &spec.BulkSpec)
	if spec.Filter == nil {
		found.Value("filter", "is required; {} matches all pending deliveries")
	} else {
		if spec.Filter.State != "" && spec.Filter.State != "pending" {
			found.Value("filter.state", "must be pending, not %q: others have ended", api.Shorten(spec.Filter.State))
		}
		if spec.Filter.Hold != "" && !slices.Contains(query.HoldReasons, spec.Filter.Hold) {
			found.Value("filter.hold", "must be one of %v, not %q", query.HoldReasons, api.Shorten(spec.Filter.Hold))
		}
		if spec.Filter.From != nil && spec.Filter.To != nil && !spec.Filter.From.Before(*spec.Filter.To) {
			found.Value("filter.publishedFrom", "must be before publishedUntil")
		}
		if n := len(spec.Filter.DeliveryIDs); spec.Filter.DeliveryIDs != nil && (n == 0 || n > query.MaxFilterIDs) {
			found.Value("filter.deliveryIds", "must have between 1 and %d ids, not %d", query.MaxFilterIDs, n)
		}
	}
	if err := found.Err(); err != nil {
		return nil, err
	}
	if err := m.Parts.Reader.CheckNames(ctx, spec.Filter.Topic, spec.Filter.Subscription); err != nil {
		return nil, err
	}
	if spec.DryRun {
		n, err := m.Parts.Reader.CountDeliveries(ctx, *spec.Filter)
		return &StartedOperation{Done: &n}, err
	}
	id, err := m.Parts.Operator.OnDeliveries(ctx, spec.Filter, do)
	return m.started(ctx, id, err)
}
