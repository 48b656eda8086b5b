package management

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"postrider/postgres"
	"postrider/query"
	"postrider/server/api"
)

// ListBatches answers GET /v1/batches.
func (m *Handlers) ListBatches(
	ctx context.Context, r api.ListBatchesRequestObject,
) (api.ListBatchesResponseObject, error) {
	p := r.Params
	turn, err := readTurn(p.Limit, p.Cursor, parseNumber)
	if err != nil {
		return nil, err
	}
	var found problems
	f := query.BatchFilter{
		Topic: found.text("topic", p.Topic), Subscription: found.text("subscription", p.Subscription),
		State: found.oneOf("state", p.State, query.DeliveryStates),
		Hold:  found.oneOf("hold", p.Hold, query.HoldReasons),
	}
	if err := found.Err(); err != nil {
		return nil, err
	}
	page, err := m.Parts.Reader.ReadBatches(ctx, f, turn)
	if err != nil {
		return nil, err
	}
	id := func(l query.BatchLine) int64 { return l.BatchID }
	return api.ListBatches200JSONResponse{Value: described(page.Rows, DescribeBatch), NextLink: nextOf("/v1/batches", p,
		turn.Limit, page, id, numberText)}, nil
}

// GetBatch answers GET /v1/batches/{batchId}.
func (m *Handlers) GetBatch(ctx context.Context, r api.GetBatchRequestObject) (api.GetBatchResponseObject, error) {
	b, err := m.batch(ctx, r.BatchId, 0, 0)
	if err != nil {
		return nil, err
	}
	return api.GetBatch200JSONResponse(DescribeBatch(&b.BatchLine)), nil
}

// ListBatchMembers answers GET /v1/batches/{batchId}/members.
func (m *Handlers) ListBatchMembers(
	ctx context.Context, r api.ListBatchMembersRequestObject,
) (api.ListBatchMembersResponseObject, error) {
	page, err := api.ReadPage(r.Params.Limit, r.Params.Cursor)
	if err != nil {
		return nil, err
	}
	after := 0
	if r.Params.Cursor != nil {
		if after, err = strconv.Atoi(page.After); err != nil || after < 0 {
			return nil, api.Invalid("cursor", "must be one that a nextLink had")
		}
	}
	b, err := m.batch(ctx, r.BatchId, after, page.Limit+1)
	if err != nil {
		return nil, err
	}
	shown, next := api.Cut(page, b.Listed, fmt.Sprintf("/v1/batches/%d/members", r.BatchId),
		func(l query.MemberLine) string { return strconv.Itoa(l.Position) })
	return api.ListBatchMembers200JSONResponse{Value: described(shown, DescribeMember), NextLink: next}, nil
}

// ListBatchAttempts answers GET /v1/batches/{batchId}/attempts.
func (m *Handlers) ListBatchAttempts(
	ctx context.Context, r api.ListBatchAttemptsRequestObject,
) (api.ListBatchAttemptsResponseObject, error) {
	b, err := m.batch(ctx, r.BatchId, 0, 0)
	if err != nil {
		return nil, err
	}
	return api.ListBatchAttempts200JSONResponse{Value: described(b.History, DescribeAttempt)}, nil
}

func (m *Handlers) batch(ctx context.Context, id int64, after, members int) (*query.BatchDetails, error) {
	b, err := m.Parts.Reader.ReadBatch(ctx, id, after, members)
	if errors.Is(err, postgres.ErrNotFound) {
		return nil, api.Refuse(http.StatusNotFound, api.CodeNotFound, "batch %d does not exist, or is not kept any more", id)
	}
	return b, err
}

// DescribeBatch is a batch as the REST API and `batch list -o json` write it.
func DescribeBatch(b *query.BatchLine) api.Batch {
	return api.Batch{
		BatchId: b.BatchID, Topic: b.Topic, Subscription: b.Subscription, State: b.State, Hold: b.Hold, Members: b.Members,
		Bytes: b.Bytes, Attempts: b.Attempts, Reruns: b.Reruns,
		NextAttemptAt: utcOrNull(b.NextAttemptAt), HoldUntil: utcOrNull(b.HoldUntil),
		FirstAttemptAt: utcOrNull(b.FirstAttemptAt), LastAttemptAt: utcOrNull(b.LastAttemptAt), LastOutcome: b.LastOutcome,
		LastStatus: b.LastStatus,
		CreatedAt:  b.CreatedAt.UTC(), FinishedAt: utcOrNull(b.FinishedAt),
	}
}

// DescribeMember is a delivery of a batch as the REST API and `batch show -o json` write it.
func DescribeMember(l *query.MemberLine) api.BatchMember {
	return api.BatchMember{
		Position: l.Position, DeliveryId: l.DeliveryID, EventId: l.EventID, LeftAt: utcOrNull(l.LeftAt),
		LeftAfter: l.LeftAfter, LeftReason: l.LeftReason,
	}
}
