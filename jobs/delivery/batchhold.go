package delivery

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"postrider/jobs/queue"
	"postrider/postgres"
)

// releaseBatchesStatement is waveStatement for batches: each gets a job for its hold. A batch counts as many deliveries as it
// has members, and goes where room is left for any.
var releaseBatchesStatement = `
WITH chosen AS MATERIALIZED (
    SELECT b.id, b.members, b.attempts, b.held_reruns, b.hold, greatest(now(), b.next_attempt_at) AS due FROM postrider_internal.batches b
     WHERE b.subscription_id = $1 AND b.hold IS NOT NULL AND ($3 OR b.next_attempt_at <= now()) AND ` + strings.ReplaceAll(openOrExpired, "$6", "$5") + `
       AND ($2 = 'infinity'::timestamptz OR EXISTS (SELECT FROM postrider_internal.deliveries d WHERE d.batch_id = b.id AND d.owed_since <= $2))
     ORDER BY b.id LIMIT $4 FOR UPDATE SKIP LOCKED
), summed AS (
    SELECT chosen.*, sum(members) OVER (ORDER BY id) - members AS before FROM chosen
), wave AS MATERIALIZED (
    SELECT summed.*, nextval('postrider_internal.river_job_id_seq') AS job_id FROM summed WHERE before < $4
), released AS (
    UPDATE postrider_internal.batches b SET hold = NULL, last_hold = wave.hold, job_id = wave.job_id, held_reruns = 0 FROM wave WHERE b.id = wave.id
), jobs AS (
    INSERT INTO postrider_internal.river_job (id, state, args, kind, queue, priority, max_attempts, scheduled_at)
    SELECT job_id, CASE WHEN due` + queue.ElseScheduled + `,
           jsonb_strip_nulls(jsonb_build_object('s', $1::bigint, 'b', id, 'n', attempts + 1, 'r', nullif(held_reruns, 0))), 'batch', 'deliveries', 1, 1000, due
      FROM wave
)
SELECT coalesce(sum(members), 0) FROM wave`

// releaseBatches says how many deliveries the released batches have. owedBefore is farFuture for all; else those batches go
// that have a member owed since then: its turn ends it, and the rest goes on hold again.
func (r *Releaser) releaseBatches(ctx context.Context, subscription int64, owedBefore time.Time, alsoLater bool, limit int) (n int, err error) {
	if limit <= 0 {
		return 0, nil
	}
	before := pgtype.Timestamptz{Time: owedBefore, Valid: true}
	if owedBefore.Equal(postgres.FarFuture) {
		before = pgtype.Timestamptz{InfinityModifier: pgtype.Infinity, Valid: true}
	}
	if err := r.DB.QueryRow(ctx, releaseBatchesStatement, subscription, before, alsoLater, limit, owedBefore.Equal(postgres.FarFuture)).Scan(&n); err != nil {
		return 0, fmt.Errorf("release held batches: %w", err)
	}
	return n, nil
}

// claimBatchStatement is claimStatement for the oldest held batch.
const claimBatchStatement = `
WITH rest AS MATERIALIZED (
    SELECT rest_key FROM postrider_internal.probations p
     WHERE rest_key = $1 AND since IS NOT NULL AND until <= now()
       AND NOT EXISTS (SELECT FROM postrider_internal.river_job j WHERE j.id = p.probe_job_id AND j.finalized_at IS NULL)
       FOR UPDATE SKIP LOCKED
), chosen AS MATERIALIZED (
    SELECT b.id, b.subscription_id, b.attempts, b.held_reruns, b.hold, nextval('postrider_internal.river_job_id_seq') AS job_id
      FROM postrider_internal.batches b
     WHERE b.id = (SELECT b.id FROM rest, postrider_internal.batches b
                    WHERE b.subscription_id = ANY ($2::bigint[]) AND b.hold IS NOT NULL AND b.next_attempt_at <= now() ORDER BY b.id LIMIT 1)
       AND b.hold IS NOT NULL FOR UPDATE SKIP LOCKED
), released AS (
    UPDATE postrider_internal.batches b SET hold = NULL, last_hold = c.hold, job_id = c.job_id, held_reruns = 0 FROM chosen c WHERE b.id = c.id
), job AS (
    INSERT INTO postrider_internal.river_job (id, state, args, kind, queue, priority, max_attempts, scheduled_at)
    SELECT job_id, 'available', jsonb_strip_nulls(jsonb_build_object('s', subscription_id, 'b', id, 'n', attempts + 1, 'r', nullif(held_reruns, 0))), 'batch', 'deliveries', 1, 1000, now()
      FROM chosen
), marked AS (
    UPDATE postrider_internal.probations p SET probe_job_id = c.job_id, updated_at = now() FROM chosen c WHERE p.rest_key = $1
)
SELECT count(*) FROM chosen`
