package pgdev

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

func start(t *testing.T, opts Options) *Server {
	t.Helper()
	s, err := Start(t.Context(), opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Stop(context.Background())) })
	return s
}

// queryText runs one statement on a separate connection and returns its first value as text.
func queryText(t *testing.T, url, sql string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	var value any
	rows, err := conn.Query(t.Context(), sql)
	require.NoError(t, err)
	for rows.Next() {
		values, err := rows.Values()
		require.NoError(t, err)
		value = values[0]
	}
	require.NoError(t, rows.Err())
	return fmt.Sprint(value)
}

func eventually(t *testing.T, condition func() bool, message string) {
	t.Helper()
	require.Eventually(t, condition, 30*time.Second, 10*time.Millisecond, message)
}

func gone(path string) bool {
	_, err := os.Stat(path)
	return os.IsNotExist(err)
}

func TestStartAndStop(t *testing.T) {
	t.Parallel()
	s := start(t, Options{Settings: map[string]string{
		"max_connections": "50", "cluster_name": `it's \n`, "auto_explain.log_min_duration": "0",
	}})
	require.Equal(t, "127.0.0.1/32", queryText(t, s.URL("postgres"), "SELECT inet_server_addr()::text"))
	require.Equal(t, strconv.Itoa(s.Port()), queryText(t, s.URL("postgres"), "SELECT inet_server_port()"))
	require.Equal(t, "UTF8 C", queryText(t, s.URL("postgres"),
		"SELECT concat_ws(' ', current_setting('server_encoding'), datcollate) FROM pg_database WHERE datname = 'postgres'"))
	for name, want := range map[string]string{
		"max_connections": "50", "cluster_name": `it's \n`, "auto_explain.log_min_duration": "0", "fsync": "off",
		"timezone": "UTC", "listen_addresses": "127.0.0.1",
	} {
		require.Equal(t, want, queryText(t, s.URL("postgres"), "SHOW "+name))
	}
	require.True(t, strings.HasPrefix(queryText(t, s.URL("postgres"), "SHOW server_version"), s.Version()))
	require.False(t, gone(filepath.Join(s.Binaries(), "initdb")))
	require.False(t, gone(filepath.Join(s.Dir(), "postgres.log")))

	conn, err := pgx.Connect(t.Context(), s.URL("postgres"))
	require.NoError(t, err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(t.Context(), "BEGIN; CREATE TABLE open_transaction ()")
	require.NoError(t, err)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, s.Stop(ended), "a context that has ended means at once, not never")
	require.Error(t, conn.Ping(t.Context()), "sessions are cut")
	require.True(t, gone(s.Dir()), "temporary data are removed")
	_, err = net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port())))
	require.Error(t, err)
	require.NoError(t, s.Stop(t.Context()), "a second stop does nothing")
	require.ErrorContains(t, s.Restart(t.Context()), "stopped for good")
}

func TestRestartAndKill(t *testing.T) {
	t.Parallel()
	s := start(t, Options{Durable: true})
	port, pid := s.Port(), s.PID()
	require.Equal(t, "on on on", queryText(t, s.URL("postgres"), "SELECT concat_ws(' ', current_setting('fsync'), "+
		"current_setting('synchronous_commit'), current_setting('full_page_writes'))"))
	queryText(t, s.URL("postgres"), "CREATE TABLE kept AS SELECT 1")

	require.NoError(t, s.Restart(t.Context()))
	require.Equal(t, port, s.Port())
	require.NotEqual(t, pid, s.PID())
	require.Equal(t, "1", queryText(t, s.URL("postgres"), "SELECT count(*) FROM kept"))

	busy, err := pgx.Connect(t.Context(), s.URL("postgres"))
	require.NoError(t, err)
	ended := make(chan struct{})
	// A session that computes notices the death of its postmaster only when it is done, about a second later.
	go func() {
		defer close(ended)
		for err := error(nil); err == nil; {
			_, err = busy.Exec(context.Background(), "DO 'BEGIN FOR i IN 1..20000000 LOOP END LOOP; END'")
		}
	}()
	eventually(t, func() bool {
		return queryText(t, s.URL("postgres"),
			"SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'DO %'") == "1"
	}, "the session computes")
	require.NoError(t, s.Kill())
	require.NoError(t, s.Kill(), "what is dead stays dead")
	_, err = pgx.Connect(t.Context(), s.URL("postgres"))
	require.Error(t, err)
	require.NoError(t, s.Restart(t.Context()), "the sessions of the killed server are waited for")
	<-ended
	require.NoError(t, busy.Close(t.Context()))
	require.Equal(t, port, s.Port())
	require.Equal(t, "1", queryText(t, s.URL("postgres"), "SELECT count(*) FROM kept"), "committed rows survive")
}

