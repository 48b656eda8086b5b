package e2e

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/migrations"
)

func TestMigrate(t *testing.T) {
	t.Parallel()
	db := emptyDatabase(t)
	before := postrider(t, db.env(), "migrate", "status", "-o", "json")
	require.Equal(t, 1, before.code, "an old schema is a failure, for scripts")
	require.Contains(t, before.stderr, "`postrider migrate up`")
	target := statusOf(t, before, false, 0)

	for range 2 {
		up := postrider(t, db.env(), "migrate", "up")
		require.Zero(t, up.code, up.stderr)
	}
	after := postrider(t, db.env(), "migrate", "status", "-o", "json")
	require.Zero(t, after.code, after.stderr)
	require.Equal(t, target, statusOf(t, after, true, migrations.RiverVersion))

	table := postrider(t, db.env(), "migrate", "status")
	require.Zero(t, table.code, table.stderr)
	require.Regexp(t, `^Schema: version (\d+), this build needs \d+\. River: version \d+, needs \d+\.\n$`, table.stdout)
}

// statusOf requires the shape of the JSON and returns the version that this build needs.
func statusOf(t *testing.T, r result, ready bool, river int) float64 {
	t.Helper()
	var status map[string]any
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &status), r.stdout)
	target, ok := status["target"].(float64)
	require.True(t, ok)
	require.Positive(t, target)
	current := 0.0
	if ready {
		current = target
	}
	require.Equal(t, map[string]any{"current": current, "target": target, "river": float64(river), "ready": ready}, status)
	return target
}

// Several databases, because what one process sees of another's work differs from time to time.
func TestMigrateFromManyPlacesAtOnce(t *testing.T) {
	t.Parallel()
	for range 3 {
		db := emptyDatabase(t)
		racing := make([]*process, 4)
		for i := range racing {
			racing[i] = startProcess(t, db.env(), program, "migrate", "up")
		}
		for _, p := range racing {
			require.Zero(t, p.wait(), p.stderr.String())
			require.Contains(t, p.stdout.String(), "Schema at version")
		}
		require.Zero(t, postrider(t, db.env(), "migrate", "status").code)
	}
}

func TestServeNeedsTheSchema(t *testing.T) {
	t.Parallel()
	r := postrider(t, serveEnv(emptyDatabase(t)), "serve", "--listen", "127.0.0.1:0")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.stderr, "run `postrider migrate up` first")
}

func TestServeNeedsTheKeyTheDatabaseWasSetUpWith(t *testing.T) {
	t.Parallel()
	db := migratedDatabase(t)
	code := startNode(t, db).stop()
	require.Zero(t, code)
	env := append(serveEnv(db), "POSTRIDER_ENCRYPTION_KEY="+otherEncryptionKey)
	r := postrider(t, env, "serve", "--listen", "127.0.0.1:0")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.stderr, "this database was set up with another encryption key")
	require.NotContains(t, r.stderr, testEncryptionKey)
}

// migrate also creates the login roles for queries, if it can; doctor reports what is wrong with them.
func TestMigrateCreatesQueryLogins(t *testing.T) {
	t.Parallel()
	db := emptyDatabase(t)
	without, with := db.env(), append(db.env(), "POSTRIDER_ENCRYPTION_KEY="+otherEncryptionKey)
	up := postrider(t, without, "migrate", "up")
	require.Zero(t, up.code, up.stderr)
	require.Contains(t, up.stdout, "Queries of users are not set up (POSTRIDER_ENCRYPTION_KEY is not set)")
	requireFinding(t, runDoctor(t, 1, with), "warn", "queries", "queries are not set up")

	up = postrider(t, with, "migrate", "up")
	require.Zero(t, up.code, up.stderr)
	require.NotContains(t, up.stdout, "Queries of users")
	up = postrider(t, without, "migrate", "up")
	require.NotContains(t, up.stdout, "Queries of users", "they exist")
	requireFinding(t, runDoctor(t, 1, with), "ok", "queries", "have the reader's rights")

	db.exec("DROP ROLE " + one[string](db, "SELECT quote_ident(role) FROM postrider_internal.query_logins WHERE id = 1"))
	requireFinding(t, runDoctor(t, 1, with), "warn", "queries", "does not exist")
	requireFinding(t, runDoctor(t, 1, append(with, "POSTRIDER_QUERY_DATABASE_URL="+db.url)), "warn", "queries",
		"has the attribute ")
}
