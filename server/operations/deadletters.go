package operations

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/google/uuid"

	"postrider/internal/event"
	"postrider/internal/jsonscan"
	"postrider/internal/operator"
	"postrider/internal/postgres"
	"postrider/internal/query"
	"postrider/server/api"
)

type listDeadLettersRequest struct {
	query.DeadLetterFilter
	api.PageParams
}

// FoundDeadLetters is a page of dead letters.
type FoundDeadLetters struct {
	api.List[query.DeadLetter]
	// Dead letters checked so far, if a search ended after 5 s; `nextLink` continues it.
	Scanned *int64 `json:"scanned,omitempty"`
}

// ListDeadLetters lists dead letters.
//
// Lists the dead letters that match all parameters, the newest first.
//
// The rows are without their events. A search ends after 5 s; `nextLink` continues it.
func (m *Handlers) ListDeadLetters(
	ctx context.Context, r *listDeadLettersRequest,
) (*FoundDeadLetters, error) {
	if _, err := r.Conditions(); err != nil {
		return nil, api.Invalid("search", "%v", err)
	}
	page := &FoundDeadLetters{}
	read := func(ctx context.Context, after query.DeadLetterPlace, limit int) ([]query.DeadLetter, error) {
		found, err := m.Parts.Reader.ListDeadLetters(ctx, &r.DeadLetterFilter, after, limit)
		if found.SearchedTo != nil {
			page.NextLink, page.Scanned = api.NextLink(ctx, r, *found.SearchedTo), &found.Scanned
		}
		return found.Rows, err
	}
	list, err := api.ListAfter(ctx, r, read,
		func(l query.DeadLetter) query.DeadLetterPlace { return l.Place() })
	if err == nil && page.NextLink == nil {
		list, err = named(ctx, m, list, err, *cmp.Or(r.Topic, new("")), *cmp.Or(r.Subscription, new("")))
	}
	if err != nil {
		return nil, err
	}
	if page.Value = list.Value; page.NextLink == nil {
		page.NextLink = list.NextLink
	}
	return page, nil
}

// DeadLetterPath names a dead letter.
type DeadLetterPath struct {
	ID uuid.UUID `path:"deadLetterId" example:"0198c5a0-7b1e-7c3a-9d52-5f3a1c2b4d60"`
}

// ShownDeadLetter is a dead letter with its event byte for byte.
type ShownDeadLetter struct{ *query.DeadLetter }

// Content implements api.Response.
func (d ShownDeadLetter) Content() (int, any) {
	text := ""
	if d.BodyText != nil {
		text = *d.BodyText
	}
	return http.StatusOK, withEvent(d.DeadLetter, text)
}

// Bodies implements api.Response.
func (ShownDeadLetter) Bodies() map[int]any { return map[int]any{http.StatusOK: query.DeadLetter{}} }

// withEvent is an object as JSON with the member event, byte for byte: encoding/json would change its white space.
func withEvent(object any, event string) []byte {
	text := jsonscan.MustEncode(object)
	if event == "" {
		return text
	}
	return append(bytes.TrimSuffix(text, []byte("}")), `,"event":`+event+"}"...)
}

// GetDeadLetter reads a dead letter.
//
// Returns a dead letter with its event as it was accepted, and the first 4 KiB of the last response.
func (m *Handlers) GetDeadLetter(ctx context.Context, r *DeadLetterPath) (*ShownDeadLetter, error) {
	l, err := m.Parts.Reader.GetDeadLetter(ctx, r.ID)
	return &ShownDeadLetter{l}, err
}

// PurgeDeadLetter deletes a dead letter.
//
// Deletes a dead letter and its event. Exported files are kept.
func (m *Handlers) PurgeDeadLetter(ctx context.Context, r *DeadLetterPath) (*api.NoContent, error) {
	purged, err := m.Parts.Operator.Purge(ctx, r.ID)
	if err == nil && !purged {
		err = postgres.ErrNotFound
	}
	return &api.NoContent{}, err
}

type redeliverDeadLetterRequest struct {
	DeadLetterPath
	api.IfMatchHeader
	// An event of the maximum size has options around it.
	Body RedeliverSpec `required:"false" extraBytes:"65536"`
}

// RedeliverSpec are the options of a redelivery.
type RedeliverSpec struct {
	RedeliverTarget
	// true redelivers it even if it was redelivered before.
	Again bool `json:"again,omitempty" default:"false"`
	// Edited event to deliver instead; by default the event of the dead letter.
	Event json.RawMessage `json:"event,omitempty"`
}

