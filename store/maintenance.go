package store

import (
	"log/slog"
	"sync/atomic"
)

// Maintenance keeps the tables in order: partitions, retention, merged counts, vacuum, notices, and repairs of rows
// without their job.
type Maintenance struct {
	db       *DB
	cache    *Cache
	notifier *Notifier
	log      *slog.Logger
	fail     Failpoint

	finds    atomic.Int64 // by Sweep
	deadLeft atomic.Int64 // jobs, by the last vacuum
}

// NewMaintenance returns the maintenance of a database.
func NewMaintenance(db *DB, cache *Cache, notifier *Notifier, log *slog.Logger, fail Failpoint) *Maintenance {
	return &Maintenance{db: db, cache: cache, notifier: notifier, log: log, fail: fail}
}
