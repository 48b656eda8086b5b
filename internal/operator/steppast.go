package operator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"postrider/internal/catalog"
	"postrider/internal/postgres"
	"postrider/internal/query"
)

// stepEvents redelivers the next past events of one day that match the event subscription's filter. The operation ends
// with the last day.
func (o *Operator) stepEvents(ctx context.Context, tx pgx.Tx, op *operationRow) (step stepResult, err error) {
	sub, gone, err := o.targetOf(ctx, tx, *op.TargetID)
	if err != nil || gone != "" {
		step.Failure = &gone
		return step, err
	}
	past := query.Past{
		TopicID: sub.TopicID, From: *op.PublishedFrom, Until: *op.PublishedUntil, Day: op.ReachedAt.UTC(),
		After: op.ReachedID,
	}
	found, err := past.Scan(ctx, tx, op.most())
	if err != nil {
		return step, err
	}
	read := 0
	if len(found.IDs) > 0 {
		if step, read, err = redeliverPast(ctx, tx, op, sub, past.Day, found.IDs); err != nil {
			return step, err
		}
	}
	step.Taken = int(step.Done) // the rate is that of deliveries
	step.Last = past.Pass(&found, read, op.most())
	step.ReachedAt, step.ReachedID = pgtype.Timestamptz{Time: past.Day, Valid: true}, &past.After
	return step, nil
}

// targetOf finds the event subscription that events are redelivered to; else gone is why there is none.
func (o *Operator) targetOf(
	ctx context.Context, tx pgx.Tx, id int64,
) (sub *catalog.Subscription, gone string, err error) {
	sub, err = o.subscriptions.Lock(ctx, tx, id)
	switch {
	case errors.Is(err, postgres.ErrNotFound):
		return nil, "the event subscription was deleted", nil
	case err != nil:
		return nil, "", err
	case sub.Expired(o.clock.Now()):
		return nil, "the event subscription has expired", nil
	}
	return sub, "", nil
}

// redeliverPast creates the deliveries of the events that match, and returns how many events it has read.
func redeliverPast(
	ctx context.Context, tx pgx.Tx, op *operationRow, sub *catalog.Subscription, day time.Time, ids [][16]byte,
) (step stepResult, read int, err error) {
	matched, sizes, read, err := query.MatchPast(ctx, tx, sub.Topic, &sub.Filter, day, ids)
	if err != nil {
		return step, 0, err
	}
	const call = "SELECT postrider_internal.redeliver_past($1, $2, $3, $4, $5)"
	if len(matched) > 0 {
		if err := tx.QueryRow(ctx, call, matched, sizes, day, sub.ID, op.ID).Scan(&step.Done); err != nil {
			return step, 0, fmt.Errorf("redeliver past events: %w", err)
		}
	}
	step.Skipped = int64(read) - step.Done
	return step, read, nil
}
