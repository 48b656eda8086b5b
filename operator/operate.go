package operator

import (
	"context"
	"log/slog"

	"postrider/access"
	"postrider/catalog"
	"postrider/policy"
	"postrider/postgres"

	"github.com/google/uuid"
)

// ReasonRetriedByOperator is why a member leaves its batch when an operator retries it.
const ReasonRetriedByOperator policy.Reason = "RetriedByOperator"

// Operator does what an operator does to deliveries, dead letters and events. It calls the SQL functions that
// operators call with psql, so that each action is implemented once. It returns their rejections as *FunctionError.
type Operator struct {
	db            *postgres.DB
	log           *slog.Logger
	clock         *postgres.Clock
	subscriptions *catalog.Subscriptions
	poke          func()
}

// NewOperator returns the Operator of a database. poke wakes fetchers after deliveries became due.
func NewOperator(
	db *postgres.DB, clock *postgres.Clock, subscriptions *catalog.Subscriptions, poke func(), log *slog.Logger,
) *Operator {
	return &Operator{db: db, log: log, clock: clock, subscriptions: subscriptions, poke: poke}
}

// Cancel ends a pending delivery. A running attempt may still reach the endpoint, but is not recorded. ErrNotFound;
// ErrConflict: it has ended.
func (o *Operator) Cancel(ctx context.Context, delivery int64) error {
	var state string
	return o.call(ctx, "cancel a delivery", "SELECT postrider_internal.cancel($1, $2, $3)", &state, delivery)
}

// RetryNow makes a pending delivery's next attempt due now. ErrNotFound; ErrPaused, ErrNotValidated or ErrConflict: its
// event subscription is on hold; ErrConflict: it has ended, or an attempt is running.
func (o *Operator) RetryNow(ctx context.Context, delivery int64) error {
	if err := o.do(ctx, "retry a delivery", "SELECT postrider_internal.retry_now($1, $2, $3)", delivery); err != nil {
		return err
	}
	o.poke()
	return nil
}

// DeadLetterNow dead-letters a pending delivery and returns the dead letter's id. The errors are those of Cancel.
func (o *Operator) DeadLetterNow(ctx context.Context, delivery int64) (letter uuid.UUID, err error) {
	return letter, o.call(ctx, "dead-letter a delivery", "SELECT postrider_internal.dead_letter_now($1, $2, $3)",
		&letter, delivery)
}

// TestDelivery delivers a sample event to one event subscription, which need not match its filter, and returns the
// delivery's id; see postrider.test_delivery(). ErrNotFound; ErrConflict: it has expired.
func (o *Operator) TestDelivery(ctx context.Context, topic, subscription string) (delivery int64, err error) {
	return delivery, o.call(ctx, "make a test delivery", "SELECT postrider_internal.test_delivery($1, $2, $3, $4)",
		&delivery, topic, subscription)
}

// EraseEvent erases the content of an event everywhere and cancels its pending deliveries, see postrider.erase_event().
// It returns how many events were erased: 0 = it was erased before. ErrNotFound.
func (o *Operator) EraseEvent(ctx context.Context, systemID uuid.UUID) (erased int, err error) {
	return erased, o.call(ctx, "erase an event", "SELECT postrider_internal.erase_event($1, NULL, $2, $3)",
		&erased, systemID)
}

// EraseSubject erases all events of a topic with exactly this subject, which must not be empty. It returns how many. If
// there are more than a thousand, or finding them takes more than a second, it begins an operation and returns its id.
// ErrNotFound: there is no such topic; ErrInvalid.
func (o *Operator) EraseSubject(
	ctx context.Context, topic, subject string,
) (erased int, operation *uuid.UUID, err error) {
	const call = "SELECT erased, operation_id FROM postrider_internal.erase_subject($1, $2, $3, $4)"
	err = o.scan(ctx, "erase the events of a subject", call, []any{&erased, &operation}, topic, subject)
	return erased, operation, err
}

func (o *Operator) do(ctx context.Context, doing, function string, args ...any) error {
	var nothing string
	return o.call(ctx, doing, "SELECT coalesce(("+function+")::text, '')", &nothing, args...)
}

// operateTries is how often a call is tried that PostgreSQL rolls back because of another transaction.
const operateTries = 3

// call calls an SQL function that returns one value. The last two arguments of each such function are the actor.
func (o *Operator) call(ctx context.Context, doing, function string, result any, args ...any) error {
	return o.scan(ctx, doing, function, []any{result}, args...)
}

// scan is call for a function that returns several values.
func (o *Operator) scan(ctx context.Context, doing, function string, results []any, args ...any) (err error) {
	who := access.ActorOf(ctx)
	for range operateTries {
		if err = o.db.QueryRow(ctx, function, append(args, who.Name, who.Address)...).Scan(results...); err == nil {
			return nil
		}
		if !postgres.IsTransient(err) {
			break
		}
	}
	return postgres.CallError(doing, err)
}
