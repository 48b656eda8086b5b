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
	code, _ := startNode(t, db).stop()
	require.Zero(t, code)
	env := append(serveEnv(db), "POSTRIDER_ENCRYPTION_KEY="+otherEncryptionKey)
	r := postrider(t, env, "serve", "--listen", "127.0.0.1:0")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.stderr, "this database was set up with another encryption key")
	require.NotContains(t, r.stderr, testEncryptionKey)
}

func TestServeNamesTheSettingThatIsWrong(t *testing.T) {
	t.Parallel()
	const url = "POSTRIDER_DATABASE_URL=postgres://user:hunter2@127.0.0.1:1/db"
	const key = "POSTRIDER_ENCRYPTION_KEY=" + testEncryptionKey
	for _, row := range []struct {
		name string
		env  []string
		args []string
		says string
	}{
		{"no database", []string{key}, nil, "POSTRIDER_DATABASE_URL"},
		{
			"malformed database URL",
			[]string{key, "POSTRIDER_DATABASE_URL=postgres://user:hunter2@host:port/db"},
			nil,
			"POSTRIDER_DATABASE_URL",
		},
		{"no encryption key", []string{url}, nil, "POSTRIDER_ENCRYPTION_KEY"},
		{"encryption key that is no base64", []string{url, "POSTRIDER_ENCRYPTION_KEY=!!"}, nil, "POSTRIDER_ENCRYPTION_KEY"},
		{
			"encryption key that is too short",
			[]string{url, "POSTRIDER_ENCRYPTION_KEY=c2hvcnQ="},
			nil,
			"POSTRIDER_ENCRYPTION_KEY",
		},
		{"address range without its length", []string{url, key}, []string{"--allow-cidr", "10.0.0.0"}, "--allow-cidr: " +
			`"10.0.0.0": must be an address range such as 10.0.0.0/8`},
		{"no connections", []string{url, key}, []string{"--max-conns", "0"}, "--max-conns 0: must be 2 to 1000"},
		{"connections that are no number", []string{url, key}, []string{"--max-conns", "many"}, "--max-conns"},
		{"no workers", []string{url, key}, []string{"--max-workers", "0"}, "--max-workers 0: must be 1 to 10000"},
		{"no filter values", []string{url, key}, []string{"--max-filter-values", "0"}, "--max-filter-values 0: must be 1 " +
			"to 10000"},
		{"no custom headers", []string{url, key}, []string{"--max-delivery-headers", "0"}, "--max-delivery-headers 0: must " +
			"be 1 to 100"},
		{
			"custom headers of a megabyte",
			[]string{url, key, "POSTRIDER_MAX_DELIVERY_HEADER_BYTES=1048576"},
			nil,
			"--max-delivery-header-bytes 1048576: must be 1 to 65536",
		},
		{
			"public URL without its scheme",
			[]string{url, key},
			[]string{"--public-url", "events.example.com"},
			`--public-url "events.example.com"`,
		},
		{"public URL with a query", []string{url, key}, []string{"--public-url", "https://example.com/?a=b"}, "--public-url"},
		{"origin of two words", []string{url, key}, []string{"--webhook-origin", "a b"}, `--webhook-origin "a b"`},
		{"negative request rate", []string{url, key}, []string{"--webhook-request-rate=-1"}, "--webhook-request-rate -1"},
		{"negative stop timeout", []string{url, key}, []string{"--stop-timeout=-1s"}, "--stop-timeout -1s"},
		{"unknown log level", []string{url, key}, []string{"--log-level", "loud"}, "--log-level"},
		{"unknown log format in the environment", []string{url, key, "POSTRIDER_LOG_FORMAT=xml"}, nil, "--log-format"},
		{"unknown role", []string{url, key}, []string{"--role", "both"}, "--role"},
		{"unknown role in the environment", []string{url, key, "POSTRIDER_ROLE=both"}, nil, "--role"},
		{
			"pgbouncer that is neither yes nor no",
			[]string{url, key, "POSTRIDER_PGBOUNCER=perhaps"},
			nil,
			"POSTRIDER_PGBOUNCER",
		},
		{"unknown flag", []string{url, key}, []string{"--maximum"}, "--maximum"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := postrider(t, row.env, append([]string{"serve", "--listen", "127.0.0.1:0"}, row.args...)...)
			require.Equal(t, 2, r.code, r.stderr)
			require.Contains(t, r.stderr, row.says)
			require.NotContains(t, r.stderr, "hunter2", "the database's password is no business of the log")
		})
	}
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
