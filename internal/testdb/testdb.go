// Package testdb gives tests migrated databases on a private PostgreSQL server.
//
// A clone of the template and connections whose caches are empty take most of the CPU of a simple test. So New reuses
// databases with their connections, and restores the rows of the template when a test ends: 81 tests took
// 43 s of CPU instead of 78 s.
package testdb

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"postrider/internal/pgdev"
	"postrider/internal/postgres"
)

// poolSize is the number of connections of a pool. Most tests use two or three.
const poolSize = 6

// database is a migrated database that the tests of New share, one at a time.
type database struct {
	name, url string
	schema    int64  // see schema.sql
	reset     string // the statements that restore it, see keepRows
	pools     []*pgxpool.Pool
	used      int // of pools, by the present test
}

// New returns the URL of a migrated database until the test ends. If the test changes the schema, partitions included,
// no other test gets it. A test of the settings of a database or a role uses Clone.
func New(tb testing.TB) string {
	tb.Helper()
	c := running(tb)
	db := c.take()
	if db == nil {
		name, err := c.create("shared", templateName)
		if err != nil {
			tb.Fatalf("testdb: new database: %v", err)
		}
		db = &database{url: c.url(name), name: name}
		if db.schema, err = db.readSchema(tb.Context()); err == nil {
			err = db.pools[0].QueryRow(tb.Context(), "SELECT statements FROM "+keptSchema+".reset").Scan(&db.reset)
		}
		if err != nil {
			tb.Fatalf("testdb: read the schema: %v", err)
		}
	}
	c.mu.Lock()
	c.taken[db.url] = db
	c.mu.Unlock()
	tb.Cleanup(func() { c.release(tb, db) })
	return db.url
}

// Pool returns connections to the database at url until the test ends, as a node opens them. Each call returns another
// pool. The test does not close it: those of New serve the next test.
func Pool(tb testing.TB, url string) *pgxpool.Pool {
	tb.Helper()
	c := running(tb)
	c.mu.Lock()
	defer c.mu.Unlock()
	db := c.taken[url]
	if db != nil && db.used < len(db.pools) {
		db.used++
		return db.pools[db.used-1]
	}
	pool, err := postgres.OpenPool(context.Background(), url, poolSize)
	if err != nil {
		tb.Fatalf("testdb: open a pool: %v", err)
	}
	if db == nil {
		tb.Cleanup(pool.Close)
		return pool
	}
	db.pools = append(db.pools, pool)
	db.used++
	return pool
}

func (c *cluster) take() *database {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.idle) == 0 {
		return nil
	}
	db := c.idle[len(c.idle)-1]
	c.idle = c.idle[:len(c.idle)-1]
	return db
}

// release restores the database for the next test. A database that cannot be restored is dropped.
func (c *cluster) release(tb testing.TB, db *database) {
	tb.Helper()
	err := db.restore()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.taken, db.url)
	if err == nil {
		db.used = 0
		c.idle = append(c.idle, db)
		return
	}
	if !errors.Is(err, errSchemaChanged) {
		tb.Logf("testdb: %v", err)
	}
	c.drop(tb, db.name)
	go db.close() // waits for connections that the test never returns
}

var errSchemaChanged = errors.New("the test has changed the schema")

func (db *database) restore() error {
	if n := db.acquired(); n > 0 {
		return fmt.Errorf("the test has not returned %d connections", n)
	}
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	switch schema, err := db.readSchema(ctx); {
	case err != nil:
		return fmt.Errorf("read the schema: %w", err)
	case schema != db.schema:
		return errSchemaChanged
	}
	err := pgx.BeginFunc(ctx, db.pools[0], func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, db.reset, pgx.QueryExecModeSimpleProtocol)
		return err
	})
	if err != nil {
		return fmt.Errorf("restore the database: %w", err)
	}
	return nil
}

// acquired is how many connections are in use. A canceled statement returns its connection a moment after its caller
// has gone on, so acquired waits for those.
func (db *database) acquired() (n int32) {
	for began := time.Now(); time.Since(began) < time.Second; time.Sleep(time.Millisecond) {
		n = 0
		for _, pool := range db.pools {
			n += pool.Stat().AcquiredConns()
		}
		if n == 0 {
			return 0
		}
	}
	return n
}

func (db *database) readSchema(ctx context.Context) (number int64, err error) {
	if len(db.pools) == 0 {
		pool, err := postgres.OpenPool(context.Background(), db.url, poolSize)
		if err != nil {
			return 0, err
		}
		db.pools = append(db.pools, pool)
	}
	err = db.pools[0].QueryRow(ctx, schemaQuery).Scan(&number)
	return number, err
}

func (db *database) close() {
	for _, pool := range db.pools {
		pool.Close()
	}
}

// keptSchema has copies of the rows that the template's tables have, and the statements that use them.
const keptSchema = "testdb"

//go:embed schema.sql
var schemaQuery string

// keepRows copies the rows of the template's tables, and stores the statements that restore a clone: they delete the
// rows of all tables, insert those of the template again, and restart the sequences.
func keepRows(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		kept, err := pgdev.KeepRows(ctx, tx, keptSchema, func(table string) pgdev.Fate {
			if table == "river_migration" || table == "goose_db_version" {
				return pgdev.Untouched
			}
			return pgdev.Restored
		})
		if err != nil {
			return err
		}
		// A test that left a transaction open would hold locks.
		statements := "SET LOCAL lock_timeout = '10s'; " + kept.Restore + kept.Sequences
		_, err = tx.Exec(ctx, "CREATE TABLE "+keptSchema+".reset AS SELECT $1::text AS statements", statements)
		return err
	})
}
