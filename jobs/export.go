package jobs

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/google/uuid"

	"postrider/event"
	"postrider/jobs/endpoint"
	"postrider/jobs/export"
	"postrider/jobs/queue"
	"postrider/policy"
)

const (
	// exportInterval is how late dead letters may be claimed; while more are due, the next claim follows at once. They are
	// due five minutes after their last attempt, or at once if their policy says so: a check each second would cost an
	// idle node more than it is worth.
	exportInterval = 5 * time.Second
	// maxExportError bounds the text that is kept of an error of a location.
	maxExportError = 1000
)

// export tries once to write a file, and records the result.
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
		queue.Signal(e.exported)
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
	case done.Abandoned > 0:
		log.Error("dead letters could not be exported and are kept as rows alone", "dead_letters", done.Abandoned,
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
