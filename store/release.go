package store

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"
)

// waveStatement turns held deliveries into jobs, the oldest first, one row for the other: a crash half way or two nodes
// at once leave every delivery with exactly one of the two. A delivery that waits for a later retry goes on waiting. Where
// batches are taken ($5) those that were never attempted are left to the next batch, and get one pump together. Refill ($6) may
// work from a look at the traffic that is older than a pause.
const waveStatement = `
WITH chosen AS (
    SELECT d.id, d.attempts, d.held_reruns, d.hold, greatest(now(), d.next_attempt_at) AS due, $5 AND d.attempts = 0 AS batched FROM postrider_internal.deliveries d
     WHERE d.subscription_id = $1 AND d.hold IS NOT NULL AND d.owed_since <= $2 AND ($3 OR d.next_attempt_at <= now())
       AND ` + openOrExpired + `
     ORDER BY d.owed_since, d.id LIMIT $4 FOR UPDATE SKIP LOCKED
), wave AS MATERIALIZED (
    SELECT chosen.*, CASE WHEN NOT batched THEN nextval('postrider_internal.river_job_id_seq') END AS job_id FROM chosen
), released AS (
    UPDATE postrider_internal.deliveries d SET hold = NULL, last_hold = wave.hold, job_id = wave.job_id, held_reruns = 0 FROM wave WHERE d.id = wave.id
), pump AS (
    INSERT INTO postrider_internal.river_job (state, args, kind, queue, priority, max_attempts, scheduled_at)
    SELECT 'available', jsonb_build_object('s', $1::bigint), 'batch', 'deliveries', 1, 1000, now() WHERE EXISTS (SELECT FROM wave WHERE batched)
), jobs AS (
    INSERT INTO postrider_internal.river_job (id, state, args, kind, queue, priority, max_attempts, scheduled_at)
    SELECT job_id, CASE WHEN due <= now() + interval '5 seconds' THEN 'available' ELSE 'scheduled' END::postrider_internal.river_job_state,
           jsonb_strip_nulls(jsonb_build_object('d', id, 's', $1::bigint, 'n', attempts + 1, 'r', nullif(held_reruns, 0))), 'deliver', 'deliveries', 1, 1000, due
      FROM wave WHERE NOT batched
)
SELECT count(*) FROM wave`

// openOrExpired: whoever refills ($6) stops at an event subscription that is on hold; whoever releases what has expired does not.
const openOrExpired = `(NOT $6 OR NOT EXISTS (SELECT FROM postrider_internal.event_subscription_states WHERE subscription_id = $1 AND hold IS NOT NULL))`

// Refill releases up to limit deliveries of an open event subscription and says how many. Every node calls it each
// second for each that is waiting; what a pause, a crash or a race left on hold is found again by the next call.
func (s *Store) Refill(ctx context.Context, subscription int64, batching bool, limit int) (int, error) {
	return s.wave(ctx, subscription, farFuture, true, limit, batching)
}

// ReleaseExpired gives jobs to held deliveries that have been owed for at least the age given, though their event
// subscription is on hold: their turn ends them, for their time to live has passed, or for what the probation's cause is. onlyDue
// leaves those whose next attempt is still to come.
func (s *Store) ReleaseExpired(ctx context.Context, subscription int64, age time.Duration, onlyDue bool, limit int) (int, error) {
	var now time.Time
	if err := s.pool.QueryRow(ctx, "SELECT now()").Scan(&now); err != nil {
		return 0, fmt.Errorf("read the database's time: %w", err)
	}
	return s.wave(ctx, subscription, now.Add(-age), !onlyDue, limit, false)
}

func (s *Store) wave(ctx context.Context, subscription int64, owedBefore time.Time, alsoLater bool, limit int, batching bool) (n int, err error) {
	members, err := s.releaseBatches(ctx, subscription, owedBefore, alsoLater, limit)
	if err != nil {
		return 0, err
	}
	if err := s.pool.QueryRow(ctx, waveStatement, subscription, owedBefore, alsoLater, max(limit-members, 0), batching, owedBefore.Equal(farFuture)).Scan(&n); err != nil {
		return 0, fmt.Errorf("release held deliveries: %w", err)
	}
	n += members
	s.traffic.released(subscription, n, limit)
	if n > 0 {
		s.Reach(PointRefill)
		s.notifier.poke()
	}
	return n, nil
}

// farFuture is later than any time of ours: no bound.
var farFuture = time.Date(9999, time.January, 1, 0, 0, 0, 0, time.UTC)

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
func (s *Store) ClaimProbe(ctx context.Context, key []byte) (bool, error) {
	var claimed int
	for _, statement := range []string{claimStatement, claimBatchStatement} {
		if err := s.pool.QueryRow(ctx, statement, key, s.restingTogether(key)).Scan(&claimed); err != nil {
			return false, fmt.Errorf("claim a probe: %w", err)
		}
		if claimed > 0 {
			break
		}
	}
	if claimed > 0 {
		s.notifier.poke()
	}
	return claimed > 0, nil
}

// restingTogether lists the event subscriptions of one probation that have no other hold.
func (s *Store) restingTogether(key []byte) []int64 {
	catalogue, holds := s.Catalogue(), s.Traffic().Holds
	var ids []int64
	for id, sub := range catalogue.subs {
		if _, held := holds[id]; !held && bytes.Equal(catalogue.restKey(sub), key) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}
