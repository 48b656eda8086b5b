package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Holds: why deliveries wait as rows without a job.
const (
	HoldPaused       = "paused"
	HoldNotValidated = "not_validated"
	HoldProbation    = "probation"
	HoldAdmission    = "admission"
)

// PauseSubscription holds an event subscription's deliveries until ResumeSubscription: none is attempted, none is lost,
// their time to live goes on. The next publish on every node obeys; an attempt that is under way finishes. Pausing again
// is nothing. ErrNotFound.
func (s *Store) PauseSubscription(ctx context.Context, topic, name string) (*Subscription, error) {
	const pause = `INSERT INTO postrider_internal.event_subscription_states AS st (subscription_id, paused_since) VALUES ($1, now())
		ON CONFLICT (subscription_id) DO UPDATE SET paused_since = coalesce(st.paused_since, now()), updated_at = now()`
	return s.changeState(ctx, topic, name, pause)
}

// ResumeSubscription ends a pause. The deliveries it held are released in waves, see Refill. Resuming what is not paused
// is nothing. ErrNotFound.
func (s *Store) ResumeSubscription(ctx context.Context, topic, name string) (*Subscription, error) {
	const resume = `UPDATE postrider_internal.event_subscription_states SET paused_since = NULL, updated_at = now() WHERE subscription_id = $1`
	return s.changeState(ctx, topic, name, resume)
}

func (s *Store) changeState(ctx context.Context, topic, name, statement string) (sub *Subscription, err error) {
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if sub, err = s.subscriptionOf(ctx, tx, topic, name); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, statement, sub.ID); err != nil {
			return fmt.Errorf("change the state of event subscription %q: %w", name, err)
		}
		sub, err = s.subscriptionOf(ctx, tx, topic, name)
		return err
	})
	if err != nil && isOutage(err) {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return sub, err
}

// Waiting is an event subscription that has deliveries on hold.
type Waiting struct {
	SubscriptionID int64
	// Hold is the event subscription's own; "" when it is open and its deliveries may go.
	Hold string
}

// The distinct event subscriptions are found by jumping along the index of held deliveries: one probe each, however many
// deliveries they hold.
const waitingStatement = `
WITH RECURSIVE jump(subscription_id) AS (
    (SELECT subscription_id FROM postrider_internal.deliveries WHERE hold IS NOT NULL ORDER BY subscription_id LIMIT 1)
    UNION ALL
    SELECT (SELECT d.subscription_id FROM postrider_internal.deliveries d WHERE d.hold IS NOT NULL AND d.subscription_id > jump.subscription_id ORDER BY d.subscription_id LIMIT 1)
      FROM jump WHERE jump.subscription_id IS NOT NULL
)
SELECT jump.subscription_id, coalesce(st.hold, '') AS hold
  FROM jump LEFT JOIN postrider_internal.event_subscription_states st ON st.subscription_id = jump.subscription_id
 WHERE jump.subscription_id IS NOT NULL`

// WaitingSubscriptions lists the event subscriptions that have deliveries on hold.
func (s *Store) WaitingSubscriptions(ctx context.Context) ([]Waiting, error) {
	return collect[Waiting](ctx, s.pool, waitingStatement)
}

// waveStatement turns held deliveries into jobs, the oldest first, one row for the other: a crash half way or two nodes
// at once leave every delivery with exactly one of the two. A delivery that waits for a later retry goes on waiting.
const waveStatement = `
WITH chosen AS (
    SELECT d.id, d.attempts, d.held_reruns, greatest(now(), d.next_attempt_at) AS due FROM postrider_internal.deliveries d
     WHERE d.subscription_id = $1 AND d.hold IS NOT NULL AND d.owed_since <= $2 AND ($3 OR d.next_attempt_at <= now())
     ORDER BY d.owed_since, d.id LIMIT $4 FOR UPDATE SKIP LOCKED
), wave AS MATERIALIZED (
    SELECT chosen.*, nextval('postrider_internal.river_job_id_seq') AS job_id FROM chosen
), released AS (
    UPDATE postrider_internal.deliveries d SET hold = NULL, job_id = wave.job_id, held_reruns = 0 FROM wave WHERE d.id = wave.id
), jobs AS (
    INSERT INTO postrider_internal.river_job (id, state, args, kind, queue, priority, max_attempts, scheduled_at)
    SELECT job_id, CASE WHEN due <= now() + interval '5 seconds' THEN 'available' ELSE 'scheduled' END::postrider_internal.river_job_state,
           jsonb_strip_nulls(jsonb_build_object('d', id, 's', $1::bigint, 'n', attempts + 1, 'r', nullif(held_reruns, 0))), 'deliver', 'deliveries', 1, 1000, due
      FROM wave
)
SELECT count(*) FROM wave`

// Refill releases up to limit deliveries of an open event subscription and says how many. Every node calls it each
// second for each that is waiting; what a pause, a crash or a race left on hold is found again by the next call.
func (s *Store) Refill(ctx context.Context, subscription int64, limit int) (int, error) {
	return s.wave(ctx, subscription, farFuture, true, limit)
}

// ReleaseExpired gives jobs to held deliveries that have been owed for at least the age given, though their event
// subscription is on hold: their turn finds the time to live passed and ends them. onlyDue leaves those whose next
// attempt is still to come.
func (s *Store) ReleaseExpired(ctx context.Context, subscription int64, age time.Duration, onlyDue bool, limit int) (int, error) {
	var now time.Time
	if err := s.pool.QueryRow(ctx, "SELECT now()").Scan(&now); err != nil {
		return 0, fmt.Errorf("read the database's time: %w", err)
	}
	return s.wave(ctx, subscription, now.Add(-age), !onlyDue, limit)
}

func (s *Store) wave(ctx context.Context, subscription int64, owedBefore time.Time, alsoLater bool, limit int) (n int, err error) {
	if err := s.pool.QueryRow(ctx, waveStatement, subscription, owedBefore, alsoLater, limit).Scan(&n); err != nil {
		return 0, fmt.Errorf("release held deliveries: %w", err)
	}
	if n > 0 {
		s.notifier.poke()
	}
	return n, nil
}

// farFuture is later than any time of ours: no bound.
var farFuture = time.Date(9999, time.January, 1, 0, 0, 0, 0, time.UTC)

// QueuedJobs counts the jobs of each event subscription that are ready or running: what a wave must not pile upon.
func (s *Store) QueuedJobs(ctx context.Context) (map[int64]int, error) {
	const query = `SELECT (args ->> 's')::bigint AS id, count(*) AS jobs FROM postrider_internal.river_job
		WHERE state IN ('available', 'running') AND queue = 'deliveries' GROUP BY 1`
	type line struct {
		ID   int64
		Jobs int
	}
	lines, err := collect[line](ctx, s.pool, query)
	if err != nil {
		return nil, err
	}
	queued := make(map[int64]int, len(lines))
	for _, l := range lines {
		queued[l.ID] = l.Jobs
	}
	return queued, nil
}
