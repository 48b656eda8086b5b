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
	"postrider/internal/testnode"
	"postrider/jobs/publish"

	"github.com/google/uuid"
)

// An expired event subscription is deleted with its pending deliveries by one of the nodes; no node adds another event
// to it from then on.
func TestExpirationOnTwoNodes(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWith(http.StatusInternalServerError))
	subscribeUntil := func(at time.Time) {
		expiring := func(s *catalog.SubscriptionSpec) { s.ExpirationTimeUTC = &at }
		subscribe(t, tn, "retried", e.URL, expiring)
		subscribe(t, tn, "batched", e.URL, func(s *catalog.SubscriptionSpec) { expiring(s); s.MaxEventsPerBatch = new(10) })
		subscribe(t, tn, "held", e.URL, expiring)
	}
	subscribeUntil(tn.System.Clock.Now().Add(time.Hour))
	subscribe(t, tn, "lasting", e.URL, nil)
	pause(t, tn, "held")
	tn.Start(t)
	other := startNode(t, tn, "node-2", nil)
	idle := tn.Beside(t, node.Options{Node: "node-3"}).System
	nodes := []*node.System{tn.System, other.System, idle}
	require.Equal(t, []int{4}, publishOne(t, tn, "before").Matched)
	tn.AttemptsMade(t, 3)

	at := tn.System.Clock.Now().Add(500 * time.Millisecond)
	subscribeUntil(at)
	for i, s := range nodes {
		require.NoError(t, s.Cache.Reload(t.Context()))
		testnode.Within(t, `!s.Clock.Now().Before(at)`, func() bool { return !s.Clock.Now().Before(at) })
		require.Equal(t, []int{1}, publishTo(t, s, fmt.Sprint("after-", i)).Matched,
			"from the moment on, before anybody has deleted it")
	}
	tn.Become(t, 3, "SELECT count(*) FROM postrider.deliveries WHERE state = 'canceled' "+
		"AND reason = 'EventSubscriptionExpired' AND event_id = 'before'")
	require.Equal(t, 1, tn.Count(t, "SELECT count(*) FROM postrider.event_subscriptions"))
	require.Equal(t, 1,
		tn.Count(t, "SELECT count(DISTINCT subscription) FROM postrider.deliveries WHERE event_id LIKE 'after-%'"))
	require.Zero(t, tn.Count(t, "SELECT count(*) FROM postrider.dead_letters"))

	subscribe(t, tn, "retried", e.URL, nil) // the name is free again
	require.Equal(t, []int{2}, publishOne(t, tn, "again").Matched)
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
	tn := setup(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	subscribe(t, tn, "expired", e.URL, nil)
	subscribe(t, tn, "deleted", e.URL, nil)
	publishOne(t, tn, "e")
	tn.Exec(t, "UPDATE postrider_internal.event_subscriptions SET deleted_at = now(), drained_at = now(), "+
		"expiration_time_utc = CASE name WHEN 'expired' THEN now() ELSE now() + interval '1 hour' END")
	require.NoError(t, tn.System.Cache.Reload(t.Context()))
	tn.Start(t)
	tn.Become(t, 1, "SELECT count(*) FROM postrider.deliveries WHERE subscription = 'expired' AND state = 'canceled' "+
		"AND reason = 'EventSubscriptionExpired'")
	tn.Become(t, 1, "SELECT count(*) FROM postrider.deliveries WHERE subscription = 'deleted' AND state = 'canceled' "+
		"AND reason = 'EventSubscriptionDeleted'")
	require.Empty(t, e.requests())
}
