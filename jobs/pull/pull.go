// Package pull is pull delivery: consumers receive events, and acknowledge, release or reject them, or renew their
// locks. A lock is a delivery attempt whose River job is due when the lock ends. The SQL functions that this package
// calls are also those of consumers in SQL.
package pull

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/internal/postgres"
	"postrider/jobs/queue"
)

const (
	// maxReceiveBytes bounds the response to a receive of more than one event.
	maxReceiveBytes = 8 << 20
	// AroundEvent bounds the bytes of a response besides its events: of all of it, and for each event.
	AroundEvent = 128
	// maxWaiting bounds the receivers that wait on this node. Over HTTP/1.1 each has a connection, of 10,000 by default.
	maxWaiting = 5000
	// maxWaitingOfTopic bounds those of one topic: its consumers cannot take the places of all others.
	maxWaitingOfTopic = maxWaiting / 2
	// searchInterval finds deliveries that became visible by their time, or whose notification was lost.
	searchInterval = time.Second
	// pollInterval is the same on a node that gets no notifications.
	pollInterval = 250 * time.Millisecond
	// searchPause bounds the searches that notifications request.
	searchPause    = 5 * time.Millisecond
	searchTimeout  = 5 * time.Second
	receiveTimeout = 15 * time.Second
	// expireStep bounds one statement that ends locks or deliveries.
	expireStep = 1000
)

// Errors of Receive: too many receivers wait on this node, in all or for the topic; the delivery mode is no longer
// Queue. postgres.ErrNotFound: the event subscription was deleted.
var (
	ErrPush                    = errors.New("the event subscription has delivery mode Push")
	ErrTooManyReceivers        = errors.New("too many receivers wait on this node")
	ErrTooManyReceiversOfTopic = fmt.Errorf("%d receivers of this topic wait on this node, the most for one topic; "+
		"retry later, or use fewer consumers", maxWaitingOfTopic)
)

// Settlement is what a consumer does with the events that it has received.
type Settlement string

// The settlements. Returned ends a lock whose events no consumer got: it counts as if it had never been.
const (
	Acknowledge Settlement = "acknowledged"
	Release     Settlement = "released"
	Reject      Settlement = "rejected"
	returned    Settlement = "returned"
)

// Delivery is one event that a consumer has locked.
type Delivery struct {
	Token        LockToken
	Count        int       // of the receives of this event, 1 = first
	LockedUntil  time.Time // by the database's clock
	Event        []byte    // a CloudEvent, as it was accepted
	EventID      string
	Subscription int64
}

// LockToken is what a consumer names a lock by. It has a new text at each receive.
type LockToken struct {
	Delivery int64
	Lock     uuid.UUID
}

// String is the token in the form of the API.
func (t LockToken) String() string {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 24), uint64(t.Delivery))
	return base64.StdEncoding.EncodeToString(append(b, t.Lock[:]...))
}

// ParseLockToken reads a token; false if the text is none.
func ParseLockToken(text string) (t LockToken, ok bool) {
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(b) != 24 {
		return t, false
	}
	t.Delivery = int64(binary.BigEndian.Uint64(b))
	copy(t.Lock[:], b[8:])
	return t, t.Delivery > 0
}

// Receiver serves the consumers of a node. Its methods may be called from any goroutine. Receive needs Run.
type Receiver struct {
	db       *postgres.DB
	cache    *catalog.Cache
	notifier *queue.Notifier
	arrivals *queue.Arrivals
	node     string
	poll     time.Duration
	stop     sync.Once
	stopping chan struct{}

	mu        sync.Mutex
	waiting   int
	waitingOf map[int64]int // by topic
}

// NewReceiver makes a Receiver. listens: the node gets notifications of deliveries from other nodes.
func NewReceiver(
	db *postgres.DB, cache *catalog.Cache, notifier *queue.Notifier, arrivals *queue.Arrivals, node string, listens bool,
) *Receiver {
	r := &Receiver{
		db: db, cache: cache, notifier: notifier, arrivals: arrivals, node: node, poll: pollInterval,
		stopping: make(chan struct{}), waitingOf: map[int64]int{},
	}
	if listens {
		r.poll = searchInterval
	}
	return r
}

// Waiting is how many receivers wait on this node.
func (r *Receiver) Waiting() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.waiting
}

// enter takes a waiting place for a receiver of a topic, which it leaves again.
func (r *Receiver) enter(topic int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waitingOf[topic] == maxWaitingOfTopic {
		return ErrTooManyReceiversOfTopic
	}
	if r.waiting == maxWaiting {
		return fmt.Errorf("%w: %w", postgres.ErrUnavailable, ErrTooManyReceivers)
	}
	r.waiting++
	r.waitingOf[topic]++
	return nil
}

