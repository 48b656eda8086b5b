package query

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// JobLine is a job of River: the token of one attempt.
type JobLine struct {
	ID    int64  `column:"Job"`
	Kind  string `column:"Kind"`
	State string `column:"State"`
	// Args are ids only, as JSON.
	Args        string     `column:"For" class:"long"`
	ScheduledAt time.Time  `column:"Scheduled"`
	AttemptedAt *time.Time `column:"Fetched"`
	Queue       string     `column:"Queue" off:""`
	AttemptedBy []string   `column:"Node" off:""`
	CreatedAt   time.Time  `column:"Created" off:""`

	Attempt, MaxAttempts int
	DeliveryID, BatchID  *int64
}

// JobFilter selects jobs; "" = all.
type JobFilter struct{ State, Kind string }

// JobKinds are the kinds of jobs that a page can filter by.
func JobKinds() []string {
	return []string{"deliver", "batch", "route", "handshake", "export", "operation"}
}

// Jobs is a page of jobs, and the number of jobs in each state among the first 100,000 that PostgreSQL reads.
type Jobs struct {
	SearchedPage[JobLine, int64]
	States []Counted
}

// ReadJobs reads a page of jobs, the newest first. ErrTooSlow, ErrUnavailable.
func (r *Reader) ReadJobs(ctx context.Context, f JobFilter, t Turn[int64]) (*Jobs, error) {
	const counted = 100_000 // take 20 to 40 ms
	var j Jobs
	err := read(ctx, r.db, "jobs", func(r *reading) {
		j.States = rows[Counted](r, "job_states", pgx.NamedArgs{"limit": counted})
		args := pgx.NamedArgs{"state": given(f.State), "kind": given(f.Kind)}
		j.SearchedPage = readPage[JobLine](r, "jobs", t, false, args)
	})
	return &j, err
}

// readJob returns nil without an id, and for a job that was deleted: another one follows.
func readJob(r *reading, id *int64) *JobLine {
	if id == nil {
		return nil
	}
	for _, job := range rows[JobLine](r, "jobs", pgx.NamedArgs{"id": *id, "limit": 1}) {
		return &job
	}
	return nil
}
