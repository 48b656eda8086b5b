package queue

import (
	"context"
	"fmt"

	"postrider/postgres"
)

// Work that only one node may do at a time, by rows of postrider_internal.locks. Each lock lasts as long as its
// transaction and is taken before all others.
const (
	LockPartitions = "partitions"
	LockSweeper    = "sweeper"
	LockRollups    = "rollups"
	LockBatching   = "batching" // by event subscription
)

const (
	// TakeLock waits, for as long as lock_timeout permits.
	TakeLock = "SELECT postrider_internal.lock($1, $2)"
	// TryLock returns false if another transaction has the lock.
	TryLock = "SELECT postrider_internal.try_lock($1, $2)"
)

var lockHoldersStatement = sqlFile("lockholders.sql")

// LockError is the error of work that waited too long for a lock: it names the sessions that hold it.
func LockError(ctx context.Context, db *postgres.DB, work, name string, err error) error {
	var holders string
	if postgres.IsLocked(err) && db.QueryRow(ctx, lockHoldersStatement).Scan(&holders) == nil {
		return fmt.Errorf("%s: row %q of postrider_internal.locks is locked by %s; end that transaction: %w", work, name,
			holders, err)
	}
	return fmt.Errorf("%s: %w", work, err)
}
