// Package pgdev finds, starts and stops a private PostgreSQL: one for the dev verb, one per test process, one per
// benchmark. It listens on 127.0.0.1 with a random password, and stops when the process ends that started it. Package
// pgdev never uses a server that runs already, and is not for production.
package pgdev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	superuser    = "postgres"       // PostgreSQL's default name: no role of postrider's schema has it
	shm          = "/dev/shm"       // a file system in memory on Linux
	bootDeadline = 2 * time.Minute  // with the crash recovery of a kept directory: up to max_wal_size (4 GB) of WAL
	lockDeadline = 10 * time.Second // of a kept directory: the server of a killed run may be in its last checkpoint
	stopDeadline = 20 * time.Second // of a fast shutdown
	quitDeadline = 5 * time.Second  // of an immediate shutdown
	poll         = 5 * time.Millisecond
)

// Options configure Start. The zero value is a server for tests: a free port, a temporary directory, not durable.
type Options struct {
	Dir      string            // keeps the data between runs; empty is a temporary directory, which Stop removes
	Port     int               // on 127.0.0.1; if it is 0 or cannot be used, a free one
	Settings map[string]string // override the defaults in postgresql.conf
	Durable  bool              // fsync and full_page_writes are on, for benchmarks and for data to keep
	Log      io.Writer         // receives progress lines for a person; nil discards them

	// Content names what Fill adds to a new cluster. It is added once: later clusters of this name, also those of other
	// processes, are copies. Empty = a new cluster is PostgreSQL's.
	Content string
	Fill    func(context.Context, *Server) error

	cache string // replaces owner.cacheDir in tests
}

// Server is a running private PostgreSQL. Its methods may be called from several goroutines.
type Server struct {
	opts     Options
	owner    owner
	dir      string // has data/ (the cluster) and postgres.log
	bin      installation
	password string
	port     int
	guardian *guardian

	mu      sync.Mutex
	proc    *process
	stopped bool
}

// Start finds or fetches PostgreSQL, creates the cluster if there is none, starts the server and waits until it accepts
// connections. The error of a failed start ends with the server's log. The server outlives ctx: only Stop, Kill or the
// end of this process ends it.
func Start(ctx context.Context, opts Options) (*Server, error) {
	owner, err := unprivileged()
	if err != nil {
		return nil, fmt.Errorf("pgdev: %w", err)
	}
	if opts.cache == "" {
		opts.cache, err = owner.cacheDir()
	}
	if err := errors.Join(err, openToAll(opts.cache)); err != nil {
		return nil, fmt.Errorf("pgdev: %w", err)
	}
	s := &Server{opts: opts, owner: owner}
	if opts.Log == nil {
		s.opts.Log = io.Discard
	}
	if err := s.start(ctx); err != nil {
		return nil, fmt.Errorf("pgdev: %w", errors.Join(err, s.close()))
	}
	return s, nil
}

// openDir creates or reuses the directory of the options. Temporary data that need not be durable are in memory.
func (s *Server) openDir() error {
	err := s.createDir()
	if err != nil {
		return err
	}
	if s.guardian, err = guard(s.dir, s.opts.Dir == ""); err != nil {
		return err
	}
	if !s.owner.canEnter(s.dir) {
		return fmt.Errorf("PostgreSQL does not run as root, and the user %s, which runs it, may not enter %s: choose "+
			"another directory, such as /var/lib/postrider, or start postrider as another user", s.owner.name, s.dir)
	}
	return nil
}

func (s *Server) createDir() error {
	var err error
	if s.opts.Dir != "" {
		if s.dir, err = filepath.Abs(s.opts.Dir); err != nil {
			return err
		}
		return os.MkdirAll(s.dir, 0o755)
	}
	root := os.TempDir()
	if space, _ := memory(); space && !s.opts.Durable {
		root = shm
	}
	if s.dir, err = os.MkdirTemp(root, "postrider-pg-"); err != nil {
		return err
	}
	return openToAll(s.dir)
}

func (s *Server) file(name string) string { return filepath.Join(s.dir, name) }

// openToAll creates a directory in which the owner can reach its files. Its private files have mode 0600.
func openToAll(dir string) error { return errors.Join(os.MkdirAll(dir, 0o755), os.Chmod(dir, 0o711)) }

