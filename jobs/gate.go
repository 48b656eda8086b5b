package jobs

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"postrider/policy"
	"postrider/store"
)

const (
	// gateWait is how long a job waits for its turn at an endpoint. A healthy endpoint makes room within milliseconds; a
	// delivery that waits longer is put on hold, and its worker serves the other event subscriptions.
	gateWait = time.Second
	// At an endpoint that answered within the last second any may wait, up to a quarter of the workers in all. At one that is
	// silent few may: two per call it may have in flight, an eighth of the workers in all.
	waitersPerCall = 2
	quickShare     = 4
	silentShare    = 8

	// Endpoints that have not answered lately share half the workers, each taking half of what is left of it: 20 endpoints
	// that hang from their first call on leave more than half of the workers to the others. A first call is always made:
	// without it nothing would tell that an endpoint answers.
	unprovenShare = 2
	unprovenPart  = 2
	provenFor     = 3 * time.Second
	// recount: whether an endpoint is silent changes with time alone; it is looked at so often.
	recount = 50 * time.Millisecond

	// An endpoint whose last ten answers were all failures is failing: while others wait, its retries are let through a few
	// at a time, 64 a second where its cap is what it began with. A success ends that.
	failingStreak = 10
	failingShare  = 4
	// quietQueue: with no more jobs than this waiting for others, nobody is kept waiting.
	quietQueue = 64
)

// gate bounds the attempts in flight per event subscription on this node, so that an endpoint that hangs or is slow
// holds a few workers and not all of them. The bound adapts, see policy.Cap.
type gate struct {
	mu      sync.Mutex
	workers int
	waiting int // in all lanes
	lanes   map[int64]*lane

	silent    int // calls in flight to endpoints that are not proven, counted at countedAt
	countedAt time.Time
}

// lane is one event subscription's place in the gate.
type lane struct {
	cap      policy.Cap
	limit    int // maxConcurrentDeliveries, this node's share; 0 = none
	inFlight int
	waiters  []chan struct{} // closed when their turn comes, the longest waiting first
	answers  meter
	answered time.Time // last
	streak   int       // answers in a row that were failures
}

// proven endpoints have answered lately, whatever they answered.
func (l *lane) proven(now time.Time) bool { return now.Sub(l.answered) < provenFor }

// meter counts answers: in this second, and per second in the last one.
type meter struct {
	since time.Time
	count int
	rate  int
}

func (m *meter) add(now time.Time) {
	if passed := now.Sub(m.since); passed >= time.Second {
		m.rate = int(float64(m.count) / passed.Seconds())
		m.since, m.count = now, 0
	}
	m.count++
}

// perSecond is what the endpoint has shown that it can take, 0 when it has been silent for a while.
func (m *meter) perSecond(now time.Time) int {
	if now.Sub(m.since) > 3*time.Second {
		return 0
	}
	return max(m.rate, m.count)
}

func newGate(workers int) *gate { return &gate{workers: workers, lanes: map[int64]*lane{}} }

// enter takes a place in flight, waiting for one if few others do; false when there is none to be had now. limit is the event
// subscription's own, 0 for none. Whoever entered must leave.
func (g *gate) enter(ctx context.Context, subscription int64, limit int) bool {
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
	return !g.giveUp(subscription, turn)
}

