package jobs

import (
	"context"
	"errors"

	"github.com/riverqueue/river/riverdriver"

	"postrider/jobs/queue"
)

const (
	// insertTopic is the only channel that nodes listen on. Any database login can notify any channel: on River's control
	// channel it could pause queues and cancel jobs.
	insertTopic = "river_insert"
	// publishedPayload reports publishes by SQL. It names no queue of River's.
	publishedPayload = `{"queue":"published"}`
)

// wakeableQueues are the queues that notifications may wake.
var wakeableQueues = []string{
	queue.DeliverQueue, queue.RouteQueue, queue.HandshakeQueue, queue.ExportQueue, queue.OperationQueue,
}

func wakePayload(queue string) string { return `{"queue":"` + queue + `"}` }

// listener passes only wake-ups to River: those of this process and of the database, one for each queue at a time.
type listener struct {
	riverdriver.Listener
	wake *queue.Wake

	reading chan error // gets the reader's error at its end; nil = no reader runs
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

// WaitForNotification implements riverdriver.Listener. A goroutine reads the database's notifications until ctx ends:
// restarting the read for each local wake-up would cost more than a notification.
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
			l.forward(notification)
		}
	}()
}

// forward requests a fetch of the queue that a notification names, if it is a wake-up.
func (l *listener) forward(n *riverdriver.Notification) {
	if n.Topic != insertTopic {
		return
	}
	if n.Payload == publishedPayload {
		l.wake.RequestCollect()
		return
	}
	for _, queue := range wakeableQueues {
		if n.Payload == wakePayload(queue) {
			l.wake.Request(queue)
		}
	}
}

// disconnected is a listener that never connects: behind PgBouncer no session is kept.
type disconnected struct{ riverdriver.Listener }

// Close implements riverdriver.Listener.
func (disconnected) Close(context.Context) error { return nil }

// Connect implements riverdriver.Listener.
func (disconnected) Connect(context.Context) error { return nil }

// Listen implements riverdriver.Listener.
func (disconnected) Listen(context.Context, string) error { return nil }

// Ping implements riverdriver.Listener.
func (disconnected) Ping(context.Context) error { return nil }

// Unlisten implements riverdriver.Listener.
func (disconnected) Unlisten(context.Context, string) error { return nil }

// WaitForNotification implements riverdriver.Listener.
func (disconnected) WaitForNotification(ctx context.Context) (*riverdriver.Notification, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}
