package e2e

import (
	_ "embed"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/migrations"
)

// What a newer release might bring: a column more in each table, and versions that this build has never heard of.
//
//go:embed testdata/sql/newer_schema.sql
var newerSchema string

// Migrations run before the upgrade of programs, and after a downgrade the schema stays. A program publishes, delivers,
// dead-letters and redelivers with a newer schema, and its own `migrate up` does not change it.
func TestPreviousProgramWorksOnANewerSchema(t *testing.T) {
	t.Parallel()
	db, sink := migratedDatabase(t), newGate(t)
	db.exec(newerSchema)
	up := postrider(t, db.env(), "migrate", "up")
	require.Zero(t, up.code, up.stderr)
	require.Regexp(t,
		fmt.Sprintf(`^Schema at version 9999 \(was 9999\), River's at 999\. A newer release created it \(this build has \d+ `+
			`and %d\); nothing was changed\.\nQueries of users are not set up .*\n$`, migrations.RiverVersion), up.stdout)
	require.Zero(t, postrider(t, db.env(), "migrate", "status").code)

	n := startNode(t, db)
	n.manage(http.StatusOK, http.MethodGet, "/readyz", "")
	sink.open()
	key := n.topic("orders")
	n.subscribe("orders", "billing", sink.url)
	n.subscribe("orders", "rejected", endpointWith(t, http.StatusBadRequest))
	n.manage(http.StatusCreated, http.MethodPut, "/v1/topics/orders/subscriptions/batches",
		fmt.Sprintf(`{"endpointUrl":%q,"endpointValidation":"skip","maxEventsPerBatch":10}`,
			endpointWith(t, http.StatusNoContent)))
	n.publish("orders", key, cloudEvents("e", 5))
	db.exec("SELECT postrider.publish('orders', $1::jsonb)",
		`{"specversion":"1.0","id":"by-sql","source":"/shop","type":"shop.order.placed"}`)
	eventually(t, "two receive six events each", func() bool {
		return one[int](db, "SELECT count(*) FROM postrider.deliveries WHERE state = 'delivered'") == 12
	})
	db.drained()
	require.Equal(t, 6, one[int](db, "SELECT count(postrider.redeliver(dead_letter_id)) FROM postrider.dead_letters"))
	db.drained()
	require.Equal(t, 12, one[int](db, "SELECT count(*) FROM postrider.dead_letters"))
}

// A node rejects a schema that is older than the program. A migration keeps pending deliveries.
func TestUpgradeKeepsPendingDeliveries(t *testing.T) {
	t.Parallel()
	db, sink := migratedDatabase(t), newGate(t)
	sink.open()
	n := startNode(t, db)
	key := n.topic("orders")
	n.subscribe("orders", "billing", sink.url)
	n.manage(http.StatusOK, http.MethodPost, "/v1/topics/orders/subscriptions/billing/pause", "")
	n.publish("orders", key, cloudEvents("e", 5))
	code := n.stop()
	require.Zero(t, code)

	status, err := migrations.ReadStatus(t.Context(), db.pool)
	require.NoError(t, err)
	require.NoError(t, migrations.Down(t.Context(), db.pool, status.Target-1))
	rejected := postrider(t, serveEnv(db), "serve", "--listen", "127.0.0.1:0")
	require.Equal(t, 1, rejected.code)
	require.Contains(t, rejected.stderr,
		fmt.Sprintf(
			"schema is at version %d (River's at %d) and this build needs %d (%[2]d): run `postrider migrate up` first",
			status.Target-1, migrations.RiverVersion, status.Target))
	require.Equal(t, 1, postrider(t, db.env(), "migrate", "status").code)

	db.migrate()
	m := startNode(t, db)
	m.manage(http.StatusOK, http.MethodPost, "/v1/topics/orders/subscriptions/billing/resume", "")
	db.drained()
	require.Len(t, sink.arrivalsSoFar(), 5)
	for _, id := range sink.arrivalsSoFar() {
		require.Equal(t, 1, sink.times(id), id)
	}
	requireUndisturbed(t, db, m, key)
}

// requireUndisturbed: `migrate up` where there is nothing to do, as at each start of the systemd unit, keeps no
// publisher and no delivery waiting.
func requireUndisturbed(t *testing.T, db *database, n *nodeProcess, key string) {
	t.Helper()
	p, published := startProcess(t, db.env(), program, "migrate", "up"), 0
	for !strings.Contains(p.stdout.String(), "Schema at version") && p.stderr.String() == "" {
		n.publish("orders", key, cloudEvent(fmt.Sprintf("u%d", published)))
		published++
	}
	require.Zero(t, p.wait(), p.stderr.String())
	require.Positive(t, published)
	db.drained()
	require.NotContains(t, n.stderr.String(), `"level":"ERROR"`)
}