func (s *Server) start(ctx context.Context) error {
	if err := s.openDir(); err != nil {
		return err
	}
	raw, err := os.ReadFile(s.file("data/PG_VERSION"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read version of the data: %w", err)
	}
	major, _ := strconv.Atoi(strings.TrimSpace(string(raw))) // 0: there is no cluster yet
	if s.bin, err = programs(ctx, s.owner, s.opts, major); err != nil {
		return err
	}
	if major == 0 {
		if err := s.createCluster(ctx); err != nil {
			return fmt.Errorf("create cluster: %w", err)
		}
	}
	password, err := os.ReadFile(s.file("data/" + passwordFile))
	if err != nil {
		return fmt.Errorf("%s has a cluster but no password file: choose another directory: %w", s.dir, err)
	}
	s.password = string(password)
	wanted := s.opts.Port
	for range 5 { // another process may take the port first
		s.port = choosePort(s.opts.Log, wanted)
		if err = s.boot(ctx); err == nil || !strings.Contains(err.Error(), "could not create any TCP/IP sockets") {
			break
		}
		wanted = 0
	}
	return err
}

// close removes a temporary directory. It retries for a while, because sessions of a killed server may still write.
func (s *Server) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), quitDeadline)
	defer cancel()
	var err error
	for s.opts.Dir == "" && s.dir != "" {
		if err = os.RemoveAll(s.dir); err == nil || !pause(ctx, 10*poll) {
			break
		}
	}
	if s.guardian != nil {
		_ = s.guardian.cmd.Process.Kill()
		_ = s.guardian.cmd.Wait()
	}
	return err
}

// URL is the address of a database for the superuser, with the password.
func (s *Server) URL(database string) string {
	return fmt.Sprintf("postgres://%s:%s@127.0.0.1:%d/%s?sslmode=disable", superuser, s.password, s.port, database)
}

// Port is the TCP port on 127.0.0.1.
func (s *Server) Port() int { return s.port }

// Dir is the directory of the data and the log.
func (s *Server) Dir() string { return s.dir }

// Binaries is the directory of the server's programs. Some installations have no pg_dump there.
func (s *Server) Binaries() string { return s.bin.dir }

// Version is the server's release, for example "15.18".
func (s *Server) Version() string { return s.bin.version }

// PID is the process id of the postmaster, also after it ended.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc.cmd.Process.Pid
}

// CreateDatabase creates an empty database unless it exists.
func (s *Server) CreateDatabase(ctx context.Context, name string) error {
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return fmt.Errorf("pgdev: create database %s: %w", name, err)
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize())
	var rejected *pgconn.PgError
	if err != nil && (!errors.As(err, &rejected) || rejected.Code != "42P04") { // duplicate_database
		return fmt.Errorf("pgdev: create database %s: %w", name, err)
	}
	return nil
}

// Stop shuts the server down and removes a temporary directory. The shutdown is an immediate one if no data are kept,
// because the last checkpoint would take 0.1 s of CPU, and when ctx or 20 s end.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil
	}
	s.stopped = true
	if s.opts.Dir == "" {
		s.proc.quit()
	} else {
		s.proc.stop(ctx)
	}
	return s.close()
}

// Kill ends the postmaster with SIGKILL, as a crash would. Its sessions end shortly after.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.proc.kill() {
		return errors.New("pgdev: the killed server does not end")
	}
	return nil
}

// Restart shuts the server down unless it is down, and starts it with the same port and data.
func (s *Server) Restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return errors.New("pgdev: restart: the server was stopped for good")
	}
	s.proc.stop(ctx)
	if err := s.boot(ctx); err != nil {
		return fmt.Errorf("pgdev: restart: %w", err)
	}
	return nil
}

// Outgoing connections have higher ports (Linux: from 32768): none takes the server's port while it restarts.
const lowestFreePort, highestFreePort = 20000, 32767

// choosePort returns the wanted port, or a free one if it is 0 or unusable.
func choosePort(out io.Writer, wanted int) int {
	port := wanted
	for port == 0 || unusable(port) != "" {
		port = lowestFreePort + rand.IntN(highestFreePort-lowestFreePort+1)
	}
	if port != wanted && wanted != 0 {
		fmt.Fprintf(out, "Port %d %s; using %d instead.\n", wanted, unusable(wanted), port)
	}
	return port
}

// unusable returns why PostgreSQL cannot listen on the port, or "". It also connects, because on macOS a bind succeeds
// beside a listener on all addresses.
func unusable(port int) string {
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	if conn, err := net.DialTimeout("tcp", address, time.Second); err == nil {
		conn.Close()
		return "is taken"
	}
	var listen net.ListenConfig
	listener, err := listen.Listen(context.Background(), "tcp", address)
	if err == nil {
		listener.Close()
		return ""
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		return "is taken"
	}
	return "cannot be used"
}

// boot starts the postmaster and waits until it accepts connections. It retries what ends by itself: a server of a
// killed run, or sessions of a killed postmaster, which hold its port until they have closed it.
func (s *Server) boot(ctx context.Context) error {
	if err := s.write(s.file("data/postgresql.conf"), config(s.opts, s.port)); err != nil {
		return fmt.Errorf("write settings: %w", err)
	}
	passing := regexp.MustCompile(`lock file ".*" already exists|pre-existing shared memory block|` +
		`could not bind .*: Address already in use`)
	for end := time.Now().Add(lockDeadline); ; {
		log, err := s.bootOnce(ctx)
		if err == nil {
			return nil
		}
		if !passing.MatchString(log) || time.Now().After(end) || !pause(ctx, 10*poll) {
			return fmt.Errorf("%w\n%s", err, tail(log))
		}
	}
}

