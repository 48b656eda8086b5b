package jobs

import (
	"context"
	"errors"
	"time"

	"github.com/riverqueue/river"

	"postrider/jobs/endpoint"
	"postrider/jobs/queue"
	"postrider/postgres"
)

// The pauses of a result that could not be recorded. It is tried until the process stops: a repeated request would
// reach an endpoint that has responded, and a file would be written twice.
const (
	recordMinPause = 100 * time.Millisecond
	recordMaxPause = 5 * time.Second

	dropTimeout = 5 * time.Second
)

// workOwned is one run of a job that a row owns: a request of a handshake, or a try of an export. It loads the row; do
// obtains a result and records it. If the row cannot be loaded, the job is deferred. A failure of an endpoint or a
// location is a result.
func workOwned[T any](
	ctx context.Context, e *Engine, what string, id int64, token queue.JobToken,
	load func(ctx context.Context, id, job int64) (T, error), do func(ctx context.Context, owned T, job int64) error,
) error {
	job := token.JobID
	release := e.parts.Active.Add(job)
	defer release()
	owned, err := load(ctx, id, job)
	switch {
	case errors.Is(err, postgres.ErrNotFound):
		e.drop(token, err) // ended meanwhile, or given to another job
		return nil
	case err != nil && !errors.Is(err, context.Canceled):
		e.log.Warn(what+" could not be read, trying again", "id", id, "in", beginPause, "error", err)
		return river.JobSnooze(beginPause)
	case err == nil:
		err = do(ctx, owned, job)
	}
	return e.settled(job, err)
}

// drop ends a job that is no row's token, unless it is known to be gone: by its time as well, see queue.JobToken.
// River, which would end it by the id alone, is not involved. If the database does not respond, the row is reclaimed
// like a job whose fetch got no response.
func (e *Engine) drop(job queue.JobToken, known error) {
	e.ended.Add(job.JobID)
	if errors.Is(known, queue.ErrJobGone) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), dropTimeout)
	defer cancel()
	if err := e.parts.JobRows.EndJob(ctx, job); !errors.Is(err, queue.ErrJobGone) {
		e.log.Warn("a job that has nothing to do could not be ended", "job", job.JobID, "error", err)
	}
}

// settled notes how a job has ended that is not a delivery's: else Stop would give it back as a new row.
func (e *Engine) settled(job int64, err error) error {
	switch {
	case err == nil:
		e.ended.Add(job)
	case errors.Is(err, endpoint.ErrInterrupted), errors.Is(err, context.Canceled):
		e.interrupted.Add(job)
	}
	return err
}

// untilRecorded repeats record until it succeeds or the process stops. Repeating is safe: a job that is gone changes
// nothing.
func (e *Engine) untilRecorded(ctx context.Context, what string, id int64, record func() error) error {
	for wait := recordMinPause; ; wait = min(2*wait, recordMaxPause) {
		err := record()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		e.log.Warn(what+" could not be recorded, trying again", "id", id, "in", wait, "error", err)
		pause(ctx, wait)
	}
}
