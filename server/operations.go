package server

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"postrider/store"
)

// ListOperations answers GET /v1/operations.
func (m *management) ListOperations(ctx context.Context, r ListOperationsRequestObject) (ListOperationsResponseObject, error) {
	page, place, err := readPlace(r.Params.Limit, r.Params.Cursor)
	if err != nil {
		return nil, err
	}
	var after *store.Operation
	if place.id != uuid.Nil {
		after = &store.Operation{OperationID: place.id, CreatedAt: place.at}
	}
	list, err := m.store.Operations(ctx, after, page.limit+1)
	if err != nil {
		return nil, err
	}
	shown, next := cut(page, list, "/v1/operations", func(o store.Operation) string { return placeName(o.CreatedAt, o.OperationID) })
	answer := ListOperations200JSONResponse{Value: []Operation{}, NextLink: next}
	for i := range shown {
		answer.Value = append(answer.Value, DescribeOperation(&shown[i]))
	}
	return answer, nil
}

// GetOperation answers GET /v1/operations/{operationId}.
func (m *management) GetOperation(ctx context.Context, r GetOperationRequestObject) (GetOperationResponseObject, error) {
	id, err := uuid.Parse(r.OperationId)
	if err != nil {
		return nil, operationNotFound(r.OperationId)
	}
	o, err := m.operation(ctx, id)
	return GetOperation200JSONResponse(o), err
}

// CancelOperation answers POST /v1/operations/{operationId}/cancel.
func (m *management) CancelOperation(ctx context.Context, r CancelOperationRequestObject) (CancelOperationResponseObject, error) {
	id, err := uuid.Parse(r.OperationId)
	if err != nil {
		return nil, operationNotFound(r.OperationId)
	}
	if _, err := m.store.Operator().CancelOperation(ctx, id); err != nil {
		return nil, err
	}
	o, err := m.operation(ctx, id)
	return CancelOperation200JSONResponse(o), err
}

// RedeliverEvents answers POST /v1/topics/{topic}/subscriptions/{subscription}/redeliverEvents.
func (m *management) RedeliverEvents(ctx context.Context, r RedeliverEventsRequestObject) (RedeliverEventsResponseObject, error) {
	if !storable(r.Topic) || !storable(r.Subscription) {
		return nil, subscriptionNotFound(r.Topic, r.Subscription)
	}
	b := optional(r.Body, RedeliverEventsSettings{})
	var found problems
	from, until, rate := found.moment("from", &b.From), found.moment("until", b.Until), found.rate(b.RatePerSecond)
	if from != nil && until != nil && !from.Before(*until) {
		found.value("from", "must be before until")
	}
	if err := found.err(); err != nil {
		return nil, err
	}
	if !from.Before(m.store.Now()) {
		return nil, invalid("from", "must be in the past")
	}
	if optional(b.DryRun, false) {
		found, err := m.store.CountEvents(ctx, r.Topic, r.Subscription, *from, until)
		return RedeliverEvents200JSONResponse(DescribeMatched(found)), noSubscription(err, r.Topic, r.Subscription)
	}
	id, err := m.store.Operator().RedeliverEvents(ctx, r.Topic, r.Subscription, *from, until, rate)
	if err != nil {
		return nil, noSubscription(err, r.Topic, r.Subscription)
	}
	o, err := m.operation(ctx, id)
	return RedeliverEvents202JSONResponse(o), err
}

// noSubscription says that what the path names is not there, where a function refused it as an argument.
func noSubscription(err error, topic, subscription string) error {
	var refusal *store.FunctionError
	if errors.As(err, &refusal) && errors.Is(err, store.ErrInvalid) && refusal.Field == "subscription" {
		return subscriptionNotFound(topic, subscription)
	}
	return err
}

func (m *management) operation(ctx context.Context, id uuid.UUID) (Operation, error) {
	o, err := m.store.Operation(ctx, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return Operation{}, operationNotFound(id.String())
	case err != nil:
		return Operation{}, err
	}
	return DescribeOperation(o), nil
}

func operationNotFound(id string) error {
	return refuse(http.StatusNotFound, codeNotFound, "operation %q does not exist", shorten(id))
}

// DescribeOperation is the operation as the REST API and `deadletter -o json` write it.
func DescribeOperation(o *store.Operation) Operation {
	f := o.Filter
	shown := Operation{
		OperationId: o.OperationID.String(), Kind: OperationKind(o.Kind), State: OperationState(o.State), Topic: o.Topic, Subscription: o.Subscription,
		PublishedFrom: utcOrNull(o.PublishedFrom), PublishedUntil: utcOrNull(o.PublishedUntil), RatePerSecond: o.RatePerSecond, Matched: o.Matched, MatchedAtLeast: o.MatchedAtLeast, Done: o.Done, Skipped: o.Skipped,
		Failed: o.Failed, LastError: o.LastError, ReachedAt: utcOrNull(o.ReachedAt), StartedBy: o.StartedBy, CreatedAt: o.CreatedAt.UTC(), FinishedAt: utcOrNull(o.FinishedAt),
		Filter: DeadLetterFilter{
			Topic: f.Topic, Subscription: f.Subscription, Reason: f.Reason, LastOutcome: f.LastOutcome, LastStatus: f.LastStatus, EventId: f.EventID, EventType: f.EventType,
			Subject: f.Subject, SubjectPrefix: f.SubjectPrefix, Source: f.Source, Redelivered: f.Redelivered, DeadLetteredFrom: momentText(f.DeadLetteredFrom),
			DeadLetteredUntil: momentText(f.DeadLetteredUntil),
		},
	}
	if o.Pending != nil {
		shown.Outcomes = &OperationOutcomes{Pending: *o.Pending, Delivered: *o.Delivered, DeadLettered: *o.DeadLettered, Dropped: *o.Dropped, Canceled: *o.Canceled}
	}
	if f.DeadLetterIDs != nil {
		ids := make([]string, len(f.DeadLetterIDs))
		for i, id := range f.DeadLetterIDs {
			ids[i] = id.String()
		}
		shown.Filter.DeadLetterIds = &ids
	}
	return shown
}

func momentText(at *time.Time) *string {
	if at == nil {
		return nil
	}
	return new(at.UTC().Format(time.RFC3339Nano))
}

// place is where a row stands in a list that is sorted by time.
type place struct {
	at time.Time
	id uuid.UUID
}

func placeName(at time.Time, id uuid.UUID) string {
	return at.UTC().Format(time.RFC3339Nano) + " " + id.String()
}

// readPlace reads the parameters of such a list.
func readPlace(limit *int, cursor *string) (page, place, error) {
	p, err := readPage(limit, cursor)
	if err != nil || cursor == nil {
		return p, place{}, err
	}
	at, id, _ := strings.Cut(p.after, " ")
	var from place
	var wrong [2]error
	from.at, wrong[0] = time.Parse(time.RFC3339Nano, at)
	from.id, wrong[1] = uuid.Parse(id)
	if errors.Join(wrong[:]...) != nil {
		return p, place{}, invalid("cursor", "must be one that a nextLink had")
	}
	return p, from, nil
}
