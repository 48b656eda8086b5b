package query

import (
	"context"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"postrider/internal/postgres"
)

// Found is what has an id or a name.
type Found struct {
	// Kind is "delivery", "batch", "event", "dead letter", "operation", "topic" or "event subscription".
	Kind string
	// ID is its id or its name, and Topic the topic of an event subscription.
	ID    string
	Topic *string
	Label *string
	At    time.Time
	// Exact: it has the text as its id or name, not only in its name.
	Exact bool
}

// Find reads what has an id or a name, at most 50: exact matches first, and then the newest. ErrTooSlow,
// ErrUnavailable, *postgres.BusyError.
func (r *Reader) Find(ctx context.Context, text string) (found []Found, err error) {
	args := pgx.NamedArgs{"text": text, "number": nil, "uuid": nil}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		args["number"] = n
	}
	if id, err := uuid.Parse(text); err == nil {
		args["uuid"] = id
	}
	err = r.search(ctx, postgres.ReadTime, "a search", func(r *reading) { found = rows[Found](r, "find", args) })
	return found, err
}
