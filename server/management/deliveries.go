package management

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"postrider/postgres"
	"postrider/query"
	"postrider/server/api"
)

// maxAttemptsShown is more than any policy allows before a time to live of a day has passed.
const maxAttemptsShown = 1000

// ListDeliveries answers GET /v1/deliveries.
func (m *Handlers) ListDeliveries(
	ctx context.Context, r api.ListDeliveriesRequestObject,
) (api.ListDeliveriesResponseObject, error) {
	p := r.Params
	turn, err := readTurn(p.Limit, p.Cursor, parsePlace)
	if err != nil {
		return nil, err
	}
	var found problems
	f := query.DeliveryFilter{
		Topic: found.text("topic", p.Topic), Subscription: found.text("subscription", p.Subscription),
		State: found.oneOf("state", p.State, query.DeliveryStates),
		Hold:  found.oneOf("hold", p.Hold, query.HoldReasons), Outcome: found.text("lastOutcome", p.LastOutcome),
		Event: found.text("eventId", p.EventId),
	}
	f.From, f.To = found.span("publishedFrom", p.PublishedFrom, "publishedUntil", p.PublishedUntil)
	f.Operation = found.operation("operationId", p.OperationId)
	if err := found.Err(); err != nil {
		return nil, err
	}
	page, err := m.Parts.Reader.ReadDeliveries(ctx, f, turn)
	if err != nil {
		return nil, err
	}
	place := func(l query.DeliveryLine) query.DeliveryPlace { return l.Place() }
	return api.ListDeliveries200JSONResponse{Value: described(page.Rows, DescribeDelivery), NextLink: nextOf(
		"/v1/deliveries", p, turn.Limit, page, place, placeText)}, nil
}

// operation reads the id of an operation; nil for none.
func (p *problems) operation(name string, given *string) *uuid.UUID {
	if given == nil {
		return nil
	}
	id, err := uuid.Parse(*given)
	if err != nil {
		p.Value(name, "must be the id of an operation, a UUID, not %q", api.Shorten(*given))
		return nil
	}
	return &id
}

// placeText writes a place as a cursor has it: "event,id".
func placeText(at query.DeliveryPlace) string {
	return idText(at.SystemID) + "," + numberText(at.DeliveryID)
}

func parsePlace(text string) (at query.DeliveryPlace, err error) {
	event, id, _ := strings.Cut(text, ",")
	if at.SystemID, err = uuid.Parse(event); err != nil {
		return at, err
	}
	at.DeliveryID, err = parseNumber(id)
	return at, err
}

// GetDelivery answers GET /v1/deliveries/{deliveryId}.
func (m *Handlers) GetDelivery(
	ctx context.Context, r api.GetDeliveryRequestObject,
) (api.GetDeliveryResponseObject, error) {
	shown, err := m.delivery(ctx, r.DeliveryId)
	if err != nil {
		return nil, err
	}
	return api.GetDelivery200JSONResponse(shown), nil
}

// ListDeliveryAttempts answers GET /v1/deliveries/{deliveryId}/attempts.
func (m *Handlers) ListDeliveryAttempts(
	ctx context.Context, r api.ListDeliveryAttemptsRequestObject,
) (api.ListDeliveryAttemptsResponseObject, error) {
	if _, err := m.delivery(ctx, r.DeliveryId); err != nil {
		return nil, err
	}
	attempts, err := m.Parts.Reader.Attempts(ctx, r.DeliveryId, maxAttemptsShown)
	if err != nil {
		return nil, err
	}
	return api.ListDeliveryAttempts200JSONResponse{Value: described(attempts, DescribeAttempt)}, nil
}

// CancelDelivery answers POST /v1/deliveries/{deliveryId}/cancel.
func (m *Handlers) CancelDelivery(
	ctx context.Context, r api.CancelDeliveryRequestObject,
) (api.CancelDeliveryResponseObject, error) {
	if err := m.Parts.Operator.Cancel(ctx, r.DeliveryId); err != nil {
		return nil, err
	}
	shown, err := m.delivery(ctx, r.DeliveryId)
	if err != nil {
		return nil, err
	}
	return api.CancelDelivery200JSONResponse(shown), nil
}

