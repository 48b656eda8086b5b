package store

import (
	"context"
	"errors"
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

// ErrNoProbation: the event subscription is not in probation.
var ErrNoProbation = errors.New("the event subscription is not on probation")

// PauseSubscription holds an event subscription's deliveries until ResumeSubscription: none is attempted, none is lost. The
// next publish on every node obeys; an attempt that is under way finishes. Their time to live goes on, unless
// stopTimeToLive: then they are as old at the resume as they were at the pause. Pausing again changes no more than that, for
// the whole pause; nil leaves it. ErrNotFound.
func (s *Store) PauseSubscription(ctx context.Context, topic, name string, stopTimeToLive *bool) (*Subscription, error) {
	const pause = "SELECT postrider_internal.pause($1, $2, $3, $4, $5)"
	sub, err := s.changeHold(ctx, topic, name, pause, stopTimeToLive)
	for errors.Is(err, errResuming) { // the earlier pause ends first
		if err = s.finishPause(ctx, topic, name); err == nil {
			sub, err = s.changeHold(ctx, topic, name, pause, stopTimeToLive)
		}
	}
	if err != nil {
		return nil, err
	}
	waitForLooks(ctx)
	return sub, nil
}

func (s *Store) finishPause(ctx context.Context, topic, name string) error {
	sub, err := s.SubscriptionOf(ctx, topic, name)
	for resuming := true; resuming && err == nil; {
		resuming, err = s.moveTimeToLive(ctx, sub.ID, true)
	}
	return err
}

// holdVisibleAfter is how long after a new hold attempts may still begin that have not seen it: an attempt begins with what
// was read of the holds this long ago at most. The response to a pause waits for as long.
const holdVisibleAfter = 100 * time.Millisecond

// waitForLooks is what the answer to a new hold waits for: attempts that looked before it have begun by then, or look again.
func waitForLooks(ctx context.Context) {
	select {
	case <-time.After(holdVisibleAfter):
	case <-ctx.Done():
	}
}

// PointRelease is the failpoint after a pause or a probation was ended and before the response.
const PointRelease = "release"

// ResumeSubscription ends a pause. The deliveries it held are released in waves, see Refill. Resuming what is not paused
// is nothing. ErrNotFound.
func (s *Store) ResumeSubscription(ctx context.Context, topic, name string) (*Subscription, error) {
	sub, err := s.changeHold(ctx, topic, name, "SELECT postrider_internal.resume($1, $2, $3, $4)")
	s.Reach(PointRelease)
	if err != nil || !sub.Hold.Resuming {
		return sub, err
	}
	// What takes longer goes on in the background, and the pause with it.
	for resuming, tries := true, 0; resuming && tries < resumePatience; tries++ {
		if resuming, err = s.moveTimeToLive(ctx, sub.ID, true); err != nil {
			return nil, err
		}
	}
	return s.SubscriptionOf(ctx, topic, name)
}

const (
	// A step locks the event subscription's state, and publishes to it wait: 2,000 deliveries are some 20 ms.
	moveStep = 2000
	// resumePatience is how many steps a resume itself makes: 100,000 deliveries, a few seconds.
	resumePatience = 50
)

// MoveTimeToLive makes some steps of ending a pause that stopped the time to live, unless another node is at it.
func (s *Store) MoveTimeToLive(ctx context.Context, subscription int64) (err error) {
	for tries, more := 0, true; more && err == nil && tries < movesAtOnce; tries++ {
		more, err = s.moveTimeToLive(ctx, subscription, false)
	}
	return err
}

const movesAtOnce = 5

// moveTimeToLive makes one step; more says that another may be needed. Without wait it does nothing while another node
// does the same.
func (s *Store) moveTimeToLive(ctx context.Context, subscription int64, wait bool) (more bool, err error) {
	const move = "SELECT postrider_internal.move_time_to_live($1, $2, $3)"
	for range lateTries {
		err = s.db.QueryRow(ctx, move, subscription, moveStep, wait).Scan(&more)
		if !isTransient(err) {
			break
		}
	}
	if err != nil {
		return false, outage("take a pause off the age of deliveries", err)
	}
	return more, nil
}

// ReleaseSubscription ends an event subscription's probation at once, without waiting for a probe's success: what is held is
// released in waves. Where the policy rests the endpoint as a whole, so it does for all event subscriptions that share it.
// Releasing what is not on probation is nothing. ErrNotFound; ErrPaused: a pause is ended by ResumeSubscription; ErrNotValidated.
func (s *Store) ReleaseSubscription(ctx context.Context, topic, name string) (*Subscription, error) {
	sub, err := s.changeHold(ctx, topic, name, "SELECT postrider_internal.release($1, $2, $3, $4)")
	s.Reach(PointRelease)
	return sub, err
}

// ProbeSubscription lets one delivery through a probation now instead of at its end. Its success ends the probation; its
// failure begins the next one. ErrNotFound; ErrPaused; ErrNotValidated; ErrNoProbation: there is nothing to probe for.
func (s *Store) ProbeSubscription(ctx context.Context, topic, name string) (*Subscription, error) {
	const probe = `UPDATE postrider_internal.probations SET until = least(until, now()), updated_at = now() WHERE rest_key = $1 AND since IS NOT NULL`
	sub, err := s.SubscriptionOf(ctx, topic, name)
	if err == nil && sub.Hold.Reason == "" {
		return nil, fmt.Errorf("event subscription %q of topic %q: %w", name, topic, ErrNoProbation)
	}
	if err != nil {
		return nil, err
	}
	switch sub.Hold.Reason {
	case HoldNotValidated:
		return nil, fmt.Errorf("event subscription %q of topic %q: %w", name, topic, ErrNotValidated)
	case HoldPaused:
		return nil, fmt.Errorf("event subscription %q of topic %q: %w", name, topic, ErrPaused)
	}
	err = pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, probe, s.Catalogue().restKey(sub)); err != nil {
			return err
		}
		return audit(ctx, tx, auditEntry{action: auditProbed, topic: topic, subscription: name})
	})
	if err != nil {
		return nil, outage("let a probe through", err)
	}
	s.Reach(PointRelease)
	return s.SubscriptionOf(ctx, topic, name)
}

// HeldDeliveries counts what an event subscription has on hold.
func (s *Store) HeldDeliveries(ctx context.Context, subscription int64) (held int, err error) {
	const query = `SELECT (SELECT count(*) FROM postrider_internal.deliveries WHERE subscription_id = $1 AND hold IS NOT NULL)
		+ (SELECT coalesce(sum(members), 0) FROM postrider_internal.batches WHERE subscription_id = $1 AND hold IS NOT NULL)`
	if err := s.db.QueryRow(ctx, query, subscription).Scan(&held); err != nil {
		return 0, outage("count held deliveries", err)
	}
	return held, nil
}

// changeHold calls one of the functions that change an event subscription's hold: they take the topic, its name, what else is
// given, and who acts.
func (s *Store) changeHold(ctx context.Context, topic, name, call string, args ...any) (sub *Subscription, err error) {
	who := ActorOf(ctx)
	err = pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, call, append(append([]any{topic, name}, args...), who.Name, who.Address)...); err != nil {
			return err
		}
		sub, err = s.subscriptionOf(ctx, tx, topic, name)
		return err
	})
	if err != nil {
		return nil, failed("change the hold of an event subscription", err)
	}
	return sub, nil
}
