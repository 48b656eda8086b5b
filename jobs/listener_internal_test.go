package jobs

import (
	"context"
	"testing"

	"github.com/riverqueue/river/riverdriver"
	"github.com/stretchr/testify/require"

	"postrider/jobs/queue"
)

// flood is a database that sends notifications until none is left.
type flood struct {
	riverdriver.Listener
	topics        []string
	notifications []*riverdriver.Notification
	read          chan struct{} // closed when all were read
}

func (f *flood) Listen(_ context.Context, topic string) error {
	f.topics = append(f.topics, topic)
	return nil
}

func (f *flood) Unlisten(context.Context, string) error { return nil }

func (f *flood) WaitForNotification(ctx context.Context) (*riverdriver.Notification, error) {
	if len(f.notifications) == 0 {
		close(f.read)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	n := f.notifications[0]
	f.notifications = f.notifications[1:]
	return n, nil
}

func newFlood(n int, topic string, payloads ...string) *flood {
	f := &flood{read: make(chan struct{})}
	for range n {
		for _, payload := range payloads {
			f.notifications = append(f.notifications, &riverdriver.Notification{Topic: topic, Payload: payload})
		}
	}
	return f
}

// received lets a listener read all notifications, and returns what River receives of them.
func received(t *testing.T, f *flood) (payloads []string) {
	t.Helper()
	w := queue.NewWake()
	l := &listener{Listener: f, wake: w}
	l.read()
	<-f.read
	for len(w.Requested()) > 0 {
		n, err := l.WaitForNotification(t.Context())
		require.NoError(t, err)
		require.Equal(t, insertTopic, n.Topic)
		payloads = append(payloads, n.Payload)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	_, err := l.WaitForNotification(ended)
	require.ErrorIs(t, err, context.Canceled)
	return payloads
}

func TestNodesListenOnlyToWakeUps(t *testing.T) {
	t.Parallel()
	f := &flood{}
	l := &listener{Listener: f}
	for _, topic := range []string{"river_control", "river_leadership", insertTopic} {
		require.NoError(t, l.Listen(t.Context(), topic))
		require.NoError(t, l.Unlisten(t.Context(), topic))
	}
	require.Equal(t, []string{insertTopic}, f.topics)
}

func TestFloodOfWakeUpsIsOneForEachQueue(t *testing.T) {
	t.Parallel()
	payloads := received(t,
		newFlood(10_000, insertTopic, wakePayload(queue.DeliverQueue), wakePayload(queue.RouteQueue)))
	require.ElementsMatch(t, []string{wakePayload(queue.DeliverQueue), wakePayload(queue.RouteQueue)}, payloads)
}

func TestOtherNotificationsAreIgnored(t *testing.T) {
	t.Parallel()
	for topic, payload := range map[string]string{
		"river_control": `{"action":"pause","queue":"*"}`, "river_leadership": `{"action":"request_resign"}`,
		insertTopic: `{"queue":"deliveries","n":1}`, "": "\x01",
	} {
		require.Empty(t, received(t, newFlood(100, topic, payload)), payload)
	}
}
