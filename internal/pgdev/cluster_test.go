package pgdev

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

const identifier = "SELECT system_identifier::text FROM pg_control_system()"

func started(t *testing.T, opts Options) *Server {
	t.Helper()
	s, err := Start(t.Context(), opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Stop(context.Background())) })
	return s
}

func TestServersAreCopies(t *testing.T) {
	t.Parallel()
	cache := filepath.Join(openDir(t), "cache")
	one := started(t, Options{cache: cache})
	two := started(t, Options{cache: cache, Durable: true, Dir: filepath.Join(openDir(t), "kept")})
	require.Equal(t, queryText(t, one.URL("postgres"), identifier), queryText(t, two.URL("postgres"), identifier))
	require.NotEqual(t, queryText(t, CurrentServer(t).URL("postgres"), identifier),
		queryText(t, one.URL("postgres"), identifier), "another cache has another cluster")
	require.Equal(t, "SCRAM-SHA-256$1",
		queryText(t, one.URL("postgres"), "SELECT split_part(rolpassword, ':', 1) FROM pg_authid WHERE rolname = 'postgres'"))
	config, err := pgx.ParseConfig(one.URL("postgres"))
	require.NoError(t, err)
	config.Password = CurrentServer(t).password
	_, err = pgx.ConnectConfig(t.Context(), config)
	require.ErrorContains(t, err, "password authentication failed")
	left, err := filepath.Glob(filepath.Join(cache, "*"))
	require.NoError(t, err)
	require.Len(t, left, 1, "the cluster, and no password: %v", left)
}

func queryText(t *testing.T, url, sql string) (text string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	require.NoError(t, conn.QueryRow(t.Context(), sql).Scan(&text))
	return text
}

func TestFolderWithClusterButNoPassword(t *testing.T) {
	t.Parallel()
	dir := openDir(t)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "data"), 0o700))
	major := strconv.Itoa(CurrentServer(t).bin.major)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "data", "PG_VERSION"), []byte(major+"\n"), 0o600))
	_, err := Start(t.Context(), Options{Dir: dir})
	require.ErrorContains(t, err, "no password file")
}

func TestConfig(t *testing.T) {
	t.Parallel()
	tests := config(Options{}, 20001)
	require.Contains(t, tests, "\nport = 20001\n")
	require.Contains(t, tests, "\nlisten_addresses = '127.0.0.1'\n")
	require.Contains(t, tests, "\nfsync = off\n")
	durable := config(Options{Durable: true, Settings: map[string]string{"max_connections": "50"}}, 20001)
	for _, name := range []string{"fsync", "synchronous_commit", "full_page_writes"} {
		require.NotContains(t, durable, name, "PostgreSQL's own default, on, holds")
	}
	require.True(t, strings.HasSuffix(durable, "\nmax_connections = '50'\n"), "the caller's value is last, and so wins")
	for name, tc := range map[string]struct{ setting, value, want string }{
		"a quote stays in its value": {"a", `x' y`, "\na = 'x'' y'\n"},
		"a backslash is no escape":   {"a", `x\n`, "\na = 'x\\\\n'\n"},
		"an extension's setting":     {"auto_explain.log_min_duration", "0", "\nauto_explain.log_min_duration = '0'\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, config(Options{Settings: map[string]string{tc.setting: tc.value}}, 20001), tc.want)
		})
	}
}

func TestTail(t *testing.T) {
	t.Parallel()
	require.Equal(t, "a\nb", tail("a\nb\n"))
	require.Equal(t, "2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n13", tail("1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n13\n"))
}
