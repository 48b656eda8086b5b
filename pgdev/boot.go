package pgdev

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// The two failures of a starting postmaster that another try can mend.
var (
	errPortTaken = errors.New("port taken")
	// errOldSessions: sessions of a killed postmaster still hold its shared memory; they leave within moments.
	errOldSessions = errors.New("sessions of the killed server are still leaving")
)

// boot starts the postmaster on the chosen port. When a stranger takes that port between the look and the bind,
// another port is chosen under the same rule as the first.
func (s *Server) boot(ctx context.Context) error {
	err := s.bootOn(ctx, s.port)
	for try := 0; try < 5 && errors.Is(err, errPortTaken); try++ {
		if s.port, err = choosePort(s.opts); err != nil {
			return err
		}
		err = s.bootOn(ctx, s.port)
	}
	return err
}

// bootOn starts the postmaster on one port and waits until it answers, trying again while an earlier one's sessions
// leave.
func (s *Server) bootOn(ctx context.Context, port int) error {
	ctx, cancel := context.WithTimeout(ctx, bootDeadline)
	defer cancel()
	if err := s.configure(port); err != nil {
		return err
	}
	for {
		err := s.bootOnce(ctx, port)
		if !errors.Is(err, errOldSessions) || !pause(ctx, 10*poll) {
			return err
		}
	}
}

// bootOnce is one launch. An error leaves no process behind.
func (s *Server) bootOnce(ctx context.Context, port int) error {
	log, err := os.OpenFile(s.folder.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("pgdev: open server log: %w", err)
	}
	defer log.Close()
	before, err := log.Stat()
	if err != nil {
		return fmt.Errorf("pgdev: open server log: %w", err)
	}
	// Not CommandContext: the server outlives the context of its start.
	cmd := s.owner.command(context.WithoutCancel(ctx), filepath.Join(s.bin.dir, "postgres"), "-D", s.folder.data())
	cmd.Dir = s.folder.data()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{s.folder.lock}
	proc, err := launch(cmd)
	if err != nil {
		return fmt.Errorf("pgdev: start server: %w", err)
	}
	s.proc = proc
	if err := s.awaitReady(ctx, port); err != nil {
		s.proc.destroy()
		return s.explain(err, port, before.Size())
	}
	return nil
}

// awaitReady returns nil once a real connection answers, or the reason why none ever will.
func (s *Server) awaitReady(ctx context.Context, port int) error {
	cfg, err := pgx.ParseConfig(fmt.Sprintf("host=127.0.0.1 port=%d user=%s dbname=postgres sslmode=disable", port,
		superuser))
	if err != nil {
		return err
	}
	cfg.Password = s.folder.password
	cfg.ConnectTimeout = time.Second
	for {
		conn, err := pgx.ConnectConfig(ctx, cfg)
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-s.proc.done:
			return errors.New("it ended at once")
		case <-ctx.Done():
			return fmt.Errorf("no answer: %w", errors.Join(ctx.Err(), err))
		case <-time.After(poll):
		}
	}
}

// explain turns a failed start into an error that carries what the server itself wrote since the log had the size
// `from`.
func (s *Server) explain(err error, port int, from int64) error {
	raw, readErr := os.ReadFile(s.folder.logFile())
	if readErr != nil || int64(len(raw)) < from {
		return fmt.Errorf("pgdev: server on port %d: %w", port, err)
	}
	log := string(raw[from:])
	if cause := diagnose(log); cause != nil {
		err = cause
	}
	return fmt.Errorf("pgdev: server on port %d: %w\n%s", port, err, tail(log))
}

// diagnose recognises in a server log the failures that another try can mend; nil for all others.
func diagnose(log string) error {
	switch {
	case strings.Contains(log, "could not create any TCP/IP sockets"),
		strings.Contains(log, "could not bind IPv4 address"):
		return errPortTaken
	case strings.Contains(log, "pre-existing shared memory block"):
		return errOldSessions
	}
	return nil
}

// tail is the end of a log, as much as a person reads in a terminal.
func tail(log string) string {
	const lines = 12
	all := strings.Split(strings.TrimRight(log, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// pause waits for d and reports whether ctx still lives.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
