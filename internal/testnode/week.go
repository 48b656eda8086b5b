package testnode

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"
)

//go:embed week.sql
var fillSQL string

const (
	// latencyBuckets is how many postrider.delivery_counts has.
	latencyBuckets = 14
	// parallel is how many parts are filled at once; more would only wait for two CPUs.
	parallel = 2
)

// fillSteps are procedures that fill one day, in any order; fillCounts count what they made.
var (
	fillSteps  = []string{"fill_events", "fill_history", "fill_attempts", "fill_dead_letters", "fill_pending"}
	fillCounts = []string{"fill_counts"}
)

// FillWeek creates by SQL what a week of deliveries leaves behind, in a database that is migrated and empty: ten
// million real ones would take half an hour. A tenth are dead letters, a twentieth is pending. Nothing is random: all
// runs create the same rows, except for their times.
func FillWeek(ctx context.Context, pool *pgxpool.Pool, deliveries int) error {
	return FillDays(ctx, pool, 7, deliveries)
}

// FillDays is FillWeek with the last days of a week, today included. As many deliveries are pending as in the week.
func FillDays(ctx context.Context, pool *pgxpool.Pool, days, deliveries int) error {
	var topics bool
	if err := pool.QueryRow(ctx, "SELECT EXISTS (SELECT FROM postrider_internal.topics)").Scan(&topics); err != nil {
		return fmt.Errorf("check that the database is empty: %w", err)
	}
	if topics {
		return errors.New("the database has topics already: this fills an empty one")
	}
	all, err := start(ctx, pool, days, deliveries)
	if err != nil {
		return err
	}
	before, today := all[:len(all)-1], all[len(all)-1:]
	if err := errors.Join(call(ctx, pool, fillSteps, all), call(ctx, pool, fillCounts, before)); err != nil {
		return err
	}
	if err := vacuum(ctx, pool, all); err != nil {
		return err
	}
	// Then the minutes that have passed, so that the last ones are as full as the others.
	if _, err := pool.Exec(ctx, "CALL bench.go_on($1)", today[0]); err != nil {
		return fmt.Errorf("continue until now: %w", err)
	}
	if err := errors.Join(call(ctx, pool, fillSteps, today), call(ctx, pool, fillCounts, today)); err != nil {
		return err
	}
	if _, err := pool.Exec(ctx, "DROP SCHEMA bench CASCADE"); err != nil {
		return fmt.Errorf("remove the procedures: %w", err)
	}
	return vacuum(ctx, pool, today)
}

// start creates the procedures, topics and event subscriptions, and returns the days by the database's clock.
func start(ctx context.Context, pool *pgxpool.Pool, days, deliveries int) ([]time.Time, error) {
	buckets, sums := make([]string, latencyBuckets), make([]string, latencyBuckets)
	for i := range buckets {
		buckets[i] = fmt.Sprintf("coalesce(sum(n) FILTER (WHERE bucket = %d), 0)::bigint", i)
		sums[i] = fmt.Sprintf("sum(latency_buckets[%d])::bigint", i+1)
	}
	statements := strings.NewReplacer("{buckets}", strings.Join(buckets, ", "), "{sums}", strings.Join(sums, ", "))
	if _, err := pool.Exec(ctx, statements.Replace(fillSQL)); err != nil {
		return nil, fmt.Errorf("create the procedures: %w", err)
	}
	if _, err := pool.Exec(ctx, "CALL bench.fill_rest($1, $2)", int64(deliveries), days); err != nil {
		return nil, fmt.Errorf("create topics and event subscriptions: %w", err)
	}
	rows, _ := pool.Query(ctx, "SELECT (began AT TIME ZONE 'UTC')::date + i FROM bench.load, generate_series(0, $1) i",
		days-1)
	return pgx.CollectRows(rows, pgx.RowTo[time.Time])
}

// call calls each procedure for each day, several at once, in the order of the days: parts of one table would wait for
// each other.
func call(ctx context.Context, pool *pgxpool.Pool, procedures []string, of []time.Time) error {
	// Indexes are created by sorting in memory, and no plan for the beginning of a table is kept.
	const settings = "SET LOCAL maintenance_work_mem = '256MB'; SET LOCAL work_mem = '128MB'; SET LOCAL jit = off"
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, day := range of {
		for _, procedure := range procedures {
			group.Go(func() error {
				err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
					if _, err := tx.Exec(ctx, settings); err != nil {
						return err
					}
					_, err := tx.Exec(ctx, "CALL bench."+procedure+"($1)", day)
					return err
				})
				if err != nil {
					return fmt.Errorf("%s of %s: %w", procedure, day.Format(time.DateOnly), err)
				}
				return nil
			})
		}
	}
	return group.Wait()
}

// vacuum leaves those days, and the tables without days, as autovacuum would: it analyzes partitions, but not the
// partitioned tables.
func vacuum(ctx context.Context, pool *pgxpool.Pool, of []time.Time) error {
	const parts = `SELECT 'VACUUM (ANALYZE) postrider_internal.' || quote_ident(relname) FROM pg_class
		WHERE relnamespace = 'postrider_internal'::regnamespace AND relkind = 'r' AND (relname !~ '_[0-9]{8}$'
		    OR right(relname, 8) = ANY ($1))`
	names := make([]string, len(of))
	for i, day := range of {
		names[i] = day.Format("20060102")
	}
	rows, _ := pool.Query(ctx, parts, names)
	statements, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, statement := range statements {
		if err == nil {
			_, err = pool.Exec(ctx, statement)
		}
	}
	if err != nil {
		return fmt.Errorf("vacuum the database: %w", err)
	}
	return nil
}
