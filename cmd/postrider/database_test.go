package main

import (
	"context"
	"net"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"

	"postrider/internal/testdb"
)

// verbs that use the database.
var databaseVerbs = map[string][]string{
	"serve": {"serve", "--listen", "127.0.0.1:0", "--encryption-key", testEncryptionKey}, "migrate": {"migrate", "up"},
	"status": {"migrate", "status"}, "user": {"user", "list"}, "key": {"apikey", "list"}, "sql": {"sql", "SELECT 1"},
}

// rejecting responds to each connection with an error, after calling before.
func rejecting(t *testing.T, code, message string, before func()) (url string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			before()
			backend := pgproto3.NewBackend(conn, conn)
			if _, err = backend.ReceiveStartupMessage(); err == nil {
				backend.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: code, Message: message})
				_ = backend.Flush()
			}
			_ = conn.Close()
		}
	}()
	return "postgres://u:p@" + listener.Addr().String() + "/d?sslmode=disable"
}

// A server that starts is tried again, and its error logged once.
func TestARepeatedErrorIsLoggedOnce(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	tries := 0
	url := rejecting(t, "57P03", "the database system is starting up", func() {
		if tries++; tries == 3 {
			cancel()
		}
	})
	var log strings.Builder
	_, err := openDatabase(ctx, databaseFlags{DatabaseURL: url}, 1, logFlags{}.logger(&log))
	require.Error(t, err)
	require.Equal(t, 1, strings.Count(log.String(), "starting up"), log.String())
}

// What another try does not change ends each verb at once, with advice where there is any.
func TestRejectedConnections(t *testing.T) {
	t.Parallel()
	existing := testdb.Clone(t)
	changed := func(change func(*url.URL)) string {
		u, err := url.Parse(existing)
		require.NoError(t, err)
		change(u)
		return u.String()
	}
	for message, database := range map[string]string{
		`(?m)PostgreSQL at \S+ responded: database "missing" does not exist \(SQLSTATE 3D000\)$`: changed(func(u *url.URL) {
			u.Path = "/missing"
		}),
		`role "nobody" does not exist|password authentication failed for user "nobody"`: changed(func(u *url.URL) {
			u.User = url.UserPassword("nobody", "x")
		}),
		"leads to PgBouncer .*: set --pgbouncer ": rejecting(t, "08P01",
			"unsupported startup parameter: enable_bitmapscan", func() {}),
	} {
		for name, args := range databaseVerbs {
			if name == "sql" && strings.Contains(message, "PgBouncer") { // it sends no setting that PgBouncer rejects
				continue
			}
			r := postrider(t, nil, append(args, "--database-url", database)...)
			require.NotZero(t, r.code, name)
			require.Regexp(t, message, r.stderr, name)
			require.NotContains(t, r.stderr, "retrying", name)
		}
	}
}

// A database that accepts no writes: the cause and the command that helps.
func TestReadOnlyDatabase(t *testing.T) {
	t.Parallel()
	database := testdb.Clone(t)
	testdb.SetUnusual(t, database, map[string]string{"default_transaction_read_only": "on"})
	config, err := pgx.ParseConfig(database)
	require.NoError(t, err)
	for _, name := range []string{"serve", "migrate", "user"} {
		r := postrider(t, nil, append(databaseVerbs[name], "--database-url", database)...)
		require.Equal(t, 1, r.code, name)
		require.Contains(t, r.stderr, "the database accepts no writes: default_transaction_read_only is on; run: ALTER "+
			`DATABASE "`+config.Database+`" RESET default_transaction_read_only`, name)
	}
	const off = "&options=-c%20default_transaction_read_only%3Doff"
	r := postrider(t, nil, append(databaseVerbs["user"], "--database-url", database+off)...)
	require.Zero(t, r.code, r.stderr)
}

// sql shows values in one format, whatever the settings of the database are.
func TestSQLWithUnusualSettings(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	url := testdb.Clone(t)
	testdb.SetUnusual(t, url, testdb.UnusualSettings)
	const statement = `SELECT '2026-03-04 05:06:07.5+00'::timestamptz AS a, '2026-03-04'::date AS b,
		interval '1 day 02:03:04' AS c, '\xff'::bytea AS d, 0.1::float8 + 0.2::float8 AS e, 'ä€' AS f,
		'2026-03-04 05:06:07+00'::timestamptz::text AS g, (interval '1 day')::text AS h, '03/04/2026'::date::text AS i`
	for _, form := range []string{"table", "json", "csv"} {
		usual := db.postrider("sql", "-o", form, statement)
		unusual := postrider(t, nil, "sql", "-o", form, "--database-url", url, statement)
		require.Zero(t, usual.code, usual.stderr)
		require.Equal(t, usual, unusual)
	}
}
