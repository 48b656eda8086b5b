package catalog

import (
	"context"
	"fmt"
	"time"

	"postrider/internal/postgres"
)

const (
	// drainStep is how many deliveries one transaction cancels.
	drainStep = 5000
	// drainTimeout is how long a deletion waits for the cancellations: about a hundred thousand deliveries.
	drainTimeout = 5 * time.Second
)

// A publish that began before a deletion may commit up to commitTimeout after it, and no job cancels its deliveries on
// hold. So a deleted event subscription counts as drained only after a minute.
const drainedStatement = `UPDATE postrider_internal.event_subscriptions SET drained_at = now()
 WHERE id = $1 AND deleted_at < now() - interval '1 minute'`

// CancelPending cancels the pending deliveries of a deleted event subscription in steps. It repeats for those whose
// attempt was being recorded. Drain cancels the others a minute later.
func (s *Subscriptions) CancelPending(ctx context.Context, id int64) error {
	for {
		met, canceled, err := s.drainPass(ctx, id)
		if err != nil {
			return fmt.Errorf("cancel the deliveries of a deleted event subscription: %w", err)
		}
		if met == 0 {
			_, err := s.db.Exec(ctx, drainedStatement, id)
			return err
		}
		if canceled == 0 {
			s.log.Warn("deliveries of a deleted event subscription could not be canceled yet",
				"subscription", id, "deliveries", met)
			return nil
		}
	}
}

// drainPass tries once to cancel each pending delivery.
func (s *Subscriptions) drainPass(ctx context.Context, id int64) (met, canceled int, err error) {
	const cancel = "SELECT last, met, canceled FROM postrider_internal.cancel_pending($1, $2, $3)"
	for last := int64(0); ; {
		var n, done int
		if err := s.db.QueryRow(ctx, cancel, id, last, drainStep).Scan(&last, &n, &done); err != nil {
			return met, canceled, err
		}
		if n == 0 {
			return met, canceled, nil
		}
		met, canceled = met+n, canceled+done
	}
}

// Drain cancels the deliveries of deleted event subscriptions that are not drained: their cancellation was interrupted,
// or they were deleted in the last minute.
func (s *Subscriptions) Drain(ctx context.Context) error {
	ids, err := postgres.Values[int64](ctx, s.db, sql("undrained"))
	if err != nil {
		return fmt.Errorf("read deleted event subscriptions: %w", err)
	}
	for _, id := range ids {
		if err := s.CancelPending(ctx, id); err != nil {
			return err
		}
	}
	return nil
}
