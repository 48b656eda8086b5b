package store

import (
	"context"
	"fmt"
	"time"
)

const (
	drainStep = 5000
	// drainBatches is how many batches one step cancels: of 100 members each, as many deliveries.
	drainBatches = 50
	// drainPatience is how long the deletion itself waits for the canceling: about a hundred thousand deliveries.
	drainPatience = 5 * time.Second
)

// A delivery is only canceled together with its job row: one whose attempt is just being recorded has another row by
// then and is met in the next step. One whose job row is missing, which should not be, ends all the same. One whose job is
// of a kind that only a newer version knows is left to that version's nodes.
const drainStatement = `
WITH doomed AS (
    SELECT id, job_id FROM postrider_internal.deliveries WHERE subscription_id = $1 AND id > $2 ORDER BY id LIMIT $3
), free AS (
    SELECT j.id FROM postrider_internal.river_job j JOIN doomed ON doomed.job_id = j.id WHERE j.kind = 'deliver' ORDER BY j.id FOR UPDATE OF j SKIP LOCKED
), gone AS (
    DELETE FROM postrider_internal.river_job j USING free WHERE j.id = free.id RETURNING j.id
), finished AS (
    DELETE FROM postrider_internal.deliveries d USING doomed
     WHERE d.id = doomed.id AND (d.batch_id IS NULL OR NOT EXISTS (SELECT FROM postrider_internal.batches b WHERE b.id = d.batch_id AND b.state = 'pending')) AND (d.job_id IS NULL OR d.job_id IN (SELECT id FROM gone)
           OR NOT EXISTS (SELECT FROM postrider_internal.river_job j WHERE j.id = d.job_id))
    RETURNING d.*
` + canceledEnds + `)
SELECT coalesce(max(id), 0), count(*), (SELECT count(*) FROM finished) FROM doomed`

// drainBatchesStatement is the same for batches: each with its job row and its members.
const drainBatchesStatement = `
WITH doomed AS (
    SELECT id, job_id FROM postrider_internal.batches WHERE subscription_id = $1 AND state = 'pending' AND id > $2 ORDER BY id LIMIT $3
), free AS (
    SELECT j.id FROM postrider_internal.river_job j JOIN doomed ON doomed.job_id = j.id WHERE j.kind = 'batch' ORDER BY j.id FOR UPDATE OF j SKIP LOCKED
), gone AS (
    DELETE FROM postrider_internal.river_job j USING free WHERE j.id = free.id RETURNING j.id
), canceled AS (
    UPDATE postrider_internal.batches b SET state = 'canceled', finished_at = now(), next_attempt_at = NULL, job_id = NULL, hold = NULL FROM doomed
     WHERE b.id = doomed.id AND b.state = 'pending' AND (b.job_id IS NULL OR b.job_id IN (SELECT id FROM gone)
           OR NOT EXISTS (SELECT FROM postrider_internal.river_job j WHERE j.id = b.job_id))
    RETURNING b.id
), finished AS (
    DELETE FROM postrider_internal.deliveries d USING canceled WHERE d.batch_id = canceled.id RETURNING d.*
` + canceledEnds + `)
SELECT coalesce(max(id), 0), count(*), (SELECT count(*) FROM canceled) FROM doomed`

// canceledEnds is a part of both.
const canceledEnds = `), history AS (
    INSERT INTO postrider_internal.delivery_history (id, day, subscription_id, topic_id, event_uuid, event_day, attempts, reruns, last_status, batch_id, owed_since,
           first_attempt_at, last_attempt_at, finished_at, state, reason, last_outcome, redelivered_from, operation_id)
    SELECT id, (now() AT TIME ZONE 'UTC')::date, subscription_id, topic_id, event_uuid, event_day, attempts, reruns, last_status, batch_id, owed_since,
           first_attempt_at, last_attempt_at, now(), 'canceled', ` + deletedReason + `, last_outcome, redelivered_from, operation_id
      FROM finished
), rolled AS (` + rolledEnds + "'canceled', " + deletedReason + rolledEndsFrom + `
`

// A publish that began before a deletion may commit after it, up to commitTimeout later, and what it put on hold has no job
// that would find out. So a deleted event subscription is looked at again for a minute before it counts as drained.
const (
	drainedStatement = `UPDATE postrider_internal.event_subscriptions SET drained_at = now() WHERE id = $1 AND deleted_at < now() - interval '1 minute'`

	undrainedStatement = `
SELECT id FROM postrider_internal.event_subscriptions s
 WHERE deleted_at IS NOT NULL AND drained_at IS NULL
   AND (deleted_at < now() - interval '1 minute' OR EXISTS (SELECT FROM postrider_internal.deliveries d WHERE d.subscription_id = s.id)) ORDER BY id`
)

// CancelOwed cancels whatever an event subscription that was deleted is owed.
func (s *Store) CancelOwed(ctx context.Context, subscription int64) error {
	return s.drainSubscription(ctx, subscription)
}

// drainSubscription cancels what a deleted event subscription is still owed, step by step, and passes over it again for
// those that were in a worker's hands. What a whole pass cannot cancel is left to Drain, a minute later.
func (s *Store) drainSubscription(ctx context.Context, id int64) error {
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
			s.log.Warn("deliveries of a deleted event subscription could not be canceled yet", "subscription", id, "deliveries", met)
			return nil
		}
	}
}

// drainPass goes once over everything that is owed.
func (s *Store) drainPass(ctx context.Context, id int64) (met, canceled int, err error) {
	if met, canceled, err = s.drainWith(ctx, drainBatchesStatement, id, drainBatches); err != nil {
		return met, canceled, err
	}
	alone, ended, err := s.drainWith(ctx, drainStatement, id, drainStep)
	return met + alone, canceled + ended, err
}

func (s *Store) drainWith(ctx context.Context, statement string, id int64, step int) (met, canceled int, err error) {
	for cursor := int64(0); ; {
		var last int64
		var n, done int
		if err := s.db.QueryRow(ctx, statement, id, cursor, step).Scan(&last, &n, &done); err != nil {
			return met, canceled, err
		}
		if n == 0 {
			return met, canceled, nil
		}
		cursor, met, canceled = last, met+n, canceled+done
	}
}

// Drain goes on with deleted event subscriptions whose canceling was interrupted, or that were deleted a moment ago.
func (s *Store) Drain(ctx context.Context) error {
	rows, err := s.db.Query(ctx, undrainedStatement)
	if err != nil {
		return fmt.Errorf("look for deleted event subscriptions: %w", err)
	}
	ids, err := collectIDs(rows)
	if err != nil {
		return fmt.Errorf("look for deleted event subscriptions: %w", err)
	}
	for _, id := range ids {
		if err := s.drainSubscription(ctx, id); err != nil {
			return err
		}
	}
	return nil
}
