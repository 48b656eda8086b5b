package jobs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"postrider/internal/catalog"
	"postrider/jobs/delivery"
	"postrider/jobs/queue"
	"postrider/policy"
)

const (
	// heldRounds: event subscriptions on hold are searched once a second for deliveries whose time to live has passed. A
	// thousand of them take 1.7 s, and the others must not wait for that each time.
	heldRounds = 4
	// firstRelease bounds the first release to an endpoint that this node has never called: 20 hanging endpoints that are
	// resumed at once would insert 5,000 jobs ahead of all others. The next release, 250 ms later, knows the response.
	firstRelease = 16
	// limitedFetch is the interval of fetches while jobs have permits of a rate limit.
	limitedFetch = 20 * time.Millisecond
)

// promote makes due jobs available.
func (e *Engine) promote(ctx context.Context) error {
	due, err := e.parts.JobRows.Due(ctx)
	if err != nil || !due {
		return err
	}
	_, err = e.parts.JobRows.Promote(ctx, e.capacities(e.parts.Traffic.LatestTraffic())...)
	return err
}

// capacities bounds the promotion for event subscriptions that have jobs queued, are on hold, fail, or have a rate
// limit or a closed endpoint. The others have the default.
func (e *Engine) capacities(t *queue.TrafficSample) []queue.Capacity {
	capacities := map[int64]queue.Capacity{}
	for id := range t.Queued {
		capacities[id] = queue.Capacity{SubscriptionID: id, Jobs: e.parts.Traffic.Capacity(id)}
	}
	for _, id := range e.parts.Gate.Failing() {
		capacities[id] = queue.Capacity{SubscriptionID: id, Jobs: e.parts.Traffic.Capacity(id)}
	}
	for _, w := range t.Waiting { // deliveries that already wait go first
		capacities[w.SubscriptionID] = queue.Capacity{SubscriptionID: w.SubscriptionID, Hold: w.Hold}
	}
	limited := slices.AppendSeq(e.parts.Closed.Subscriptions(), maps.Keys(e.parts.Cache.Snapshot().Rates()))
	for _, id := range limited {
		if capacities[id].Hold == "" {
			capacities[id] = queue.Capacity{SubscriptionID: id, Hold: catalog.HoldRateLimited}
		}
	}
	for id, hold := range t.Holds {
		capacities[id] = queue.Capacity{SubscriptionID: id, Hold: hold.Reason}
	}
	return slices.Collect(maps.Values(capacities))
}

const (
	// releaseTimeout bounds one release.
	releaseTimeout = 10 * time.Second
	releasesAtOnce = 4
)

// releases are those in progress, each of one event subscription, limit or probation: up to three slow or failing ones
// delay no other.
type releases struct {
	slots chan struct{}

	mu         sync.Mutex
	running    map[string]bool
	failed     error     // the first one since the last report
	fetchUntil time.Time // fetches are requested until then, see fetchLimited
}

func newReleases() releases {
	return releases{slots: make(chan struct{}, releasesAtOnce), running: map[string]bool{}}
}

// release runs a release beside the others; false if the one before with this name is still running.
func (e *Engine) release(ctx context.Context, r *releases, name string, run func(context.Context) error) (began bool) {
	if !r.begin(name) {
		return false
	}
	e.loops.Go(func() {
		select {
		case r.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		err := within(ctx, e.options.releaseTimeout, run)
		<-r.slots
		r.end(name, err)
		e.parts.Traffic.WakeLimited()
	})
	return true
}

func (r *releases) begin(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	running := r.running[name]
	r.running[name] = true
	return !running
}

func (r *releases) end(name string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.running, name)
	if err != nil && r.failed == nil {
		r.failed = fmt.Errorf("%s: %w", name, err)
	}
}

// report returns an error of the releases that have ended since the last report.
func (r *releases) report() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.failed
	r.failed = nil
	return err
}

// refill releases deliveries whose hold has ended and probes, and ends held deliveries whose time to live has passed.
// It acts on the current state: what one call misses, the next call finds, on any node.
func (e *Engine) refill(ctx context.Context) error {
	traffic := e.parts.Traffic.LatestTraffic()
	for id, hold := range traffic.Holds {
		if hold.Resuming {
			e.release(ctx, &e.releases, fmt.Sprint("resumed event subscription ", id),
				func(ctx context.Context) error { return e.parts.Holds.MoveTimeToLive(ctx, id) })
		}
	}
	for _, key := range traffic.ProbesDue(e.parts.Cache.Snapshot()) {
		e.release(ctx, &e.releases, fmt.Sprintf("probation %x", key), func(ctx context.Context) error {
			_, err := e.parts.Releaser.ClaimProbe(ctx, key)
			return err
		})
	}
	e.refills++
	for _, w := range traffic.Waiting {
		state := e.parts.Closed.State(w.SubscriptionID)
		if state != queue.EndpointOpen {
			e.parts.Gate.ObserveClosed(w.SubscriptionID)
		}
		waits := w.Hold != "" || e.parts.Traffic.Limited(w.SubscriptionID) || state == queue.EndpointClosed
		if waits && e.refills%heldRounds != 0 {
			continue
		}
		e.release(ctx, &e.releases, fmt.Sprint("event subscription ", w.SubscriptionID),
			func(ctx context.Context) error { return e.releaseFrom(ctx, traffic, w) })
	}
	return e.releases.report()
}

