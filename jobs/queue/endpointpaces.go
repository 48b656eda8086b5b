package queue

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"postrider/catalog"
	"postrider/policy"
	"postrider/postgres"
)

// EndpointPaces has what was learned about the rates that endpoints accept: what the nodes have stored, and what this
// node has seen since.
type EndpointPaces struct {
	db    *postgres.DB
	nodes *Nodes

	ignores bool // see IgnoreResponses
	// some is false while nothing is known or seen: most attempts then need no lock.
	some atomic.Bool
	// ahead is the database's clock minus the process's, in nanoseconds.
	ahead atomic.Int64
	mu    sync.Mutex
	known map[string]knownPace
	seen  map[string]*seenResponses
	// learning are the responses that are being stored.
	learning map[string]*seenResponses
	next     map[string]time.Time // of the next request, see Traffic.Space
}

// seenResponses are those of an endpoint since it throttled for the first time, or since the last change of its pace.
type seenResponses struct {
	policy.Responses
	since time.Time
}

// knownPace is a pace, and when this node has changed it.
type knownPace struct {
	policy.Pace
	learnedAt time.Time
}

// limits reports whether they show a limit.
func (s *seenResponses) limits() bool { return s.Throttled > 0 || !s.Until.IsZero() }

// NewEndpointPaces returns those of a node that knows nothing yet.
func NewEndpointPaces(db *postgres.DB, nodes *Nodes) *EndpointPaces {
	return &EndpointPaces{
		db: db, nodes: nodes, known: map[string]knownPace{}, seen: map[string]*seenResponses{},
		learning: map[string]*seenResponses{}, next: map[string]time.Time{},
	}
}

// endpointKey begins the keys of endpoints' paces.
const endpointKey = "endpoint:"

func paceKey(sub *catalog.Subscription) string {
	return endpointKey + hex.EncodeToString(sub.EndpointHash)
}

