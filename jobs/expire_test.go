package jobs_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/internal/node"
	"postrider/jobs/publish"

	"github.com/google/uuid"
)

// An expired event subscription is deleted with its pending deliveries by one of the nodes; no node adds another event
// to it from then on.
func TestExpirationOnTwoNodes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	e := newEndpoint(t, respondWith(http.StatusInternalServerError))
	subscribe := func(at time.Time) {
		expiring := func(s *catalog.SubscriptionSpec) { s.ExpirationTimeUTC = &at }
		b.subscribe(t, "retried", e.URL, expiring)
		b.subscribe(t, "batched", e.URL, func(s *catalog.SubscriptionSpec) { expiring(s); s.MaxEventsPerBatch = new(10) })
		b.subscribe(t, "held", e.URL, expiring)
	}
	subscribe(b.store.Clock.Now().Add(time.Hour))
	b.subscribe(t, "lasting", e.URL, nil)
	b.pause(t, "held")
	b.start(t, nil)
	other, _ := b.startNode(t, "node-2", nil)
	idle, _ := newStore(t, b.url, "node-3")
	nodes := []*node.System{b.store, other, idle}
	require.Equal(t, []int{4}, b.publishOne(t, "before").Matched)
	b.attemptsMade(t, 3)

	at := b.store.Clock.Now().Add(500 * time.Millisecond)
	subscribe(at)
	for i, s := range nodes {
		require.NoError(t, s.Cache.Reload(t.Context()))
		require.Eventually(t, func() bool { return !s.Clock.Now().Before(at) }, waitTimeout, time.Millisecond)
		require.Equal(t, []int{1}, publishTo(t, s, fmt.Sprint("after-", i)).Matched,
			"from the moment on, before anybody has deleted it")
	}
	b.become(t, 3, "SELECT count(*) FROM postrider.deliveries WHERE state = 'canceled' "+
		"AND reason = 'EventSubscriptionExpired' AND event_id = 'before'")
	require.Equal(t, 1, b.count(t, "SELECT count(*) FROM postrider.event_subscriptions"))
	require.Equal(t, 1,
		b.count(t, "SELECT count(DISTINCT subscription) FROM postrider.deliveries WHERE event_id LIKE 'after-%'"))
	require.Zero(t, b.count(t, "SELECT count(*) FROM postrider.dead_letters"))

	b.subscribe(t, "retried", e.URL, nil) // the name is free again
	require.Equal(t, []int{2}, b.publishOne(t, "again").Matched)
}

// publishTo publishes one Event Grid event on a node.
func publishTo(t *testing.T, s *node.System, id string) *publish.Receipt {
	t.Helper()
	receipt, err := s.Publisher.Publish(t.Context(),
		publish.Publication{Topic: topicName, Parse: func(topic *catalog.Topic) ([]event.Event, error) {
			in := event.Input{Schema: topic.InputSchema, Topic: topic.Name, NewID: uuid.NewString, Now: time.Now()}
			return in.ParseRequest(http.Header{"Content-Type": {"application/json"}}, []byte("["+eventGridBody(id, "{}")+"]"))
		}})
	require.NoError(t, err)
	return receipt
}

// A publish in progress may commit its delivery after the deletion; its attempt finds no event subscription, and knows
// the reason.
func TestAttemptOfAnExpiredSubscriptionIsCanceled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	b.subscribe(t, "expired", e.URL, nil)
	b.subscribe(t, "deleted", e.URL, nil)
	b.publishOne(t, "e")
	b.exec(t, "UPDATE postrider_internal.event_subscriptions SET deleted_at = now(), drained_at = now(), "+
		"expiration_time_utc = CASE name WHEN 'expired' THEN now() ELSE now() + interval '1 hour' END")
	require.NoError(t, b.store.Cache.Reload(t.Context()))
	b.start(t, nil)
	b.become(t, 1, "SELECT count(*) FROM postrider.deliveries WHERE subscription = 'expired' AND state = 'canceled' "+
		"AND reason = 'EventSubscriptionExpired'")
	b.become(t, 1, "SELECT count(*) FROM postrider.deliveries WHERE subscription = 'deleted' AND state = 'canceled' "+
		"AND reason = 'EventSubscriptionDeleted'")
	require.Empty(t, e.requests())
}
