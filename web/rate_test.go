package web_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/endpointconf"
)

func TestRateLimitOfASubscription(t *testing.T) {
	t.Parallel()
	b, url := setupRunning(t), endpoint(t)
	b.subscribe(t, "orders", "billing", func(s *catalog.SubscriptionSpec) {
		s.EndpointURL = url + "/status/200"
		s.DeliveryRate = &endpointconf.DeliveryRate{
			Limit: 1, PeriodInSeconds: new(86_400),
			Scope: endpointconf.RatePerEndpoint,
		}
	})
	b.subscribe(t, "orders", "free", func(s *catalog.SubscriptionSpec) { s.EndpointURL = url + "/status/200" })
	b.publish(t, "orders", "e-1", "e-2", "e-3")
	b.eventually(t, 2, "SELECT count(*) FROM postrider.deliveries WHERE hold = 'rate_limited'")
	page := text(b.page(t, "/ui/subscriptions/orders/billing"))
	for _, want := range []string{
		"Rate limit 1 request/day, shared by the host's event subscriptions", "Backlog drains",
		"too late for some deliveries", "Limit and delivered, per minute",
	} {
		require.Contains(t, page, want)
	}
	b.subscribe(t, "orders", "faster", func(s *catalog.SubscriptionSpec) {
		s.EndpointURL = url + "/status/202"
		s.DeliveryRate = &endpointconf.DeliveryRate{
			Limit: 5, Scope: endpointconf.RatePerEndpoint,
			Count: endpointconf.RateOfEvents,
		}
	})
	require.Contains(t, text(b.page(t, "/ui/subscriptions/orders/faster")),
		"Rate limit 5 events/s, but the lowest limit of its host applies: 1 event/day")
	require.NotContains(t, text(b.page(t, "/ui/subscriptions/orders/free")), "Limit and delivered")
	require.Contains(t, text(b.page(t, "/ui/deliveries?hold=rate_limited")), "rate_limited")

	limited := "/ui/deliveries/" + b.value(t,
		"SELECT min(delivery_id) FROM postrider.deliveries WHERE hold = 'rate_limited'")
	b.pause(t, "orders", "billing")
	require.Contains(t, text(b.page(t, limited)), "The event subscription is paused")
	b.publish(t, "orders", "e-4")
	paused := "/ui/deliveries/" + b.value(t, "SELECT max(delivery_id) FROM postrider.deliveries WHERE hold = 'paused'")
	_, err := b.store.Holds.Resume(t.Context(), "orders", "billing")
	require.NoError(t, err)
	for _, page := range []string{limited, paused} {
		require.Contains(t, text(b.page(t, page)), "The rate limit of its event subscription or endpoint is reached")
	}

	_, err = b.pool.Exec(t.Context(), `INSERT INTO postrider_internal.delivery_rates (key, closed_until)
		SELECT 'endpoint:' || encode(endpoint_hash, 'hex'), now() + interval '1 hour'
		  FROM postrider_internal.event_subscriptions WHERE name = 'free'`)
	require.NoError(t, err)
	free := text(b.page(t, "/ui/subscriptions/orders/free"))
	require.Contains(t, free, "Closed until")
	require.NotContains(t, free, "Limit and delivered")
}

// Problems names the share of 429, and the setting against it.
func TestProblemsNameThrottling(t *testing.T) {
	t.Parallel()
	b, url := setupRunning(t), endpoint(t)
	b.subscribe(t, "orders", "throttled", func(s *catalog.SubscriptionSpec) { s.EndpointURL = url + "/status/429" })
	b.subscribe(t, "orders", "busy", func(s *catalog.SubscriptionSpec) { s.EndpointURL = url + "/status/503" })
	b.publish(t, "orders", "e-1")
	b.eventually(t, 2, "SELECT count(*) FROM postrider.delivery_attempts")
	page := text(b.page(t, "/ui/problems?within=1h"))
	require.Regexp(t, `throttled of orders Busy 429 .* 100 % of all attempts were 429: set deliveryRate \.`, page)
	require.NotRegexp(t, `busy of orders Busy 503 [^.]* were 429`, page)
	require.Equal(t, 1, strings.Count(page, "deliveryRate"))
}

// The defaults of a limit's other settings are no limit. A setting that is none is not dropped silently.
func TestFormWithoutARateLimit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put(t, "/v1/topics/orders", "{}")
	b.put(t, "/v1/topics/orders/subscriptions/billing", `{"endpointUrl":"https://example.com","endpointValidation":"skip",
		"deliveryRate":{"limit":5,"periodInSeconds":1,"scope":"subscription","count":"events"}}`)
	const edit = "/ui/subscriptions/orders/billing/edit"
	cleared := typed(formOf(t, b.page(t, edit)), "deliveryRate.limit", "")
	b.requireRejected(t, edit, cleared, http.StatusBadRequest, "must be 1 to 100000")
	b.requireRedirect(t, edit, typed(cleared, "deliveryRate.count", "requests"), `done=saved$`)
	require.Nil(t, b.spec(t, "orders", "billing").DeliveryRate)
}
