package migrations_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"postrider/internal/pgdev"
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
// not what PostgreSQL's statistics keep of its values. The default privileges of the owner do not change that.
func TestRightsOfSQLRoles(t *testing.T) {
	t.Parallel()
	const all = "SCHEMAS TABLES FUNCTIONS SEQUENCES TYPES"
	for name, change := range map[string]string{
		"usual": "", "revoked": "REVOKE ALL ON %s FROM PUBLIC", "granted": "GRANT ALL ON %s TO PUBLIC",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := testdb.Empty(t)
			pool := open(t, url)
			for _, kind := range strings.Fields(all) {
				if change != "" {
					_, err := pool.Exec(t.Context(), "ALTER DEFAULT PRIVILEGES "+fmt.Sprintf(change, kind))
					require.NoError(t, err)
				}
			}
			require.NoError(t, migrations.Up(t.Context(), pool, io.Discard))
			requireRights(t, url, pool)
		})
	}
}

func requireRights(t *testing.T, url string, pool *pgxpool.Pool) {
	t.Helper()
	missing, err := migrations.MissingRights(t.Context(), pool)
	require.NoError(t, err)
	require.Empty(t, missing)
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

// roleServer is a server with databases of its own, because roles belong to the whole server.
type roleServer struct {
	*pgdev.Server
	pool  *pgxpool.Pool // of the superuser
	newer bool          // PostgreSQL 16 or newer: CREATEROLE is no right on roles that others created
}

func startRoleServer(t *testing.T) *roleServer {
	t.Helper()
	server, err := pgdev.Start(t.Context(), pgdev.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop(context.Background())) })
	pool := open(t, server.URL("postgres"))
	newer := texts(t, pool, "SELECT (current_setting('server_version_num')::integer >= 160000)::text")
	return &roleServer{server, pool, newer[0] == "true"}
}

func (s *roleServer) exec(t *testing.T, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		_, err := s.pool.Exec(t.Context(), statement)
		require.NoError(t, err, statement)
	}
}

// as connects to a database as a role.
func (s *roleServer) as(t *testing.T, role, database string) *pgxpool.Pool {
	t.Helper()
	u, err := url.Parse(s.URL(database))
	require.NoError(t, err)
	u.User = url.UserPassword(role, "known")
	return open(t, u.String())
}

// part returns the statements that follow a line of the notices.
func part(t *testing.T, notices, line string) string {
	t.Helper()
	_, after, found := strings.Cut(notices, line+"\n")
	require.True(t, found, notices)
	list, _, _ := strings.Cut(after, "\nThen the owner")
	return list
}

// The role that owns the schema and serves needs no CREATEROLE.
func TestUpWithoutTheRightToCreateRoles(t *testing.T) {
	t.Parallel()
	s := startRoleServer(t)
	s.exec(t, "CREATE ROLE service LOGIN PASSWORD 'known'", "CREATE ROLE creator LOGIN PASSWORD 'known' CREATEROLE",
		"CREATE DATABASE mine", "CREATE DATABASE given")
	service := s.as(t, "service", "mine")
	var notices bytes.Buffer
	err := migrations.Up(t.Context(), service, &notices)
	require.ErrorContains(t, err, "the database's owner may run: GRANT CREATE ON DATABASE mine TO service;")
	s.exec(t, "GRANT CREATE ON DATABASE mine, given TO service", "REVOKE TEMPORARY ON DATABASE mine FROM PUBLIC")
	_, err = service.Exec(t.Context(), "ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC")
	require.NoError(t, err)
	up := func(pool, admin *pgxpool.Pool) string {
		t.Helper()
		notices.Reset()
		require.NoError(t, migrations.UpWithAdmin(t.Context(), pool, admin, &notices))
		return notices.String()
	}
	first := up(service, service)
	status, err := migrations.ReadStatus(t.Context(), service)
	require.NoError(t, err)
	require.True(t, status.Ready())
	forAdmin := part(t, first, "An administrator may run:")
	require.Equal(t, []string{
		"CREATE ROLE postrider_consumer;", "CREATE ROLE postrider_operator;", "CREATE ROLE postrider_publisher;",
		"CREATE ROLE postrider_reader;", "GRANT postrider_reader TO service;",
		"GRANT TEMPORARY ON DATABASE mine TO postrider_reader;",
	}, strings.Split(forAdmin, "\n"))
	forOwner := part(t, first, "Then the owner, service, may run `postrider migrate up` again, or:")

	// An administrator with CREATEROLE, and the database's owner; then the schema's owner.
	statements, temporary, _ := strings.Cut(forAdmin, "GRANT TEMPORARY")
	_, err = s.as(t, "creator", "mine").Exec(t.Context(), statements)
	require.NoError(t, err)
	_, err = service.Exec(t.Context(), forOwner)
	require.NoError(t, err)
	require.Equal(t, "The roles for SQL users are not set up completely.\nAn administrator may run:\nGRANT TEMPORARY"+
		temporary+"\n", up(service, service), "only what is missing")
	s.exec(t, "GRANT TEMPORARY"+temporary, "REVOKE CREATE ON DATABASE mine FROM service")
	require.Empty(t, up(service, service))
	requireRights(t, s.URL("mine"), open(t, s.URL("mine")))
	_, err = service.Exec(t.Context(), "SET ROLE postrider_reader; SELECT * FROM postrider.topics")
	require.NoError(t, err)

	// The roles exist; this database has another schema.
	require.Empty(t, up(s.as(t, "service", "given"), s.as(t, "creator", "given")))
	requireRights(t, s.URL("given"), open(t, s.URL("given")))
}

