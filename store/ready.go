package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Readiness is what a node needs of the database before it can be of use.
type Readiness struct {
	// KeyKnown: what is sealed there was sealed with this process's key.
	KeyKnown bool
	// PartitionsToday: events of today have a place.
	PartitionsToday bool
	// Silent is how long ago this node wrote its last heartbeat; a node that delivers nothing has none, and Registered is false.
	Silent     time.Duration
	Registered bool
	// DiskFull: PostgreSQL can store nothing more.
	DiskFull bool
}

const readinessStatement = `
SELECT EXISTS (SELECT FROM postrider_internal.encryption_keys WHERE key_id = $1),
       to_regclass('postrider_internal.events_' || to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD')) IS NOT NULL,
       coalesce((SELECT postrider_internal.seconds(clock_timestamp() - beat_at)::float8 FROM postrider_internal.nodes WHERE id = $2), -1)`

// Readiness asks the database.
func (s *Store) Readiness(ctx context.Context) (r Readiness, err error) {
	var silent float64
	if err := s.db.QueryRow(ctx, readinessStatement, s.sealer.KeyID(), s.node).Scan(&r.KeyKnown, &r.PartitionsToday, &silent); err != nil {
		return r, fmt.Errorf("ask the database: %w", err)
	}
	r.DiskFull = s.DiskFull()
	if r.Registered = silent >= 0; r.Registered {
		r.Silent = time.Duration(silent * float64(time.Second))
	}
	return r, nil
}

// overdueStatement looks for one delivery or batch that has been due for half a minute. A job that another transaction has locked, such as a
// user's in psql, is nothing that a node could fetch.
const overdueStatement = `
SELECT count(*) > 0 FROM (
    SELECT FROM postrider_internal.river_job
     WHERE state = 'available' AND queue = 'deliveries' AND kind IN ('deliver', 'batch') AND scheduled_at < now() - interval '30 seconds'
     LIMIT 1 FOR KEY SHARE SKIP LOCKED) due`

// Overdue reports whether a delivery has been due for half a minute that no node has fetched.
func Overdue(ctx context.Context, pool *pgxpool.Pool) (overdue bool, err error) {
	if err := pool.QueryRow(ctx, overdueStatement).Scan(&overdue); err != nil {
		return false, fmt.Errorf("look for overdue deliveries: %w", err)
	}
	return overdue, nil
}
