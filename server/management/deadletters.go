package management

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"

	"postrider/operator"
	"postrider/postgres"
	"postrider/query"
	"postrider/server/api"
)

// ListDeadLetters answers GET /v1/deadLetters.
func (m *Handlers) ListDeadLetters(
	ctx context.Context, r api.ListDeadLettersRequestObject,
) (api.ListDeadLettersResponseObject, error) {
	p := r.Params
	asked := api.DeadLetterFilter{
		Topic: p.Topic, Subscription: p.Subscription, Reason: p.Reason, LastOutcome: p.LastOutcome, LastStatus: p.LastStatus,
		EventId: p.EventId, EventType: p.EventType,
		Subject: p.Subject, SubjectPrefix: p.SubjectPrefix, Source: p.Source, DeadLetteredFrom: p.DeadLetteredFrom,
		DeadLetteredUntil: p.DeadLetteredUntil, Redelivered: p.Redelivered,
	}
	page, place, err := readPlace(p.Limit, p.Cursor)
	if err != nil {
		return nil, err
	}
	var found problems
	filter := found.deadLetterFilter(&asked, "")
	if err := found.Err(); err != nil {
		return nil, err
	}
	list, err := m.Parts.Reader.ListDeadLetters(ctx, filter,
		query.DeadLetterPlace{DeadLetteredAt: place.at, DeadLetterID: place.id}, page.Limit+1)
	if err != nil {
		return nil, err
	}
	shown, next := api.Cut(page, list, "/v1/deadLetters",
		func(l query.DeadLetter) string { return placeName(l.DeadLetteredAt, l.DeadLetterID) })
	answer := api.ListDeadLetters200JSONResponse{Value: []api.DeadLetter{}, NextLink: withQuery(next, &asked)}
	for i := range shown {
		answer.Value = append(answer.Value, DescribeDeadLetter(&shown[i]))
	}
	return answer, nil
}

// GetDeadLetter answers GET /v1/deadLetters/{deadLetterId}.
func (m *Handlers) GetDeadLetter(
	ctx context.Context, r api.GetDeadLetterRequestObject,
) (api.GetDeadLetterResponseObject, error) {
	id, err := uuid.Parse(r.DeadLetterId)
	if err != nil {
		return nil, deadLetterNotFound(r.DeadLetterId)
	}
	l, err := m.Parts.Reader.GetDeadLetter(ctx, id)
	switch {
	case errors.Is(err, postgres.ErrNotFound):
		return nil, deadLetterNotFound(r.DeadLetterId)
	case err != nil:
		return nil, err
	}
	return api.GetDeadLetter200JSONResponse(DescribeDeadLetter(l)), nil
}

// PurgeDeadLetter answers DELETE /v1/deadLetters/{deadLetterId}.
func (m *Handlers) PurgeDeadLetter(
	ctx context.Context, r api.PurgeDeadLetterRequestObject,
) (api.PurgeDeadLetterResponseObject, error) {
	id, err := uuid.Parse(r.DeadLetterId)
	if err != nil {
		return nil, deadLetterNotFound(r.DeadLetterId)
	}
	purged, err := m.Parts.Operator.Purge(ctx, id)
	switch {
	case err != nil:
		return nil, err
	case !purged:
		return nil, deadLetterNotFound(r.DeadLetterId)
	}
	return api.PurgeDeadLetter204Response{}, nil
}

// RedeliverDeadLetter answers POST /v1/deadLetters/{deadLetterId}/redeliver.
func (m *Handlers) RedeliverDeadLetter(
	ctx context.Context, r api.RedeliverDeadLetterRequestObject,
) (api.RedeliverDeadLetterResponseObject, error) {
	b := optional(r.Body, api.RedeliverSettings{})
	id, err := uuid.Parse(r.DeadLetterId)
	if err != nil {
		return nil, deadLetterNotFound(r.DeadLetterId)
	}
	var found problems
	to := found.target(b.Topic, b.Subscription)
	if err := found.Err(); err != nil {
		return nil, err
	}
	delivery, err := m.Parts.Operator.Redeliver(ctx, id, to, optional(b.Again, false))
	if err != nil {
		return nil, err
	}
	return api.RedeliverDeadLetter200JSONResponse{DeliveryId: delivery}, nil
}

