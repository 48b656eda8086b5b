package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"postrider/docs"
	"postrider/internal/pgdev"
)

// A streaming standby answers the documented questions, and a member of postrider_reader can read every view there.
func TestStandbyAnswersQuestions(t *testing.T) {
	t.Parallel()
	server, db := ownCluster(t)
	standby := streamingStandby(t, server, db)
	n := startNode(t, db)
	key := n.topic("orders")
	n.subscribe("orders", "billing", endpointWith(t, http.StatusBadRequest))
	n.publish("orders", key, cloudEvents("e", 3))
	eventually(t, "the standby has the dead letters",
		standby.atLeast(3, "SELECT count(*) FROM postrider.dead_letters WHERE pg_is_in_recovery()"))
	for _, q := range docs.Questions() {
		done := postrider(t, standby.env(), "sql", q.SQL)
		require.Zero(t, done.code, "%s: %s", q.Name, done.stderr)
	}
	require.NoError(t, pgx.BeginFunc(t.Context(), standby.pool, func(tx pgx.Tx) error {
		rows, _ := tx.Query(t.Context(), "SELECT format('%I.%I', schemaname, viewname) FROM pg_views "+
			"WHERE schemaname = 'postrider'")
		views, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		require.Contains(t, views, "postrider.deliveries")
		_, err = tx.Exec(t.Context(), "SET LOCAL ROLE postrider_reader")
		require.NoError(t, err)
		for _, view := range views {
			_, err = tx.Exec(t.Context(), "SELECT * FROM "+view+" LIMIT 10")
			require.NoError(t, err, view)
		}
		return nil
	}))
}

// streamingStandby is a hot standby of the server, which streams from it.
func streamingStandby(t *testing.T, server *pgdev.Server, db *database) *database {
	t.Helper()
	dir := filepath.Join(server.Dir(), "second")
	data := filepath.Join(dir, "data")
	require.NoError(t, os.Mkdir(dir, 0o755))
	require.NoError(t, os.Rename(standbyOf(t, server, db), data))
	out, err := exec.CommandContext(t.Context(), "cp", "-p", filepath.Join(data, "PG_VERSION"), // it keeps the owner
		filepath.Join(data, "standby.signal")).CombinedOutput()
	require.NoError(t, err, string(out))
	file, err := os.OpenFile(filepath.Join(data, "postgresql.auto.conf"), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = fmt.Fprintf(file, "primary_conninfo = '%s'\n", server.URL("postgres"))
	require.NoError(t, err)
	require.NoError(t, file.Close())
	standby, err := pgdev.Start(t.Context(), pgdev.Options{Dir: dir, Durable: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, standby.Stop(context.Background())) })
	return openDatabaseAt(t, standby.URL("postrider"))
}
