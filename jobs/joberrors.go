package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"postrider/jobs/endpoint"
	"postrider/postgres"
)

// joberrors replaces the texts of PostgreSQL and Go in the errors that River stores with a job: the Jobs page shows
// them. The log has the original errors.
type joberrors struct {
	river.MiddlewareDefaults
	log  *slog.Logger
	node string
}

// Work runs a job.
func (m *joberrors) Work(ctx context.Context, job *rivertype.JobRow, run func(context.Context) error) error {
	err := m.runRecovered(ctx, job, run)
	if err == nil {
		return nil
	}
	var text string
	var syntax *json.SyntaxError
	var wrongType *json.UnmarshalTypeError
	level := slog.LevelWarn
	switch state := postgres.SQLState(err); {
	case errors.Is(err, context.Canceled):
		level = slog.LevelDebug
		text = "the node stopped before the job ended"
	case errors.Is(err, postgres.ErrPoison):
		text = "the database rejected the data of this job; the log of the node has the cause"
	case state != "", postgres.IsOutage(err), errors.Is(err, postgres.ErrUnavailable):
		text = "the database did not run a statement of this job; the log of the node has the cause"
	case errors.As(err, &syntax), errors.As(err, &wrongType):
		text = "the arguments of this job cannot be read; the log of the node has the cause"
	case isPlain(err):
		return err
	default:
		text = m.internalError()
	}
	m.log.Log(ctx, level, "a job ended with an error", "job", job.ID, "kind", job.Kind, "error", err,
		"sqlstate", postgres.SQLState(err))
	return &endpoint.PlainError{Text: text, Cause: err}
}

// runRecovered turns a panic into an error, as River does, but logs the panic's text and stack.
func (m *joberrors) runRecovered(
	ctx context.Context, job *rivertype.JobRow, run func(context.Context) error,
) (err error) {
	defer func() {
		cause := recover()
		if cause == nil {
			return
		}
		m.log.ErrorContext(ctx, "a job panicked", "job", job.ID, "kind", job.Kind,
			"error", fmt.Sprint(cause), "stack", string(debug.Stack()))
		err = &endpoint.PlainError{Text: m.internalError(), Cause: errPanic}
	}()
	return run(ctx)
}

// errPanic is the cause of a job's error when the job panicked.
var errPanic = errors.New("panic")

func (m *joberrors) internalError() string {
	return "internal error; the log of node " + m.node + " has the cause"
}

// isPlain reports whether River may store the error as it is: it has no text of PostgreSQL or Go.
func isPlain(err error) bool {
	var plain *endpoint.PlainError
	var snooze *rivertype.JobSnoozeError
	var cancel *rivertype.JobCancelError
	return errors.As(err, &plain) || errors.As(err, &snooze) || errors.As(err, &cancel) ||
		errors.Is(err, endpoint.ErrInterrupted) || errors.Is(err, errNoPolicy)
}
