package queue

import (
	"context"
	"embed"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/postgres"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

func sqlFile(name string) string { return postgres.SQLFile(sqlFiles, name) }

// JobRows are River's jobs as rows: they are fetched, deferred, reclaimed from dead nodes, and promoted when they are
// due.
type JobRows struct {
	db       *postgres.DB
	node     string
	notifier *Notifier
	traffic  *Traffic
	postgres.Failpoint
	promoter promoter

	promoted, reclaimed atomic.Int64
}

// NewJobRows takes the objects that the jobs of this node need.
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

// JobToken is a job row: only the statement that deletes it ends an attempt. The id alone is not enough: a failover may
// lose the last commits, PostgreSQL gives their ids away again, and the response of an endpoint about an event that is
// lost would end the delivery of one that is not. So the row must also be of the same time.
type JobToken struct {
	JobID int64
	// CreatedAt is the row's created_at, to the microsecond.
	CreatedAt time.Time
}

// ErrJobGone is the ErrNotFound of a job whose row does not exist any more.
var ErrJobGone = fmt.Errorf("its job: %w", postgres.ErrNotFound)

// Gone reports the token's row as deleted: ErrJobGone.
func (t JobToken) Gone() error { return fmt.Errorf("job %d: %w", t.JobID, ErrJobGone) }

const endJobStatement = `
DELETE FROM postrider_internal.river_job j USING unnest($1::bigint[], $2::timestamptz[]) AS t(id, made)
 WHERE j.id = ANY ($1::bigint[]) AND j.id = t.id AND j.created_at = t.made`

// EndJob deletes a job that has nothing to do, and returns ErrJobGone.
func (q *JobRows) EndJob(ctx context.Context, token JobToken) error {
	if _, err := q.db.Exec(ctx, endJobStatement, []int64{token.JobID}, []time.Time{token.CreatedAt}); err != nil {
		return fmt.Errorf("%w: end job %d: %w", postgres.ErrUnavailable, token.JobID, err)
	}
	return token.Gone()
}

// QueueEnd deletes jobs as a part of a batch.
func QueueEnd(batch *pgx.Batch, tokens []JobToken) {
	ids := postgres.Column(tokens, func(t JobToken) int64 { return t.JobID })
	batch.Queue(endJobStatement, ids, postgres.Column(tokens, func(t JobToken) time.Time { return t.CreatedAt }))
}
