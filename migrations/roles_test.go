package migrations_test

import (
	"io"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"postrider/internal/testdb"
	"postrider/migrations"
)

const (
	relationsQuery = "SELECT relnamespace::regnamespace || '.' || relname FROM pg_class " +
		"WHERE relkind IN ('r', 'p', 'S', 'v')"
	// actingQuery lists the functions that act with the rights of their owner.
	actingQuery = "SELECT proname FROM pg_proc WHERE pronamespace = 'postrider'::regnamespace AND prosecdef"
)

// queryAll returns the result of a statement as text.
func queryAll(t *testing.T, conn *pgx.Conn, query string) ([]string, error) {
	t.Helper()
	rows, _ := conn.Query(t.Context(), query, pgx.QueryExecModeExec)
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// Each of the SQL roles has the rights of its kind of user: views, functions, and nothing of postrider_internal, also
// not what PostgreSQL's statistics keep of its values.
func TestWhatEachRoleMay(t *testing.T) {
	t.Parallel()
	url := testdb.Clone(t)
	pool := open(t, url)
	require.NoError(t, migrations.Up(t.Context(), pool, io.Discard))
	views := texts(t, pool, relationsQuery+" AND relnamespace = 'postrider'::regnamespace")
	require.Greater(t, len(views), 13)
	tables := texts(t, pool, relationsQuery+" AND relnamespace = 'postrider_internal'::regnamespace")
	require.Greater(t, len(tables), 25)
	publishing := []string{"publish", "publish_batch", "publish_data"}
	receiving := []string{"acknowledge", "receive", "reject", "release_locks", "renew"}
	operating := slices.DeleteFunc(texts(t, pool, actingQuery),
		func(name string) bool { return slices.Contains(slices.Concat(publishing, receiving), name) })
	require.Subset(t, operating,
		[]string{"cancel", "dead_letter_now", "erase_event", "erase_subject", "pause", "release", "resume", "retry_now"})
	for role, may := range map[string]struct {
		reads bool
		calls []string
	}{
		"postrider_reader": {true, []string{}}, "postrider_publisher": {false, publishing},
		"postrider_consumer": {false, receiving}, "postrider_operator": {true, operating},
	} {
		conn, err := pgx.Connect(t.Context(), url)
		require.NoError(t, err)
		_, err = conn.Exec(t.Context(), "SET ROLE "+role)
		require.NoError(t, err)
		for _, view := range views {
			_, err := queryAll(t, conn, "SELECT x::text FROM "+view+" x")
			require.Equal(t, may.reads, err == nil, "%s %s: %v", role, view, err)
		}
		calls, err := queryAll(t, conn, actingQuery+" AND has_function_privilege(oid, 'EXECUTE')")
		require.NoError(t, err)
		require.ElementsMatch(t, may.calls, calls, role)
		for _, table := range tables {
			_, err := queryAll(t, conn, "SELECT x::text FROM "+table+" x")
			require.ErrorContains(t, err, "permission denied", table)
		}
		for _, statement := range []string{
			"SELECT postrider_internal.note_audit('a', '', 'b', '', '', '{}')::text",
			"SELECT postrider_internal.cancel(1, 'a', 'b')", "CREATE TABLE postrider.mine (n integer)",
			"DELETE FROM postrider.events", "UPDATE postrider.audit SET actor = 'me'",
		} {
			_, err := queryAll(t, conn, statement)
			require.Error(t, err, statement)
			require.Regexp(t, "permission denied|cannot (update|delete)", err.Error(), statement)
		}
		statistics, err := queryAll(t, conn, "SELECT attname FROM pg_stats WHERE schemaname = 'postrider_internal'")
		require.NoError(t, err)
		require.Empty(t, statistics)
		require.NoError(t, conn.Close(t.Context()))
	}
}
