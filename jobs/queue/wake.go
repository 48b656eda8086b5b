package queue

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"postrider/internal/postgres"
)

// Wake wakes this process's own fetchers without the database. PostgreSQL's notifications, for other nodes, take half a
// millisecond.
type Wake struct {
	requested chan struct{} // queues is not empty
	// fetchRequested: deliveries were requested since the last query.
	fetchRequested atomic.Bool

	mu     sync.Mutex
	queues []string // that were requested, each once
}

// NewWake makes a Wake with no requests.
func NewWake() *Wake {
	return &Wake{requested: make(chan struct{}, 1)}
}

// Request wakes the fetcher of a queue. It never waits: a fetcher that has been woken finds what is committed before
// its query.
func (w *Wake) Request(queue string) {
	if queue == DeliverQueue {
		w.fetchRequested.Store(true)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Contains(w.queues, queue) {
		w.queues = append(w.queues, queue)
	}
	Signal(w.requested)
}

// Requested receives while there are queues to wake.
func (w *Wake) Requested() <-chan struct{} { return w.requested }

// Next is the next queue to wake, or "".
func (w *Wake) Next() (queue string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queues) > 0 {
		queue = w.queues[0]
		w.queues = slices.Delete(w.queues, 0, 1)
	}
	if len(w.queues) > 0 {
		Signal(w.requested)
	}
	return queue
}

// Signal fills a channel of capacity 1, if it is not full already.
func Signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Pause waits for d, at most until ctx ends.
func Pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// Notifier wakes River's fetchers on all nodes after commits, at most once a millisecond. It notifies in a separate
// transaction that writes no data: PostgreSQL holds a server-wide lock over the commit of a transaction that notifies.
// One NOTIFY per publish reduces the rate from 10k/s to 3k/s.
type Notifier struct {
	db    *postgres.DB
	log   *slog.Logger
	nodes *Nodes
	local *Wake // this process's own fetchers; nil if it has none
	// arrivals are this process's own receivers.
	arrivals *Arrivals
	other    *Wake // queues of which other nodes are to be notified
	// mute: no node listens. PgBouncer in transaction mode offers no session for LISTEN; the fetchers poll.
	mute bool
}

const (
	notifyInterval = time.Millisecond
	// notifyTimeout closes a connection that does not respond and stays open.
	notifyTimeout = 5 * time.Second
	// River listens on "<schema>.river_insert" for {"queue": …}.
	notifyStatement = `SELECT pg_notify('postrider_internal.river_insert', '{"queue":"' || queue || '"}')
		FROM unnest($1::text[]) AS q(queue)`
)

// NewNotifier makes a node's notifier; wake is nil on a node that makes no attempts.
func NewNotifier(db *postgres.DB, nodes *Nodes, wake *Wake, arrivals *Arrivals, log *slog.Logger) *Notifier {
	return &Notifier{
		db: db, log: log, nodes: nodes, local: wake, arrivals: arrivals, other: NewWake(), mute: db.ThroughPgBouncer,
	}
}

// RequestFetch wakes the fetchers of a queue on all nodes.
func (n *Notifier) RequestFetch(queue string) {
	if n.local != nil {
		n.local.Request(queue)
	}
	if !n.mute && (n.local == nil || !n.nodes.alone()) {
		n.other.Request(queue)
	}
}

// RequestDeliveries wakes the fetchers of deliveries on all nodes.
func (n *Notifier) RequestDeliveries() { n.RequestFetch(DeliverQueue) }

// RequestReceives wakes the receivers of these event subscriptions on all nodes.
func (n *Notifier) RequestReceives(subscriptions ...int64) {
	n.arrivals.Arrived(subscriptions...)
	if !n.mute && (n.local == nil || !n.nodes.alone()) {
		n.other.Request(LockQueue)
	}
}

// notify sends the requests since the last call.
func (n *Notifier) notify(ctx context.Context) error {
	var queues []string
	for queue := n.other.Next(); queue != ""; queue = n.other.Next() {
		queues = append(queues, queue)
	}
	if len(queues) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, notifyTimeout)
	defer cancel()
	_, err := n.db.Exec(ctx, notifyStatement, queues)
	return err
}

// Run notifies the nodes after commits until ctx ends.
func (n *Notifier) Run(ctx context.Context) {
	pause := time.NewTicker(notifyInterval)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.other.Requested():
		}
		// A lost notification delays a fetch by one poll interval (100 ms).
		if err := n.notify(ctx); err != nil && ctx.Err() == nil {
			n.log.Debug("the fetchers were not woken; they poll", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
	}
}
