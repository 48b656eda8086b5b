package operator

import (
	"context"
	"time"

	"github.com/google/uuid"

	"postrider/internal/access"
	"postrider/internal/event"
	"postrider/internal/postgres"
)

// ImportedLetter is a dead letter of a file of another system: From is the file's name, Index the place in it, from 0.
type ImportedLetter struct {
	From         string
	Index        int
	Subscription string
	*event.DeadLetter
}

// Results of an import. With a conflict, or without its event subscription, nothing of the request is stored.
const (
	ImportDone     = "imported"
	ImportBefore   = "already_imported" // from this place of a file, or the event for this event subscription
	ImportConflict = "conflict"         // another event was imported from this place
	ImportNotFound = "not_found"        // the topic has no such event subscription
)

// ImportResult is the result for one dead letter; DeadLetterID is nil if nothing is stored.
type ImportResult struct {
	Result       string
	DeadLetterID *uuid.UUID
}

var (
	importColumns = postgres.Columns[*ImportedLetter]{
		postgres.Col("imported_from", func(l *ImportedLetter) string { return l.From }),
		postgres.Col("imported_index", func(l *ImportedLetter) int { return l.Index }),
		postgres.Col("subscription", func(l *ImportedLetter) string { return l.Subscription }),
		postgres.Col("schema", func(l *ImportedLetter) string { return string(l.Event.Schema) }),
		postgres.NullTimeCol("event_time", func(l *ImportedLetter) time.Time { return storedTime(&l.Event) }),
		postgres.Col("event_id", func(l *ImportedLetter) string { return l.Event.ID }),
		postgres.Col("event_type", func(l *ImportedLetter) string { return l.Event.Type }),
		postgres.Col("subject", func(l *ImportedLetter) string { return l.Event.Subject }),
		postgres.Col("source", func(l *ImportedLetter) string { return l.Event.Source }),
		postgres.Col("data_version", func(l *ImportedLetter) string { return l.Event.DataVersion }),
		postgres.NullTextCol("traceparent", func(l *ImportedLetter) string { return l.Event.Trace.Parent }),
		postgres.NullTextCol("tracestate", func(l *ImportedLetter) string { return l.Event.Trace.State }),
		postgres.Col("body", func(l *ImportedLetter) []byte { return l.Event.Body }),
		postgres.Col("reason", func(l *ImportedLetter) string { return l.Reason }),
		postgres.Col("attempts", func(l *ImportedLetter) int { return l.Attempts }),
		postgres.NullTextCol("last_outcome", func(l *ImportedLetter) string { return l.Outcome }),
		postgres.NullIntCol("last_status", func(l *ImportedLetter) int64 { return int64(l.Status) }),
		postgres.NullTimeCol("published_at", func(l *ImportedLetter) time.Time { return l.PublishedAt }),
		postgres.NullTimeCol("last_attempt_at", func(l *ImportedLetter) time.Time { return l.LastAttemptAt }),
	}
	importStatement = postgres.SQLFiles(sqlFiles)("importdeadletters",
		append(append([]string{"topic", "dry_run"}, importColumns.Names("items")...), "actor", "address")...)
)

// ImportDeadLetters stores dead letters of files as dead letters of a topic, all or none, and returns the result of
// each. A dry run stores nothing. *FunctionError: ErrNotFound without the topic.
func (o *Operator) ImportDeadLetters(
	ctx context.Context, topic string, letters []*ImportedLetter, dryRun bool,
) (results []ImportResult, err error) {
	actor := access.ActorOf(ctx)
	args := append(importColumns.Append([]any{topic, dryRun}, letters), actor.Name, actor.Address)
	err = postgres.RetryTransient(func() error {
		results, err = postgres.Rows[ImportResult](ctx, o.db, importStatement, args...)
		return err
	})
	if err != nil {
		return nil, postgres.CallError("import dead letters", err)
	}
	return results, nil
}
