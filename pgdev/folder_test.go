package pgdev

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSweep(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, tc := range map[string]struct {
		age    time.Duration
		locked bool
		swept  bool
	}{
		"the folder of a killed run goes":         {age: time.Hour, swept: true},
		"a folder in use stays, however old":      {age: 48 * time.Hour, locked: true},
		"a folder that is being made this moment": {age: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			dir := filepath.Join(root, tempPrefix+"1")
			require.NoError(t, os.MkdirAll(filepath.Join(dir, "data"), 0o700))
			if tc.locked {
				lock, err := tryLock(dir)
				require.NoError(t, err)
				defer lock.Close()
			}
			require.NoError(t, os.Chtimes(dir, now, now.Add(-tc.age)))
			sweep(root)
			require.Equal(t, tc.swept, missing(dir))
		})
	}
}

func TestSweepTouchesNothingElse(t *testing.T) {
	t.Parallel()
	root, old := t.TempDir(), time.Now().Add(-time.Hour)
	other, target := filepath.Join(root, "postgresql"), filepath.Join(root, "target")
	require.NoError(t, os.Mkdir(other, 0o700))
	require.NoError(t, os.Mkdir(target, 0o700))
	require.NoError(t, os.Symlink(target, filepath.Join(root, tempPrefix+"link")))
	for _, dir := range []string{other, target} {
		require.NoError(t, os.Chtimes(dir, old, old))
	}
	sweep(root)
	require.False(t, missing(other))
	require.False(t, missing(target))
}

func TestLock(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	lock, err := tryLock(dir)
	require.NoError(t, err)
	_, err = acquire(t.Context(), dir, time.Millisecond)
	require.ErrorIs(t, err, errLocked)
	require.NoError(t, lock.Close())
	again, err := acquire(t.Context(), dir, time.Minute)
	require.NoError(t, err)
	require.NoError(t, again.Close())
}

func TestFolderWithClusterButNoPassword(t *testing.T) {
	t.Parallel()
	owner, err := unprivileged()
	require.NoError(t, err)
	dir := openDir(t)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "data"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "data", "PG_VERSION"), []byte("15\n"), 0o600))
	_, err = openFolder(t.Context(), dir, nil, owner)
	require.ErrorContains(t, err, "no password file")
}

func missing(path string) bool {
	_, err := os.Lstat(path)
	return os.IsNotExist(err)
}
