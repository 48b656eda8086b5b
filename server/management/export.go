package management

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"

	"postrider/event"
	"postrider/postgres"
	"postrider/query"
	"postrider/server/api"
)

// The formats of exported dead letters.
const (
	exportAsEventGrid = "eventgrid"
	exportAsRows      = "rows"
)

// maxExportedPage bounds the bytes of a page; one dead letter has at most about 1 MiB.
const maxExportedPage = 8 << 20

// errPageFull ends the reading of a page.
var errPageFull = errors.New("the page is full")

// exportedPage is one page of dead letters in their bytes: an encoder would escape and reformat them.
type exportedPage struct {
	records  []json.RawMessage
	nextLink *string
}

// VisitExportDeadLettersResponse writes the page.
func (p exportedPage) VisitExportDeadLettersResponse(w http.ResponseWriter) error {
	next, err := json.Marshal(p.nextLink)
	if err != nil {
		return err
	}
	var page bytes.Buffer
	page.WriteString(`{"value":[`)
	for i, record := range p.records {
		if i > 0 {
			page.WriteByte(',')
		}
		page.Write(record)
	}
	fmt.Fprintf(&page, `],"nextLink":%s}`, next)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	_, err = page.WriteTo(w)
	return err
}

// ExportDeadLetters answers GET /v1/deadLetterExport.
func (m *Handlers) ExportDeadLetters(
	ctx context.Context, r api.ExportDeadLettersRequestObject,
) (api.ExportDeadLettersResponseObject, error) {
	p := r.Params
	page, after, err := readPlace(p.Limit, p.Cursor)
	if err != nil {
		return nil, err
	}
	var found problems
	f := query.StoredDeadLetterFilter{
		Topic: found.text("topic", p.Topic), Subscription: found.text("subscription", p.Subscription),
		Reason: found.text("reason", p.Reason),
		After:  query.DeadLetterPlace{DeadLetteredAt: after.at, DeadLetterID: after.id},
	}
	from, until := found.span("deadLetteredFrom", p.DeadLetteredFrom, "deadLetteredUntil", p.DeadLetteredUntil)
	found.oneOf("format", p.Format, []string{exportAsEventGrid, exportAsRows})
	if err := found.Err(); err != nil {
		return nil, err
	}
	f.From = optional(from, time.Time{})
	if f.Until = optional(until, m.Parts.Clock.Now()); until == nil { // for the pages that follow
		p.DeadLetteredUntil = new(f.Until.UTC().Format(time.RFC3339Nano))
	}
	read, last, err := readExported(ctx, m.Parts.DB, f, optional(p.Format, exportAsEventGrid), page.Limit)
	if err != nil {
		return nil, err
	}
	if last != nil {
		read.nextLink = linkTo("/v1/deadLetterExport", p, page.Limit, placeName(last.DeadLetteredAt, last.DeadLetterID))
	}
	return read, nil
}

// readExported reads one page. last is the place of its last dead letter if there are more.
func readExported(
	ctx context.Context, db *postgres.DB, f query.StoredDeadLetterFilter, format string, limit int,
) (read exportedPage, last *query.DeadLetterPlace, err error) {
	const step = 50 // a page that is full early has read no more than this for nothing
	size := 0
	for n := step; n == step; {
		n = 0
		err := query.EachDeadLetter(ctx, db.Pool, f, step, func(l *query.StoredDeadLetter) error {
			if len(read.records) == limit || size > maxExportedPage {
				return errPageFull
			}
			record, err := exportedLetter(l, format)
			if err != nil {
				return fmt.Errorf("dead letter %s: %w", l.ID, err)
			}
			n, size, read.records = n+1, size+len(record), append(read.records, record)
			f.After = query.DeadLetterPlace{DeadLetteredAt: l.DeadLetteredAt, DeadLetterID: l.ID}
			return nil
		})
		if errors.Is(err, errPageFull) {
			return read, &f.After, nil
		}
		if err != nil {
			return read, nil, err
		}
	}
	return read, nil, nil
}

