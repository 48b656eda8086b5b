package jobs

import (
	"context"
	"time"

	"postrider/policy"
	"postrider/store"
)

const (
	refillInterval = time.Second
	// A wave fills an event subscription's queue up to four jobs for each call it may have in flight, more where the
	// endpoint answers quickly, and to 10,000 at most. An endpoint that hangs gets four jobs a second however many
	// deliveries it is owed, and a million deliveries that were paused come back without a million jobs in front of
	// everybody else's.
	wavesPerCall = 4
	maxWave      = 10_000
)

// refill releases what is on hold without cause, and what has waited out its time to live. It looks at the state and
// not at events: whatever was missed is found a second later, by any node.
func (e *Engine) refill(ctx context.Context) {
	e.every(ctx, refillInterval, "releasing held deliveries", func(ctx context.Context) error {
		waiting, err := e.store.WaitingSubscriptions(ctx)
		if err != nil || len(waiting) == 0 {
			return err
		}
		queued, err := e.store.QueuedJobs(ctx)
		if err != nil {
			return err
		}
		for _, w := range waiting {
			if err := e.releaseFrom(ctx, w, e.gate.room(w.SubscriptionID)-queued[w.SubscriptionID]); err != nil {
				return err
			}
		}
		return nil
	})
}

func (e *Engine) releaseFrom(ctx context.Context, w store.Waiting, room int) error {
	if room <= 0 {
		return nil
	}
	if w.Hold == "" {
		_, err := e.store.Refill(ctx, w.SubscriptionID, room)
		return err
	}
	catalogue := e.store.Catalogue()
	sub, ok := catalogue.Subscription(w.SubscriptionID)
	if !ok {
		return nil // deleted: canceled by drain
	}
	p, ok := catalogue.Policy(sub.RetryPolicy)
	if !ok {
		return nil
	}
	limits := p.Clamp(sub.MaxDeliveryAttempts, sub.EventTimeToLiveInMinutes)
	age := p.Deadline(time.Time{}, limits.TTL).Sub(time.Time{})
	_, err := e.store.ReleaseExpired(ctx, w.SubscriptionID, age, p.Expiry == policy.ExpiryNextAttempt, room)
	return err
}
