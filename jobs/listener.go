package jobs

import (
	"context"
	"errors"

	"github.com/riverqueue/river/riverdriver"

	"postrider/jobs/queue"
)

// insertTopic is the only channel that nodes listen on. Any database login can notify any channel: on River's control
// channel it could pause queues and cancel jobs.
const insertTopic = "river_insert"

// publishedPayload reports publishes by SQL. It names no queue of River's.
const publishedPayload = `{"queue":"published"}`

// wakeable are the payloads that nodes obey, each with the queue that it wakes.
var wakeable = map[string]string{
	wakePayload(queue.DeliverQueue):   queue.DeliverQueue,
	wakePayload(queue.RouteQueue):     queue.RouteQueue,
	wakePayload(queue.HandshakeQueue): queue.HandshakeQueue,
	wakePayload(queue.ExportQueue):    queue.ExportQueue,
	wakePayload(queue.OperationQueue): queue.OperationQueue,
}

func wakePayload(queue string) string { return `{"queue":"` + queue + `"}` }

// listener gives River nothing but wake-ups: those of this process and of the database, one for each queue at a time,
// however many there are.
type listener struct {
	riverdriver.Listener
	wake *queue.Wake

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

// WaitForNotification implements riverdriver.Listener. Notifications of the database are read concurrently, until ctx
// ends: to stop and start reading for each local wake-up would cost more than a notification.
func (l *listener) WaitForNotification(ctx context.Context) (*riverdriver.Notification, error) {
	if l.reading == nil {
		l.read()
	}
	for {
		select {
		case <-l.wake.Requested():
			if queue := l.wake.Next(); queue != "" {
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
			l.obey(notification)
		}
	}()
}

// obey requests the queue that a notification of the database names, if it is a wake-up.
func (l *listener) obey(n *riverdriver.Notification) {
	if n.Topic != insertTopic {
		return
	}
	if n.Payload == publishedPayload {
		l.wake.RequestCollect()
	} else if queue, known := wakeable[n.Payload]; known {
		l.wake.Request(queue)
	}
}

// deaf is a listener that never connects: behind PgBouncer no session stays ours to listen in.
type deaf struct{ riverdriver.Listener }

// Close implements riverdriver.Listener.
func (deaf) Close(context.Context) error { return nil }

// Connect implements riverdriver.Listener.
func (deaf) Connect(context.Context) error { return nil }

// Listen implements riverdriver.Listener.
func (deaf) Listen(context.Context, string) error { return nil }

// Ping implements riverdriver.Listener.
func (deaf) Ping(context.Context) error { return nil }

// Unlisten implements riverdriver.Listener.
func (deaf) Unlisten(context.Context, string) error { return nil }

// WaitForNotification implements riverdriver.Listener.
func (deaf) WaitForNotification(ctx context.Context) (*riverdriver.Notification, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}
