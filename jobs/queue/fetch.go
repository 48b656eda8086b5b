package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"postrider/postgres"
)

// Job is a job that was fetched: it runs now, at this node.
type Job struct {
	ID          int64
	Attempt     int // 1 = first
	MaxAttempts int
	Kind        string
	Queue       string
	Priority    int
	Args        []byte // JSON
	Metadata    []byte // JSON
	CreatedAt   time.Time
	ScheduledAt time.Time
	AttemptedAt time.Time
	AttemptedBy []string // the nodes, at most the last 100; this one is the last of them
}

// fetchStatement does what River's own does, and reads the table by keys alone: as a join, with what PostgreSQL believes of a
// table that was empty when it was last vacuumed, the same fetch read all jobs there are.
const fetchStatement = `
WITH next AS MATERIALIZED (
    SELECT id FROM postrider_internal.river_job
     WHERE state = 'available' AND queue = $1 AND ($2::text[] IS NULL OR kind = ANY ($2)) AND scheduled_at <= now()
     ORDER BY priority, scheduled_at, id LIMIT $3 FOR UPDATE SKIP LOCKED
)
UPDATE postrider_internal.river_job j
   SET state = 'running', attempt = j.attempt + 1, attempted_at = now(),
       attempted_by = array_append(j.attempted_by[greatest(coalesce(cardinality(j.attempted_by), 0) - 98, 1):], $4::text)
 WHERE j.id = ANY (ARRAY (SELECT id FROM next))
RETURNING j.id, j.attempt, j.max_attempts, j.kind, j.queue, j.priority, j.args, j.metadata, j.created_at, j.scheduled_at, j.attempted_at, j.attempted_by`

// inOrder is for a statement that also reads an index in its order.
const inOrder = postgres.KeepPlan + `, set_config('enable_sort', 'off', true)`

// Fetch takes up to limit jobs of these kinds whose time has come, by priority and time. They are this node's from then on.
func (q *JobRows) Fetch(ctx context.Context, queue string, kinds []string, limit int) (jobs []Job, err error) {
	batch := &pgx.Batch{}
	batch.Queue("BEGIN")
	batch.Queue(q.db.Keeping(inOrder))
	batch.Queue(fetchStatement, queue, kinds, limit, q.node).Query(func(rows pgx.Rows) error {
		jobs, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Job])
		return err
	})
	batch.Queue("COMMIT")
	err = q.db.WithConn(ctx, func(conn *pgxpool.Conn) error { return conn.SendBatch(ctx, batch).Close() })
	if err != nil {
		return nil, fmt.Errorf("fetch jobs: %w", err)
	}
	return jobs, nil
}
