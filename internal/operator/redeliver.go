package operator

import (
	"context"
	"time"

	"github.com/google/uuid"

	"postrider/internal/postgres"
)

// Target is the event subscription that dead letters are redelivered to; the zero value is that of each. Without Topic,
// it is one of the dead letter's topic, or of the filter's.
type Target struct{ Subscription, Topic string }

// Redeliver redelivers one dead letter and returns the id of its new delivery. One that was redelivered before is
// rejected unless again. *FunctionError, which is ErrNotFound, ErrConflict or ErrInvalid; ErrPrecondition.
func (o *Operator) Redeliver(
	ctx context.Context, id uuid.UUID, to Target, again bool, when ...postgres.Condition,
) (delivery int64, err error) {
	const function = `SELECT postrider_internal.redeliver($1, nullif($2::text, ''), nullif($3::text, ''), $4, $5, NULL,
		NULL, $6, $7)`
	delivery, err = call[int64](ctx, o, "redeliver a dead letter", function, id, to.Subscription, to.Topic, again,
		versions(when))
	return delivery, redeliveryError(err)
}

// RedeliverEvent delivers an event once more to an event subscription of its topic, see postrider.redeliver_event(),
// and returns the id of the new delivery. ErrNotFound: the event is not kept; ErrConflict with "pending": a delivery of
// it is pending, or "not_matched": it did not match, and unmatched is false; ErrInvalid.
func (o *Operator) RedeliverEvent(
	ctx context.Context, systemID uuid.UUID, subscription string, unmatched bool,
) (delivery int64, err error) {
	const function = "SELECT postrider_internal.redeliver_event($1, $2, $3, $4, $5)"
	return call[int64](ctx, o, "redeliver an event", function, systemID, subscription, unmatched)
}

// Resolve ends an open dead letter without a redelivery. The note has up to 1,000 characters. ErrNotFound, ErrInvalid.
func (o *Operator) Resolve(ctx context.Context, id uuid.UUID, note string) error {
	const function = "SELECT postrider_internal.resolve($1, true, $2, $3, $4)"
	_, err := call[string](ctx, o, "resolve a dead letter", function, id, note)
	return err
}

// Reopen takes Resolve back. ErrNotFound.
func (o *Operator) Reopen(ctx context.Context, id uuid.UUID) error {
	const function = "SELECT postrider_internal.resolve($1, false, NULL, $2, $3)"
	_, err := call[string](ctx, o, "reopen a dead letter", function, id)
	return err
}

// Purge removes one dead letter; false if there is none.
func (o *Operator) Purge(ctx context.Context, id uuid.UUID) (purged bool, err error) {
	return call[bool](ctx, o, "purge a dead letter", "SELECT postrider_internal.purge($1, $2, $3)", id)
}

// RedeliverEvents begins to deliver the past events of a topic that match the filter of one of its event subscriptions:
// published at from or later, and before until, nil for now. It returns the operation's id. rate is the most per
// second; 0 = no limit. *FunctionError.
func (o *Operator) RedeliverEvents(
	ctx context.Context, topic, subscription string, from time.Time, until *time.Time, rate int,
) (operation uuid.UUID, err error) {
	const function = "SELECT postrider_internal.redeliver_events($1, $2, $3, $4, nullif($5::int, 0), $6, $7)"
	return call[uuid.UUID](ctx, o, "redeliver past events", function, topic, subscription, from, until, rate)
}

// CancelOperation stops an operation between two steps; false if it had ended. ErrNotFound.
func (o *Operator) CancelOperation(ctx context.Context, id uuid.UUID) (canceled bool, err error) {
	return call[bool](ctx, o, "cancel an operation", "SELECT postrider_internal.cancel_operation($1, $2, $3)", id)
}
