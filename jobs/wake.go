package jobs

import (
	"context"

	"github.com/riverqueue/river/riverdriver"

	"postrider/store"
)

// What River's notifications of new jobs say.
const (
	insertTopic    = "river_insert"
	deliverPayload = `{"queue":"deliveries"}`
	routePayload   = `{"queue":"routes"}`
	// publishedPayload is no queue of River's: something was published by SQL.
	publishedPayload = `{"queue":"published"}`
)

// waker wakes this process's own fetchers without the database. A notification of PostgreSQL's takes a transaction and a way there
// and back, half a millisecond; it is for the other nodes.
type waker struct {
	deliveries, routes, published chan struct{}
	hands                         *hands
}

func newWaker(h *hands) *waker {
	return &waker{make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{}, 1), h}
}

// wake never waits: a fetcher that was woken and has not looked yet sees whatever is committed by then.
func (w *waker) wake(routes bool) {
	w.hands.stir()
	tell(w.deliveries)
	if routes {
		tell(w.routes)
	}
}

// give wakes for what was handed over alone.
func (w *waker) give(taken int, handed []store.Handed) {
	if w.hands.give(taken, handed) {
		tell(w.deliveries)
	}
}

func tell(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// listener is River's, woken by this process as well.
type listener struct {
	riverdriver.Listener
	waker *waker

	waiting chan heard // the answer of the database's listener, while it is asked
	stop    context.CancelFunc
}

type heard struct {
	notification *riverdriver.Notification
	err          error
}

// WaitForNotification implements riverdriver.Listener. What the process wakes leaves the question to the database as it is: to take it
// back and ask again would cost more than a notification.
func (l *listener) WaitForNotification(ctx context.Context) (*riverdriver.Notification, error) {
	if l.waiting == nil {
		l.ask()
	}
	select {
	case <-l.waker.deliveries:
		return &riverdriver.Notification{Topic: insertTopic, Payload: deliverPayload}, nil
	case <-l.waker.routes:
		return &riverdriver.Notification{Topic: insertTopic, Payload: routePayload}, nil
	case h := <-l.waiting:
		l.waiting = nil
		l.waker.hands.stir()
		if h.err == nil && h.notification.Payload == publishedPayload {
			tell(l.waker.published)
		}
		return h.notification, h.err
	case <-ctx.Done():
		l.stop()
		h := <-l.waiting
		l.waiting = nil
		if h.err == nil {
			return h.notification, nil
		}
		return nil, ctx.Err()
	}
}

func (l *listener) ask() {
	ctx, stop := context.WithCancel(context.Background())
	waiting := make(chan heard, 1)
	l.waiting, l.stop = waiting, stop
	go func() {
		defer stop()
		notification, err := l.Listener.WaitForNotification(ctx)
		waiting <- heard{notification, err}
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
