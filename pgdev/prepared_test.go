package pgdev

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// prepared is the cluster that the server of these tests was copied from, and the programs that it is of.
func prepared(t *testing.T) (owner identity, bin installation, path string) {
	t.Helper()
	owner, err := unprivileged()
	require.NoError(t, err)
	bin = CurrentServer(t).bin
	path = preparedPath(owner, bin)
	if path == "" {
		t.Skip("no cache folder")
	}
	return owner, bin, path
}

func TestTemporaryServersAreCopies(t *testing.T) {
	t.Parallel()
	_, _, path := prepared(t)
	require.FileExists(t, filepath.Join(path, "PG_VERSION"), "the server of these tests had it made")
	made := func(o Options) (server *Server, identifier string) {
		s, err := Start(t.Context(), o)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Stop(context.Background())) })
		return s, answer(t, s.URL("postgres"), "SELECT system_identifier::text FROM pg_control_system()")
	}
	one, first := made(Options{})
	two, second := made(Options{Durable: true})
	_, kept := made(Options{Dir: filepath.Join(openDir(t), "kept")})
	require.Equal(t, first, second)
	require.NotEqual(t, first, kept, "what lasts is nobody's copy")
	require.NotEqual(t, one.folder.password, two.folder.password)
	require.Equal(t, "SCRAM-SHA-256$1",
		answer(t, one.URL("postgres"), "SELECT split_part(rolpassword, ':', 1) FROM pg_authid WHERE rolname = 'postgres'"))
	config, err := pgx.ParseConfig(one.URL("postgres"))
	require.NoError(t, err)
	config.Password = two.folder.password
	_, err = pgx.ConnectConfig(t.Context(), config)
	require.ErrorContains(t, err, "password authentication failed")
}

func TestPrepare(t *testing.T) {
	t.Parallel()
	owner, bin, path := prepared(t)
	before, err := os.Stat(path)
	require.NoError(t, err)
	require.NoError(t, prepare(t.Context(), owner, bin))
	after, err := os.Stat(path)
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after), "one that is there stays")
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".password-*"))
	require.NoError(t, err)
	require.Empty(t, left)

	other := bin
	other.dir = filepath.Join(bin.dir, "elsewhere")
	require.NotEqual(t, path, preparedPath(owner, other), "programs of another folder may have been built otherwise")
}

// Where nothing is prepared, as for programs that were never seen, initdb makes the cluster.
func TestTemporaryServerWithoutAPreparedCluster(t *testing.T) {
	t.Parallel()
	_, bin, _ := prepared(t)
	s, err := startWith(t.Context(), Options{}, func(context.Context, identity, int, io.Writer) (installation, error) {
		return installation{bin.dir + "/.", bin.version}, nil // the same ones by another name
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Stop(context.Background())) })
	const identifier = "SELECT system_identifier::text FROM pg_control_system()"
	require.NotEqual(t, answer(t, CurrentServer(t).URL("postgres"), identifier), answer(t, s.URL("postgres"), identifier))
}

func answer(t *testing.T, url, sql string) (text string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	require.NoError(t, conn.QueryRow(t.Context(), sql).Scan(&text))
	return text
}
