package e2e

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/pgdev"
)

// The steps of docs/operate/backup-and-upgrade.md, "New major version of PostgreSQL": a dump is restored into
// PostgreSQL 18. What was pending, held and dead before is so afterwards, and can be delivered there.
func TestPostgresMajorUpgrade(t *testing.T) { //nolint:paralleltest // it sets PATH
	server, db := ownCluster(t)
	if strings.HasPrefix(server.Version(), "18.") {
		t.Skip("this PostgreSQL is the newest")
	}
	held, retried := newGate(t), newGate(t)
	n := startNode(t, db)
	key := n.topic("orders")
	n.subscribe("orders", "held", held.url)
	n.manage(http.StatusOK, http.MethodPost, "/v1/topics/orders/subscriptions/held/pause", "")
	n.subscribe("orders", "rejected", endpointWith(t, http.StatusBadRequest))
	n.subscribe("orders", "retried", endpointWith(t, http.StatusServiceUnavailable))
	n.publish("orders", key, cloudEvents("e", 5))
	const letters = "SELECT count(*) FROM postrider.dead_letters"
	const failed = "SELECT count(*) FROM postrider.deliveries WHERE state = 'pending' AND attempts = 1"
	eventually(t, "five each are dead and wait for their second attempt", func() bool {
		return one[int](db, letters) == 5 && one[int](db, failed) == 5
	})
	require.Zero(t, n.stop())
	file := filepath.Join(t.TempDir(), "upgrade.dump")
	pgTool(t, server, "pg_dump", "--format=custom", "--file="+file, db.url)

	newer := postgres18(t)
	url := newer.URL("upgraded")
	pgTool(t, server, "pg_restore", "--no-owner", "--no-privileges", "--exit-on-error", "--dbname="+url, file)
	upgraded := openDatabaseAt(t, url)
	upgraded.exec("ANALYZE")
	upgraded.migrate()
	r := postrider(t, append(upgraded.env(), "POSTRIDER_ENCRYPTION_KEY="+testEncryptionKey,
		"POSTRIDER_ALLOW_CIDR=127.0.0.0/8"), "doctor")
	require.Zero(t, r.code, r.stdout)
	require.Contains(t, r.stdout, " 0 failed)")

	m := startNode(t, upgraded)
	require.Equal(t, 10, one[int](upgraded, unfinishedQuery))
	require.Equal(t, 5, one[int](upgraded, letters))
	require.Equal(t, 5, one[int](upgraded, "SELECT count(*) FROM postrider_internal.river_job WHERE kind = 'deliver'"))
	held.open()
	retried.open()
	m.manage(http.StatusOK, http.MethodPatch, "/v1/topics/orders/subscriptions/retried",
		`{"endpointUrl":"`+retried.url+`","endpointValidation":"skip"}`)
	m.manage(http.StatusOK, http.MethodPost, "/v1/topics/orders/subscriptions/held/resume", "")
	upgraded.exec("SELECT postrider.retry_now(delivery_id) FROM postrider.deliveries WHERE subscription = 'retried'")
	m.publish("orders", key, cloudEvent("after")) // with the topic's key; no id is given twice
	upgraded.drained()
	require.Len(t, held.arrivalsSoFar(), 6)
	require.Len(t, retried.arrivalsSoFar(), 6)
	require.Equal(t, 6, one[int](upgraded, letters))
	require.Zero(t, one[int](upgraded, "SELECT sum(consistency_repairs) FROM postrider.nodes"))
}

// postgres18 is a server of PostgreSQL 18, with an empty database upgraded. npm has its programs.
func postgres18(t *testing.T) *pgdev.Server {
	t.Helper()
	tool(t, "npm", "npm")
	script := exec.Command("../internal/testdb/programs.sh", "18")
	script.Stderr = os.Stderr
	dir, err := script.Output()
	require.NoError(t, err)
	t.Setenv("PATH", strings.TrimSpace(string(dir))+":"+os.Getenv("PATH"))
	server, err := pgdev.Start(t.Context(), pgdev.Options{Durable: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop(context.Background())) })
	require.True(t, strings.HasPrefix(server.Version(), "18."), server.Version())
	require.NoError(t, server.CreateDatabase(t.Context(), "upgraded"))
	return server
}
