package store

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// disk knows whether PostgreSQL has reported a full disk. Then it probes until there is room again: publishers may have gone elsewhere.
type disk struct {
	full  atomic.Bool
	found chan struct{}
}

const (
	diskProbePause = 5 * time.Second
	// diskProbe stores 1 MB in a new file, for a transaction that is rolled back.
	diskProbe = `DO $$ BEGIN EXECUTE format(
		'CREATE UNLOGGED TABLE postrider_internal.disk_probe_%s AS SELECT repeat(''x'', 1000) AS filler FROM generate_series(1, 1024)', pg_backend_pid()); END $$`
)

// IsDiskFull reports that PostgreSQL could not store something because its disk is full (SQLSTATE 53100).
func IsDiskFull(err error) bool { return SQLState(err) == "53100" }

// DiskFull reports whether the database's disk is full, as far as this process has seen.
func (s *Store) DiskFull() bool { return s.disk.full.Load() }

// Noticed looks at an error for what the node as a whole must report. It may be nil.
func (s *Store) Noticed(err error) {
	if !IsDiskFull(err) || !s.disk.full.CompareAndSwap(false, true) {
		return
	}
	s.log.Error("the database's disk is full: no event can be stored until there is room; free space or enlarge the disk", "error", err, "sqlstate", SQLState(err))
	select {
	case s.disk.found <- struct{}{}:
	default:
	}
}

func (s *Store) watchDisk(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.disk.found:
		}
		for s.disk.full.Load() && waitAbout(ctx, diskProbePause) {
			// While the database is unavailable nothing new is known. Any other error is no sign of a full disk.
			if err := ProbeDisk(ctx, s.db.Pool); err == nil || !IsOutage(err) {
				s.disk.full.Store(false)
				s.log.Info("the database's disk has room again", "probe_error", err)
			}
		}
	}
}

// ProbeDisk stores 1 MB and takes it back. IsDiskFull of its error reports a full disk.
func ProbeDisk(ctx context.Context, pool *pgxpool.Pool) error {
	tx, err := pool.BeginTx(ctx, pgx.TxOptions{})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	_, err = tx.Exec(ctx, diskProbe)
	return err
}
