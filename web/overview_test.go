package web_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/endpointconf"
)

// The overview has one row for each event subscription that needs attention, with the next step.
func TestNeedsAttention(t *testing.T) {
	t.Parallel()
	b := setupRunning(t)
	b.requireTexts(t, "/ui/", "Needs attention Nothing. No event subscription fails",
		"Failing now 0 no event subscription")
	url := endpoint(t)
	b.subscribe(t, "orders", "busy", to(url+"/status/503"))
	b.subscribe(t, "orders", "slow", to(url+"/status/200"), func(s *catalog.SubscriptionSpec) {
		s.DeliveryRate = &endpointconf.DeliveryRate{Limit: 1, PeriodInSeconds: new(86_400)}
	})
	b.subscribe(t, "orders", "held", to(url+"/status/200"))
	b.subscribe(t, "orders", "late", to(url+"/status/200"))
	b.pause(t, "orders", "held")
	b.publish(t, "orders", "e-1", "e-2", "e-3")
	b.Become(t, 2, "SELECT count(*) FROM postrider.deliveries WHERE hold = 'rate_limited'")
	b.Become(t, 3, "SELECT count(*) FROM postrider.deliveries WHERE subscription = 'busy' AND attempts > 0")
	b.Become(t, 3, "SELECT count(*) FROM postrider.deliveries WHERE subscription = 'late' AND state = 'delivered'")
	b.ObserveProblems(t, 0)
	page := b.page(t, "/ui/")
	requireValidMarkup(t, "/ui/", page)
	require.Contains(t, text(page), "Failing now 1 busy of orders")
	require.Regexp(t, `busy of orders failing .*503 Service Unavailable empty response Busy 3 Retry …`, text(page))
	require.Regexp(t, `held of orders paused [^.]*3 Resume`, text(page))
	require.Regexp(t, `slow of orders rate limited .*rate limited : 2 waiting, drains at .* 2 Open`, text(page))
	require.NotContains(t, text(page), "late of orders")
	require.Contains(t, page, `class="needs-operator button" `+
		`href="/ui/deliveries/retry?subscription=busy&amp;topic=orders&amp;lastOutcome=Busy"`)
	require.Equal(t, http.StatusOK,
		b.request(http.MethodGet, "/ui/deliveries/retry?subscription=busy&topic=orders&lastOutcome=Busy").Code)
	b.requireRedirect(t, "/ui/subscriptions/orders/held/resume", nil, `done=resumed`)
	b.Exec(t, "UPDATE postrider_internal.deliveries SET time_to_live_since = now() - interval '20 minutes'")
	b.requireTexts(t, "/ui/", "oldest 20 min")
}
