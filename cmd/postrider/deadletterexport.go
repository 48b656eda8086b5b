package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"postrider/event"
	"postrider/jobs"
	"postrider/policy"
	"postrider/store"
)

type deadletterExportCmd struct {
	databaseFlags
	Topic        string    `help:"Those of this topic." placeholder:"NAME"`
	Subscription string    `help:"Those of event subscriptions of this name." placeholder:"NAME"`
	Reason       string    `help:"Those with this reason, such as MaxDeliveryAttemptsExceeded." placeholder:"REASON"`
	From         time.Time `help:"Those given up at this time or later, such as 2026-11-22T00:00:00Z." placeholder:"TIME"`
	Until        time.Time `help:"Those given up before this time." placeholder:"TIME"`
	Format       string    `help:"eventgrid: the event as Event Grid writes dead letters. rows: the columns of postrider.dead_letters." enum:"eventgrid,rows" default:"eventgrid"`
	Output       string    `short:"o" help:"File, or URL of one (file://, s3://, azblob://), that is there once all is written; - is standard output." default:"-" placeholder:"FILE"`
}

// Help is shown by deadletter export --help.
func (deadletterExportCmd) Help() string {
	return `The oldest comes first. Dead letters stay as they are; those that come meanwhile are left out. What is not written whole ends with exit code 1 and leaves no file.

Examples:
  postrider deadletter export --topic orders --from 2026-11-22T00:00:00Z > dead.ndjson
  postrider deadletter export --format rows -o dead.ndjson
  postrider deadletter export -o 's3://backup/dead.ndjson?region=eu-west-1'`
}

// Run executes deadletter export.
func (c *deadletterExportCmd) Run(ctx context.Context) error {
	if !c.Until.IsZero() && !c.Until.After(c.From) {
		return usagef("--until %s: must be later than --from", c.Until.Format(time.RFC3339))
	}
	return c.withPool(ctx, func(pool *pgxpool.Pool) error {
		out, err := c.open(ctx)
		if err != nil {
			return err
		}
		defer out.Abort()
		line, letters, written := newProgressLine(), 0, 0
		err = store.EachLetter(ctx, pool, c.filter(), func(l *store.Letter) error {
			text, err := c.line(l)
			if err != nil {
				return fmt.Errorf("dead letter %s: %w", l.ID, err)
			}
			if c.Output == "-" {
				text = []byte(escapeControls(string(text))) // it may be a terminal; for JSON it is the same
			}
			if _, err := out.Write(text); err != nil {
				return fmt.Errorf("write to %s: %w", c.Output, err)
			}
			letters, written = letters+1, written+len(text)
			line.show(func() string { return fmt.Sprintf("%s, %.1f MB", plural(letters, "dead letter"), float64(written)/1e6) })
			return nil
		})
		line.end()
		if err != nil {
			return err
		}
		if err := out.Commit(); err != nil {
			return fmt.Errorf("write to %s: %w", c.Output, err)
		}
		return nil
	})
}

func (c *deadletterExportCmd) filter() store.LetterFilter {
	return store.LetterFilter{Topic: c.Topic, Subscription: c.Subscription, Reason: c.Reason, From: c.From, Until: c.Until}
}

func (c *deadletterExportCmd) open(ctx context.Context) (*jobs.File, error) {
	if c.Output == "-" {
		return &jobs.File{Writer: os.Stdout, Commit: func() error { return nil }, Abort: func() {}}, nil
	}
	directory, name, err := c.place()
	if err != nil {
		return nil, err
	}
	out, err := jobs.CreateFile(ctx, policy.ExportTarget{Location: directory}, name)
	if err != nil {
		return nil, fmt.Errorf("write to %s: %w", c.Output, err)
	}
	return out, nil
}

// place takes the name off what --output says.
func (c *deadletterExportCmd) place() (directory policy.Location, name string, err error) {
	if !strings.Contains(c.Output, "://") {
		whole, err := filepath.Abs(c.Output)
		return policy.Location{Scheme: "file", Path: filepath.Dir(whole)}, filepath.Base(whole), err
	}
	l, err := policy.ParseLocation(c.Output)
	if err != nil {
		return l, "", usagef("--output %q: %v", c.Output, err)
	}
	if l.Path == "" {
		return l, "", usagef("--output %q: must name a file in the bucket", c.Output)
	}
	l.Path, name = path.Split(l.Path)
	if trimmed := strings.TrimSuffix(l.Path, "/"); trimmed != "" || l.Scheme != "file" {
		l.Path = trimmed
	}
	return l, name, nil
}

// line is one dead letter on one line, whatever lines its publisher made of it.
func (c *deadletterExportCmd) line(l *store.Letter) ([]byte, error) {
	var line bytes.Buffer
	if c.Format == "rows" {
		encoder := json.NewEncoder(&line)
		encoder.SetEscapeHTML(false)
		err := encoder.Encode(letterRowOf(l))
		return line.Bytes(), err
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
	if err := json.Compact(&line, record); err != nil {
		return nil, err
	}
	line.WriteByte('\n')
	return line.Bytes(), nil
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

func letterRowOf(l *store.Letter) letterRow {
	return letterRow{
		DeadLetterID: l.ID, DeadLetteredAt: l.DeadLetteredAt.UTC(), Topic: l.Topic, Subscription: l.Subscription, Reason: l.Reason, Attempts: l.Attempts,
		LastOutcome: orNull(l.LastOutcome), LastStatus: orNull(l.LastStatus), LastError: orNull(l.LastError),
		EventID: l.EventID, EventType: l.EventType, Subject: l.Subject, Source: orNull(l.Source), EventTime: utcTime(l.EventTime),
		PublishedAt: l.PublishedAt.UTC(), OwedSince: l.OwedSince.UTC(), FirstAttemptAt: utcTime(l.FirstAttemptAt), LastAttemptAt: utcTime(l.LastAttemptAt),
		Schema: l.Schema, RetryPolicy: l.RetryPolicy, EndpointBaseURL: l.EndpointBaseURL, DeliveryID: l.DeliveryID, SystemID: l.SystemID,
		RedeliveredFrom: l.RedeliveredFrom, RedeliveredAt: utcTime(l.RedeliveredAt),
		ExportState: orNull(l.ExportState), ExportedAt: utcTime(l.ExportedAt), ExportLocation: orNull(l.ExportLocation), Body: l.Body,
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

func utcTime(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	utc := t.UTC()
	return &utc
}
