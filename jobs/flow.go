package jobs

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"postrider/catalog"
	"postrider/jobs/queue"
	"postrider/policy"
)

const (
	// flowInterval is how often what waits is looked at: retries whose time has come, held deliveries that may go, probes.
	flowInterval = 250 * time.Millisecond
	// heldRounds: those that are on hold themselves are looked at once a second, for what has outlived its time to live; a
	// thousand of them take 1.7 s, and the open ones must not wait for that each time.
	heldRounds = 4
	// trialWave is the first wave of an endpoint that this node has never called: 20 endpoints that hang and are resumed
	// at once would else put 5,000 jobs in front of everybody's. The next wave, 250 ms later, knows how it answered.
	trialWave = 16
)

// promote runs on every node and trusts no leader. It also checks for publishes by SQL.
func (e *Engine) promote(ctx context.Context) error {
	due, err := e.parts.JobRows.Due(ctx)
	if due.Published {
		e.parts.Wake.RequestCollect()
	}
	if err != nil || !due.Promote {
		return err
	}
	_, err = e.parts.JobRows.Promote(ctx, e.rooms(e.parts.Traffic.LatestTraffic())...)
	return err
}

// rooms bounds the promotion of those that have jobs queued, are on hold, or fail. The others have the default.
func (e *Engine) rooms(t *queue.TrafficSample) []queue.Capacity {
	rooms := map[int64]queue.Capacity{}
	for id := range t.Queued {
		rooms[id] = queue.Capacity{SubscriptionID: id, Jobs: e.parts.Traffic.Capacity(id)}
	}
	for _, id := range e.parts.Gate.Failing() {
		rooms[id] = queue.Capacity{SubscriptionID: id, Jobs: e.parts.Traffic.Capacity(id)}
	}
	for _, w := range t.Waiting { // whoever waits already goes first
		rooms[w.SubscriptionID] = queue.Capacity{SubscriptionID: w.SubscriptionID, Hold: w.Hold}
	}
	for id, hold := range t.Holds {
		rooms[id] = queue.Capacity{SubscriptionID: id, Hold: hold.Reason}
	}
	list := make([]queue.Capacity, 0, len(rooms))
	for _, r := range rooms {
		list = append(list, r)
	}
	return list
}

// refill releases what is on hold without cause, lets probes through, and ends held deliveries whose time to live has
// passed. It reads the state and not events: what one call misses, the next call finds, on any node.
func (e *Engine) refill(ctx context.Context) error {
	traffic := e.parts.Traffic.LatestTraffic()
	for id, hold := range traffic.Holds {
		if !hold.Resuming {
			continue
		}
		if err := e.parts.Holds.MoveTimeToLive(ctx, id); err != nil {
			return err
		}
	}
	for _, key := range traffic.ProbesDue(e.parts.Cache.Snapshot()) {
		if _, err := e.parts.Releaser.ClaimProbe(ctx, key); err != nil {
			return err
		}
	}
	e.refills++
	for _, w := range turned(traffic.Waiting, rand.Int()) { //nolint:gosec // spreads turns, keeps no secret
		if w.Hold != "" && e.refills%heldRounds != 0 {
			continue
		}
		if err := e.releaseFrom(ctx, traffic, w); err != nil {
			return err
		}
	}
	return nil
}

// turned begins the list elsewhere. With thousands that wait one round takes longer than it may, and one whose
// statement fails ends it: those at the end of the list must not be the same each time.
func turned[T any](list []T, by int) []T {
	if len(list) == 0 {
		return nil
	}
	by %= len(list)
	return slices.Concat(list[by:], list[:by])
}

func (e *Engine) releaseFrom(ctx context.Context, t *queue.TrafficSample, w queue.Waiting) error {
	catalogue, room := e.parts.Cache.Snapshot(), e.parts.Traffic.Capacity(w.SubscriptionID)
	sub, known := catalogue.Subscription(w.SubscriptionID)
	if room <= 0 || !known || t.Holds[w.SubscriptionID].TimeToLiveStopped { // deleted: canceled by drain
		return nil
	}
	if !e.parts.Gate.Knows(w.SubscriptionID) {
		room = min(room, trialWave)
	}
	if w.Hold == "" {
		_, err := e.parts.Releaser.Refill(ctx, w.SubscriptionID, sub.Batching(), room)
		return err
	}
	rules, known := catalogue.Rules(sub.ID)
	if !known {
		return nil
	}
	p := rules.Policy
	age := p.Deadline(time.Time{}, rules.Limits.TTL).Sub(time.Time{})
	if w.Hold == catalog.HoldProbation &&
		p.EndsInProbation(sub.EndpointKind, t.ProbationOf(catalogue, sub).Met, rules.DeadLetter) {
		age = 0
	}
	_, err := e.parts.Releaser.ReleaseExpired(ctx, w.SubscriptionID, age, p.Expiry == policy.ExpiryNextAttempt, room)
	return err
}

// limit is this node's share of an event subscription's maxConcurrentDeliveries, 0 for none: nodes share it evenly, and
// each has at least one.
func (e *Engine) limit(subscription int64) int {
	sub, ok := e.parts.Cache.Snapshot().Subscription(subscription)
	if !ok || sub.MaxConcurrentDeliveries == nil {
		return 0
	}
	return max(*sub.MaxConcurrentDeliveries/e.parts.Nodes.WorkerNodes(), 1)
}