// RedeliverTarget is the event subscription of a redelivery; empty for that of each dead letter.
type RedeliverTarget struct {
	// Event subscription to deliver to; by default that of each dead letter.
	Subscription string `json:"subscription,omitempty"`
	// Topic of `subscription`; by default that of the filter.
	Topic string `json:"topic,omitempty"`
}

// Redelivered is the new delivery of a dead letter or an event.
type Redelivered struct {
	DeliveryID int64 `json:"deliveryId"`
}

// RedeliverDeadLetter redelivers a dead letter.
//
// Creates a new delivery of the event, with its own time to live, to the same event subscription or to the given one.
// The dead letter is kept.
//
// `event` is an edited event, which is delivered instead. It is validated like a published event and stored byte for
// byte, with a new `systemId`. Only this event subscription receives it, whatever its filter. With `If-Match`, the
// response is 412 if the dead letter has changed, for example by another redelivery.
//
// The response is 409 if the dead letter was redelivered before and `again` is false. It is also 409 if the event
// subscription was deleted or has expired, or the event was erased. An edited event also needs its topic.
func (m *Handlers) RedeliverDeadLetter(ctx context.Context, r *redeliverDeadLetterRequest) (*Redelivered, error) {
	var found problems
	to := found.target(r.Body.RedeliverTarget)
	if err := found.Err(); err != nil {
		return nil, err
	}
	var delivery int64
	var err error
	if r.Body.Event == nil {
		delivery, err = m.Parts.Operator.Redeliver(ctx, r.ID, to, r.Body.Again, r.Conditions()...)
	} else {
		delivery, err = m.Parts.Operator.Repair(ctx, r.ID, r.Body.Event, to, r.Body.Again, r.Conditions()...)
	}
	if mistake, ok := errors.AsType[*event.Error](err); ok {
		return nil, api.EventRejection(mistake, "event")
	}
	return &Redelivered{DeliveryID: delivery}, r.Rejected(err, "dead letter", r.ID.String())
}

type resolveDeadLetterRequest struct {
	DeadLetterPath
	Body ResolveSpec `required:"false"`
}

// ResolveSpec are the options of a resolution.
type ResolveSpec struct {
	// Note for others, such as the reason. It is kept in the audit.
	Note string `json:"note,omitempty" maxLength:"1000"`
}

// ResolveDeadLetter resolves a dead letter.
//
// Ends the dead letter without a redelivery: it is no longer counted as open. It can still be redelivered. If it is
// resolved already, the note is replaced.
func (m *Handlers) ResolveDeadLetter(ctx context.Context, r *resolveDeadLetterRequest) (*ShownDeadLetter, error) {
	if err := m.Parts.Operator.Resolve(ctx, r.ID, r.Body.Note); err != nil {
		return nil, err
	}
	return m.GetDeadLetter(ctx, &r.DeadLetterPath)
}

// ReopenDeadLetter takes the resolution of a dead letter back.
//
// Its state becomes open, or redelivered if it was redelivered before. Nothing changes if it is not resolved.
func (m *Handlers) ReopenDeadLetter(ctx context.Context, r *DeadLetterPath) (*ShownDeadLetter, error) {
	if err := m.Parts.Operator.Reopen(ctx, r.ID); err != nil {
		return nil, err
	}
	return m.GetDeadLetter(ctx, r)
}

// BulkSpec has the options of operations on many.
type BulkSpec struct {
	// Number that must match. The operation counts first; if another number matches, it fails and changes nothing. Absent
	// or null means any number.
	ExpectedCount *int64 `json:"expectedCount,omitempty" minimum:"0"`
	// Limit per second. Absent or null means no limit.
	RatePerSecond *int `json:"ratePerSecond,omitempty" minimum:"1"`
	// true counts the matches and changes nothing.
	DryRun bool `json:"dryRun,omitempty" default:"false"`
}

// PurgeAllSpec selects dead letters to delete. `filter` is required.
type PurgeAllSpec struct {
	Filter *query.DeadLetterFilter `json:"filter,omitempty"`
	BulkSpec
}

// RedeliverAllSpec selects dead letters to redeliver. `filter` is required.
type RedeliverAllSpec struct {
	PurgeAllSpec
	RedeliverTarget
	// true also redelivers dead letters that were redelivered before.
	Again bool `json:"again,omitempty" default:"false"`
}

// StartedOperation is the response to a request for an operation: the operation, or the result of a dry run.
type StartedOperation = api.Started[query.Matched, query.Operation]

