package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// stepEvents redelivers the next past events of one day that match the event subscription's filter. The operation ends
// with the last day.
func (p *Operator) stepEvents(ctx context.Context, tx pgx.Tx, o *operationRow) (step stepped, err error) {
	sub, gone, err := p.targetOf(ctx, tx, *o.TargetID)
	if err != nil || gone != "" {
		step.failure = &gone
		return step, err
	}
	place := past{
		TopicID: sub.TopicID, From: *o.PublishedFrom, Until: *o.PublishedUntil, Day: o.ReachedAt.UTC(), After: o.ReachedID,
	}
	found, err := place.scan(ctx, tx, o.most())
	if err != nil {
		return step, err
	}
	read := 0
	if len(found.ids) > 0 {
		if step, read, err = redeliverPast(ctx, tx, o, sub, place.Day, found.ids); err != nil {
			return step, err
		}
	}
	step.Taken = int(step.Done) // the rate is that of deliveries
	step.last = place.pass(&found, read, o.most())
	step.ReachedAt, step.ReachedID = pgtype.Timestamptz{Time: place.Day, Valid: true}, &place.After
	return step, nil
}

// targetOf finds the event subscription that events are redelivered to; else gone is why there is none.
func (p *Operator) targetOf(ctx context.Context, tx pgx.Tx, id int64) (sub *Subscription, gone string, err error) {
	sub, err = p.subscriptions.LockSubscription(ctx, tx, id)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil, "the event subscription was deleted", nil
	case err != nil:
		return nil, "", err
	case sub.Expired(p.clock.Now()):
		return nil, "the event subscription has expired", nil
	}
	return sub, "", nil
}

// redeliverPast creates the deliveries of the events that match, and returns how many events it has read.
func redeliverPast(
	ctx context.Context, tx pgx.Tx, o *operationRow, sub *Subscription, day time.Time, ids [][16]byte,
) (step stepped, read int, err error) {
	wanted, sizes, read, err := wantedPast(ctx, tx, sub.Topic, &sub.Filter, day, ids)
	if err != nil {
		return step, 0, err
	}
	const call = "SELECT postrider_internal.redeliver_past($1, $2, $3, $4, $5)"
	if len(wanted) > 0 {
		if err := tx.QueryRow(ctx, call, wanted, sizes, day, sub.ID, o.ID).Scan(&step.Done); err != nil {
			return step, 0, fmt.Errorf("redeliver past events: %w", err)
		}
	}
	step.Skipped = int64(read) - step.Done
	return step, read, nil
}
