package e2e

import (
	_ "embed"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/testnode"
)

// brokenOwners counts the pending deliveries, batches and routes without exactly one owner, and live jobs without what
// they name. It is 0 in every moment, also in the one after a kill.
func brokenOwners(db *database) int {
	return one[int](db, testnode.BrokenTokens) + one[int](db, testnode.BrokenRoutes)
}

// endedOnce are statements about a database whose every delivery has ended; each counts what contradicts it.
var endedOnce = []struct{ what, query string }{
	{
		"nothing is left",
		`SELECT (SELECT count(*) FROM postrider_internal.deliveries) + (SELECT count(*) FROM postrider_internal.routes)
		+ (SELECT count(*) FROM postrider_internal.batches WHERE state = 'pending') + (SELECT count(*)
		    FROM postrider_internal.river_job WHERE finalized_at IS NULL)`,
	},
	{"one delivery for each matching event subscription", `SELECT count(*) FROM (
		    SELECT FROM postrider_internal.delivery_history GROUP BY event_uuid, subscription_id HAVING count(*) > 1) twice`},
	{"a delivery for all matching event subscriptions", `SELECT abs((SELECT sum(matched)
		    FROM postrider_internal.events) - (SELECT count(*) FROM postrider_internal.delivery_history))::bigint`},
	{"only what was rejected is a dead letter, and the others are delivered", `SELECT count(*) FROM postrider.deliveries
		WHERE state NOT IN ('delivered', 'dead_lettered') OR (state = 'dead_lettered') <> (subscription = 'rejected')`},
	{"a delivery ends once, with its dead letter", testnode.EndedTwice},
	{"attempts are numbered 1, 2, 3, …, as many as are counted, and no more than allowed", testnode.Miscounted},
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
//
//go:embed testdata/sql/reruns.sql
var rerunQuery string
