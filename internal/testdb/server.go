package testdb

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
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"postrider/internal/pgdev"
)

const (
	templateName = "postrider_template"
	deadline     = time.Minute // of each statement about databases, on a busy machine
	// administrators is how many CREATE and DROP DATABASE run at once. A clone with its drop took 110 ms one after the
	// other and 30 ms each with four at once, on two cores: they share the checkpoints that they wait for.
	administrators = 4
)

// cluster is the server of a test process, with its databases.
type cluster struct {
	server *pgdev.Server
	serial atomic.Int64
	admins chan *pgx.Conn // idle connections; nil is one that is not connected yet

	mu    sync.Mutex
	taken map[string]*database // by URL
	idle  []*database          // for the next tests, the last one used last
}

// current is set while Run runs. The first call starts the server.
var current atomic.Pointer[func() (*cluster, error)]

// Template is the content of the template database.
type Template struct {
	Fill func(ctx context.Context, url string) error // nil = none
	// Version names what Fill does: servers of other processes begin with a copy of a template of the same version. Empty
	// = each process fills its own.
	Version string
}

// Run is the body of a TestMain: it runs the tests with a private server. It returns the exit code of m, or 1 if the
// server cannot be stopped. The first test that needs the server starts it; fuzz workers start none.
func Run(m interface{ Run() int }, template Template) int {
	var started *cluster
	start := sync.OnceValues(func() (c *cluster, err error) {
		started, err = startCluster(template)
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

// Server is the server of this test process, for tests that kill or restart it. Those must not be parallel.
func Server(tb testing.TB) *pgdev.Server {
	tb.Helper()
	return running(tb).server
}

// Clone creates a migrated database that no other test uses, drops it when the test ends, and returns its URL. It is
// for tests of roles, settings, partitions, plans and restarts; the others use New, which takes less CPU.
func Clone(tb testing.TB) string {
	tb.Helper()
	return newDatabase(tb, templateName)
}

// Empty is Clone without the migration.
func Empty(tb testing.TB) string {
	tb.Helper()
	return newDatabase(tb, "template0")
}

func newDatabase(tb testing.TB, template string) string {
	tb.Helper()
	c := running(tb)
	name, err := c.create(tb.Name(), template)
	if err != nil {
		tb.Fatalf("testdb: new database: %v", err)
	}
	tb.Cleanup(func() { c.drop(tb, name) })
	return c.url(name)
}

func running(tb testing.TB) *cluster {
	tb.Helper()
	start := current.Load()
	if start == nil {
		tb.Fatalf("testdb: no server: the package's TestMain must call testdb.Run")
	}
	c, err := (*start)()
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return c
}

func (c *cluster) url(database string) string {
	return c.server.URL(database) + "&connect_timeout=60" // a busy machine took more than 15 s
}

func (c *cluster) create(test, template string) (name string, err error) {
	name = databaseName(test, c.serial.Add(1))
	// A clone and its drop took 32 ms, and 55 ms with the strategy WAL_LOG, four at once.
	return name, c.run("CREATE DATABASE " + name + " TEMPLATE " + template + " STRATEGY file_copy")
}

func (c *cluster) drop(tb testing.TB, name string) {
	if err := c.run("DROP DATABASE IF EXISTS " + name + " WITH (FORCE)"); err != nil {
		tb.Logf("testdb: drop database: %v", err)
	}
}

var notInNames = regexp.MustCompile(`[^a-z0-9]`)

// databaseName is unique by its serial number, and shows the test in pg_stat_activity. PostgreSQL's limit is 63 bytes.
func databaseName(test string, serial int64) string {
	plain := notInNames.ReplaceAllString(strings.ToLower(test), "_")
	return fmt.Sprintf("t%d_%s", serial, plain[:min(len(plain), 40)])
}

func startCluster(template Template) (*cluster, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*deadline)
	defer cancel()
	o := pgdev.Options{Log: os.Stderr, Settings: map[string]string{
		"max_connections":    "400",
		"autovacuum_naptime": "1d", // statistics change plans, and with them what the tests of a database find
	}}
	if template.Version != "" {
		o.Content, o.Fill = template.Version+pgdev.RowsQueries(), template.create
	}
	server, err := pgdev.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	if want := os.Getenv("POSTRIDER_TEST_POSTGRES"); want != "" && !strings.HasPrefix(server.Version(), want+".") {
		return nil, errors.Join(fmt.Errorf("testdb: PostgreSQL %s, not %s", server.Version(), want), server.Stop(ctx))
	}
	if o.Fill == nil {
		if err := template.create(ctx, server); err != nil {
			return nil, errors.Join(err, server.Stop(ctx))
		}
	}
	c := &cluster{server: server, admins: make(chan *pgx.Conn, administrators), taken: map[string]*database{}}
	for range administrators {
		c.admins <- nil
	}
	return c, nil
}

// create fills the template database. It then rejects connections to it: a session in it would fail every clone.
// CHECKPOINT preserves it if a test kills the server: with synchronous_commit = off, commits are written up to 0.6 s
// later.
func (t Template) create(ctx context.Context, server *pgdev.Server) error {
	url := server.URL(templateName)
	err := server.CreateDatabase(ctx, templateName)
	if err == nil && t.Fill != nil {
		if err = t.Fill(ctx, url); err == nil {
			err = keepRows(ctx, url)
		}
	}
	if err == nil {
		err = closeTemplate(ctx, server.URL("postgres"))
	}
	if err != nil {
		return fmt.Errorf("testdb: create template: %w", err)
	}
	return nil
}

func closeTemplate(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, "ALTER DATABASE "+templateName+" WITH ALLOW_CONNECTIONS false IS_TEMPLATE true")
	if err == nil {
		_, err = conn.Exec(ctx, "CHECKPOINT")
	}
	return err
}

// run executes a statement about databases. It retries while a session of the template ends, or a test restarts the
// server.
func (c *cluster) run(statement string) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	admin := <-c.admins
	defer func() { c.admins <- admin }()
	for {
		if err = nil; admin == nil || admin.IsClosed() {
			admin, err = pgx.Connect(ctx, c.server.URL("postgres"))
		}
		if err == nil {
			_, err = admin.Exec(ctx, statement)
		}
		if err == nil || !temporary(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// temporary errors are a database in use, a server that starts or stops, and a broken connection.
func temporary(err error) bool {
	var rejected *pgconn.PgError
	return !errors.As(err, &rejected) || slices.Contains([]string{"55006", "57P01", "57P02", "57P03"}, rejected.Code)
}

func (c *cluster) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	for _, db := range c.idle {
		db.close()
	}
	for range administrators {
		if admin := <-c.admins; admin != nil {
			_ = admin.Close(ctx)
		}
	}
	return c.server.Stop(ctx)
}
