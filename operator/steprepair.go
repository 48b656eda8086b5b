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

	"postrider/event"
	"postrider/postgres"
	"postrider/query"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

// Results of items that a repair does not redeliver. Those of paths, tests and validations continue with the problem.
const (
	resultUnchanged = "unchanged"
	resultInvalid   = "invalid"
	resultSize      = "size"
)

// repairItem is a dead letter of a selection. Problem is why it cannot be repaired, Message the same in words; nil if
// it can.
type repairItem struct {
	Position           int
	DeadLetterID       uuid.UUID
	Problem, Message   *string
	Skipped            bool // the problem is no failure
	Topic, InputSchema *string
	InputSchemaMapping *event.Mapping
	Body               []byte

	// edited is the event to deliver; nil for the original one.
	edited *event.Event `db:"-"`
}

// readRepairs reads the next items of a selection after a position.
func readRepairs(
	ctx context.Context, db postgres.Querier, selection uuid.UUID, after, most int, target *int64, again *time.Time,
) ([]repairItem, error) {
	const next = "SELECT * FROM postrider_internal.next_repairs($1, $2, $3, $4, $5, $6)"
	rows, _ := db.Query(ctx, next, selection, after, most, query.PastBytes, target, again) // CollectRows has its error
	items, err := pgx.CollectRows(rows, pgx.RowToStructByNameLax[repairItem])
	if err != nil {
		return nil, fmt.Errorf("read the dead letters of a repair: %w", err)
	}
	return items, nil
}

// edit applies a patch and validates the event. The result is "" for an event to deliver.
func (i *repairItem) edit(patch *Patch, now time.Time, includeUnchanged bool) (result string) {
	if i.Problem != nil {
		return *i.Problem
	}
	changed, err := patch.Apply(i.Body)
	if failed, ok := errors.AsType[*PatchError](err); ok {
		return failed.Cause + ": " + failed.Error()
	}
	if bytes.Equal(changed, i.Body) {
		if includeUnchanged {
			return ""
		}
		return resultUnchanged
	}
	in := event.Input{
		Schema: event.Schema(*i.InputSchema), Topic: *i.Topic, Mapping: i.InputSchemaMapping, NewID: uuid.NewString, Now: now,
	}
	i.edited, err = in.ParseOne(changed)
	var invalid *event.Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &invalid) && invalid.Code == event.CodePayloadTooLarge:
		return resultSize + ": " + invalid.About("event")
	case errors.As(err, &invalid):
		return resultInvalid + ": " + invalid.About("event")
	default:
		return resultInvalid + ": " + err.Error()
	}
}

// repairedItem is an item with its result.
type repairedItem struct {
	*repairItem
	result string
}

// event is the edited event; an empty one delivers the original.
func (i repairedItem) event() event.Event {
	if i.edited == nil {
		return event.Event{}
	}
	return *i.edited
}

var (
	repairedColumns = postgres.Columns[repairedItem]{
		postgres.Col("position", "int", func(i repairedItem) int { return i.Position }),
		postgres.Col("dead_letter_id", "uuid", func(i repairedItem) [16]byte { return i.DeadLetterID }),
		postgres.NullTextCol("result", func(i repairedItem) string { return i.result }),
		postgres.Col("edited", "bool", func(i repairedItem) bool { return i.edited != nil }),
		postgres.NullTimeCol("event_time", func(i repairedItem) time.Time { e := i.event(); return storedTime(&e) }),
		postgres.Col("event_id", "text", func(i repairedItem) string { return i.event().ID }),
		postgres.Col("event_type", "text", func(i repairedItem) string { return i.event().Type }),
		postgres.Col("subject", "text", func(i repairedItem) string { return i.event().Subject }),
		postgres.Col("source", "text", func(i repairedItem) string { return i.event().Source }),
		postgres.Col("data_version", "text", func(i repairedItem) string { return i.event().DataVersion }),
		postgres.NullTextCol("traceparent", func(i repairedItem) string { return i.event().Trace.Parent }),
		postgres.NullTextCol("tracestate", func(i repairedItem) string { return i.event().Trace.State }),
		postgres.Col("body", "bytea", func(i repairedItem) []byte { return i.event().Body }),
	}
	stepRepairsStatement = postgres.Bind(postgres.SQLFile(sqlFiles, "steprepairs.sql"),
		postgres.Value("operation", "uuid"), repairedColumns.As("items"))
)

// stepRepair repairs and redelivers the next items of a selection. What fails is recorded and does not end the step.
func (o *Operator) stepRepair(ctx context.Context, tx pgx.Tx, op *operationRow) (step stepResult, err error) {
	patch, err := ParsePatch([]byte(*op.Patch))
	if err != nil {
		return step, err
	}
	var again *time.Time
	if op.Again {
		again = &op.CreatedAt
	}
	items, err := readRepairs(ctx, tx, *op.SelectionID, op.CursorPosition, op.most(), op.TargetID, again)
	if err != nil {
		return step, err
	}
	repaired := make([]repairedItem, len(items))
	for i := range items {
		repaired[i] = repairedItem{&items[i], items[i].edit(patch, o.clock.Now(), op.IncludeUnchanged)}
	}
	return callStep(ctx, tx, stepRepairsStatement, repairedColumns.Append([]any{op.ID}, repaired)...)
}
