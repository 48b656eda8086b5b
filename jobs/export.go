package jobs

import (
	"context"
	"errors"
	"fmt"
	"regexp"

	"github.com/google/uuid"
	"github.com/riverqueue/river"

	"postrider/internal/endpointconf"
	"postrider/internal/event"
	"postrider/jobs/endpoint"
	"postrider/jobs/export"
	"postrider/jobs/queue"
)

// maxExportError bounds the stored error of a location.
const maxExportError = 1000

// exporter writes dead letters to external locations.
type exporter struct {
	*runs
	exports   *export.Exports
	locations *export.Locations
	exported  chan struct{} // an export has ended: more may be due
}

// export tries once to write one file of dead letters, and records the result. A location that rejects it is a result
// and no error.
func (e *exporter) export(ctx context.Context, job *river.Job[ownedArgs]) error {
	x, err := e.exports.LoadExport(ctx, job.Args.Export, job.ID)
	if err != nil {
		return e.notLoaded(job, "an export", err)
	}
	r := &export.Result{Job: job.ID, Export: x}
	original := ""
	if err := e.writeFile(ctx, x, r); err != nil {
		if ctx.Err() != nil {
			return ctx.Err() // the stop of this node is no result
		}
		text := withoutQueries(endpoint.ErrorText(err))
		r.Location, r.Error = "", text[:min(len(text), maxExportError)]
		original = withoutQueries(endpoint.OriginalError(err).Error())
	}
	var done export.Exported
	err = e.untilRecorded(ctx, "an export", x.ID, func() error {
		var err error
		done, err = e.exports.RecordExport(ctx, r)
		return err
	})
	if err != nil {
		return err
	}
	e.logExport(r, original, done)
	if done.Pending == 0 {
		queue.Signal(e.exported)
	}
	return nil
}

// queried is a URL with a query.
var queried = regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://[^\s"'?]*)\?[^\s"']*`)

// withoutQueries removes the queries of URLs from an error: an Azure URL has a token in it.
func withoutQueries(text string) string { return queried.ReplaceAllString(text, "$1?…") }

// logExport logs the result of an export. r.Error is a plain text of the original error.
func (e *exporter) logExport(r *export.Result, original string, done export.Exported) {
	x := r.Export
	log := e.log.With("topic", x.Topic, "subscription", x.Subscription)
	if original != "" {
		log = log.With("error", original, "error_text", r.Error)
	}
	if done.Abandoned > 0 {
		log.Error("dead letters could not be exported and remain as rows only", "dead_letters", done.Abandoned,
			"tries", x.Tries+1)
	} else if r.Error != "" {
		log.Warn("dead letters could not be exported, trying again", "dead_letters", done.Pending,
			"in", endpointconf.ExportPause(x.Tries+1))
	}
	if done.Written > 0 {
		log.Info("dead letters were exported", "dead_letters", done.Written, "location", r.Location)
	}
}

// writeFile sets the result's Location if a file was written.
func (e *exporter) writeFile(ctx context.Context, x *export.Export, r *export.Result) error {
	if x.Destination == nil {
		r.Final = true
		return errors.New("deadLetterDestination names no external location any more")
	}
	target, err := e.locations.Allowed.Resolve(*x.Destination)
	if err != nil {
		return fmt.Errorf("not allowed on this node: %w", err)
	}
	r.Unfit = map[uuid.UUID]string{}
	body := []byte{'['}
	for i := range x.DeadLetters {
		end := len(body)
		if end > 1 {
			body = append(body, ',')
		}
		record, err := event.AppendDeadLetter(body, &x.DeadLetters[i].DeadLetter, x.Form())
		if err != nil {
			r.Unfit[x.DeadLetters[i].ID] = err.Error()
			record = body[:end]
		}
		body = record
	}
	body = append(body, ']')
	if len(r.Unfit) == len(x.DeadLetters) {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, export.Timeout)
	defer cancel()
	if err := e.locations.Write(bounded, target, x.Path(), body); err != nil {
		return &endpoint.PlainError{
			Text: fmt.Sprintf("write to %s: %s", target, export.ErrorText(err)), Cause: endpoint.OriginalError(err),
		}
	}
	r.Location = target.String() + "/" + x.Path()
	return nil
}
