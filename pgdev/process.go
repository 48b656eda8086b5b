package pgdev

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// process is a postmaster that this process started and alone reaps.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the postmaster has been reaped
}

// launch starts the command from a thread that lives as long as the child. On Linux a child's death signal fires when
// the thread that forked it ends, not the process, and Go ends idle threads at will.
func launch(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go p.run(started)
	return p, <-started
}

// run holds its thread from the fork until the child is reaped.
func (p *process) run(started chan<- error) {
	defer close(p.done)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	if !kernelGuards {
		if g, err := guard(p.pid()); err == nil { // without one only the death of this process by SIGKILL leaves a server
			defer g.release()
		}
	}
	_ = p.cmd.Wait() // how a postmaster ended is in its log; that it ended is what callers ask
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// signal is nil for a process that has ended already.
func (p *process) signal(sig os.Signal) error {
	err := p.cmd.Process.Signal(sig)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// shutdown asks for a fast shutdown (SIGINT), then, when ctx or the deadline ends, for an immediate one (SIGQUIT).
func (p *process) shutdown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopDeadline)
	defer cancel()
	if err := p.signal(syscall.SIGINT); err != nil {
		return fmt.Errorf("pgdev: stop server: %w", err)
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		p.destroy()
	}
	return nil
}

// destroy returns when the postmaster is gone: by an immediate shutdown, or by SIGKILL after quitDeadline.
func (p *process) destroy() {
	_ = p.signal(syscall.SIGQUIT)
	select {
	case <-p.done:
	case <-time.After(quitDeadline):
		_ = p.signal(syscall.SIGKILL)
		<-p.done
	}
}
