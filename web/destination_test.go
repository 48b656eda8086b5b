package web_test

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog/spec"
	"postrider/internal/destination"
)

const ofType, ofDestination = "destination.endpointType", "destination.properties."

// retyped is the form after its button for another type, as it is used without JavaScript.
func (b *dashboard) retyped(t *testing.T, path string, form url.Values, kind destination.Type) url.Values {
	t.Helper()
	return formOf(t, b.requireOK(t, path, typed(form, ofType, string(kind), "change", "1")))
}

// The form shows the settings that the chosen type has, and no others.
func TestFormOfEachDestination(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put(t, "/v1/topics/orders", "{}")
	const path = "/ui/subscriptions/new?topic=orders"
	form := typed(formOf(t, b.page(t, path)), "labels", "kept")
	require.Contains(t, b.page(t, path), `<option value="ServiceBusQueue">Service Bus queue</option>`)
	for _, name := range destination.Types()[1:] {
		kind := destination.Type(name)
		page := b.requireOK(t, path, typed(form, ofType, name, "change", "1"))
		form = formOf(t, page) // the next type begins here
		for i := range spec.Subscription {
			s := &spec.Subscription[i]
			if s.Section == "" || s.Section == spec.Messages || s.Kind == spec.JSON {
				continue
			}
			require.Equal(t, s.Of == nil || slices.Contains(s.Of, kind), strings.Contains(page, ` name="`+s.Name+`"`),
				"%s of %s", s.Name, name)
		}
		require.Equal(t, "kept", form.Get("labels"))
		require.Equal(t, kind.IsBroker(), form.Get(ofDestination+"tls") == "true", "the default of a new field")
		require.NotContains(t, page, "Enter the secret again")
	}
	require.NotEmpty(t, b.retyped(t, path, form, "")["endpointUrl"])
}

