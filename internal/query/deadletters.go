package query

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"postrider/internal/postgres"
)

// DeadLetterFilter selects dead letters that match all members; `{}` matches all.
//
// Its members are columns of postrider.dead_letters.
type DeadLetterFilter struct {
	// Conditions on the content as text, such as `data.order.id = 42 error ~ "currency" refund`. A condition is a field,
	// an operator and a value; a word alone is part of the last error or response. Fields: data.PATH, subject, type,
	// error, response, id, source. Operators: `=` `!=` `<` `<=` `>` `>=` `~` `!~` (regular expression) `:` (contains).
	Search string `query:"search" json:"search,omitzero" label:"Search" maxLength:"4096" example:"data.order.id = 42"`
	// Name of the topic.
	Topic *string `query:"topic" json:"topic,omitzero" label:"Topic"`
	// Name of the event subscription.
	Subscription *string `query:"subscription" json:"subscription,omitzero" label:"Event subscription"`
	// Reason, such as MaxDeliveryAttemptsExceeded.
	Reason *string `query:"reason" json:"reason,omitzero"`
	// Outcome of the last attempt, such as Busy.
	LastOutcome *string `query:"lastOutcome" json:"lastOutcome,omitzero"`
	// HTTP status of the last attempt; 0 selects those without a response.
	LastStatus *int `query:"lastStatus" json:"lastStatus,omitzero" sql:"coalesce(last_status, 0) = ?"`
	// At least so many attempts.
	MinAttempts *int `query:"minAttempts" json:"minAttempts,omitzero" minimum:"0" label:"Min. attempts" sql:"attempts >= ?"`
	// Id of the event from the publisher.
	EventID *string `query:"eventId" json:"eventId,omitzero" name:"event-id" label:"Event id"`
	// Type of the event.
	EventType *string `query:"eventType" json:"eventType,omitzero" label:"Event type"`
	// Subject of the event.
	Subject *string `query:"subject" json:"subject,omitzero"`
	// Prefix of the subject.
	SubjectPrefix *string `query:"subjectPrefix" json:"subjectPrefix,omitzero" sql:"starts_with(subject, ?)"`
	// CloudEvents source of the event.
	Source *string `query:"source" json:"source,omitzero"`
	// Dead-lettered at this time or later.
	DeadLetteredFrom *time.Time `query:"deadLetteredFrom" json:"deadLetteredFrom,omitzero" name:"from"`
	// Dead-lettered before this time.
	DeadLetteredUntil *time.Time `query:"deadLetteredUntil" json:"deadLetteredUntil,omitzero" name:"until" aliases:"to"`
	// open, redelivered or resolved.
	//
	// A redelivery, repair or resolution of many reads nil as open.
	State *string `query:"state" json:"state,omitzero" label:"State" choices:"deadLetterStates" shown:"open"`
	// Ids of dead letters, up to 10,000. Duplicates count once.
	//
	// nil is all, and an empty list none.
	DeadLetterIDs []uuid.UUID `json:"deadLetterIds,omitzero" kong:"-" maxItems:"10000" label:"Selected by id"`
	// Conditions on the event's data and other texts.
	Match []Condition `json:"match,omitzero" kong:"-" maxItems:"20" label:"Condition"`
}

// Scan implements sql.Scanner for a stored filter.
func (f *DeadLetterFilter) Scan(stored any) error { return scanFilter(stored, f) }

// Conditions returns those of Match and Search. *SearchError.
func (f *DeadLetterFilter) Conditions() ([]Condition, error) {
	found, err := ParseSearch(f.Search)
	return append(slices.Clip(f.Match), found...), err
}

// Located adds the position in Search to the rejection of a condition by the functions of schema postrider. It returns
// other errors unchanged.
func (f *DeadLetterFilter) Located(err error) error {
	conditions, wrong := f.Conditions()
	var rejection *postgres.FunctionError
	if wrong != nil || !errors.As(err, &rejection) {
		return err
	}
	for i, c := range conditions {
		member := fmt.Sprintf("filter.match[%d].", i)
		if problem, is := strings.CutPrefix(rejection.Message, member); is && c.at > 0 {
			return postgres.Invalid("search", "search %v", &SearchError{c.at, c.Field + " " + c.Op + ": the " + problem})
		}
	}
	return err
}

