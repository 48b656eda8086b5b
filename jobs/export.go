package jobs

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/google/uuid"
	"github.com/riverqueue/river"

	"postrider/event"
	"postrider/jobs/endpoint"
	"postrider/jobs/export"
	"postrider/jobs/queue"
	"postrider/policy"
)

const (
	// exportWorkers is how many files of dead letters one node writes at once, each of which it has in memory: 8 MiB of
	// events, twice.
	exportWorkers = 4
	// exportInterval is how late dead letters may be taken up. What follows at once, because more is due, is not late.
	// They are due five minutes after their last attempt, or at once where a policy says so: a look each second would cost
	// an idle node more than it is worth.
	exportInterval = 5 * time.Second
	// maxExportError is as much as is kept of why a location refused.
	maxExportError = 1000
)

// ExportArgs name an export.
type ExportArgs struct {
	Export int64 `json:"x"`
}

// Kind implements river.JobArgs.
func (ExportArgs) Kind() string { return queue.ExportKind }

// exporter is the River worker of exports. Its job is one try to write one file.
type exporter struct {
	river.WorkerDefaults[ExportArgs]
	engine *Engine
}

// Timeout implements river.Worker: none. The try has a limit of its own, and what it came to is written down for as
// long as it takes.
func (w *exporter) Timeout(*river.Job[ExportArgs]) time.Duration { return -1 }

// Work implements river.Worker. A location that refuses is a result and no error.
func (w *exporter) Work(ctx context.Context, job *river.Job[ExportArgs]) error {
	return workOwned(ctx, w.engine, "an export", job.Args.Export, tokenOf(job.JobRow), w.engine.parts.Exports.LoadExport,
		w.engine.export)
}

// export tries once to write a file, and writes down what that came to.
func (e *Engine) export(ctx context.Context, x *export.Export, job int64) error {
	r := &export.ExportResult{Job: job, Export: x}
	original := ""
	if err := e.writeExport(ctx, x, r); err != nil {
		if ctx.Err() != nil {
			return ctx.Err() // our own stop says nothing about the location
		}
		said := withoutQueries(endpoint.ErrorText(err))
		r.Location, r.Error = "", said[:min(len(said), maxExportError)]
		original = withoutQueries(endpoint.OriginalError(err).Error())
	}
	var done export.Exported
	err := e.untilRecorded(ctx, "an export", x.ID, func() (err error) {
		done, err = e.parts.Exports.RecordExport(ctx, r)
		return err
	})
	if err != nil {
		return err
	}
	e.tellExport(r, original, done)
	if done.Pending == 0 {
		signal(e.exported)
	}
	return nil
}

// queried is a URL with a query.
var queried = regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://[^\s"'?]*)\?[^\s"']*`)

// withoutQueries takes the queries out of the URLs of an error: a token of Azure's stands in one, and people read the
// error.
func withoutQueries(said string) string { return queried.ReplaceAllString(said, "$1?…") }

// tellExport logs how an export ended. The original error is what r.Error is a plain text of.
func (e *Engine) tellExport(r *export.ExportResult, original string, done export.Exported) {
	x := r.Export
	log := e.log.With("topic", x.Topic, "subscription", x.Subscription)
	if original != "" {
		log = log.With("error", original, "error_text", r.Error)
	}
	switch {
	case done.GivenUp > 0:
		log.Error("dead letters could not be exported and are kept as rows alone", "dead_letters", done.GivenUp,
			"tries", x.Tries+1)
	case r.Error != "":
		log.Warn("dead letters could not be exported, trying again", "dead_letters", done.Pending,
			"in", policy.ExportPause(x.Tries+1))
	}
	if done.Written > 0 {
		log.Info("dead letters were exported", "dead_letters", done.Written, "location", r.Location)
	}
}

// writeExport sets the result's Location where a file was written.
func (e *Engine) writeExport(ctx context.Context, x *export.Export, r *export.ExportResult) error {
	if x.Destination == nil {
		r.GiveUp = true
		return errors.New("deadLetterDestination names no location outside any more")
	}
	target, err := e.places.Locations.Resolve(*x.Destination)
	if err != nil {
		return fmt.Errorf("this node may not: %w", err)
	}
	var body []byte
	body, r.Unfit = exportBody(x)
	if len(r.Unfit) == len(x.Letters) {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, export.Timeout)
	defer cancel()
	if err := e.places.Write(bounded, target, x.Path(), body); err != nil {
		return &endpoint.PlainError{Text: fmt.Sprintf("write to %s: %s", target, export.ErrorText(err)), Cause: err}
	}
	r.Location = target.String() + "/" + x.Path()
	return nil
}

// exportBody is an array of dead letters, as Event Grid writes them, and which of them cannot be written so.
func exportBody(x *export.Export) (body []byte, unfit map[uuid.UUID]string) {
	unfit = map[uuid.UUID]string{}
	body = append(body, '[')
	for i := range x.Letters {
		end := len(body)
		if end > 1 {
			body = append(body, ',')
		}
		record, err := event.AppendDeadLetter(body, &x.Letters[i].DeadLetter, x.Form())
		if err != nil {
			unfit[x.Letters[i].ID] = err.Error()
			record = body[:end]
		}
		body = record
	}
	return append(body, ']'), unfit
}

// claimExports takes up what is due.
func (e *Engine) claimExports(ctx context.Context) {
	e.everyOr(ctx, exportInterval, e.exported, "taking up dead letters to export", func(ctx context.Context) error {
		_, err := e.parts.Exports.ClaimExports(ctx)
		return err
	})
}
