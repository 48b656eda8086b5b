package pgdev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// superuser owns the private cluster. It is PostgreSQL's own default name, so that it cannot collide with a role of
	// the schema's.
	superuser = "postgres"
	// bootDeadline covers the crash recovery of a kept folder: up to max_wal_size (4 GB) of WAL to replay.
	bootDeadline = 2 * time.Minute
	// quitDeadline is how long an immediate shutdown may take before the postmaster is killed.
	quitDeadline = 5 * time.Second
	// stopDeadline is how long a fast shutdown may take when the caller's context sets no earlier end.
	stopDeadline = 20 * time.Second
	// poll is the pause between two looks at something that is about to become true.
	poll = 5 * time.Millisecond
)

// Options says what kind of private server Start makes. The zero value is a server for tests:
// any free port, a temporary folder, no durability, no progress lines.
type Options struct {
	// Dir keeps the data between runs. Empty means a temporary folder that Stop removes.
	Dir string
	// Port is the wanted TCP port on 127.0.0.1. 0 means any free one.
	Port int
	// Settings are added to, and win over, the package's own lines of postgresql.conf.
	Settings map[string]string
	// Durable keeps fsync, synchronous_commit and full_page_writes on. Without it a crash of the machine
	// (not of the server) may lose data: right for tests, wrong for anything that is measured or kept.
	Durable bool
	// Log receives progress lines meant for a person. Nil discards them.
	Log io.Writer
	// Fallback takes a free port when Port is taken, and says so in one line on Log, instead of failing.
	Fallback bool

	prepare bool // have a cluster prepared for this server and those after it
}

// Server is one running private PostgreSQL. Its methods may be called from several goroutines.
type Server struct {
	opts   Options
	bin    installation
	owner  identity
	folder *folder

	mu      sync.Mutex
	port    int
	proc    *process
	stopped bool
}

// Start finds the server programs (installing them if need be), prepares the data folder, starts the server and returns
// when it has answered a query. Its errors say what to do next; one about a server that did not come up ends with the
// last lines of the server's log. The server outlives ctx: only Stop, Kill or the end of this process ends it.
func Start(ctx context.Context, opts Options) (*Server, error) {
	return startWith(ctx, opts, programs)
}

// finder gets the server programs for data of a major version, 0 where there are no data yet.
type finder func(ctx context.Context, owner identity, major int, log io.Writer) (installation, error)

func startWith(ctx context.Context, opts Options, find finder) (*Server, error) {
	if opts.Log == nil {
		opts.Log = io.Discard
	}
	owner, err := unprivileged()
	if err != nil {
		return nil, err
	}
	for _, root := range []string{"/dev/shm", os.TempDir(), "/tmp"} {
		sweep(root) // in memory too when it is full: what fills it may be ours
	}
	f, err := openFolder(ctx, opts.Dir, owner.tempRoots(opts.Durable), owner)
	if err != nil {
		return nil, err
	}
	s := &Server{opts: opts, owner: owner, folder: f}
	if err := s.start(ctx, find); err != nil {
		return nil, errors.Join(err, f.close())
	}
	return s, nil
}

// start runs the steps that need the locked folder: programs that fit its data, a cluster in it, a port, a postmaster.
func (s *Server) start(ctx context.Context, find finder) error {
	major, err := s.folder.major()
	if err != nil {
		return err
	}
	if s.bin, err = find(ctx, s.owner, major, s.opts.Log); err != nil {
		return err
	}
	if major == 0 {
		if err := s.initialise(ctx); err != nil {
			return err
		}
	}
	if s.port, err = choosePort(s.opts); err != nil {
		return err
	}
	return s.boot(ctx)
}

// URL is the address of one of the server's databases as superuser, password included.
func (s *Server) URL(database string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(superuser, s.folder.password),
		Host:     net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port())),
		Path:     "/" + database,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// Port is the TCP port on 127.0.0.1.
func (s *Server) Port() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.port
}

// PID is the process id of the postmaster, also of one that has ended.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc.pid()
}

// Dir is the folder that holds the data, the password and the log.
func (s *Server) Dir() string { return s.folder.path }

// Version is the server's version as its program prints it, such as "15.18" or "18.4".
func (s *Server) Version() string { return s.bin.version.String() }

