package query

import (
	"context"
	"fmt"
	"time"
)

// Readiness is what a node needs of the database to serve requests.
type Readiness struct {
	// KeyKnown: this process's key opens the database's secrets.
	KeyKnown bool
	// PartitionsToday: events of today have a partition.
	PartitionsToday bool
	// Silent is the time since this node's last heartbeat. Registered is false for a node that does not deliver.
	Silent     time.Duration
	Registered bool
	// ReadOnly: the database accepts no writes.
	ReadOnly bool
	// Failing is what this node cannot commit and why; "" if all commits succeed. The caller sets it, see
	// postgres.Commits.
	Failing string
}

// Readiness reads the state for a node with this name and this encryption key.
func (r *Reader) Readiness(ctx context.Context, keyID, node string) (found Readiness, err error) {
	var silent *time.Duration
	row := r.db.QueryRow(ctx, sql("readiness"), keyID, node)
	if err := row.Scan(&found.KeyKnown, &found.PartitionsToday, &silent, &found.ReadOnly); err != nil {
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

// Retention is how long finished rows are kept, in whole UTC days before the current one; 0 = forever.
type Retention struct {
	// DeliveredDays is for events, finished deliveries and finished batches. Events with a pending delivery stay.
	DeliveredDays int
	// AttemptsDays is for delivery attempts.
	AttemptsDays int
	// DeadLettersDays is for dead letters.
	DeadLettersDays int
	// CountsDays is for counts by the minute.
	CountsDays int
	// AuditDays is for the audit.
	AuditDays int
	// KeysDays is for API keys that were revoked or have expired. The audit keeps its rows about them.
	KeysDays int
}
