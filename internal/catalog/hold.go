package catalog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/internal/access"
	"postrider/internal/postgres"
)

// Holds: why deliveries wait as rows without a job.
const (
	HoldPaused       = "paused"
	HoldNotValidated = "not_validated"
	HoldProbation    = "probation"
	HoldAdmission    = "admission"
	HoldRateLimited  = "rate_limited"
)

// ErrNoProbation means: the event subscription is not in probation.
var ErrNoProbation = errors.New("the event subscription is not in probation")

// PointRelease is the failpoint between the end of a hold and the response.
const PointRelease = "release"

// HoldVisibleAfter is the age at which the holds that a node has read are read again before an attempt. The response to
// a new hold waits as long, so that later attempts see it. Reading them for each attempt would take two more
// transactions, a third of PostgreSQL's time.
const HoldVisibleAfter = 100 * time.Millisecond

// Holds pauses and resumes event subscriptions, and ends their probations.
type Holds struct {
	records
	cache *Cache
	fail  postgres.Failpoint
}

// Pause holds an event subscription's deliveries until Resume: none is attempted, none is lost. The next publish on
// every node sees it; an attempt in progress finishes. Their time to live continues, unless stopTimeToLive: then a
// delivery is as old at the resume as it was at the pause. Pausing again changes only that, for the whole pause; nil
// keeps it. ErrNotFound.
func (h *Holds) Pause(ctx context.Context, topic, name string, stopTimeToLive *bool) (*Subscription, error) {
	const pause = "SELECT postrider_internal.pause($1, $2, $3, $4, $5)"
	sub, err := h.changeHold(ctx, topic, name, pause, stopTimeToLive)
	for errors.Is(err, postgres.ErrResuming) { // the earlier pause ends first
		if err := h.finishPause(ctx, topic, name); err != nil {
			return nil, err
		}
		sub, err = h.changeHold(ctx, topic, name, pause, stopTimeToLive)
	}
	if err != nil {
		return nil, err
	}
	waitUntilVisible(ctx)
	return sub, nil
}

func (h *Holds) finishPause(ctx context.Context, topic, name string) error {
	sub, err := h.subscriptionOf(ctx, h.db, topic, name)
	for resuming := true; resuming && err == nil; {
		resuming, err = h.moveTimeToLive(ctx, sub.ID, true)
	}
	return err
}

// waitUntilVisible waits until all later attempts see a new hold.
func waitUntilVisible(ctx context.Context) {
	select {
	case <-time.After(HoldVisibleAfter):
	case <-ctx.Done():
	}
}

// Resume ends a pause. Held deliveries are released in steps, see Refill. Without a pause it does nothing. ErrNotFound.
func (h *Holds) Resume(ctx context.Context, topic, name string) (*Subscription, error) {
	sub, err := h.changeHold(ctx, topic, name, "SELECT postrider_internal.resume($1, $2, $3, $4)")
	h.fail.Reach(PointRelease)
	if err != nil || !sub.Hold.Resuming {
		return sub, err
	}
	// If more steps are needed, they and the pause continue in the background.
	for resuming, tries := true, 0; resuming && tries < resumeSteps; tries++ {
		if resuming, err = h.moveTimeToLive(ctx, sub.ID, true); err != nil && !postgres.IsLocked(err) {
			return nil, err
		}
	}
	return h.subscriptionOf(ctx, h.db, topic, name)
}

const (
	// moveStep is how many deliveries one step moves, in some 20 ms: publishes to the event subscription wait for it.
	moveStep = 2000
	// resumeSteps is how many steps Resume itself makes: 100,000 deliveries, a few seconds.
	resumeSteps = 50
	// movesAtOnce is how many steps one call of MoveTimeToLive makes.
	movesAtOnce = 5
)

// MoveTimeToLive makes some steps of ending a pause that stopped the time to live, unless another node does the same.
func (h *Holds) MoveTimeToLive(ctx context.Context, subscription int64) error {
	var err error
	for tries, more := 0, true; more && err == nil && tries < movesAtOnce; tries++ {
		more, err = h.moveTimeToLive(ctx, subscription, false)
	}
	if postgres.IsLocked(err) {
		return nil
	}
	return err
}

