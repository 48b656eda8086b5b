package jobs

import (
	"log/slog"
	"sync/atomic"

	"postrider/catalog"
	"postrider/jobs/queue"
	"postrider/postgres"
)

// Maintenance keeps the tables in order: partitions, retention, merged counts, vacuum, notices, and repairs of rows
// without their job.
type Maintenance struct {
	db       *postgres.DB
	cache    *catalog.Cache
	notifier *queue.Notifier
	log      *slog.Logger
	fail     postgres.Failpoint

	finds    atomic.Int64 // by Sweep
	deadLeft atomic.Int64 // jobs, by the last vacuum
}

// NewMaintenance returns the maintenance of a database.
func NewMaintenance(
	db *postgres.DB, cache *catalog.Cache, notifier *queue.Notifier, log *slog.Logger, fail postgres.Failpoint,
) *Maintenance {
	return &Maintenance{db: db, cache: cache, notifier: notifier, log: log, fail: fail}
}
