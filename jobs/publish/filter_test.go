package publish_test

import (
	"fmt"
	"testing"

	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/internal/testnode"
	"postrider/jobs/publish"

	"github.com/stretchr/testify/require"
)

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
func advanced(t *testing.T, tn *testnode.Node) map[string]int {
	t.Helper()
	tn.Subscribe(t, "orders", "all", nil)
	tn.Subscribe(t, "orders", "red",
		testnode.Filtered(t, `{"advancedFilters":[{"operatorType":"StringIn","key":"data.colour","values":["RED"]}]}`))
	tn.Subscribe(t, "orders", "large",
		testnode.Filtered(t, `{"advancedFilters":[{"operatorType":"NumberGreaterThan","key":"data.n","value":4.5}]}`))
	tn.Subscribe(t, "orders", "envelope", testnode.Filtered(t, `{"includedEventTypes":["test"],"advancedFilters":[
		{"operatorType":"StringEndsWith","key":"id","values":["-3"]},{"operatorType":"StringIn","key":"Topic",`+
		`"values":["/topics/orders"]},
		{"operatorType":"StringIn","key":"DataVersion","values":["1"]}]}`))
	tn.Subscribe(t, "orders", "other", testnode.Filtered(t, `{"includedEventTypes":["other"]}`))
	return map[string]int{"all": 8, "red": 4, "large": 3, "envelope": 1, "other": 0}
}

// requireDeliveries counts the deliveries of each event subscription.
func requireDeliveries(t *testing.T, tn *testnode.Node, want map[string]int) {
	t.Helper()
	for name, n := range want {
		require.Equal(t, n, tn.Rows(t, "deliveries", "subscription = $1", name), name)
	}
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
}

func TestAdvancedFiltersSelectSubscriptions(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	want := advanced(t, tn)
	receipt := tn.Send(t, colours(8))
	require.Equal(t, []int{2, 1, 2, 2, 2, 2, 3, 2}, receipt.Matched)
	requireDeliveries(t, tn, want)

	require.NoError(t, tn.System.Subscriptions.Delete(t.Context(), "orders", "all"))
	tn.Subscribe(t, "orders", "red", nil)
	receipt = tn.Send(t, colours(8))
	require.Equal(t, []int{1, 1, 1, 2, 1, 2, 2, 2}, receipt.Matched, "the others still differ")
}

// A route reads the bodies again, and no more of them at once than it may.
func TestAdvancedFiltersOfRoutedEvents(t *testing.T) {
	t.Parallel()
	tn := routed(t, 0)
	want := advanced(t, tn)
	tn.System.Publisher.LimitSteps(0, 300) // two or three bodies
	receipt := tn.Send(t, colours(8))
	require.Equal(t, 16, receipt.Deliveries())
	require.Equal(t, 1, tn.Routes(t, ""))
	require.GreaterOrEqual(t, tn.RouteAll(t, tn.System), 3)
	requireDeliveries(t, tn, want)
	require.Zero(t, tn.Routes(t, ""))
}
