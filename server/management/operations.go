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

// ListOperations answers GET /v1/operations.
func (m *Handlers) ListOperations(
	ctx context.Context, r api.ListOperationsRequestObject,
) (api.ListOperationsResponseObject, error) {
	page, place, err := readPlace(r.Params.Limit, r.Params.Cursor)
	if err != nil {
		return nil, err
	}
	var after *query.Operation
	if place.id != uuid.Nil {
		after = &query.Operation{OperationID: place.id, CreatedAt: place.at}
	}
	list, err := m.Parts.Reader.Operations(ctx, after, page.Limit+1)
	if err != nil {
		return nil, err
	}
	shown, next := api.Cut(page, list, "/v1/operations",
		func(o query.Operation) string { return placeName(o.CreatedAt, o.OperationID) })
	answer := api.ListOperations200JSONResponse{Value: []api.Operation{}, NextLink: next}
	for i := range shown {
		answer.Value = append(answer.Value, DescribeOperation(&shown[i]))
	}
	return answer, nil
}

// GetOperation answers GET /v1/operations/{operationId}.
func (m *Handlers) GetOperation(
	ctx context.Context, r api.GetOperationRequestObject,
) (api.GetOperationResponseObject, error) {
	id, err := uuid.Parse(r.OperationId)
	if err != nil {
		return nil, operationNotFound(r.OperationId)
	}
	o, err := m.operation(ctx, id)
	return api.GetOperation200JSONResponse(o), err
}

// CancelOperation answers POST /v1/operations/{operationId}/cancel.
func (m *Handlers) CancelOperation(
	ctx context.Context, r api.CancelOperationRequestObject,
) (api.CancelOperationResponseObject, error) {
	id, err := uuid.Parse(r.OperationId)
	if err != nil {
		return nil, operationNotFound(r.OperationId)
	}
	if _, err := m.Parts.Operator.CancelOperation(ctx, id); err != nil {
		return nil, err
	}
	o, err := m.operation(ctx, id)
	return api.CancelOperation200JSONResponse(o), err
}

// RedeliverEvents answers POST /v1/topics/{topic}/subscriptions/{subscription}/redeliverEvents.
func (m *Handlers) RedeliverEvents(
	ctx context.Context, r api.RedeliverEventsRequestObject,
) (api.RedeliverEventsResponseObject, error) {
	if !api.Storable(r.Topic) || !api.Storable(r.Subscription) {
		return nil, api.SubscriptionNotFound(r.Topic, r.Subscription)
	}
	b := optional(r.Body, api.RedeliverEventsSettings{})
	var found problems
	from, until, rate := found.moment("from", &b.From), found.moment("until", b.Until), found.rate(b.RatePerSecond)
	if from != nil && until != nil && !from.Before(*until) {
		found.Value("from", "must be before until")
	}
	if err := found.Err(); err != nil {
		return nil, err
	}
	if !from.Before(m.Parts.Clock.Now()) {
		return nil, api.Invalid("from", "must be in the past")
	}
	if optional(b.DryRun, false) {
		found, err := m.Parts.Reader.CountEvents(ctx, r.Topic, r.Subscription, *from, until)
		return api.RedeliverEvents200JSONResponse(DescribeMatched(found)), noSubscription(err, r.Topic, r.Subscription)
	}
	id, err := m.Parts.Operator.RedeliverEvents(ctx, r.Topic, r.Subscription, *from, until, rate)
	if err != nil {
		return nil, noSubscription(err, r.Topic, r.Subscription)
	}
	o, err := m.operation(ctx, id)
	return api.RedeliverEvents202JSONResponse(o), err
}

// noSubscription says that what the path names is not there, where a function refused it as an argument.
func noSubscription(err error, topic, subscription string) error {
	var refusal *postgres.FunctionError
	if errors.As(err, &refusal) && errors.Is(err, postgres.ErrInvalid) && refusal.Field == "subscription" {
		return api.SubscriptionNotFound(topic, subscription)
	}
	return err
}

func (m *Handlers) operation(ctx context.Context, id uuid.UUID) (api.Operation, error) {
	o, err := m.Parts.Reader.Operation(ctx, id)
	switch {
	case errors.Is(err, postgres.ErrNotFound):
		return api.Operation{}, operationNotFound(id.String())
	case err != nil:
		return api.Operation{}, err
	}
	return DescribeOperation(o), nil
}

func operationNotFound(id string) error {
	return api.Refuse(http.StatusNotFound, api.CodeNotFound, "operation %q does not exist", api.Shorten(id))
}

// DescribeOperation is the operation as the REST API and `deadletter -o json` write it.
func DescribeOperation(o *query.Operation) api.Operation {
	f := o.Filter
	shown := api.Operation{
		OperationId: o.OperationID.String(), Kind: api.OperationKind(o.Kind), State: api.OperationState(o.State),
		Topic: o.Topic, Subscription: o.Subscription,
		PublishedFrom: utcOrNull(o.PublishedFrom), PublishedUntil: utcOrNull(o.PublishedUntil),
		RatePerSecond: o.RatePerSecond, Matched: o.Matched, MatchedAtLeast: o.MatchedAtLeast, Done: o.Done,
		Skipped: o.Skipped,
		Failed:  o.Failed, LastError: o.LastError, ReachedAt: utcOrNull(o.ReachedAt), StartedBy: o.StartedBy,
		CreatedAt: o.CreatedAt.UTC(), FinishedAt: utcOrNull(o.FinishedAt),
		Filter: api.DeadLetterFilter{
			Topic: f.Topic, Subscription: f.Subscription, Reason: f.Reason, LastOutcome: f.LastOutcome, LastStatus: f.LastStatus,
			EventId: f.EventID, EventType: f.EventType,
			Subject: f.Subject, SubjectPrefix: f.SubjectPrefix, Source: f.Source, Redelivered: f.Redelivered,
			DeadLetteredFrom:  momentText(f.DeadLetteredFrom),
			DeadLetteredUntil: momentText(f.DeadLetteredUntil),
		},
	}
	if o.Pending != nil {
		shown.Outcomes = &api.OperationOutcomes{
			Pending: *o.Pending, Delivered: *o.Delivered, DeadLettered: *o.DeadLettered, Dropped: *o.Dropped,
			Canceled: *o.Canceled,
		}
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
func readPlace(limit *int, cursor *string) (api.Page, place, error) {
	p, err := api.ReadPage(limit, cursor)
	if err != nil || cursor == nil {
		return p, place{}, err
	}
	at, id, _ := strings.Cut(p.After, " ")
	var from place
	var wrong [2]error
	from.at, wrong[0] = time.Parse(time.RFC3339Nano, at)
	from.id, wrong[1] = uuid.Parse(id)
	if errors.Join(wrong[:]...) != nil {
		return p, place{}, api.Invalid("cursor", "must be one that a nextLink had")
	}
	return p, from, nil
}
