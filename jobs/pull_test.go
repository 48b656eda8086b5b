package jobs_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/internal/testnode"
	"postrider/jobs/publish"
)

// Deliveries that wait for a retry, for a batch or in one, or on hold, become available when their event subscription
// becomes a queue. Back again, they are sent.
func TestPushBecomesQueue(t *testing.T) {
	t.Parallel()
	for name, batch := range map[string]*int{"single": nil, "batches": new(10)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tn := setup(t)
			_, _, err := tn.System.Topics.Put(t.Context(), "cloud",
				catalog.TopicSpec{Kind: catalog.TopicNamespace, InputSchema: event.CloudEvents})
			require.NoError(t, err)
			e := newEndpoint(t, respondWith(http.StatusServiceUnavailable))
			set := func(s catalog.SubscriptionSpec) *catalog.Subscription {
				s.EventDeliverySchema, s.RetryPolicy.Policy = event.CloudEvents, "namespace-2023"
				sub, _, err := tn.System.Subscriptions.Put(t.Context(), "cloud", "all", s)
				require.NoError(t, err)
				return sub
			}
			push := catalog.SubscriptionSpec{EndpointURL: e.URL, EndpointKind: "webhook", MaxEventsPerBatch: batch}
			queue := catalog.SubscriptionSpec{
				DeliveryConfiguration: &catalog.DeliveryConfiguration{DeliveryMode: catalog.ModeQueue},
			}
			set(push)
			withoutProbation(t, tn)
			tn.Start(t)
			publishOne := func(id string) {
				_, err := tn.System.Publisher.Publish(t.Context(), publish.Publication{
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
			tn.Attempt(t)
			_, err = tn.System.Holds.Pause(t.Context(), "cloud", "all", nil)
			require.NoError(t, err)
			publishOne("held")
			sub := set(queue)
			travel(t, tn)
			_, err = tn.System.Holds.Resume(t.Context(), "cloud", "all")
			require.NoError(t, err)
			tn.BecomeRows(t, 2, "deliveries", "waits_for = 'consumer'")
			require.Zero(t, tn.Count(t, testnode.BrokenTokens))
			received, err := tn.System.Receiver.Receive(t.Context(), sub, 10, time.Minute, "test")
			require.NoError(t, err)
			require.Len(t, received, 2)
			require.Equal(t, 3, received[0].Count+received[1].Count, "attempts of both modes count")
			require.NoError(t, tn.System.Receiver.Return(sub, received))

			set(push)
			tn.Attempt(t)
			tn.Become(t, 0, "SELECT count(*) FROM postrider_internal.deliveries WHERE pulled")
			require.Zero(t, tn.Count(t, testnode.BrokenTokens))
		})
	}
}
