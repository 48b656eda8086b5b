package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// readTimeout bounds what is read of dead letters and operations: their counting says by itself after countPatience how far it came, and needs the time to.
const readTimeout = 10 * time.Second

// endAfter bounds each statement of tx. It is PostgreSQL's own timeout: a caller who merely leaves would leave it reading.
func endAfter(ctx context.Context, tx pgx.Tx, limit time.Duration) error {
	_, err := tx.Exec(ctx, "SELECT set_config('statement_timeout', $1, true)", fmt.Sprint(limit.Milliseconds()))
	return err
}

// collect reads within readTimeout.
func collect[T any](ctx context.Context, pool *pgxpool.Pool, query string, args ...any) (found []T, err error) {
	err = pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if err := endAfter(ctx, tx, readTimeout); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, query, args...)
		if err != nil {
			return err
		}
		found, err = pgx.CollectRows(rows, pgx.RowToStructByName[T])
		return err
	})
	if err != nil {
		return nil, readError("a report", err)
	}
	return found, nil
}

// readError tells an outage from a fault, for whoever answers a person.
func readError(what string, err error) error { return outage("read "+what, err) }

// outage says what failed, and ErrUnavailable where it may succeed another time.
func outage(doing string, err error) error {
	if isOutage(err) {
		return fmt.Errorf("%w: %s: %w", ErrUnavailable, doing, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}