// refillLimited releases deliveries within rate limits: those that publishes have put on hold, and those of the sample.
func (e *Engine) refillLimited(ctx context.Context) error {
	snapshot, traffic := e.parts.Cache.Snapshot(), e.parts.Traffic.LatestTraffic()
	held := map[int64]bool{}
	for _, id := range e.parts.Traffic.TakeLimited() {
		held[id] = true
	}
	for _, w := range traffic.Waiting {
		held[w.SubscriptionID] = w.Hold == ""
	}
	shared := map[string][]*catalog.Subscription{}
	for id, free := range held {
		rate, limited := snapshot.Rate(id)
		if sub, known := snapshot.Subscription(id); free && limited && known {
			shared[rate.Key] = append(shared[rate.Key], sub)
		}
	}
	for key, subs := range shared {
		release := func(ctx context.Context) error { return e.releaseLimited(ctx, subs) }
		if !e.release(ctx, &e.limitedReleases, "rate limit "+key, release) {
			e.parts.Traffic.KeepLimited(subs) // the one in progress may have read before the last commit
		}
	}
	return e.limitedReleases.report()
}

// releaseLimited releases deliveries of event subscriptions that share a rate limit. While the endpoint is closed, it
// releases last attempts.
func (e *Engine) releaseLimited(ctx context.Context, subs []*catalog.Subscription) (failed error) {
	snapshot, released := e.parts.Cache.Snapshot(), 0
	for _, sub := range subs {
		rate, limited := snapshot.Rate(sub.ID)
		if !limited {
			continue
		}
		age, state := time.Duration(0), e.parts.Closed.State(sub.ID)
		capacity := e.parts.Traffic.OpenCapacity(sub.ID, state)
		if rules, known := snapshot.Rules(sub.ID); known && state == queue.EndpointClosed {
			age, capacity = rules.LastAttemptAge(), e.parts.Traffic.Capacity(sub.ID)
		}
		if capacity > 0 {
			n, err := e.parts.Releaser.RefillLimited(ctx, sub, rate, age, capacity)
			released += n
			failed = errors.Join(failed, err)
		}
	}
	if released > 0 {
		e.fetchLimited()
	}
	return failed
}

// fetchLimited fetches often while jobs have times ahead: at the usual interval, those of 100 ms would be sent at once.
func (e *Engine) fetchLimited() {
	r, now := &e.limitedReleases, time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for at := limitedFetch; at <= delivery.AheadOfTime; at += limitedFetch {
		if now.Add(at).After(r.fetchUntil) {
			time.AfterFunc(at, func() { e.parts.Wake.Request(queue.DeliverQueue) })
		}
	}
	r.fetchUntil = now.Add(delivery.AheadOfTime)
}

func (e *Engine) releaseFrom(ctx context.Context, t *queue.TrafficSample, w queue.Waiting) error {
	snapshot, capacity := e.parts.Cache.Snapshot(), e.parts.Traffic.Capacity(w.SubscriptionID)
	sub, known := snapshot.Subscription(w.SubscriptionID)
	if !known || t.Holds[w.SubscriptionID].TimeToLiveStopped { // deleted: canceled by drain
		return nil
	}
	if sub.Pulled() {
		return e.makeAvailable(ctx, sub, w.Hold)
	}
	if capacity <= 0 {
		return nil
	}
	if !e.parts.Gate.Knows(w.SubscriptionID) {
		capacity = min(capacity, firstRelease)
	}
	limited, state := e.parts.Traffic.Limited(sub.ID), e.parts.Closed.State(sub.ID)
	if w.Hold == "" && !limited && state != queue.EndpointClosed {
		capacity = min(capacity, e.parts.Traffic.OpenCapacity(sub.ID, state))
		_, err := e.parts.Releaser.Refill(ctx, w.SubscriptionID, sub.Batching(), capacity)
		return err
	}
	rules, known := snapshot.Rules(sub.ID)
	if !known {
		return nil
	}
	p, age := rules.Policy, rules.MaxAge()
	if w.Hold == "" && !limited { // the endpoint is closed
		age = rules.LastAttemptAge()
	}
	if w.Hold == catalog.HoldProbation &&
		p.EndsInProbation(sub.EndpointKind, t.ProbationOf(snapshot, sub).Result, rules.DeadLetter) {
		age = 0
	}
	_, err := e.parts.Releaser.ReleaseExpired(ctx, w.SubscriptionID, age, p.Expiry == policy.ExpiryNextAttempt, capacity)
	return err
}

// makeAvailable ends the holds of deliveries that a consumer pulls; while they are on hold, of expired ones.
func (e *Engine) makeAvailable(ctx context.Context, sub *catalog.Subscription, hold string) error {
	if hold == "" {
		return e.parts.Releaser.MakeAvailable(ctx, sub.ID, nil)
	}
	rules, known := e.parts.Cache.Snapshot().Rules(sub.ID)
	if !known {
		return nil
	}
	return e.parts.Releaser.MakeAvailable(ctx, sub.ID, &rules.Limits.TTL)
}

// limit is this node's share of an event subscription's maxConcurrentDeliveries, at least 1; 0 = no limit. Nodes share
// it evenly.
func (e *Engine) limit(subscription int64) int {
	sub, ok := e.parts.Cache.Snapshot().Subscription(subscription)
	if !ok || sub.MaxConcurrentDeliveries == nil {
		return 0
	}
	return max(*sub.MaxConcurrentDeliveries/e.parts.Nodes.WorkerNodes(), 1)
}
