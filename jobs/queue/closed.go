package queue

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/internal/catalog"
	"postrider/internal/postgres"
)

// EndpointState says whether an endpoint may be called.
type EndpointState int

// The states of endpoints. Of one that is half open, the wait has passed: one request tries first.
const (
	EndpointOpen EndpointState = iota
	EndpointClosed
	EndpointHalfOpen
)

// ClosedEndpoints are the endpoints that have requested to wait, by Retry-After or 429: what the nodes have stored, and
// what this node has seen since. Times are of the process's monotonic clock: what is stored and read is how long a wait
// remains.
type ClosedEndpoints struct {
	db    *postgres.DB
	cache *catalog.Cache

	ignores bool        // see IgnoreResponses
	some    atomic.Bool // false while none is closed: most attempts then need no lock
	mu      sync.Mutex
	known   map[string]closing
	users   endpointUsers
	changed chan struct{}
	opened  chan struct{}
}

// closing is until when an endpoint is closed; zero = it was opened here.
type closing struct {
	until     time.Time
	unstored  bool
	changedAt time.Time // by this node
}

// NewClosedEndpoints returns those of a node that knows none yet.
func NewClosedEndpoints(db *postgres.DB, cache *catalog.Cache) *ClosedEndpoints {
	return &ClosedEndpoints{
		db: db, cache: cache, known: map[string]closing{}, changed: make(chan struct{}, 1), opened: make(chan struct{}, 1),
	}
}

// Changed receives when there is something to Store.
func (c *ClosedEndpoints) Changed() <-chan struct{} { return c.changed }

// Opened receives when an endpoint may be called again.
func (c *ClosedEndpoints) Opened() <-chan struct{} { return c.opened }

func closedKey(sub *catalog.Subscription) string {
	return "endpoint:" + hex.EncodeToString(sub.EndpointHash)
}

// State returns the state of an event subscription's endpoint. Under behavior documented it is always open.
func (c *ClosedEndpoints) State(subscription int64) EndpointState {
	if !c.some.Load() {
		return EndpointOpen
	}
	snapshot := c.cache.Snapshot()
	sub, known := snapshot.Subscription(subscription)
	if rules, _ := snapshot.Rules(subscription); !known || !rules.BacksOff {
		return EndpointOpen
	}
	return c.state(closedKey(sub), time.Now())
}

// endpointUsers has the event subscriptions of each endpoint: Subscriptions is called four times a second, and the
// catalog rarely changes.
type endpointUsers struct {
	of    *catalog.Snapshot
	byKey map[string][]int64
}

// Subscriptions lists the event subscriptions whose endpoints are closed or half open.
func (c *ClosedEndpoints) Subscriptions() (ids []int64) {
	if !c.some.Load() {
		return nil
	}
	snapshot := c.cache.Snapshot()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.users.of != snapshot {
		c.users = endpointUsers{snapshot, map[string][]int64{}}
		for sub := range snapshot.Subscriptions() {
			if rules, _ := snapshot.Rules(sub.ID); rules.BacksOff {
				key := closedKey(sub)
				c.users.byKey[key] = append(c.users.byKey[key], sub.ID)
			}
		}
	}
	for key, closed := range c.known {
		if !closed.until.IsZero() {
			ids = append(ids, c.users.byKey[key]...)
		}
	}
	return ids
}

func (c *ClosedEndpoints) state(key string, now time.Time) EndpointState {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.known[key]
	if known.until.IsZero() {
		return EndpointOpen
	}
	if known.until.After(now) {
		return EndpointClosed
	}
	return EndpointHalfOpen
}

// Close closes an event subscription's endpoint for so long, or leaves it closed for longer.
func (c *ClosedEndpoints) Close(sub *catalog.Subscription, wait time.Duration) {
	if c.ignores {
		return
	}
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	key := closedKey(sub)
	if until := now.Add(wait); until.After(c.known[key].until) {
		c.set(key, closing{until: until, unstored: true, changedAt: now})
		Signal(c.changed)
	}
}

// set notes a change by this node, and notifies Opened when the time of the closing has passed.
func (c *ClosedEndpoints) set(key string, changed closing) {
	c.known[key] = changed
	c.some.Store(true)
	time.AfterFunc(time.Until(changed.until), func() { Signal(c.opened) })
}

const storeClosed = `
INSERT INTO postrider_internal.delivery_rates AS r (key, closed_until)
SELECT key, clock_timestamp() + wait FROM unnest($1::text[], $2::interval[]) AS c(key, wait) ORDER BY key
    ON CONFLICT (key) DO UPDATE SET closed_until = greatest(r.closed_until, excluded.closed_until)`

