package management

import (
	"context"
	"encoding/json"

	"github.com/google/uuid"

	"postrider/operator"
	"postrider/postgres"
	"postrider/query"
	"postrider/server/api"
)

// ListDeadLettersRequest is the request GET /v1/deadLetters.
type ListDeadLettersRequest struct {
	query.DeadLetterFilter
	api.PageParams
}

// ListDeadLetters responds to GET /v1/deadLetters.
func (m *Handlers) ListDeadLetters(
	ctx context.Context, r *ListDeadLettersRequest,
) (*api.List[query.DeadLetter], error) {
	after, err := deadLetterPosition(&r.PageParams)
	if err != nil {
		return nil, err
	}
	list, err := m.Parts.Reader.ListDeadLetters(ctx, &r.DeadLetterFilter, after, r.Limit+1)
	if err != nil {
		return nil, err
	}
	page := &api.List[query.DeadLetter]{Value: api.Shown(list)}
	if len(list) > r.Limit {
		page.Value = list[:r.Limit]
		page.NextLink = nextDeadLetters("/v1/deadLetters", r, list[r.Limit-1].Place())
	}
	return page, nil
}

// deadLetterPosition reads a cursor; the beginning of the list without one.
func deadLetterPosition(r *api.PageParams) (query.DeadLetterPlace, error) {
	after, err := readPosition(r)
	return query.DeadLetterPlace{DeadLetteredAt: after.at, DeadLetterID: after.id}, err
}

func nextDeadLetters[R any](path string, request *R, last query.DeadLetterPlace) *string {
	return api.NextLink(path, api.QueryOf(request), position{last.DeadLetteredAt, last.DeadLetterID}.String())
}

// DeadLetterPath names a dead letter.
type DeadLetterPath struct {
	ID uuid.UUID `path:"deadLetterId" example:"0198c5a0-7b1e-7c3a-9d52-5f3a1c2b4d60"`
}

// GetDeadLetter responds to GET /v1/deadLetters/{deadLetterId}.
func (m *Handlers) GetDeadLetter(ctx context.Context, r *DeadLetterPath) (*query.DeadLetter, error) {
	l, err := m.Parts.Reader.GetDeadLetter(ctx, r.ID)
	if err == nil && l.BodyText != nil {
		l.Event = json.RawMessage(*l.BodyText)
	}
	return l, err
}

// PurgeDeadLetter responds to DELETE /v1/deadLetters/{deadLetterId}.
func (m *Handlers) PurgeDeadLetter(ctx context.Context, r *DeadLetterPath) (*api.NoContent, error) {
	purged, err := m.Parts.Operator.Purge(ctx, r.ID)
	if err == nil && !purged {
		err = postgres.ErrNotFound
	}
	return &api.NoContent{}, err
}

// RedeliverDeadLetterRequest is the request POST /v1/deadLetters/{deadLetterId}/redeliver.
type RedeliverDeadLetterRequest struct {
	DeadLetterPath
	Body RedeliverSpec `required:"false"`
}

// RedeliverSpec are the options of a redelivery.
type RedeliverSpec struct {
	RedeliverTarget
	Again bool `json:"again,omitempty" default:"false"`
}

// RedeliverTarget is the event subscription of a redelivery; empty for that of each dead letter.
type RedeliverTarget struct {
	Subscription string `json:"subscription,omitempty"`
	Topic        string `json:"topic,omitempty"`
}

// Redelivered is the new delivery of a dead letter.
type Redelivered struct {
	DeliveryID int64 `json:"deliveryId"`
}

// RedeliverDeadLetter responds to POST /v1/deadLetters/{deadLetterId}/redeliver.
func (m *Handlers) RedeliverDeadLetter(ctx context.Context, r *RedeliverDeadLetterRequest) (*Redelivered, error) {
	var found problems
	to := found.target(r.Body.RedeliverTarget)
	if err := found.Err(); err != nil {
		return nil, err
	}
	delivery, err := m.Parts.Operator.Redeliver(ctx, r.ID, to, r.Body.Again)
	return &Redelivered{DeliveryID: delivery}, err
}

// PurgeAllSpec selects the dead letters that an operation purges.
type PurgeAllSpec struct {
	Filter        *query.DeadLetterFilter `json:"filter,omitempty"`
	RatePerSecond *int                    `json:"ratePerSecond,omitempty" minimum:"1"`
	DryRun        bool                    `json:"dryRun,omitempty" default:"false"`
}