// From PostgreSQL 16 on, CREATEROLE is no right on roles that the owner of another database has created.
func TestUpOfASecondOwner(t *testing.T) {
	t.Parallel()
	s := startRoleServer(t)
	for _, owner := range []string{"first", "second"} {
		s.exec(t, "CREATE ROLE "+owner+" LOGIN CREATEROLE PASSWORD 'known'", "CREATE DATABASE "+owner+" OWNER "+owner)
		pool := s.as(t, owner, owner)
		var notices bytes.Buffer
		require.NoError(t, migrations.Up(t.Context(), pool, &notices))
		if owner == "second" && s.newer {
			const grant = "GRANT postrider_reader TO second WITH ADMIN OPTION;"
			require.Equal(t, "The roles for SQL users are not set up completely.\nAn administrator may run:\n"+grant+"\n",
				notices.String())
			s.exec(t, grant)
			notices.Reset()
			require.NoError(t, migrations.Up(t.Context(), pool, &notices))
		}
		require.Empty(t, notices.String())
		requireRights(t, s.URL(owner), open(t, s.URL(owner)))
	}

	// Rights that were revoked are granted again, and a role that was dropped is created again.
	pool := s.as(t, "second", "second")
	second := open(t, s.URL("second"))
	_, err := second.Exec(t.Context(), `REVOKE USAGE ON SCHEMA postrider FROM postrider_consumer;
		REVOKE SELECT ON postrider.topics, postrider.events FROM postrider_reader;
		REVOKE EXECUTE ON FUNCTION postrider.purge FROM postrider_operator;
		GRANT SELECT ON postrider.users TO PUBLIC; DROP OWNED BY postrider_publisher`)
	require.NoError(t, err)
	s.exec(t, "REASSIGN OWNED BY postrider_publisher TO first")
	_, err = open(t, s.URL("first")).Exec(t.Context(), "DROP OWNED BY postrider_publisher; DROP ROLE postrider_publisher")
	require.NoError(t, err)
	missing, err := migrations.MissingRights(t.Context(), pool)
	require.NoError(t, err)
	problems := make([]string, len(missing))
	for i, m := range missing {
		problems[i] = m.Problem
	}
	require.Equal(t, []string{
		"role postrider_publisher does not exist", "PUBLIC has rights on postrider.users",
		"postrider_publisher lacks the right EXECUTE on postrider.publish(text,jsonb,text), " +
			"postrider.publish_batch(text,jsonb,text), postrider.publish_data(text,text,text,jsonb,text,text) and 1 more",
		"postrider_operator lacks the right EXECUTE on postrider.purge(uuid)",
		"postrider_reader lacks the right SELECT on postrider.events, postrider.topics",
		"postrider_consumer lacks the right USAGE on postrider",
		"postrider_publisher lacks the right USAGE on postrider",
	}, problems)
	require.NoError(t, migrations.Up(t.Context(), pool, io.Discard))
	requireRights(t, s.URL("second"), second)
}
