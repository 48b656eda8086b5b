package jobs

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"postrider/jobs/queue"
)

// mendBatchesStatement gives new jobs to pending batches of one step that have no hold and no live job; see mendStatement.
const mendBatchesStatement = `
WITH step AS MATERIALIZED (
    SELECT id, subscription_id, job_id, hold, created_at, last_attempt_at FROM postrider_internal.batches WHERE state = 'pending' AND id > $1 ORDER BY id LIMIT $2
), broken AS MATERIALIZED (
    SELECT b.id, b.job_id FROM step b
     WHERE b.hold IS NULL AND greatest(b.created_at, b.last_attempt_at) < now() - interval '60 seconds'
       AND (SELECT true FROM postrider_internal.river_job j
             WHERE j.id = b.job_id AND (j.kind <> 'batch' OR j.finalized_at IS NULL AND j.args ->> 'b' = b.id::text)) IS NULL
       AND (SELECT true FROM postrider_internal.event_subscriptions s WHERE s.id = b.subscription_id AND s.deleted_at IS NOT NULL AND s.drained_at IS NULL) IS NULL
), ended AS (
    DELETE FROM postrider_internal.river_job j USING broken
     WHERE j.id = ANY (ARRAY (SELECT job_id FROM broken)) AND j.id = broken.job_id AND j.args ->> 'b' = broken.id::text AND j.finalized_at IS NOT NULL
    RETURNING j.id, j.args
), free AS MATERIALIZED (
    SELECT b.id, b.subscription_id, b.attempts, greatest(now(), b.next_attempt_at) AS due, coalesce((ended.args ->> 'r')::int, 0) + 1 AS reruns
      FROM postrider_internal.batches b
      JOIN broken ON broken.id = b.id
      LEFT JOIN ended ON ended.id = broken.job_id
     WHERE b.id = ANY (ARRAY (SELECT id FROM broken)) AND b.job_id IS NOT DISTINCT FROM broken.job_id AND b.hold IS NULL AND b.state = 'pending'
     ORDER BY b.id FOR UPDATE OF b SKIP LOCKED
), again AS MATERIALIZED (
    SELECT free.*, nextval('postrider_internal.river_job_id_seq') AS job_id FROM free
), followed AS (
    UPDATE postrider_internal.batches b SET job_id = again.job_id, reruns = b.reruns + 1 FROM again WHERE b.id = again.id
), inserted AS (
    INSERT INTO postrider_internal.river_job (id, state, args, kind, queue, priority, max_attempts, scheduled_at)
    SELECT job_id, CASE WHEN due` + queue.ElseScheduled + `,
           jsonb_build_object('s', subscription_id, 'b', id, 'n', attempts + 1, 'r', reruns), 'batch', 'deliveries', 1, 1000, due
      FROM again
)
SELECT coalesce(max(id), 0), (SELECT count(*) FROM again) FROM step`

// mendOpenStatement gives a pump to each event subscription that has deliveries waiting for the next batch, and none to cut it.
// Whether the event subscription takes batches is not asked: a pump cuts batches of one where they are off.
const mendOpenStatement = `
WITH RECURSIVE jump(subscription_id) AS (
    (SELECT subscription_id FROM postrider_internal.deliveries WHERE open ORDER BY subscription_id LIMIT 1)
    UNION ALL
    SELECT (SELECT d.subscription_id FROM postrider_internal.deliveries d
             WHERE d.open AND d.subscription_id > jump.subscription_id ORDER BY d.subscription_id LIMIT 1)
      FROM jump WHERE jump.subscription_id IS NOT NULL
), waiting AS MATERIALIZED (
    SELECT j.subscription_id FROM jump j
     WHERE j.subscription_id IS NOT NULL
       AND (SELECT d.owed_since FROM postrider_internal.deliveries d
             WHERE d.subscription_id = j.subscription_id AND d.open ORDER BY d.id LIMIT 1) < now() - interval '60 seconds'
       AND (SELECT true FROM postrider_internal.event_subscriptions s WHERE s.id = j.subscription_id AND s.deleted_at IS NOT NULL AND s.drained_at IS NULL) IS NULL
), pumped AS MATERIALIZED (
    SELECT (args ->> 's')::bigint AS subscription_id FROM postrider_internal.river_job
     WHERE EXISTS (SELECT FROM waiting) AND queue = 'deliveries' AND kind = 'batch' AND finalized_at IS NULL AND args -> 'b' IS NULL
), pumps AS (
    INSERT INTO postrider_internal.river_job (state, args, kind, queue, priority, max_attempts, scheduled_at)
    SELECT 'available', jsonb_build_object('s', subscription_id), 'batch', 'deliveries', 1, 1000, now()
      FROM waiting WHERE subscription_id NOT IN (SELECT subscription_id FROM pumped) RETURNING id
)
SELECT count(*) FROM pumps`

