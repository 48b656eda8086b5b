package postgres

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Disk knows whether PostgreSQL has reported a full disk. Then it probes the disk until it has space again: possibly no
// further write shows it.
type Disk struct {
	db    *DB
	log   *slog.Logger
	full  atomic.Bool
	found chan struct{}
}

// NewDisk returns a Disk that is not full. Watch must run.
func NewDisk(db *DB, log *slog.Logger) *Disk {
	return &Disk{db: db, log: log, found: make(chan struct{}, 1)}
}

const (
	diskProbePause = 5 * time.Second
	// diskProbe stores 1 MB in a new file, for a transaction that is rolled back.
	diskProbe = `DO $$ BEGIN EXECUTE format(
		'CREATE UNLOGGED TABLE postrider_internal.disk_probe_%s AS SELECT repeat(''x'', 1000) AS filler FROM '
		    'generate_series(1, 1024)', pg_backend_pid()); END $$`
)

// IsDiskFull reports a write that failed because PostgreSQL's disk is full (SQLSTATE 53100).
func IsDiskFull(err error) bool { return SQLState(err) == "53100" }

// DiskFull reports whether the database's disk is full, as far as this process knows.
func (d *Disk) DiskFull() bool { return d.full.Load() }

// Noticed checks an error, which may be nil, for a full disk.
func (d *Disk) Noticed(err error) {
	if !IsDiskFull(err) || !d.full.CompareAndSwap(false, true) {
		return
	}
	d.log.Error("the database's disk is full: no event can be stored until space is free; free space or enlarge the disk",
		"error", err, "sqlstate", SQLState(err))
	select {
	case d.found <- struct{}{}:
	default:
	}
}

// Watch probes a full disk until ctx ends.
func (d *Disk) Watch(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.found:
		}
		for d.full.Load() && WaitJittered(ctx, diskProbePause) {
			// An unavailable database shows nothing. Any other error is no sign of a full disk.
			if err := ProbeDisk(ctx, d.db.Pool); err == nil || !IsOutage(err) {
				d.full.Store(false)
				d.log.Info("the database's disk has free space again", "probe_error", err)
			}
		}
	}
}

// ProbeDisk stores 1 MB and rolls back. IsDiskFull of its error reports a full disk.
func ProbeDisk(ctx context.Context, pool *pgxpool.Pool) error {
	tx, err := pool.BeginTx(ctx, pgx.TxOptions{})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	_, err = tx.Exec(ctx, diskProbe)
	return err
}
