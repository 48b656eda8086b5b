package queue

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"postrider/internal/catalog"
	"postrider/internal/postgres"
	"postrider/policy"

	"github.com/jackc/pgx/v5"
)

const (
	// sampleInterval: T3 can put 15,000 deliveries per second on hold. So a failing endpoint gets at most 4,000 jobs
	// before those of the others until a sample shows it.
	sampleInterval = 250 * time.Millisecond
	// A slow sample is taken less often: it may use a tenth of a connection's time.
	sampleShare = 10
	sampleLimit = 5 * time.Second
	// idleInterval is the pause while nothing waits and this node has queued nothing since. Other nodes count their own
	// publishes.
	idleInterval = time.Second
	// DefaultCapacity is how many jobs of an event subscription may be queued while its endpoint is unknown: four for each
	// of its first 64 calls.
	DefaultCapacity = 256 // waiting.sql repeats it
	// publisherCapacity is the same on a node that makes no attempts: it must not slow down a fast endpoint, and the nodes
	// that make attempts put the surplus on hold.
	publisherCapacity = 2000
)

// Waiting is an event subscription that has deliveries on hold.
type Waiting struct {
	SubscriptionID int64
	// Hold is that of the event subscription; "" if its deliveries may be attempted.
	Hold string
	// Held counts its deliveries and batches on hold, up to DefaultCapacity.
	Held int
}

// HoldState is the hold of an event subscription.
type HoldState struct {
	Reason                      string
	TimeToLiveStopped, Resuming bool
}

// ActiveProbation is a probation that holds deliveries.
type ActiveProbation struct {
	Key    []byte
	Scope  policy.ProbationScope // set by ProbationOf
	Result policy.Result         // what started the hold
	// ProbeDue: a probe is due and none is in progress.
	ProbeDue bool
}

// TrafficSample is the backlog at one moment. It is never changed.
type TrafficSample struct {
	// Queued counts the deliveries of each event subscription whose job, or whose batch's job, is ready or running, and
	// the deliveries that wait for the next batch.
	Queued map[int64]int
	// Holds are the holds of event subscriptions other than probation.
	Holds      map[int64]HoldState
	Probations map[string]ActiveProbation
	Waiting    []Waiting
	// QueuedInAll is the sum of Queued.
	QueuedInAll int
}

// Traffic keeps the latest sample and counts the jobs that this node has queued since.
type Traffic struct {
	db      *postgres.DB
	cache   *catalog.Cache
	closed  *ClosedEndpoints
	spacing spacing
	// capacity is how many jobs of an event subscription may be queued, see Gate.Capacity.
	capacity func(subscription int64, others int) int
	sampling sync.Mutex

	mu      sync.Mutex
	latest  *TrafficSample
	crowded map[int64]bool // more are on hold than the next release takes: new ones wait behind them
	// Jobs queued by this node, without those that it has finished, since the latest sample began, and since the one
	// before. A job that is committed while a sample is taken may be in the sample or not.
	since, before map[int64]int
	// queued receives when the first delivery is queued after a sample that found nothing.
	queued chan struct{}

	// limited are the event subscriptions with a rate limit whose deliveries this node has put on hold since TakeLimited.
	limited  map[int64]bool
	released chan struct{}
}

// NewTraffic samples the database and counts jobs. capacity is Gate.Capacity; nil on a node that makes no attempts.
func NewTraffic(
	db *postgres.DB, cache *catalog.Cache, closed *ClosedEndpoints, capacity func(subscription int64, others int) int,
) *Traffic {
	if capacity == nil {
		capacity = func(int64, int) int { return publisherCapacity }
	}
	return &Traffic{
		db: db, cache: cache, closed: closed, capacity: capacity, latest: &TrafficSample{}, since: map[int64]int{},
		queued: make(chan struct{}, 1), limited: map[int64]bool{}, released: make(chan struct{}, 1),
	}
}

// LatestTraffic is the latest sample, about 250 ms old.
func (t *Traffic) LatestTraffic() *TrafficSample {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.latest
}

