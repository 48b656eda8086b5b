// Package operator does what an operator does: cancel, retry, redeliver, resolve, purge and erase, one by one or in
// bulk.
package operator

import (
	"context"
	"log/slog"

	"postrider/internal/access"
	"postrider/internal/catalog"
	"postrider/internal/postgres"
	"postrider/internal/query"

	"github.com/google/uuid"
)

// Operator does what an operator does to deliveries, dead letters and events. It calls the SQL functions that
// operators call with psql, so that each action is implemented once. It returns their rejections as *FunctionError.
type Operator struct {
	db            *postgres.DB
	reader        *query.Reader
	log           *slog.Logger
	clock         *postgres.Clock
	subscriptions *catalog.Subscriptions
	requestFetch  func()
}

// NewOperator returns the Operator of a database. It calls requestFetch after deliveries became due. Its dry runs share
// the places of the reader's searches.
func NewOperator(
	db *postgres.DB, reader *query.Reader, clock *postgres.Clock, subscriptions *catalog.Subscriptions,
	requestFetch func(), log *slog.Logger,
) *Operator {
	return &Operator{
		db: db, reader: reader, log: log, clock: clock, subscriptions: subscriptions, requestFetch: requestFetch,
	}
}

// Cancel ends a pending delivery. A running attempt may still reach the endpoint, but is not recorded. ErrNotFound;
// ErrConflict: it has ended.
func (o *Operator) Cancel(ctx context.Context, delivery int64) error {
	_, err := call[string](ctx, o, "cancel a delivery", "SELECT postrider_internal.cancel($1, $2, $3)", delivery)
	return err
}

// RetryNow makes a pending delivery's next attempt due now. ErrNotFound; ErrPaused, ErrNotValidated or ErrConflict: its
// event subscription is on hold; ErrConflict: it has ended, or an attempt is running.
func (o *Operator) RetryNow(ctx context.Context, delivery int64) error {
	const function = "SELECT coalesce((SELECT postrider_internal.retry_now($1, $2, $3))::text, '')"
	if _, err := call[string](ctx, o, "retry a delivery", function, delivery); err != nil {
		return err
	}
	o.requestFetch()
	return nil
}

// DeadLetterNow dead-letters a pending delivery and returns the dead letter's id. The errors are those of Cancel.
func (o *Operator) DeadLetterNow(ctx context.Context, delivery int64) (uuid.UUID, error) {
	const function = "SELECT postrider_internal.dead_letter_now($1, $2, $3)"
	return call[uuid.UUID](ctx, o, "dead-letter a delivery", function, delivery)
}

// TestDelivery delivers a sample event to one event subscription, which need not match its filter, and returns the
// delivery's id; see postrider.test_delivery(). ErrNotFound; ErrConflict: it has expired.
func (o *Operator) TestDelivery(ctx context.Context, topic, subscription string) (int64, error) {
	const function = "SELECT postrider_internal.test_delivery($1, $2, $3, $4)"
	return call[int64](ctx, o, "create a test delivery", function, topic, subscription)
}

// EraseEvent erases the content of an event everywhere and cancels its pending deliveries, see postrider.erase_event().
// It returns the number of erased events: 0 = it was erased before. ErrNotFound.
func (o *Operator) EraseEvent(ctx context.Context, systemID uuid.UUID) (int, error) {
	return call[int](ctx, o, "erase an event", "SELECT postrider_internal.erase_event($1, NULL, $2, $3)", systemID)
}

// EraseSubject erases all events of a topic with exactly this subject, which must not be empty. It returns their
// number. If there are more than a thousand, or the search takes more than a second, it begins an operation and returns
// its id. ErrNotFound: there is no such topic; ErrInvalid.
func (o *Operator) EraseSubject(
	ctx context.Context, topic, subject string,
) (erased int, operation *uuid.UUID, err error) {
	const function = "SELECT erased, operation_id FROM postrider_internal.erase_subject($1, $2, $3, $4)"
	err = o.scan(ctx, "erase the events of a subject", function, []any{&erased, &operation}, topic, subject)
	return erased, operation, err
}

// call calls an SQL function that returns one value.
func call[T any](ctx context.Context, o *Operator, doing, function string, args ...any) (result T, err error) {
	err = o.scan(ctx, doing, function, []any{&result}, args...)
	return result, err
}

// scan calls an SQL function. The last two arguments of each function are the actor's name and address.
func (o *Operator) scan(ctx context.Context, doing, function string, results []any, args ...any) error {
	actor := access.ActorOf(ctx)
	args = append(args, actor.Name, actor.Address)
	err := postgres.RetryTransient(func() error { return o.db.QueryRow(ctx, function, args...).Scan(results...) })
	if err != nil {
		return postgres.CallError(doing, err)
	}
	return nil
}