// Text returns the filter as the functions of schema postrider expect it. *SearchError.
func (f *DeadLetterFilter) Text() (string, error) {
	stored := *f
	var err error
	if stored.Match, err = f.Conditions(); err != nil {
		return "", err
	}
	stored.Search = ""
	return storedFilter(stored)
}

// DeadLetter is an event whose delivery failed for good.
type DeadLetter struct {
	// Id of the dead letter.
	DeadLetterID uuid.UUID `json:"deadLetterId" column:"Dead letter id" title:"ID" off:"pages" list:"/v1/deadLetters"`
	// When it became a dead letter.
	DeadLetteredAt time.Time `json:"deadLetteredAt" column:"Dead-lettered"`
	EventType      string    `json:"eventType" column:"Type" class:"long"`
	// Subject of the event; empty if it was erased.
	Subject      string `json:"subject" column:"Subject" class:"long"`
	Topic        string `json:"topic" column:"Topic" in:"subscription"`
	Subscription string `json:"subscription" column:"Event subscription" title:"SUBSCRIPTION" class:"long"`
	// open: nothing was done with it. redelivered: it has a new delivery. resolved: an operator ended it without one.
	State       string  `json:"state" column:"State" off:"pages"`
	Reason      string  `json:"reason" column:"Reason" class:"long"`
	LastOutcome *string `json:"lastOutcome" column:"Last outcome" class:"long"`
	// HTTP status of the last attempt; null without a response.
	LastStatus *int   `json:"lastStatus" column:"Last status" in:"last_outcome"`
	Attempts   int    `json:"attempts" column:"Attempts" class:"number spare"`
	EventID    string `json:"eventId" column:"Event id" class:"long" off:"pages"`
	// When it was last redelivered.
	RedeliveredAt *time.Time `json:"redeliveredAt" column:"Redelivered" off:"pages"`
	// Error below HTTP in the last attempt.
	LastError   *string   `json:"lastError" column:"Last error" class:"long wide" off:"cli" sql:"coalesce(last_error, left(last_response, 300)) as last_error"`
	PublishedAt time.Time `json:"publishedAt" column:"Published" off:""`
	// When the first attempt began; null before it.
	FirstAttemptAt  *time.Time `json:"firstAttemptAt" line:"First attempt"`
	LastAttemptAt   *time.Time `json:"lastAttemptAt" column:"Last attempt" off:""`
	TimeToLiveSince time.Time  `json:"timeToLiveSince" line:"Time to live since"`
	Source          *string    `json:"source" column:"Source" class:"long" off:""`
	// Time of the event from the publisher.
	EventTime *time.Time `json:"eventTime" column:"Event time" off:""`
	// Schema of the event.
	Schema string `json:"schema" column:"Schema" off:""`
	// Retry policy of the delivery; empty if it was imported.
	RetryPolicy string `json:"retryPolicy" column:"Retry policy" off:""`
	// Endpoint URL without its query string; empty with deliveryMode Queue, and if it was imported.
	EndpointBaseURL string `db:"endpoint_base_url" json:"endpointBaseUrl" column:"Endpoint" class:"long" off:""`
	// Delivery that became this dead letter; null if it was imported.
	DeliveryID *int64 `json:"deliveryId" column:"Delivery" off:""`
	// File that it was imported from; null if postrider dead-lettered it.
	ImportedFrom *string `json:"importedFrom" column:"Imported from" class:"long" off:""`
	// Place in that file, from 0.
	ImportedIndex   *int       `json:"importedIndex" line:"Place in the file"`
	SystemID        uuid.UUID  `json:"systemId" column:"System id" off:""`
	RedeliveredFrom *uuid.UUID `json:"redeliveredFrom" line:"Redelivery of"`
	// Delivery of its last redelivery.
	RedeliveryID *int64 `json:"redeliveryId" line:"Redelivered as"`
	// State of that delivery; null without one, or if it is no longer kept.
	RedeliveryState *string `json:"redeliveryState" line:"Its state"`
	// When an operator resolved it; null if it is not resolved.
	ResolvedAt *time.Time `json:"resolvedAt" line:"Resolved"`
	// Who resolved it, as in the audit.
	ResolvedBy *string `json:"resolvedBy" line:"Resolved by"`
	// Note of the operator who resolved it.
	ResolvedNote *string `json:"resolvedNote" line:"Note"`
	Lineage
	// Version of the dead letter, for If-Match; absent in lists.
	Version *postgres.Version `json:"etag,omitempty"`
	// BodyText is the event as it was accepted; nil in a list, and empty if it was erased. The API shows it as Event.
	BodyText *string `json:"-"`
	// The event as it was accepted; absent in lists.
	Event json.RawMessage `db:"-" json:"event,omitempty" line:"Event"`
	// First 4 KiB of the last response; absent in lists. In a DeadLetterPage the first 300 characters.
	LastResponse *string `json:"lastResponse,omitempty" line:"Last response"`
}