// Capacity returns how many more jobs of an event subscription may be queued now; 0 or less for none. It does not
// consider whether the endpoint is closed.
func (t *Traffic) Capacity(subscription int64) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.free(subscription)
}

// OpenCapacity is Capacity of an endpoint in this state: none if it is closed, one if it is half open.
func (t *Traffic) OpenCapacity(subscription int64, state EndpointState) int {
	switch state {
	case EndpointClosed:
		return 0
	case EndpointHalfOpen:
		return min(t.Capacity(subscription), 1)
	default:
		return t.Capacity(subscription)
	}
}

// Limited reports whether the deliveries of an event subscription have a rate limit.
func (t *Traffic) Limited(subscription int64) bool {
	_, limited := t.cache.Snapshot().Rate(subscription)
	return limited
}

// free counts events if an event subscription takes batches: a call sends as many as a batch may have.
func (t *Traffic) free(subscription int64) int {
	limit := t.capacity(subscription, t.latest.QueuedInAll-t.latest.Queued[subscription])
	if sub, ok := t.cache.Snapshot().Subscription(subscription); ok && sub.Batching() {
		limit = min(limit*sub.Batch().MaxEvents, maxOpenEvents)
	}
	return limit - t.latest.Queued[subscription] - t.since[subscription] - t.before[subscription]
}

// maxOpenEvents bounds the deliveries that wait for the next batch of an event subscription.
const maxOpenEvents = 20_000

// Admissions has how many deliveries of each event subscription a publish may give jobs to.
type Admissions map[int64]*admission

type admission struct {
	capacity, taken int
	limited         bool // by a rate
	closed          bool // the endpoint
	jobless         bool // its deliveries are on hold, by the latest sample, or have the job of a batch
}

// Take takes capacity for one delivery; false if there is none.
func (a Admissions) Take(subscription int64) bool {
	of := a[subscription]
	if of.taken >= of.capacity {
		return false
	}
	of.taken++
	return true
}

// Jobs is how many deliveries that took capacity got their own job, about: a hold may have begun or ended since the
// latest sample.
func (a Admissions) Jobs() (n int) {
	for _, of := range a {
		if !of.jobless {
			n += of.taken
		}
	}
	return n
}

// Limited reports whether an event subscription has a rate limit, or a closed endpoint.
func (a Admissions) Limited(subscription int64) bool {
	of := a[subscription]
	return of != nil && (of.limited || of.closed)
}

// Admit returns the free capacity of event subscriptions. It is none if many deliveries are on hold: new ones wait
// behind them. It is none if there is a rate limit: a release takes the permits of its deliveries. It is none while the
// endpoint is closed, or half open: a release lets one try.
func (t *Traffic) Admit(subscriptions []int64) Admissions {
	admitted, snapshot := Admissions{}, t.cache.Snapshot()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, id := range subscriptions {
		limited, closed := t.Limited(id), t.closed.State(id) != EndpointOpen
		sub, known := snapshot.Subscription(id)
		jobless := known && sub.Batching() || t.latest.holdOf(snapshot, id) != ""
		admitted[id] = &admission{limited: limited, closed: closed, jobless: jobless}
		if !t.crowded[id] && !limited && !closed {
			admitted[id].capacity = t.free(id)
		}
	}
	return admitted
}

// Add counts the jobs that were committed.
func (t *Traffic) Add(admitted Admissions) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.since) == 0 {
		Signal(t.queued)
	}
	for subscription, of := range admitted {
		if of.taken > 0 {
			t.since[subscription] += of.taken
		}
		if of.limited {
			t.limited[subscription] = true
			Signal(t.released)
		}
	}
}

// LimitedQueued receives when deliveries of event subscriptions with a rate limit were put on hold.
func (t *Traffic) LimitedQueued() <-chan struct{} { return t.released }

