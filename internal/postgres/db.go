package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// DB is a connection pool.
type DB struct {
	*pgxpool.Pool
	// ThroughPgBouncer: each transaction may have another session. See OpenPoolThroughPgBouncer.
	ThroughPgBouncer bool
}

// NewDB uses a pool of OpenPool or OpenPoolThroughPgBouncer. It does not close the pool.
func NewDB(pool *pgxpool.Pool) *DB { return &DB{pool, ThroughPgBouncer(pool)} }

// KeepPlan, first in a transaction, lets its statements keep their plans: planning them each time took 15 % of
// PostgreSQL's time. It is for statements that read tables only by lists of keys (id = ANY). The other settings allow
// only that plan: a plan made for an empty table reads the whole table, and is kept when the table has a million rows.
const (
	// A node that is disabled counts as a cost of 10^10. With jit on, PostgreSQL compiles such a plan: 0.4 s each time.
	KeepPlan = `SELECT set_config('enable_seqscan', 'off', true), set_config('enable_nestloop', 'off', true), ` +
		`set_config('enable_mergejoin', 'off', true), set_config('jit', 'off', true)` + kept
	kept = `, set_config('plan_cache_mode', 'force_generic_plan', true)`
)

// KeepPlanBriefly is KeepPlan with a short lock_timeout, for the recorder: it does not wait for a row that another
// session keeps locked.
const KeepPlanBriefly = KeepPlan + `, set_config('lock_timeout', '500ms', true)`

// KeptStatement is a statement whose plan is kept, and what its transaction sets before it.
type KeptStatement struct{ SQL, Settings string }

// Keeping returns the statement that begins a transaction of statements that keep their plans. Through PgBouncer each
// statement is sent whole: there is no plan to keep, and one for the statement's own values is better.
func (db *DB) Keeping(settings string) string {
	if db.ThroughPgBouncer {
		return strings.Replace(settings, kept, "", 1)
	}
	return settings
}

// WithConn calls do with a connection. If it is still in a transaction afterwards, the transaction is rolled back: the
// pool would close the connection.
func (db *DB) WithConn(ctx context.Context, do func(*pgxpool.Conn) error) error {
	conn, err := db.Acquire(ctx)
	if err != nil {
		return ConnectError(err)
	}
	defer conn.Release()
	err = do(conn)
	if conn.Conn().PgConn().TxStatus() != 'I' && !conn.Conn().IsClosed() {
		_, _ = conn.Exec(ctx, "ROLLBACK")
	}
	return err
}

// ReadKept sends statements that keep their plans in one round trip and one read-only transaction.
func (db *DB) ReadKept(ctx context.Context, queue func(*pgx.Batch)) error {
	return db.sendKept(ctx, "BEGIN READ ONLY", KeepPlan, queue)
}

// WriteKept sends statements that keep their plans, by the settings given, in one round trip and one transaction.
func (db *DB) WriteKept(ctx context.Context, settings string, queue func(*pgx.Batch)) error {
	return db.sendKept(ctx, "BEGIN", settings, queue)
}

func (db *DB) sendKept(ctx context.Context, begin, settings string, queue func(*pgx.Batch)) error {
	batch := &pgx.Batch{}
	batch.Queue(begin)
	batch.Queue(db.Keeping(settings))
	queue(batch)
	batch.Queue("COMMIT")
	return db.WithConn(ctx, func(conn *pgxpool.Conn) error { return conn.SendBatch(ctx, batch).Close() })
}

// DeleteInSteps repeats a statement until it deletes fewer rows than a step. Its last parameter is the step.
func (db *DB) DeleteInSteps(ctx context.Context, statement string, step int, args ...any) error {
	for args = append(args, step); ; {
		tag, err := db.Exec(ctx, statement, args...)
		if err != nil || tag.RowsAffected() < int64(step) {
			return err
		}
	}
}

const (
	// ReadTime bounds each statement of a page or a list.
	ReadTime = 5 * time.Second
	// collectTime bounds the statement of Collect. Counts stop earlier, and report that there may be more.
	collectTime = 10 * time.Second
	// connWait is how long ReadAlways waits for a connection of the pool.
	connWait = time.Second
)

// beginner begins transactions: a pool, or one connection.
type beginner interface {
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
}

