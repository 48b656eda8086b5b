package bench

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

const (
	// readyTimeout is for a service whose database is on the same machine: it needs half a second.
	readyTimeout = 30 * time.Second
	// stopTimeout is above the 20 s in which the service completes running attempts.
	stopTimeout = 30 * time.Second
)

// child is a process of the postrider program, with a log file.
type child struct {
	name     string
	cmd      *exec.Cmd
	log      string
	ready    string // its ready file
	stopping context.CancelFunc
	done     chan struct{} // closed when it has ended
	err      error         // how it ended, once done is closed
}

// startChild runs the program with these arguments. Of the environment it gets ours, without what configures postrider
// or PostgreSQL, and extra. Only stop ends it, and the end of this process (on Linux; elsewhere only an orderly one).
func startChild(dir, name, binary string, extra []string, args ...string) (*child, error) {
	log, err := os.Create(filepath.Join(dir, name+".log"))
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer log.Close()
	c := &child{name: name, log: log.Name(), ready: filepath.Join(dir, name+".json"), done: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	c.cmd, c.stopping = exec.CommandContext(ctx, binary, args...), cancel
	c.cmd.Cancel = func() error { return c.cmd.Process.Signal(syscall.SIGTERM) }
	c.cmd.WaitDelay = stopTimeout
	c.cmd.Stdout, c.cmd.Stderr = log, log
	for _, pair := range os.Environ() {
		if !strings.HasPrefix(pair, "POSTRIDER_") && !strings.HasPrefix(pair, "DATABASE_URL=") &&
			!strings.HasPrefix(pair, "PG") {
			c.cmd.Env = append(c.cmd.Env, pair)
		}
	}
	c.cmd.Env = append(c.cmd.Env, extra...)
	c.cmd.SysProcAttr = childAttributes()
	started := make(chan error, 1)
	go c.run(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return c, nil
}

// startServer is startChild for a program that writes a ready file. It returns when that file has the URL.
func startServer(
	ctx context.Context, dir, name, binary string, extra []string, member string, args ...string,
) (c *child, address string, err error) {
	args = append(args, "--listen", "127.0.0.1:0", "--ready-file", filepath.Join(dir, name+".json"))
	if c, err = startChild(dir, name, binary, extra, args...); err != nil {
		return nil, "", err
	}
	if address, err = c.awaitReady(ctx, member); err != nil {
		return nil, "", errors.Join(err, c.stop())
	}
	return c, address, nil
}

// run keeps its thread until the child has ended. Linux sends the signal of a parent's death when the thread that
// forked ends, and Go ends idle threads.
func (c *child) run(started chan<- error) {
	defer close(c.done)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := c.cmd.Start()
	started <- err
	if err == nil {
		c.err = c.cmd.Wait()
	}
}

// awaitReady returns a member of the ready file.
func (c *child) awaitReady(ctx context.Context, member string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		content := map[string]string{}
		if raw, err := os.ReadFile(c.ready); err == nil && json.Unmarshal(raw, &content) == nil && content[member] != "" {
			return content[member], nil
		}
		select {
		case <-c.done:
			return "", c.ended()
		default:
		}
		if !pause(ctx, 20*time.Millisecond) {
			return "", c.explain(fmt.Errorf("%s is not ready: %w", c.name, ctx.Err()))
		}
	}
}

// ended is the error of a child that ended too early.
func (c *child) ended() error {
	return c.explain(fmt.Errorf("%s ended: %w", c.name, cmp.Or(c.err, errors.New("exit status 0"))))
}

// explain adds the last lines of the child's log.
func (c *child) explain(err error) error {
	raw, _ := os.ReadFile(c.log)
	lines := bytes.Split(bytes.TrimSpace(raw), []byte{'\n'})
	last := bytes.Join(lines[max(len(lines)-15, 0):], []byte{'\n'})
	if len(last) == 0 {
		return err
	}
	return fmt.Errorf("%w; the end of its log:\n%s", err, last)
}

// stop sends SIGTERM, kills a child that takes too long, and returns when it has ended. The error is of a child that
// did not end in order now.
func (c *child) stop() error {
	select {
	case <-c.done:
		return nil
	default:
	}
	c.stopping()
	<-c.done
	if c.err == nil || errors.Is(c.err, context.Canceled) { // what Wait returns of an orderly end
		return nil
	}
	return c.explain(fmt.Errorf("stop %s: %w", c.name, c.err))
}