// The form creates a destination, shows errors at its fields, keeps its secrets, and drops them with its type.
func TestSubscriptionFormOfDestination(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put(t, "/v1/topics/orders", "{}")
	const create, api = "/ui/subscriptions/new?topic=orders", "/v1/topics/orders/subscriptions/bus"
	const show, edit = "/ui/subscriptions/orders/bus", "/ui/subscriptions/orders/bus/edit"
	const shown = "Service Bus queue · servicebus://shop.servicebus.windows.net/orders"
	hook := typed(formOf(t, b.page(t, create)), "name", "bus", "endpointUrl", "https://example.com/hook",
		"signing.enabled", "true")
	page := b.requireRejected(t, create, typed(hook, ofType, "ServiceBusQueue"), http.StatusBadRequest,
		"Nothing was saved: enter the settings of the type that you chose.")
	form := formOf(t, page)
	require.NotContains(t, form, "endpointUrl")
	page = b.requireRejected(t, create, form, http.StatusBadRequest, "is required, or resourceId or connectionString")
	require.NotContains(t, page, "<h2>Errors</h2>", "each error has its field")
	form = typed(form, ofDestination+"endpoint", "https://shop.servicebus.windows.net", ofDestination+"entityName",
		"orders", ofDestination+"sharedAccessKeyName", "send")
	page = b.requireRejected(t, create, form, http.StatusBadRequest, "is required, or sharedAccessSignature")
	require.NotContains(t, page, "<h2>Errors</h2>")
	form = typed(form, ofDestination+"primaryKey", "planted-key", "deliveryAttributeMappings[0].name", "Team",
		"deliveryAttributeMappings[0].type", "static", "deliveryAttributeMappings[0].properties", "billing")
	page = b.requireRejected(t, create, typed(form, "name", ""), http.StatusBadRequest, "Enter the secret again.")
	require.NotContains(t, page, "planted-key")
	for change, again := range map[string]bool{"1": true, "live": false} { // without and with JavaScript
		page = b.requireOK(t, create, typed(form, ofType, "ServiceBusTopic", "change", change))
		require.Equal(t, again, strings.Contains(page, "Enter the secret again."))
		require.NotContains(t, page, "planted-key")
	}
	b.requireRedirect(t, create, form, `/bus\?done=saved$`)
	stored := b.spec(t, "orders", "bus")
	require.Equal(t, "planted-key", stored.Destination.Properties.PrimaryKey)
	require.Empty(t, stored.EndpointURL)
	require.False(t, stored.Signing.Enabled)

	// Pages show the type and the target, and nothing of webhooks.
	page = b.page(t, show)
	requireValidMarkup(t, show, page)
	for _, part := range []string{"Deliveries go to " + shown, "Primary key stored", "Message properties Team"} {
		require.Contains(t, text(page), part)
	}
	for _, absent := range []string{"planted-key", "Handshakes", "Signed", `href="servicebus:`} {
		require.NotContains(t, page, absent)
	}
	b.requireTexts(t, "/ui/subscriptions", shown)
	b.requireTexts(t, "/ui/topics/orders", shown)
	b.publish(t, "orders", "e-1")
	b.requireTexts(t, "/ui/deliveries/"+b.deliveryOf(t, "bus"), "Endpoint "+shown)

	// A secret is kept for the same target only.
	page = b.page(t, edit)
	requireValidMarkup(t, edit, page)
	require.NotContains(t, page, "planted-key")
	require.Regexp(t, `type="password"[^>]*primaryKey"[^>]* value=""[^>]* placeholder="stored"`, page)
	b.requireRedirect(t, edit, formOf(t, page), `done=saved$`)
	require.Equal(t, stored, b.spec(t, "orders", "bus"), "saved unchanged")
	page = b.page(t, edit)
	b.requireRejected(t, edit, typed(formOf(t, page), ofDestination+"entityName", "other"), http.StatusBadRequest,
		"is required, or sharedAccessSignature")
	again := b.retyped(t, edit, b.retyped(t, edit, formOf(t, page), destination.Kafka), destination.ServiceBusQueue)
	require.Equal(t, "send", again.Get(ofDestination+"sharedAccessKeyName"), "what is stored returns with its type")

	form = typed(b.retyped(t, edit, formOf(t, page), destination.Kafka), ofDestination+"servers", "broker")
	page = b.requireRejected(t, edit, form, http.StatusBadRequest, "must be host:port")
	require.NotContains(t, page, "<h2>Errors</h2>")
	form = typed(form, ofDestination+"servers", "b-2.example.com:9092\nb-1.example.com:9092",
		ofDestination+"topic", "orders", "endpointValidation", "skip")
	b.requireRedirect(t, edit, form, `done=saved$`)
	kafka := b.spec(t, "orders", "bus")
	require.Equal(t, &destination.Properties{
		Servers: []string{"b-2.example.com:9092", "b-1.example.com:9092"}, Topic: "orders",
	}, kafka.Destination.Properties)
	b.requireRedirect(t, edit, formOf(t, b.page(t, edit)), `done=saved$`)
	require.Equal(t, kafka, b.spec(t, "orders", "bus"), "saved unchanged")
	b.requireTexts(t, show, "Kafka topic · kafka://b-1.example.com:9092,b-2.example.com:9092/orders")

	form = typed(b.retyped(t, edit, formOf(t, b.page(t, edit)), ""), "endpointUrl", "https://example.com/hook")
	require.Empty(t, form.Get("endpointValidation"), "skip was for the broker")
	form.Set("endpointValidation", "skip")
	b.requireRedirect(t, edit, form, `done=`)
	require.Nil(t, b.spec(t, "orders", "bus").Destination)
	require.Equal(t, "https://example.com/hook", b.settings(t, api)["endpointBaseUrl"])
}

// Pull delivery drops the stored destination.
func TestFormOfDestinationToPullDelivery(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put(t, "/v1/topics/cloud", `{"inputSchema":"CloudEventSchemaV1_0"}`)
	b.put(t, "/v1/topics/cloud/subscriptions/nats", `{"destination":{"endpointType":"NatsJetStream","properties":{`+
		`"servers":["n.example.com:4222"],"subject":"shop"}},"endpointValidation":"skip"}`)
	const edit = "/ui/subscriptions/cloud/nats/edit"
	b.requireRedirect(t, edit, typed(formOf(t, b.page(t, edit)), "deliveryConfiguration.deliveryMode", "Queue"),
		`done=saved$`)
	require.Nil(t, b.spec(t, "cloud", "nats").Destination)
}

// An event hub has batches without a setting, and its form shows which.
func TestPageOfEventHub(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put(t, "/v1/topics/orders", "{}")
	b.put(t, "/v1/topics/orders/subscriptions/hub", `{"destination":{"endpointType":"EventHub","properties":{"endpoint":`+
		`"https://shop.servicebus.windows.net","entityName":"orders","sharedAccessSignature":"sr=a&sig=b&se=1&skn=c"}}}`)
	const show = "/ui/subscriptions/orders/hub"
	b.requireTexts(t, show, "Event hub · eventhub://", "SAS token stored", "Batches up to 100 events, about 192 KiB")
	b.requireTexts(t, show+"/edit", "Default: 100; 10 if only the batch size is set.")
	requireValidMarkup(t, show, b.page(t, show))
}
