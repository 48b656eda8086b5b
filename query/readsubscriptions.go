package query

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/catalog"
	"postrider/postgres"
)

// SubscriptionsFilter says which event subscriptions; "" = all. Hold "any" is those on whatever hold.
type SubscriptionsFilter struct{ Topic, Name, Hold string }

// SubscriptionKey is an event subscription's place in their list, which runs by topic and name.
type SubscriptionKey struct{ Topic, Subscription string }

// SubscriptionLine is one event subscription as the views show it.
type SubscriptionLine struct {
	Topic, Subscription, EndpointBaseURL, EndpointKind, EventDeliverySchema, RetryPolicy string
	MaxDeliveryAttempts                                                                  *int
	EventTimeToLiveInMinutes                                                             int
	DeadLetterDestination, ProvisioningState                                             string
	Hold, HoldCause                                                                      *string
	HoldSince, HoldUntil                                                                 *time.Time
	Probing                                                                              bool
	// how its handshake stands; nil where it is over
	Validation *string
	CreatedAt  time.Time
	// Of the last hour.
	Delivered, Failures, Attempts, DeadLetters int64
	// Spark are the attempts of the last hour that succeeded and failed, in twelve steps of five minutes.
	SparkGood, SparkBad []int64
}

const subscriptionLines = `
WITH page AS MATERIALIZED (
    SELECT v.topic, v.subscription, v.subscription_id, v.endpoint_base_url, v.endpoint_kind, v.event_delivery_schema,
           v.retry_policy, v.max_delivery_attempts, v.event_time_to_live_in_minutes,
           v.dead_letter_destination ->> 'endpointType' AS dead_letter_destination, v.provisioning_state, v.hold,
           v.hold_cause, v.hold_since, v.hold_until, coalesce(v.probing, false) AS probing, v.created_at
      FROM postrider.event_subscriptions v
     WHERE (@topic::text IS NULL OR v.topic = @topic) AND (@name::text IS NULL OR strpos(lower(v.subscription),
         lower(@name)) > 0)
       AND (@hold::text IS NULL OR v.hold = @hold OR @hold = 'any' AND v.hold IS NOT NULL)
       AND (@cursor_topic::text IS NULL OR (v.topic, v.subscription) %[2]s (@cursor_topic, @cursor_name))
     ORDER BY v.topic %[1]s, v.subscription %[1]s LIMIT @limit
), fresh AS MATERIALIZED (
    SELECT e.* FROM postrider_internal.rollup_deltas d, unnest(d.entries) AS e
    WHERE e.minute >= now() - interval '1 hour'
), counted AS (
    SELECT p.topic, p.subscription, m.kind, m.detail,
           least(11, floor(extract(epoch FROM m.minute - (now() - interval '1 hour')) / 300))::int AS step,
           sum(m.count)::bigint AS count
      FROM (SELECT s.topic_id, s.id AS subscription_id, p.topic, p.subscription FROM page p
          JOIN postrider_internal.event_subscriptions s ON s.id = p.subscription_id) p
     CROSS JOIN LATERAL (SELECT r.minute, r.kind, r.detail, r.count
         FROM generate_series(date_trunc('minute', now()) - interval '59 minutes', now(), interval '1 minute') AS g(at)
                          CROSS JOIN LATERAL (SELECT * FROM postrider_internal.rollups r WHERE r.minute = g.at
                              AND r.topic_id = p.topic_id AND r.subscription_id = p.subscription_id OFFSET 0) r
                          UNION ALL SELECT e.minute, e.kind, e.detail, e.count FROM fresh e
                          WHERE e.topic_id = p.topic_id AND e.subscription_id = p.subscription_id) m
     WHERE m.kind IN ('attempt', 'delivered', 'dead_lettered') GROUP BY 1, 2, 3, 4, 5
), steps AS (
    SELECT topic, subscription, step, coalesce(sum(count) FILTER (WHERE kind = 'attempt' AND detail = 'Delivered'),
        0)::bigint AS good, coalesce(sum(count) FILTER (WHERE kind = 'attempt' AND detail <> 'Delivered'),
        0)::bigint AS bad,
           coalesce(sum(count) FILTER (WHERE kind = 'delivered'), 0)::bigint AS delivered,
           coalesce(sum(count) FILTER (WHERE kind = 'dead_lettered'), 0)::bigint AS dead
      FROM counted GROUP BY 1, 2, 3
), hour AS (
    SELECT p.topic, p.subscription, array_agg(coalesce(s.good, 0) ORDER BY g.step) AS spark_good,
           array_agg(coalesce(s.bad, 0) ORDER BY g.step) AS spark_bad,
           coalesce(sum(s.good + s.bad), 0)::bigint AS attempts, coalesce(sum(s.bad), 0)::bigint AS failures,
           coalesce(sum(s.delivered), 0)::bigint AS delivered, coalesce(sum(s.dead), 0)::bigint AS dead_letters
      FROM page p CROSS JOIN generate_series(0, 11) AS g(step) LEFT JOIN steps s ON s.topic = p.topic
          AND s.subscription = p.subscription AND s.step = g.step
     GROUP BY 1, 2
)
SELECT p.topic, p.subscription, p.endpoint_base_url, p.endpoint_kind, p.event_delivery_schema, p.retry_policy,
       p.max_delivery_attempts, p.event_time_to_live_in_minutes, p.dead_letter_destination,
       p.provisioning_state, p.hold, p.hold_cause, p.hold_since, p.hold_until, p.probing, p.created_at, h.spark_good,
       h.spark_bad, h.attempts, h.failures, h.delivered, h.dead_letters,
       CASE WHEN p.provisioning_state <> 'Succeeded' THEN
           (SELECT k.message FROM postrider.handshakes k WHERE k.current AND k.topic = p.topic
               AND k.subscription = p.subscription LIMIT 1) END AS validation
  FROM page p JOIN hour h USING (topic, subscription) ORDER BY p.topic %[1]s, p.subscription %[1]s`

