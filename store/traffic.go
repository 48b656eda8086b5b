package store

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"time"

	"postrider/policy"

	"github.com/jackc/pgx/v5"
)

const (
	// sampleInterval: in 250 ms the 15,000 deliveries per second that T3 can put on hold are fewer than 4,000, which is how much
	// a bad endpoint can get in front of the others before it is noticed.
	sampleInterval = 250 * time.Millisecond
	// A sample that takes long is taken less often: it may use a tenth of a connection's time.
	sampleShare = 10
	sampleLimit = 5 * time.Second
	// idleInterval: where nothing waited and this node has queued nothing since, only what other nodes publish can be missed, and they
	// count that themselves.
	idleInterval = time.Second
	// DefaultRoom is how many jobs of an event subscription may wait where nothing is known of its endpoint: four for each of
	// the 64 calls it starts with.
	DefaultRoom = 256
	// blindRoom is the same on a node that publishes and makes no attempts, and so never knows: it must not slow down a fast
	// endpoint, and the nodes that know put on hold what is too much.
	blindRoom = 2000
)

// Waiting is an event subscription that has deliveries on hold.
type Waiting struct {
	SubscriptionID int64
	// Hold is the event subscription's own; "" when it is open and its deliveries may go.
	Hold string
	// Held counts its deliveries and batches on hold, up to DefaultRoom.
	Held int
}

// HoldState is an event subscription's own hold: see HoldStatus.
type HoldState struct {
	Reason                      string
	TimeToLiveStopped, Resuming bool
}

// RestState is a probation that holds deliveries.
type RestState struct {
	Key []byte
	Met policy.Result // what started the hold
	// ProbeDue: its time has come and no probe is under way.
	ProbeDue bool
}

// Traffic is what waits, as of one moment. It is never changed.
type Traffic struct {
	// Queued counts the jobs of each event subscription that are ready or running, and of one that takes batches the
	// deliveries that wait for the next batch, and the members of batches whose job is ready or running.
	Queued map[int64]int
	// Holds are the event subscriptions' own holds, other than probation.
	Holds   map[int64]HoldState
	Rests   map[string]RestState
	Waiting []Waiting
	// QueuedInAll is the sum of Queued.
	QueuedInAll int
}

// traffic keeps the latest sample and counts what this node has queued since.
type traffic struct {
	store    *Store
	sampling sync.Mutex

	mu      sync.Mutex
	latest  *Traffic
	crowded map[int64]bool // more are on hold than the next release takes: new ones wait behind them
	// Queued by this node, less what it has finished, since the latest sample began, and since the one before: what was
	// committed while a sample was taken may be in it or not.
	since, before map[int64]int
	// stirred is told of the first delivery that is queued after a sample that found nothing.
	stirred chan struct{}
	// room is the engine's, nil where there is none.
	room func(subscription int64, others int) int
}

func newTraffic(s *Store) *traffic {
	return &traffic{store: s, latest: &Traffic{}, since: map[int64]int{}, stirred: make(chan struct{}, 1)}
}

// SetRoom tells how many jobs of an event subscription may wait, from what its endpoint was seen to do, and how many wait for
// the others. Call it before Run.
func (s *Store) SetRoom(room func(subscription int64, others int) int) { s.traffic.room = room }

// Traffic is the latest sample, about 250 ms old.
func (s *Store) Traffic() *Traffic {
	s.traffic.mu.Lock()
	defer s.traffic.mu.Unlock()
	return s.traffic.latest
}

// SampleTraffic takes a sample now.
func (s *Store) SampleTraffic(ctx context.Context) (*Traffic, error) {
	if err := s.traffic.sample(ctx); err != nil {
		return nil, err
	}
	return s.Traffic(), nil
}

// Room is how many more jobs of an event subscription are worth queueing now; 0 or less when none are.
func (s *Store) Room(subscription int64) int {
	s.traffic.mu.Lock()
	defer s.traffic.mu.Unlock()
	return s.traffic.roomFor(subscription)
}

// roomFor counts an event subscription that takes batches by events: a call takes as many as a batch may have.
func (t *traffic) roomFor(subscription int64) int {
	limit := blindRoom
	if t.room != nil {
		limit = t.room(subscription, t.latest.QueuedInAll-t.latest.Queued[subscription])
	}
	if sub, ok := t.store.Catalogue().Subscription(subscription); ok && sub.Batching() {
		limit = min(limit*sub.Batch().MaxEvents, maxOpenEvents)
	}
	return limit - t.latest.Queued[subscription] - t.since[subscription] - t.before[subscription]
}

// maxOpenEvents bounds what waits for the next batch of an event subscription.
const maxOpenEvents = 20_000