// TakeLimited returns the event subscriptions with a rate limit that got deliveries since the last call.
func (t *Traffic) TakeLimited() []int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	taken := slices.Collect(maps.Keys(t.limited))
	clear(t.limited)
	return taken
}

// KeepLimited leaves event subscriptions to the next TakeLimited.
func (t *Traffic) KeepLimited(subs []*catalog.Subscription) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, sub := range subs {
		t.limited[sub.ID] = true
	}
}

// WakeLimited makes LimitedQueued receive if there is something for TakeLimited.
func (t *Traffic) WakeLimited() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.limited) > 0 {
		Signal(t.released)
	}
}

// AddOne counts the jobs queued for one event subscription; less than 0 are jobs that left the queue.
func (t *Traffic) AddOne(subscription int64, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.since[subscription] += n
}

// Released counts released deliveries. A release that found less than its limit leaves none on hold.
func (t *Traffic) Released(subscription int64, n, limit int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.since[subscription] += n
	if n < limit {
		delete(t.crowded, subscription)
	}
}

// Run samples the database until ctx ends.
func (t *Traffic) Run(ctx context.Context) {
	pause := time.Duration(0)
	for t.wait(ctx, pause) {
		began := time.Now()
		_, _ = t.SampleTraffic(ctx) // after an error, admission uses the last sample
		pause = min(max(sampleInterval, sampleShare*time.Since(began)), sampleLimit)
	}
}

// wait waits for the next sample; false when ctx ends.
func (t *Traffic) wait(ctx context.Context, pause time.Duration) bool {
	if pause > 0 && t.idle() {
		select {
		case <-ctx.Done():
		case <-time.After(idleInterval - sampleInterval):
		case <-t.queued:
		}
	}
	Pause(ctx, pause)
	return ctx.Err() == nil
}

// idle reports that this node knows no delivery that waits.
func (t *Traffic) idle() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-t.queued: // an old one
	default:
	}
	return t.latest.QueuedInAll == 0 && len(t.latest.Waiting) == 0 && len(t.since) == 0
}

const holdsStatement = `
SELECT subscription_id, hold, stop_time_to_live, resumed_at IS NOT NULL
  FROM postrider_internal.event_subscription_states WHERE hold IS NOT NULL`

const closedStatement = `
SELECT key, closed_until - clock_timestamp() FROM postrider_internal.delivery_rates WHERE closed_until IS NOT NULL`

var (
	queuedStatement     = sqlFile("queued")
	probationsStatement = sqlFile("probations")
	waitingStatement    = sqlFile("waiting")
)

// SampleTraffic takes a sample now.
func (t *Traffic) SampleTraffic(ctx context.Context) (*TrafficSample, error) {
	ctx, cancel := context.WithTimeout(ctx, sampleLimit)
	defer cancel()
	t.sampling.Lock()
	defer t.sampling.Unlock()
	t.begin()
	began := time.Now()
	fresh := &TrafficSample{
		Queued: map[int64]int{}, Holds: map[int64]HoldState{}, Probations: map[string]ActiveProbation{},
	}
	batch := &pgx.Batch{}
	var id int64
	var n int
	var hold HoldState
	var probation ActiveProbation
	batch.Queue(queuedStatement).Query(EachRow([]any{&id, &n}, func() {
		fresh.Queued[id] += n
		fresh.QueuedInAll += n
	}))
	batch.Queue(holdsStatement).
		Query(EachRow([]any{&id, &hold.Reason, &hold.TimeToLiveStopped, &hold.Resuming}, func() { fresh.Holds[id] = hold }))
	var condition string
	batch.Queue(probationsStatement).Query(EachRow([]any{&probation.Key, &condition, &probation.ProbeDue}, func() {
		probation.Result = policy.ParseResult(condition)
		fresh.Probations[string(probation.Key)] = probation
		probation.Key = nil
	}))
	batch.Queue(waitingStatement).
		Query(EachRow([]any{&id, &n}, func() { fresh.Waiting = append(fresh.Waiting, Waiting{SubscriptionID: id, Held: n}) }))
	closed := map[string]time.Duration{}
	var key string
	var wait time.Duration
	batch.Queue(closedStatement).Query(EachRow([]any{&key, &wait}, func() { closed[key] = wait }))
	if err := t.db.SendBatch(ctx, batch).Close(); err != nil {
		t.keep()
		return nil, fmt.Errorf("sample the traffic: %w", err)
	}
	t.closed.keep(closed, began)
	t.spacing.forget(began)
	t.end(fresh)
	return fresh, nil
}

