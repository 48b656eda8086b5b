package pgdev_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"postrider/pgdev"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

func TestNewDatabase(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	seen := map[string]bool{}
	t.Run("twenty at once", func(t *testing.T) {
		for n := range 20 {
			t.Run(fmt.Sprintf("clone %d", n), func(t *testing.T) {
				t.Parallel()
				url := pgdev.NewDatabase(t)
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
	left := queryText(t, pgdev.CurrentServer(t).URL("postgres"),
		"SELECT coalesce(string_agg(datname, ' '), '') FROM pg_database")
	for name := range seen {
		require.NotContains(t, strings.Fields(left), name, "dropped when its test ended")
	}
}

func TestEmptyDatabase(t *testing.T) {
	t.Parallel()
	require.Equal(t, "true", queryText(t, pgdev.EmptyDatabase(t), "SELECT (to_regclass('migrated') IS NULL)::text"),
		"it is not migrated")
}

// TestTempInMemory checks the directory of temporary files: in memory, or unchanged.
func TestTempInMemory(t *testing.T) {
	disk := t.TempDir()
	t.Setenv("TMPDIR", disk)
	pgdev.TempInMemory()
	if os.TempDir() == disk {
		t.Skip("no space in memory, or no programs may run there")
	}
	require.Equal(t, "/dev/shm", os.TempDir())
	script := filepath.Join(t.TempDir(), "script")
	require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\necho runs\n"), 0o700))
	out, err := exec.CommandContext(t.Context(), script).Output()
	require.NoError(t, err)
	require.Equal(t, "runs\n", string(out), "tests put programs there")
}

func TestTemplateTakesNoSessions(t *testing.T) {
	t.Parallel()
	_, err := pgx.Connect(t.Context(), pgdev.CurrentServer(t).URL("postrider_template"))
	require.ErrorContains(t, err, "not currently accepting connections")
}

type suite func() int

func (s suite) Run() int { return s() }

//nolint:paralleltest // it takes the place of this process's server, and of its stderr
func TestRunTests(t *testing.T) {
	silence(t)
	outer := pgdev.CurrentServer(t)
	require.Equal(t, 7, pgdev.RunTests(suite(func() int {
		require.NotEqual(t, outer.PID(), pgdev.CurrentServer(t).PID())
		return 7
	}), nil), "the suite's own exit code")
	require.Equal(t, outer, pgdev.CurrentServer(t))
}

// A run of tests that need no database starts no server, and one whose server cannot be had fails those that do.
//
//nolint:paralleltest // it takes the place of this process's server, and of its stderr
func TestRunTestsStartsOnDemand(t *testing.T) {
	silence(t)
	calls := 0
	broken := func(context.Context, string) error { calls++; return errors.New("no such file") }
	require.Zero(t, pgdev.RunTests(suite(func() int { return 0 }), broken))
	require.Zero(t, calls)
	var stub failing
	require.Equal(t, 1, pgdev.RunTests(suite(func() int {
		for range 2 {
			stub.catch(t, func() { pgdev.NewDatabase(&stub) })
		}
		return 1
	}), broken))
	require.Equal(t, 1, calls, "once, for all tests")
	require.Len(t, stub.messages, 2, "tests do not run on a schema that failed")
	require.Contains(t, stub.messages[1], "no such file")
}

// failing is a test that fails and keeps the messages.
type failing struct{ messages []string }

func (f *failing) Helper()             {}
func (f *failing) Cleanup(func())      {}
func (f *failing) Logf(string, ...any) {}
func (f *failing) Name() string        { return "failing" }
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

// TestNewDatabaseAfterACrash kills the server under the connections that make databases.
func TestNewDatabaseAfterACrash(t *testing.T) { //nolint:paralleltest // it kills this process's server
	require.NoError(t, pgdev.CurrentServer(t).Kill())
	require.NoError(t, pgdev.CurrentServer(t).Restart(t.Context()))
	require.Equal(t, "0", queryText(t, pgdev.NewDatabase(t), "SELECT count(*) FROM migrated"))
}

func silence(t *testing.T) {
	t.Helper()
	old := os.Stderr
	t.Cleanup(func() { os.Stderr = old })
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	require.NoError(t, err)
	os.Stderr = null
}
