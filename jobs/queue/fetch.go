package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

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

var fetchStatement = sqlFile("fetch.sql")

// inOrder is for a statement that also reads an index in its order.
const inOrder = postgres.KeepPlan + `, set_config('enable_sort', 'off', true)`

// Fetch takes up to limit jobs of these kinds whose time has come, by priority and time. They are this node's from then
// on.
func (q *JobRows) Fetch(ctx context.Context, queue string, kinds []string, limit int) (jobs []Job, err error) {
	err = q.db.WriteKept(ctx, inOrder, func(batch *pgx.Batch) {
		batch.Queue(fetchStatement, queue, kinds, limit, q.node).Query(func(rows pgx.Rows) error {
			jobs, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Job])
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("fetch jobs: %w", err)
	}
	return jobs, nil
}
