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

	"postrider/event"
	"postrider/jobs/queue"
	"postrider/policy"
	"postrider/postgres"
	"postrider/query"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

func sqlFile(name string) string { return postgres.SQLFile(sqlFiles, name) }

// Exports are the dead letters that are to be written to an external location.
type Exports struct {
	db       *postgres.DB
	notifier *queue.Notifier

	exported, abandoned atomic.Int64
}

// NewExports returns the exports of a node.
func NewExports(db *postgres.DB, notifier *queue.Notifier) *Exports {
	return &Exports{db: db, notifier: notifier}
}

// ExportCounters count dead letters since the process began.
type ExportCounters struct {
	// Written to a location, and given up.
	Written, Abandoned int64
}

// ExportCounters reads the counters.
func (e *Exports) ExportCounters() ExportCounters {
	return ExportCounters{Written: e.exported.Load(), Abandoned: e.abandoned.Load()}
}

const (
	// maxExported and maxExportedBytes bound one file, which the node has in memory. A larger dead letter is written
	// alone.
	maxExported      = 1000
	maxExportedBytes = 8 << 20
	// maxClaims is how many event subscriptions one call claims dead letters of; the next call is a second later.
	maxClaims = 100
)

var (
	dueStatement   = sqlFile("due.sql")
	claimStatement = sqlFile("claim.sql")
	loadStatement  = sqlFile("load.sql")
)

// ClaimExports claims the dead letters that are due to be exported, and returns of how many event subscriptions. Every
// node calls it repeatedly.
func (e *Exports) ClaimExports(ctx context.Context) (claimed int, err error) {
	rows, err := e.db.Query(ctx, dueStatement, maxClaims)
	if err != nil {
		return 0, fmt.Errorf("look for dead letters to export: %w", err)
	}
	subscriptions, err := postgres.CollectIDs(rows)
	if err != nil {
		return 0, fmt.Errorf("look for dead letters to export: %w", err)
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

// Export is one file of dead letters that is to be written.
type Export struct {
	ID int64
	// Topic and Subscription are names; both may have been deleted meanwhile. Namespace: it is a namespace's topic.
	Topic, Subscription string
	Namespace           bool
	// Destination is the current dead-letter destination of the event subscription; nil if that is no external location
	// any more.
	Destination *policy.DeadLetterProperties
	// File and CreatedAt form the file's name.
	File      uuid.UUID
	CreatedAt time.Time
	// Tries is the number of failed tries.
	Tries   int
	Letters []ExportRow
}

// ExportRow is one dead letter of a file.
type ExportRow struct {
	ID uuid.UUID
	event.DeadLetter
}

// Path returns the file's name within its location.
func (x *Export) Path() string {
	of := strings.ToUpper(x.Subscription)
	if x.Namespace {
		of = x.Topic + "/" + x.Subscription
	}
	return policy.DeadLetterPath(of, x.CreatedAt, x.File.String())
}

// Form returns how its dead letters are written.
func (x *Export) Form() event.DeadLetterForm {
	if x.Namespace {
		return event.DeadLetterNested
	}
	return event.DeadLetterFlat
}

const exportLettersWhere = `WHERE l.export_id = $1 ORDER BY l.export_due_at, l.id`

// LoadExport reads what a job is to write. ErrNotFound: the job is not the export's any more.
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
	err = query.WalkDeadLetters(ctx, e.db, exportLettersWhere, []any{id}, func(l *query.StoredDeadLetter) error {
		x.Letters = append(x.Letters, ExportRow{ID: l.ID, DeadLetter: l.EventGrid(x.Form())})
		return nil
	})
	return x, err
}