// RedeliverDeadLetters redelivers matching dead letters.
//
// Starts an operation that counts, then redelivers each existing dead letter that matches the filter. Only open dead
// letters match, unless the filter has `state` or `again` is true.
//
// Each delivery is new, with its own time to live, and goes to its own event subscription or to the given one. The dead
// letters are kept. With `dryRun` they are counted only.
func (m *Handlers) RedeliverDeadLetters(
	ctx context.Context, r *api.Body[RedeliverAllSpec],
) (*StartedOperation, error) {
	return m.startMany(ctx, operator.Redeliver, &r.Body, "")
}

// PurgeDeadLetters deletes matching dead letters.
//
// Starts an operation that counts, then deletes the existing dead letters that match the filter. `filter` is required;
// `{}` matches all. With `dryRun` they are counted only.
func (m *Handlers) PurgeDeadLetters(ctx context.Context, r *api.Body[PurgeAllSpec]) (*StartedOperation, error) {
	return m.startMany(ctx, operator.Purge, &RedeliverAllSpec{PurgeAllSpec: r.Body}, "")
}

// ResolveAllSpec selects dead letters to resolve. `filter` is required.
type ResolveAllSpec struct {
	PurgeAllSpec
	ResolveSpec
}

// ResolveDeadLetters resolves matching dead letters.
//
// Starts an operation that counts, then resolves the existing dead letters that match the filter. Only open ones match,
// unless the filter has `state`. With `dryRun` they are counted only.
func (m *Handlers) ResolveDeadLetters(ctx context.Context, r *api.Body[ResolveAllSpec]) (*StartedOperation, error) {
	return m.startMany(ctx, operator.Resolve, &RedeliverAllSpec{PurgeAllSpec: r.Body.PurgeAllSpec}, r.Body.Note)
}

// startMany starts an operation for the dead letters that match a filter, or counts them.
func (m *Handlers) startMany(
	ctx context.Context, kind string, spec *RedeliverAllSpec, note string,
) (*StartedOperation, error) {
	var found problems
	do := found.action(kind, spec)
	do.Note = note
	if err := found.Err(); err != nil {
		return nil, err
	}
	if err := m.checkNames(ctx, spec.Filter); err != nil {
		return nil, err
	}
	if spec.DryRun {
		if kind != operator.Purge && !spec.Again && spec.Filter.State == nil {
			spec.Filter.State = new("open")
		}
		n, err := m.Parts.Reader.CountDeadLetters(ctx, spec.Filter)
		return &StartedOperation{Done: &n}, err
	}
	id, err := m.Parts.Operator.OnDeadLetters(ctx, spec.Filter, do)
	return m.started(ctx, id, err)
}

// checkNames returns an error if the topic or the event subscription of a filter never existed: a misspelled name must
// not look like an operation that has nothing to do.
func (m *Handlers) checkNames(ctx context.Context, f *query.DeadLetterFilter) error {
	var topic, subscription string
	if f.Topic != nil {
		topic = *f.Topic
	}
	if f.Subscription != nil {
		subscription = *f.Subscription
	}
	return m.Parts.Reader.CheckNames(ctx, topic, subscription)
}

// action checks the filter and the options of an operation on dead letters.
func (p *problems) action(kind string, spec *RedeliverAllSpec) *operator.Action {
	do := p.bulk(kind, &spec.BulkSpec)
	do.To, do.Again = p.target(spec.RedeliverTarget), spec.Again
	if spec.Filter == nil {
		p.Value("filter", "is required; {} matches all dead letters")
	} else {
		if _, err := spec.Filter.Conditions(); err != nil {
			p.Value("filter.search", "%v", err)
		}
		if n := len(spec.Filter.DeadLetterIDs); spec.Filter.DeadLetterIDs != nil && (n == 0 || n > query.MaxFilterIDs) {
			p.Value("filter.deadLetterIds", "must have between 1 and %d ids, not %d", query.MaxFilterIDs, n)
		}
	}
	return do
}

// bulk checks the options of an operation on many.
func (p *problems) bulk(kind string, spec *BulkSpec) *operator.Action {
	if spec.ExpectedCount != nil && *spec.ExpectedCount < 0 {
		p.Value("expectedCount", "must be 0 or more, not %d", *spec.ExpectedCount)
	}
	return &operator.Action{Kind: kind, Rate: p.rate(spec.RatePerSecond), Expected: spec.ExpectedCount}
}

// target checks the event subscription of a redelivery.
func (p *problems) target(to RedeliverTarget) operator.Target {
	if to.Topic != "" && to.Subscription == "" {
		p.Value("subscription", "is required with topic")
	}
	return operator.Target{Topic: to.Topic, Subscription: to.Subscription}
}