// mendOrphansStatement gives jobs of their own to deliveries whose batch has ended without them, or does not exist.
const mendOrphansStatement = `
WITH orphans AS MATERIALIZED (
    SELECT d.id FROM postrider_internal.deliveries d
     WHERE d.batch_id IS NOT NULL AND greatest(d.owed_since, d.last_attempt_at) < now() - interval '60 seconds'
       AND NOT EXISTS (SELECT FROM postrider_internal.batches b WHERE b.id = d.batch_id AND b.state = 'pending')
     LIMIT $1
), free AS MATERIALIZED (
    SELECT d.id, d.subscription_id, d.attempts, greatest(now(), d.next_attempt_at) AS due, nextval('postrider_internal.river_job_id_seq') AS job_id
      FROM postrider_internal.deliveries d WHERE d.id = ANY (ARRAY (SELECT id FROM orphans)) AND d.batch_id IS NOT NULL ORDER BY d.id FOR UPDATE SKIP LOCKED
), followed AS (
    UPDATE postrider_internal.deliveries d SET batch_id = NULL, job_id = free.job_id, reruns = d.reruns + 1 FROM free WHERE d.id = free.id
), inserted AS (
    INSERT INTO postrider_internal.river_job (id, state, args, kind, queue, priority, max_attempts, scheduled_at)
    SELECT job_id, CASE WHEN due` + queue.ElseScheduled + `,
           jsonb_build_object('d', id, 's', subscription_id, 'n', attempts + 1, 'r', 1), 'deliver', 'deliveries', 1, 1000, due
      FROM free
)
SELECT count(*) FROM free`

// mendBatches goes over the pending batches by their id, and then looks for deliveries without their batch and open sets
// without a pump.
func (m *Maintenance) mendBatches(ctx context.Context) (mended int, err error) {
	for cursor := int64(0); ; {
		var last int64
		var n int
		err := m.sweepAlone(ctx, pgx.TxOptions{}, func(tx pgx.Tx) error {
			return tx.QueryRow(ctx, mendBatchesStatement, cursor, int64(sweepStep)).Scan(&last, &n)
		})
		if err != nil {
			return mended, fmt.Errorf("give batches their job again: %w", err)
		}
		if last == 0 {
			break
		}
		cursor, mended = last, mended+n
	}
	for _, what := range []struct {
		name, statement string
		args            []any
	}{
		{"give deliveries without their batch a job", mendOrphansStatement, []any{int64(sweepStep)}},
		{"give open deliveries a pump again", mendOpenStatement, nil},
	} {
		var n int
		err := m.sweepAlone(ctx, pgx.TxOptions{}, func(tx pgx.Tx) error { return tx.QueryRow(ctx, what.statement, what.args...).Scan(&n) })
		if err != nil {
			return mended, fmt.Errorf("%s: %w", what.name, err)
		}
		mended += n
	}
	return mended, nil
}
