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
	// gateWait is how long a job waits for its turn at an endpoint. A healthy endpoint makes room within milliseconds. A
	// delivery that waits longer is put on hold, and its worker serves the other event subscriptions.
	gateWait = time.Second
	// At an endpoint that responded within the last second, any number may wait, up to a quarter of all workers. At a
	// silent endpoint few may: two per call it may have in flight, an eighth of all workers.
	waitersPerCall = 2
	quickShare     = 4
	// Results that wait for a row that another transaction has locked may occupy a quarter of all workers, and the calls
	// that are in flight then.
	blockedShare = 4
	silentShare  = 8

	// Endpoints that have not responded lately share half the workers, and each takes half of what is left of it: 20
	// endpoints that hang from their first call on leave more than half of the workers to the others. A first call is
	// always made, because only a call shows that an endpoint responds.
	unprovenShare = 2
	unprovenPart  = 2
	provenFor     = 3 * time.Second
	// Whether an endpoint is silent changes with time alone. It is counted this often.
	recount = 50 * time.Millisecond

	// An endpoint whose last ten responses were all failures is failing: while others wait, its retries are let through
	// a few at a time, 64 a second at the initial cap. A success ends that.
	failingStreak = 10
	failingShare  = 4
	// With at most this many jobs waiting for other event subscriptions, no queue is shortened.
	quietQueue = 64

	// A wave fills an event subscription's queue up to four jobs for each call it may have in flight, more if the
	// endpoint responds quickly, and to 10,000 at most. An endpoint that hangs gets four jobs a second whatever its
	// backlog, and a million deliveries that were paused return without a million jobs ahead of all others.
	wavesPerCall = 4
	maxWave      = 10_000
	// soloRoom is for an endpoint that keeps up while no other has jobs: a delivery that goes on hold and is released
	// costs the database a quarter more. The next event subscription may then find 20,000 jobs before its own, about
	// three seconds.
	soloCapacity = 20_000
)

// Gate bounds the attempts in flight per event subscription on this node, so that an endpoint that hangs or is slow
// holds a few workers and not all of them. The bound adapts, see policy.Cap.
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
	waiters  []chan struct{} // closed when their turn comes, the longest waiting first
	answers  answerRate
	answered time.Time // last
	streak   int       // responses in a row that were failures
}

// proven endpoints have responded lately, whatever the response.
func (l *destination) proven(now time.Time) bool { return now.Sub(l.answered) < provenFor }

// answerRate counts responses: in this second, and per second in the last one.
type answerRate struct {
	since time.Time
	count int
	rate  int
}

func (m *answerRate) add(now time.Time) {
	if passed := now.Sub(m.since); passed >= time.Second {
		m.rate = int(float64(m.count) / passed.Seconds())
		m.since, m.count = now, 0
	}
	m.count++
}

// perSecond is the rate that the endpoint has shown that it can take; 0 after it has been silent for a while.
func (m *answerRate) perSecond(now time.Time) int {
	if now.Sub(m.since) > 3*time.Second {
		return 0
	}
	return max(m.rate, m.count)
}

// NewGate makes the gate of a node with so many workers.
func NewGate(workers int, nodes *Nodes) *Gate {
	return &Gate{workers: workers, nodes: nodes, destinations: map[int64]*destination{}}
}