// join enters at once, or returns a turn to wait for, or neither.
func (g *gate) join(subscription int64, limit int) (turn chan struct{}, entered bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	l, now := g.lane(subscription), time.Now()
	l.bound(limit, g.workers)
	switch {
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

func (g *gate) take(l *lane, now time.Time) {
	if !l.proven(now) {
		g.silent++
	}
	l.inFlight++
}

// bound follows a change of the event subscription's own limit.
func (l *lane) bound(limit, workers int) {
	if limit != l.limit {
		l.limit, l.cap = limit, policy.NewCap(limit, workers).At(l.cap.Value())
	}
}

// places is how many calls may be in flight: the cap, and no more than a fair part where the endpoint is not proven.
func (g *gate) places(l *lane, now time.Time) int {
	if l.proven(now) {
		return l.cap.Value()
	}
	if now.Sub(g.countedAt) > recount {
		g.countSilent(now)
	}
	return min(l.cap.Value(), max(1, (g.workers/unprovenShare-g.silent)/unprovenPart))
}

func (g *gate) countSilent(now time.Time) {
	g.silent, g.countedAt = 0, now
	for _, l := range g.lanes {
		if !l.proven(now) {
			g.silent += l.inFlight
		}
	}
}

func (g *gate) mayWait(l *lane) bool {
	if time.Since(l.answered) < gateWait {
		return g.waiting < max(g.workers/quickShare, 1)
	}
	return len(l.waiters) < waitersPerCall*l.cap.Value() && g.waiting < max(g.workers/silentShare, 1)
}

// giveUp stops waiting; false when the turn came at this very moment.
func (g *gate) giveUp(subscription int64, turn chan struct{}) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.lane(subscription)
	i := slices.Index(l.waiters, turn)
	if i < 0 {
		return false
	}
	l.waiters = slices.Delete(l.waiters, i, i+1)
	g.waiting--
	return true
}

// leave gives the place back to whoever waited longest.
func (g *gate) leave(subscription int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.lane(subscription)
	l.inFlight--
	g.admit(l, time.Now())
}

// learn adapts the cap to what a call met.
func (g *gate) learn(subscription int64, o policy.Outcome, r policy.Result) {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.lane(subscription)
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

// admit gives the free places of a lane to its waiters.
func (g *gate) admit(l *lane, now time.Time) {
	for len(l.waiters) > 0 && l.inFlight < g.places(l, now) {
		close(l.waiters[0])
		l.waiters = l.waiters[1:]
		g.waiting--
		g.take(l, now)
	}
}

// room is how many jobs of an event subscription are worth having in the queue: a few for each call it may have in flight, or
// twice as many as it answered in a second, whatever it said, so that waves grow as fast as the endpoint keeps up: one that refuses
// everything at once holds nobody up. others is how many jobs wait for other event subscriptions.
func (g *gate) room(subscription int64, others int) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	l, known := g.lanes[subscription]
	if !known {
		return min(store.DefaultRoom, max(wavesPerCall*g.workers/2, 1))
	}
	now, quiet := time.Now(), others <= quietQueue
	switch proven, failing := l.proven(now), l.streak >= failingStreak; {
	case failing && !quiet:
		return max(l.cap.Value()/failingShare, 1)
	case !proven && l.inFlight > 0:
		// Silent: what is more than its calls would find no place and go back on hold, four times a second (20 hanging endpoints
		// with a full room each cost the others half their throughput).
		return g.places(l, now) + 1
	case proven && !failing && quiet:
		return soloRoom
	}
	return min(max(wavesPerCall*l.cap.Value(), 2*l.answers.perSecond(now)), maxWave)
}

// knows reports whether an endpoint was called by this node before.
func (g *gate) knows(subscription int64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, known := g.lanes[subscription]
	return known
}

// failing lists the event subscriptions whose endpoints have failed many times in a row.
func (g *gate) failing() (subscriptions []int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for id, l := range g.lanes {
		if l.streak >= failingStreak {
			subscriptions = append(subscriptions, id)
		}
	}
	return subscriptions
}

// forget drops the lanes of event subscriptions that are not known any more: at some thousands that were failing when they were deleted, each
// promotion asked for all of them. Where a call is in flight or waits for its turn, the next time does it; one that comes after finds a new lane.
func (g *gate) forget(known func(subscription int64) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	maps.DeleteFunc(g.lanes, func(id int64, l *lane) bool { return l.inFlight == 0 && len(l.waiters) == 0 && !known(id) })
}

func (g *gate) lane(subscription int64) *lane {
	l, ok := g.lanes[subscription]
	if !ok {
		l = &lane{cap: policy.NewCap(0, g.workers)}
		g.lanes[subscription] = l
	}
	return l
}
