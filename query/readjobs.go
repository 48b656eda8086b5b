package query

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/postgres"
)

// JobLine is a job of River: the token of one attempt.
type JobLine struct {
	ID                       int64
	Kind, Queue, State       string
	Attempt, MaxAttempts     int
	CreatedAt, ScheduledAt   time.Time
	AttemptedAt, FinalizedAt *time.Time
	AttemptedBy              []string
	// Args are ids only, as JSON.
	Args string
	// LastError is that of a job that failed in postrider. A failed delivery is an outcome, not an error.
	LastError  *string
	DeliveryID *int64
	BatchID    *int64
}

// JobFilter selects jobs; "" = all.
type JobFilter struct{ State, Kind string }

var (
	jobList   = list[int64]{page: sqlFile("jobs.sql")}
	jobStates = sqlFile("job_states.sql")
)

// Jobs is a page of jobs, and the number of jobs in each state among the first 100,000 that PostgreSQL reads.
type Jobs struct {
	SearchedPage[JobLine, int64]
	States []Counted
}

// ReadJobs reads a page of jobs, the newest first. ErrTooSlow, ErrUnavailable.
func (r *Reader) ReadJobs(ctx context.Context, f JobFilter, t Turn[int64]) (j *Jobs, err error) {
	j = &Jobs{}
	err = r.db.Read(ctx, "jobs", func(tx pgx.Tx) error {
		if j.States, err = postgres.Rows[Counted](ctx, tx, jobStates, pgx.NamedArgs{"limit": countLimit}); err != nil {
			return err
		}
		j.SearchedPage, err = readPage[JobLine](ctx, tx, &jobList, t, false, pgx.NamedArgs{
			"state": given(f.State), "kind": given(f.Kind),
		})
		return err
	})
	return j, err
}

// readJob returns nil if the job was deleted: another one follows.
func readJob(ctx context.Context, tx pgx.Tx, id int64) (*JobLine, error) {
	job, err := postgres.Row[JobLine](ctx, tx, jobList.page, pgx.NamedArgs{"id": id, "limit": 1})
	if errors.Is(err, postgres.ErrNotFound) {
		return nil, nil
	}
	return job, err
}
