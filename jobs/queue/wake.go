package queue

import (
	"slices"
	"sync"
	"sync/atomic"
)

// Wake wakes this process's own fetchers without the database. A notification of PostgreSQL takes a transaction and a
// round trip, half a millisecond; it is for the other nodes.
type Wake struct {
	collect   chan struct{}
	requested chan struct{} // queues is not empty
	// fetchRequested: the delivery queue was requested for jobs in the database, and not only for local ones.
	fetchRequested atomic.Bool

	mu     sync.Mutex
	queues []string // to wake, each once, however often it was requested
}

// NewWake makes a Wake with no requests.
func NewWake() *Wake {
	return &Wake{collect: make(chan struct{}, 1), requested: make(chan struct{}, 1)}
}

// Request wakes the fetcher of a queue. It never waits: a fetcher that was woken and has not queried the database yet
// finds what is committed by then.
func (w *Wake) Request(queue string) {
	if queue == DeliverQueue {
		w.fetchRequested.Store(true)
	}
	w.request(queue)
}

// requestLocal wakes the fetcher of deliveries for local jobs alone.
func (w *Wake) requestLocal() { w.request(DeliverQueue) }

func (w *Wake) request(queue string) {
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

// RequestCollect reports that something was published by SQL.
func (w *Wake) RequestCollect() { Signal(w.collect) }

// CollectRequested receives when something was published by SQL.
func (w *Wake) CollectRequested() <-chan struct{} { return w.collect }

// Signal fills a channel of capacity 1, if it is not full already.
func Signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