func (r *Receiver) leave(topic int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting--
	if r.waitingOf[topic]--; r.waitingOf[topic] == 0 {
		delete(r.waitingOf, topic)
	}
}

// Receive locks up to most available events for a consumer, at most 8 MiB, the first that became visible first. If
// there are none it waits: until one arrives, wait has passed, ctx ends or this node stops. Then it returns none and no
// error. Its wait also ends, with an error, when the event subscription is deleted or its delivery mode changed. It
// holds no database connection while it waits. consumer is who receives, for the view postrider.locks.
func (r *Receiver) Receive(
	ctx context.Context, sub *catalog.Subscription, most int, wait time.Duration, consumer string,
) (received []Delivery, err error) {
	if err := r.enter(sub.TopicID); err != nil {
		return nil, err
	}
	defer r.leave(sub.TopicID)
	over := time.NewTimer(wait)
	defer over.Stop()
	place := r.arrivals.Wait(sub.ID)
	// The next receiver begins with the first event of this one, and not only when these locks are committed: otherwise
	// the receives of a backlog would use one CPU.
	found := sync.OnceFunc(func() { r.arrivals.Leave(place, true) })
	defer r.arrivals.Leave(place, false) // if it found none
	for {
		snapshot := r.cache.Snapshot()
		current, err := open(snapshot, sub.ID)
		if err != nil {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, nil
		case <-over.C:
			return nil, nil
		case <-r.stopping:
			return nil, nil
		case <-snapshot.Replaced():
			continue
		case <-place.Woken():
		}
		// Not by ctx: a statement that is cut may have been committed.
		received, err = r.lock(context.WithoutCancel(ctx), current, most, consumer, found)
		if len(received) > 0 && ctx.Err() != nil {
			return nil, r.Return(sub, received)
		}
		if len(received) > 0 || err != nil {
			return received, err
		}
	}
}

// open finds an event subscription, from which consumers receive.
func open(snapshot *catalog.Snapshot, subscription int64) (*catalog.Subscription, error) {
	current, exists := snapshot.Subscription(subscription)
	if !exists {
		return nil, fmt.Errorf("event subscription %d: %w", subscription, postgres.ErrNotFound)
	}
	if !current.Pulled() {
		return nil, ErrPush
	}
	return current, nil
}

// lock commits the locks before it returns. It calls found when PostgreSQL sends the first event.
func (r *Receiver) lock(
	ctx context.Context, sub *catalog.Subscription, most int, consumer string, found func(),
) (received []Delivery, err error) {
	ctx, cancel := context.WithTimeout(ctx, receiveTimeout)
	defer cancel()
	const lock = "SELECT * FROM postrider_internal.receive_deliveries($1, $2, $3, $4, $5)"
	rows, err := r.db.Query(ctx, lock, sub.ID, most, maxReceiveBytes, sub.LockDuration(), consumer)
	if err != nil {
		return nil, postgres.Outage("receive events", err)
	}
	d := Delivery{Subscription: sub.ID}
	var e event.Event
	var at *time.Time
	_, err = pgx.ForEachRow(rows, []any{
		&d.Token.Delivery, &d.Token.Lock, &d.Count, &d.LockedUntil, &e.Schema, &e.ID, &e.Body, &e.Type, &e.Subject,
		&e.Source, &e.DataVersion, &at,
	}, func() error {
		found()
		d.EventID, e.Time = e.ID, postgres.TimeOrNone(at)
		if d.Event, err = event.AppendDelivery(nil, &e, sub.Topic, event.CloudEvents); err != nil {
			return err
		}
		received = append(received, d)
		return nil
	})
	if err != nil {
		return nil, postgres.Outage("receive events", err)
	}
	if n := fitting(received); n < len(received) {
		_ = r.Return(sub, received[n:]) // else their locks expire
		received = received[:n]
	}
	return received, nil
}

// fitting is how many of the first events fit into one response: they may be longer than those that were published,
// whose bytes the statement bounds.
func fitting(received []Delivery) int {
	size := AroundEvent
	for i := range received {
		if size += len(received[i].Event) + AroundEvent; size > maxReceiveBytes && i > 0 {
			return i
		}
	}
	return len(received)
}

// Return ends the locks of events that did not reach their consumer. Nothing of the receive counts.
func (r *Receiver) Return(sub *catalog.Subscription, received []Delivery) error {
	ctx, cancel := context.WithTimeout(context.Background(), receiveTimeout)
	defer cancel()
	tokens := postgres.Column(received, func(d Delivery) LockToken { return d.Token })
	_, err := r.Settle(ctx, sub, returned, tokens, 0)
	return err
}

