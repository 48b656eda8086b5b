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
	limited := "/ui/deliveries/" + b.value(t,
		"SELECT min(delivery_id) FROM postrider.deliveries WHERE hold = 'rate_limited'")
	require.Contains(t, text(b.page(t, limited)), "The rate limit of its event subscription or endpoint is reached")
	require.Contains(t, text(b.page(t, "/ui/deliveries?hold=rate_limited")), "rate_limited")
	free := "/ui/subscriptions/orders/free"
	require.NotContains(t, text(b.page(t, free)), "Closed until")
	mustExec(t, b, `INSERT INTO postrider_internal.delivery_rates (key, closed_until)
		SELECT 'endpoint:' || encode(endpoint_hash, 'hex'), now() + interval '1 hour'
		  FROM postrider_internal.event_subscriptions WHERE name = 'free'`)
	require.Contains(t, text(b.page(t, free)), "Closed until")
	require.NotContains(t, text(b.page(t, free)), "Limit and delivered")
	b.requireThrottlingNamed(t, url)
}

// requireThrottlingNamed checks that Problems names the share of 429 and the setting against it, and that a pending
// batch shows its next attempt.
func (b *dashboard) requireThrottlingNamed(t *testing.T, url string) {
	t.Helper()
	b.subscribe(t, "slow", "throttled", func(s *catalog.SubscriptionSpec) { s.EndpointURL = url + "/status/429" })
	b.subscribe(t, "slow", "busy", func(s *catalog.SubscriptionSpec) {
		s.EndpointURL, s.MaxEventsPerBatch = url+"/status/503", ptr(10)
	})
	b.publish(t, "slow", "e-1")
	b.eventually(t, 1, "SELECT count(*) FROM postrider.deliveries WHERE subscription = 'throttled' AND attempts = 1")
	b.eventually(t, 1, "SELECT count(*) FROM postrider.batches WHERE attempts = 1")
	page := text(b.page(t, "/ui/problems?within=1h"))
	require.Regexp(t, `throttled of slow Busy 429 .* 100 % of all attempts were 429: set deliveryRate \.`, page)
	require.NotRegexp(t, `busy of slow Busy 503 [^.]* were 429`, page)
	require.Equal(t, 1, strings.Count(page, "deliveryRate"))
	batch := "/ui/batches/" + b.value(t, "SELECT min(batch_id) FROM postrider.batches")
	require.Contains(t, text(b.page(t, batch)), "Attempt 2 starts in")
	b.pause(t, "slow", "busy")
	require.Contains(t, text(b.page(t, batch)), "is paused until an operator resumes it")
	require.NotContains(t, text(b.page(t, batch)), "Attempt 2 starts in")
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