// RedeliverAllSpec selects the dead letters that an operation redelivers.
type RedeliverAllSpec struct {
	PurgeAllSpec
	RedeliverTarget
}

// RedeliverDeadLettersRequest is the request POST /v1/deadLetters/redeliver.
type RedeliverDeadLettersRequest struct{ Body RedeliverAllSpec }

// StartedOperation is the response to a request for an operation: the operation, or the result of a dry run.
type StartedOperation = api.Started[query.Matched, query.Operation]

// RedeliverDeadLetters responds to POST /v1/deadLetters/redeliver.
func (m *Handlers) RedeliverDeadLetters(
	ctx context.Context, r *RedeliverDeadLettersRequest,
) (*StartedOperation, error) {
	var found problems
	to := found.target(r.Body.RedeliverTarget)
	if f := r.Body.Filter; f != nil && f.Redelivered == nil {
		f.Redelivered = new(false)
	}
	return m.startMany(ctx, &r.Body.PurgeAllSpec, &found,
		func(ctx context.Context, filter *query.DeadLetterFilter, rate int) (uuid.UUID, error) {
			return m.Parts.Operator.RedeliverAll(ctx, filter, to, rate)
		})
}

// PurgeDeadLettersRequest is the request POST /v1/deadLetters/purge.
type PurgeDeadLettersRequest struct{ Body PurgeAllSpec }

// PurgeDeadLetters responds to POST /v1/deadLetters/purge.
func (m *Handlers) PurgeDeadLetters(ctx context.Context, r *PurgeDeadLettersRequest) (*StartedOperation, error) {
	return m.startMany(ctx, &r.Body, &problems{}, m.Parts.Operator.PurgeAll)
}

// startMany starts an operation for the dead letters that match a filter, or counts them.
func (m *Handlers) startMany(
	ctx context.Context, spec *PurgeAllSpec, found *problems,
	start func(context.Context, *query.DeadLetterFilter, int) (uuid.UUID, error),
) (*StartedOperation, error) {
	rate := found.rate(spec.RatePerSecond)
	if spec.Filter == nil {
		found.Value("filter", "is required; {} matches all dead letters")
	} else {
		found.filter(spec.Filter)
	}
	if err := found.Err(); err != nil {
		return nil, err
	}
	if spec.DryRun {
		n, err := m.Parts.Reader.CountDeadLetters(ctx, spec.Filter)
		return &StartedOperation{Done: &n}, err
	}
	id, err := start(ctx, spec.Filter, rate)
	return m.started(ctx, id, err)
}

// target checks the event subscription of a redelivery.
func (p *problems) target(to RedeliverTarget) operator.Target {
	if to.Topic != "" && to.Subscription == "" {
		p.Value("subscription", "is required with topic")
	}
	for name, value := range map[string]string{"topic": to.Topic, "subscription": to.Subscription} {
		if !api.Storable(value) {
			p.Value(name, "must be UTF-8 without the character 0")
		}
	}
	return operator.Target{Topic: to.Topic, Subscription: to.Subscription}
}

// rate checks ratePerSecond; 0 = no limit.
func (p *problems) rate(given *int) int {
	if given != nil && (*given < 1 || *given > maxRate) {
		p.Value("ratePerSecond", "must be between 1 and %d, not %d", maxRate, *given)
	}
	return optional(given, 0)
}

const (
	maxRate = 1_000_000
	// maxFilterIDs is the limit of ids in a filter.
	maxFilterIDs = 5000
)

// filter checks the filter in a body.
func (p *problems) filter(f *query.DeadLetterFilter) {
	for name, text := range map[string]*string{
		"topic": f.Topic, "subscription": f.Subscription, "reason": f.Reason, "lastOutcome": f.LastOutcome,
		"eventId": f.EventID, "eventType": f.EventType,
		"subject": f.Subject, "subjectPrefix": f.SubjectPrefix, "source": f.Source,
	} {
		if text != nil && !api.Storable(*text) {
			p.Value("filter."+name, "must be UTF-8 without the character 0")
		}
	}
	if n := len(f.DeadLetterIDs); f.DeadLetterIDs != nil && (n == 0 || n > maxFilterIDs) {
		p.Value("filter.deadLetterIds", "must have between 1 and %d ids, not %d", maxFilterIDs, n)
	}
}
