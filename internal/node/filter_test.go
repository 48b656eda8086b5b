package node_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/jobs/publish"

	"github.com/stretchr/testify/require"
)

// filtered gives an event subscription a filter as it is written in a request.
func filtered(t *testing.T, text string) func(*catalog.SubscriptionSpec) {
	t.Helper()
	return func(s *catalog.SubscriptionSpec) { require.NoError(t, json.Unmarshal([]byte(text), &s.Filter)) }
}

// colours makes Event Grid events whose data.n counts from 0; the even ones are red, the odd ones blue.
func colours(n int) publish.Publication {
	return publish.Publication{Topic: "orders", Parse: func(topic *catalog.Topic) ([]event.Event, error) {
		body := []byte("[")
		for i := range n {
			if i > 0 {
				body = append(body, ',')
			}
			body = fmt.Appendf(body, `{"id":"e-%d","subject":"s","eventType":"test","eventTime":"2026-01-01T00:00:00Z",`+
				`"dataVersion":"1","data":{"n":%d,"colour":%q}}`,
				i, i, []string{"red", "blue"}[i%2])
		}
		return event.Input{Schema: topic.InputSchema, Topic: topic.Name}.Parse("application/json", append(body, ']'))
	}}
}

// advanced creates event subscriptions with advanced filters and returns how many of eight events each matches.
func (b *bundle) advanced(t *testing.T) map[string]int {
	t.Helper()
	b.subscription(t, "orders", "all", nil)
	b.subscription(t, "orders", "red",
		filtered(t, `{"advancedFilters":[{"operatorType":"StringIn","key":"data.colour","values":["RED"]}]}`))
	b.subscription(t, "orders", "large",
		filtered(t, `{"advancedFilters":[{"operatorType":"NumberGreaterThan","key":"data.n","value":4.5}]}`))
	b.subscription(t, "orders", "envelope", filtered(t, `{"includedEventTypes":["test"],"advancedFilters":[
		{"operatorType":"StringEndsWith","key":"id","values":["-3"]},{"operatorType":"StringIn","key":"Topic",`+
		`"values":["/topics/orders"]},
		{"operatorType":"StringIn","key":"DataVersion","values":["1"]}]}`))
	b.subscription(t, "orders", "other", filtered(t, `{"includedEventTypes":["other"]}`))
	return map[string]int{"all": 8, "red": 4, "large": 3, "envelope": 1, "other": 0}
}

// requireDeliveries counts the deliveries of each event subscription.
func (b *bundle) requireDeliveries(t *testing.T, want map[string]int) {
	t.Helper()
	for name, n := range want {
		require.Equal(t, n, b.count(t, "SELECT count(*) FROM postrider.deliveries WHERE subscription = $1", name), name)
	}
	require.Zero(t, b.count(t, brokenTokens))
}

func TestAdvancedFiltersSelectSubscriptions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.topic(t, "orders")
	want := b.advanced(t)
	receipt, err := b.store.Publisher.Publish(t.Context(), colours(8))
	require.NoError(t, err)
	require.Equal(t, []int{2, 1, 2, 2, 2, 2, 3, 2}, receipt.Matched)
	b.requireDeliveries(t, want)

	require.NoError(t, b.store.Subscriptions.Delete(t.Context(), "orders", "all"))
	b.subscription(t, "orders", "red", nil)
	receipt, err = b.store.Publisher.Publish(t.Context(), colours(8))
	require.NoError(t, err)
	require.Equal(t, []int{1, 1, 1, 2, 1, 2, 2, 2}, receipt.Matched, "the others still differ")
}

// A route reads the bodies again, and no more of them at once than it may.
func TestAdvancedFiltersOfRoutedEvents(t *testing.T) {
	t.Parallel()
	b := routed(t, 0)
	want := b.advanced(t)
	b.store.Publisher.LimitSteps(0, 300) // two or three bodies
	receipt, err := b.store.Publisher.Publish(t.Context(), colours(8))
	require.NoError(t, err)
	require.Equal(t, 16, receipt.Deliveries())
	require.Equal(t, 1, b.count(t, "SELECT count(*) FROM postrider_internal.routes"))
	require.GreaterOrEqual(t, b.routeAll(t, b.store), 3)
	b.requireDeliveries(t, want)
	require.Zero(t, b.count(t, "SELECT count(*) FROM postrider_internal.routes"))
}
