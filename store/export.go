package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"postrider/event"
	"postrider/policy"
)

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
), job AS (` + exports.jobs("1", "now()", "export") + `
), taken AS (
    UPDATE postrider_internal.dead_letters l SET export_id = export.id FROM export WHERE l.id = ANY (ARRAY (SELECT id FROM fitting)) RETURNING l.id
)
SELECT count(*) FROM taken`

// ClaimExports takes up the dead letters that are due to be exported, and says of how many event subscriptions. Every node calls it
// again and again.
func (s *Store) ClaimExports(ctx context.Context) (claimed int, err error) {
	rows, err := s.db.Query(ctx, dueExportsStatement, exportLanes)
	if err != nil {
		return 0, fmt.Errorf("look for dead letters to export: %w", err)
	}
	lanes, err := collectIDs(rows)
	if err != nil {
		return 0, fmt.Errorf("look for dead letters to export: %w", err)
	}
	for _, subscription := range lanes {
		var taken int
		if err := s.db.QueryRow(ctx, claimExportStatement, subscription, maxExported, maxExportedBytes).Scan(&taken); err != nil {
			return claimed, fmt.Errorf("take up dead letters to export: %w", err)
		}
		if taken > 0 {
			claimed++
		}
	}
	if claimed > 0 {
		s.PokeQueue(ctx, ExportQueue)
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
func (s *Store) LoadExport(ctx context.Context, id, job int64) (*Export, error) {
	x := &Export{}
	var file [16]byte
	err := s.db.QueryRow(ctx, loadExportStatement, id, job).Scan(&x.ID, &x.Topic, &x.Subscription, &x.Namespace, &x.Destination, &file, &x.CreatedAt, &x.Tries)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("export: %w", ErrNotFound)
	}
	if err != nil {
		return nil, readError("an export", err)
	}
	x.File = file
	err = eachLetter(ctx, s.db, exportLettersWhere, []any{id}, func(l *Letter) error {
		x.Letters = append(x.Letters, ExportLetter{ID: l.ID, DeadLetter: l.EventGrid(x.Form())})
		return nil
	})
	return x, err
}

// letterColumns are those of Letter. Whether event subscription and topic are deleted makes no difference: their rows stay.
const letterColumns = `
SELECT l.id, l.dead_lettered_at, l.topic, l.subscription, t.kind = 'namespace' AS namespace, s.event_delivery_schema, l.endpoint_base_url, l.reason, l.attempts,
       coalesce(l.last_outcome, '') AS last_outcome, coalesce(l.last_status, 0) AS last_status, coalesce(l.last_error, '') AS last_error, l.first_attempt_at, l.last_attempt_at,
       l.owed_since, l.published_at, l.event_time, l.event_uuid AS system_id, l.event_id, l.event_type, l.subject, l.source, l.data_version, l.schema, l.retry_policy, l.delivery_id,
       l.redelivered_from, l.redelivered_at, coalesce(l.export_state, '') AS export_state, l.exported_at, coalesce(l.export_location, '') AS export_location, l.body
  FROM postrider_internal.dead_letters l
  JOIN postrider_internal.event_subscriptions s ON s.id = l.subscription_id
  JOIN postrider_internal.topics t ON t.id = l.topic_id `

// Letter is one dead letter, whole.
type Letter struct {
	ID                                  uuid.UUID
	DeadLetteredAt                      time.Time
	Topic, Subscription                 string
	Namespace                           bool // the topic is a namespace's
	EventDeliverySchema                 string
	EndpointBaseURL                     string `db:"endpoint_base_url"`
	Reason                              string
	Attempts                            int
	LastOutcome                         string // "" where no attempt was made
	LastStatus                          int    // 0 = no answer
	LastError                           string
	FirstAttemptAt, LastAttemptAt       *time.Time
	OwedSince, PublishedAt              time.Time
	EventTime                           *time.Time
	SystemID                            uuid.UUID
	EventID, EventType, Subject, Source string
	DataVersion, Schema, RetryPolicy    string
	DeliveryID                          int64
	RedeliveredFrom                     *uuid.UUID
	RedeliveredAt                       *time.Time
	ExportState                         string // "" where it is kept here alone
	ExportedAt                          *time.Time
	ExportLocation                      string
	Body                                []byte // the event as it was accepted
}

// EventGrid is the dead letter as Event Grid tells it in this form.
func (l *Letter) EventGrid(form event.DeadLetterForm) event.DeadLetter {
	d := event.DeadLetter{
		Topic: l.Topic, Delivery: event.Schema(l.EventDeliverySchema), Reason: l.Reason, Attempts: l.Attempts, Outcome: l.LastOutcome, Status: l.LastStatus, PublishedAt: l.PublishedAt,
		Event: event.Event{
			Schema: event.Schema(l.Schema), ID: l.EventID, Type: l.EventType, Subject: l.Subject, Source: l.Source, DataVersion: l.DataVersion, Body: l.Body,
		},
	}
	if form == event.DeadLetterAround {
		d.Reason = policy.Reason(l.Reason).Sentence()
	}
	if l.EventTime != nil {
		d.Event.Time = *l.EventTime
	}
	if l.LastAttemptAt != nil {
		d.LastAttemptAt = *l.LastAttemptAt
	}
	return d
}

// eachLetter reads dead letters one by one.
func eachLetter(ctx context.Context, db querier, where string, args []any, do func(*Letter) error) error {
	rows, err := db.Query(ctx, letterColumns+where, args...)
	if err != nil {
		return readError("dead letters", err)
	}
	defer rows.Close()
	for rows.Next() {
		l, err := pgx.RowToAddrOfStructByName[Letter](rows)
		if err != nil {
			return readError("dead letters", err)
		}
		if err := do(l); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return readError("dead letters", err)
	}
	return nil
}