// Querier is a pool or a transaction.
type Querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// readWithin runs statements in one snapshot. PostgreSQL itself ends a statement that exceeds the limit: it would
// continue after its client has left. ErrTooSlow; ErrUnavailable; ErrNotFound of read.
func readWithin(
	ctx context.Context, db beginner, limit time.Duration, what string, read func(pgx.Tx) error,
) error {
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err := pgx.BeginTxFunc(ctx, db, options, func(tx pgx.Tx) error {
		const timeout = "SELECT set_config('statement_timeout', $1, true)"
		if _, err := tx.Exec(ctx, timeout, fmt.Sprint(limit.Milliseconds())); err != nil {
			return err
		}
		return read(tx)
	})
	if err == nil || errors.Is(err, ErrNotFound) {
		return err
	}
	if SQLState(err) == "57014" { // query_canceled
		return fmt.Errorf("read %s within %s: %w: %w", what, limit, ErrTooSlow, err)
	}
	return ReadError(what, err)
}

const (
	// cancelPause is the time between two requests to cancel: one may arrive between two statements.
	cancelPause = 100 * time.Millisecond
	// cancelTime bounds a request to cancel.
	cancelTime = time.Second
)

// ReadCanceling is readWithin whose statements PostgreSQL cancels when ctx ends. It returns when PostgreSQL has ended
// them: pgx would close the connection, and PostgreSQL go on until the limit. read uses the ctx that it gets.
func (db *DB) ReadCanceling(
	ctx context.Context, limit time.Duration, what string, read func(context.Context, pgx.Tx) error,
) error {
	conn, err := db.Acquire(ctx)
	if err != nil {
		return ReadError(what, err)
	}
	defer conn.Release()
	ended, canceled := make(chan struct{}), make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(canceled)
		for {
			bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTime)
			_ = conn.Conn().PgConn().CancelRequest(bounded)
			cancel()
			select {
			case <-ended:
				return
			case <-time.After(cancelPause):
			}
		}
	})
	// For a network that loses everything; PostgreSQL's own limit is earlier.
	lasting, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*limit+ReadTime)
	defer cancel()
	err = readWithin(lasting, conn, limit, what, func(tx pgx.Tx) error { return read(lasting, tx) })
	close(ended)
	if stop() {
		return err
	}
	<-canceled
	_ = conn.Conn().Close(lasting) // the last request to cancel may still arrive
	return ReadError(what, ctx.Err())
}

// Read is readWithin 5 s, for a page: its counts and its lists agree.
func (db *DB) Read(ctx context.Context, what string, read func(pgx.Tx) error) error {
	return readWithin(ctx, db, ReadTime, what, read)
}

// ReadAlways is Read, but opens its own connection if the pool has none free within 1 s: metrics must distinguish a
// busy pool from an unavailable database.
func (db *DB) ReadAlways(ctx context.Context, what string, read func(pgx.Tx) error) error {
	wait, cancel := context.WithTimeout(ctx, connWait)
	defer cancel()
	pooled, err := db.Acquire(wait)
	if err == nil {
		defer pooled.Release()
		return readWithin(ctx, pooled, ReadTime, what, read)
	}
	if wait.Err() == nil {
		return ReadError(what, err)
	}
	own, err := pgx.ConnectConfig(ctx, db.Config().ConnConfig)
	if err != nil {
		return ReadError(what, err)
	}
	defer CloseConn(own)
	return readWithin(ctx, own, ReadTime, what, read)
}

// CloseConn closes a connection within a second: the other end may be gone.
func CloseConn(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}

// Exec runs a statement. doing names what failed in its error, such as "delete a topic".
func Exec(ctx context.Context, db Querier, doing, statement string, args ...any) error {
	if _, err := db.Exec(ctx, statement, args...); err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}

// Rows returns the rows of a query, by column names.
func Rows[T any](ctx context.Context, db Querier, query string, args ...any) ([]T, error) {
	rows, _ := db.Query(ctx, query, args...) // CollectRows returns its error
	return pgx.CollectRows(rows, pgx.RowToStructByName[T])
}

// Row returns the single row of a query, or ErrNotFound.
func Row[T any](ctx context.Context, db Querier, query string, args ...any) (*T, error) {
	rows, _ := db.Query(ctx, query, args...)
	row, err := pgx.CollectOneRow(rows, pgx.RowToAddrOfStructByName[T])
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, ErrNotFound
	}
	return row, err
}

// Values returns the values of a query with one column.
func Values[T any](ctx context.Context, db Querier, query string, args ...any) ([]T, error) {
	rows, _ := db.Query(ctx, query, args...)
	return pgx.CollectRows(rows, pgx.RowTo[T])
}

// Collect returns the rows of one query within 10 s, by column names. ErrTooSlow; ErrUnavailable.
func Collect[T any](ctx context.Context, db beginner, query string, args ...any) (found []T, err error) {
	err = readWithin(ctx, db, collectTime, "a report", func(tx pgx.Tx) error {
		found, err = Rows[T](ctx, tx, query, args...)
		return err
	})
	return found, err
}
