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
// event subscription is on hold; ErrConflict: it has ended, or an attempt is under way.
func (o *Operator) RetryNow(ctx context.Context, delivery int64) error {
	if err := o.do(ctx, "retry a delivery", "SELECT postrider_internal.retry_now($1, $2, $3)", delivery); err != nil {
		return err
	}
	o.poke()
	return nil
}

// DeadLetterNow gives a pending delivery up and returns the dead letter's id. The errors are those of Cancel.
func (o *Operator) DeadLetterNow(ctx context.Context, delivery int64) (letter uuid.UUID, err error) {
	return letter, o.call(ctx, "dead-letter a delivery", "SELECT postrider_internal.dead_letter_now($1, $2, $3)",
		&letter, delivery)
}

// TestDelivery delivers a sample event to one event subscription alone, whatever its filter says, and returns the
// delivery's id; see postrider.test_delivery(). ErrNotFound; ErrConflict: it has expired.
func (o *Operator) TestDelivery(ctx context.Context, topic, subscription string) (delivery int64, err error) {
	return delivery, o.call(ctx, "make a test delivery", "SELECT postrider_internal.test_delivery($1, $2, $3, $4)",
		&delivery, topic, subscription)
}

// EraseEvent erases what an event says, everywhere, and cancels what is pending of it; see postrider.erase_event(). It
// says how many events were erased: 0 = it was before. ErrNotFound.
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
	return erased, operation, o.ask(ctx, "erase the events of a subject", call, []any{&erased, &operation}, topic, subject)
}

func (o *Operator) do(ctx context.Context, doing, function string, args ...any) error {
	var nothing string
	return o.call(ctx, doing, "SELECT coalesce(("+function+")::text, '')", &nothing, args...)
}

// operateTries: what PostgreSQL rolled back to let another through is tried again.
const operateTries = 3

// call calls one of the functions that act; their last two arguments say who does.
func (o *Operator) call(ctx context.Context, doing, function string, answer any, args ...any) error {
	return o.ask(ctx, doing, function, []any{answer}, args...)
}

// ask is call for a function that answers several values.
func (o *Operator) ask(ctx context.Context, doing, function string, answers []any, args ...any) (err error) {
	who := access.ActorOf(ctx)
	for range operateTries {
		if err = o.db.QueryRow(ctx, function, append(args, who.Name, who.Address)...).Scan(answers...); err == nil {
			return nil
		}
		if !postgres.IsTransient(err) {
			break
		}
	}
	return postgres.Failed(doing, err)
}
