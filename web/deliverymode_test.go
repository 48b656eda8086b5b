package web_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/jobs/publish"
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
		lock:                 {"301", "must be between 60 and 300, not 301"},
		"endpointUrl":        {"https://example.com", "must be absent with deliveryMode Queue"},
		"retryPolicy.policy": {"ga-2021", "must be namespace-2023 with deliveryMode Queue"},
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

// The page of a pulled event subscription shows what consumers have and what they receive next, and locks nothing.
func TestSubscriptionPageOfPullDelivery(t *testing.T) {
	t.Parallel()
	b := setupRunning(t)
	b.put(t, "/v1/topics/pulled", `{"inputSchema":"CloudEventSchemaV1_0"}`)
	b.put(t, "/v1/topics/pulled/subscriptions/audit", `{"deliveryConfiguration":{"deliveryMode":"Queue"}}`)
	const page = "/ui/subscriptions/pulled/audit"
	empty := text(b.page(t, page))
	require.Contains(t, empty, "No event is available.")
	require.Contains(t, empty, "No consumer has an event.")

	_, err := b.store.Publisher.Publish(t.Context(), publish.Publication{
		Topic: "pulled", Parse: func(*catalog.Topic) (events []event.Event, err error) {
			for _, id := range []string{"taken", "next", "later"} {
				events = append(events, event.Event{
					Schema: event.CloudEvents, ID: id, Type: "test", Source: "/s",
					Body: fmt.Appendf(nil, `{"specversion":"1.0","id":%[1]q,"source":"/s","type":"test","data":"<%[1]s>"}`, id),
				})
			}
			return events, nil
		},
	})
	require.NoError(t, err)
	_, err = b.pool.Exec(t.Context(), "SELECT postrider.receive('pulled', 'audit')")
	require.NoError(t, err)
	_, err = b.pool.Exec(t.Context(), `UPDATE postrider_internal.deliveries SET next_attempt_at = now() + interval '1 hour'
		WHERE id = (SELECT max(id) FROM postrider_internal.deliveries)`)
	require.NoError(t, err)
	shown := b.page(t, page)
	requireValidMarkup(t, page, shown)
	require.Regexp(t, `Available 1 1 locked, 1 delayed`, text(shown))
	require.Regexp(t, `Locks .* taken .* 1 `, text(shown))
	require.Contains(t, text(shown), `"data" : "<next>"`)
	require.NotContains(t, text(shown), `"<taken>"`)
	require.Equal(t, "1", b.value(t, "SELECT count(*) FROM postrider.locks"), "nothing else was locked")

	locked := b.page(t, "/ui/deliveries/"+b.value(t, "SELECT delivery_id FROM postrider.locks"))
	require.Contains(t, locked, "A consumer has received it")
	require.NotContains(t, locked, "Retry now")
	lock := b.value(t, "SELECT args ->> 'l' FROM postrider_internal.river_job WHERE kind = 'lock'")
	require.NotContains(t, b.page(t, "/ui/jobs"), lock, "half of a lock token")
}