// RedeliverDeadLetters answers POST /v1/deadLetters/redeliver.
func (m *Handlers) RedeliverDeadLetters(
	ctx context.Context, r api.RedeliverDeadLettersRequestObject,
) (api.RedeliverDeadLettersResponseObject, error) {
	b := optional(r.Body, api.RedeliverAllSettings{})
	var found problems
	filter, to, rate := found.deadLetterFilter(b.Filter, "filter."), found.target(b.Topic, b.Subscription),
		found.rate(b.RatePerSecond)
	if b.Filter == nil {
		found.Value("filter", "is required; {} matches every dead letter")
	}
	if err := found.Err(); err != nil {
		return nil, err
	}
	if optional(b.DryRun, false) {
		if filter.Redelivered == nil {
			filter.Redelivered = new(false)
		}
		n, err := m.Parts.Reader.CountDeadLetters(ctx, filter)
		return api.RedeliverDeadLetters200JSONResponse(DescribeMatched(n)), err
	}
	id, err := m.Parts.Operator.RedeliverAll(ctx, filter, to, rate)
	if err != nil {
		return nil, err
	}
	o, err := m.generatedOperation(ctx, id)
	return api.RedeliverDeadLetters202JSONResponse(o), err
}

// PurgeDeadLetters answers POST /v1/deadLetters/purge.
func (m *Handlers) PurgeDeadLetters(
	ctx context.Context, r api.PurgeDeadLettersRequestObject,
) (api.PurgeDeadLettersResponseObject, error) {
	b := optional(r.Body, api.PurgeAllSettings{})
	var found problems
	filter, rate := found.deadLetterFilter(b.Filter, "filter."), found.rate(b.RatePerSecond)
	if b.Filter == nil {
		found.Value("filter", "is required; {} matches every dead letter")
	}
	if err := found.Err(); err != nil {
		return nil, err
	}
	if optional(b.DryRun, false) {
		n, err := m.Parts.Reader.CountDeadLetters(ctx, filter)
		return api.PurgeDeadLetters200JSONResponse(DescribeMatched(n)), err
	}
	id, err := m.Parts.Operator.PurgeAll(ctx, filter, rate)
	if err != nil {
		return nil, err
	}
	o, err := m.generatedOperation(ctx, id)
	return api.PurgeDeadLetters202JSONResponse(o), err
}

// DescribeMatched is a dry run's answer as the REST API and `deadletter --dry-run -o json` write it.
func DescribeMatched(found query.Matched) api.Matched {
	return api.Matched{Matched: found.Matched, AtLeast: found.AtLeast}
}

func deadLetterNotFound(id string) error {
	return api.Refuse(http.StatusNotFound, api.CodeNotFound, "dead letter %q does not exist", api.Shorten(id))
}

// target reads the event subscription that a redelivery names.
func (p *problems) target(topic, subscription *string) operator.Target {
	to := operator.Target{Topic: optional(topic, ""), Subscription: optional(subscription, "")}
	if to.Topic != "" && to.Subscription == "" {
		p.Value("subscription", "is required with topic")
	}
	for name, value := range map[string]string{"topic": to.Topic, "subscription": to.Subscription} {
		if !api.Storable(value) {
			p.Value(name, "holds a character that no name has")
		}
	}
	return to
}

// rate reads ratePerSecond; 0 for none.
func (p *problems) rate(given *int) int {
	if given != nil && (*given < 1 || *given > maxRate) {
		p.Value("ratePerSecond", "must be between 1 and %d, not %d", maxRate, *given)
	}
	return optional(given, 0)
}

const maxRate = 1_000_000

