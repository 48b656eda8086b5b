package pgdev

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
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
	testDeadline = time.Minute // of each statement about databases, on a busy machine
	// administrators is how many CREATE and DROP DATABASE run at once. A clone with its drop took 110 ms one after the
	// other and 30 ms each with four at once, on two cores: they share the checkpoints that they wait for.
	administrators = 4
)

// TB is the part of testing.TB that this package uses. The binary, which imports it, must not import testing.
type TB interface {
	Helper()
	Cleanup(func())
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
	Name() string
}

type cluster struct {
	server *Server
	serial atomic.Int64
	admins chan *pgx.Conn // idle connections; nil is one that is not connected yet
}

// current is set while RunTests runs. The first call starts the server.
var current atomic.Pointer[func() (*cluster, error)]

// RunTests is the body of a TestMain: it runs the tests with a private server and fills its template database with
// migrate, unless that is nil. It returns the exit code of m, or 1 if the server cannot be stopped. The first test that
// needs the server starts it; fuzz workers start none. Ignore postrider/pgdev.(*process).run in goleak.
func RunTests(m interface{ Run() int }, migrate func(ctx context.Context, url string) error) int {
	var started *cluster
	start := sync.OnceValues(func() (c *cluster, err error) {
		started, err = startCluster(migrate)
		return started, err
	})
	previous := current.Swap(&start)
	code := m.Run()
	current.Store(previous)
	if started == nil {
		return code
	}
	if err := started.stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return max(code, 1)
	}
	return code
}

// TempInMemory puts the temporary files of a test process, also of durable servers, in memory if it has enough space.
func TempInMemory() {
	if space, programs := memory(); space && programs {
		_ = os.Setenv("TMPDIR", shm)
	}
}

// NewDatabase creates a migrated database for a test, drops it when the test ends, and returns its URL.
func NewDatabase(tb TB) string {
	tb.Helper()
	return newDatabase(tb, templateName)
}

// EmptyDatabase is NewDatabase without the migration.
func EmptyDatabase(tb TB) string {
	tb.Helper()
	return newDatabase(tb, "template0")
}

func newDatabase(tb TB, template string) string {
	tb.Helper()
	c := running(tb)
	name := databaseName(tb.Name(), c.serial.Add(1))
	// A clone and its drop took 32 ms, and 55 ms with the strategy WAL_LOG, four at once.
	if err := c.run("CREATE DATABASE " + name + " TEMPLATE " + template + " STRATEGY file_copy"); err != nil {
		tb.Fatalf("pgdev: new database: %v", err)
	}
	tb.Cleanup(func() {
		if err := c.run("DROP DATABASE IF EXISTS " + name + " WITH (FORCE)"); err != nil {
			tb.Logf("pgdev: drop database: %v", err)
		}
	})
	return c.server.URL(name) + "&connect_timeout=60" // a busy machine took more than 15 s
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

var notInNames = regexp.MustCompile(`[^a-z0-9]`)

// databaseName is unique by its serial number, and shows the test in pg_stat_activity. PostgreSQL's limit is 63 bytes.
func databaseName(test string, serial int64) string {
	plain := notInNames.ReplaceAllString(strings.ToLower(test), "_")
	return fmt.Sprintf("t%d_%s", serial, plain[:min(len(plain), 40)])
}

// startCluster rejects connections to the template after the migration: a session in it would fail every clone.
// CHECKPOINT preserves it if a test kills the server: with synchronous_commit = off, commits are written up to 0.6 s
// later.
func startCluster(migrate func(context.Context, string) error) (*cluster, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*testDeadline)
	defer cancel()
	server, err := Start(ctx, Options{Settings: map[string]string{"max_connections": "400"}, Log: os.Stderr})
	if err != nil {
		return nil, err
	}
	c := &cluster{server: server, admins: make(chan *pgx.Conn, administrators)}
	for range administrators {
		c.admins <- nil
	}
	err = c.run("CREATE DATABASE " + templateName)
	if err == nil && migrate != nil {
		err = migrate(ctx, server.URL(templateName))
	}
	if err == nil {
		err = c.run("ALTER DATABASE "+templateName+" WITH ALLOW_CONNECTIONS false IS_TEMPLATE true", "CHECKPOINT")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("pgdev: create template: %w", err), c.stop())
	}
	return c, nil
}

// run executes statements about databases, one by one. It retries while a session of the template ends, or a test
// restarts the server.
func (c *cluster) run(statements ...string) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), testDeadline)
	defer cancel()
	admin := <-c.admins
	defer func() { c.admins <- admin }()
	for len(statements) > 0 {
		if err = nil; admin == nil || admin.IsClosed() {
			admin, err = pgx.Connect(ctx, c.server.URL("postgres"))
		}
		if err == nil {
			_, err = admin.Exec(ctx, statements[0])
		}
		if err == nil {
			statements = statements[1:]
		} else if !temporary(err) || !pause(ctx, 4*poll) {
			break
		}
	}
	return err
}

// temporary errors are a database in use, a server that starts or stops, and a broken connection.
func temporary(err error) bool {
	var rejected *pgconn.PgError
	return !errors.As(err, &rejected) || slices.Contains([]string{"55006", "57P01", "57P02", "57P03"}, rejected.Code)
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
