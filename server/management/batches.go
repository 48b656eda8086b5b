package management

import (
	"context"
	"fmt"
	"strconv"

	"postrider/query"
	"postrider/server/api"
)

// ListBatchesRequest is the request GET /v1/batches.
type ListBatchesRequest struct {
	api.PageParams
	query.BatchFilter
}

// ListBatches responds to GET /v1/batches.
func (m *Handlers) ListBatches(ctx context.Context, r *ListBatchesRequest) (*api.List[query.BatchLine], error) {
	return newestFirst(ctx, "/v1/batches", r, &r.PageParams, r.BatchFilter, m.Parts.Reader.ReadBatches,
		func(l *query.BatchLine) int64 { return l.BatchID }, numberKey)
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

// ListBatchMembersRequest is the request GET /v1/batches/{batchId}/members.
type ListBatchMembersRequest struct {
	BatchPath
	api.PageParams
}

// ListBatchMembers responds to GET /v1/batches/{batchId}/members.
func (m *Handlers) ListBatchMembers(
	ctx context.Context, r *ListBatchMembersRequest,
) (*api.List[query.MemberLine], error) {
	return api.ListByName(ctx, &r.PageParams, fmt.Sprintf("/v1/batches/%d/members", r.ID),
		func(ctx context.Context, after string, limit int) ([]query.MemberLine, error) {
			position := 0
			if r.Cursor != nil {
				var err error
				if position, err = strconv.Atoi(after); err != nil || position < 0 {
					return nil, api.InvalidCursor()
				}
			}
			b, err := m.Parts.Reader.ReadBatch(ctx, r.ID, position, limit)
			if err != nil {
				return nil, err
			}
			return b.Listed, nil
		}, func(l query.MemberLine) string { return strconv.Itoa(l.Position) })
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
