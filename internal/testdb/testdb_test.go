package testdb_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	"postrider/internal/testdb"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

func TestClone(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	seen := map[string]bool{}
	t.Run("twenty at once", func(t *testing.T) {
		for n := range 20 {
			t.Run(fmt.Sprintf("clone %d", n), func(t *testing.T) {
				t.Parallel()
				url := testdb.Clone(t)
				conn, err := pgx.Connect(t.Context(), url)
				require.NoError(t, err)
				_, err = conn.Exec(t.Context(), "INSERT INTO migrated VALUES (1)")
				require.NoError(t, err, "the clone has the migrated schema and no other test's data")
				mu.Lock()
				defer mu.Unlock()
				require.False(t, seen[conn.Config().Database])
				seen[conn.Config().Database] = true // the session stays open: the drop must not mind
			})
		}
	})
	require.Len(t, seen, 20)
	left := queryText(t, testdb.Server(t).URL("postgres"),
		"SELECT coalesce(string_agg(datname, ' '), '') FROM pg_database")
	for name := range seen {
		require.NotContains(t, strings.Fields(left), name, "dropped when its test ended")
	}
}

func TestEmpty(t *testing.T) {
	t.Parallel()
	require.Equal(t, "true", queryText(t, testdb.Empty(t), "SELECT (to_regclass('migrated') IS NULL)::text"),
		"it is not migrated")
}

func TestTemplateTakesNoSessions(t *testing.T) {
	t.Parallel()
	_, err := pgx.Connect(t.Context(), testdb.Server(t).URL("postrider_template"))
	require.ErrorContains(t, err, "not currently accepting connections")
}

func TestMain(m *testing.M) { os.Exit(testdb.Run(m, migrate)) }

// migrate stands for the caller's migrations: tables with and without rows, and a sequence.
func migrate(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, `CREATE TABLE migrated (id int PRIMARY KEY);
		CREATE SCHEMA postrider;
		CREATE TABLE postrider.filled (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text,
		    length int GENERATED ALWAYS AS (length(name)) STORED);
		INSERT INTO postrider.filled (name) VALUES ('of the template');
		CREATE TABLE postrider.parts (day date, id bigint REFERENCES postrider.filled) PARTITION BY LIST (day);
		CREATE TABLE postrider.parts_1 PARTITION OF postrider.parts FOR VALUES IN ('2026-01-01')`)
	return err
}

// The tests after a first one find its database and connections, with the rows and sequences of the template.
func TestNew(t *testing.T) {
	var urls []string
	var backends []uint32
	for range 3 {
		t.Run("", func(t *testing.T) {
			url := testdb.New(t)
			pool := testdb.Pool(t, url)
			conn, err := pool.Acquire(t.Context())
			require.NoError(t, err)
			urls, backends = append(urls, url), append(backends, conn.Conn().PgConn().PID())
			conn.Release()
			const rows = `SELECT (SELECT string_agg(format('%s %s %s', id, name, length), ',') FROM postrider.filled)
				|| ' ' || (SELECT count(*) FROM postrider.parts)`
			var text string
			require.NoError(t, pool.QueryRow(t.Context(), rows).Scan(&text))
			require.Equal(t, "1 of the template 15 0", text)
			_, err = testdb.Pool(t, url).Exec(t.Context(), `UPDATE postrider.filled SET name = 'changed';
				INSERT INTO postrider.parts VALUES ('2026-01-01', 1)`, pgx.QueryExecModeSimpleProtocol)
			require.NoError(t, err)
			var id int
			require.NoError(t, pool.QueryRow(t.Context(),
				"INSERT INTO postrider.filled (name) VALUES ('of the test') RETURNING id").Scan(&id))
			require.Equal(t, 2, id)
		})
	}
	require.Equal(t, []string{urls[0], urls[0], urls[0]}, urls)
	require.Equal(t, []uint32{backends[0], backends[0], backends[0]}, backends)
}

