package queue

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"postrider/policy"
)

const (
	// gateWait is how long a job waits for an endpoint. Then its delivery is put on hold, and its worker serves other
	// event subscriptions.
	gateWait = time.Second
	// At an endpoint that responded within the last second, any number of jobs may wait, up to a quarter of all workers.
	// While few jobs of others are queued, those may wait that enter within half of gateWait: its calls of a second,
	// divided by soloShare. A job that may not wait returns to its hold, which costs more than the attempt. Meanwhile none
	// of the others may wait, if more than a quarter of all workers do.
	// At a silent endpoint two may wait per call that it may have in flight, up to an eighth of all workers.
	quickShare     = 4
	soloShare      = 2
	waitersPerCall = 2
	silentShare    = 8
	// Blocked results, which wait for a row that another transaction has locked, may take a quarter of all workers.
	blockedShare = 4

	// Endpoints that have not responded lately share half the workers, and each takes half of the rest: 20 endpoints that
	// hang from their first call on leave more than half of the workers to the others. A first call is always made,
	// because only a call shows that an endpoint responds.
	unprovenShare = 2
	unprovenPart  = 2
	provenFor     = 3 * time.Second
	// recount is how often the calls to silent endpoints are counted.
	recount = 50 * time.Millisecond

	// An endpoint whose last ten responses were all failures is failing: while others wait, only a quarter of its cap is
	// queued, 64 retries a second at the initial cap. A success ends that.
	failingStreak = 10
	failingShare  = 4
	// With at most this many jobs waiting for other event subscriptions, no queue is shortened.
	quietQueue = 64

	// A release fills an event subscription's queue up to four jobs for each call that it may have in flight, more if the
	// endpoint responds quickly, and to 10,000 at most. So a million deliveries return from a pause without a million jobs
	// before all others.
	wavesPerCall = 4
	maxWave      = 10_000
	// throttledFor is how long an endpoint that has responded 429 is called with care.
	throttledFor = time.Hour
	// timedShare is how many successes the response time is the mean of, about.
	timedShare = 8
	// soloCapacity is for an endpoint that keeps up while no other has jobs: holding and releasing a delivery costs the
	// database a quarter more. The next event subscription may then wait for about three seconds.
	soloCapacity = 20_000
)

// Gate bounds the attempts in flight per event subscription on this node, so that a slow endpoint takes a few workers
// and not all of them. The bound adapts, see policy.Cap.
type Gate struct {
	nodes        *Nodes
	mu           sync.Mutex
	workers      int
	waiting      int // at all destinations
	blocked      int // of all destinations
	destinations map[int64]*destination

	silent    int // calls in flight to endpoints that are not proven, counted at countedAt
	countedAt time.Time
}

// destination is what the gate knows of one event subscription's endpoint.
type destination struct {
	cap      policy.Cap
	limit    int // maxConcurrentDeliveries, this node's share; 0 = none
	inFlight int
	blocked  int             // results that wait for a locked row, each with its worker
	waiters  []chan struct{} // closed when they enter, the longest waiting first
	streak   int             // failures in a row
	aloneAt  time.Time       // when few jobs of other event subscriptions were queued; zero if many were at last

	responses    rate
	respondedAt  time.Time
	responseTime time.Duration // of successes; 0 = none was measured

	// Of an endpoint that throttles: when the next request may begin, and when the endpoint has throttled at last and its
	// cap was last halved.
	next, throttledAt, loweredAt time.Time
}

// pace is how many calls may end in a second: what as many as the cap allows take if they succeed, or the responses of
// the last second, because failures may be faster.
func (d *destination) pace(now time.Time) int {
	if d.responseTime == 0 {
		return d.responses.perSecond(now)
	}
	return max(int(time.Duration(d.cap.Value())*time.Second/d.responseTime), d.responses.perSecond(now))
}

// proven endpoints have responded lately, whatever the response.
func (d *destination) proven(now time.Time) bool { return now.Sub(d.respondedAt) < provenFor }

// rate counts responses or jobs in this second, and per second in the last one.
type rate struct {
	since time.Time
	count int
	last  int
}

func (r *rate) add(now time.Time, n int) {
	if passed := now.Sub(r.since); passed >= time.Second {
		r.last = int(float64(r.count) / passed.Seconds())
		r.since, r.count = now, 0
	}
	r.count += n
}

// perSecond is the rate that is possible; 0 after 3 s without any.
func (r *rate) perSecond(now time.Time) int {
	if now.Sub(r.since) > 3*time.Second {
		return 0
	}
	return max(r.last, r.count)
}

// NewGate makes the gate of a node with this many workers.
func NewGate(workers int, nodes *Nodes) *Gate {
	return &Gate{workers: workers, nodes: nodes, destinations: map[int64]*destination{}}
}

