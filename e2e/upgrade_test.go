package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/migrations"
)

// What a newer release might bring: a column more in each table, and versions that this build has never heard of.
const newerSchema = `
DO $$ DECLARE t regclass; BEGIN
  FOR t IN SELECT oid FROM pg_class WHERE relnamespace = 'postrider_internal'::regnamespace AND relkind IN ('r', 'p')
      AND NOT relispartition LOOP
    EXECUTE format('ALTER TABLE %s ADD COLUMN of_a_newer_release text NOT NULL DEFAULT ''new''', t);
  END LOOP;
END $$;
INSERT INTO postrider_internal.goose_db_version (version_id, is_applied) VALUES (9999, true);
INSERT INTO postrider_internal.river_migration (line, version) VALUES ('main', 999);`

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

// Each node rejects a schema that is older than the program. Several nodes can migrate it at once, and pending
// deliveries are kept.
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

	racing := make([]*process, 3)
	for i := range racing {
		racing[i] = startProcess(t, db.env(), program, "migrate", "up")
	}
	for _, p := range racing {
		require.Zero(t, p.wait(), p.stderr.String())
		require.Contains(t, p.stdout.String(), fmt.Sprintf("Schema at version %d", status.Target))
	}
	m := startNode(t, db)
	m.manage(http.StatusOK, http.MethodPost, "/v1/topics/orders/subscriptions/billing/resume", "")
	db.drained()
	require.Len(t, sink.arrivalsSoFar(), 5)
	for _, id := range sink.arrivalsSoFar() {
		require.Equal(t, 1, sink.times(id), id)
	}
}

// `migrate up` where there is nothing to do, as at each start of the systemd unit, keeps no publisher and no delivery
// waiting on the nodes that run.
func TestMigrateDisturbsNoDelivery(t *testing.T) {
	t.Parallel()
	db, sink := migratedDatabase(t), newGate(t)
	sink.open()
	n := startNode(t, db)
	key := n.topic("orders")
	n.subscribe("orders", "billing", sink.url)
	racing := make([]*process, 3)
	for i := range racing {
		racing[i] = startProcess(t, db.env(), program, "migrate", "up")
	}
	published := 0
	for _, p := range racing {
		for !strings.Contains(p.stdout.String(), "Schema at version") && p.stderr.String() == "" {
			n.publish("orders", key, cloudEvent(fmt.Sprintf("e%d", published)))
			published++
		}
		require.Zero(t, p.wait(), p.stderr.String())
	}
	require.Positive(t, published)
	db.drained()
	require.Len(t, sink.arrivalsSoFar(), published)
	require.NotContains(t, n.stderr.String(), `"level":"ERROR"`)
}