// bootOnce is one try. An error leaves no process behind, and comes with the server's log of this try.
func (s *Server) bootOnce(ctx context.Context) (text string, err error) {
	ctx, cancel := context.WithTimeout(ctx, bootDeadline)
	defer cancel()
	log, err := os.OpenFile(s.file("postgres.log"), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return "", fmt.Errorf("open server log: %w", err)
	}
	defer log.Close()
	before, _ := log.Seek(0, io.SeekEnd)
	// The server outlives the context of its start.
	cmd := s.owner.command(context.WithoutCancel(ctx), filepath.Join(s.bin.dir, "postgres"), "-D", s.file("data"))
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("start server: %w", err)
	}
	fmt.Fprintln(s.guardian.pipe, cmd.Process.Pid)
	s.proc = &process{cmd, make(chan struct{})}
	go s.proc.run()
	if err := s.awaitReady(ctx); err != nil {
		s.proc.stop(ctx)
		text, _ := io.ReadAll(io.NewSectionReader(log, before, 1<<20))
		return string(text), fmt.Errorf("server on port %d: %w", s.port, err)
	}
	return "", nil
}

// awaitReady returns nil when the server accepts connections, or the reason why it does not. It reads what the server
// writes for pg_ctl: each rejected connection would start a process, fifty of them until the server is ready.
func (s *Server) awaitReady(ctx context.Context) error {
	for {
		if state, _ := os.ReadFile(s.file("data/postmaster.pid")); s.isReady(string(state)) {
			return nil
		}
		select {
		case <-s.proc.done:
			return errors.New("it ended at once")
		case <-ctx.Done():
			return fmt.Errorf("not ready: %w", context.Cause(ctx))
		case <-time.After(poll):
		}
	}
}

// isReady reports whether the lines of a postmaster.pid are this server's and end with its state "ready".
func (s *Server) isReady(state string) bool {
	lines := strings.Split(state, "\n")
	return len(lines) >= 8 && lines[0] == strconv.Itoa(s.proc.cmd.Process.Pid) && strings.TrimSpace(lines[7]) == "ready"
}

// tail is the last twelve lines.
func tail(log string) string {
	lines := strings.Split(strings.TrimRight(log, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-12):], "\n")
}

// pause waits for d, and reports false if ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// guardian is a shell that, when this process ends, even by SIGKILL, stops the postmaster and removes a temporary
// directory. It reads the postmaster's process ids from a pipe, which ends with this process.
type guardian struct {
	cmd  *exec.Cmd
	pipe io.WriteCloser
}

const guardianScript = `trap '' HUP INT TERM
while read -r line; do pid=$line; done
kill -INT "$pid"
for _ in $(seq 300); do kill -0 "$pid" || break; sleep 0.1; done
! "$2" || rm -rf "$1"`

func guard(dir string, temporary bool) (*guardian, error) {
	cmd := exec.Command("/bin/sh", "-c", guardianScript, "sh", dir, strconv.FormatBool(temporary))
	cmd.SysProcAttr = ownGroup()
	pipe, err := cmd.StdinPipe()
	if err := errors.Join(err, cmd.Start()); err != nil {
		return nil, err
	}
	return &guardian{cmd, pipe}, nil
}

// process is a postmaster that this process started.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the postmaster has ended
}

func (p *process) run() {
	_ = p.cmd.Wait() // the server's log has the reason of a failure
	close(p.done)
}

// stop ends the postmaster by a fast shutdown, after ctx or the deadline by an immediate one, at last by SIGKILL.
func (p *process) stop(ctx context.Context) {
	if !p.ends(ctx, syscall.SIGINT, stopDeadline) {
		p.quit()
	}
}

func (p *process) quit() { _ = p.ends(context.Background(), syscall.SIGQUIT, quitDeadline) || p.kill() }

func (p *process) kill() bool { return p.ends(context.Background(), syscall.SIGKILL, time.Minute) }

// ends sends a signal and reports whether the postmaster ends in time.
func (p *process) ends(ctx context.Context, signal os.Signal, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_ = p.cmd.Process.Signal(signal) // it fails if the postmaster has ended
	select {
	case <-p.done:
		return true
	case <-ctx.Done():
		return false
	}
}

// TempInMemory puts the temporary files of a test process, also of durable servers, in memory if it has enough space.
func TempInMemory() {
	if space, programs := memory(); space && programs {
		_ = os.Setenv("TMPDIR", shm)
	}
}
