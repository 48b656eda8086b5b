package testnode

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// BrokenTokens counts violations: every pending delivery has exactly one of: a live job, and both name each other; a
// pending batch that has a live job or a hold; a hold; the open set of an event subscription with a live batch
// cutter; or a consumer may receive it. And every live job but a batch cutter has such a delivery or batch; a lock's
// job is one, too.
const BrokenTokens = `
WITH live AS (
    SELECT id, kind, (args ->> 'd')::bigint AS delivery_id, (args ->> 'b')::bigint AS batch_id,
           (args ->> 's')::bigint AS subscription_id FROM postrider_internal.river_job
     WHERE queue IN ('deliveries', 'locks') AND kind IN ('deliver', 'batch', 'lock')
       AND state IN ('available', 'scheduled', 'retryable', 'running')
), owners AS (
    SELECT d.id, (SELECT count(*) FROM live WHERE kind <> 'batch' AND delivery_id = d.id)
         + (d.hold IS NOT NULL)::int + (d.available_at IS NOT NULL)::int
         + (SELECT count(*) FROM postrider_internal.batches b WHERE b.id = d.batch_id AND b.state = 'pending')
         + (d.job_id IS NULL AND d.batch_id IS NULL AND d.hold IS NULL AND NOT d.pulled
             AND EXISTS (SELECT FROM live WHERE kind = 'batch' AND batch_id IS NULL
                 AND subscription_id = d.subscription_id))::int AS n
      FROM postrider_internal.deliveries d
)
SELECT (SELECT count(*) FROM owners WHERE n <> 1)
     + (SELECT count(*) FROM live WHERE kind <> 'batch' AND NOT EXISTS (SELECT FROM postrider_internal.deliveries d
         WHERE d.id = live.delivery_id AND d.job_id = live.id))
     + (SELECT count(*) FROM live WHERE batch_id IS NOT NULL AND NOT EXISTS (SELECT FROM postrider_internal.batches b
         WHERE b.id = live.batch_id AND b.job_id = live.id))
     + (SELECT count(*) FROM postrider_internal.batches b
         WHERE (b.state = 'pending')::int <> (SELECT count(*) FROM live
             WHERE batch_id = b.id) + (b.hold IS NOT NULL)::int
            OR b.state = 'pending' AND b.members <> (SELECT count(*) FROM postrider_internal.deliveries d
                WHERE d.batch_id = b.id))`

// BrokenRoutes counts violations: every route has exactly one live job, and both name each other; and every live
// route job has such a route.
const BrokenRoutes = `
WITH live AS (SELECT id, (args ->> 'route')::bigint AS route FROM postrider_internal.river_job WHERE kind = 'route'
    AND finalized_at IS NULL)
SELECT (SELECT count(*) FROM postrider_internal.routes r WHERE (SELECT count(*) FROM live WHERE live.route = r.id
    AND live.id = r.job_id) <> 1)
     + (SELECT count(*) FROM live WHERE NOT EXISTS (SELECT FROM postrider_internal.routes r WHERE r.id = live.route
         AND r.job_id = live.id))`

// BrokenOperations counts violations: every running operation has exactly one live job, and both name each other.
const BrokenOperations = `
SELECT count(*) FROM postrider_internal.operations o
 WHERE (o.state = 'running')::int <> (SELECT count(*) FROM postrider_internal.river_job j WHERE j.kind = 'operation'
     AND j.finalized_at IS NULL AND j.args ->> 'o' = o.id::text AND j.id = o.job_id)`

// EndedTwice counts violations: a delivery that has ended is not pending, and has one row of history.
const EndedTwice = `
SELECT (SELECT count(*) - count(DISTINCT id) FROM postrider_internal.delivery_history)
     + (SELECT count(*) FROM postrider_internal.delivery_history JOIN postrider_internal.deliveries USING (id))
     + (SELECT count(*) FROM postrider_internal.delivery_history h
         WHERE (h.state = 'dead_lettered') <> EXISTS (SELECT FROM postrider_internal.dead_letters l
             WHERE l.delivery_id = h.id AND l.id = h.dead_letter_id)
            OR (h.state = 'delivered') <> (h.reason IS NULL))`

