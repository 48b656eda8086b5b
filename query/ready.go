package query

import (
	"context"
	"fmt"
	"time"
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

// Readiness reads the state for a node with this name and this encryption key.
func (r *Reader) Readiness(ctx context.Context, keyID, node string) (found Readiness, err error) {
	var silent *time.Duration
	row := r.db.QueryRow(ctx, sql("readiness"), keyID, node)
	if err := row.Scan(&found.KeyKnown, &found.PartitionsToday, &silent); err != nil {
		return found, fmt.Errorf("query the database: %w", err)
	}
	if found.Registered = silent != nil; found.Registered {
		found.Silent = *silent
	}
	return found, nil
}

// Ping sends a trivial query.
func (r *Reader) Ping(ctx context.Context) error {
	if err := r.db.Ping(ctx); err != nil {
		return fmt.Errorf("query the database: %w", err)
	}
	return nil
}
