package jobs_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/jobs/publish"
)

// Deliveries that wait for a retry, for a batch or in one, or on hold, become available when their event subscription
// becomes a queue. Back again, they are sent.
func TestPushBecomesQueue(t *testing.T) {
	t.Parallel()
	for name, batch := range map[string]*int{"single": nil, "batches": new(10)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			_, _, err := b.store.Topics.Put(t.Context(), "cloud",
				catalog.TopicSpec{Kind: catalog.TopicNamespace, InputSchema: event.CloudEvents})
			require.NoError(t, err)
			e := newEndpoint(t, respondWith(http.StatusServiceUnavailable))
			set := func(s catalog.SubscriptionSpec) *catalog.Subscription {
				s.EventDeliverySchema, s.RetryPolicy.Policy = event.CloudEvents, "namespace-2023"
				sub, _, err := b.store.Subscriptions.Put(t.Context(), "cloud", "all", s)
				require.NoError(t, err)
				return sub
			}
			push := catalog.SubscriptionSpec{EndpointURL: e.URL, EndpointKind: "webhook", MaxEventsPerBatch: batch}
			queue := catalog.SubscriptionSpec{
				DeliveryConfiguration: &catalog.DeliveryConfiguration{DeliveryMode: catalog.ModeQueue},
			}
			set(push)
			b.withoutProbation(t)
			b.start(t, nil)
			publishOne := func(id string) {
				_, err := b.store.Publisher.Publish(t.Context(), publish.Publication{
					Topic: "cloud", Parse: func(*catalog.Topic) ([]event.Event, error) {
						return []event.Event{{
							Schema: event.CloudEvents, ID: id, Type: "t", Source: "/s",
							Body: []byte(`{"specversion":"1.0","id":"` + id + `","source":"/s","type":"t"}`),
						}}, nil
					},
				})
				require.NoError(t, err)
			}
			publishOne("retried")
			b.attempt(t)
			_, err = b.store.Holds.Pause(t.Context(), "cloud", "all", nil)
			require.NoError(t, err)
			publishOne("held")
			sub := set(queue)
			b.travel(t)
			_, err = b.store.Holds.Resume(t.Context(), "cloud", "all")
			require.NoError(t, err)
			b.become(t, 2, "SELECT count(*) FROM postrider.deliveries WHERE waits_for = 'consumer'")
			require.Zero(t, b.count(t, brokenTokens))
			received, err := b.store.Receiver.Receive(t.Context(), sub, 10, time.Minute, "test")
			require.NoError(t, err)
			require.Len(t, received, 2)
			require.Equal(t, 3, received[0].Count+received[1].Count, "attempts of both modes count")
			require.NoError(t, b.store.Receiver.Return(sub, received))

			set(push)
			b.attempt(t)
			b.become(t, 0, "SELECT count(*) FROM postrider_internal.deliveries WHERE pulled")
			require.Zero(t, b.count(t, brokenTokens))
		})
	}
}
