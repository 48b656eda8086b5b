package delivery

import (
	"maps"
	"slices"
	"sync"
	"time"

	"postrider/catalog"
	"postrider/jobs/queue"
)

// cutters keep this node's pumps of one event subscription from cutting at once: one that goes on where the last one ended
// is six times as fast as many that skip each other's rows (61,000 events/s at 100 per batch, 10,000).
type cutters struct {
	mu  sync.Mutex
	all map[int64]*cutter
	// slow: a look back that takes longer is not made for each batch.
	slow time.Duration
}

// cutter is one event subscription's. What is not said to be otherwise belongs to the pump whose turn it is.
type cutter struct {
	turn sync.Mutex
	// cursor is the last delivery that was cut. What lies before it is not looked at while enough lies behind: an index
	// scan would pass over the entries of all that was cut since the last vacuum.
	cursor int64
	// slow looks back are left to a pump that is on its way; until then nobody else looks.
	slow, lookedBack time.Duration
	covered          time.Time
	// heldCursor is the same for what was on hold, which is looked at from its beginning once a second.
	heldCursor heldPlace
	heldLooked time.Time
	openLooked time.Time

	mu      sync.Mutex
	waiting []*pump // guarded by mu
}

// heldPlace is a place in the order in which held deliveries go.
type heldPlace struct {
	owedSince time.Time
	id        int64
}

const (
	// lookAnew is how often what lies before a cursor is looked at, whatever lies behind. Without the cursor each pump passed over the index entries of all that was cut since the last vacuum (13 of 100
	// microseconds for each event).
	lookAnew = time.Second
	// slowLook is more than 100,000 entries that no vacuum could remove yet, as while somebody's transaction stays open.
	slowLook = 20 * time.Millisecond
	// lookLater is when a pump looks back in the others' stead. They trust in it for a bit less: it cannot have run before.
	lookLater, lookTrust = 250 * time.Millisecond, 200 * time.Millisecond
)

func (c *cutters) of(subscription int64) *cutter {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = map[int64]*cutter{}
	}
	if c.all[subscription] == nil {
		c.all[subscription] = &cutter{slow: c.slow}
	}
	return c.all[subscription]
}

// retain drops the cutters of event subscriptions that are not there any more.
func (c *cutters) retain(catalogue *catalog.Catalogue) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.all, func(id int64, one *cutter) bool {
		_, known := catalogue.Subscription(id)
		return !known && one.idle()
	})
}

// idle: nobody has the turn or waits for it. A pump that was given the cutter a moment ago may still come. It then keeps it, and the lock that
// each takes in the database keeps it and a newer one apart, as it does the pumps of two nodes.
func (c *cutter) idle() bool {
	if !c.turn.TryLock() {
		return false
	}
	defer c.turn.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waiting) == 0
}

// pump is a job that wants a batch to be cut.
type pump struct {
	token queue.JobToken
	// others wait for the same and see nothing that this one does not: it takes their jobs along. Each publish brings a pump, and
	// 90 of them waiting for their turn kept the places of the batches at their endpoint (600 events/s instead of 11,000).
	others []*pump
	// taken along by another one that has cut; guarded by turn.
	taken bool
}

// enter waits for the turn of a job. nil: another pump took the job along, and it is gone. Else the pump must leave.
func (c *cutter) enter(token queue.JobToken) *pump {
	p := &pump{token: token}
	c.mu.Lock()
	c.waiting = append(c.waiting, p)
	c.mu.Unlock()
	c.turn.Lock()
	if p.taken {
		c.turn.Unlock()
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p.others = slices.DeleteFunc(c.waiting, func(other *pump) bool { return other == p })
	c.waiting = nil
	return p
}

// leave ends a pump's turn. Where it has committed, the others' jobs are gone; else they go on by themselves.
func (c *cutter) leave(p *pump, committed bool) {
	for _, other := range p.others {
		other.taken = committed
	}
	if !committed {
		c.mu.Lock()
		c.waiting = append(c.waiting, p.others...)
		c.mu.Unlock()
	}
	c.turn.Unlock()
}

// trust leaves the next looks back to the pump that was made for them when this one began.
func (c *cutter) trust(began time.Time) {
	c.turn.Lock()
	defer c.turn.Unlock()
	c.covered = began.Add(lookTrust)
}

// jobs are those that end where the pump finds nothing to cut.
func (p *pump) jobs() []queue.JobToken { return append(p.taking(), p.token) }

// taking are the jobs that end where it does.
func (p *pump) taking() []queue.JobToken {
	tokens := make([]queue.JobToken, 0, len(p.others)+1)
	for _, other := range p.others {
		tokens = append(tokens, other.token)
	}
	return tokens
}

// Forget drops what this process remembers of event subscriptions that were deleted.
func (l *Loader) Forget() { l.cutters.retain(l.Cache.Catalogue()) }