// RetryDelivery answers POST /v1/deliveries/{deliveryId}/retryNow.
func (m *Handlers) RetryDelivery(
	ctx context.Context, r api.RetryDeliveryRequestObject,
) (api.RetryDeliveryResponseObject, error) {
	if err := m.Parts.Operator.RetryNow(ctx, r.DeliveryId); err != nil {
		return nil, err
	}
	shown, err := m.delivery(ctx, r.DeliveryId)
	if err != nil {
		return nil, err
	}
	return api.RetryDelivery200JSONResponse(shown), nil
}

// DeadLetterDelivery answers POST /v1/deliveries/{deliveryId}/deadLetterNow.
func (m *Handlers) DeadLetterDelivery(
	ctx context.Context, r api.DeadLetterDeliveryRequestObject,
) (api.DeadLetterDeliveryResponseObject, error) {
	if _, err := m.Parts.Operator.DeadLetterNow(ctx, r.DeliveryId); err != nil {
		return nil, err
	}
	shown, err := m.delivery(ctx, r.DeliveryId)
	if err != nil {
		return nil, err
	}
	return api.DeadLetterDelivery200JSONResponse(shown), nil
}

func (m *Handlers) delivery(ctx context.Context, id int64) (api.Delivery, error) {
	found, err := m.Parts.Reader.Delivery(ctx, id)
	if errors.Is(err, postgres.ErrNotFound) {
		return api.Delivery{}, api.Refuse(http.StatusNotFound, api.CodeNotFound, "delivery %d does not exist", id)
	}
	if err != nil {
		return api.Delivery{}, err
	}
	return DescribeDelivery(found), nil
}

// DescribeDelivery shows a delivery as the REST API does.
func DescribeDelivery(d *query.DeliveryLine) api.Delivery {
	return api.Delivery{
		DeliveryId: d.DeliveryID, Topic: d.Topic, Subscription: d.Subscription, SystemId: d.SystemID.String(),
		EventId: d.EventID, EventType: d.EventType, Subject: d.Subject,
		State: d.State, Hold: d.Hold, Reason: d.Reason, Attempts: d.Attempts, Reruns: d.Reruns,
		NextAttemptAt: utcOrNull(d.NextAttemptAt), LastAttemptAt: utcOrNull(d.LastAttemptAt),
		HoldUntil: utcOrNull(d.HoldUntil), ExpiresAt: utcOrNull(d.ExpiresAt),
		LastOutcome: d.LastOutcome, LastStatus: d.LastStatus, OwedSince: d.OwedSince.UTC(),
		FinishedAt: utcOrNull(d.FinishedAt),
		BatchId:    d.BatchID, RedeliveredFrom: idOrNull(d.RedeliveredFrom), OperationId: idOrNull(d.OperationID),
		DeadLetterId: idOrNull(d.DeadLetterID),
	}
}

// DescribeAttempt shows an attempt as the REST API does.
func DescribeAttempt(a *query.AttemptLine) api.DeliveryAttempt {
	return api.DeliveryAttempt{
		Number: a.Number, Reruns: a.Reruns, DeliveryId: a.DeliveryID, BatchId: a.BatchID, DueAt: utcOrNull(a.DueAt),
		StartedAt: a.StartedAt.UTC(), DurationMs: a.DurationMs,
		DnsMs: a.DNSMs, ConnectMs: a.ConnectMs, TlsMs: a.TLSMs, FirstByteMs: a.FirstByteMs,
		Status: a.Status, Outcome: a.Outcome, Error: a.Error, Verdict: a.Verdict, NextAttemptAt: utcOrNull(a.NextAttemptAt),
		Why:    a.Why,
		StepMs: a.StepMs, FloorMs: a.FloorMs, JitterMs: a.JitterMs, RetryAfterMs: a.RetryAfterMs, Hold: a.Hold,
		SkippedMarks: a.SkippedMarks, Late: a.Late,
		RequestHeaders: a.RequestHeaders, ResponseHeaders: a.ResponseHeaders, ResponseExcerpt: a.ResponseExcerpt,
		Node: a.Node,
	}
}

func idOrNull(id *uuid.UUID) *string {
	if id == nil {
		return nil
	}
	return new(id.String())
}
