package sqlquery_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/pgdev"
	"postrider/internal/postgres"
	"postrider/internal/sqlquery"
	"postrider/internal/testnode"
)

// Queries on a standby are checked on the primary.
func TestStandby(t *testing.T) {
	t.Parallel()
	root, err := os.MkdirTemp("", "standby-") //nolint:usetesting // PostgreSQL's user needs its parent, too
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	require.NoError(t, os.Chmod(root, 0o755))
	primary, err := pgdev.Start(t.Context(), pgdev.Options{Dir: filepath.Join(root, "primary")})
	require.NoError(t, err)
	defer func() { _ = primary.Kill() }()
	require.NoError(t, primary.CreateDatabase(t.Context(), "postrider"))
	require.NoError(t, testnode.Migrate(t.Context(), primary.URL("postrider")))
	pool, err := postgres.OpenPool(t.Context(), primary.URL("postrider"), 4)
	require.NoError(t, err)
	defer pool.Close()
	for _, statement := range []string{
		"CREATE ROLE query_1 LOGIN PASSWORD 'x' CONNECTION LIMIT 1", "GRANT postrider_reader TO query_1", "CHECKPOINT",
	} {
		_, err = pool.Exec(t.Context(), statement)
		require.NoError(t, err)
	}
	require.NoError(t, primary.Kill())
	copied := filepath.Join(root, "standby")
	out, err := exec.CommandContext(t.Context(), "cp", "-a", primary.Dir(), copied).CombinedOutput()
	require.NoError(t, err, string(out))
	out, err = exec.CommandContext(t.Context(), "cp", "-p", filepath.Join(copied, "data", "PG_VERSION"),
		filepath.Join(copied, "data", "standby.signal")).CombinedOutput()
	require.NoError(t, err, string(out))
	require.NoError(t, primary.Restart(t.Context()))
	pool.Reset()
	standby, err := pgdev.Start(t.Context(), pgdev.Options{Dir: copied})
	require.NoError(t, err)
	defer func() { _ = standby.Kill() }()

	onStandby := sqlquery.Options{URLs: []string{as(t, standby.URL("postrider"), "query_1")}}
	runner, err := sqlquery.NewRunner(postgres.NewDB(pool), nil, onStandby)
	require.NoError(t, err)
	got, err := runner.Run(t.Context(), sqlquery.Request{SQL: "SELECT topic, $1::int FROM topics", Args: []string{"1"}})
	require.NoError(t, err)
	require.Len(t, got.Columns, 2)
	_, err = runner.Run(t.Context(), sqlquery.Request{SQL: "SELECT pg_is_in_recovery()"})
	require.ErrorContains(t, err, "calls pg_is_in_recovery()")
	got, err = runner.Run(t.Context(), sqlquery.Request{SQL: "SELECT current_setting('in_hot_standby')"})
	require.NoError(t, err)
	require.Equal(t, [][]string{{"on"}}, texts(got.Rows))
	found, err := runner.Check(t.Context())
	require.NoError(t, err)
	require.Empty(t, found)
}
