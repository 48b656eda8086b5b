package bench

import (
	"bytes"
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
	// readyDeadline is for a service whose database is on the same machine: it needs half a second.
	readyDeadline = 30 * time.Second
	// stopDeadline is above the 20 s that the service lets attempts in flight finish.
	stopDeadline = 30 * time.Second
	readyPoll    = 20 * time.Millisecond
	logLines     = 15
)

// child is a process of the postrider binary that this process started. What it prints is in its log file.
type child struct {
	name string // for people
	cmd  *exec.Cmd
	log  string
	done chan struct{} // closed when it has been reaped
	err  error         // how it ended, once done is closed
}

// startChild runs the binary with these arguments, logging to dir/name.log. Of the environment it gets ours, without
// what would set postrider or PostgreSQL up behind our back, and extra. It outlives every context: only stop ends it,
// and the end of this process (on Linux; elsewhere only an orderly one).
func startChild(dir, name, binary string, extra []string, args ...string) (*child, error) {
	log, err := os.Create(filepath.Join(dir, name+".log"))
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer log.Close()
	c := &child{name: name, log: log.Name(), done: make(chan struct{})}
	c.cmd = exec.Command(binary, args...) // ended by stop, not by a context
	c.cmd.Stdout, c.cmd.Stderr = log, log
	c.cmd.Env = append(childEnvironment(os.Environ()), extra...)
	c.cmd.SysProcAttr = childAttributes()
	started := make(chan error, 1)
	go c.run(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return c, nil
}

// run holds its thread from the fork until the child is reaped: on Linux the signal that a parent's death sends goes
// out when the thread that forked ends, and Go ends idle threads at will.
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

func childEnvironment(inherited []string) []string {
	var kept []string
	for _, pair := range inherited {
		if !strings.HasPrefix(pair, "POSTRIDER_") && !strings.HasPrefix(pair, "DATABASE_URL=") &&
			!strings.HasPrefix(pair, "PG") {
			kept = append(kept, pair)
		}
	}
	return kept
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// ready waits until the child has written its ready file and returns the member asked for.
func (c *child) ready(ctx context.Context, file, member string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, readyDeadline)
	defer cancel()
	poll := time.NewTicker(readyPoll)
	defer poll.Stop()
	for {
		content := map[string]string{}
		if raw, err := os.ReadFile(file); err == nil && json.Unmarshal(raw, &content) == nil && content[member] != "" {
			return content[member], nil
		}
		select {
		case <-poll.C:
		case <-c.done:
			return "", c.ended()
		case <-ctx.Done():
			return "", c.explain(fmt.Errorf("%s is not ready: %w", c.name, ctx.Err()))
		}
	}
}

// ended is the error of a child that was not meant to end yet.
func (c *child) ended() error {
	if c.err == nil {
		return c.explain(fmt.Errorf("%s ended", c.name))
	}
	return c.explain(fmt.Errorf("%s ended: %w", c.name, c.err))
}

// explain adds the last lines of the child's log.
func (c *child) explain(err error) error {
	raw, readErr := os.ReadFile(c.log)
	lines := lastLines(raw, logLines)
	if readErr != nil || lines == "" {
		return err
	}
	return fmt.Errorf("%w; the last it printed:\n%s", err, lines)
}

func lastLines(raw []byte, n int) string {
	lines := bytes.Split(bytes.TrimSpace(raw), []byte{'\n'})
	return string(bytes.Join(lines[max(len(lines)-n, 0):], []byte{'\n'}))
}

// wait returns when the child has ended; nil when it was successful. When ctx ends first, the child is stopped.
func (c *child) wait(ctx context.Context) error {
	select {
	case <-c.done:
	case <-ctx.Done():
		return errors.Join(ctx.Err(), c.stop())
	}
	if c.err != nil {
		return c.ended()
	}
	return nil
}

// stop asks the child to end (SIGTERM), kills it when it takes too long, and returns when it is gone. A child that
// ended before is left as it is. The error is of one that did not end in order.
func (c *child) stop() error {
	select {
	case <-c.done:
		return nil
	default:
	}
	if c.cmd.Process.Signal(syscall.SIGTERM) != nil { // no such signal on this system, or it ends right now
		_ = c.cmd.Process.Kill()
	}
	late := time.NewTimer(stopDeadline)
	defer late.Stop()
	select {
	case <-c.done:
	case <-late.C:
		_ = c.cmd.Process.Kill()
		<-c.done
		return c.explain(fmt.Errorf("%s did not stop within %s and was killed", c.name, stopDeadline))
	}
	if c.err != nil {
		return c.explain(fmt.Errorf("stop %s: %w", c.name, c.err))
	}
	return nil
}
