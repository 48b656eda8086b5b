package web_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/catalog"
	"postrider/policy"
)

func TestRateLimitOfASubscription(t *testing.T) {
	t.Parallel()
	b, url := setupRunning(t), endpoint(t)
	b.subscribe(t, "orders", "billing", func(s *catalog.SubscriptionSpec) {
		s.EndpointURL = url + "/status/200"
		s.DeliveryRate = &policy.DeliveryRate{Limit: 1, PeriodInSeconds: new(86_400), Scope: policy.RatePerEndpoint}
	})
	b.subscribe(t, "orders", "free", func(s *catalog.SubscriptionSpec) { s.EndpointURL = url + "/status/200" })
	b.publish(t, "orders", "e-1", "e-2", "e-3")
	b.eventually(t, 2, "SELECT count(*) FROM postrider.deliveries WHERE hold = 'rate_limited'")
	page := text(b.page(t, "/ui/subscriptions/orders/billing"))
	for _, want := range []string{
		"requests/s, shared by the host's event subscriptions", "Backlog drains", "after its time to live",
		"Delivered and limit, per minute",
	} {
		require.Contains(t, page, want)
	}
	require.NotContains(t, text(b.page(t, "/ui/subscriptions/orders/free")), "Delivered and limit")
	require.Contains(t, text(b.page(t, "/ui/deliveries?hold=rate_limited")), "rate_limited")

	b.pause(t, "orders", "billing")
	limited := "/ui/deliveries/" + b.value(t,
		"SELECT min(delivery_id) FROM postrider.deliveries WHERE hold = 'rate_limited'")
	require.Contains(t, text(b.page(t, limited)), "The event subscription is paused")
	b.publish(t, "orders", "e-4")
	paused := "/ui/deliveries/" + b.value(t, "SELECT delivery_id FROM postrider.deliveries WHERE hold = 'paused'")
	_, err := b.store.Holds.Resume(t.Context(), "orders", "billing")
	require.NoError(t, err)
	for _, page := range []string{limited, paused} {
		require.Contains(t, text(b.page(t, page)), "The rate limit of its event subscription or endpoint is reached")
	}
}
