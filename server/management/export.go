package management

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"postrider/event"
	"postrider/query"
	"postrider/server/api"
)

// maxExportedPage bounds the bytes of a page; one dead letter has at most about 1 MiB.
const maxExportedPage = 8 << 20

// errPageFull stops the reading of a page.
var errPageFull = errors.New("the page is full")

// ExportDeadLettersRequest is the request GET /v1/deadLetterExport.
type ExportDeadLettersRequest struct {
	query.StoredDeadLetterFilter
	Format string `query:"format" enum:"eventgrid,rows" default:"eventgrid"`
	api.PageParams
}

// ExportedDeadLetters is one page of dead letters.
type ExportedDeadLetters api.List[json.RawMessage]

// Content writes the page with the unchanged bytes of the dead letters.
func (p ExportedDeadLetters) Content() (int, any) {
	text, _ := exactJSON(p) // JSON already, see exported
	return http.StatusOK, text
}

// exactJSON is a value as JSON in which <, > and & are not escaped.
func exactJSON(value any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return text.Bytes(), err
}

// Bodies implements api.Response.
func (ExportedDeadLetters) Bodies() map[int]any {
	return map[int]any{http.StatusOK: ExportedDeadLetters{}}
}

// ExportDeadLetters responds to GET /v1/deadLetterExport.
func (m *Handlers) ExportDeadLetters(ctx context.Context, r *ExportDeadLettersRequest) (*ExportedDeadLetters, error) {
	after, err := deadLetterPosition(&r.PageParams)
	if err != nil {
		return nil, err
	}
	r.StoredDeadLetterFilter.After = after
	switch {
	case r.Until.IsZero():
		r.Until = m.Parts.Clock.Now().UTC() // for the following pages too
	case !r.From.Before(r.Until):
		return nil, api.Invalid("deadLetteredFrom", "must be before deadLetteredUntil")
	}
	read, last, err := m.readExported(ctx, r)
	if err != nil {
		return nil, err
	}
	page := &ExportedDeadLetters{Value: read}
	if last != nil {
		page.NextLink = nextDeadLetters("/v1/deadLetterExport", r, *last)
	}
	return page, nil
}

// readExported reads one page. last is the position of its last dead letter if there are more.
func (m *Handlers) readExported(
	ctx context.Context, r *ExportDeadLettersRequest,
) (read []json.RawMessage, last *query.DeadLetterPlace, err error) {
	const step = 50 // limits the dead letters that are read in vain if the page is full early
	read, size, f := []json.RawMessage{}, 0, r.StoredDeadLetterFilter
	for n := step; n == step; {
		n = 0
		err := query.EachDeadLetter(ctx, m.Parts.DB.Pool, f, step, func(l *query.StoredDeadLetter) error {
			if len(read) == r.Limit || size > maxExportedPage {
				return errPageFull
			}
			record, err := exported(l, r.Format)
			if err != nil {
				return fmt.Errorf("dead letter %s: %w", l.ID, err)
			}
			n, size, read = n+1, size+len(record), append(read, record)
			f.After = query.DeadLetterPlace{DeadLetteredAt: l.DeadLetteredAt, DeadLetterID: l.ID}
			return nil
		})
		if errors.Is(err, errPageFull) {
			return read, &f.After, nil
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return read, nil, nil
}

// exported is one dead letter in a format.
func exported(l *query.StoredDeadLetter, format string) (json.RawMessage, error) {
	if format == "rows" {
		return exactJSON(l)
	}
	form := event.DeadLetterFlat
	if l.Namespace {
		form = event.DeadLetterNested
	}
	d := l.EventGrid(form)
	return event.AppendDeadLetter(nil, &d, form)
}