// Enter takes a place in flight, and waits for one if few others wait; false if there is none now. limit is the event
// subscription's own, 0 for none. After true, call Leave.
func (g *Gate) Enter(ctx context.Context, subscription int64, limit int) bool {
	turn, entered := g.join(subscription, limit)
	if turn == nil {
		return entered
	}
	timer := time.NewTimer(gateWait)
	defer timer.Stop()
	select {
	case <-turn:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return !g.stopWaiting(subscription, turn)
}

// join enters at once, or returns a turn to wait for, or neither.
func (g *Gate) join(subscription int64, limit int) (turn chan struct{}, entered bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	l, now := g.destination(subscription), time.Now()
	l.bound(limit, g.workers)
	switch {
	case g.isBlocked(l):
		return nil, false
	case l.inFlight < g.places(l, now):
		g.take(l, now)
		return nil, true
	case g.mayWait(l):
		turn = make(chan struct{})
		g.waiting++
		l.waiters = append(l.waiters, turn)
		return turn, false
	default:
		return nil, false
	}
}

// Block counts results of an event subscription that cannot be recorded, because another transaction has locked a row
// that they need; less than 0 is how many were recorded after all. Each of them occupies a worker. If these are too
// many, event subscriptions with such results get no further places, and the other workers serve the others.
func (g *Gate) Block(subscription int64, n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.blocked += n
	g.destination(subscription).blocked += n
}

func (g *Gate) isBlocked(l *destination) bool {
	return l.blocked > 0 && g.blocked >= max(g.workers/blockedShare, 1)
}

func (g *Gate) take(l *destination, now time.Time) {
	if !l.proven(now) {
		g.silent++
	}
	l.inFlight++
}

// bound follows a change of the event subscription's own limit.
func (l *destination) bound(limit, workers int) {
	if limit != l.limit {
		l.limit, l.cap = limit, policy.NewCap(limit, workers).At(l.cap.Value())
	}
}

// places is how many calls may be in flight: the cap, and no more than a fair part where the endpoint is not proven.
func (g *Gate) places(l *destination, now time.Time) int {
	if l.proven(now) {
		return l.cap.Value()
	}
	if now.Sub(g.countedAt) > recount {
		g.countSilent(now)
	}
	return min(l.cap.Value(), max(1, (g.workers/unprovenShare-g.silent)/unprovenPart))
}

func (g *Gate) countSilent(now time.Time) {
	g.silent, g.countedAt = 0, now
	for _, l := range g.destinations {
		if !l.proven(now) {
			g.silent += l.inFlight
		}
	}
}

func (g *Gate) mayWait(l *destination) bool {
	if time.Since(l.answered) < gateWait {
		return g.waiting < max(g.workers/quickShare, 1)
	}
	return len(l.waiters) < waitersPerCall*l.cap.Value() && g.waiting < max(g.workers/silentShare, 1)
}

// giveUp stops waiting; false when the turn came at this very moment.
func (g *Gate) stopWaiting(subscription int64, turn chan struct{}) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.destination(subscription)
	i := slices.Index(l.waiters, turn)
	if i < 0 {
		return false
	}
	l.waiters = slices.Delete(l.waiters, i, i+1)
	g.waiting--
	return true
}

// Leave gives the place to the job that waited longest.
func (g *Gate) Leave(subscription int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.destination(subscription)
	l.inFlight--
	g.admit(l, time.Now())
}

// Learn adapts the cap to the result of a call.
func (g *Gate) Learn(subscription int64, o policy.Outcome, r policy.Result) {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.destination(subscription)
	l.cap = l.cap.After(o, r)
	now := time.Now()
	if r.Status != 0 {
		l.answered = now
		l.answers.add(now)
	}
	if l.streak++; o == policy.OutcomeDelivered {
		l.streak = 0
	}
	g.admit(l, now)
}

// admit gives the free places of a destination to its waiters.
func (g *Gate) admit(l *destination, now time.Time) {
	for len(l.waiters) > 0 && !g.isBlocked(l) && l.inFlight < g.places(l, now) {
		close(l.waiters[0])
		l.waiters = l.waiters[1:]
		g.waiting--
		g.take(l, now)
	}
}

// Capacity is how many jobs of an event subscription may be queued; others is how many jobs are queued for other event
// subscriptions. This node's view of an endpoint stands for that of all nodes: each adds its own, and they share the
// queue.
func (g *Gate) Capacity(subscription int64, others int) int {
	return g.localCapacity(subscription, others) * g.nodes.WorkerNodes()
}

// room is this node's part: a few jobs for each call it may have in flight, or twice as many as it responded to in a
// second, whatever the responses, so that waves grow as fast as the endpoint keeps up. An endpoint that rejects
// everything at once delays no other.
func (g *Gate) localCapacity(subscription int64, others int) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	l, known := g.destinations[subscription]
	if !known {
		return min(DefaultCapacity, max(wavesPerCall*g.workers/2, 1))
	}
	now, quiet := time.Now(), others <= quietQueue
	switch proven, failing := l.proven(now), l.streak >= failingStreak; {
	case g.isBlocked(l):
		return 0 // a job would find no place
	case failing && !quiet:
		return max(l.cap.Value()/failingShare, 1)
	case !proven && l.inFlight > 0:
		// Silent: more jobs than its calls would find no place and go back on hold, four times a second (20 hanging
		// endpoints with a full room each cost the others half their throughput).
		return g.places(l, now) + 1
	case proven && !failing && quiet:
		return soloCapacity
	}
	return min(max(wavesPerCall*l.cap.Value(), 2*l.answers.perSecond(now)), maxWave)
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
	for id, l := range g.destinations {
		if l.streak >= failingStreak {
			subscriptions = append(subscriptions, id)
		}
	}
	return subscriptions
}

// Forget drops the event subscriptions that were deleted: with some thousands that were failing when they were deleted,
// each promotion queried all of them. Those with a call in flight or waiting are dropped the next time.
func (g *Gate) Forget(known func(subscription int64) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	maps.DeleteFunc(g.destinations,
		func(id int64, l *destination) bool {
			return l.inFlight == 0 && l.blocked == 0 && len(l.waiters) == 0 && !known(id)
		})
}

func (g *Gate) destination(subscription int64) *destination {
	l, ok := g.destinations[subscription]
	if !ok {
		l = &destination{cap: policy.NewCap(0, g.workers)}
		g.destinations[subscription] = l
	}
	return l
}
