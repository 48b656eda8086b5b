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

// promoter makes due jobs available, and releases deliveries whose hold has ended, within what endpoints can take.
type promoter struct {
	Queue
	Admission
	cache    *catalog.Cache
	holds    *catalog.Holds
	releaser *delivery.Releaser
	loops    *sync.WaitGroup // of releases, too
	timeout  time.Duration   // of one release

	refills           int
	releases, limited releases
}

// promote makes due jobs available.
func (p *promoter) promote(ctx context.Context) error {
	due, err := p.JobRows.Due(ctx)
	if err != nil || !due {
		return err
	}
	_, err = p.JobRows.Promote(ctx, p.capacities(p.Traffic.LatestTraffic())...)
	return err
}

// capacities bounds the promotion for event subscriptions that have jobs queued, are on hold, fail, or have a rate
// limit or a closed endpoint. The others have the default.
func (p *promoter) capacities(t *queue.TrafficSample) []queue.Capacity {
	capacities := map[int64]queue.Capacity{}
	for _, id := range slices.AppendSeq(p.Gate.Failing(), maps.Keys(t.Queued)) {
		capacities[id] = queue.Capacity{SubscriptionID: id, Jobs: p.Traffic.Capacity(id)}
	}
	for _, w := range t.Waiting { // deliveries that already wait go first
		capacities[w.SubscriptionID] = queue.Capacity{SubscriptionID: w.SubscriptionID, Hold: w.Hold}
	}
	limited := slices.AppendSeq(p.Closed.Subscriptions(), maps.Keys(p.cache.Snapshot().Rates()))
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
func (p *promoter) release(
	ctx context.Context, r *releases, name string, run func(context.Context) error,
) (began bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running[name] {
		return false
	}
	r.running[name] = true
	p.loops.Go(func() {
		select {
		case r.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		err := within(ctx, p.timeout, run)
		<-r.slots
		r.mu.Lock()
		if delete(r.running, name); err != nil && r.failed == nil {
			r.failed = fmt.Errorf("%s: %w", name, err)
		}
		r.mu.Unlock()
		p.Traffic.WakeLimited()
	})
	return true
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
func (p *promoter) refill(ctx context.Context) error {
	traffic := p.Traffic.LatestTraffic()
	for id, hold := range traffic.Holds {
		if hold.Resuming {
			p.release(ctx, &p.releases, fmt.Sprint("resumed event subscription ", id),
				func(ctx context.Context) error { return p.holds.MoveTimeToLive(ctx, id) })
		}
	}
	for _, key := range traffic.ProbesDue(p.cache.Snapshot()) {
		p.release(ctx, &p.releases, fmt.Sprintf("probation %x", key), func(ctx context.Context) error {
			_, err := p.releaser.ClaimProbe(ctx, key)
			return err
		})
	}
	p.refills++
	for _, w := range traffic.Waiting {
		state := p.Closed.State(w.SubscriptionID)
		if state != queue.EndpointOpen {
			p.Gate.ObserveClosed(w.SubscriptionID)
		}
		waits := w.Hold != "" || p.Traffic.Limited(w.SubscriptionID) || state == queue.EndpointClosed
		if waits && p.refills%heldRounds != 0 {
			continue
		}
		p.release(ctx, &p.releases, fmt.Sprint("event subscription ", w.SubscriptionID),
			func(ctx context.Context) error { return p.releaseFrom(ctx, traffic, w) })
	}
	return p.releases.report()
}

// refillLimited releases deliveries within rate limits: those that publishes have put on hold, and those of the sample.
func (p *promoter) refillLimited(ctx context.Context) error {
	snapshot, traffic := p.cache.Snapshot(), p.Traffic.LatestTraffic()
	held := map[int64]bool{}
	for _, id := range p.Traffic.TakeLimited() {
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
		release := func(ctx context.Context) error { return p.releaseLimited(ctx, subs) }
		if !p.release(ctx, &p.limited, "rate limit "+key, release) {
			p.Traffic.KeepLimited(subs) // the one in progress may have read before the last commit
		}
	}
	return p.limited.report()
}

// releaseLimited releases deliveries of event subscriptions that share a rate limit. While the endpoint is closed, it
// releases last attempts.
func (p *promoter) releaseLimited(ctx context.Context, subs []*catalog.Subscription) error {
	var failed error
	snapshot, released := p.cache.Snapshot(), 0
	for _, sub := range subs {
		rate, limited := snapshot.Rate(sub.ID)
		if !limited {
			continue
		}
		age, state := time.Duration(0), p.Closed.State(sub.ID)
		capacity := p.Traffic.OpenCapacity(sub.ID, state)
		if rules, known := snapshot.Rules(sub.ID); known && state == queue.EndpointClosed {
			age, capacity = rules.LastAttemptAge(), p.Traffic.Capacity(sub.ID)
		}
		if capacity > 0 {
			n, err := p.releaser.RefillLimited(ctx, sub, rate, age, capacity)
			released += n
			failed = errors.Join(failed, err)
		}
	}
	if released > 0 {
		p.fetchLimited()
	}
	return failed
}

// fetchLimited fetches often while jobs have times ahead: at the usual interval, those of 100 ms would be sent at once.
func (p *promoter) fetchLimited() {
	r, now := &p.limited, time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for at := limitedFetch; at <= delivery.AheadOfTime; at += limitedFetch {
		if now.Add(at).After(r.fetchUntil) {
			time.AfterFunc(at, func() { p.Wake.Request(queue.DeliverQueue) })
		}
	}
	r.fetchUntil = now.Add(delivery.AheadOfTime)
}

func (p *promoter) releaseFrom(ctx context.Context, t *queue.TrafficSample, w queue.Waiting) error {
	snapshot, capacity := p.cache.Snapshot(), p.Traffic.Capacity(w.SubscriptionID)
	sub, known := snapshot.Subscription(w.SubscriptionID)
	if !known || t.Holds[w.SubscriptionID].TimeToLiveStopped { // deleted: canceled by drain
		return nil
	}
	if sub.Pulled() {
		return p.makeAvailable(ctx, sub, w.Hold)
	}
	if capacity <= 0 {
		return nil
	}
	if !p.Gate.Knows(w.SubscriptionID) {
		capacity = min(capacity, firstRelease)
	}
	limited, state := p.Traffic.Limited(sub.ID), p.Closed.State(sub.ID)
	if w.Hold == "" && !limited && state != queue.EndpointClosed {
		capacity = min(capacity, p.Traffic.OpenCapacity(sub.ID, state))
		_, err := p.releaser.Refill(ctx, w.SubscriptionID, sub.Batching(), capacity)
		return err
	}
	rules, known := snapshot.Rules(sub.ID)
	if !known {
		return nil
	}
	age := rules.MaxAge()
	if w.Hold == "" && !limited { // the endpoint is closed
		age = rules.LastAttemptAge()
	}
	if p := t.ProbationOf(snapshot, sub); w.Hold == catalog.HoldProbation &&
		rules.Policy.EndsInProbation(p.Scope, sub.EndpointKind, p.Result, rules.DeadLetter) {
		age = 0
	}
	_, err := p.releaser.ReleaseExpired(ctx, w.SubscriptionID, age,
		rules.Policy.Expiry == policy.ExpiryNextAttempt, capacity)
	return err
}

// makeAvailable ends the holds of deliveries that a consumer pulls; while they are on hold, of expired ones.
func (p *promoter) makeAvailable(ctx context.Context, sub *catalog.Subscription, hold string) error {
	if hold == "" {
		return p.releaser.MakeAvailable(ctx, sub.ID, nil)
	}
	rules, known := p.cache.Snapshot().Rules(sub.ID)
	if !known {
		return nil
	}
	return p.releaser.MakeAvailable(ctx, sub.ID, &rules.Limits.TTL)
}
