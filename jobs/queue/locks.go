package queue

import (
	"context"
	"fmt"

	"postrider/postgres"
)

// Work that only one node may do at a time, by rows of postrider_internal.locks. Each lock lasts as long as its transaction and is
// taken before all others.
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

// cleanLocksStatement removes the locks of event subscriptions that do not exist any more. A lock that is held stays until the next time.
const cleanLocksStatement = `
DELETE FROM postrider_internal.locks l USING (
    SELECT name, key FROM postrider_internal.locks k
     WHERE name = $1 AND NOT EXISTS (SELECT FROM postrider_internal.event_subscriptions s WHERE s.id = k.key)
       FOR UPDATE SKIP LOCKED) gone
 WHERE l.name = gone.name AND l.key = gone.key`

// CleanLocks removes the locks of event subscriptions that do not exist any more.
func (q *JobRows) CleanLocks(ctx context.Context) error {
	if _, err := q.db.Exec(ctx, cleanLocksStatement, LockBatching); err != nil {
		return fmt.Errorf("remove locks: %w", err)
	}
	return nil
}

// lockHoldersStatement names the sessions that have rows of locks, the oldest transactions first.
const lockHoldersStatement = `
SELECT coalesce(string_agg(holder, ', '), 'a transaction that has ended since') FROM (
    SELECT format('process %s (%s, role %s)', a.pid, coalesce(nullif(a.application_name, ''), 'unnamed'), a.usename) AS holder
      FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
     WHERE l.relation = 'postrider_internal.locks'::regclass AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
     GROUP BY a.pid, a.application_name, a.usename, a.xact_start ORDER BY a.xact_start LIMIT 3) h`

// LockError is the error of work that waited too long for a lock: it names the sessions that hold it.
func LockError(ctx context.Context, db *postgres.DB, work, name string, err error) error {
	var holders string
	if postgres.IsLocked(err) && db.QueryRow(ctx, lockHoldersStatement).Scan(&holders) == nil {
		return fmt.Errorf("%s: row %q of postrider_internal.locks is locked by %s; end that transaction: %w", work, name, holders, err)
	}
	return fmt.Errorf("%s: %w", work, err)
}