// Lineage is what a repair made of an event. Its members are nil for an event that was not edited.
type Lineage struct {
	// Event that this one is a repair of; null if the event was not edited.
	EditedFrom *uuid.UUID `json:"editedFrom" line:"Repair of"`
	// Who edited the event; null if it was not edited.
	EditedBy *string `json:"editedBy" line:"Edited by"`
	// What the repair changed, as a JSON merge patch (RFC 7396) from the original event. Absent in lists, without a
	// repair, if PostgreSQL cannot hold one of both events as jsonb, and after an erasure.
	Edit json.RawMessage `json:"edit,omitempty" line:"Edit"`
}

// DeadLetterPlace is a position in the list of dead letters; the zero value is its beginning.
type DeadLetterPlace struct {
	DeadLetteredAt time.Time
	DeadLetterID   uuid.UUID
}

// Place returns the position of the dead letter in a list.
func (l *DeadLetter) Place() DeadLetterPlace {
	return DeadLetterPlace{l.DeadLetteredAt, l.DeadLetterID}
}

// deadLetterSearch is a part of the dead letters that a filter matches.
type deadLetterSearch struct {
	Rows []DeadLetter
	// SearchedTo is where a search ended that found no more than Rows; nil if it reached the end of the list.
	SearchedTo *DeadLetterPlace
	// Scanned is how many dead letters it had checked by then.
	Scanned int64
}

// ListDeadLetters lists up to limit dead letters that a filter matches, the newest first, after a position in the list.
// *FunctionError: the filter is invalid.
func (r *Reader) ListDeadLetters(
	ctx context.Context, filter *DeadLetterFilter, after DeadLetterPlace, limit int,
) (list deadLetterSearch, err error) {
	text, err := filter.Text()
	if err != nil {
		return list, err
	}
	s := searchArgs{filter: text, enough: limit, most: limit, scanLimit: math.MaxInt32, timeLimit: searchTime}
	if !after.DeadLetteredAt.IsZero() {
		s.after = &after
	}
	err = r.searchFound(ctx, filter, func(r *reading) {
		found := r.findDeadLetters(s)
		list.Rows = found.rows(r, false, false, limit)
		if list.Scanned = found.Scanned; len(found.IDs) < limit {
			list.SearchedTo = found.place()
		}
	})
	return list, err
}

const (
	// searchTime is how long a search runs before it returns what it has found.
	searchTime = 5 * time.Second
	// pageSearchTime is the same for a page, which shows the progress and continues.
	pageSearchTime = time.Second
)

// searchArgs are the arguments of postrider_internal.find_dead_letters.
type searchArgs struct {
	filter    string
	after     *DeadLetterPlace // nil: from the beginning
	ascending bool
	// It ends with most found, or, after a short time, with enough.
	enough, most, scanLimit int
	timeLimit               time.Duration
}

// foundDeadLetters is the result of postrider_internal.find_dead_letters.
type foundDeadLetters struct {
	IDs       []uuid.UUID
	Scanned   int64
	ReachedAt *time.Time
	ReachedID *uuid.UUID
	// Condition is the filter's Match in SQL; nil without one.
	Condition *string
}

