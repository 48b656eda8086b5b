package delivery

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"postrider/catalog"
	"postrider/jobs/queue"
	"postrider/postgres"
)

// waveStatement turns held deliveries into jobs, the oldest first, one row for the other: a crash half way or two nodes
// at once leave every delivery with exactly one of the two. A delivery that waits for a later retry goes on waiting. $5 are the
// only ones that may go, NULL for all. Refill ($6) may work from a look at the traffic that is older than a pause.
const waveStatement = `
WITH chosen AS (
    SELECT d.id, d.attempts, d.held_reruns, d.hold, greatest(now(), d.next_attempt_at) AS due FROM postrider_internal.deliveries d
     WHERE d.subscription_id = $1 AND d.hold IS NOT NULL AND d.owed_since <= $2 AND ($3 OR d.next_attempt_at <= now())
       AND ($5::bigint[] IS NULL OR d.id = ANY ($5)) AND ` + openOrExpired + `
     ORDER BY d.owed_since, d.id LIMIT $4 FOR UPDATE SKIP LOCKED
), wave AS MATERIALIZED (
    SELECT chosen.*, nextval('postrider_internal.river_job_id_seq') AS job_id FROM chosen
), released AS (
    UPDATE postrider_internal.deliveries d SET hold = NULL, last_hold = wave.hold, job_id = wave.job_id, held_reruns = 0 FROM wave WHERE d.id = wave.id
), jobs AS (
    INSERT INTO postrider_internal.river_job (id, state, args, kind, queue, priority, max_attempts, scheduled_at)
    SELECT job_id, CASE WHEN due` + queue.ElseScheduled + `,
           jsonb_strip_nulls(jsonb_build_object('d', id, 's', $1::bigint, 'n', attempts + 1, 'r', nullif(held_reruns, 0))), 'deliver', 'deliveries', 1, 1000, due
      FROM wave
)
SELECT count(*) FROM wave`

// pumpHeldStatement is the wave of an event subscription that takes batches. What was never attempted is cut as it is, by the
// pump that this inserts: to release it first would write each row, with its index entries, once more (27 of 100 microseconds
// for each event). It answers those that were attempted before and go alone.
var pumpHeldStatement = `
WITH oldest AS MATERIALIZED (
    SELECT id, attempts FROM postrider_internal.deliveries WHERE subscription_id = $1 AND hold IS NOT NULL AND ` + strings.ReplaceAll(openOrExpired, "$6", "$3") + `
     ORDER BY owed_since, id LIMIT $2
), pump AS (
    INSERT INTO postrider_internal.river_job (state, args, kind, queue, priority, max_attempts, scheduled_at)
    SELECT 'available', jsonb_build_object('s', $1::bigint), 'batch', 'deliveries', 1, 1000, now() WHERE EXISTS (SELECT FROM oldest WHERE attempts = 0)
)
SELECT coalesce(array_agg(id) FILTER (WHERE attempts > 0), '{}'), count(*) FILTER (WHERE attempts = 0) FROM oldest`

// openOrExpired: whoever refills ($6) stops at an event subscription that is on hold; whoever releases what has expired does not.
const openOrExpired = `(NOT $6 OR NOT EXISTS (SELECT FROM postrider_internal.event_subscription_states WHERE subscription_id = $1 AND hold IS NOT NULL))`

// Releaser gives jobs to held deliveries.
type Releaser struct {
	DB       *postgres.DB
	Cache    *catalog.Cache
	Traffic  *queue.Traffic
	Notifier *queue.Notifier
	postgres.Failpoint
	count atomic.Int64
}

// NewReleaser makes a releaser.
func NewReleaser(db *postgres.DB, cache *catalog.Cache, traffic *queue.Traffic, notifier *queue.Notifier, fail postgres.Failpoint) *Releaser {
	return &Releaser{DB: db, Cache: cache, Traffic: traffic, Notifier: notifier, Failpoint: fail}
}

// ReleasedCount is how many deliveries this node has released from a hold.
func (r *Releaser) ReleasedCount() int64 { return r.count.Load() }

// Refill releases up to limit deliveries of an open event subscription and says how many; of one that takes batches they are left
// to its next pump, which is made if there is anything for it. Every node calls it each
// second for each that is waiting; what a pause, a crash or a race left on hold is found again by the next call.
func (r *Releaser) Refill(ctx context.Context, subscription int64, batching bool, limit int) (int, error) {
	members, err := r.releaseBatches(ctx, subscription, postgres.FarFuture, true, limit)
	if err != nil {
		return 0, err
	}
	if batching {
		return r.pumpHeld(ctx, subscription, members, limit-members)
	}
	n, err := r.wave(ctx, subscription, postgres.FarFuture, true, limit-members, nil)
	if err != nil {
		return members, err
	}
	r.released(subscription, members+n, limit)
	return members + n, nil
}

// PointRefill is the failpoint after held deliveries got their jobs and before a fetcher is woken.
const PointRefill = "refill"

// pumpHeld looks no further than one pump does. What that takes is counted when it is cut.
func (r *Releaser) pumpHeld(ctx context.Context, subscription int64, members, limit int) (n int, err error) {
	var alone []int64
	var together int
	row := r.DB.QueryRow(ctx, pumpHeldStatement, subscription, min(max(limit, 0), cutAhead), true)
	if err := row.Scan(&alone, &together); err != nil {
		return members, fmt.Errorf("leave held deliveries to a pump: %w", err)
	}
	if len(alone) > 0 {
		if n, err = r.wave(ctx, subscription, postgres.FarFuture, true, len(alone), alone); err != nil {
			return members, err
		}
	}
	r.Traffic.AddOne(subscription, members+n)
	if n += members + together; n > 0 {
		r.count.Add(int64(n))
		r.Reach(PointRefill)
		r.Notifier.Poke()
	}
	return n, nil
}

