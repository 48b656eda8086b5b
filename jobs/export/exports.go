// Package export writes dead letters to locations outside the database: files in a directory or a bucket. Exports has
// the rows of the exports and their jobs; Locations has the open locations.
package export

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"postrider/internal/endpointconf"
	"postrider/internal/event"
	"postrider/internal/postgres"
	"postrider/internal/query"
	"postrider/jobs/queue"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

var sqlFile = postgres.SQLFiles(sqlFiles)

// Exports claims dead letters for export, and records exports.
type Exports struct {
	db       *postgres.DB
	notifier *queue.Notifier

	written, abandoned atomic.Int64
}

// NewExports returns the exports of a node.
func NewExports(db *postgres.DB, notifier *queue.Notifier) *Exports {
	return &Exports{db: db, notifier: notifier}
}

// ExportCounters count dead letters since the process began: written to a location, and abandoned.
type ExportCounters struct{ Written, Abandoned int64 }

// ExportCounters reads the counters.
func (e *Exports) ExportCounters() ExportCounters {
	return ExportCounters{Written: e.written.Load(), Abandoned: e.abandoned.Load()}
}

const (
	// maxExported and maxExportedBytes bound one file, which the node has in memory. A larger dead letter is written
	// alone.
	maxExported      = 1000
	maxExportedBytes = 8 << 20
	// maxClaims is the number of event subscriptions whose dead letters one call claims.
	maxClaims = 100
)

var (
	dueStatement    = sqlFile("due", "limit")
	claimStatement  = sqlFile("claim", "subscription", "limit", "bytes")
	loadStatement   = sqlFile("load", "export", "job")
	recordStatement = sqlFile("record")
)

// ClaimExports claims the dead letters that are due to be exported, and returns the number of their event
// subscriptions. Every node calls it repeatedly.
func (e *Exports) ClaimExports(ctx context.Context) (claimed int, err error) {
	subscriptions, err := postgres.Values[int64](ctx, e.db, dueStatement, maxClaims)
	if err != nil {
		return 0, fmt.Errorf("find dead letters to export: %w", err)
	}
	for _, subscription := range subscriptions {
		var taken int
		if err := e.db.QueryRow(ctx, claimStatement, subscription, maxExported, maxExportedBytes).Scan(&taken); err != nil {
			return claimed, fmt.Errorf("claim dead letters to export: %w", err)
		}
		if taken > 0 {
			claimed++
		}
	}
	if claimed > 0 {
		e.notifier.RequestFetch(queue.ExportQueue)
	}
	return claimed, nil
}

// Export is one file of dead letters to be written.
type Export struct {
	ID int64
	// Topic and Subscription are names; both may be deleted. Namespace: it is a namespace's topic.
	Topic, Subscription string
	Namespace           bool
	// Destination is the current dead-letter destination of the event subscription; nil if it is no external location.
	Destination *endpointconf.DeadLetterProperties
	// File and CreatedAt form the file's name.
	File      uuid.UUID
	CreatedAt time.Time
	// Tries is the number of failed tries.
	Tries       int
	DeadLetters []DeadLetter
}

// DeadLetter is one dead letter of a file.
type DeadLetter struct {
	ID uuid.UUID
	event.DeadLetter
}

// Path returns the file's name within its location.
func (x *Export) Path() string {
	of := strings.ToUpper(x.Subscription)
	if x.Namespace {
		of = x.Topic + "/" + x.Subscription
	}
	return endpointconf.DeadLetterPath(of, x.CreatedAt, x.File.String())
}

// Form returns the format of its dead letters.
func (x *Export) Form() event.DeadLetterForm {
	if x.Namespace {
		return event.DeadLetterNested
	}
	return event.DeadLetterFlat
}

const exportedWhere = `WHERE l.export_id = $1 ORDER BY l.export_due_at, l.id`

// LoadExport reads the export that a job writes. ErrNotFound: the job is not the export's any more.
func (e *Exports) LoadExport(ctx context.Context, id, job int64) (*Export, error) {
	x := &Export{}
	var file [16]byte
	err := e.db.QueryRow(ctx, loadStatement, id, job).
		Scan(&x.ID, &x.Topic, &x.Subscription, &x.Namespace, &x.Destination, &file, &x.CreatedAt, &x.Tries)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("export: %w", postgres.ErrNotFound)
	}
	if err != nil {
		return nil, postgres.ReadError("an export", err)
	}
	x.File = file
	err = query.WalkDeadLetters(ctx, e.db, exportedWhere, []any{id}, func(l *query.StoredDeadLetter) error {
		x.DeadLetters = append(x.DeadLetters, DeadLetter{ID: l.ID, DeadLetter: l.EventGrid(x.Form())})
		return nil
	})
	return x, err
}

// Result is the result of one try to write an export.
type Result struct {
	Job    int64
	Export *Export
	// Location is the URL of the file that was written; "" for none.
	Location string
	// Error is why no file was written. Final: another try would fail, too.
	Error string
	Final bool
	// Unfit has the dead letters that could not be written to the file, with the reasons.
	Unfit map[uuid.UUID]string
}

// Exported has the numbers of an export's dead letters after a try.
type Exported struct{ Written, Abandoned, Pending int }

// RecordExport records the result of a try. If the job is not the export's any more, nothing changes.
func (e *Exports) RecordExport(ctx context.Context, r *Result) (done Exported, err error) {
	unfit, reasons := make([][16]byte, 0, len(r.Unfit)), make([]string, 0, len(r.Unfit))
	for id, reason := range r.Unfit {
		unfit, reasons = append(unfit, id), append(reasons, postgres.NullText(reason).String)
	}
	err = e.db.QueryRow(ctx, recordStatement, pgx.NamedArgs{
		"job": r.Job, "id": r.Export.ID, "created": r.Export.CreatedAt, "location": r.Location,
		"error": postgres.NullText(r.Error).String, "final": r.Final, "unfit": unfit, "unfit_errors": reasons,
		"pause": endpointconf.ExportPause(r.Export.Tries + 1),
	}).Scan(&done.Written, &done.Abandoned, &done.Pending, nil)
	if err != nil {
		return Exported{}, fmt.Errorf("record an export: %w", err)
	}
	e.written.Add(int64(done.Written))
	e.abandoned.Add(int64(done.Abandoned))
	return done, nil
}
