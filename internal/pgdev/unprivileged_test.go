//go:build linux

package pgdev

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

func TestServerOfRootRunsAsAnotherUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	s := currentServer(t)
	info, err := os.Stat(filepath.Join("/proc", strconv.Itoa(s.PID())))
	require.NoError(t, err)
	require.NotZero(t, info.Sys().(*syscall.Stat_t).Uid)
	data, err := os.Stat(filepath.Join(s.Dir(), "data"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), data.Mode().Perm())
	require.Equal(t, info.Sys().(*syscall.Stat_t).Uid, data.Sys().(*syscall.Stat_t).Uid)
}

func TestFolderClosedToTheServersUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	closed := openDir(t)
	require.NoError(t, os.Chmod(closed, 0o700))
	_, err := Start(t.Context(), Options{Dir: filepath.Join(closed, "kept")})
	require.ErrorContains(t, err, "may not enter "+closed)
}

// TestServerOutlivesTheThreadOfItsStart: the kernel sends the parent's death signal when the thread that forked ends.
func TestServerOutlivesTheThreadOfItsStart(t *testing.T) {
	t.Parallel()
	type result struct {
		server *Server
		err    error
		thread int
	}
	results := make(chan result)
	var run func()
	run = func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if syscall.Gettid() == os.Getpid() {
			go run() // the first thread of a process stays; while it is held here, this lands on another
			<-t.Context().Done()
			return
		}
		s, err := Start(t.Context(), Options{})
		results <- result{s, err, syscall.Gettid()}
	}
	go run()
	got := <-results
	require.NoError(t, got.err)
	t.Cleanup(func() { require.NoError(t, got.server.Stop(context.Background())) })
	eventually(t, func() bool { return gone(fmt.Sprintf("/proc/self/task/%d", got.thread)) }, "the thread has ended")
	for range 20 {
		require.Equal(t, "1", queryText(t, got.server.URL("postgres"), "SELECT 1"))
	}
}

// TestKilledParentLeavesNoServer kills a process that started a server with the one signal that it cannot handle.
func TestKilledParentLeavesNoServer(t *testing.T) {
	t.Parallel()
	parent := exec.CommandContext(t.Context(), os.Args[0])
	parent.Env = append(os.Environ(), helperVariable+"=1")
	out, err := parent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, parent.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	fields := strings.Fields(line)
	require.Len(t, fields, 3)
	dir, url, guardian := fields[0], fields[1], fields[2]
	session, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer session.Close(context.Background())

	postmaster := postmasterOf(t, dir)
	require.NoError(t, syscall.Kill(postmaster, syscall.SIGSTOP))
	require.NoError(t, parent.Process.Kill())
	_ = parent.Wait()
	eventually(t, func() bool { return gone(dir) || childOf(guardian) == "sleep" }, "the guardian waits for the server")
	require.False(t, gone(dir), "the server has not ended: its directory stays")
	require.NoError(t, syscall.Kill(postmaster, syscall.SIGCONT))
	eventually(t, func() bool { return gone(dir) }, "the server's directory is removed")
	eventually(t, func() bool { return gone(fmt.Sprintf("/proc/%d", postmaster)) }, "the server has ended")
	require.Error(t, session.Ping(t.Context()))
}

// childOf is the program that the only child of a process runs, or "".
func childOf(pid string) string {
	child, _ := os.ReadFile(filepath.Join("/proc", pid, "task", pid, "children"))
	program, _ := os.ReadFile(filepath.Join("/proc", strings.TrimSpace(string(child)), "comm"))
	return strings.TrimSpace(string(program))
}

func postmasterOf(t *testing.T, dir string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "data", "postmaster.pid"))
	require.NoError(t, err)
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(first)
	require.NoError(t, err)
	return pid
}