// searchFound reads a page of found dead letters. A search has its own time limit, which its last step may exceed.
// *FunctionError: the filter is invalid.
func (r *Reader) searchFound(ctx context.Context, filter *DeadLetterFilter, page func(*reading)) error {
	return filter.Located(postgres.AsFunctionError(r.search(ctx, 2*searchTime, "dead letters", page)))
}

func (r *reading) findDeadLetters(s searchArgs) foundDeadLetters {
	args := pgx.NamedArgs{
		"filter": s.filter, "ascending": s.ascending, "enough": s.enough, "most": s.most, "scan_limit": s.scanLimit,
		"time_limit": s.timeLimit,
	}
	bindKey(args, "cursor", s.after)
	return row[foundDeadLetters](r, "dead_letters_found", args)
}

// place is where to continue; nil at the end of the list.
func (f *foundDeadLetters) place() *DeadLetterPlace {
	if f.ReachedAt == nil || f.ReachedID == nil {
		return nil
	}
	return &DeadLetterPlace{*f.ReachedAt, *f.ReachedID}
}

// rows reads up to limit of the dead letters, in order, and the beginnings of their last responses if requested.
func (f *foundDeadLetters) rows(r *reading, ascending, responses bool, limit int) []DeadLetter {
	args := pgx.NamedArgs{"ids": f.IDs[:min(len(f.IDs), limit)], "ascending": ascending, "responses": responses}
	return rows[DeadLetter](r, "dead_letters", args)
}

// GetDeadLetter reads one dead letter; ErrNotFound.
func (r *Reader) GetDeadLetter(ctx context.Context, id uuid.UUID) (*DeadLetter, error) {
	row, err := r.ReadDeadLetter(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("dead letter %s: %w", id, err)
	}
	return &row.DeadLetter, nil
}

// SimilarDeadLetters are the open dead letters with the same event subscription, reason and event type.
type SimilarDeadLetters struct {
	Topic, Subscription, Reason, EventType string
	// Count is their number among 10,000 open ones of the event subscription.
	Count int
}

// Similar counts the open dead letters that are like one; ErrNotFound.
func (r *Reader) Similar(ctx context.Context, id uuid.UUID) (*SimilarDeadLetters, error) {
	var s SimilarDeadLetters
	err := read(ctx, r.db, "similar dead letters", func(r *reading) {
		s = row[SimilarDeadLetters](r, "similar_dead_letters", pgx.NamedArgs{"id": id, "limit": OpenDeadLettersLimit})
	})
	return &s, err
}

// countTime is how long a dry run counts. Its caller waits for it.
const countTime = 5 * time.Second

// Matched is the count of a dry run.
type Matched struct {
	// Number of matching dead letters, deliveries or past events.
	Matched int64 `json:"matched"`
	// true if counting stopped after five seconds, so there may be more.
	AtLeast bool `json:"atLeast"`
}

// CountDeadLetters counts the dead letters that a filter matches, for a little more than 5 s. *FunctionError: the
// filter is invalid.
func (r *Reader) CountDeadLetters(ctx context.Context, filter *DeadLetterFilter) (found Matched, err error) {
	text, err := filter.Text()
	if err != nil {
		return found, err
	}
	const count = "SELECT matched, at_least FROM postrider_internal.measure_dead_letters($1, 'infinity', $2)"
	err = r.searchFound(ctx, filter, func(r *reading) {
		var counted *Matched
		if counted, r.err = postgres.Row[Matched](r.ctx, r.tx, count, text, countTime); r.err == nil {
			found = *counted
		}
	})
	return found, err
}

// DeadLetterRow is one dead letter with everything that is kept of it.
type DeadLetterRow struct {
	DeadLetter
	// BodyError is why PostgreSQL cannot hold the body as jsonb.
	BodyError *string
	// SubscriptionGone and EventGone report whether its event subscription or its event no longer exists.
	SubscriptionGone, EventGone bool
	// RedeliveredFromKind is what RedeliveredFrom is, as in DeliveryDetails.
	RedeliveredFromKind string
	// RedeliveredAs is the dead letter that its last redelivery became.
	RedeliveredAs *uuid.UUID
}