// rate checks ratePerSecond; 0 = no limit.
func (p *problems) rate(given *int) int {
	if given == nil {
		return 0
	}
	if *given < 1 || *given > operator.MaxRate {
		p.Value("ratePerSecond", "must be between 1 and %d, not %d", operator.MaxRate, *given)
	}
	return *given
}

// maxExportedPage bounds the bytes of a page; one dead letter has at most about 1 MiB.
const maxExportedPage = 8 << 20

// errPageFull stops the reading of a page.
var errPageFull = errors.New("the page is full")

type exportDeadLettersRequest struct {
	query.StoredDeadLetterFilter
	// eventgrid has the form of Event Grid's files in a storage account; rows has the columns of postrider.dead_letters.
	Format string `query:"format" enum:"eventgrid,rows" default:"eventgrid"`
	api.PageParams
}

// ExportedDeadLetters is one page of dead letters.
type ExportedDeadLetters api.List[json.RawMessage]

// Content writes the page with the unchanged bytes of the dead letters.
func (p ExportedDeadLetters) Content() (int, any) {
	return http.StatusOK, jsonscan.MustEncode(p)
}

// Bodies implements api.Response.
func (ExportedDeadLetters) Bodies() map[int]any {
	return map[int]any{http.StatusOK: ExportedDeadLetters{}}
}

// ExportDeadLetters exports dead letters with their events.
//
// Lists dead letters with their events, the oldest first. Erased events are omitted. Without `deadLetteredUntil`, the
// following pages omit newer dead letters.
//
// A page has at most `limit` dead letters and about 8 MiB.
func (m *Handlers) ExportDeadLetters(ctx context.Context, r *exportDeadLettersRequest) (*ExportedDeadLetters, error) {
	if err := api.ReadCursor(r.Cursor, &r.After); err != nil {
		return nil, err
	}
	switch {
	case r.Until.IsZero():
		r.Until = m.Parts.Clock.Now().UTC() // for the following pages too
	case !r.From.Before(r.Until):
		return nil, api.Invalid("deadLetteredFrom", "must be before deadLetteredUntil")
	}
	read, last, err := m.readExported(ctx, r)
	if err != nil {
		return nil, err
	}
	if len(read) == 0 {
		if err := m.Parts.Reader.CheckNames(ctx, r.Topic, r.Subscription); err != nil {
			return nil, err
		}
	}
	page := &ExportedDeadLetters{Value: read}
	if last != nil {
		page.NextLink = api.NextLink(ctx, r, *last)
	}
	return page, nil
}

// readExported reads one page. last is the position of its last dead letter if there are more.
func (m *Handlers) readExported(
	ctx context.Context, r *exportDeadLettersRequest,
) (read []json.RawMessage, last *query.DeadLetterPlace, err error) {
	const step = 50 // limits the dead letters that are read in vain if the page is full early
	page, f := exportPage{limit: r.Limit, format: r.Format, records: []json.RawMessage{}}, r.StoredDeadLetterFilter
	for n := step; n == step; {
		n = 0
		err := query.EachDeadLetter(ctx, m.Parts.DB.Pool, f, step, func(l *query.StoredDeadLetter) error {
			n++
			err := page.add(l)
			if err == nil {
				f.After = query.DeadLetterPlace{DeadLetteredAt: l.DeadLetteredAt, DeadLetterID: l.ID}
			}
			return err
		})
		if errors.Is(err, errPageFull) {
			return page.records, &f.After, nil
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return page.records, nil, nil
}

// exportPage is a page of exported dead letters.
type exportPage struct {
	limit   int
	format  string
	records []json.RawMessage
	size    int
}

// add adds a dead letter; errPageFull.
func (p *exportPage) add(l *query.StoredDeadLetter) error {
	if len(p.records) == p.limit || p.size > maxExportedPage {
		return errPageFull
	}
	record, err := exported(l, p.format)
	if err != nil {
		return fmt.Errorf("dead letter %s: %w", l.ID, err)
	}
	p.size, p.records = p.size+len(record), append(p.records, record)
	return nil
}

// exported is one dead letter in a format.
func exported(l *query.StoredDeadLetter, format string) (json.RawMessage, error) {
	if format == "rows" {
		return jsonscan.Encode(l)
	}
	form := event.DeadLetterFlat
	if l.Namespace {
		form = event.DeadLetterNested
	}
	d := l.EventGrid(form)
	text, err := event.AppendDeadLetter(nil, &d, form)
	if err == nil && !json.Valid(text) {
		err = errors.New("the stored event is not JSON")
	}
	return text, err
}
