package pgdev

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

const identifier = "SELECT system_identifier::text FROM pg_control_system()"

func TestServersAreCopiesOfAPreparedCluster(t *testing.T) {
	t.Parallel()
	cache := filepath.Join(openDir(t), "cache")
	one := start(t, Options{cache: cache})
	two := start(t, Options{cache: cache, Durable: true, Dir: filepath.Join(openDir(t), "kept")})
	require.Equal(t, queryText(t, one.URL("postgres"), identifier), queryText(t, two.URL("postgres"), identifier))
	require.NotEqual(t, queryText(t, currentServer(t).URL("postgres"), identifier),
		queryText(t, one.URL("postgres"), identifier), "another cache has another cluster")
	require.Equal(t, "SCRAM-SHA-256$1",
		queryText(t, one.URL("postgres"), "SELECT split_part(rolpassword, ':', 1) FROM pg_authid WHERE rolname = 'postgres'"))
	config, err := pgx.ParseConfig(one.URL("postgres"))
	require.NoError(t, err)
	config.Password = currentServer(t).password
	_, err = pgx.ConnectConfig(t.Context(), config)
	require.ErrorContains(t, err, "password authentication failed")
	left, err := filepath.Glob(filepath.Join(cache, "*"))
	require.NoError(t, err)
	require.Len(t, left, 1, "the cluster, and no password: %v", left)
}

// A cluster is filled once; the archives of old contents are removed.
func TestFilledCluster(t *testing.T) {
	t.Parallel()
	cache := filepath.Join(openDir(t), "cache")
	require.NoError(t, os.MkdirAll(cache, 0o755))
	for i := range keptArchives {
		require.NoError(t, os.WriteFile(filepath.Join(cache, fmt.Sprintf("prepared-%d.tar", i)), nil, 0o600))
	}
	fills := 0
	fill := func(_ context.Context, s *Server) error {
		queryText(t, s.URL("postgres"), "CREATE TABLE filled AS SELECT 42 AS n")
		fills++
		return nil
	}
	for range 2 {
		s := start(t, Options{cache: cache, Content: "a table", Fill: fill})
		require.Equal(t, "42", queryText(t, s.URL("postgres"), "SELECT n FROM filled"))
	}
	require.Equal(t, 1, fills)
	_, err := Start(t.Context(), Options{
		cache: cache, Content: "none", Fill: func(context.Context, *Server) error { return errors.New("it failed") },
	})
	require.ErrorContains(t, err, "it failed")
	left, err := filepath.Glob(filepath.Join(cache, "*"))
	require.NoError(t, err)
	require.Len(t, left, keptArchives+1, "and the one that was written: %v", left)
}

func TestFolderWithClusterButNoPassword(t *testing.T) {
	t.Parallel()
	dir := openDir(t)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "data"), 0o700))
	major := strconv.Itoa(currentServer(t).bin.major)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "data", "PG_VERSION"), []byte(major+"\n"), 0o600))
	_, err := Start(t.Context(), Options{Dir: dir})
	require.ErrorContains(t, err, "no password file")
}

func TestTail(t *testing.T) {
	t.Parallel()
	require.Equal(t, "a\nb", tail("a\nb\n"))
	require.Equal(t, "2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n13", tail("1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n13\n"))
}