// Settle ends the locks of tokens of one event subscription. delay is how long released events stay invisible. It
// returns whether each token's lock ended; false: it had expired, was settled before, or is of another event
// subscription.
func (r *Receiver) Settle(
	ctx context.Context, sub *catalog.Subscription, how Settlement, tokens []LockToken, delay time.Duration,
) ([]bool, error) {
	const settle = "SELECT postrider_internal.settle_locks($1, $2, $3, $4, $5, $6, $7)"
	ok, err := r.tokens(ctx, settle, sub, tokens, string(how), delay, how != returned, r.node)
	if err == nil && how != Acknowledge && delay == 0 {
		r.notifier.RequestReceives(sub.ID)
	}
	return ok, err
}

// Renew gives the locks of tokens their whole duration again. It returns whether each token's lock was renewed; false:
// as for Settle, or it was received more than an hour ago.
func (r *Receiver) Renew(ctx context.Context, sub *catalog.Subscription, tokens []LockToken) ([]bool, error) {
	const renew = "SELECT postrider_internal.renew_locks($1, $2, $3, $4, true)"
	return r.tokens(ctx, renew, sub, tokens, sub.LockDuration())
}

// tokens calls a function that returns the positions of the tokens that it found.
func (r *Receiver) tokens(
	ctx context.Context, statement string, sub *catalog.Subscription, tokens []LockToken, args ...any,
) ([]bool, error) {
	args = slices.Concat([]any{
		sub.ID, postgres.Column(tokens, func(t LockToken) int64 { return t.Delivery }),
		postgres.Column(tokens, func(t LockToken) uuid.UUID { return t.Lock }),
	}, args)
	var positions []int64
	if err := postgres.RetryTransient(func() error {
		return r.db.QueryRow(ctx, statement, args...).Scan(&positions)
	}); err != nil {
		return nil, postgres.Outage("settle events", err)
	}
	found := make([]bool, len(tokens))
	for _, position := range positions {
		found[position-1] = true
	}
	return found, nil
}

// Stop lets all waiting receivers return without events, and later ones as soon as nothing is available.
func (r *Receiver) Stop() { r.stop.Do(func() { close(r.stopping) }) }

// Run wakes receivers for what arrives on other nodes or by time, until ctx ends.
func (r *Receiver) Run(ctx context.Context) {
	defer r.Stop()
	tick := time.NewTicker(r.poll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-r.arrivals.Elsewhere():
		}
		r.search(ctx)
		queue.Pause(ctx, searchPause)
	}
}

// search wakes a receiver of each event subscription that has visible deliveries. The next search repeats one that
// fails.
func (r *Receiver) search(ctx context.Context) {
	const visible = `
SELECT coalesce(array_agg(s), '{}') FROM unnest($1::bigint[]) AS s
 WHERE EXISTS (SELECT FROM postrider_internal.deliveries d
                WHERE d.subscription_id = s AND d.available_at <= now())`
	waiting := r.arrivals.Waiting()
	if len(waiting) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, searchTimeout)
	defer cancel()
	var found []int64
	if err := r.db.QueryRow(ctx, visible, waiting).Scan(&found); err == nil {
		r.arrivals.Arrived(found...)
	}
}

// endedStatement checks whether expire_locks would find a lock. A call takes 1.5 ms, which an idle node would spend
// four times a second. ORDER BY makes PostgreSQL use the index.
const endedStatement = `
SELECT count(*) > 0
  FROM (SELECT FROM postrider_internal.river_job
         WHERE state = 'scheduled' AND queue = 'locks' AND priority = 1 AND scheduled_at <= now()
         ORDER BY scheduled_at, id LIMIT 1) ended`

// ExpireLocks ends the locks whose time has ended. Every node calls it again and again.
func (r *Receiver) ExpireLocks(ctx context.Context) error {
	var ended bool
	if err := r.db.QueryRow(ctx, endedStatement).Scan(&ended); err != nil {
		return fmt.Errorf("check which locks have ended: %w", err)
	}
	if !ended {
		return nil
	}
	return r.inSteps(ctx, "SELECT postrider_internal.expire_locks($1, $2)", expireStep, r.node)
}

// Tend ends available deliveries whose time to live has passed, and puts those on hold whose event subscription is no
// longer a queue. Every node calls it again and again.
func (r *Receiver) Tend(ctx context.Context) error {
	return r.inSteps(ctx, "SELECT postrider_internal.tend_available($1)", expireStep)
}

// inSteps repeats a statement until it changes less than a step.
func (r *Receiver) inSteps(ctx context.Context, statement string, args ...any) error {
	for {
		var changed int64
		if err := r.db.QueryRow(ctx, statement, args...).Scan(&changed); err != nil {
			return fmt.Errorf("end what has expired: %w", err)
		}
		if changed > 0 {
			r.arrivals.ArrivedElsewhere()
			r.notifier.RequestReceives()
		}
		if changed < expireStep {
			return nil
		}
	}
}
