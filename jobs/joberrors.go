package jobs

import (
	"context"
	"errors"
	"log/slog"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"postrider/store"
)

// joberrors keeps the text of PostgreSQL and Go out of the errors that River stores with a job, because the Jobs page
// shows them. The log has that text.
type joberrors struct {
	river.MiddlewareDefaults
	log *slog.Logger
}

// Work runs a job.
func (m *joberrors) Work(ctx context.Context, job *rivertype.JobRow, run func(context.Context) error) error {
	err := run(ctx)
	if err == nil {
		return nil
	}
	var text string
	level := slog.LevelWarn
	switch state := store.SQLState(err); {
	case errors.Is(err, context.Canceled):
		level = slog.LevelDebug
		text = "the node stopped before the job ended"
	case errors.Is(err, store.ErrPoison):
		text = "the database rejected the data of this job; the log of the node has the cause"
	case state != "", store.IsOutage(err), errors.Is(err, store.ErrUnavailable):
		text = "the database did not run a statement of this job; the log of the node has the cause"
	default:
		return err
	}
	m.log.Log(ctx, level, "a job ended with an error", "job", job.ID, "kind", job.Kind, "error", err, "sqlstate", store.SQLState(err))
	return &plainError{text: text, cause: err}
}
