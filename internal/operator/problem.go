package operator

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// AcknowledgeProblem acknowledges a problem until a time in the next 30 days. The note has up to 1,000 characters.
// ErrNotFound, ErrInvalid.
func (o *Operator) AcknowledgeProblem(ctx context.Context, id uuid.UUID, until time.Time, note string) error {
	const function = "SELECT postrider_internal.acknowledge_problem($1, $2, $3, $4, $5)"
	_, err := call[string](ctx, o, "acknowledge a problem", function, id, until, note)
	return err
}

// ResolveProblem ends a problem until it fails again. The note has up to 1,000 characters. ErrNotFound, ErrInvalid.
func (o *Operator) ResolveProblem(ctx context.Context, id uuid.UUID, note string) error {
	const function = "SELECT postrider_internal.resolve_problem($1, $2, $3, $4)"
	_, err := call[string](ctx, o, "resolve a problem", function, id, note)
	return err
}