// A connection that a test keeps would change the data of the next one.
func TestNewAfterAnOpenTransaction(t *testing.T) {
	var first, second string
	var open pgx.Tx
	t.Run("", func(t *testing.T) {
		first = testdb.New(t)
		var err error
		open, err = testdb.Pool(t, first).Begin(context.Background())
		require.NoError(t, err)
	})
	t.Run("", func(t *testing.T) { second = testdb.New(t) })
	require.NotEqual(t, first, second)
	require.Error(t, open.Commit(t.Context()), "its database was dropped")
}

// The change of a test's schema is seen by no other test.
func TestNewAfterAChangeOfTheSchema(t *testing.T) {
	seen := map[string]bool{}
	for _, change := range []string{
		"ALTER TABLE postrider.filled ADD CONSTRAINT planted CHECK (id > 0)", "ANALYZE postrider.filled",
		"ALTER TABLE postrider.filled RENAME COLUMN name TO hidden", "CREATE TABLE public.planted ()",
		"ALTER TABLE postrider.parts ALTER id SET DEFAULT 1",
		"ALTER TABLE postrider.parts DETACH PARTITION postrider.parts_1",
		"CREATE FUNCTION public.planted() RETURNS int RETURN 1", "CREATE SCHEMA planted",
	} {
		t.Run("", func(t *testing.T) {
			url := testdb.New(t)
			require.False(t, seen[url])
			seen[url] = true
			_, err := testdb.Pool(t, url).Exec(t.Context(), change)
			require.NoError(t, err)
		})
	}
}

type suite func() int

func (s suite) Run() int { return s() }

func TestRun(t *testing.T) {
	silence(t)
	outer := testdb.Server(t)
	require.Equal(t, 7, testdb.Run(suite(func() int {
		require.NotEqual(t, outer.PID(), testdb.Server(t).PID())
		return 7
	}), nil), "the suite's own exit code")
	require.Equal(t, outer, testdb.Server(t))
}

// A run of tests that need no database starts no server, and one whose server cannot be had fails those that do.
func TestRunStartsOnDemand(t *testing.T) {
	silence(t)
	calls := 0
	broken := func(context.Context, string) error { calls++; return errors.New("no such file") }
	require.Zero(t, testdb.Run(suite(func() int { return 0 }), broken))
	require.Zero(t, calls)
	var stub failing
	require.Equal(t, 1, testdb.Run(suite(func() int {
		for range 2 {
			stub.catch(t, func() { testdb.Clone(&stub) })
		}
		return 1
	}), broken))
	require.Equal(t, 1, calls, "once, for all tests")
	require.Len(t, stub.messages, 2, "tests do not run on a schema that failed")
	require.Contains(t, stub.messages[1], "no such file")
}

// failing is a test that fails and keeps the messages.
type failing struct {
	testing.TB
	messages []string
}

func (f *failing) Helper()      {}
func (f *failing) Name() string { return "failing" }
func (f *failing) Fatalf(format string, args ...any) {
	f.messages = append(f.messages, fmt.Sprintf(format, args...))
	runtime.Goexit()
}

// catch runs what is to fail in a goroutine of its own, which Fatalf ends.
func (f *failing) catch(t *testing.T, run func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); run() }()
	<-done
}

// TestCloneAfterACrash kills the server under the connections that make databases.
func TestCloneAfterACrash(t *testing.T) {
	require.NoError(t, testdb.Server(t).Kill())
	require.NoError(t, testdb.Server(t).Restart(t.Context()))
	require.Equal(t, "0", queryText(t, testdb.Clone(t), "SELECT count(*) FROM migrated"))
}

func silence(t *testing.T) {
	t.Helper()
	old := os.Stderr
	t.Cleanup(func() { os.Stderr = old })
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	require.NoError(t, err)
	os.Stderr = null
}

func queryText(t *testing.T, url, sql string) (text string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	require.NoError(t, conn.QueryRow(t.Context(), sql).Scan(&text))
	return text
}
