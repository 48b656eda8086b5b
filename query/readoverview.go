package query

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/postgres"
)

const (
	// countLimit is how far rows of a table are counted for a page: 100,000 are 20 to 40 ms.
	countLimit = 100_000
	// heldLimit is the same for deliveries on hold.
	heldLimit = 20_000
	// lagSample is how many finished deliveries the lag is measured on.
	lagSample = 2000
)

// Standing is how things are at this moment.
type Standing struct {
	// Pending is how many deliveries are unfinished: kept beside the counts, and exact at any size. Held counts those of
	// them on hold, up to 20,000.
	Pending, Held int64
	// OldestOwedSince and OldestID are of the unfinished delivery that was made first; nil where all are finished.
	OldestOwedSince *time.Time
	OldestID        *int64
	// SweeperFinds is what the nodes' sweepers had to mend since they started.
	SweeperFinds int64
	// Nodes deliver and have written a heartbeat in the last 15 s.
	Nodes int
	// The lag from being owed to being delivered, in seconds, of those of the newest 2,000 finished deliveries that were
	// delivered; nil where none was.
	LagP50, LagP95 *float64
}

const standingStatement = `
WITH backlog AS (
    SELECT coalesce(sum(n), 0)::bigint AS pending
      FROM (SELECT deliveries AS n FROM postrider_internal.owed
             UNION ALL SELECT CASE kind WHEN 'owed' THEN count ELSE -count END FROM postrider_internal.rollup_deltas,
                 unnest(entries) WHERE kind IN ('owed', 'delivered', 'dead_lettered', 'dropped', 'canceled')) both_of
), few AS (
    SELECT least(@held, (SELECT count(*) FROM (SELECT FROM postrider_internal.deliveries WHERE hold IS NOT NULL
        LIMIT @held) alone)
           + (SELECT coalesce(sum(members), 0) FROM (SELECT members FROM postrider_internal.batches
               WHERE hold IS NOT NULL LIMIT @held) together))::bigint AS held
), oldest AS (
    SELECT id, owed_since FROM postrider_internal.deliveries ORDER BY id LIMIT 1
), finished AS (
    SELECT state, postrider_internal.seconds(finished_at - owed_since) AS lag FROM postrider_internal.delivery_history
    ORDER BY id DESC LIMIT @sample
)
SELECT greatest(0, backlog.pending) AS pending, few.held, oldest.owed_since AS oldest_owed_since,
       oldest.id AS oldest_id,
       (SELECT coalesce(sum(sweeper_finds), 0)::bigint FROM postrider.nodes) AS sweeper_finds, ` + countLiving +
	` AS nodes,
       f.lag_p50, f.lag_p95
  FROM backlog CROSS JOIN few LEFT JOIN oldest ON true
 CROSS JOIN (SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY lag) FILTER (WHERE state = 'delivered') AS lag_p50,
                    percentile_cont(0.95) WITHIN GROUP (ORDER BY lag) FILTER (WHERE state = 'delivered') AS lag_p95
                    FROM finished) f`

// HoldLine is an event subscription on hold.
type HoldLine struct {
	Topic, Subscription, EndpointBaseURL, Hold string
	HoldCause                                  *string
	HoldSince, HoldUntil                       *time.Time
	Probing                                    bool
	// HeldDeliveries are counted up to 20,000.
	HeldDeliveries int
	// Validation is how its handshake stands, where that is the hold.
	Validation *string
}

const holdsReport = `
SELECT v.topic, v.subscription, v.endpoint_base_url, v.hold, v.hold_cause, v.hold_since, v.hold_until,
       coalesce(v.probing, false) AS probing,
       (SELECT count(*) FROM (SELECT FROM postrider_internal.deliveries d WHERE d.subscription_id = s.id
           AND d.hold IS NOT NULL LIMIT 10000) few)
       + (SELECT coalesce(sum(b.members), 0)::bigint FROM postrider_internal.batches b WHERE b.subscription_id = s.id
           AND b.hold IS NOT NULL) AS held_deliveries,
       CASE WHEN v.hold = 'not_validated' THEN (SELECT h.message FROM postrider.handshakes h WHERE h.current
           AND h.topic = v.topic AND h.subscription = v.subscription LIMIT 1) END AS validation
  FROM (SELECT topic, subscription, endpoint_base_url, hold, hold_cause, hold_since, hold_until, probing
      FROM postrider.event_subscriptions
         WHERE hold IS NOT NULL ORDER BY hold_since DESC NULLS LAST, topic, subscription LIMIT @limit) v
  JOIN postrider_internal.topics t ON t.name = v.topic AND t.deleted_at IS NULL
  JOIN postrider_internal.event_subscriptions s ON s.topic_id = t.id AND s.name = v.subscription
      AND s.deleted_at IS NULL
 ORDER BY v.hold_since DESC NULLS LAST, v.topic, v.subscription`

// Overview is what the person on call looks at first, of one moment.
type Overview struct {
	Standing Standing
	// LastHour is by the minute, Day by the hour, and Range as was asked for.
	LastHour, Day, Range *Counts
	// Holds are the event subscriptions on hold, the newest first, at most 50 of them.
	Holds []HoldLine
}

// ReadOverview reads how things stand, and what was counted in a span as ReadCounts does. ErrTooSlow, ErrUnavailable.
func (r *Reader) ReadOverview(ctx context.Context, span, step time.Duration) (o *Overview, err error) {
	const holds = 50
	o = &Overview{}
	err = r.db.Read(ctx, "the overview", func(tx pgx.Tx) error {
		standing, err := postgres.Row[Standing](ctx, tx, standingStatement,
			pgx.NamedArgs{"held": heldLimit, "sample": lagSample})
		if err != nil {
			return err
		}
		o.Standing = *standing
		if o.LastHour, err = readCounts(ctx, tx, CountsFilter{}, time.Hour, time.Minute); err != nil {
			return err
		}
		if o.Day, err = readCounts(ctx, tx, CountsFilter{}, 24*time.Hour, time.Hour); err != nil {
			return err
		}
		o.Range = o.LastHour
		if span != time.Hour || step != time.Minute {
			if o.Range, err = readCounts(ctx, tx, CountsFilter{}, span, step); err != nil {
				return err
			}
		}
		o.Holds, err = postgres.Rows[HoldLine](ctx, tx, holdsReport, pgx.NamedArgs{"limit": holds})
		return err
	})
	return o, err
}
