package query

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"postrider/postgres"
)

// DeadLetterQuery says which dead letters a page shows: a filter, and what filters do not know.
type DeadLetterQuery struct {
	DeadLetterFilter
	// Unanswered: only those whose last attempt had no answer.
	Unanswered bool
}

// DeadLetterRow is one dead letter with everything that is kept of it.
type DeadLetterRow struct {
	DeadLetter
	// BodyError is why PostgreSQL cannot hold the body as jsonb.
	BodyError *string
	// SubscriptionGone and EventGone: it has outlived them.
	SubscriptionGone, EventGone bool
	// RedeliveredFromKind is what RedeliveredFrom is, as in DeliveryCourse.
	RedeliveredFromKind string
}

const (
	deadLetterWhere = `(@topic::text IS NULL OR topic = @topic) AND (@subscription::text IS NULL
       OR subscription = @subscription) AND (@reason::text IS NULL OR reason = @reason)
   AND (@outcome::text IS NULL OR last_outcome = @outcome) AND (@event_id::text IS NULL OR event_id = @event_id)
       AND (@event_type::text IS NULL OR event_type = @event_type)
   AND (@status::int IS NULL OR last_status = @status) AND (NOT @unanswered OR last_status IS NULL)
   AND (@from::timestamptz IS NULL OR dead_lettered_at >= @from) AND (@until::timestamptz IS NULL
       OR dead_lettered_at < @until)`

	deadLetterLines = deadLetterColumns +
		`NULL::text AS body_text, NULL::text AS last_response FROM postrider.dead_letters WHERE ` + deadLetterWhere + `
   AND (@cursor::timestamptz IS NULL OR (dead_lettered_at, dead_letter_id) %[2]s (@cursor, @cursor_id::uuid))
   AND (@end::timestamptz IS NULL OR NOT (dead_lettered_at, dead_letter_id) %[2]s (@end, @end_id::uuid))
 ORDER BY dead_lettered_at %[1]s, dead_letter_id %[1]s LIMIT @limit`

	// deadLetterEnd is where a look of lookLimit dead letters ends, along the index of their time or that of their names;
	// no row where that is all.
	deadLetterEnd = `SELECT dead_lettered_at, id AS dead_letter_id FROM postrider_internal.dead_letters
 WHERE (@topic::text IS NULL OR @subscription::text IS NULL OR topic = @topic AND subscription = @subscription)
   AND (@from::timestamptz IS NULL OR dead_lettered_at >= @from) AND (@until::timestamptz IS NULL
       OR dead_lettered_at < @until)
   AND (@cursor::timestamptz IS NULL OR (dead_lettered_at, id) %[2]s (@cursor, @cursor_id::uuid))
 ORDER BY dead_lettered_at %[1]s, id %[1]s OFFSET @look LIMIT 1`

	deadLetterFacets = `
WITH few AS MATERIALIZED (
    SELECT reason, coalesce(last_outcome, '') AS outcome, coalesce(last_status, 0) AS status, topic, subscription,
           (dead_lettered_at AT TIME ZONE 'UTC')::date AS day
      FROM postrider.dead_letters WHERE ` + deadLetterWhere + ` AND (@end::timestamptz IS NULL
    OR (dead_lettered_at, dead_letter_id) >= (@end, @end_id::uuid)) ORDER BY dead_lettered_at DESC LIMIT @limit
), grouped AS (
    SELECT CASE WHEN grouping(reason) = 0 THEN 'reason' WHEN grouping(outcome) = 0 THEN 'outcome'
        WHEN grouping(status) = 0 THEN 'status'
                WHEN grouping(topic, subscription) = 0 THEN 'subscription' WHEN grouping(day) = 0 THEN 'day'
                ELSE 'all' END AS facet,
           CASE WHEN grouping(reason) = 0 THEN reason WHEN grouping(outcome) = 0 THEN outcome WHEN grouping(status) = 0
               THEN status::text
                WHEN grouping(topic, subscription) = 0 THEN topic || '/' || subscription WHEN grouping(day) = 0
                THEN day::text ELSE '' END AS name,
           count(*) AS count
      FROM few GROUP BY GROUPING SETS ((reason), (outcome), (status), (topic, subscription), (day), ())
)
SELECT facet, name, count FROM (SELECT *, row_number() OVER (PARTITION BY facet ORDER BY count DESC, name) AS place
    FROM grouped) ranked
 WHERE place <= @top ORDER BY facet, CASE facet WHEN 'day' THEN name END DESC, place`
)

// facetSample is how many dead letters, the newest that match, the facets are counted on.
const facetSample = 10_000

// Facet is a value that dead letters have in common.
type Facet struct {
	Facet, Name string
	Count       int64
}

