package queue

import (
	"context"
	"embed"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river/rivertype"

	"postrider/internal/postgres"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

var sqlFile = postgres.SQLFiles(sqlFiles)

// JobRows fetches, defers and promotes River's jobs, and reclaims them from dead nodes.
type JobRows struct {
	db       *postgres.DB
	node     string
	notifier *Notifier
	traffic  *Traffic
	postgres.Failpoint
	promoter promoter

	promoted, reclaimed atomic.Int64
}

// NewJobRows makes the JobRows of this node.
func NewJobRows(db *postgres.DB, node string, notifier *Notifier, traffic *Traffic, fail postgres.Failpoint) *JobRows {
	return &JobRows{db: db, node: node, notifier: notifier, traffic: traffic, Failpoint: fail}
}

// JobCounters count since the process began.
type JobCounters struct {
	// Promoted jobs were made available when they were due. Reclaimed jobs had been interrupted and were given new rows.
	Promoted, Reclaimed int64
}

// JobCounters reads the counters.
func (q *JobRows) JobCounters() JobCounters {
	return JobCounters{Promoted: q.promoted.Load(), Reclaimed: q.reclaimed.Load()}
}

// JobToken is a job row: only the statement that deletes it ends an attempt. The id alone is not enough. A failover may
// lose the last commits, PostgreSQL assigns their ids again, and the response for a lost event would end the delivery
// of another. So the time of the row must be the same, too.
type JobToken struct {
	JobID int64
	// CreatedAt is the row's created_at, to the microsecond.
	CreatedAt time.Time
}

// ErrJobGone is the ErrNotFound of a job whose row is gone.
var ErrJobGone = fmt.Errorf("its job: %w", postgres.ErrNotFound)

// Gone reports the token's row as deleted: ErrJobGone.
func (t JobToken) Gone() error { return fmt.Errorf("job %d: %w", t.JobID, ErrJobGone) }

const endJobStatement = `
DELETE FROM postrider_internal.river_job j USING unnest($1::bigint[], $2::timestamptz[]) AS t(id, created_at)
 WHERE j.id = ANY ($1::bigint[]) AND j.id = t.id AND j.created_at = t.created_at`

// EndJob deletes a job that is no longer needed. One that is gone is no error.
func (q *JobRows) EndJob(ctx context.Context, token JobToken) error {
	if _, err := q.db.Exec(ctx, endJobStatement, []int64{token.JobID}, []time.Time{token.CreatedAt}); err != nil {
		return fmt.Errorf("%w: end job %d: %w", postgres.ErrUnavailable, token.JobID, err)
	}
	return nil
}

// QueueEnd deletes jobs as a part of a batch.
func QueueEnd(batch *pgx.Batch, tokens []JobToken) {
	ids := postgres.Column(tokens, func(t JobToken) int64 { return t.JobID })
	batch.Queue(endJobStatement, ids, postgres.Column(tokens, func(t JobToken) time.Time { return t.CreatedAt }))
}

var fetchStatement = sqlFile("fetch", "queue", "kinds", "limit", "node")

// inOrder are the settings of a statement that also reads an index in its order.
const inOrder = postgres.KeepPlan + `, set_config('enable_sort', 'off', true)`

// Fetch takes up to limit jobs of these kinds that are due, by priority and time. They belong to this node then.
func (q *JobRows) Fetch(ctx context.Context, queue string, kinds []string, limit int) (
	jobs []*rivertype.JobRow, err error,
) {
	err = q.db.WriteKept(ctx, inOrder, func(batch *pgx.Batch) {
		batch.Queue(fetchStatement, queue, kinds, limit, q.node).Query(func(rows pgx.Rows) error {
			jobs, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (*rivertype.JobRow, error) {
				j := &rivertype.JobRow{State: rivertype.JobStateRunning}
				return j, row.Scan(&j.ID, &j.Attempt, &j.MaxAttempts, &j.Kind, &j.Queue, &j.Priority, &j.EncodedArgs, &j.Metadata,
					&j.CreatedAt, &j.ScheduledAt, &j.AttemptedAt, &j.AttemptedBy)
			})
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("fetch jobs: %w", err)
	}
	return jobs, nil
}
