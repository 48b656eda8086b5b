package jobs

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/riverqueue/river/riverdriver"

	"postrider/store"
)

// insertTopic is the only channel that nodes listen on. Any database login can notify any channel: on River's control channel
// it could pause queues and cancel jobs.
const insertTopic = "river_insert"

// publishedPayload reports publishes by SQL. It names no queue of River's.
const publishedPayload = `{"queue":"published"}`

// wakeable are the payloads that nodes obey, with the queue that each of them wakes.
var wakeable = map[string]string{
	wakePayload(store.DeliverQueue):   store.DeliverQueue,
	wakePayload(store.RouteQueue):     store.RouteQueue,
	wakePayload(store.HandshakeQueue): store.HandshakeQueue,
	wakePayload(store.ExportQueue):    store.ExportQueue,
	wakePayload(store.OperationQueue): store.OperationQueue,
}

func wakePayload(queue string) string { return `{"queue":"` + queue + `"}` }

// waker wakes this process's own fetchers without the database. A notification of PostgreSQL's takes a transaction and a way there
// and back, half a millisecond; it is for the other nodes.
type waker struct {
	published chan struct{}
	hands     *hands

	woken  chan struct{} // queues is not empty
	mu     sync.Mutex
	queues []string // to wake, each once, however often it was requested
}

func newWaker(h *hands) *waker {
	return &waker{published: make(chan struct{}, 1), hands: h, woken: make(chan struct{}, 1)}
}

// wake never waits: a fetcher that was woken and has not looked yet sees whatever is committed by then.
func (w *waker) wake(routes bool) {
	w.wakeQueue(store.DeliverQueue)
	if routes {
		w.wakeQueue(store.RouteQueue)
	}
}

func (w *waker) wakeQueue(queue string) {
	if queue == store.DeliverQueue {
		w.hands.stir()
	}
	w.request(queue)
}

// give wakes for what was handed over alone.
func (w *waker) give(taken int, handed []store.Handed) {
	if w.hands.give(taken, handed) {
		w.request(store.DeliverQueue)
	}
}

func (w *waker) request(queue string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Contains(w.queues, queue) {
		w.queues = append(w.queues, queue)
	}
	tell(w.woken)
}

// next is the next queue to wake, or "".
func (w *waker) next() (queue string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queues) > 0 {
		queue = w.queues[0]
		w.queues = slices.Delete(w.queues, 0, 1)
	}
	if len(w.queues) > 0 {
		tell(w.woken)
	}
	return queue
}

// heard obeys a notification of the database's, if it is a wake-up.
func (w *waker) heard(n *riverdriver.Notification) {
	if n.Topic != insertTopic {
		return
	}
	if n.Payload == publishedPayload {
		tell(w.published)
	} else if queue, known := wakeable[n.Payload]; known {
		w.wakeQueue(queue)
	}
}

func tell(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// listener gives River wake-ups alone: those of this process and of the database, however many, one for each queue at a time.
type listener struct {
	riverdriver.Listener
	waker *waker

	reading chan error // the end of what reads notifications, while that runs
	stop    context.CancelFunc
}

// Listen implements riverdriver.Listener.
func (l *listener) Listen(ctx context.Context, topic string) error {
	if topic != insertTopic {
		return nil
	}
	return l.Listener.Listen(ctx, topic)
}

// Unlisten implements riverdriver.Listener.
func (l *listener) Unlisten(ctx context.Context, topic string) error {
	if topic != insertTopic {
		return nil
	}
	return l.Listener.Unlisten(ctx, topic)
}

// WaitForNotification implements riverdriver.Listener. Notifications of the database are read beside it, until ctx ends: to stop
// and start again for each local wake-up would cost more than a notification.
func (l *listener) WaitForNotification(ctx context.Context) (*riverdriver.Notification, error) {
	if l.reading == nil {
		l.read()
	}
	for {
		select {
		case <-l.waker.woken:
			if queue := l.waker.next(); queue != "" {
				return &riverdriver.Notification{Topic: insertTopic, Payload: wakePayload(queue)}, nil
			}
		case err := <-l.reading:
			l.reading = nil
			return nil, err
		case <-ctx.Done():
			l.stop()
			err := <-l.reading
			l.reading = nil
			return nil, errors.Join(ctx.Err(), err)
		}
	}
}

func (l *listener) read() {
	ctx, stop := context.WithCancel(context.Background())
	reading := make(chan error, 1)
	l.reading, l.stop = reading, stop
	go func() {
		defer stop()
		for {
			notification, err := l.Listener.WaitForNotification(ctx)
			if err != nil {
				reading <- err
				return
			}
			l.waker.heard(notification)
		}
	}()
}

// deaf is a listener that hears nothing from the database: behind PgBouncer no session stays ours to listen in.
type deaf struct{ schema string }

// Close implements riverdriver.Listener.
func (deaf) Close(context.Context) error { return nil }

// Connect implements riverdriver.Listener.
func (deaf) Connect(context.Context) error { return nil }

// Listen implements riverdriver.Listener.
func (deaf) Listen(context.Context, string) error { return nil }

// Ping implements riverdriver.Listener.
func (deaf) Ping(context.Context) error { return nil }

// Schema implements riverdriver.Listener.
func (d deaf) Schema() string { return d.schema }

// SetAfterConnectExec implements riverdriver.Listener.
func (deaf) SetAfterConnectExec(string) {}

// Unlisten implements riverdriver.Listener.
func (deaf) Unlisten(context.Context, string) error { return nil }

// WaitForNotification implements riverdriver.Listener.
func (deaf) WaitForNotification(ctx context.Context) (*riverdriver.Notification, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}