// Enter begins an attempt, and waits if few others wait; false if the attempt may not begin now. limit is
// maxConcurrentDeliveries, 0 for none. After true, call Leave.
func (g *Gate) Enter(ctx context.Context, subscription int64, limit int) bool {
	admitted, entered := g.join(subscription, limit)
	if admitted == nil {
		return entered
	}
	timer := time.NewTimer(gateWait)
	defer timer.Stop()
	select {
	case <-admitted:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return !g.stopWaiting(subscription, admitted)
}

// join enters at once, or returns a channel to wait for, or neither.
func (g *Gate) join(subscription int64, limit int) (admitted chan struct{}, entered bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	d, now := g.destination(subscription), time.Now()
	if limit != d.limit { // the event subscription's own limit has changed
		d.limit, d.cap = limit, d.cap.Within(limit, g.workers)
	}
	switch {
	case g.isBlocked(d):
		return nil, false
	case d.inFlight < g.maxInFlight(d, now):
		g.take(d, now)
		return nil, true
	case g.mayWait(d, now):
		admitted = make(chan struct{})
		g.waiting++
		d.waiters = append(d.waiters, admitted)
		return admitted, false
	default:
		return nil, false
	}
}

// Block counts results of an event subscription that cannot be recorded because another transaction has locked a row;
// less than 0 is how many were recorded. Each occupies a worker. If there are too many, their event subscriptions begin
// no further attempts, and the other workers serve the others. A node without workers has no Gate.
func (g *Gate) Block(subscription int64, n int) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.blocked += n
	g.destination(subscription).blocked += n
}

func (g *Gate) isBlocked(d *destination) bool {
	return d.blocked > 0 && g.blocked >= max(g.workers/blockedShare, 1)
}

func (g *Gate) take(d *destination, now time.Time) {
	if !d.proven(now) {
		g.silent++
	}
	d.inFlight++
}

// maxInFlight is how many calls may be in flight: the cap, and at most a fair part if the endpoint is not proven.
func (g *Gate) maxInFlight(d *destination, now time.Time) int {
	if d.proven(now) {
		return d.cap.Value()
	}
	if now.Sub(g.countedAt) > recount {
		g.silent, g.countedAt = 0, now
		for _, d := range g.destinations {
			if !d.proven(now) {
				g.silent += d.inFlight
			}
		}
	}
	return min(d.cap.Value(), max(1, (g.workers/unprovenShare-g.silent)/unprovenPart))
}

func (g *Gate) mayWait(d *destination, now time.Time) bool {
	if now.Sub(d.respondedAt) < gateWait {
		return g.waiting < max(g.workers/quickShare, 1) ||
			now.Sub(d.aloneAt) < gateWait && len(d.waiters) < d.pace(now)/soloShare
	}
	return len(d.waiters) < waitersPerCall*d.cap.Value() && g.waiting < max(g.workers/silentShare, 1)
}

// stopWaiting removes a waiter; false if it has entered at this moment.
func (g *Gate) stopWaiting(subscription int64, admitted chan struct{}) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	d := g.destination(subscription)
	i := slices.Index(d.waiters, admitted)
	if i < 0 {
		return false
	}
	d.waiters = slices.Delete(d.waiters, i, i+1)
	g.waiting--
	return true
}

// Leave ends an attempt and lets the job enter that waited longest.
func (g *Gate) Leave(subscription int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	d := g.destination(subscription)
	d.inFlight--
	g.admit(d, time.Now())
}

// Spacing returns how long a request waits that has entered, see policy.Cap.Spacing. A worker waits no longer than at
// the gate.
func (g *Gate) Spacing(subscription int64) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	d, now := g.destination(subscription), time.Now()
	if !d.cap.IsThrottled() {
		return 0
	}
	wait := min(max(d.next.Sub(now), 0), gateWait)
	d.next = now.Add(wait + d.cap.Spacing(d.responseTime))
	return wait
}

// Observe adapts the cap to the result of a call, which took so long.
func (g *Gate) Observe(subscription int64, o policy.Outcome, r policy.Result, took time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	d := g.destination(subscription)
	d.cap = d.cap.After(o, r)
	if o == policy.OutcomeDelivered {
		if d.responseTime == 0 {
			d.responseTime = took
		}
		d.responseTime += (took - d.responseTime) / timedShare
	}
	if d.cap.IsThrottled() && time.Since(d.throttledAt) > throttledFor {
		d.cap = d.cap.Unthrottled()
	}
	if d.streak++; o == policy.OutcomeDelivered {
		d.streak = 0
	}
	g.noteEnd(d, r.Responded())
}