// Observe notes a response of an event subscription's endpoint to a request that began at started. until is the time
// that it requested to wait for. Throttled requests that began before the pace was lowered say nothing about the pace.
func (e *EndpointPaces) Observe(sub *catalog.Subscription, throttled bool, started, until time.Time) {
	if e.ignores || !throttled && until.IsZero() && !e.some.Load() {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	key := paceKey(sub)
	pace, known := e.known[key]
	s := e.seen[key]
	if throttled && known && until.IsZero() && started.Before(pace.LoweredAt) {
		return
	}
	if s == nil {
		if !known && !throttled && until.IsZero() {
			return
		}
		s = &seenResponses{since: time.Now()}
		e.seen[key] = s
		e.some.Store(true)
	}
	if throttled {
		s.Throttled++
	} else {
		s.Accepted++
	}
	if until.After(s.Until) {
		s.Until = until
	}
}

// Of returns the pace of an event subscription's endpoint; false if there is none. The pace is zero from the first
// throttled response until it is known.
func (e *EndpointPaces) Of(sub *catalog.Subscription) (policy.Pace, bool) {
	if !e.some.Load() {
		return policy.Pace{}, false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	key := paceKey(sub)
	p, known := e.known[key]
	return p.Pace, known || e.unstored(key, (*seenResponses).limits)
}

// unstored reports whether responses of an endpoint that are not stored yet have a property.
func (e *EndpointPaces) unstored(key string, have func(*seenResponses) bool) bool {
	seen, learning := e.seen[key], e.learning[key]
	return seen != nil && have(seen) || learning != nil && have(learning)
}

// closed reports whether the endpoint accepts no request yet. What this node has seen counts before it is stored.
func (e *EndpointPaces) closed(key string, now time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	now = now.Add(time.Duration(e.ahead.Load()))
	return e.known[key].ClosedUntil.After(now) ||
		e.unstored(key, func(s *seenResponses) bool { return s.Until.After(now) })
}

// keep replaces what is known by what the nodes have stored. What this node has learned meanwhile stays.
func (e *EndpointPaces) keep(stored map[string]policy.Pace, began time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	known := make(map[string]knownPace, len(stored))
	for key, pace := range stored {
		known[key] = knownPace{Pace: pace}
		e.forgetFirst(key)
	}
	for key, own := range e.known {
		if own.learnedAt.After(began) {
			known[key] = own
		}
	}
	e.known = known
	maps.DeleteFunc(e.next, func(key string, next time.Time) bool { return next.Before(began) })
	e.some.Store(len(e.known)+len(e.seen)+len(e.learning) > 0)
}

// forgetFirst forgets the responses to requests that began before an endpoint's first pace was known: they would lower
// it again.
func (e *EndpointPaces) forgetFirst(key string) {
	if _, known := e.known[key]; !known {
		delete(e.seen, key)
	}
}

// paceWindow is how long responses are counted for a change of a known pace; the first one is decided sooner.
const paceWindow = time.Second

// Learn changes the paces of endpoints by the responses that this node has seen.
func (e *EndpointPaces) Learn(ctx context.Context) error {
	var failed error
	for key, seen := range e.take(time.Now()) {
		pace, err := e.learn(ctx, key, seen)
		failed = errors.Join(failed, err)
		e.mu.Lock()
		if err == nil && pace.Knows() {
			e.forgetFirst(key)
			e.known[key] = knownPace{pace, time.Now()}
		}
		delete(e.learning, key)
		e.mu.Unlock()
	}
	return failed
}

// take returns the windows that are complete, and begins new ones. It forgets endpoints that do not throttle.
func (e *EndpointPaces) take(now time.Time) map[string]policy.Responses {
	taken := map[string]policy.Responses{}
	e.mu.Lock()
	defer e.mu.Unlock()
	for key, s := range e.seen {
		_, known := e.known[key]
		s.Window = now.Sub(s.since)
		if s.Window < paceWindow && (!s.limits() || known && s.Until.IsZero()) {
			continue
		}
		if delete(e.seen, key); s.limits() || known && s.Accepted > 0 {
			taken[key], e.learning[key] = s.Responses, s
		}
	}
	return taken
}

const (
	readPace = `
SELECT coalesce(per_second, 0), coalesce(ramp_to, 0), closed_until, changed_at, lowered_at, clock_timestamp()
  FROM postrider_internal.delivery_rates WHERE key = $1 FOR UPDATE`
	writePace = `
UPDATE postrider_internal.delivery_rates SET per_second = $2, ramp_to = nullif($3::float8, 0), closed_until = $4,
       changed_at = $5, lowered_at = $6 WHERE key = $1`
	createRate = `INSERT INTO postrider_internal.delivery_rates (key) VALUES ($1) ON CONFLICT DO NOTHING`
)

// learn changes one pace. All nodes change it in turns.
func (e *EndpointPaces) learn(ctx context.Context, key string, seen policy.Responses) (p policy.Pace, err error) {
	err = pgx.BeginFunc(ctx, e.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, createRate, key); err != nil {
			return err
		}
		var closed, changed, lowered pgtype.Timestamptz
		var now time.Time
		row := tx.QueryRow(ctx, readPace, key)
		if err := row.Scan(&p.PerSecond, &p.Before, &closed, &changed, &lowered, &now); err != nil {
			return err
		}
		e.ahead.Store(int64(time.Until(now)))
		if p.ClosedUntil, p.ChangedAt, p.LoweredAt = closed.Time, changed.Time,
			lowered.Time; now.Sub(p.ChangedAt) > policy.PaceKept {
			p = policy.Pace{}
		}
		after := p.After(seen, e.nodes.WorkerNodes(), now)
		if after == p {
			return nil
		}
		p = after
		_, err := tx.Exec(ctx, writePace, key, p.PerSecond, p.Before, postgres.NullTime(p.ClosedUntil), p.ChangedAt,
			postgres.NullTime(p.LoweredAt))
		return err
	})
	if err != nil {
		return p, fmt.Errorf("learn the pace of an endpoint: %w", err)
	}
	return p, nil
}