// deadLetterFilter reads a filter; names of its members are said with a prefix.
func (p *problems) deadLetterFilter(f *api.DeadLetterFilter, prefix string) *query.DeadLetterFilter {
	if f == nil {
		return &query.DeadLetterFilter{}
	}
	read := &query.DeadLetterFilter{
		Topic: f.Topic, Subscription: f.Subscription, Reason: f.Reason, LastOutcome: f.LastOutcome, LastStatus: f.LastStatus,
		EventID: f.EventId, EventType: f.EventType,
		Subject: f.Subject, SubjectPrefix: f.SubjectPrefix, Source: f.Source, Redelivered: f.Redelivered,
		DeadLetteredFrom:  p.moment(prefix+"deadLetteredFrom", f.DeadLetteredFrom),
		DeadLetteredUntil: p.moment(prefix+"deadLetteredUntil", f.DeadLetteredUntil),
	}
	for name, text := range map[string]*string{
		"topic": f.Topic, "subscription": f.Subscription, "reason": f.Reason, "lastOutcome": f.LastOutcome,
		"eventId": f.EventId, "eventType": f.EventType,
		"subject": f.Subject, "subjectPrefix": f.SubjectPrefix, "source": f.Source,
	} {
		if text != nil && !api.Storable(*text) {
			p.Value(prefix+name, "holds a character that nothing stored has")
		}
	}
	if f.DeadLetterIds != nil {
		read.DeadLetterIDs = p.ids(prefix+"deadLetterIds", *f.DeadLetterIds)
	}
	return read
}

// maxFilterIDs is what a filter takes.
const maxFilterIDs = 5000

func (p *problems) ids(target string, given []string) []uuid.UUID {
	ids := make([]uuid.UUID, len(given))
	if len(given) == 0 || len(given) > maxFilterIDs {
		p.Value(target, "must have between 1 and %d ids, not %d", maxFilterIDs, len(given))
		return nil
	}
	for i, text := range given {
		id, err := uuid.Parse(text)
		if err != nil {
			p.Value(target+"["+strconv.Itoa(i)+"]", "is no id of a dead letter")
		}
		ids[i] = id
	}
	return ids
}

func (p *problems) moment(target string, given *string) *time.Time {
	if given == nil {
		return nil
	}
	at, err := time.Parse(time.RFC3339, *given)
	if err != nil {
		p.Value(target, "must be an RFC 3339 time, such as 2026-11-20T09:30:00Z")
		return nil
	}
	return &at
}

// DescribeDeadLetter is the dead letter as the REST API and `deadletter -o json` write it.
func DescribeDeadLetter(l *query.DeadLetter) api.DeadLetter {
	shown := api.DeadLetter{
		DeadLetterId: l.DeadLetterID.String(), DeadLetteredAt: l.DeadLetteredAt.UTC(), Topic: l.Topic,
		Subscription: l.Subscription, Reason: l.Reason, Attempts: l.Attempts,
		LastOutcome: l.LastOutcome, LastStatus: l.LastStatus, LastError: l.LastError, EventId: l.EventID,
		EventType: l.EventType, Subject: l.Subject, Source: l.Source,
		EventTime: utcOrNull(l.EventTime), PublishedAt: l.PublishedAt.UTC(), FirstAttemptAt: utcOrNull(l.FirstAttemptAt),
		LastAttemptAt: utcOrNull(l.LastAttemptAt),
		OwedSince:     l.OwedSince.UTC(), Schema: l.Schema, RetryPolicy: l.RetryPolicy, EndpointBaseUrl: l.EndpointBaseURL,
		DeliveryId: l.DeliveryID, SystemId: l.SystemID.String(),
		RedeliveredAt: utcOrNull(l.RedeliveredAt), LastResponse: l.LastResponse,
	}
	if l.RedeliveredFrom != nil {
		shown.RedeliveredFrom = new(l.RedeliveredFrom.String())
	}
	if l.BodyText != nil && *l.BodyText != "" {
		shown.Event = json.RawMessage(*l.BodyText)
	}
	return shown
}

// withQuery adds the filter's members to the link of the next page.
func withQuery(link *string, f *api.DeadLetterFilter) *string {
	query := queryOf(f)
	if link == nil || len(query) == 0 {
		return link
	}
	return new(*link + "&" + query.Encode())
}
