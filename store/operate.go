package store

import (
	"context"
	"fmt"

	"postrider/policy"

	"github.com/google/uuid"
)

// ReasonRetriedByOperator is why a member leaves its batch that somebody wanted attempted now.
const ReasonRetriedByOperator policy.Reason = "RetriedByOperator"

// Operator does what people on call do to deliveries and event subscriptions, and erases events. It calls the functions that people
// call by SQL, so that there is one way to do it. What they refuse is a *FunctionError.
type Operator struct {
	db   *DB
	poke func()
}

// Operator acts on the store's database.
func (s *Store) Operator() *Operator { return &Operator{s.db, s.poke} }

// Cancel ends a pending delivery. An attempt that is under way may still reach the endpoint; nothing of it is recorded. ErrNotFound;
// ErrConflict: it has ended.
func (o *Operator) Cancel(ctx context.Context, delivery int64) error {
	var state string
	return o.call(ctx, "cancel a delivery", "SELECT postrider_internal.cancel($1, $2, $3)", &state, delivery)
}

// RetryNow makes a pending delivery's next attempt due now. ErrNotFound; ErrPaused, ErrNotValidated or ErrConflict: its event
// subscription is on hold; ErrConflict: it has ended, or an attempt is under way.
func (o *Operator) RetryNow(ctx context.Context, delivery int64) error {
	if err := o.do(ctx, "retry a delivery", "SELECT postrider_internal.retry_now($1, $2, $3)", delivery); err != nil {
		return err
	}
	o.poke()
	return nil
}

// DeadLetterNow gives a pending delivery up and returns the dead letter's id. The errors are those of Cancel.
func (o *Operator) DeadLetterNow(ctx context.Context, delivery int64) (letter uuid.UUID, err error) {
	return letter, o.call(ctx, "dead-letter a delivery", "SELECT postrider_internal.dead_letter_now($1, $2, $3)", &letter, delivery)
}

// TestDelivery delivers a sample event to one event subscription alone, whatever its filter says, and returns the delivery's id; see
// postrider.test_delivery(). ErrNotFound; ErrConflict: it has expired.
func (o *Operator) TestDelivery(ctx context.Context, topic, subscription string) (delivery int64, err error) {
	return delivery, o.call(ctx, "make a test delivery", "SELECT postrider_internal.test_delivery($1, $2, $3, $4)", &delivery, topic, subscription)
}

// EraseEvent erases what an event says, everywhere, and cancels what is pending of it; see postrider.erase_event(). It says how many
// events were erased: 0 = it was before. ErrNotFound.
func (o *Operator) EraseEvent(ctx context.Context, systemID uuid.UUID) (erased int, err error) {
	return erased, o.call(ctx, "erase an event", "SELECT postrider_internal.erase_event($1, NULL, $2, $3)", &erased, systemID)
}

// EraseSubject erases all events of a topic with exactly this subject, which must not be empty. It says how many; or, where they are more
// than a thousand or not found within a second, which operation has begun to, else nil. ErrNotFound: there is no such topic; ErrInvalid.
func (o *Operator) EraseSubject(ctx context.Context, topic, subject string) (erased int, operation *uuid.UUID, err error) {
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
	who := ActorOf(ctx)
	for range operateTries {
		if err = o.db.QueryRow(ctx, function, append(args, who.Name, who.Address)...).Scan(answers...); err == nil {
			return nil
		}
		if !isTransient(err) {
			break
		}
	}
	return failed(doing, err)
}

const (
	deliveryQuery = `SELECT delivery_id, topic, subscription, system_id, event_id, event_type, subject, state, hold, reason, attempts, reruns, next_attempt_at,
       hold_until, expires_at, last_attempt_at, last_outcome, last_status, owed_since, finished_at, batch_id, redelivered_from,
       operation_id, dead_letter_id
  FROM postrider.deliveries WHERE delivery_id = $1`

	// attemptsQuery finds the attempts of a delivery, alone and in the batches that it was in.
	attemptsQuery = `SELECT` + attemptColumns + `
  FROM (SELECT * FROM postrider.delivery_attempts WHERE delivery_id = $1
        UNION ALL
        SELECT a.* FROM postrider_internal.batch_members m JOIN postrider.delivery_attempts a ON a.batch_id = m.batch_id
         WHERE m.delivery_id = $1 AND a.number <= coalesce(m.left_after, a.number)) a
 ORDER BY number, late, started_at LIMIT $2`
)

// Delivery reads a delivery. ErrNotFound.
func (o *Operator) Delivery(ctx context.Context, id int64) (*DeliveryLine, error) {
	found, err := collect[DeliveryLine](ctx, o.db, deliveryQuery, id)
	switch {
	case err != nil:
		return nil, fmt.Errorf("delivery %d: %w", id, err)
	case len(found) == 0:
		return nil, fmt.Errorf("delivery %d: %w", id, ErrNotFound)
	}
	return &found[0], nil
}

// Attempts reads the first attempts of a delivery, up to limit, those of the batches that it was in among them.
func (o *Operator) Attempts(ctx context.Context, id int64, limit int) ([]AttemptLine, error) {
	attempts, err := collect[AttemptLine](ctx, o.db, attemptsQuery, id, limit)
	if err != nil {
		return nil, fmt.Errorf("the attempts of delivery %d: %w", id, err)
	}
	return attempts, nil
}