// ReadSubscriptions reads a page of event subscriptions by topic and name: of Turn, Before goes on behind a name.
// ErrTooSlow, ErrUnavailable.
func (r *Reader) ReadSubscriptions(
	ctx context.Context, f SubscriptionsFilter, t Turn[SubscriptionKey],
) (page Page[SubscriptionLine], err error) {
	order, compare := "ASC", ">"
	if t.After != nil {
		order, compare = "DESC", "<"
	}
	args := pgx.NamedArgs{
		"topic": given(f.Topic), "name": given(f.Name), "hold": given(f.Hold), "cursor_topic": nil, "cursor_name": nil,
		"limit": t.Limit + 1,
	}
	if key := t.cursor(); key != nil {
		args["cursor_topic"], args["cursor_name"] = key.Topic, key.Subscription
	}
	err = r.db.Read(ctx, "event subscriptions", func(tx pgx.Tx) error {
		rows, err := postgres.Rows[SubscriptionLine](ctx, tx, fmt.Sprintf(subscriptionLines, order, compare), args)
		page = pageOf(rows, t)
		return err
	})
	return page, err
}

// HandshakeLine is a step of a handshake, or a handshake without any.
type HandshakeLine struct {
	HandshakeID    int64
	Purpose, State string
	Message        string
	CreatedAt      time.Time
	Current        bool
	At             *time.Time
	Sent, Verdict  *string
	Status         *int
	Error, Answer  *string
	DurationMs     *float64
}

// SubscriptionCourse is what became of an event subscription.
type SubscriptionCourse struct {
	Range, Day *Counts         // what was asked for; by the hour
	Handshakes []HandshakeLine // the newest first, at most 50 steps
	Deliveries []DeliveryLine  // the newest made, at most 10
	// Held counts its deliveries on hold, and Pending all that are unfinished, up to 10,000.
	Held, Pending int
	Audit         []AuditLine // the newest ten
}

const (
	handshakeLines = `
SELECT h.handshake_id, h.purpose, h.state, h.message, h.created_at, h.current, st.at, st.sent, st.verdict, st.status,
       st.error, st.answer, st.duration_ms::float8 AS duration_ms
  FROM postrider.handshakes h LEFT JOIN postrider.handshake_steps st ON st.handshake_id = h.handshake_id
 WHERE h.topic = @topic AND h.subscription = @subscription ORDER BY h.handshake_id DESC, st.at DESC NULLS LAST LIMIT 50`

	pendingLines = `
SELECT (SELECT count(*)::int FROM (SELECT FROM postrider_internal.deliveries d WHERE d.subscription_id = @id
    AND d.hold IS NOT NULL LIMIT 10000) few) AS held,
       (SELECT count(*)::int FROM (SELECT FROM postrider_internal.deliveries d WHERE d.subscription_id = @id
           LIMIT 10000) few) AS pending`
)

// ReadSubscriptionCourse reads what became of an event subscription that exists, and what was counted in a span as
// ReadCounts does. ErrTooSlow, ErrUnavailable.
func (r *Reader) ReadSubscriptionCourse(
	ctx context.Context, sub *catalog.Subscription, span, step time.Duration,
) (c *SubscriptionCourse, err error) {
	c = &SubscriptionCourse{}
	args := pgx.NamedArgs{"topic": sub.Topic, "subscription": sub.Name, "id": sub.ID}
	counts := CountsFilter{Topic: sub.Topic, Subscription: sub.Name}
	err = r.db.Read(ctx, "an event subscription", func(tx pgx.Tx) error {
		if c.Range, err = readCounts(ctx, tx, counts, span, step); err != nil {
			return err
		}
		if c.Day, err = readCounts(ctx, tx, counts, 24*time.Hour, time.Hour); err != nil {
			return err
		}
		if c.Handshakes, err = postgres.Rows[HandshakeLine](ctx, tx, handshakeLines, args); err != nil {
			return err
		}
		few, err := postgres.Row[struct{ Held, Pending int }](ctx, tx, pendingLines, args)
		if err != nil {
			return err
		}
		c.Held, c.Pending = few.Held, few.Pending
		page, err := readDeliveries(ctx, tx, DeliveryFilter{Topic: sub.Topic, Subscription: sub.Name},
			Turn[DeliveryPlace]{Limit: 10})
		if err != nil {
			return err
		}
		c.Deliveries = page.Rows
		audit, err := readAudit(ctx, tx, AuditFilter{Topic: sub.Topic, Subscription: sub.Name}, Turn[int64]{Limit: 10})
		c.Audit = audit.Rows
		return err
	})
	return c, err
}