const (
	// facetSample is the number of dead letters, the newest that match, that the facets are counted among.
	facetSample = 10_000
	// matchSample is the same for a filter with conditions, which reads the bodies: 1,000 take some 15 ms.
	matchSample = 1_000
)

// DeadLetterPage is a page of dead letters, without their bodies, with what they have in common.
type DeadLetterPage struct {
	SearchedPage[DeadLetter, DeadLetterPlace]
	// Facets by name: reason, outcome, status, subscription (topic/subscription), day. Each has its ten most frequent
	// values among the newest 10,000 dead letters that match. With conditions: among up to 1,000 that the search found.
	Facets map[string][]Counted
	// Total is the number of dead letters that match, up to the number that facets are counted among. Partly: there may
	// be more, because the search ended before the list.
	Total  int64
	Partly bool
	// Scanned is how many dead letters the search had checked when it ended before the list.
	Scanned int64
	// Condition is the filter's Match in SQL, on the columns of postrider.dead_letters; nil without one.
	Condition *string
}

// ReadDeadLetters reads a page of dead letters, the newest first. A filter with conditions is searched for up to a
// second. begun has what an earlier search found for this page. *FunctionError: the filter is invalid.
// ErrTooSlow, ErrUnavailable.
func (r *Reader) ReadDeadLetters(
	ctx context.Context, filter *DeadLetterFilter, t Turn[DeadLetterPlace], begun []uuid.UUID,
) (*DeadLetterPage, error) {
	text, err := filter.Text()
	if err != nil {
		return &DeadLetterPage{}, err
	}
	s := searchArgs{
		filter: text, after: cmp.Or(t.After, t.Before), ascending: t.After != nil, enough: t.Limit + 1, most: t.Limit + 1,
		scanLimit: searchLimit, timeLimit: pageSearchTime,
	}
	if filter.Match != nil || filter.Search != "" {
		s.most, s.scanLimit = matchSample, math.MaxInt32
	}
	d := DeadLetterPage{Facets: map[string][]Counted{}}
	err = r.searchFound(ctx, filter, func(r *reading) {
		found := r.findDeadLetters(s)
		found.IDs = append(slices.Clip(begun), found.IDs...)
		list := found.rows(r, s.ascending, true, t.Limit+1)
		d.SearchedPage = pageOf(list, t, found.place())
		d.Newer = d.Newer && len(begun) == 0
		d.Condition, d.Scanned = found.Condition, found.Scanned
		d.count(r, text, &found)
		fromHere := found.Condition != nil && len(begun) == 0 && s.after != nil && *s.after != DeadLetterPlace{}
		d.Partly = d.Partly || fromHere // earlier pages are not counted
	})
	return &d, err
}

// count counts what the filter matches. Without conditions that is independent of the page.
func (d *DeadLetterPage) count(r *reading, text string, found *foundDeadLetters) {
	args := pgx.NamedArgs{
		"filter": text, "ids": nil, "sample": facetSample, "scan_limit": searchLimit, "top": 10,
	}
	if found.Condition != nil {
		args["ids"], d.Partly = found.IDs, found.ReachedAt != nil
	}
	type row struct {
		Facet string
		Counted
	}
	for _, facet := range rows[row](r, "dead_letter_facets", args) {
		if facet.Facet == "all" {
			d.Total, d.Partly = facet.Count, d.Partly || facet.Name != "" && facet.Count < facetSample
		} else {
			d.Facets[facet.Facet] = append(d.Facets[facet.Facet], facet.Counted)
		}
	}
}

// ReadDeadLetter reads one dead letter; ErrNotFound.
func (r *Reader) ReadDeadLetter(ctx context.Context, id uuid.UUID) (*DeadLetterRow, error) {
	var l DeadLetterRow
	err := read(ctx, r.db, "a dead letter", func(r *reading) {
		l = row[DeadLetterRow](r, "dead_letter", pgx.NamedArgs{"id": id})
	})
	return &l, err
}