// Store stores which endpoints this node has closed.
func (c *ClosedEndpoints) Store(ctx context.Context) error {
	var keys []string
	var waits []time.Duration
	began := time.Now()
	c.mu.Lock()
	for key, known := range c.known {
		if known.unstored {
			keys, waits = append(keys, key), append(waits, max(known.until.Sub(began), 0))
		}
	}
	c.mu.Unlock()
	if len(keys) == 0 {
		return nil
	}
	if _, err := c.db.Exec(ctx, storeClosed, keys, waits); err != nil {
		return fmt.Errorf("store that endpoints are closed: %w", err)
	}
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range keys {
		if known := c.known[key]; !known.changedAt.After(began) {
			known.unstored, known.changedAt = false, now
			c.known[key] = known
		}
	}
	return nil
}

// Forget opens all endpoints on this node.
func (c *ClosedEndpoints) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.known)
	c.some.Store(false)
}

// keep replaces what is known by what the nodes have stored: how long each endpoint remains closed. What this node has
// changed meanwhile stays.
func (c *ClosedEndpoints) keep(stored map[string]time.Duration, began time.Time) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	known := make(map[string]closing, len(stored))
	for key, wait := range stored {
		known[key] = closing{until: now.Add(wait)}
	}
	for key, own := range c.known {
		if own.unstored || own.changedAt.After(began) {
			known[key] = own
		}
	}
	c.known = known
	c.some.Store(len(known) > 0)
}

// trialMargin is what a trial may take besides its ack timeout.
const trialMargin = 5 * time.Second

// Trial is the one request to an endpoint whose closing has passed. Until it ends, or for as long as it may take, the
// endpoint remains closed for all others, on every node.
type Trial struct {
	key   string
	lease time.Time // closed_until, which no other change sets to the same time
}

const (
	startTrial = `
UPDATE postrider_internal.delivery_rates SET closed_until = clock_timestamp() + $2::interval
 WHERE key = $1 AND closed_until <= clock_timestamp() RETURNING closed_until`
	endTrial   = `DELETE FROM postrider_internal.delivery_rates WHERE key = $1 AND closed_until = $2`
	closeAgain = `
UPDATE postrider_internal.delivery_rates SET closed_until = clock_timestamp() + $3::interval
 WHERE key = $1 AND closed_until = $2`
)

// Enter reports whether a request to an event subscription's endpoint may be sent now. It may be the trial of an
// endpoint that is half open: call EndTrial then.
func (c *ClosedEndpoints) Enter(ctx context.Context, subscription int64) (open bool, trial *Trial, err error) {
	switch c.State(subscription) {
	case EndpointOpen:
		return true, nil, nil
	case EndpointClosed:
		return false, nil, nil
	case EndpointHalfOpen: // below
	}
	snapshot := c.cache.Snapshot()
	sub, known := snapshot.Subscription(subscription)
	rules, _ := snapshot.Rules(subscription)
	if !known || rules.Policy == nil {
		return true, nil, nil
	}
	trial, err = c.try(ctx, closedKey(sub), time.Duration(rules.Policy.AckTimeout)+trialMargin)
	return trial != nil, trial, err
}

// try makes a request the trial of its endpoint; nil if another one is, or the endpoint was closed again.
func (c *ClosedEndpoints) try(ctx context.Context, key string, most time.Duration) (*Trial, error) {
	t := &Trial{key: key}
	err := c.db.QueryRow(ctx, startTrial, t.key, most).Scan(&t.lease)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil //nolint:nilnil // no trial is no error
	}
	if err != nil {
		return nil, fmt.Errorf("%w: try a closed endpoint: %w", postgres.ErrUnavailable, err)
	}
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.set(t.key, closing{until: now.Add(most), changedAt: now})
	return t, nil
}

// EndTrial opens the endpoint of a trial, or closes it again for so long; 0 if the request was not sent.
func (c *ClosedEndpoints) EndTrial(ctx context.Context, t *Trial, opens bool, wait time.Duration) error {
	statement, args := endTrial, []any{t.key, t.lease}
	if !opens {
		statement, args = closeAgain, append(args, wait)
	}
	tag, err := c.db.Exec(ctx, statement, args...)
	if err != nil {
		return fmt.Errorf("end the trial of a closed endpoint: %w", err)
	}
	ended := closing{changedAt: time.Now()}
	if !opens {
		ended.until = ended.changedAt.Add(wait)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// A request from before the trial may have closed the endpoint for longer: stored, or not yet.
	if tag.RowsAffected() > 0 && !c.known[t.key].unstored {
		c.set(t.key, ended)
	}
	return nil
}
