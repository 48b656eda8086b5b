package main

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/testdb"
	"postrider/migrations"
)

func TestMigrate(t *testing.T) {
	t.Parallel()
	url := testdb.Empty(t)
	db := &database{t, url, testdb.Pool(t, url)}
	target := func() int64 {
		status, err := migrations.ReadStatus(t.Context(), db.pool)
		require.NoError(t, err)
		return status.Target
	}()
	status := func(code, current, river int, ready bool) result {
		t.Helper()
		r := db.postrider("migrate", "status", "-o", "json")
		require.Equal(t, code, r.code, r.stderr)
		require.JSONEq(t, fmt.Sprintf(`{"current":%d,"target":%d,"river":%d,"ready":%t}`, current, target, river, ready),
			r.stdout)
		return r
	}
	require.Contains(t, status(1, 0, 0, false).stderr, "`postrider migrate up`", "an old schema is a failure, for scripts")
	rejected := db.postrider("serve", "--listen", "127.0.0.1:0", "--encryption-key", testEncryptionKey)
	require.Equal(t, 1, rejected.code)
	require.Contains(t, rejected.stderr, "run `postrider migrate up` first")

	for range 2 {
		up := db.postrider("migrate", "up")
		require.Zero(t, up.code, up.stderr)
		require.Contains(t, up.stdout, fmt.Sprintf("Schema at version %d ", target))
		require.Contains(t, up.stdout, "Queries of users are not set up (POSTRIDER_ENCRYPTION_KEY is not set)")
	}
	status(0, int(target), migrations.RiverVersion, true)
	require.Regexp(t, `^Schema: version (\d+), this build needs \d+\. River: version \d+, needs \d+\.\n$`,
		db.postrider("migrate", "status").stdout)
}

// migrate also creates the login roles for queries, if it can; doctor reports what is wrong with them.
func TestMigrateCreatesQueryLogins(t *testing.T) {
	t.Parallel()
	url := testdb.Clone(t)
	db := &database{t, url, testdb.Pool(t, url)}
	const key = "--encryption-key=" + testEncryptionKey
	requireFinding(t, runDoctor(t, url, key), warn, "queries", "queries are not set up")
	for _, flags := range [][]string{{key}, nil} { // they exist
		up := db.postrider(append([]string{"migrate", "up"}, flags...)...)
		require.Zero(t, up.code, up.stderr)
		require.NotContains(t, up.stdout, "Queries of users")
	}
	requireFinding(t, runDoctor(t, url, key), ok, "queries", "have the reader's rights")

	_, err := db.pool.Exec(t.Context(),
		"DROP ROLE "+one[string](db, "SELECT quote_ident(role) FROM postrider_internal.query_logins WHERE id = 1"))
	require.NoError(t, err)
	requireFinding(t, runDoctor(t, url, key), warn, "queries", "does not exist")
	requireFinding(t, runDoctor(t, url, key, "--query-database-url", url), warn, "queries", "has the attribute ")
}
