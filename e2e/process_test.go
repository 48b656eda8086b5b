package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/local"
	"postrider/internal/testnode"
)

const (
	// patience is for whatever takes a moment on an idle machine, on one that runs other packages' tests as well.
	patience = time.Minute
	pollTime = 10 * time.Millisecond
)

// eventually waits until ok, and fails the test when that takes longer than patience.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	testnode.Within(t, what, ok)
}

// output is what a process has printed so far.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// process is a program that a test started. It ends with the test at the latest.
type process struct {
	t              *testing.T
	cmd            *exec.Cmd
	stdout, stderr output
	done           chan struct{} // closed when it has been reaped
	reaped         error
	readyFile      string // that ready has read
}

// startProcess runs a program with nothing but env as its environment.
func startProcess(t *testing.T, env []string, name string, args ...string) *process {
	t.Helper()
	return startProcessWith(t, childAttributes(), env, name, args...)
}

func startProcessWith(
	t *testing.T, attributes *syscall.SysProcAttr, env []string, name string, args ...string,
) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(name, args...), done: make(chan struct{})}
	p.cmd.Env = append([]string{}, env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	p.cmd.SysProcAttr = attributes
	p.cmd.WaitDelay = 5 * time.Second // a grandchild that holds on to the output
	started := make(chan error, 1)
	go p.run(started)
	require.NoError(t, <-started)
	t.Cleanup(p.end)
	return p
}

// run holds its thread from the fork until the child is reaped: the signal of a parent's death is that of the thread's.
func (p *process) run(started chan<- error) {
	defer close(p.done)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err == nil {
		p.reaped = p.cmd.Wait()
	}
}

func (p *process) end() {
	_ = p.cmd.Process.Kill()
	<-p.done
	if p.t.Failed() {
		p.t.Logf("%s %s printed:\n%s\nand to stderr:\n%s", filepath.Base(p.cmd.Path), strings.Join(p.cmd.Args[1:], " "),
			lastLines(p.stdout.String()), lastLines(p.stderr.String()))
	}
}

// lastLines shortens what a process printed: thousands of lines would push the failure out of a log.
func lastLines(text string) string {
	const most = 40
	lines := strings.SplitAfter(text, "\n")
	if len(lines) <= most {
		return text
	}
	return fmt.Sprintf("(%d lines before)\n%s", len(lines)-most, strings.Join(lines[len(lines)-most:], ""))
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(s))
}

// kill is SIGKILL; it returns when the process is gone. One that has just died at a failpoint is, too.
func (p *process) kill() {
	p.t.Helper()
	if err := p.cmd.Process.Kill(); !errors.Is(err, os.ErrProcessDone) {
		require.NoError(p.t, err)
	}
	<-p.done
}

// stop is SIGTERM; it returns the exit code.
func (p *process) stop() int {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	return p.wait()
}

// wait returns the exit code.
func (p *process) wait() int {
	p.t.Helper()
	return p.waitFor(patience)
}

// waitFor returns the exit code, if the process ends within that time.
func (p *process) waitFor(longest time.Duration) int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(longest):
		require.FailNow(p.t, "the process does not end", "%v", p.cmd.Args)
	}
	return p.cmd.ProcessState.ExitCode()
}

// ready waits for the ready file.
func (p *process) ready(file string) (info local.ReadyInfo) {
	p.t.Helper()
	p.readyFile = file
	eventually(p.t, "the ready file is written", func() bool {
		select {
		case <-p.done:
			require.FailNow(p.t, "the process ended before it was ready", p.stderr.String())
		default:
		}
		raw, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			return false
		}
		require.NoError(p.t, err)
		require.NoError(p.t, json.Unmarshal(raw, &info), "a reader never sees half of it: %s", raw)
		return true
	})
	return info
}

// result is how a program that runs to its end came out.
type result struct {
	code           int
	stdout, stderr string
}

// postrider runs the program to its end, without any environment but what is given.
func postrider(t *testing.T, env []string, args ...string) result {
	t.Helper()
	p := startProcess(t, env, program, args...)
	code := p.wait()
	return result{code, p.stdout.String(), p.stderr.String()}
}

// ownEnvironment is ours without what would set postrider or PostgreSQL up behind the test's back.
func ownEnvironment() []string {
	return slices.DeleteFunc(os.Environ(), func(pair string) bool {
		return strings.HasPrefix(pair, "POSTRIDER_") || strings.HasPrefix(pair, "DATABASE_URL=") ||
			strings.HasPrefix(pair, "PG")
	})
}

// alive is false of a process that is gone, or dead and not yet reaped.
func alive(pid int) bool {
	p, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	if err := p.Signal(syscall.Signal(0)); err != nil && !errors.Is(err, os.ErrPermission) {
		return false
	}
	raw, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	_, state, _ := strings.Cut(string(raw), ") ") // the name before it may hold spaces
	return !strings.HasPrefix(state, "Z")
}

// fromRoot reads a file of the repository.
func fromRoot(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", name))
	require.NoError(t, err)
	return string(raw)
}