// DeadLetterPage is a page of dead letters, without their bodies, with what they have in common.
type DeadLetterPage struct {
	Page[DeadLetter]
	// Facets by name: reason, outcome, status, subscription (topic/subscription), day; each with its ten most frequent
	// values, of the newest 10,000 that match.
	Facets map[string][]Facet
	// Total counts what matches, up to 10,000. Partly: of the newest 20,000 that were looked through alone.
	Total  int64
	Partly bool
	// LookedTo is where a look ended that found no more than Rows; nil where it went on to the end of the list.
	LookedTo *DeadLetterPlace
}

func (q *DeadLetterQuery) args() pgx.NamedArgs {
	return pgx.NamedArgs{
		"topic": q.Topic, "subscription": q.Subscription, "reason": q.Reason, "outcome": q.LastOutcome, "event_id": q.EventID,
		"event_type": q.EventType,
		"status":     q.LastStatus, "unanswered": q.Unanswered, "from": q.DeadLetteredFrom, "until": q.DeadLetteredUntil,
		"cursor": nil, "cursor_id": nil, "end": nil, "end_id": nil, "look": lookLimit,
	}
}

// blind: no index knows which dead letters the filter wants.
func (q *DeadLetterQuery) blind() bool {
	named := (q.Topic == nil) == (q.Subscription == nil)
	return q.EventID == nil &&
		(!named || q.Reason != nil || q.LastOutcome != nil || q.EventType != nil || q.LastStatus != nil || q.Unanswered)
}

// end is where the look from a cursor ends; nil where it meets the end of the list, or where an index answers.
func (q *DeadLetterQuery) end(
	ctx context.Context, tx pgx.Tx, args pgx.NamedArgs, order, compare string,
) (*DeadLetterPlace, error) {
	if !q.blind() {
		return nil, nil
	}
	place, err := postgres.Row[DeadLetterPlace](ctx, tx, fmt.Sprintf(deadLetterEnd, order, compare), args)
	if errors.Is(err, postgres.ErrNotFound) {
		return nil, nil
	}
	if err == nil {
		args["end"], args["end_id"] = place.DeadLetteredAt, [16]byte(place.DeadLetterID)
	}
	return place, err
}

// ReadDeadLetters reads a page of dead letters, the newest first. ErrTooSlow, ErrUnavailable.
func (r *Reader) ReadDeadLetters(
	ctx context.Context, q DeadLetterQuery, t Turn[DeadLetterPlace],
) (d *DeadLetterPage, err error) {
	d = &DeadLetterPage{Facets: map[string][]Facet{}}
	err = r.db.Read(ctx, "dead letters", func(tx pgx.Tx) error {
		if err := d.list(ctx, tx, q, t); err != nil {
			return err
		}
		return d.count(ctx, tx, q)
	})
	return d, err
}

func (d *DeadLetterPage) list(ctx context.Context, tx pgx.Tx, q DeadLetterQuery, t Turn[DeadLetterPlace]) (err error) {
	order, compare := t.way()
	args := q.args()
	args["limit"] = t.Limit + 1
	if key := t.cursor(); key != nil {
		args["cursor"], args["cursor_id"] = key.DeadLetteredAt, [16]byte(key.DeadLetterID)
	}
	if d.LookedTo, err = q.end(ctx, tx, args, order, compare); err != nil {
		return err
	}
	rows, err := postgres.Rows[DeadLetter](ctx, tx, fmt.Sprintf(deadLetterLines, order, compare), args)
	d.Page = pageOf(rows, t)
	if len(rows) > t.Limit {
		d.LookedTo = nil
	}
	return err
}

// count counts what the filter finds, wherever in the list the page is.
func (d *DeadLetterPage) count(ctx context.Context, tx pgx.Tx, q DeadLetterQuery) error {
	const top = 10
	args := q.args()
	args["limit"], args["top"] = facetSample, top
	end, err := q.end(ctx, tx, args, "DESC", "<")
	if err != nil {
		return err
	}
	facets, err := postgres.Rows[Facet](ctx, tx, deadLetterFacets, args)
	for _, facet := range facets {
		d.Facets[facet.Facet] = append(d.Facets[facet.Facet], facet)
		if facet.Facet == "all" {
			d.Total = facet.Count
		}
	}
	d.Partly = end != nil && d.Total < facetSample
	return err
}

// ReadDeadLetter reads one dead letter; ErrNotFound.
func (r *Reader) ReadDeadLetter(ctx context.Context, id uuid.UUID) (d *DeadLetterRow, err error) {
	const query = deadLetterColumns + `body_text, last_response, body_error,
       NOT EXISTS (SELECT FROM postrider.event_subscriptions s WHERE s.topic = l.topic
           AND s.subscription = l.subscription) AS subscription_gone,
       NOT EXISTS (SELECT FROM postrider_internal.events e WHERE e.id = l.system_id) AS event_gone,
       ` + redeliveredFromKind + `
  FROM postrider.dead_letters l WHERE dead_letter_id = @id`
	err = r.db.Read(ctx, "a dead letter", func(tx pgx.Tx) error {
		d, err = postgres.Row[DeadLetterRow](ctx, tx, query, pgx.NamedArgs{"id": [16]byte(id)})
		return err
	})
	return d, err
}
