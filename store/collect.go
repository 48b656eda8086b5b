package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// collectStep is how many publishes by SQL become a route at once. With as many deliveries a step of the route takes a twentieth of a second.
	collectStep = 1000
	// collectEvents bounds the events of those publishes: a route is read anew in each of its steps.
	collectEvents = 20_000
	// publishWatch is how far ahead a node promises to look for publishes by SQL; it says so again when half of that is over.
	publishWatch = time.Second
)

// collectStatement gathers what was published by SQL: a route for each topic and day, with its job. Its rows are the tokens: whoever
// deletes them makes their route, and nobody waits for another node that is at it.
//
// The jobs are this node's from their beginning: to be told of them and to fetch them would take two more transactions.
const collectStatement = `
WITH waiting AS MATERIALIZED (
    SELECT id, cardinality(event_uuids) AS events FROM postrider_internal.sql_publishes ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED
), few AS MATERIALIZED (
    SELECT id FROM (SELECT id, sum(events) OVER (ORDER BY id) - events AS before FROM waiting) w WHERE before < $3
), taken AS (
    DELETE FROM postrider_internal.sql_publishes p WHERE p.id = ANY (ARRAY (SELECT id FROM few)) RETURNING p.*
), route AS (
    INSERT INTO postrider_internal.routes (topic_id, event_day, event_uuids, job_id, by_sql)
    SELECT topic_id, event_day, event_uuids, nextval('postrider_internal.river_job_id_seq'), true
      FROM (SELECT topic_id, event_day, array_agg(u.id ORDER BY taken.id, u.place) AS event_uuids
              FROM taken CROSS JOIN unnest(taken.event_uuids) WITH ORDINALITY AS u(id, place) GROUP BY topic_id, event_day) grouped
    RETURNING id, job_id
), jobs AS (
    INSERT INTO postrider_internal.river_job (id, state, attempt, attempted_at, attempted_by, args, kind, queue, priority, max_attempts, scheduled_at)
    SELECT job_id, 'running', 1, now(), ARRAY [$2::text], jsonb_build_object('route', id), 'route', 'routes', 1, 1000, now() FROM route
)
SELECT (SELECT count(*) FROM taken), coalesce((SELECT array_agg(job_id) FROM route), '{}')`

// PointCollect is the failpoint after publishes by SQL got their route jobs.
const PointCollect = "collect"

// CollectPublishes gives a route to what was published by SQL and is committed, up to 1,000 publishes or, where they are large, 20,000 events and more. It answers how many there were, and the
// jobs of their routes: they run on this node already, and are to be made with Route.
func (p *Publisher) CollectPublishes(ctx context.Context) (n int, jobs []int64, err error) {
	if n, jobs, err = p.collectPublishes(ctx); err != nil {
		return 0, nil, fmt.Errorf("gather what was published by SQL: %w", err)
	}
	if n > 0 {
		p.Reach(PointCollect)
	}
	return n, jobs, nil
}

// collectPublishes looks first: most of the time there is nothing.
func (p *Publisher) collectPublishes(ctx context.Context) (n int, jobs []int64, err error) {
	var waiting bool
	if err := p.db.QueryRow(ctx, "SELECT EXISTS (SELECT FROM postrider_internal.sql_publishes ORDER BY id LIMIT 1)").Scan(&waiting); err != nil || !waiting {
		return 0, nil, err
	}
	batch := &pgx.Batch{}
	batch.Queue("BEGIN")
	batch.Queue(p.db.Keeping(keepPlan))
	batch.Queue(collectStatement, collectStep, p.node, collectEvents).QueryRow(func(row pgx.Row) error { return row.Scan(&n, &jobs) })
	batch.Queue("COMMIT")
	err = p.db.WithConn(ctx, func(conn *pgxpool.Conn) error { return conn.SendBatch(ctx, batch).Close() })
	return n, jobs, err
}

// WatchPublishes promises that this node goes on to look for publishes by SQL for the time it answers, a second. Meanwhile no publisher wakes
// anybody.
func (p *Publisher) WatchPublishes(ctx context.Context) (time.Duration, error) {
	const watch = `UPDATE postrider_internal.sql_publish_watch SET watched_until = clock_timestamp() + $1::interval WHERE watched_until < clock_timestamp() + $1::interval / 2`
	if _, err := p.db.Exec(ctx, watch, publishWatch); err != nil {
		return publishWatch, fmt.Errorf("watch for publishes by SQL: %w", err)
	}
	return publishWatch, nil
}
