package cli_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

const busID = "/subscriptions/s/resourceGroups/g/providers/Microsoft.ServiceBus/namespaces/shop/queues/orders"

// Destinations have the Azure CLI's flags. Their keys are stored and never shown again.
func TestDestinationVerbs(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.topic("orders")
	key := writtenFile(t, "planted-key\n")
	create := "subscription create orders bus --endpoint-type servicebusqueue --endpoint " + busID +
		" --shared-access-key-name send"
	require.Contains(t, h.line(2, create), "primaryKey")
	created := words(h.line(0, create+" --primary-key-file "+key))
	require.Contains(t, created, "target servicebus://shop.servicebus.windows.net/orders")
	require.Contains(t, created, "type ServiceBusQueue")
	require.Regexp(t, `(?m)^orders +bus +ServiceBusQueue +servicebus://shop.servicebus.windows.net/orders `,
		h.line(0, "subscription list orders"))
	require.Contains(t, words(h.line(0, "subscription reveal orders bus")),
		"endpoint none (keys of a destination are not shown)")
	require.Contains(t, h.line(1, "subscription validate orders bus"), "has no handshake: its destination is a Service")
	require.Contains(t, h.line(0, "subscription test-delivery orders bus"), "The sample event is delivery ")
	h.line(0, "subscription update orders bus --description changed")

	require.NotContains(t, h.line(0, "subscription show orders bus -o json"), "planted")
	shown := h.object("subscription", "show", "orders", "bus")
	for _, readOnly := range []string{
		"createdAt", "endpointBaseUrl", "etag", "hold", "hostRateLimit", "provisioningState", "throttling", "updatedAt",
		"validation", "signing",
	} {
		delete(shown, readOnly)
	}
	file := writtenFile(t, `{"subscriptions":[`+mustJSON(t, shown)+`]}`)
	require.Contains(t, h.line(0, "apply --dry-run -f "+file), "(0 to create, 0 to change, 0 to delete, 1 unchanged)",
		"what was read keeps the key")
	h.line(2, create+" --replace --endpoint https://other.servicebus.windows.net --entity-name orders")
	require.Equal(t, 1, h.Count(t, "SELECT count(*) FROM postrider.event_subscriptions WHERE destination_type = "+
		"'ServiceBusQueue' AND endpoint_base_url = 'servicebus://shop.servicebus.windows.net/orders'"))
}

// A list of Azure has no keys: a file has them. A changed key is shown as such.
func TestApplyOfAzuresDestinations(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	list := writtenFile(t, `[{"name":"bus","type":"Microsoft.EventGrid/eventSubscriptions",
		"topic":"/subscriptions/s/providers/Microsoft.EventGrid/topics/orders","eventDeliverySchema":"EventGridSchema",
		"destination":{"endpointType":"ServiceBusQueue","resourceId":"`+busID+`"}}]`)
	without := h.run(2, "apply", "-f", list, "--yes").stderr
	require.Contains(t, without, "use --connection-string bus=FILE")
	require.Contains(t, without, "destination.properties.primaryKey is required")
	connection := func(key string) string {
		return "bus=" + writtenFile(t, "Endpoint=sb://shop.servicebus.windows.net/;SharedAccessKeyName=send;SharedAccessKey="+
			key+"\n")
	}
	said := h.run(0, "apply", "-f", list, "--connection-string", connection("planted-one"), "--yes").stdout
	require.Contains(t, said, "    + destination.properties.primaryKey: \"***\"\n")
	require.Contains(t, said, "created subscription orders/bus")
	dryRun := h.run(0, "apply", "-f", list, "--connection-string", connection("planted-one"), "--dry-run")
	require.Contains(t, dryRun.stdout,
		"(0 to create, 0 to change, 0 to delete, 2 unchanged)")
	changed := h.run(3, "apply", "-f", list, "--connection-string", connection("planted-two"), "--dry-run").stdout
	require.Contains(t, changed, "    ~ destination.properties.primaryKey: \"***\" → \"*** (changed)\"\n")
	require.NotContains(t, said+changed, "planted")
	require.Contains(t, h.run(2, "apply", "-f", list, "--connection-string", "none="+list).stderr,
		"--connection-string none: the file has no event subscription none")
}
