package operator

import (
	"context"
	"time"

	"github.com/google/uuid"

	"postrider/query"
)

// Target is where dead letters are redelivered to. The zero value is the event subscription of each. Without Topic, it
// is the topic of the dead letter, or of the filter.
type Target struct{ Subscription, Topic string }

// Redeliver redelivers one dead letter and returns the id of its new delivery. One that was redelivered before is
// rejected unless again. *FunctionError, which is ErrNotFound, ErrConflict or ErrInvalid.
func (o *Operator) Redeliver(ctx context.Context, id uuid.UUID, to Target, again bool) (delivery int64, err error) {
	const call = "SELECT postrider_internal.redeliver($1, nullif($2::text, ''), nullif($3::text, ''), $4, $5, $6)"
	return delivery, o.call(ctx, "redeliver a dead letter", call, &delivery, id, to.Subscription, to.Topic, again)
}

// Purge removes one dead letter; false if there is none.
func (o *Operator) Purge(ctx context.Context, id uuid.UUID) (purged bool, err error) {
	err = o.call(ctx, "purge a dead letter", "SELECT postrider_internal.purge($1, $2, $3)", &purged, id)
	return purged, err
}

// RedeliverAll begins to redeliver all dead letters that a filter matches now, and returns the operation's id. If
// Redelivered is nil in the filter, those redelivered before are left out. rate is the most per second; 0 = no limit.
// *FunctionError.
func (o *Operator) RedeliverAll(
	ctx context.Context, filter *query.DeadLetterFilter, to Target, rate int,
) (operation uuid.UUID, err error) {
	const call = "SELECT postrider_internal.redeliver_all($1, nullif($2::text, ''), nullif($3::text, ''), $4, $5, $6)"
	text, err := filter.Text()
	if err != nil {
		return uuid.Nil, err
	}
	err = o.call(ctx, "redeliver dead letters", call, &operation, text, to.Subscription, to.Topic, orNull(rate))
	return operation, err
}

// PurgeAll begins to remove all dead letters that a filter matches now, and returns the operation's id. rate as for
// RedeliverAll. *FunctionError.
func (o *Operator) PurgeAll(
	ctx context.Context, filter *query.DeadLetterFilter, rate int,
) (operation uuid.UUID, err error) {
	const call = "SELECT postrider_internal.purge_all($1, $2, $3, $4)"
	text, err := filter.Text()
	if err != nil {
		return uuid.Nil, err
	}
	err = o.call(ctx, "purge dead letters", call, &operation, text, orNull(rate))
	return operation, err
}

// RedeliverEvents begins to deliver the past events of a topic that match the filter of one of its event subscriptions:
// published at from or later, and before until, nil for now. It returns the operation's id. rate as for RedeliverAll.
// *FunctionError.
func (o *Operator) RedeliverEvents(
	ctx context.Context, topic, subscription string, from time.Time, until *time.Time, rate int,
) (operation uuid.UUID, err error) {
	const call = "SELECT postrider_internal.redeliver_events($1, $2, $3, $4, $5, $6, $7)"
	err = o.call(ctx, "redeliver past events", call, &operation, topic, subscription, from, until, orNull(rate))
	return operation, err
}

func orNull(n int) *int {
	if n == 0 {
		return nil
	}
	return &n
}

// CancelOperation stops an operation between two steps; false if it had ended. ErrNotFound.
func (o *Operator) CancelOperation(ctx context.Context, id uuid.UUID) (canceled bool, err error) {
	err = o.call(ctx, "cancel an operation", "SELECT postrider_internal.cancel_operation($1, $2, $3)", &canceled, id)
	return canceled, err
}