// ReleaseExpired gives jobs to held deliveries that have been owed for at least the age given, though their event
// subscription is on hold: their turn ends them, for their time to live has passed, or for what the probation's cause is. onlyDue
// leaves those whose next attempt is still to come.
func (r *Releaser) ReleaseExpired(ctx context.Context, subscription int64, age time.Duration, onlyDue bool, limit int) (int, error) {
	var now time.Time
	if err := r.DB.QueryRow(ctx, "SELECT now()").Scan(&now); err != nil {
		return 0, fmt.Errorf("read the database's time: %w", err)
	}
	members, err := r.releaseBatches(ctx, subscription, now.Add(-age), !onlyDue, limit)
	if err != nil {
		return 0, err
	}
	n, err := r.wave(ctx, subscription, now.Add(-age), !onlyDue, limit-members, nil)
	if err != nil {
		return members, err
	}
	r.released(subscription, members+n, limit)
	return members + n, nil
}

func (r *Releaser) wave(ctx context.Context, subscription int64, owedBefore time.Time, alsoLater bool, limit int, only []int64) (n int, err error) {
	row := r.DB.QueryRow(ctx, waveStatement, subscription, owedBefore, alsoLater, max(limit, 0), only, owedBefore.Equal(postgres.FarFuture))
	if err := row.Scan(&n); err != nil {
		return 0, fmt.Errorf("release held deliveries: %w", err)
	}
	return n, nil
}

// released counts what was let go, and wakes the fetchers.
func (r *Releaser) released(subscription int64, n, limit int) {
	r.Traffic.Released(subscription, n, limit)
	if n > 0 {
		r.count.Add(int64(n))
		r.Reach(PointRefill)
		r.Notifier.Poke()
	}
}

// claimStatement takes the oldest held delivery of those that share a probation as its probe. The probation's row is the
// lock: of several nodes one finds the time come and no probe under way. A probe that went away without an answer (its time to
// live had passed, it was canceled, its node died) has no job any more: the next one is taken.
const claimStatement = `
WITH rest AS MATERIALIZED (
    SELECT rest_key FROM postrider_internal.probations p
     WHERE rest_key = $1 AND since IS NOT NULL AND until <= now()
       AND NOT EXISTS (SELECT FROM postrider_internal.river_job j WHERE j.id = p.probe_job_id AND j.finalized_at IS NULL)
       FOR UPDATE SKIP LOCKED
), oldest AS MATERIALIZED (
    SELECT d.id FROM rest, unnest($2::bigint[]) AS s(id)
     CROSS JOIN LATERAL (SELECT d.id, d.owed_since FROM postrider_internal.deliveries d
                          WHERE d.subscription_id = s.id AND d.hold IS NOT NULL AND d.next_attempt_at <= now() ORDER BY d.owed_since, d.id LIMIT 1) d
     ORDER BY d.owed_since, d.id LIMIT 1
), chosen AS MATERIALIZED (
    SELECT d.id, d.subscription_id, d.attempts, d.held_reruns, d.hold, nextval('postrider_internal.river_job_id_seq') AS job_id
      FROM postrider_internal.deliveries d WHERE d.id = (SELECT id FROM oldest) AND d.hold IS NOT NULL FOR UPDATE SKIP LOCKED
), released AS (
    UPDATE postrider_internal.deliveries d SET hold = NULL, last_hold = c.hold, job_id = c.job_id, held_reruns = 0 FROM chosen c WHERE d.id = c.id
), job AS (
    INSERT INTO postrider_internal.river_job (id, state, args, kind, queue, priority, max_attempts, scheduled_at)
    SELECT job_id, 'available', jsonb_strip_nulls(jsonb_build_object('d', id, 's', subscription_id, 'n', attempts + 1, 'r', nullif(held_reruns, 0))), 'deliver', 'deliveries', 1, 1000, now()
      FROM chosen
), marked AS (
    UPDATE postrider_internal.probations p SET probe_job_id = c.job_id, updated_at = now() FROM chosen c WHERE p.rest_key = $1
)
SELECT count(*) FROM chosen`

// ClaimProbe lets one held delivery through a probation whose time has come; false when nothing is held, or another node was
// quicker. Event subscriptions that are paused as well are left out. A batch is the probe only where no delivery is held that
// has none: each failing probe costs an attempt, and a batch would pay with all its members'.
func (r *Releaser) ClaimProbe(ctx context.Context, key []byte) (bool, error) {
	var claimed int
	for _, statement := range []string{claimStatement, claimBatchStatement} {
		if err := r.DB.QueryRow(ctx, statement, key, r.restingTogether(key)).Scan(&claimed); err != nil {
			return false, fmt.Errorf("claim a probe: %w", err)
		}
		if claimed > 0 {
			break
		}
	}
	if claimed > 0 {
		r.Notifier.Poke()
	}
	return claimed > 0, nil
}

// restingTogether lists the event subscriptions of one probation that have no other hold.
func (r *Releaser) restingTogether(key []byte) []int64 {
	catalogue, holds := r.Cache.Catalogue(), r.Traffic.LatestTraffic().Holds
	var ids []int64
	for sub := range catalogue.Subscriptions() {
		if _, held := holds[sub.ID]; !held && bytes.Equal(catalogue.RestKey(sub), key) {
			ids = append(ids, sub.ID)
		}
	}
	slices.Sort(ids)
	return ids
}
