package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// brokenOwners counts the unfinished deliveries that do not have exactly one of: a live job that names it and that it
// names, which may be a consumer's lock; a pending batch, which has exactly one of a live job and a hold; a hold; a
// place in the open set of an event subscription that has a live batch cutter; or a consumer may receive it. It also
// counts live jobs without what they name, and routes without exactly one job. It holds in every moment, also in the
// one after a kill.
const brokenOwners = `
WITH live AS MATERIALIZED (
    SELECT id, kind, (args ->> 'd')::bigint AS delivery_id, (args ->> 'b')::bigint AS batch_id,
           (args ->> 's')::bigint AS subscription_id, (args ->> 'route')::bigint AS route_id
      FROM postrider_internal.river_job WHERE finalized_at IS NULL
), of_delivery AS (
    SELECT delivery_id, count(*) AS n, min(id) AS id FROM live WHERE kind IN ('deliver', 'lock') GROUP BY 1
), of_batch AS (
    SELECT batch_id, count(*) AS n, min(id) AS id FROM live WHERE kind = 'batch' AND batch_id IS NOT NULL GROUP BY 1
), of_route AS (
    SELECT route_id, count(*) AS n, min(id) AS id FROM live WHERE kind = 'route' GROUP BY 1
), cutters AS (
    SELECT DISTINCT subscription_id FROM live WHERE kind = 'batch' AND batch_id IS NULL
), pending AS (
    SELECT CASE WHEN d.batch_id IS NOT NULL THEN (b.id IS NOT NULL)::int ELSE 0 END + coalesce(j.n,
        0) + (d.hold IS NOT NULL)::int + (d.available_at IS NOT NULL)::int
         + (d.job_id IS NULL AND d.batch_id IS NULL AND d.hold IS NULL AND NOT d.pulled
             AND p.subscription_id IS NOT NULL)::int
             AS owners,
           j.n IS NOT NULL AND j.id IS DISTINCT FROM d.job_id AS strange
      FROM postrider_internal.deliveries d
      LEFT JOIN of_delivery j ON j.delivery_id = d.id
      LEFT JOIN postrider_internal.batches b ON b.id = d.batch_id AND b.state = 'pending'
      LEFT JOIN cutters p ON p.subscription_id = d.subscription_id
)
SELECT (SELECT count(*) FROM pending WHERE owners <> 1 OR strange)
     + (SELECT count(*) FROM of_delivery j LEFT JOIN postrider_internal.deliveries d ON d.id = j.delivery_id
         WHERE d.id IS NULL)
     + (SELECT count(*) FROM postrider_internal.batches b LEFT JOIN of_batch j ON j.batch_id = b.id
         WHERE b.state = 'pending' AND (coalesce(j.n, 0) + (b.hold IS NOT NULL)::int <> 1 OR j.n IS NOT NULL
             AND j.id <> b.job_id))
     + (SELECT count(*) FROM of_batch j LEFT JOIN postrider_internal.batches b ON b.id = j.batch_id
         AND b.state = 'pending' WHERE b.id IS NULL)
     + (SELECT count(*) FROM postrider_internal.routes r LEFT JOIN of_route j ON j.route_id = r.id
         WHERE j.n IS DISTINCT FROM 1 OR j.id <> r.job_id)
     + (SELECT count(*) FROM of_route j LEFT JOIN postrider_internal.routes r ON r.id = j.route_id WHERE r.id IS NULL)`

