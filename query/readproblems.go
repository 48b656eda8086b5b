package query

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"postrider/postgres"
)

// Problem is an outcome that attempts of one event subscription keep meeting.
type Problem struct {
	Topic, Subscription, Outcome string
	// Failures are the attempts that met it, Attempts all that were made; First and Last are minutes.
	Failures, Attempts int64
	First, Last        time.Time
	DeadLetters        int64 // of the event subscription, whatever their outcome
	Hold               *string
	HoldUntil          *time.Time // of a probation: when the next probe is let through
	// Waiting counts the unfinished deliveries whose last attempt met it, up to 1,000, among the oldest 10,000 that are
	// unfinished: what was attempted is older than what waits behind it.
	Waiting int
	// Held counts the deliveries of the event subscription that are on hold, in batches too, whatever they met, up to
	// 10,000.
	Held int
	// One that met it: an unfinished delivery, or else a dead letter, with what was answered.
	DeliveryID   *int64
	DeadLetterID *uuid.UUID
	Status       *int
	Error        *string
	Answer       *string
	NextAttempt  *time.Time
}

// Hours are enough for looking back over days: of an hour the minute is looked up by the key. What a delivery or a dead
// letter met is found by names and ids whose indexes are in the order of time.
const (
	problemMinutes = `SELECT minute AS first, minute AS last, topic_id, subscription_id, kind, detail, count
		FROM postrider_internal.rollups WHERE minute >= @from`
	problemHours = `SELECT begins, begins + interval '59 minutes', topic_id, subscription_id, kind, detail, count
		FROM postrider_internal.rollup_sums WHERE span = 60 AND begins >= date_bin('1 hour', @from, 'epoch')`

	problemsStatement = `
WITH kept AS (
    SELECT first, last, topic_id, subscription_id, kind, detail, count
    FROM (%s) k(first, last, topic_id, subscription_id, kind, detail, count) WHERE kind IN ('attempt', 'dead_lettered')
     UNION ALL
    SELECT e.minute, e.minute, e.topic_id, e.subscription_id, e.kind, e.detail, e.count
    FROM postrider_internal.rollup_deltas d, unnest(d.entries) AS e WHERE e.minute >= @from
        AND e.kind IN ('attempt', 'dead_lettered')
), counted AS (
    SELECT t.name AS topic, s.name AS subscription, k.kind, k.detail, sum(k.count)::bigint AS count,
           min(k.first) AS first, max(k.last) AS last, max(k.subscription_id) AS subscription_id
      FROM (SELECT topic_id, subscription_id, kind, detail, sum(count) AS count, min(first) AS first, max(last) AS last
          FROM kept GROUP BY 1, 2, 3, 4) k
      JOIN postrider_internal.topics t ON t.id = k.topic_id JOIN postrider_internal.event_subscriptions s
          ON s.id = k.subscription_id GROUP BY 1, 2, 3, 4
), sums AS (
    SELECT topic, subscription, coalesce(sum(count) FILTER (WHERE kind = 'attempt'), 0)::bigint AS attempts,
           coalesce(sum(count) FILTER (WHERE kind = 'dead_lettered'), 0)::bigint AS dead_letters FROM counted
    GROUP BY 1, 2
), failing AS MATERIALIZED (
    SELECT c.topic, c.subscription, c.subscription_id, c.detail AS outcome, c.count AS failures, s.attempts, c.first,
           c.last, s.dead_letters
      FROM counted c JOIN sums s USING (topic, subscription) WHERE c.kind = 'attempt' AND c.detail <> 'Delivered'
          AND (@topic::text IS NULL OR c.topic = @topic)
     ORDER BY c.last DESC, c.count DESC LIMIT @limit
)
SELECT f.topic, f.subscription, f.outcome, f.failures, f.attempts, coalesce(earliest.at, f.first) AS first,
       coalesce(latest.at, least(f.last, now())) AS last, f.dead_letters, v.hold, v.hold_until,
       coalesce(w.waiting, 0) AS waiting, h.held,
       d.id AS delivery_id, l.id AS dead_letter_id, coalesce(a.status, l.last_status) AS status,
       coalesce(a.error, l.last_error) AS error,
       left(coalesce(a.response_excerpt, postrider.try_text(l.last_response)), 300) AS answer,
       CASE WHEN d.hold IS NULL THEN greatest(d.next_attempt_at, now()) END AS next_attempt
  FROM failing f
  JOIN postrider_internal.event_subscriptions s ON s.id = f.subscription_id
  LEFT JOIN LATERAL (SELECT g.at FROM generate_series(least(f.last, date_trunc('minute', now())),
      f.last - @grain * interval '1 minute', interval '-1 minute') AS g(at)
                      WHERE EXISTS (SELECT FROM postrider_internal.rollups r WHERE r.minute = g.at
                          AND r.topic_id = s.topic_id AND r.subscription_id = s.id AND r.kind = 'attempt'
                          AND r.detail = f.outcome) LIMIT 1) latest ON true
  LEFT JOIN LATERAL (SELECT g.at FROM generate_series(f.first, f.first + @grain * interval '1 minute',
      interval '1 minute') AS g(at)
                      WHERE EXISTS (SELECT FROM postrider_internal.rollups r WHERE r.minute = g.at
                          AND r.topic_id = s.topic_id AND r.subscription_id = s.id AND r.kind = 'attempt'
                          AND r.detail = f.outcome) LIMIT 1) earliest ON true
  LEFT JOIN LATERAL (SELECT v.hold, v.hold_until FROM postrider.event_subscriptions v WHERE v.subscription_id = s.id) v
      ON true
  LEFT JOIN LATERAL (SELECT count(*)::int AS waiting, max(id) AS example
      FROM (SELECT id FROM (SELECT d.id, d.last_outcome FROM postrider_internal.deliveries d
      WHERE d.subscription_id = s.id ORDER BY d.id LIMIT 10000) oldest
                      WHERE last_outcome = f.outcome LIMIT 1000) few) w ON true
  LEFT JOIN LATERAL (
       SELECT least(10000, (SELECT count(*) FROM (SELECT FROM postrider_internal.deliveries x
                              WHERE x.subscription_id = s.id AND x.hold IS NOT NULL LIMIT 10000) alone)
              + (SELECT coalesce(sum(b.members), 0) FROM postrider_internal.batches b
                  WHERE b.subscription_id = s.id AND b.hold IS NOT NULL))::int AS held) h ON true
  LEFT JOIN postrider_internal.deliveries d ON d.id = w.example
  LEFT JOIN LATERAL (SELECT a.status, a.error, postrider.try_text(a.response_excerpt) AS response_excerpt
      FROM postrider_internal.delivery_attempts a WHERE a.delivery_id = d.id AND a.outcome = f.outcome
      ORDER BY a.started_at DESC LIMIT 1) a ON true
  LEFT JOIN LATERAL (SELECT l.id, l.last_status, l.last_error, l.last_response
      FROM (SELECT id, last_status, last_error, last_response, last_outcome, dead_lettered_at
      FROM postrider_internal.dead_letters
                       WHERE topic = f.topic AND subscription = f.subscription AND d.id IS NULL
                       ORDER BY dead_lettered_at DESC LIMIT 200) l WHERE l.last_outcome = f.outcome
                       ORDER BY l.dead_lettered_at DESC LIMIT 1) l ON true
 ORDER BY last DESC, f.failures DESC`
)

// problemHoursFrom is the span from which on hours are added up and not minutes.
const problemHoursFrom = 6 * time.Hour

// ReadProblems groups what attempts met in the span by event subscription and outcome, what failed last first, at most
// 100. ErrTooSlow, ErrUnavailable.
func (r *Reader) ReadProblems(ctx context.Context, topic string, span time.Duration) (list []Problem, err error) {
	err = r.db.Read(ctx, "problems", func(tx pgx.Tx) error {
		source, grain := problemMinutes, 0
		if span >= problemHoursFrom {
			source, grain = problemHours, 59
		}
		// Planned without our own time, PostgreSQL would not know how few of the counts it reads.
		var from time.Time
		if err := tx.QueryRow(ctx, "SELECT now() - make_interval(mins => $1)", int(span/time.Minute)).
			Scan(&from); err != nil {
			return err
		}
		list, err = postgres.Rows[Problem](ctx, tx, fmt.Sprintf(problemsStatement, source),
			pgx.NamedArgs{"from": from, "grain": grain, "topic": given(topic), "limit": 100})
		return err
	})
	return list, err
}
