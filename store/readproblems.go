package store

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
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
	// Waiting counts the unfinished deliveries whose last attempt met it, up to 1,000, among the oldest 10,000 that are unfinished: what was
	// attempted is older than what waits behind it.
	Waiting int
	// One that met it: an unfinished delivery, or else a dead letter, with what was answered.
	DeliveryID   *int64
	DeadLetterID *uuid.UUID
	Status       *int
	Error        *string
	Answer       *string
	NextAttempt  *time.Time
}

const problemsStatement = `
WITH counted AS (
    SELECT topic, subscription, kind, detail, sum(count)::bigint AS count, min(minute) AS first, max(minute) AS last
      FROM postrider.delivery_counts WHERE minute >= now() - make_interval(mins => @minutes) AND kind IN ('attempt', 'dead_lettered') GROUP BY 1, 2, 3, 4
), sums AS (
    SELECT topic, subscription, coalesce(sum(count) FILTER (WHERE kind = 'attempt'), 0)::bigint AS attempts, coalesce(sum(count) FILTER (WHERE kind = 'dead_lettered'), 0)::bigint AS dead_letters FROM counted GROUP BY 1, 2
), failing AS (
    SELECT c.topic, c.subscription, c.detail AS outcome, c.count AS failures, s.attempts, c.first, c.last, s.dead_letters
      FROM counted c JOIN sums s USING (topic, subscription) WHERE c.kind = 'attempt' AND c.detail <> 'Delivered' AND (@topic::text IS NULL OR c.topic = @topic)
     ORDER BY c.last DESC, c.count DESC LIMIT @limit
)
SELECT f.topic, f.subscription, f.outcome, f.failures, f.attempts, f.first, f.last, f.dead_letters, v.hold, v.hold_until, coalesce(w.waiting, 0) AS waiting,
       d.id AS delivery_id, l.id AS dead_letter_id, coalesce(a.status, l.last_status) AS status, coalesce(a.error, l.last_error) AS error,
       left(coalesce(a.response_excerpt, postrider.try_text(l.last_response)), 300) AS answer, d.next_attempt_at AS next_attempt
  FROM failing f
  JOIN postrider_internal.topics t ON t.name = f.topic
  JOIN postrider_internal.event_subscriptions s ON s.topic_id = t.id AND s.name = f.subscription AND (s.deleted_at IS NULL OR NOT EXISTS
       (SELECT FROM postrider_internal.event_subscriptions o WHERE o.topic_id = t.id AND o.name = f.subscription AND (o.deleted_at IS NULL OR o.id > s.id)))
  LEFT JOIN postrider.event_subscriptions v ON v.topic = f.topic AND v.subscription = f.subscription
  LEFT JOIN LATERAL (SELECT count(*)::int AS waiting FROM (SELECT FROM (SELECT d.last_outcome FROM postrider_internal.deliveries d WHERE d.subscription_id = s.id ORDER BY d.id LIMIT 10000) oldest
                      WHERE last_outcome = f.outcome LIMIT 1000) few) w ON true
  LEFT JOIN LATERAL (SELECT oldest.id, oldest.next_attempt_at FROM (SELECT d.id, d.next_attempt_at, d.last_outcome FROM postrider_internal.deliveries d WHERE d.subscription_id = s.id ORDER BY d.id LIMIT 10000) oldest
                      WHERE oldest.last_outcome = f.outcome ORDER BY oldest.id DESC LIMIT 1) d ON true
  LEFT JOIN LATERAL (SELECT a.status, a.error, a.response_excerpt FROM postrider.delivery_attempts a WHERE a.delivery_id = d.id AND a.outcome = f.outcome ORDER BY a.started_at DESC LIMIT 1) a ON true
  LEFT JOIN LATERAL (SELECT l.id, l.last_status, l.last_error, l.last_response FROM (SELECT id, last_status, last_error, last_response, last_outcome, dead_lettered_at FROM postrider_internal.dead_letters
                       WHERE subscription_id = s.id ORDER BY dead_lettered_at DESC LIMIT 1000) l WHERE d.id IS NULL AND l.last_outcome = f.outcome ORDER BY l.dead_lettered_at DESC LIMIT 1) l ON true
 ORDER BY f.last DESC, f.failures DESC`

// ReadProblems groups what attempts met in the span by event subscription and outcome, what failed last first, at most 100. ErrTooSlow,
// ErrUnavailable.
func (s *Store) ReadProblems(ctx context.Context, topic string, span time.Duration) (list []Problem, err error) {
	err = s.reading(ctx, "problems", func(tx pgx.Tx) error {
		list, err = rowsOf[Problem](ctx, tx, problemsStatement, pgx.NamedArgs{"minutes": int(span / time.Minute), "topic": given(topic), "limit": 100})
		return err
	})
	return list, err
}