// admissions is how many deliveries of each event subscription a publish may give jobs to.
type admissions map[int64]*admission

type admission struct{ room, taken int }

// take asks for one delivery.
func (a admissions) take(subscription int64) bool {
	lane := a[subscription]
	if lane.taken >= lane.room {
		return false
	}
	lane.taken++
	return true
}

// admit looks up the room of each event subscription that deliveries are made for. Where a crowd is on hold, new deliveries queue
// up behind it: else those that wait would wait for ever.
func (t *traffic) admit(wanted iter.Seq[*Subscription]) admissions {
	admitted := admissions{}
	t.mu.Lock()
	defer t.mu.Unlock()
	for sub := range wanted {
		if _, known := admitted[sub.ID]; known {
			continue
		}
		lane := &admission{}
		if !t.crowded[sub.ID] {
			lane.room = t.roomFor(sub.ID)
		}
		admitted[sub.ID] = lane
	}
	return admitted
}

// wantedBy yields an event subscription for each delivery that a group owes.
func wantedBy(group []*publishRequest) iter.Seq[*Subscription] {
	return func(yield func(*Subscription) bool) {
		for _, req := range group {
			for _, wanting := range req.wanting {
				for _, sub := range wanting {
					if !yield(sub) {
						return
					}
				}
			}
		}
	}
}

// add counts what was committed.
func (t *traffic) add(admitted admissions) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.since) == 0 {
		select {
		case t.stirred <- struct{}{}:
		default:
		}
	}
	for subscription, lane := range admitted {
		if lane.taken > 0 {
			t.since[subscription] += lane.taken
		}
	}
}

// addOne counts what was queued for one event subscription; less than 0 is what left the queue.
func (t *traffic) addOne(subscription int64, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.since[subscription] += n
}

// released counts a wave. One that found less than it may have taken leaves no crowd.
func (t *traffic) released(subscription int64, n, limit int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.since[subscription] += n
	if n < limit {
		delete(t.crowded, subscription)
	}
}

// finished counts the jobs that are recorded and gone.
func (t *traffic) finished(results ...*recordRequest) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, req := range results {
		t.since[req.SubscriptionID] -= req.deliveries()
	}
}

func (t *traffic) run(ctx context.Context) {
	pause := time.Duration(0)
	for t.rest(ctx, pause) {
		began := time.Now()
		_ = t.sample(ctx) // an outage: the next one is taken soon, and admission goes by the last
		pause = min(max(sampleInterval, sampleShare*time.Since(began)), sampleLimit)
	}
}

// rest waits for the next sample; false when ctx ends.
func (t *traffic) rest(ctx context.Context, pause time.Duration) bool {
	if pause > 0 && t.idle() {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(idleInterval - sampleInterval):
		case <-t.stirred:
		}
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(pause):
		return true
	}
}

// idle says that nothing waits, as far as this node knows.
func (t *traffic) idle() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-t.stirred: // of before
	default:
	}
	return t.latest.QueuedInAll == 0 && len(t.latest.Waiting) == 0 && len(t.since) == 0
}

// The distinct event subscriptions are found by jumping along the index of held deliveries: one probe each, however many
// deliveries they hold.
const (
	queuedStatement = `
WITH queued AS MATERIALIZED (
    SELECT id, kind, args FROM postrider_internal.river_job WHERE state = 'available' AND queue = 'deliveries'
     UNION ALL
    SELECT id, kind, args FROM postrider_internal.river_job WHERE state = 'running' AND queue = 'deliveries'
)
SELECT (args ->> 's')::bigint AS subscription_id, count(*) AS jobs FROM queued WHERE kind = 'deliver' GROUP BY 1
UNION ALL
SELECT b.subscription_id, sum(b.members)::bigint FROM queued q JOIN postrider_internal.batches b ON b.job_id = q.id WHERE q.kind = 'batch' GROUP BY 1
UNION ALL
SELECT subscription_id, count(*) FROM postrider_internal.deliveries WHERE open GROUP BY 1`

	holdsStatement = `SELECT subscription_id, hold, stop_time_to_live, resumed_at IS NOT NULL FROM postrider_internal.event_subscription_states WHERE hold IS NOT NULL`

	restsStatement = `
SELECT rest_key, coalesce(condition, 'other') AS condition,
       until <= now() AND NOT EXISTS (SELECT FROM postrider_internal.river_job j WHERE j.id = probe_job_id AND j.finalized_at IS NULL) AS probe_due
  FROM postrider_internal.probations WHERE since IS NOT NULL`

	waitingStatement = `
WITH RECURSIVE jump(subscription_id) AS (
    (SELECT subscription_id FROM postrider_internal.deliveries WHERE hold IS NOT NULL ORDER BY subscription_id LIMIT 1)
    UNION ALL
    SELECT (SELECT d.subscription_id FROM postrider_internal.deliveries d WHERE d.hold IS NOT NULL AND d.subscription_id > jump.subscription_id ORDER BY d.subscription_id LIMIT 1)
      FROM jump WHERE jump.subscription_id IS NOT NULL
), batches AS (
    SELECT subscription_id, count(*) AS held FROM postrider_internal.batches WHERE hold IS NOT NULL GROUP BY 1
)
SELECT subscription_id, (SELECT count(*) FROM (SELECT FROM postrider_internal.deliveries d WHERE d.subscription_id = j.subscription_id AND d.hold IS NOT NULL LIMIT $1) few)
       + coalesce(batches.held, 0) AS held
  FROM (SELECT subscription_id FROM jump WHERE subscription_id IS NOT NULL) j FULL JOIN batches USING (subscription_id)`
)

