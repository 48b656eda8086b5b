package pgdev

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	templateName = "postrider_template"
	// testDeadline bounds each piece of database work around a test, on a machine that runs several packages at once.
	testDeadline = time.Minute
	// administrators is how many CREATE and DROP DATABASE run at once. A clone of a 10 MB template with its drop took 110
	// ms one after the other and 30 ms each with four at once, on two cores: most of it is waiting for checkpoints, which
	// they share.
	administrators = 4
)

// TB is what NewDatabase needs of *testing.T, *testing.B and *testing.F. This package does not import testing,
// because the binary imports this package.
type TB interface {
	Helper()
	Cleanup(func())
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
	Name() string
}

// cluster is the one private server of a test process, with its migrated template database.
type cluster struct {
	server *Server
	serial atomic.Int64
	admins chan *pgx.Conn // the idle ones; nil is one that is still to connect
}

// current is set while RunTests runs. It starts the server when it is first asked for it.
var current atomic.Pointer[func() (*cluster, error)]

// RunTests is the body of a TestMain: it runs the tests with a private server, whose template database migrate has
// filled (nil leaves it empty), and stops the server. It returns the exit code of m, or 1 when the server could not be
// stopped.
//
// The server is started by the first test that needs one, which fails, as the others do, when there is none to be had.
// So a run without such a test takes no second, nor does each worker process of a fuzz test, which runs TestMain, too:
// three servers for one test of a parser, and Go ends a worker that takes longer than a second to stop.
//
//	func TestMain(m *testing.M) { os.Exit(pgdev.RunTests(m, migrations.Up)) }
//
// A goleak check inside the tests sees the goroutine that holds the server; ignore it by
// goleak.IgnoreAnyFunction("postrider/pgdev.(*process).run").
func RunTests(m interface{ Run() int }, migrate func(ctx context.Context, url string) error) int {
	var started atomic.Pointer[cluster]
	start := sync.OnceValues(func() (*cluster, error) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*testDeadline)
		defer cancel()
		c, err := startCluster(ctx, migrate)
		started.Store(c)
		return c, err
	})
	previous := current.Swap(&start)
	code := m.Run()
	current.Store(previous)
	c := started.Load()
	if c == nil {
		return code
	}
	if err := c.stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return max(code, 1)
	}
	return code
}

// TempInMemory has this process put its temporary files (TMPDIR) in memory, where there is room and where programs may
// run. It is for a TestMain whose tests start many servers of their own with Options.Durable: those keep their files in
// the temporary folder. Killed, they lose as little there as on a disk.
func TempInMemory() {
	if memory := memoryRoot(); memory != "" && runsPrograms(memory) {
		_ = os.Setenv("TMPDIR", memory)
	}
}

// NewDatabase gives a test a migrated database of its own, cloned from the template and dropped, sessions and all,
// when the test ends. It returns the database's URL.
//
// On Linux the server of tests keeps its data in memory (/dev/shm) where there are 2 GB to spare: clones came out four
// times faster there than on a virtual disk.
func NewDatabase(tb TB) string {
	tb.Helper()
	return newDatabase(tb, templateName)
}

// EmptyDatabase is NewDatabase without what migrate did: for tests of the migration itself.
func EmptyDatabase(tb TB) string {
	tb.Helper()
	return newDatabase(tb, "template0")
}

func newDatabase(tb TB, template string) string {
	tb.Helper()
	c := running(tb)
	name := databaseName(tb.Name(), c.serial.Add(1))
	// Measured against WAL_LOG with four at once: 32 ms against 55 for a clone and its drop.
	if err := c.run("CREATE DATABASE " + name + " TEMPLATE " + template + " STRATEGY file_copy"); err != nil {
		tb.Fatalf("pgdev: new database: %v", err)
	}
	tb.Cleanup(func() {
		if err := c.run("DROP DATABASE IF EXISTS " + name + " WITH (FORCE)"); err != nil {
			tb.Logf("pgdev: drop database: %v", err)
		}
	})
	return c.server.URL(name)
}

// CurrentServer is the server of this test process, for tests that kill or restart it. Those must not be parallel.
func CurrentServer(tb TB) *Server {
	tb.Helper()
	return running(tb).server
}

func running(tb TB) *cluster {
	tb.Helper()
	start := current.Load()
	if start == nil {
		tb.Fatalf("pgdev: no server: the package's TestMain must call pgdev.RunTests")
	}
	c, err := (*start)()
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return c
}

// databaseName is unique by its serial number and tells in pg_stat_activity which test it belongs to.
func databaseName(test string, serial int64) string {
	plain := strings.Map(func(r rune) rune {
		switch {
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, test)
	return fmt.Sprintf("t%d_%s", serial, plain[:min(len(plain), 40)]) // names end at 63 bytes
}

func startCluster(ctx context.Context, migrate func(context.Context, string) error) (*cluster, error) {
	server, err := Start(ctx,
		Options{Settings: map[string]string{"max_connections": "400"}, Log: os.Stderr, prepare: true})
	if err != nil {
		return nil, err
	}
	c := &cluster{server: server, admins: make(chan *pgx.Conn, administrators)}
	for range administrators {
		c.admins <- nil
	}
	if err := c.makeTemplate(ctx, migrate); err != nil {
		_ = c.stop()
		return nil, err
	}
	return c, nil
}

// makeTemplate closes the template to connections once it is filled: a session in it would fail every clone.
func (c *cluster) makeTemplate(ctx context.Context, migrate func(context.Context, string) error) error {
	if err := c.run("CREATE DATABASE " + templateName); err != nil {
		return fmt.Errorf("pgdev: make template: %w", err)
	}
	if migrate != nil {
		if err := migrate(ctx, c.server.URL(templateName)); err != nil {
			return fmt.Errorf("pgdev: migrate template: %w", err)
		}
	}
	if err := c.run("ALTER DATABASE " + templateName + " WITH ALLOW_CONNECTIONS false IS_TEMPLATE true"); err != nil {
		return fmt.Errorf("pgdev: close template: %w", err)
	}
	// A commit is on its way to the log for up to 0.6 s (synchronous_commit = off): a test that kills the server at once
	// would lose the template.
	if err := c.run("CHECKPOINT"); err != nil {
		return fmt.Errorf("pgdev: keep template: %w", err)
	}
	return nil
}

// run executes one statement about databases, again for a while when the template still has a session that is leaving,
// or when a test restarts the server.
func (c *cluster) run(statement string) error {
	ctx, cancel := context.WithTimeout(context.Background(), testDeadline)
	defer cancel()
	admin := <-c.admins
	defer func() { c.admins <- admin }()
	for {
		var err error
		if admin == nil || admin.IsClosed() {
			admin, err = pgx.Connect(ctx, c.server.URL("postgres"))
		}
		if err == nil {
			_, err = admin.Exec(ctx, statement)
		}
		if err == nil || !passing(err) || !pause(ctx, 4*poll) {
			return err
		}
	}
}

// passing are the failures that time mends: a database in use, a server that starts or stops, a connection that broke.
func passing(err error) bool {
	var refusal *pgconn.PgError
	if !errors.As(err, &refusal) {
		return true
	}
	return slices.Contains([]string{"55006", "57P01", "57P02", "57P03"}, refusal.Code)
}

func (c *cluster) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), testDeadline)
	defer cancel()
	for range administrators {
		if admin := <-c.admins; admin != nil {
			_ = admin.Close(ctx)
		}
	}
	return c.server.Stop(ctx)
}
