package export

import (
	"context"
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

// Exports are the dead letters that are to be written to a location outside the database.
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
	// Written to a location, and GivenUp.
	Written, GivenUp int64
}

// ExportCounters reads the counters.
func (e *Exports) ExportCounters() ExportCounters {
	return ExportCounters{Written: e.exported.Load(), GivenUp: e.abandoned.Load()}
}

const (
	// maxExported and maxExportedBytes bound one file: the node that writes it has it in memory. A dead letter that is larger goes alone.
	maxExported      = 1000
	maxExportedBytes = 8 << 20
	// exportLanes is how many event subscriptions one look takes up; the next comes a second later.
	exportLanes = 100
)

// dueExportsStatement names the event subscriptions that have something to export and no export under way. It steps from one to the
// next through the index: whoever has a hundred thousand dead letters waiting for their time costs no more than who has one.
const dueExportsStatement = `
WITH RECURSIVE lanes AS (
    (SELECT subscription_id, export_due_at FROM postrider_internal.dead_letters WHERE export_state = 'pending' AND export_id IS NULL ORDER BY subscription_id, export_due_at LIMIT 1)
    UNION ALL
    SELECT next.subscription_id, next.export_due_at FROM lanes CROSS JOIN LATERAL (
        SELECT l.subscription_id, l.export_due_at FROM postrider_internal.dead_letters l
         WHERE l.export_state = 'pending' AND l.export_id IS NULL AND l.subscription_id > lanes.subscription_id ORDER BY l.subscription_id, l.export_due_at LIMIT 1) next
)
SELECT subscription_id FROM lanes
 WHERE export_due_at <= now() AND NOT EXISTS (SELECT FROM postrider_internal.exports x WHERE x.subscription_id = lanes.subscription_id)
 ORDER BY export_due_at LIMIT $1`

// claimExportStatement takes up what is due of one event subscription, the oldest first, and inserts the job that writes it. Two nodes
// at once: one of them finds nothing left, or the other's export.
var claimExportStatement = `
WITH due AS MATERIALIZED (
    SELECT id, export_due_at, octet_length(body) AS bytes FROM postrider_internal.dead_letters
     WHERE subscription_id = $1 AND export_state = 'pending' AND export_id IS NULL AND export_due_at <= now()
     ORDER BY export_due_at, id LIMIT $2 FOR UPDATE SKIP LOCKED
), fitting AS MATERIALIZED (
    SELECT id FROM (SELECT id, bytes, sum(bytes) OVER (ORDER BY export_due_at, id) AS total FROM due) sized WHERE total <= $3 OR total = bytes
), export AS (
    INSERT INTO postrider_internal.exports (subscription_id, job_id) SELECT $1, nextval('postrider_internal.river_job_id_seq') WHERE EXISTS (SELECT FROM fitting)
    ON CONFLICT (subscription_id) DO NOTHING RETURNING id, job_id
), job AS (` + queue.Exports.Jobs("1", "now()", "export") + `
), taken AS (
    UPDATE postrider_internal.dead_letters l SET export_id = export.id FROM export WHERE l.id = ANY (ARRAY (SELECT id FROM fitting)) RETURNING l.id
)
SELECT count(*) FROM taken`

// ClaimExports takes up the dead letters that are due to be exported, and says of how many event subscriptions. Every node calls it
// again and again.
func (e *Exports) ClaimExports(ctx context.Context) (claimed int, err error) {
	rows, err := e.db.Query(ctx, dueExportsStatement, exportLanes)
	if err != nil {
		return 0, fmt.Errorf("look for dead letters to export: %w", err)
	}
	lanes, err := postgres.CollectIDs(rows)
	if err != nil {
		return 0, fmt.Errorf("look for dead letters to export: %w", err)
	}
	for _, subscription := range lanes {
		var taken int
		if err := e.db.QueryRow(ctx, claimExportStatement, subscription, maxExported, maxExportedBytes).Scan(&taken); err != nil {
			return claimed, fmt.Errorf("take up dead letters to export: %w", err)
		}
		if taken > 0 {
			claimed++
		}
	}
	if claimed > 0 {
		e.notifier.PokeQueue(ctx, queue.ExportQueue)
	}
	return claimed, nil
}

// Export is one file of dead letters that is to be written.
type Export struct {
	ID int64
	// Topic and Subscription are names; both may have been deleted meanwhile. Namespace: the topic is a namespace's.
	Topic, Subscription string
	Namespace           bool
	// Destination is where the event subscription's dead letters go by now; nil where that is no location outside any more.
	Destination *policy.DeadLetterProperties
	// File and CreatedAt make the file's name.
	File      uuid.UUID
	CreatedAt time.Time
	// Tries is how many have failed.
	Tries   int
	Letters []ExportLetter
}

// ExportLetter is one dead letter of a file.
type ExportLetter struct {
	ID uuid.UUID
	event.DeadLetter
}

// Path is the file's name within its location.
func (x *Export) Path() string {
	of := strings.ToUpper(x.Subscription)
	if x.Namespace {
		of = x.Topic + "/" + x.Subscription
	}
	return policy.DeadLetterPath(of, x.CreatedAt, x.File.String())
}

// Form is how its dead letters are written.
func (x *Export) Form() event.DeadLetterForm {
	if x.Namespace {
		return event.DeadLetterAround
	}
	return event.DeadLetterBeside
}

const loadExportStatement = `
SELECT x.id, t.name AS topic, s.name AS subscription, t.kind = 'namespace' AS namespace,
       CASE WHEN s.dead_letter_destination ->> 'endpointType' IN ('Blob', 'StorageBlob') THEN s.dead_letter_destination -> 'properties' END AS destination,
       x.file, x.created_at, x.tries
  FROM postrider_internal.exports x
  JOIN postrider_internal.event_subscriptions s ON s.id = x.subscription_id
  JOIN postrider_internal.topics t ON t.id = s.topic_id
 WHERE x.id = $1 AND x.job_id = $2`

const exportLettersWhere = `WHERE l.export_id = $1 ORDER BY l.export_due_at, l.id`

// LoadExport reads what a job is to write. ErrNotFound: the job is nobody's any more.
func (e *Exports) LoadExport(ctx context.Context, id, job int64) (*Export, error) {
	x := &Export{}
	var file [16]byte
	err := e.db.QueryRow(ctx, loadExportStatement, id, job).Scan(&x.ID, &x.Topic, &x.Subscription, &x.Namespace, &x.Destination, &file, &x.CreatedAt, &x.Tries)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("export: %w", postgres.ErrNotFound)
	}
	if err != nil {
		return nil, postgres.ReadFailed("an export", err)
	}
	x.File = file
	err = query.WalkLetters(ctx, e.db, exportLettersWhere, []any{id}, func(l *query.Letter) error {
		x.Letters = append(x.Letters, ExportLetter{ID: l.ID, DeadLetter: l.EventGrid(x.Form())})
		return nil
	})
	return x, err
}