// A port may be bound by a socket that does not listen, or be reserved for root; other programs choose another one.
func TestPortThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	bound, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	require.NoError(t, err)
	defer syscall.Close(bound)
	require.NoError(t, syscall.Bind(bound, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	address, err := syscall.Getsockname(bound)
	require.NoError(t, err)
	for port, why := range map[int]string{address.(*syscall.SockaddrInet4).Port: "is taken", 70000: "cannot be used"} {
		var log bytes.Buffer
		chosen := choosePort(&log, port)
		require.Equal(t, fmt.Sprintf("Port %d %s; using %d instead.\n", port, why, chosen), log.String())
	}

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	port := listener.Addr().(*net.TCPAddr).Port
	var log bytes.Buffer
	s := start(t, Options{Port: port, Log: &log})
	require.NotEqual(t, port, s.Port())
	require.Equal(t, fmt.Sprintf("Port %d is taken; using %d instead.\n", port, s.Port()), log.String())
}

func TestKeptFolder(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(openDir(t), "kept")
	half := filepath.Join(dir, "data.new")
	require.NoError(t, os.MkdirAll(half, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(half, "PG_VERSION"), []byte("15\n"), 0o600))
	s := start(t, Options{Dir: dir, Durable: true})
	require.True(t, gone(half), "a cluster that was half created is created again")
	require.Equal(t, dir, s.Dir())
	require.NoError(t, s.CreateDatabase(t.Context(), "postrider"))
	require.NoError(t, s.CreateDatabase(t.Context(), "postrider"), "one that exists is left alone")
	queryText(t, s.URL("postrider"), "CREATE TABLE kept AS SELECT 42 AS n")
	queryText(t, s.URL("postrider"), "ALTER SYSTEM SET work_mem = '9MB'")
	password, err := os.Stat(filepath.Join(dir, "data", "postrider.password"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), password.Mode().Perm())
	require.NoError(t, s.Stop(t.Context()))

	again := start(t, Options{Dir: dir, Durable: true, Port: s.Port()})
	require.Equal(t, s.URL("postrider"), again.URL("postrider"), "password and all")
	require.Equal(t, "42", queryText(t, again.URL("postrider"), "SELECT n FROM kept"))
	require.Equal(t, "9MB", queryText(t, again.URL("postrider"), "SHOW work_mem"), "ALTER SYSTEM was kept")
	require.NoError(t, again.Stop(t.Context()))

	require.NoError(t, os.WriteFile(filepath.Join(dir, "data", "PG_VERSION"), []byte("99\n"), 0o600))
	_, err = Start(t.Context(), Options{Dir: dir})
	require.ErrorContains(t, err, "the data were created by PostgreSQL 99")
}

func TestFolderInUse(t *testing.T) {
	t.Parallel()
	s := currentServer(t)
	want := "Is another postmaster (PID " + strconv.Itoa(s.PID()) + ") running"
	var err error
	// A start retries until its context ends. On a busy machine a short context ends before the first try does.
	for limit := time.Second; limit < time.Minute; limit *= 4 {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		_, err = Start(ctx, Options{Dir: s.Dir()})
		cancel()
		require.Error(t, err)
		if strings.Contains(err.Error(), want) {
			break
		}
	}
	require.ErrorContains(t, err, want)
	require.Equal(t, "1", queryText(t, s.URL("postgres"), "SELECT 1"))
}

func TestFailedStart(t *testing.T) {
	t.Parallel()
	_, err := Start(t.Context(), Options{Settings: map[string]string{"shared_buffers": "plenty"}})
	require.ErrorContains(t, err, `invalid value for parameter "shared_buffers": "plenty"`, "the server's own words")
}