// Binaries is the folder of the server programs in use.
func (s *Server) Binaries() string { return s.bin.dir }

// LogFile is the path of the server's own log.
func (s *Server) LogFile() string { return s.folder.logFile() }

// CreateDatabase makes an empty database unless one of that name exists.
func (s *Server) CreateDatabase(ctx context.Context, name string) error {
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return fmt.Errorf("pgdev: create database %s: %w", name, err)
	}
	defer conn.Close(ctx)
	var exists bool
	err = conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name).Scan(&exists)
	if err == nil && !exists {
		_, err = conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize())
	}
	if err != nil {
		return fmt.Errorf("pgdev: create database %s: %w", name, err)
	}
	return nil
}

// Stop ends the server with a fast shutdown: sessions are cut, transactions rolled back, a checkpoint written. When ctx
// ends (or 20 s pass) first, the server is made to quit at once, which is safe but costs a recovery at the next start.
// Temporary data are removed. A second Stop does nothing.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil
	}
	s.stopped = true
	return errors.Join(s.proc.shutdown(ctx), s.folder.close())
}

// Kill ends the postmaster with SIGKILL and returns once it is gone, as a crash of the database would. Its sessions
// notice within moments by themselves. Restart brings the server back.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.proc.signal(syscall.SIGKILL); err != nil {
		return fmt.Errorf("pgdev: kill server: %w", err)
	}
	<-s.proc.done
	return nil
}

// Restart ends the server with a fast shutdown, unless it is down already, and starts it on the same port and data.
func (s *Server) Restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return errors.New("pgdev: restart: the server was stopped for good")
	}
	if err := s.proc.shutdown(ctx); err != nil {
		return err
	}
	return s.bootOn(ctx, s.port)
}

// initialise makes the cluster beside its final place and renames it, so that a run killed halfway leaves nothing that
// looks like a cluster. A temporary one is copied where one is prepared.
func (s *Server) initialise(ctx context.Context) error {
	fresh := s.folder.data() + ".new"
	if s.opts.prepare {
		if err := prepare(ctx, s.owner, s.bin); err != nil {
			fmt.Fprintln(s.opts.Log, err) // it costs half a second
		}
	}
	if !s.folder.temporary || copyPrepared(ctx, s.owner, s.bin, fresh, s.folder.password) != nil {
		// --no-sync: a fresh cluster that a power cut spoils is simply made again.
		if err := initdb(ctx, s.owner, s.bin, fresh, "--pwfile="+s.folder.passwordFile(), "--no-sync"); err != nil {
			return err
		}
	}
	if err := os.Rename(fresh, s.folder.data()); err != nil {
		return fmt.Errorf("pgdev: keep data folder: %w", err)
	}
	return nil
}

// initdb makes a cluster in a folder, from which all else is removed.
func initdb(ctx context.Context, owner identity, bin installation, dir string, more ...string) error {
	if err := emptyFolder(owner, dir); err != nil {
		return err
	}
	args := append(clusterArgs(bin.version), more...)
	cmd := owner.command(ctx, filepath.Join(bin.dir, "initdb"), append(args, "--pgdata="+dir)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("pgdev: initdb: %w\n%s", err, tail(string(out)))
	}
	return nil
}

// emptyFolder makes a folder that only the server's user enters, or empties the one that a killed run left.
func emptyFolder(owner identity, dir string) error {
	err := os.RemoveAll(dir)
	if err == nil {
		err = owner.mkdir(dir)
	}
	if err != nil {
		return fmt.Errorf("pgdev: prepare data folder: %w", err)
	}
	return nil
}

// clusterArgs are what every cluster is made with.
func clusterArgs(v version) []string {
	return append([]string{"--username=" + superuser, "--auth=scram-sha-256", "--encoding=UTF8", "--no-instructions"},
		localeArgs(v)...)
}

// localeArgs asks for an order by code point, the same on every system. From 17 on PostgreSQL brings that order
// together with Unicode letter case of its own; before, plain C gives the order, and knows the case of ASCII letters
// only.
func localeArgs(v version) []string {
	if v.major >= 17 {
		return []string{"--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"}
	}
	return []string{"--locale=C"}
}