// endedOnce are statements about a database whose every delivery has ended; each counts what contradicts it.
var endedOnce = []struct{ what, query string }{
	{
		"nothing is left",
		`SELECT (SELECT count(*) FROM postrider_internal.deliveries) + (SELECT count(*) FROM postrider_internal.routes)
		+ (SELECT count(*) FROM postrider_internal.batches WHERE state = 'pending') + (SELECT count(*)
		    FROM postrider_internal.river_job WHERE finalized_at IS NULL)`,
	},
	{"a delivery ends once", `SELECT count(*) - count(DISTINCT id) FROM postrider_internal.delivery_history`},
	{"one delivery for each matching event subscription", `SELECT count(*) FROM (
		    SELECT FROM postrider_internal.delivery_history GROUP BY event_uuid, subscription_id HAVING count(*) > 1) twice`},
	{"a delivery for all matching event subscriptions", `SELECT abs((SELECT sum(matched)
		    FROM postrider_internal.events) - (SELECT count(*) FROM postrider_internal.delivery_history))::bigint`},
	{"it is delivered, or a dead letter with its reason", `SELECT count(*) FROM postrider_internal.delivery_history h
		LEFT JOIN postrider_internal.dead_letters l ON l.delivery_id = h.id AND l.id = h.dead_letter_id
		WHERE h.state NOT IN ('delivered', 'dead_lettered') OR (h.state = 'dead_lettered') <> (l.id IS NOT NULL)
		    OR (h.state = 'delivered') <> (h.reason IS NULL)`},
	{"a dead letter belongs to one delivery", `SELECT count(*) - count(DISTINCT delivery_id)
		FROM postrider_internal.dead_letters`},
	{"only what was rejected is a dead letter", `SELECT count(*) FROM postrider.deliveries
		WHERE (state = 'dead_lettered') <> (subscription = 'rejected')`},
	{"attempts are numbered 1, 2, 3, …, as many as are counted, and no more than allowed", `
		WITH requests AS (
		    SELECT delivery_id AS id, number FROM postrider_internal.delivery_attempts WHERE NOT late
		        AND delivery_id IS NOT NULL
		    UNION ALL
		    SELECT m.delivery_id, a.number FROM postrider_internal.delivery_attempts a
		      JOIN postrider_internal.batch_members m ON m.batch_id = a.batch_id AND a.number <= coalesce(m.left_after,
		          a.number) WHERE NOT a.late
		), made AS (SELECT id, count(*) AS n, count(DISTINCT number) AS numbers, max(number) AS last FROM requests GROUP BY 1)
		SELECT count(*) FROM postrider_internal.delivery_history h LEFT JOIN made ON made.id = h.id
		 WHERE coalesce(made.n, 0) <> h.attempts OR made.n <> made.numbers OR made.n <> made.last OR h.attempts > 10`},
	{"no attempt begins before its time", `SELECT count(*) FROM postrider_internal.delivery_attempts a
		JOIN postrider_internal.delivery_attempts b ON (b.delivery_id = a.delivery_id) AND b.number = a.number + 1
		WHERE NOT a.late AND NOT b.late AND (a.verdict <> 'retry' OR b.started_at < a.next_attempt_at)`},
	{"no batch is sent before its time", `SELECT count(*) FROM postrider_internal.delivery_attempts a
		JOIN postrider_internal.delivery_attempts b ON (b.batch_id = a.batch_id) AND b.number = a.number + 1
		WHERE NOT a.late AND NOT b.late AND (a.verdict <> 'retry' OR b.started_at < a.next_attempt_at)`},
}

// requireEnded runs them all, and counts the acknowledged events in the database.
func requireEnded(t *testing.T, db *database, acknowledged int64) {
	t.Helper()
	for _, check := range endedOnce {
		require.Zero(t, one[int](db, check.query), check.what)
	}
	require.GreaterOrEqual(t, one[int64](db, "SELECT count(*) FROM postrider_internal.events"), acknowledged,
		"what was acknowledged is stored")
}

// rerunQuery lists what was marked as made again after a crash, under the names of the sink's ledger.
const rerunQuery = `
SELECT coalesce(array_agg(s.name || '/' || e.event_id), '{}')
  FROM postrider_internal.delivery_history h
  JOIN postrider_internal.event_subscriptions s ON s.id = h.subscription_id
  JOIN postrider_internal.events e ON e.id = h.event_uuid AND e.day = h.event_day
  LEFT JOIN postrider_internal.batches b ON b.id = h.batch_id
 WHERE h.reruns > 0 OR b.reruns > 0`
