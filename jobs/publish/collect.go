package publish

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"postrider/internal/postgres"
)

const (
	// collectStep is how many publishes by SQL become a route at once. With as many deliveries a step of the route takes a
	// twentieth of a second.
	collectStep = 1000
	// collectEvents bounds the events of those publishes: each step of a route reads the route again.
	collectEvents = 20_000
)

// PointCollect is the failpoint after publishes by SQL got their route jobs.
const PointCollect = "collect"

// CollectPublishes creates routes for committed publishes by SQL: up to 1,000 publishes, or fewer if they have more
// than 20,000 events. It returns how many there were, and the jobs of their routes. The jobs run on this node already:
// call Route with each.
func (p *Publisher) CollectPublishes(ctx context.Context) (n int, jobs []int64, err error) {
	const search = "SELECT EXISTS (SELECT FROM postrider_internal.sql_publishes ORDER BY id LIMIT 1)"
	var waiting bool
	if err := p.DB.QueryRow(ctx, search).Scan(&waiting); err != nil {
		return 0, nil, fmt.Errorf("find publishes by SQL: %w", err)
	}
	if !waiting {
		return 0, nil, nil
	}
	err = p.DB.WriteKept(ctx, postgres.KeepPlan, func(batch *pgx.Batch) {
		batch.Queue(collectStatement, collectStep, p.Node, collectEvents).
			QueryRow(func(row pgx.Row) error { return row.Scan(&n, &jobs) })
	})
	if err != nil {
		return 0, nil, fmt.Errorf("collect publishes by SQL: %w", err)
	}
	if n > 0 {
		p.Failpoint.Reach(PointCollect)
	}
	return n, jobs, nil
}
