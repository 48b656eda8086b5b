package query

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Readiness is what a node needs of the database before it can serve requests.
type Readiness struct {
	// KeyKnown: what is sealed there was sealed with this process's key.
	KeyKnown bool
	// PartitionsToday: events of today have a place.
	PartitionsToday bool
	// Silent is how long ago this node wrote its last heartbeat; a node that delivers nothing has none, and Registered is
	// false.
	Silent     time.Duration
	Registered bool
	// DiskFull: PostgreSQL can store nothing more. The caller knows that, see Disk.
	DiskFull bool
}

const readinessStatement = `
SELECT EXISTS (SELECT FROM postrider_internal.encryption_keys WHERE key_id = $1),
       to_regclass('postrider_internal.events_' || to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD')) IS NOT NULL,
       coalesce((SELECT postrider_internal.seconds(clock_timestamp() - beat_at)::float8 FROM postrider_internal.nodes
           WHERE id = $2), -1)`

// Readiness reads what a node with this name, which seals with this key, needs.
func (r *Reader) Readiness(ctx context.Context, keyID, node string) (found Readiness, err error) {
	var silent float64
	if err := r.db.QueryRow(ctx, readinessStatement, keyID, node).
		Scan(&found.KeyKnown, &found.PartitionsToday, &silent); err != nil {
		return found, fmt.Errorf("ask the database: %w", err)
	}
	if found.Registered = silent >= 0; found.Registered {
		found.Silent = time.Duration(silent * float64(time.Second))
	}
	return found, nil
}

// overdueStatement looks for one delivery or batch that has been due for half a minute. A job that another transaction
// has locked, such as a user's in psql, is nothing that a node could fetch.
const overdueStatement = `
SELECT count(*) > 0 FROM (
    SELECT FROM postrider_internal.river_job
     WHERE state = 'available' AND queue = 'deliveries' AND kind IN ('deliver', 'batch')
       AND scheduled_at < now() - interval '30 seconds'
     LIMIT 1 FOR KEY SHARE SKIP LOCKED) due`

// Overdue reports whether a delivery has been due for half a minute that no node has fetched.
func Overdue(ctx context.Context, pool *pgxpool.Pool) (overdue bool, err error) {
	if err := pool.QueryRow(ctx, overdueStatement).Scan(&overdue); err != nil {
		return false, fmt.Errorf("look for overdue deliveries: %w", err)
	}
	return overdue, nil
}

// Ping sends a trivial query.
func (r *Reader) Ping(ctx context.Context) error {
	if err := r.db.Ping(ctx); err != nil {
		return fmt.Errorf("ask the database: %w", err)
	}
	return nil
}
