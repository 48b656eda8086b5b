package bench

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

//go:embed questions.sql
var fillSQL string

const (
	// fillDays are how many days the deliveries lie in, today included.
	fillDays = 7
	// latencyBuckets is how many postrider.delivery_counts has.
	latencyBuckets = 14
)

// fillSteps are procedures that fill one day, in any order; fillCounts count what they made.
var (
	fillSteps  = []string{"fill_events", "fill_history", "fill_attempts", "fill_dead_letters", "fill_owed"}
	fillCounts = []string{"fill_counts"}
)

// week fills a database.
type week struct {
	pool       *pgxpool.Pool
	deliveries int
	log        io.Writer
}

// FillWeek makes by SQL what a week of deliveries leaves behind, in a database that is migrated and empty: ten million
// real ones would take half an hour. A tenth of them became dead letters, a twentieth is still owed. Nothing is random:
// all runs make the same rows, but for their times.
func FillWeek(ctx context.Context, pool *pgxpool.Pool, deliveries int, log io.Writer) error {
	w := week{pool, deliveries, log}
	var used bool
	if err := pool.QueryRow(ctx, "SELECT EXISTS (SELECT FROM postrider_internal.topics)").Scan(&used); err != nil {
		return fmt.Errorf("look into the database: %w", err)
	}
	if used {
		return errors.New("the database has topics already: this fills an empty one")
	}
	days, err := w.start(ctx)
	if err != nil {
		return err
	}
	today := days[len(days)-1:]
	if err := w.each(ctx, fillSteps, days); err != nil {
		return err
	}
	if err := w.each(ctx, fillCounts, days[:len(days)-1]); err != nil {
		return err
	}
	if err := w.vacuum(ctx, days); err != nil {
		return err
	}
	// Then the minutes that have passed, so that the last ones are as full as the others.
	if _, err := w.pool.Exec(ctx, "CALL bench.go_on($1)", today[0]); err != nil {
		return fmt.Errorf("go on: %w", err)
	}
	for _, steps := range [][]string{fillSteps, fillCounts} {
		if err := w.each(ctx, steps, today); err != nil {
			return err
		}
	}
	if _, err := w.pool.Exec(ctx, "DROP SCHEMA bench CASCADE"); err != nil {
		return fmt.Errorf("remove the procedures: %w", err)
	}
	return w.vacuum(ctx, today)
}

// start makes the procedures and what there is once, and returns the days by the database's clock.
func (w week) start(ctx context.Context) (days []time.Time, err error) {
	buckets, sums := make([]string, latencyBuckets), make([]string, latencyBuckets)
	for i := range buckets {
		buckets[i], sums[i] = fmt.Sprintf("coalesce(sum(n) FILTER (WHERE bucket = %d), 0)::bigint", i),
			fmt.Sprintf("sum(latency_buckets[%d])::bigint", i+1)
	}
	if _, err := w.pool.Exec(ctx, strings.NewReplacer("{buckets}", strings.Join(buckets, ", "), "{sums}",
		strings.Join(sums, ", ")).Replace(fillSQL)); err != nil {
		return nil, fmt.Errorf("prepare the database: %w", err)
	}
	if _, err := w.pool.Exec(ctx, "CALL bench.fill_rest($1)", int64(w.deliveries)); err != nil {
		return nil, fmt.Errorf("make topics and event subscriptions: %w", err)
	}
	result, _ := w.pool.Query(ctx, "SELECT (began AT TIME ZONE 'UTC')::date + i FROM bench.load, generate_series(0, $1) i",
		fillDays-1)
	if days, err = pgx.CollectRows(result, pgx.RowTo[time.Time]); err != nil {
		return nil, fmt.Errorf("read the days: %w", err)
	}
	return days, nil
}

// each runs each step for each day, two at once: days of one table would wait for each other, so tables change first.
func (w week) each(ctx context.Context, steps []string, days []time.Time) error {
	total := len(steps) * len(days)
	var done atomic.Int64
	stop := ticking(ctx, w.log, func() string { return fmt.Sprintf("filling: %d of %d parts made", done.Load(), total) })
	defer stop()
	return inParallel(ctx, fillers, total, func(ctx context.Context, i int) error {
		step, day := steps[i%len(steps)], days[i/len(steps)]
		err := pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
			// Indexes are made by sorting in memory, and no plan for a table's empty beginning is kept.
			if _, err := tx.Exec(ctx,
				"SET LOCAL maintenance_work_mem = '256MB'; SET LOCAL work_mem = '128MB'; SET LOCAL jit = off"); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "CALL bench."+step+"($1)", day)
			return err
		})
		if err != nil {
			return fmt.Errorf("%s of %s: %w", step, day.Format(time.DateOnly), err)
		}
		done.Add(1)
		return nil
	})
}

// vacuum leaves those days, and the tables without, as autovacuum would: parts are analysed, the tables above them
// never are.
func (w week) vacuum(ctx context.Context, days []time.Time) error {
	const parts = `SELECT 'VACUUM (ANALYZE) postrider_internal.' || quote_ident(relname) FROM pg_class
		WHERE relnamespace = 'postrider_internal'::regnamespace AND relkind = 'r' AND (relname !~ '_[0-9]{8}$'
		    OR right(relname, 8) = ANY ($1))`
	names := make([]string, len(days))
	for i, day := range days {
		names[i] = day.Format("20060102")
	}
	result, _ := w.pool.Query(ctx, parts, names)
	statements, err := pgx.CollectRows(result, pgx.RowTo[string])
	for _, vacuum := range statements {
		if err == nil {
			_, err = w.pool.Exec(ctx, vacuum)
		}
	}
	if err != nil {
		return fmt.Errorf("vacuum the database: %w", err)
	}
	return nil
}
