package jobs

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/catalog"
	"postrider/jobs/queue"
	"postrider/postgres"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

func sqlFile(name string) string { return postgres.SQLFile(sqlFiles, name) }

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

// PublishNotices publishes notices to SystemTopic as events, and returns how many there were. All nodes call it each
// second; one of them does it.
func (m *Maintenance) PublishNotices(ctx context.Context) (published int, err error) {
	if !m.cache.Snapshot().HasSystemSubscribers() {
		return 0, nil
	}
	if err := m.db.QueryRow(ctx, "SELECT postrider_internal.tell()").Scan(&published); err != nil {
		return 0, fmt.Errorf("publish notices: %w", err)
	}
	return published, nil
}

const (
	// vacuumInterval is a compromise: a fetch reads past the jobs that ended since, a vacuum reads every index of the
	// table. Every 5 s cost a tenth of the throughput; every 15 s saved a tenth of PostgreSQL's time in runs of 75 s.
	vacuumInterval = 15 * time.Second
	// vacuumTimeout is more than a table of millions takes; a vacuum that is cut off has done nothing.
	vacuumTimeout = 10 * time.Minute
	// vacuumDead and a fifth of the live jobs are how many jobs must be dead: less than those of a second at 5,000
	// events/s, while the jobs of a long backlog are not read again and again.
	vacuumDead = 10_000
	// By default a vacuum skips the indexes of a table that is nearly empty; here they are its purpose.
	vacuumStatement = `VACUUM (SKIP_LOCKED, INDEX_CLEANUP ON, TRUNCATE OFF) postrider_internal.river_job`
)

var deadJobsStatement = sqlFile("deadjobs.sql")

// VacuumJobs vacuums the table of jobs if many are dead. Autovacuum visits a database once a minute
// (autovacuum_naptime, which no table can set): at 5,000 events/s that is 300,000 dead jobs, and each fetch reads past
// the index entries of all of them to the first live job. It does nothing if another session vacuums the table, or if
// this role may not. Rows that the last vacuum could not remove, because a transaction stays open, are no reason for
// the next one.
func (m *Maintenance) VacuumJobs(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, vacuumTimeout)
	defer cancel()
	dead, due := int64(0), false
	err := m.db.QueryRow(ctx, deadJobsStatement, vacuumDead, m.deadLeft.Load()).Scan(&dead, &due)
	if due {
		if _, err = m.db.Exec(ctx, vacuumStatement); err == nil {
			err = m.db.QueryRow(ctx, deadJobsStatement, vacuumDead, 0).Scan(&dead, &due)
		}
		m.deadLeft.Store(dead)
	} else if dead < m.deadLeft.Load() {
		m.deadLeft.Store(dead) // another vacuum removed them
	}
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("vacuum the table of jobs: %w", err)
	}
	return nil
}