// moveTimeToLive makes one step, and reports whether another may be needed. Without wait it does nothing while another
// node makes one. IsLocked while a consumer's open transaction has locked a delivery.
func (h *Holds) moveTimeToLive(ctx context.Context, subscription int64, wait bool) (more bool, err error) {
	const move = "SELECT postrider_internal.move_time_to_live($1, $2, $3)"
	err = postgres.RetryTransient(func() error {
		return h.db.QueryRow(ctx, move, subscription, moveStep, wait).Scan(&more)
	})
	if err != nil {
		return false, postgres.Outage("subtract a pause from the age of deliveries", err)
	}
	return more, nil
}

// Release ends an event subscription's probation without a probe: held deliveries are released in steps. A probation of
// the endpoint ends for all its event subscriptions. Without a probation it does nothing. ErrNotFound; ErrPaused;
// ErrNotValidated.
func (h *Holds) Release(ctx context.Context, topic, name string) (*Subscription, error) {
	sub, err := h.changeHold(ctx, topic, name, "SELECT postrider_internal.release($1, $2, $3, $4)")
	h.fail.Reach(PointRelease)
	return sub, err
}

// Probe makes the next probe of a probation, one delivery, due now. Its success ends the probation, its failure
// prolongs it. ErrNotFound; ErrPaused; ErrNotValidated; ErrNoProbation.
func (h *Holds) Probe(ctx context.Context, topic, name string) (*Subscription, error) {
	const probe = `UPDATE postrider_internal.probations SET until = least(until, now()), updated_at = now()
		WHERE probation_key IN (
			SELECT probation_key FROM postrider_internal.probations WHERE probation_key = ANY ($1) AND since IS NOT NULL
			 ORDER BY probation_key FOR UPDATE)`
	sub, err := h.subscriptionOf(ctx, h.db, topic, name)
	if err != nil {
		return nil, err
	}
	rejection, rejected := map[string]error{
		"": ErrNoProbation, HoldNotValidated: postgres.ErrNotValidated, HoldPaused: postgres.ErrPaused,
	}[sub.Hold.Reason]
	if rejected {
		return nil, fmt.Errorf("event subscription %q of topic %q: %w", name, topic, rejection)
	}
	err = pgx.BeginFunc(ctx, h.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, probe, h.cache.Snapshot().ProbationKeys(sub)); err != nil {
			return err
		}
		return access.Audit(ctx, tx, access.AuditEntry{Action: access.AuditProbed, Topic: topic, Subscription: name})
	})
	if err != nil {
		return nil, postgres.Outage("make a probe due", err)
	}
	h.fail.Reach(PointRelease)
	return h.subscriptionOf(ctx, h.db, topic, name)
}

// CountHeld counts the deliveries of an event subscription that are on hold.
func (h *Holds) CountHeld(ctx context.Context, subscription int64) (held int, err error) {
	const query = `SELECT
		(SELECT count(*) FROM postrider_internal.deliveries WHERE subscription_id = $1 AND hold IS NOT NULL) +
		(SELECT coalesce(sum(members), 0) FROM postrider_internal.batches WHERE subscription_id = $1 AND hold IS NOT NULL)`
	if err := h.db.QueryRow(ctx, query, subscription).Scan(&held); err != nil {
		return 0, postgres.Outage("count held deliveries", err)
	}
	return held, nil
}

// changeHold calls a function that changes an event subscription's hold. The function's parameters are the topic, the
// name, args, and the actor's name and address.
func (h *Holds) changeHold(
	ctx context.Context, topic, name, call string, args ...any,
) (sub *Subscription, err error) {
	actor := access.ActorOf(ctx)
	err = pgx.BeginFunc(ctx, h.db, func(tx pgx.Tx) error {
		all := append(append([]any{topic, name}, args...), actor.Name, actor.Address)
		if _, err := tx.Exec(ctx, call, all...); err != nil {
			return err
		}
		sub, err = h.subscriptionOf(ctx, tx, topic, name)
		return err
	})
	if err != nil {
		return nil, postgres.CallError("change the hold of an event subscription", err)
	}
	return sub, nil
}
