package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// readTimeout bounds what management and the dashboard read of the big tables.
const readTimeout = 10 * time.Second

// collect reads with PostgreSQL's own timeout: a caller who merely leaves would leave it reading.
func collect[T any](ctx context.Context, pool *pgxpool.Pool, query string, args ...any) (found []T, err error) {
	err = pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT set_config('statement_timeout', $1, true)", fmt.Sprint(readTimeout.Milliseconds())); err != nil {
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
