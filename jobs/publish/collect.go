package publish

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/postgres"
)

const (
	// collectStep is how many publishes by SQL become a route at once. With as many deliveries a step of the route takes a
	// twentieth of a second.
	collectStep = 1000
	// collectEvents bounds the events of those publishes: a route is read anew in each of its steps.
	collectEvents = 20_000
	// publishWatch is how far ahead a node promises to look for publishes by SQL; it says so again when half of that is
	// over.
	publishWatch = time.Second
)

var collectStatement = sqlFile("collect.sql")

// PointCollect is the failpoint after publishes by SQL got their route jobs.
const PointCollect = "collect"

// CollectPublishes gives a route to what was published by SQL and is committed, up to 1,000 publishes or, where they
// are large, 20,000 events and more. It answers how many there were, and the jobs of their routes: they run on this
// node already, and are to be made with Route.
func (p *Publisher) CollectPublishes(ctx context.Context) (n int, jobs []int64, err error) {
	if n, jobs, err = p.collectPublishes(ctx); err != nil {
		return 0, nil, fmt.Errorf("gather what was published by SQL: %w", err)
	}
	if n > 0 {
		p.Failpoint.Reach(PointCollect)
	}
	return n, jobs, nil
}

// collectPublishes looks first: most of the time there is nothing.
func (p *Publisher) collectPublishes(ctx context.Context) (n int, jobs []int64, err error) {
	var waiting bool
	if err := p.DB.QueryRow(ctx, "SELECT EXISTS (SELECT FROM postrider_internal.sql_publishes ORDER BY id LIMIT 1)").
		Scan(&waiting); err != nil || !waiting {
		return 0, nil, err
	}
	err = p.DB.WriteKept(ctx, postgres.KeepPlan, func(batch *pgx.Batch) {
		batch.Queue(collectStatement, collectStep, p.Node, collectEvents).
			QueryRow(func(row pgx.Row) error { return row.Scan(&n, &jobs) })
	})
	return n, jobs, err
}

// WatchPublishes promises that this node goes on to look for publishes by SQL for the time it answers, a second.
// Meanwhile no publisher wakes anybody.
func (p *Publisher) WatchPublishes(ctx context.Context) (time.Duration, error) {
	const watch = `UPDATE postrider_internal.sql_publish_watch
		SET watched_until = clock_timestamp() + $1::interval WHERE watched_until < clock_timestamp() + $1::interval / 2`
	if _, err := p.DB.Exec(ctx, watch, publishWatch); err != nil {
		return publishWatch, fmt.Errorf("watch for publishes by SQL: %w", err)
	}
	return publishWatch, nil
}
