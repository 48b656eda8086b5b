package query

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Readiness is the state of the database that a node needs to serve requests.
type Readiness struct {
	// KeyKnown: the database's secrets are sealed with this process's key.
	KeyKnown bool
	// PartitionsToday: events of today have a partition.
	PartitionsToday bool
	// Silent is the time since this node's last heartbeat. A node that does not deliver has none, and Registered is
	// false.
	Silent     time.Duration
	Registered bool
	// DiskFull: PostgreSQL cannot store anything. The caller sets it, see postgres.Disk.
	DiskFull bool
}

var (
	readinessStatement = sqlFile("readiness.sql")
	overdueStatement   = sqlFile("overdue.sql")
)

// Readiness reads the state for a node with this name and this encryption key.
func (r *Reader) Readiness(ctx context.Context, keyID, node string) (found Readiness, err error) {
	var silent float64
	row := r.db.QueryRow(ctx, readinessStatement, keyID, node)
	if err := row.Scan(&found.KeyKnown, &found.PartitionsToday, &silent); err != nil {
		return found, fmt.Errorf("query the database: %w", err)
	}
	if found.Registered = silent >= 0; found.Registered {
		found.Silent = time.Duration(silent * float64(time.Second))
	}
	return found, nil
}

// Overdue reports whether a delivery or batch has been due for half a minute without being fetched.
func Overdue(ctx context.Context, pool *pgxpool.Pool) (overdue bool, err error) {
	if err := pool.QueryRow(ctx, overdueStatement).Scan(&overdue); err != nil {
		return false, fmt.Errorf("search for overdue deliveries: %w", err)
	}
	return overdue, nil
}

// Ping sends a trivial query.
func (r *Reader) Ping(ctx context.Context) error {
	if err := r.db.Ping(ctx); err != nil {
		return fmt.Errorf("query the database: %w", err)
	}
	return nil
}