// EachRow scans rows into columns, and calls take after each.
func EachRow(columns []any, take func()) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, columns, func() error { take(); return nil })
		return err
	}
}

// Forget forgets what this node has queued, held, spaced and seen closed. Take a sample then.
func (t *Traffic) Forget() {
	t.closed.Forget()
	t.spacing.forget(time.Now().Add(mostSpaced))
	t.mu.Lock()
	defer t.mu.Unlock()
	t.before, t.since, t.crowded = nil, map[int64]int{}, nil
	clear(t.limited)
}

func (t *Traffic) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.before, t.since = t.since, map[int64]int{}
}

// keep continues to count from the sample before one that failed: a busy database must not look idle.
func (t *Traffic) keep() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for subscription, n := range t.before {
		t.since[subscription] += n
	}
	t.before = nil
}

func (t *Traffic) end(fresh *TrafficSample) {
	snapshot := t.cache.Snapshot()
	crowded := map[int64]bool{}
	for i := range fresh.Waiting {
		w := &fresh.Waiting[i]
		w.Hold = fresh.holdOf(snapshot, w.SubscriptionID)
		if w.Hold == "" && w.Held >= DefaultCapacity {
			crowded[w.SubscriptionID] = true
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.latest, t.crowded, t.before = fresh, crowded, nil
}

// holdOf returns the hold of an event subscription; "" for none.
func (t *TrafficSample) holdOf(c *catalog.Snapshot, subscription int64) string {
	if hold, ok := t.Holds[subscription]; ok {
		return hold.Reason
	}
	if sub, ok := c.Subscription(subscription); ok && len(t.Probations) > 0 {
		if t.ProbationOf(c, sub).Key != nil {
			return catalog.HoldProbation
		}
	}
	return ""
}

// ProbesDue returns the keys of the probations that are due for a probe and hold deliveries. Others have no event
// subscription any more, or one that no event matches.
func (t *TrafficSample) ProbesDue(c *catalog.Snapshot) (keys [][]byte) {
	met := map[string]bool{}
	for _, w := range t.Waiting {
		if w.Hold != catalog.HoldProbation {
			continue
		}
		if sub, ok := c.Subscription(w.SubscriptionID); ok {
			if p := t.ProbationOf(c, sub); p.ProbeDue && !met[string(p.Key)] {
				met[string(p.Key)], keys = true, append(keys, p.Key)
			}
		}
	}
	return keys
}

// ProbationOf returns the probation that holds an event subscription's deliveries, the first of them; the zero
// ActiveProbation if there is none.
func (t *TrafficSample) ProbationOf(c *catalog.Snapshot, sub *catalog.Subscription) ActiveProbation {
	retry, _ := c.Policy(sub.RetryPolicy.Policy)
	for i, key := range c.ProbationKeys(sub) {
		if p, held := t.Probations[string(key)]; held {
			p.Scope = retry.Probation.Scopes()[i]
			return p
		}
	}
	return ActiveProbation{}
}

// MayProbe reports whether a delivery of the event subscription may be the probe of the probation: no other one that
// holds it decides instead, or waits for its own probe.
func (t *TrafficSample) MayProbe(c *catalog.Snapshot, sub *catalog.Subscription, probation []byte) (found bool) {
	for _, key := range c.ProbationKeys(sub) {
		if bytes.Equal(key, probation) {
			found = true
		} else if p, held := t.Probations[string(key)]; held && (!found || !p.ProbeDue) {
			return false
		}
	}
	return found
}
