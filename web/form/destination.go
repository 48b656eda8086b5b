package form

import (
	"strings"

	"postrider/internal/destination"
	"postrider/policy"
)

const properties = "destination.properties"

// examples replace the placeholders of some types' fields.
var examples = map[destination.Type]map[string]string{
	destination.StorageQueue: {
		"resourceId":       "/subscriptions/…/Microsoft.Storage/storageAccounts/shop/queueServices/default/queues/orders",
		"endpoint":         "https://shop.queue.core.windows.net",
		"connectionString": "DefaultEndpointsProtocol=https;AccountName=…;AccountKey=…",
	},
	destination.ServiceBusTopic: {
		"resourceId": "/subscriptions/…/providers/Microsoft.ServiceBus/namespaces/shop/topics/orders",
	},
	destination.EventHub: {
		"resourceId": "/subscriptions/…/providers/Microsoft.EventHub/namespaces/shop/eventhubs/orders",
	},
	destination.HybridConnection: {
		"resourceId": "/subscriptions/…/providers/Microsoft.Relay/namespaces/shop/hybridConnections/orders",
	},
	destination.NatsJetStream: {"servers": "nats-1.example.com:4222"},
}

const messageSize = properties + ".maxMessageSizeInKilobytes"

// defaults replace the defaults of some types' fields.
var defaults = map[destination.Type]map[string]string{
	destination.ServiceBusQueue: {messageSize: "256"},
	destination.ServiceBusTopic: {messageSize: "256"},
	destination.EventHub: {
		messageSize:                     "1024",
		"maxEventsPerBatch":             "100; 10 if only the batch size is set",
		"preferredBatchSizeInKilobytes": "192; 64 if events per batch are set",
	},
	destination.Kafka:         {messageSize: "the broker's"},
	destination.NatsJetStream: {messageSize: "the server's"},
}

// AttributesLabel is what a type of destination calls the values of deliveryAttributeMappings.
func AttributesLabel(kind destination.Type) string {
	if AttributeLabel(kind) == "Property" {
		return "Message properties"
	}
	return "Headers"
}

// AttributeLabel is what it calls one of them.
func AttributeLabel(kind destination.Type) string {
	switch kind {
	case destination.ServiceBusQueue, destination.ServiceBusTopic, destination.EventHub:
		return "Property"
	default:
		return "Header"
	}
}

// ForDestination changes the texts of a field that are about webhooks or another type. stored: it is a secret that is
// kept if the field is empty.
func (f *Field) ForDestination(kind destination.Type, stored bool) {
	if example, ok := examples[kind][strings.TrimPrefix(f.Name, properties+".")]; ok {
		f.Placeholder = example
	}
	if text, ok := defaults[kind][f.Name]; ok {
		f.Hint, _, _ = strings.Cut(f.Hint, " Default: ")
		f.Hint += " Default: " + text + "."
	}
	switch f.Name {
	case properties + ".password":
		if kind == destination.Kafka {
			f.Hint = "Password at the broker. It is not shown again."
		}
	case "endpointValidation":
		f.Hint = "required: saving checks that the target exists and accepts the credentials. skip: nothing is " +
			"checked. Default: required."
	case "endpointKind":
		f.Hint = strings.Replace(f.Hint, string(policy.KindWebhook), string(policy.KindAzureResource), 1)
	case "deliveryAttributeMappings":
		f.Label = AttributesLabel(kind)
		f.Hint = strings.Replace(f.Hint, "Headers", f.Label, 1)
	}
	if stored {
		f.Placeholder, f.Hint = "stored", "Leave empty to keep the stored one. "+f.Hint
	}
}