// exportedLetter is one dead letter in one line.
func exportedLetter(l *query.StoredDeadLetter, format string) (json.RawMessage, error) {
	var line bytes.Buffer
	if format == exportAsRows {
		encoder := json.NewEncoder(&line)
		encoder.SetEscapeHTML(false)
		err := encoder.Encode(letterRowOf(l))
		return bytes.TrimSpace(line.Bytes()), err
	}
	form := event.DeadLetterBeside
	if l.Namespace {
		form = event.DeadLetterAround
	}
	d := l.EventGrid(form)
	record, err := event.AppendDeadLetter(nil, &d, form)
	if err != nil {
		return nil, err
	}
	err = json.Compact(&line, record)
	return line.Bytes(), err
}

// letterRow has the names of postrider.dead_letters.
type letterRow struct {
	DeadLetterID    uuid.UUID       `json:"dead_letter_id"`
	DeadLetteredAt  time.Time       `json:"dead_lettered_at"`
	Topic           string          `json:"topic"`
	Subscription    string          `json:"subscription"`
	Reason          string          `json:"reason"`
	Attempts        int             `json:"attempts"`
	LastOutcome     *string         `json:"last_outcome"`
	LastStatus      *int            `json:"last_status"`
	LastError       *string         `json:"last_error"`
	EventID         string          `json:"event_id"`
	EventType       string          `json:"event_type"`
	Subject         string          `json:"subject"`
	Source          *string         `json:"source"`
	EventTime       *time.Time      `json:"event_time"`
	PublishedAt     time.Time       `json:"published_at"`
	OwedSince       time.Time       `json:"owed_since"`
	FirstAttemptAt  *time.Time      `json:"first_attempt_at"`
	LastAttemptAt   *time.Time      `json:"last_attempt_at"`
	Schema          string          `json:"schema"`
	RetryPolicy     string          `json:"retry_policy"`
	EndpointBaseURL string          `json:"endpoint_base_url"`
	DeliveryID      int64           `json:"delivery_id"`
	SystemID        uuid.UUID       `json:"system_id"`
	RedeliveredFrom *uuid.UUID      `json:"redelivered_from"`
	RedeliveredAt   *time.Time      `json:"redelivered_at"`
	ExportState     *string         `json:"export_state"`
	ExportedAt      *time.Time      `json:"exported_at"`
	ExportLocation  *string         `json:"export_location"`
	Body            json.RawMessage `json:"body"`
}

func letterRowOf(l *query.StoredDeadLetter) letterRow {
	return letterRow{
		DeadLetterID: l.ID, DeadLetteredAt: l.DeadLetteredAt.UTC(), Topic: l.Topic, Subscription: l.Subscription,
		Reason: l.Reason, Attempts: l.Attempts,
		LastOutcome: orNull(l.LastOutcome), LastStatus: orNull(l.LastStatus), LastError: orNull(l.LastError),
		EventID: l.EventID, EventType: l.EventType, Subject: l.Subject, Source: orNull(l.Source),
		EventTime:   utcOrNull(l.EventTime),
		PublishedAt: l.PublishedAt.UTC(), OwedSince: l.OwedSince.UTC(), FirstAttemptAt: utcOrNull(l.FirstAttemptAt),
		LastAttemptAt: utcOrNull(l.LastAttemptAt),
		Schema:        l.Schema, RetryPolicy: l.RetryPolicy, EndpointBaseURL: l.EndpointBaseURL, DeliveryID: l.DeliveryID,
		SystemID:        l.SystemID,
		RedeliveredFrom: l.RedeliveredFrom, RedeliveredAt: utcOrNull(l.RedeliveredAt),
		ExportState: orNull(l.ExportState), ExportedAt: utcOrNull(l.ExportedAt), ExportLocation: orNull(l.ExportLocation),
		Body: l.Body,
	}
}

// orNull is nil for the zero value.
func orNull[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}
