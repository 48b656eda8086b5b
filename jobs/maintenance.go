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

	"postrider/internal/catalog"
	"postrider/internal/postgres"
	"postrider/jobs/queue"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

var sqlFile = postgres.SQLFiles(sqlFiles)

// Maintenance maintains the tables: partitions, retention, roll-ups, vacuum, notices, and repairs of rows without their
// job.
type Maintenance struct {
	db       *postgres.DB
	cache    *catalog.Cache
	notifier *queue.Notifier
	log      *slog.Logger
	fail     postgres.Failpoint
	ahead    int // days after today that have partitions

	repaired atomic.Int64 // by Sweep
	deadLeft atomic.Int64 // jobs, by the last vacuum
}

// NewMaintenance returns the maintenance of a database, where so many days ahead have partitions.
func NewMaintenance(
	db *postgres.DB, cache *catalog.Cache, notifier *queue.Notifier, log *slog.Logger, fail postgres.Failpoint,
	ahead int,
) *Maintenance {
	return &Maintenance{db: db, cache: cache, notifier: notifier, log: log, fail: fail, ahead: ahead}
}

// PublishNotices publishes notices to SystemTopic as events, and returns their number. All nodes call it each second;
// one of them does it.
func (m *Maintenance) PublishNotices(ctx context.Context) (published int, err error) {
	if !m.cache.Snapshot().HasSystemSubscribers() {
		return 0, nil
	}
	if err := m.db.QueryRow(ctx, "SELECT postrider_internal.publish_notices()").Scan(&published); err != nil {
		return 0, fmt.Errorf("publish notices: %w", err)
	}
	return published, nil
}

// observeInterval is how long a failure is at most no problem yet.
const observeInterval = 15 * time.Second

// ObserveProblems updates the problems from what was counted since the last time, and returns how many notices it
// stored. All nodes call it; one of them does it, at most every 10 s.
func (m *Maintenance) ObserveProblems(ctx context.Context) (changed int, err error) {
	if err := m.db.QueryRow(ctx, "SELECT postrider_internal.observe_problems()").Scan(&changed); err != nil {
		return 0, fmt.Errorf("observe problems: %w", err)
	}
	return changed, nil
}

const (
	// vacuumInterval: a fetch reads past the jobs that ended since the last vacuum, and a vacuum reads every index. Every
	// 5 s cost a tenth of the throughput; every 15 s saved a tenth of PostgreSQL's time in runs of 75 s.
	vacuumInterval = 15 * time.Second
	// vacuumTimeout is more than a table of millions takes; a vacuum that is cut has no effect.
	vacuumTimeout = 10 * time.Minute
	// vacuumDead plus a fifth of the live jobs is the number of dead jobs that starts a vacuum: two seconds at 5,000
	// events/s, while a long backlog is not read again and again.
	vacuumDead = 10_000
	// By default a vacuum skips the indexes of a nearly empty table; here they are its purpose.
	vacuumStatement = `VACUUM (SKIP_LOCKED, INDEX_CLEANUP ON, TRUNCATE OFF) postrider_internal.river_job`
)

var deadJobsStatement = sqlFile("deadjobs", "dead", "left")

// VacuumJobs vacuums the table of jobs if many are dead. Autovacuum comes once a minute (autovacuum_naptime): at 5,000
// events/s each fetch would read past 300,000 dead index entries. VacuumJobs does nothing if another session vacuums
// the table, or if this role may not. Rows that the last vacuum could not remove do not count.
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

// mergeStep is how many appended rows one statement merges; each has the counts of one group, mostly some dozens. With
// 10,000 busy event subscriptions ten seconds have 40,000 keys: one statement for all would hold its snapshot for half
// a second, and fetches would read past the jobs that ended meanwhile.
const mergeStep = 500

var mergeStatement = sqlFile("merge", "limit")

// MergeRollups merges the counts that publishing and recording appended, and returns the number of rows. While another
// node does that, it does nothing.
func (m *Maintenance) MergeRollups(ctx context.Context) (merged int, err error) {
	// Planning a merge takes longer than checking.
	const some = "SELECT EXISTS (SELECT FROM postrider_internal.rollup_deltas)"
	var mergeable bool
	if err := m.db.QueryRow(ctx, some).Scan(&mergeable); err != nil {
		return 0, fmt.Errorf("find roll-ups: %w", err)
	}
	for n := mergeStep; mergeable && n == mergeStep; merged += n {
		n = 0 // if another node has the lock
		_, err := m.locked(ctx, queue.LockRollups, func(tx pgx.Tx) error {
			return tx.QueryRow(ctx, mergeStatement, mergeStep).Scan(&n)
		})
		if err != nil {
			return merged, fmt.Errorf("merge the roll-ups: %w", err)
		}
	}
	return merged, nil
}

// locked runs a transaction that excludes other nodes. It does nothing and returns false if another node has the lock.
func (m *Maintenance) locked(ctx context.Context, name string, do func(pgx.Tx) error) (locked bool, err error) {
	err = pgx.BeginFunc(ctx, m.db, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, queue.TryLock, name, 0).Scan(&locked); err != nil || !locked {
			return err
		}
		return do(tx)
	})
	return locked, err
}
