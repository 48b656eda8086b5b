package management

import (
	"context"
	"strings"

	"github.com/google/uuid"

	"postrider/query"
	"postrider/server/api"
)

// maxAttemptsShown is the limit of attempts in a response, and the most that a policy may allow.
const maxAttemptsShown = 1000

// ListDeliveriesRequest is the request GET /v1/deliveries.
type ListDeliveriesRequest struct {
	query.DeliveryFilter
	OperationID *uuid.UUID `query:"operationId"`
	api.PageParams
}

// ListDeliveries responds to GET /v1/deliveries.
func (m *Handlers) ListDeliveries(
	ctx context.Context, r *ListDeliveriesRequest,
) (*api.List[query.DeliveryLine], error) {
	if err := inOrder("publishedFrom", r.From, "publishedUntil", r.To); err != nil {
		return nil, err
	}
	r.Operation = r.OperationID
	return newestFirst(ctx, "/v1/deliveries", r, &r.PageParams, r.DeliveryFilter, m.Parts.Reader.ReadDeliveries,
		(*query.DeliveryLine).Place, deliveryKey)
}

// deliveryKey writes "event,delivery".
var deliveryKey = key[query.DeliveryPlace]{
	parse: func(text string) (at query.DeliveryPlace, err error) {
		event, id, _ := strings.Cut(text, ",")
		if at.SystemID, err = uuid.Parse(event); err != nil {
			return at, err
		}
		at.DeliveryID, err = parseNumber(id)
		return at, err
	},
	text: func(at query.DeliveryPlace) string { return at.SystemID.String() + "," + numberText(at.DeliveryID) },
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
