package queue

import (
	"context"
	"fmt"

	"postrider/internal/postgres"
)

// Locks of work that one node does at a time: rows of postrider_internal.locks. Each lock lasts as long as its
// transaction, which takes it before all other locks.
const (
	LockPartitions = "partitions"
	LockSweeper    = "sweeper"
	LockRollups    = "rollups"
	LockBatching   = "batching" // one for each event subscription
)

const (
	// TakeLock waits, at most for lock_timeout.
	TakeLock = "SELECT postrider_internal.lock($1, $2)"
	// TryLock returns false if another transaction has the lock.
	TryLock = "SELECT postrider_internal.try_lock($1, $2)"
)

var lockHoldersStatement = sqlFile("lockholders")

// LockError is the error of work that could not get a lock in time: it names the sessions that hold the lock.
func LockError(ctx context.Context, db *postgres.DB, work, name string, err error) error {
	var holders string
	if postgres.IsLocked(err) && db.QueryRow(ctx, lockHoldersStatement).Scan(&holders) == nil {
		return fmt.Errorf("%s: row %q of postrider_internal.locks is locked by %s; end that transaction: %w", work, name,
			holders, err)
	}
	return fmt.Errorf("%s: %w", work, err)
}
