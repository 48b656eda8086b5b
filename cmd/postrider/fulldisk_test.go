package main

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// PostgreSQL's disk is full: publishers, managers, load balancers and operators learn that, in plain words, and when it is over.
func TestFullDiskIsReported(t *testing.T) {
	t.Parallel()
	db := migratedDatabase(t)
	n := startNode(t, db, "--role", "api")
	key := n.topic("orders")
	publishes := func(want int) string {
		status, text, err := publish(t.Context(), n.api, "orders", key, cloudEvent("a"))
		require.NoError(t, err)
		require.Equal(t, want, status, text)
		return text
	}
	const error53100 = `BEGIN RAISE EXCEPTION USING ERRCODE = '53100', MESSAGE = 'could not extend file "base/5/16384": No space left on device'; END`
	db.exec("CREATE FUNCTION public.no_table() RETURNS event_trigger LANGUAGE plpgsql AS $$ " + error53100 + " $$")
	db.exec("CREATE FUNCTION public.no_row() RETURNS trigger LANGUAGE plpgsql AS $$ " + error53100 + " $$")
	for _, table := range []string{"events", "topics"} {
		db.exec("CREATE TRIGGER no_row BEFORE INSERT ON postrider_internal." + table + " FOR EACH STATEMENT EXECUTE FUNCTION public.no_row()")
	}
	db.exec("CREATE EVENT TRIGGER no_table ON ddl_command_start EXECUTE FUNCTION public.no_table()")
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
	plain(text)
	require.Contains(t, text, "free space or enlarge the disk")
	require.Contains(t, n.scrape(), "postrider_database_disk_full 1")
	require.Contains(t, n.stderr.String(), "the database's disk is full")

	db.exec("DROP EVENT TRIGGER no_table") // no DDL trigger fires for it
	db.exec("DROP TRIGGER no_row ON postrider_internal.events")
	eventually(t, "the node is ready again", readyz(http.StatusOK))
	require.Contains(t, n.scrape(), "postrider_database_disk_full 0")
	publishes(http.StatusOK)
}
