package query

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/postgres"
)

// JobLine is a job of River's: the token of one attempt.
type JobLine struct {
	ID                       int64
	Kind, Queue, State       string
	Attempt, MaxAttempts     int
	CreatedAt, ScheduledAt   time.Time
	AttemptedAt, FinalizedAt *time.Time
	AttemptedBy              []string
	// Args are ids only, as JSON.
	Args string
	// LastError is River's, of a job that failed on our side; a delivery's failure is an outcome and no error.
	LastError  *string
	DeliveryID *int64
	BatchID    *int64
}

// JobFilter says which jobs; "" = all.
type JobFilter struct{ State, Kind string }

const (
	jobColumns = `SELECT j.id, j.kind, j.queue, j.state::text AS state, j.attempt::int AS attempt,
         j.max_attempts::int AS max_attempts, j.created_at, j.scheduled_at, j.attempted_at, j.finalized_at,
       coalesce(j.attempted_by, '{}') AS attempted_by, j.args::text AS args,
       left(j.errors[array_upper(j.errors, 1)] ->> 'error', 1000) AS last_error,
       (SELECT d.id FROM postrider_internal.deliveries d WHERE j.kind = 'deliver' AND d.id = (j.args ->> 'd')::bigint)
           AS delivery_id,
       (SELECT b.id FROM postrider_internal.batches b WHERE b.job_id = j.id) AS batch_id
  FROM postrider_internal.river_job j `

	jobList = jobColumns + `WHERE (@cursor::bigint IS NULL OR j.id %[2]s @cursor) AND (@state::text IS NULL
     OR j.state::text = @state) AND (@kind::text IS NULL OR j.kind = @kind)
 ORDER BY j.id %[1]s LIMIT @limit`

	jobStates = `SELECT state::text AS name, count(*) AS count FROM (SELECT state FROM postrider_internal.river_job
		    LIMIT @limit) few GROUP BY 1 ORDER BY 2 DESC, 1`
)

// Jobs is a page of jobs, with how many there are in each state, of the first 100,000 that PostgreSQL meets.
type Jobs struct {
	Page[JobLine]
	States []Counted
}

// ReadJobs reads a page of jobs, the newest first. ErrTooSlow, ErrUnavailable.
func (r *Reader) ReadJobs(ctx context.Context, f JobFilter, t Turn[int64]) (j *Jobs, err error) {
	j = &Jobs{}
	err = r.db.Read(ctx, "jobs", func(tx pgx.Tx) error {
		if j.States, err = postgres.Rows[Counted](ctx, tx, jobStates, pgx.NamedArgs{"limit": countLimit}); err != nil {
			return err
		}
		j.Page, err = pageBy[JobLine](ctx, tx, jobList, t, pgx.NamedArgs{"state": given(f.State), "kind": given(f.Kind)})
		return err
	})
	return j, err
}

// readJob is nil where the job has gone: another one follows.
func readJob(ctx context.Context, tx pgx.Tx, id int64) (*JobLine, error) {
	job, err := postgres.Row[JobLine](ctx, tx, jobColumns+`WHERE j.id = @id`, pgx.NamedArgs{"id": id})
	if errors.Is(err, postgres.ErrNotFound) {
		return nil, nil
	}
	return job, err
}