// ObserveThrottled adapts the cap to a response that requests fewer requests, see policy.Rules.Throttles. It is no
// failure of the endpoint. The call took so long and is still in flight. alone: no other one is.
func (g *Gate) ObserveThrottled(subscription int64, took time.Duration) (alone bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	d, now := g.destination(subscription), time.Now()
	again := now.Add(-took).Before(d.loweredAt)
	d.cap, d.throttledAt = d.cap.Throttled(d.inFlight, again), now
	if !again {
		d.loweredAt = now
	}
	g.noteEnd(d, true)
	return d.inFlight == 1
}

// ObserveClosed notes that the endpoint is closed: it throttles, as this node or another one has found.
func (g *Gate) ObserveClosed(subscription int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if d, known := g.destinations[subscription]; known {
		d.cap, d.throttledAt = d.cap.Closed(), time.Now()
	}
}

func (g *Gate) noteEnd(d *destination, responded bool) {
	now := time.Now()
	if responded {
		d.respondedAt = now
		d.responses.add(now, 1)
	}
	g.admit(d, now)
}

// admit lets waiters of a destination enter.
func (g *Gate) admit(d *destination, now time.Time) {
	for len(d.waiters) > 0 && !g.isBlocked(d) && d.inFlight < g.maxInFlight(d, now) {
		close(d.waiters[0])
		d.waiters = d.waiters[1:]
		g.waiting--
		g.take(d, now)
	}
}

// Capacity is how many jobs of an event subscription may be queued; others is how many jobs are queued for other event
// subscriptions. All nodes share the queue, and this node's knowledge of the endpoint stands for theirs.
func (g *Gate) Capacity(subscription int64, others int) int {
	return g.localCapacity(subscription, others) * g.nodes.WorkerNodes()
}

// localCapacity is this node's part: a few jobs for each call that may be in flight, or twice the responses of a
// second, so that releases grow as fast as the endpoint keeps up. A slow endpoint has those that may be in flight, and
// what it takes in half a second.
func (g *Gate) localCapacity(subscription int64, others int) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	d, known := g.destinations[subscription]
	if !known {
		return min(DefaultCapacity, max(wavesPerCall*g.workers/2, 1))
	}
	now, quiet := time.Now(), others <= quietQueue
	d.aloneAt = time.Time{}
	if quiet {
		d.aloneAt = now
	}
	wave := min(max(wavesPerCall*d.cap.Value(), 2*d.responses.perSecond(now)), maxWave)
	switch proven, failing := d.proven(now), d.streak >= failingStreak; {
	case g.isBlocked(d):
		return 0 // no attempt may begin
	case failing && !quiet:
		return max(d.cap.Value()/failingShare, 1)
	case !proven && d.inFlight > 0:
		// Silent: further jobs would return to their holds four times a second (20 hanging endpoints with a full queue
		// each took half the throughput of the others).
		return g.maxInFlight(d, now) + 1
	case !proven || failing || d.cap.IsThrottled():
		return wave
	}
	if quiet {
		wave = soloCapacity
	}
	if d.responseTime == 0 {
		return wave
	}
	// Of a longer queue of a slow endpoint most jobs would be fetched only to return to their holds: a delivery to one
	// that takes 1 s used three times as much CPU. With this queue its cap can double until the next release.
	return min(d.cap.Value()+max(d.pace(now)/soloShare, 1), wave)
}

// full reports whether no further attempt may begin at an endpoint now.
func (g *Gate) full(subscription int64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	d, known := g.destinations[subscription]
	return known && (g.isBlocked(d) || len(d.waiters) > 0 || d.inFlight >= g.maxInFlight(d, time.Now()))
}

// Knows reports whether this node has called an endpoint.
func (g *Gate) Knows(subscription int64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, known := g.destinations[subscription]
	return known
}

// Failing lists the event subscriptions whose endpoints have failed many times in a row.
func (g *Gate) Failing() (subscriptions []int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for id, d := range g.destinations {
		if d.streak >= failingStreak {
			subscriptions = append(subscriptions, id)
		}
	}
	return subscriptions
}

// Forget removes deleted event subscriptions, except those with a call in flight or waiting. Each promotion queries all
// that are failing.
func (g *Gate) Forget(known func(subscription int64) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	maps.DeleteFunc(g.destinations, func(id int64, d *destination) bool {
		return d.inFlight == 0 && d.blocked == 0 && len(d.waiters) == 0 && !known(id)
	})
}

func (g *Gate) destination(subscription int64) *destination {
	d, ok := g.destinations[subscription]
	if !ok {
		d = &destination{cap: policy.NewCap(0, g.workers)}
		g.destinations[subscription] = d
	}
	return d
}
