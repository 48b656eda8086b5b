package operator

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"postrider/internal/event"
	"postrider/internal/postgres"
	"postrider/internal/query"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

// Why a repair does not redeliver a dead letter whose event it could change.
const (
	resultUnchanged = "unchanged"
	resultInvalid   = "invalid"
)

// repairItem is a dead letter to repair. Problem is why it cannot be repaired, Message the same in words; nil if it
// can.
type repairItem struct {
	DeadLetterID       uuid.UUID
	Problem, Message   *string
	Topic, InputSchema *string
	Relay              *string
	InputSchemaMapping *event.Mapping
	Body               []byte

	// edited is the event to deliver; nil for the original one.
	edited *event.Event `db:"-"`
}

// foundDeadLetters are the next dead letters that a filter matches, and where to continue.
type foundDeadLetters struct {
	IDs       []uuid.UUID
	ReachedAt pgtype.Timestamptz
	ReachedID *uuid.UUID
	Last      bool
}

// nextRepairs reads the next dead letters that a filter matches.
func nextRepairs(
	ctx context.Context, db postgres.Querier, filter string, until time.Time, at pgtype.Timestamptz, id uuid.UUID,
	most int, target *int64, again *time.Time,
) (*foundDeadLetters, []repairItem, error) {
	const next = `SELECT ids, reached_at, reached_id, last
		FROM postrider_internal.next_dead_letters($1, $2, $3, $4, $5, $6, $7)`
	found, err := postgres.Row[foundDeadLetters](ctx, db, next, filter, until, at, id, most, query.PastBytes,
		query.ScanStep)
	if err != nil {
		return nil, nil, fmt.Errorf("find the dead letters of a repair: %w", err)
	}
	const read = `SELECT * FROM postrider_internal.read_repairs($1, $2, $3,
		coalesce($4::jsonb ->> 'state' = 'resolved', false))`
	items, err := postgres.Rows[repairItem](ctx, db, read, found.IDs, target, again, filter)
	if err != nil {
		return nil, nil, fmt.Errorf("read the dead letters of a repair: %w", err)
	}
	return found, items, nil
}

// edit applies a patch and validates the event. cause is "" for an event to deliver; message is the cause in words.
func (i *repairItem) edit(patch *Patch, now time.Time, includeUnchanged bool) (cause, message string) {
	if i.Problem != nil {
		return *i.Problem, *i.Message
	}
	changed := patch.Apply(i.Body)
	if bytes.Equal(changed, i.Body) {
		if includeUnchanged {
			return "", ""
		}
		return resultUnchanged, "the patch does not change it"
	}
	in := event.Input{
		Schema: event.Schema(*i.InputSchema), Topic: *i.Topic, Mapping: i.InputSchemaMapping, AnyTopic: *i.Relay != "none",
		NewID: uuid.NewString, Now: now,
	}
	var err error
	if i.edited, err = in.ParseOne(changed); err == nil {
		return "", ""
	}
	if invalid, ok := errors.AsType[*event.Error](err); ok {
		return resultInvalid, invalid.About("event")
	}
	return resultInvalid, err.Error()
}

// isSkipped reports whether a cause is no failure.
func isSkipped(cause string) bool {
	return cause == resultUnchanged || cause == "redelivered" || cause == "resolved"
}

// event is the edited event; an empty one delivers the original.
func (i *repairItem) event() event.Event {
	if i.edited == nil {
		return event.Event{}
	}
	return *i.edited
}

var (
	repairedColumns = postgres.Columns[*repairItem]{
		postgres.Col("dead_letter_id", func(i *repairItem) [16]byte { return i.DeadLetterID }),
		postgres.Col("edited", func(i *repairItem) bool { return i.edited != nil }),
		postgres.NullTimeCol("event_time", func(i *repairItem) time.Time { e := i.event(); return storedTime(&e) }),
		postgres.Col("event_id", func(i *repairItem) string { return i.event().ID }),
		postgres.Col("event_type", func(i *repairItem) string { return i.event().Type }),
		postgres.Col("subject", func(i *repairItem) string { return i.event().Subject }),
		postgres.Col("source", func(i *repairItem) string { return i.event().Source }),
		postgres.Col("data_version", func(i *repairItem) string { return i.event().DataVersion }),
		postgres.NullTextCol("traceparent", func(i *repairItem) string { return i.event().Trace.Parent }),
		postgres.NullTextCol("tracestate", func(i *repairItem) string { return i.event().Trace.State }),
		postgres.Col("body", func(i *repairItem) []byte { return i.event().Body }),
	}
	stepRepairsStatement = postgres.SQLFiles(sqlFiles)("steprepairs",
		append([]string{"operation", "started_by", "target", "again_before"}, repairedColumns.Names("items")...)...)
)

// stepRepair repairs and redelivers the next dead letters. What fails is counted and does not end the step.
func (o *Operator) stepRepair(ctx context.Context, tx pgx.Tx, op *operationRow) (step stepResult, err error) {
	patch, err := parsePatch([]byte(*op.Patch))
	if err != nil {
		return step, err
	}
	at := pgtype.Timestamptz{Valid: true, InfinityModifier: pgtype.NegativeInfinity}
	if op.ReachedAt != nil {
		at = pgtype.Timestamptz{Valid: true, Time: *op.ReachedAt}
	}
	found, items, err := nextRepairs(ctx, tx, op.Filter, op.CreatedAt, at, op.ReachedID, op.most(), op.TargetID,
		op.again())
	if err != nil {
		return step, err
	}
	var edits []*repairItem
	var failed int64
	var failure *string
	for i := range items {
		item := &items[i]
		cause, message := item.edit(patch, o.clock.Now(), op.IncludeUnchanged)
		if cause == "" {
			edits = append(edits, item)
		} else if !isSkipped(cause) {
			if cause == resultInvalid { // an erasure would not find the text
				message = "the edited event is invalid"
			}
			failed, failure = failed+1, new(fmt.Sprintf("dead letter %s: %s", item.DeadLetterID, message))
		}
	}
	if len(edits) > 0 {
		args := []any{op.ID, op.StartedBy, op.TargetID, op.again()}
		step, err = callStep(ctx, tx, stepRepairsStatement, repairedColumns.Append(args, edits)...)
	}
	step.Taken, step.ReachedAt, step.ReachedID, step.Last = len(found.IDs), found.ReachedAt, found.ReachedID, found.Last
	if step.Failed += failed; step.Error == nil {
		step.Error = failure
	}
	step.Skipped = int64(step.Taken) - step.Done - step.Failed
	return step, err
}