// sample asks the database what waits.
func (t *traffic) sample(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, sampleLimit)
	defer cancel()
	t.sampling.Lock()
	defer t.sampling.Unlock()
	t.begin()
	fresh := &Traffic{Queued: map[int64]int{}, Holds: map[int64]HoldState{}, Rests: map[string]RestState{}}
	batch := &pgx.Batch{}
	var id int64
	var n int
	var hold HoldState
	var rest RestState
	batch.Queue(queuedStatement).Query(each([]any{&id, &n}, func() {
		fresh.Queued[id] += n
		fresh.QueuedInAll += n
	}))
	batch.Queue(holdsStatement).Query(each([]any{&id, &hold.Reason, &hold.TimeToLiveStopped, &hold.Resuming}, func() { fresh.Holds[id] = hold }))
	var condition string
	batch.Queue(restsStatement).Query(each([]any{&rest.Key, &condition, &rest.ProbeDue}, func() {
		rest.Met = policy.ParseResult(condition)
		fresh.Rests[string(rest.Key)] = rest
		rest.Key = nil
	}))
	batch.Queue(waitingStatement, DefaultRoom).Query(each([]any{&id, &n}, func() { fresh.Waiting = append(fresh.Waiting, Waiting{SubscriptionID: id, Held: n}) }))
	if err := t.store.db.SendBatch(ctx, batch).Close(); err != nil {
		t.keep()
		return fmt.Errorf("look at what waits: %w", err)
	}
	t.end(fresh)
	return nil
}

func each(columns []any, take func()) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, columns, func() error { take(); return nil })
		return err
	}
}

func (t *traffic) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.before, t.since = t.since, map[int64]int{}
}

// keep goes on counting from the sample before one that failed: a database that is too busy to tell what waits must not look as
// if nothing did.
func (t *traffic) keep() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for subscription, n := range t.before {
		t.since[subscription] += n
	}
	t.before = nil
}

func (t *traffic) end(fresh *Traffic) {
	catalogue := t.store.Catalogue()
	crowded := map[int64]bool{}
	for i := range fresh.Waiting {
		w := &fresh.Waiting[i]
		w.Hold = fresh.holdOf(catalogue, w.SubscriptionID)
		if w.Hold == "" && w.Held >= DefaultRoom {
			crowded[w.SubscriptionID] = true
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.latest, t.crowded, t.before = fresh, crowded, nil
}

// holdOf is the hold that an event subscription is told to be on.
func (t *Traffic) holdOf(c *Catalogue, subscription int64) string {
	if hold, ok := t.Holds[subscription]; ok {
		return hold.Reason
	}
	if sub, ok := c.Subscription(subscription); ok {
		if _, resting := t.Rests[string(c.restKey(sub))]; resting {
			return HoldProbation
		}
	}
	return ""
}

// ProbesDue are the keys of the probations whose time has come, as far as deliveries wait for them. Of the others there may be
// many: of endpoints that nothing is published for, and of event subscriptions that were deleted.
func (c *Catalogue) ProbesDue(t *Traffic) (keys [][]byte) {
	met := map[string]bool{}
	for _, w := range t.Waiting {
		if w.Hold != HoldProbation {
			continue
		}
		if sub, ok := c.Subscription(w.SubscriptionID); ok {
			if rest := c.RestOf(t, sub); rest.ProbeDue && !met[string(rest.Key)] {
				met[string(rest.Key)], keys = true, append(keys, rest.Key)
			}
		}
	}
	return keys
}

// RestOf is the probation that holds an event subscription's deliveries; the zero RestState when there is none.
func (c *Catalogue) RestOf(t *Traffic, sub *Subscription) RestState {
	return t.Rests[string(c.restKey(sub))]
}
