package e2e

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/pgdev"
)

// PostgreSQL's disk is full: publishers and managers learn that in plain words, load balancers and operators with
// PostgreSQL's reason, and when it is over. No publish shows that: the load balancer sends none.
func TestFullDiskIsReported(t *testing.T) {
	t.Parallel()
	db := migratedDatabase(t)
	n := startNode(t, db, "--role", "api")
	key := n.topic("orders")
	publishes := func(want int) string {
		status, text, err := postEvents(t.Context(), n.api, "orders", key, cloudEvent("a"))
		require.NoError(t, err)
		require.Equal(t, want, status, text)
		return text
	}
	const error53100 = `BEGIN RAISE EXCEPTION USING ERRCODE = '53100', MESSAGE = 'could not extend file "base/5/16384": ` +
		`No space left on device'; END`
	db.exec("CREATE FUNCTION public.no_row() RETURNS trigger LANGUAGE plpgsql AS $$ " + error53100 + " $$")
	for _, table := range []string{"events", "topics"} {
		db.exec("CREATE TRIGGER no_row BEFORE INSERT ON postrider_internal." + table +
			" FOR EACH STATEMENT EXECUTE FUNCTION public.no_row()")
	}
	plain := func(text string) {
		require.Contains(t, text, "disk is full")
		require.NotRegexp(t, `53100|SQLSTATE|ERROR|base/5|No space|extend|pgx|store:`, text)
	}

	plain(publishes(http.StatusServiceUnavailable))
	plain(n.manage(http.StatusServiceUnavailable, http.MethodPut, "/v1/topics/others", ""))
	var text string
	readyz := func(want int) func() bool {
		return func() bool {
			status, body, err := call(t.Context(), http.MethodGet, n.api+"/readyz", "")
			text = body
			return err == nil && status == want
		}
	}
	eventually(t, "the node is not ready", readyz(http.StatusServiceUnavailable))
	require.Contains(t, text, `events cannot be stored: could not extend file \"base/5/16384\": No space left on device; `+
		"free space on PostgreSQL's disk, or enlarge it")
	require.Contains(t, n.scrape(), `postrider_commits_failing{part="publish"} 1`)
	require.Contains(t, n.stderr.String(), "events cannot be stored")

	db.exec("DROP TRIGGER no_row ON postrider_internal.events")
	eventually(t, "the node is ready again", readyz(http.StatusOK))
	require.Contains(t, n.scrape(), `postrider_commits_failing{part="publish"} 0`)
	publishes(http.StatusOK)
}

// The tables are on a disk of their own, which fills up and is freed. PostgreSQL itself goes on.
func TestDiskOfTheTablesIsFull(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t)
	server, err := pgdev.Start(t.Context(), pgdev.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop(context.Background())) })
	owner, err := os.Stat(filepath.Join(server.Dir(), "data"))
	require.NoError(t, err)
	tables := filepath.Join(disk, "tables")
	require.NoError(t, os.Mkdir(tables, 0o700))
	//nolint:forcetypeassert // on Linux it is
	require.NoError(t, os.Chown(tables, int(owner.Sys().(*syscall.Stat_t).Uid), -1))
	admin := openDatabaseAt(t, server.URL("postgres"))
	admin.exec("CREATE TABLESPACE small LOCATION '" + tables + "'")
	admin.exec("CREATE DATABASE postrider TABLESPACE small")
	db := openDatabaseAt(t, server.URL("postrider"))
	db.migrate()
	n := startNode(t, db)
	key := n.topic("orders")
	random := make([]byte, 400_000) // PostgreSQL compresses what it can
	_, err = rand.Read(random)
	require.NoError(t, err)
	large := `{"specversion":"1.0","id":"a","source":"/shop","type":"t","data":"` + hex.EncodeToString(random) + `"}`
	n.publish("orders", key, large)

	filler := filepath.Join(disk, "filler")
	fillDisk(t, filler)
	eventually(t, "publishes are rejected", func() bool {
		status, text, err := postEvents(t.Context(), n.api, "orders", key, large)
		require.NoError(t, err)
		return status == http.StatusServiceUnavailable &&
			strings.Contains(text, "the database's disk is full; nothing was stored")
	})
	require.False(t, n.isReady())
	doctor := postrider(t, serveEnv(db), "doctor")
	require.Equal(t, 1, doctor.code)
	require.Contains(t, doctor.stdout, "events cannot be stored: could not extend file")

	require.NoError(t, os.Remove(filler))
	eventually(t, "the node is ready again", n.isReady)
	n.publish("orders", key, large)
}