const (
	// spaced is the part of the time between two requests within a limit that a node keeps between its own. At 1, every
	// delay would last.
	spaced = 0.8
	// mostSpaced bounds that time, because a limit may be raised, and the wait of a worker.
	mostSpaced = 500 * time.Millisecond
)

// space takes so many of each limit's next times on this node, and returns the wait for them. It takes none, and
// returns false, if that is longer than a worker may wait.
func (e *EndpointPaces) space(limits []catalog.Rate, times int, now time.Time) (wait time.Duration, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	next := make([]time.Time, len(limits))
	for i, limit := range limits {
		next[i] = now.Add(-time.Duration(limit.Burst-1) * min(limit.Step, mostSpaced))
		if known := e.next[limit.Key]; known.After(next[i]) {
			next[i] = known
		}
		if wait = max(wait, next[i].Sub(now)); wait >= mostSpaced {
			return 0, false
		}
	}
	for i, limit := range limits {
		e.next[limit.Key] = next[i].Add(min(time.Duration(spaced*float64(times)*float64(limit.Step)), mostSpaced))
	}
	return wait, true
}

// Space returns how long a request that has its times waits, by the limits of its event subscription. It is false if
// that is longer than a worker may wait: the work returns to hold, and takes later times. Jobs that a slow database,
// busy workers or a dead node have made late are due at once: without the wait, they would exceed the limit together.
func (t *Traffic) Space(subscription int64, times int) (wait time.Duration, ok bool) {
	limits, _ := t.Limits(subscription)
	for i := range limits {
		if strings.HasPrefix(limits[i].Key, endpointKey) {
			limits[i].Burst = 1 // an endpoint's pace is learned without bursts
		}
	}
	return t.paces.space(limits, times, time.Now())
}

// Closed reports whether the endpoint of an event subscription has requested to wait until a later time.
func (t *Traffic) Closed(subscription int64) bool {
	sub, paced := t.paced(subscription)
	return paced && t.paces.closed(paceKey(sub), time.Now())
}

// paced finds an event subscription that obeys its endpoint's pace. It is false while no endpoint has a pace.
func (t *Traffic) paced(subscription int64) (sub *catalog.Subscription, paced bool) {
	if !t.paces.some.Load() {
		return nil, false
	}
	snapshot := t.cache.Snapshot()
	sub, known := snapshot.Subscription(subscription)
	rules, _ := snapshot.Rules(subscription)
	return sub, known && rules.Paced
}

// Limits are the rate limits of an event subscription's deliveries: its own one and the pace of its endpoint. limited
// is true without limits while the pace is being learned.
func (t *Traffic) Limits(subscription int64) (limits []catalog.Rate, limited bool) {
	own, limited := t.cache.Snapshot().Rate(subscription)
	if limited {
		limits = append(limits, own)
	}
	sub, paced := t.paced(subscription)
	if !paced {
		return limits, limited
	}
	pace, slowed := t.paces.Of(sub)
	switch {
	case !slowed:
		return limits, limited
	case !pace.Knows():
		return nil, true
	}
	requests := pace.PerSecond
	if own.PerEvent { // times are counted in events then
		requests *= float64(sub.Batch().MaxEvents)
	}
	return append(limits, catalog.Rate{
		Key: paceKey(sub), Step: max(time.Duration(float64(time.Second)/requests), time.Microsecond),
		Burst: max(int(requests*policy.RateTick.Seconds()), 1), PerEvent: own.PerEvent,
	}), true
}

// Limited reports whether the deliveries of an event subscription have a rate limit.
func (t *Traffic) Limited(subscription int64) bool {
	_, limited := t.Limits(subscription)
	return limited
}

// AllLimited lists the event subscriptions that have a rate limit.
func (t *Traffic) AllLimited() (subscriptions []int64) {
	snapshot := t.cache.Snapshot()
	if !t.paces.some.Load() {
		for id := range snapshot.Rates() {
			subscriptions = append(subscriptions, id)
		}
		return subscriptions
	}
	for sub := range snapshot.Subscriptions() {
		if t.Limited(sub.ID) {
			subscriptions = append(subscriptions, sub.ID)
		}
	}
	return subscriptions
}
