package jobs

import (
	"context"
	"slices"
	"sync"
	"time"

	"postrider/policy"
)

const (
	// gateWait is how long a job waits for its turn at an endpoint. A healthy endpoint makes room within milliseconds; a
	// delivery that waits longer is put on hold, and its worker serves the other event subscriptions.
	gateWait = time.Second
	// At an endpoint that answered within the last second, or is called for the first time, any may wait, up to half the
	// workers in all. At one that is silent few may: two per call it may have in flight, an eighth of the workers in all.
	waitersPerCall = 2
	quickShare     = 2
	silentShare    = 8
)

// gate bounds the attempts in flight per event subscription on this node, so that an endpoint that hangs or is slow
// holds a few workers and not all of them. The bound adapts, see policy.Cap.
type gate struct {
	mu      sync.Mutex
	workers int
	waiting int // in all lanes
	lanes   map[int64]*lane
}

// lane is one event subscription's place in the gate.
type lane struct {
	cap      policy.Cap
	inFlight int
	waiters  []chan struct{} // closed when their turn comes, the longest waiting first
	answers  meter
	sign     time.Time // of life: the last answer, or the beginning of the calls now in flight
}

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

// enter takes a place in flight, waiting for one if few others do; false when there is none to be had now. Whoever
// entered must leave.
func (g *gate) enter(ctx context.Context, subscription int64) bool {
	turn, entered := g.join(subscription)
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
func (g *gate) join(subscription int64) (turn chan struct{}, entered bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.lane(subscription)
	switch {
	case l.inFlight < l.cap.Value():
		if l.inFlight == 0 {
			l.sign = time.Now()
		}
		l.inFlight++
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

func (g *gate) mayWait(l *lane) bool {
	if time.Since(l.sign) < gateWait {
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
	g.admit(l)
}

// learn adapts the cap to what a call met.
func (g *gate) learn(subscription int64, o policy.Outcome, r policy.Result) {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.lane(subscription)
	l.cap = l.cap.After(o, r)
	if r.Status != 0 {
		l.sign = time.Now()
		l.answers.add(l.sign)
	}
	g.admit(l)
}

// admit gives the free places of a lane to its waiters.
func (g *gate) admit(l *lane) {
	for l.inFlight < l.cap.Value() && len(l.waiters) > 0 {
		close(l.waiters[0])
		l.waiters = l.waiters[1:]
		g.waiting--
		l.inFlight++
	}
}

// room is how many jobs of an event subscription are worth having in the queue until the next wave: a few for each call
// it may have in flight, or twice what it answered in a second, so that waves grow as fast as the endpoint keeps up.
func (g *gate) room(subscription int64) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	l, ok := g.lanes[subscription]
	if !ok {
		return min(wavesPerCall*policy.NewCap(0, g.workers).Value(), maxWave)
	}
	return min(max(wavesPerCall*l.cap.Value(), 2*l.answers.perSecond(time.Now())), maxWave)
}

func (g *gate) lane(subscription int64) *lane {
	l, ok := g.lanes[subscription]
	if !ok {
		l = &lane{cap: policy.NewCap(0, g.workers)}
		g.lanes[subscription] = l
	}
	return l
}