// Miscounted counts violations: the attempts of a delivery, alone and in a batch, are numbered 1, 2, 3, …, as many
// as the delivery counts and the limit allows. A late response is a second row of an attempt.
const Miscounted = `
WITH all_deliveries AS (
    SELECT id, subscription_id, attempts FROM postrider_internal.deliveries
    UNION ALL SELECT id, subscription_id, attempts FROM postrider_internal.delivery_history
), requests AS (
    SELECT delivery_id AS id, number FROM postrider_internal.delivery_attempts WHERE NOT late
        AND delivery_id IS NOT NULL
    UNION ALL
    SELECT m.delivery_id, a.number FROM postrider_internal.delivery_attempts a
      JOIN postrider_internal.batch_members m ON m.batch_id = a.batch_id AND a.number <= coalesce(m.left_after,
          a.number) WHERE NOT a.late
), made AS (
    SELECT id, count(*) AS n, count(DISTINCT number) AS numbers, max(number) AS last FROM requests GROUP BY 1
)
SELECT count(*) FROM all_deliveries
  JOIN postrider_internal.event_subscriptions s ON s.id = all_deliveries.subscription_id
  JOIN postrider_internal.retry_policies p ON p.name = s.retry_policy
  LEFT JOIN made ON made.id = all_deliveries.id
 WHERE coalesce(made.n, 0) <> all_deliveries.attempts OR made.n <> made.numbers OR made.n <> made.last
    OR all_deliveries.attempts > coalesce((s.settings #>> '{retryPolicy,maxDeliveryAttempts}')::integer,
       p.default_max_attempts)`

// TooEarly counts violations: no attempt began before the time that the attempt before it had set, nor before the
// minimum delay of its status, unless an operator requested it.
const TooEarly = `
SELECT count(*) FROM postrider_internal.delivery_attempts a
  JOIN postrider_internal.delivery_attempts b ON (b.delivery_id = a.delivery_id OR b.batch_id = a.batch_id)
      AND b.number = a.number + 1
 WHERE NOT a.late AND NOT b.late AND (a.verdict <> 'retry' OR b.started_at < greatest(a.next_attempt_at,
     a.started_at + make_interval(secs => a.duration_us / 1e6 + coalesce(a.floor_ms, 0) / 1e3))
       AND NOT EXISTS (SELECT FROM postrider.audit r WHERE r.action = 'delivery_retried'
           AND r.details ->> 'deliveryId' = b.delivery_id::text))`

// MiscountedBacklogs counts violations: the counted backlogs are equal to the real ones.
const MiscountedBacklogs = `
SELECT count(*) FROM (SELECT subscription_id, count(*) AS n FROM postrider_internal.deliveries GROUP BY 1) truth
  FULL JOIN postrider.backlogs counted USING (subscription_id)
  WHERE truth.n IS DISTINCT FROM counted.pending_deliveries`

// RequireInvariants runs after every test of New. Each of the statements counts what must never be.
func (tn *Node) RequireInvariants(t testing.TB) {
	t.Helper()
	require.Zero(t, tn.Count(t, BrokenTokens),
		"every pending delivery has exactly one live job, batch, hold, or batch cutter")
	require.Zero(t, tn.Count(t, BrokenRoutes), "every route has exactly one live job")
	require.Zero(t, tn.Count(t, BrokenOperations), "every operation has exactly one live job")
	require.Zero(t, tn.Count(t, EndedTwice), "every delivery ends once")
	require.Zero(t, tn.Count(t, Miscounted), "recorded attempts are counted and never exceed the limit")
	require.Zero(t, tn.Count(t, TooEarly), "no attempt runs before its time")
	require.Zero(t, tn.Count(t, MiscountedBacklogs), "backlogs are exact")
}
