package testdb_test

import (
	"context"
	"fmt"
	"os"
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
	t.Run("eight at once", func(t *testing.T) {
		for n := range 8 {
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
	require.Len(t, seen, 8)
	left := queryText(t, testdb.Server(t).URL("postgres"),
		"SELECT coalesce(string_agg(datname, ' '), '') FROM pg_database")
	for name := range seen {
		require.NotContains(t, strings.Fields(left), name, "dropped when its test ended")
	}
}

func TestMain(m *testing.M) { os.Exit(testdb.Run(m, testdb.Template{Fill: migrate})) }

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

func queryText(t *testing.T, url, sql string) (text string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	require.NoError(t, conn.QueryRow(t.Context(), sql).Scan(&text))
	return text
}
