package web_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// The form creates a pulled event subscription, and changes it to push delivery and back, without JavaScript.
func TestSubscriptionFormOfPullDelivery(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put(t, "/v1/topics/orders", `{"inputSchema":"CloudEventSchemaV1_0"}`)
	const mode, lock = "deliveryConfiguration.deliveryMode", "deliveryConfiguration.queue.receiveLockDurationInSeconds"
	const api, show, edit = "/v1/topics/orders/subscriptions/audit", "/ui/subscriptions/orders/audit",
		"/ui/subscriptions/orders/audit/edit"
	form := formOf(t, b.page(t, "/ui/subscriptions/new?topic=orders"))
	pulled := typed(form, "name", "audit", mode, "Queue", lock, "90", "retryPolicy.maxDeliveryAttempts", "3")
	for field, row := range map[string][2]string{
		lock:                       {"301", "must be between 60 and 300, not 301"},
		"endpointUrl":              {"https://example.com", "must be absent with deliveryMode Queue"},
		"maxEventsPerBatch":        {"2", "must be absent with deliveryMode Queue"},
		"signing.enabled":          {"true", "must be absent with deliveryMode Queue"},
		"minimumTlsVersionAllowed": {"1.3", "must be absent with deliveryMode Queue"},
		"retryPolicy.policy":       {"ga-2021", "must be namespace-2023 with deliveryMode Queue"},
	} {
		page := b.requireRejected(t, "/ui/subscriptions/new?topic=orders", typed(pulled, field, row[0]),
			http.StatusBadRequest, row[1])
		require.NotContains(t, page, "<h2>Errors</h2>", "%s has its field", field)
	}
	page := b.requireRedirect(t, "/ui/subscriptions/new?topic=orders", pulled, `/audit\?done=saved$`)
	require.Contains(t, page, "Consumers receive the events")
	require.NotContains(t, page, "Retry schedule")
	require.Contains(t, text(b.page(t, "/ui/subscriptions")), " pull ")
	before, stored := b.settings(t, api), b.spec(t, "orders", "audit")
	require.Equal(t, map[string]any{
		"deliveryMode": "Queue", "queue": map[string]any{
			"receiveLockDurationInSeconds": json.Number("90"), "maxDeliveryCount": json.Number("3"), "eventTimeToLive": "P7D",
			"deadLetterDestination": map[string]any{"endpointType": "Rows"},
		},
	}, before["deliveryConfiguration"])
	requireValidMarkup(t, edit, b.page(t, edit))
	requireValidMarkup(t, show, b.page(t, show))
	b.requireRedirect(t, edit, formOf(t, b.page(t, edit)), `done=saved$`)
	require.Equal(t, before, b.settings(t, api), "saved unchanged")
	require.Equal(t, stored, b.spec(t, "orders", "audit"))

	toPush := typed(formOf(t, b.page(t, edit)), mode, "Push")
	b.requireRejected(t, edit, toPush, http.StatusBadRequest, "is required")
	b.requireRedirect(t, edit, typed(toPush, "endpointUrl", "https://example.com/in", "endpointValidation", "skip",
		"deliveryRate.limit", "5", "signing.enabled", "true"), `done=saved$`)
	require.Equal(t, "https://example.com/in", b.settings(t, api)["endpointBaseUrl"])

	b.requireRedirect(t, edit, typed(formOf(t, b.page(t, edit)), mode, "Queue", lock, "90"), `done=saved$`)
	require.Equal(t, before, b.settings(t, api), "the stored settings of requests are removed")
	require.Equal(t, stored, b.spec(t, "orders", "audit"))

	b.put(t, "/v1/topics/plain", "{}")
	require.NotContains(t, b.page(t, "/ui/subscriptions/new?topic=plain"), `<option value="Queue"`)
}
