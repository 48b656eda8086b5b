package web

import (
	"encoding/json"
	"strings"

	"postrider/internal/catalog"
	"postrider/internal/catalog/spec"
	"postrider/internal/destination"
	"postrider/policy"
	"postrider/web/display"
	"postrider/web/form"
)

// target is where an event subscription delivers to. Kind is the type in words; "" for a URL, or if consumers receive
// the events.
type target struct{ Kind, URL string }

// target returns the target of an event subscription. url is what was stored with an object, which may be that of an
// earlier destination; "" = the current one.
func (p *pages) target(topic, subscription, url string) target {
	snapshot := p.Parts.Cache.Snapshot()
	if of, known := snapshot.Topic(topic); known {
		sub, known := snapshot.SubscriptionNamed(of.ID, subscription)
		if known && (url == "" || url == sub.EndpointBaseURL) {
			return targetOf(sub)
		}
	}
	return target{Kind: destination.TargetWords(url), URL: url}
}

func targetOf(sub *catalog.Subscription) target {
	if sub.Destination.IsWebHook() {
		return target{URL: sub.EndpointBaseURL}
	}
	return target{Kind: sub.Destination.Type().Words(), URL: sub.EndpointBaseURL}
}

// destinationFacts are the properties of a destination that are set, without secrets.
func destinationFacts(sub *catalog.Subscription) (facts []display.Fact) {
	text, err := json.Marshal(map[string]any{"destination": sub.Destination})
	for i := range spec.Subscription {
		s := &spec.Subscription[i]
		if value := spec.At(text, s.Name); err != nil || s.Section != spec.Destination || value == nil || s.Of == nil {
			continue
		} else if s.Secret {
			facts = append(facts, display.Fact{Label: s.Label, Text: "stored"})
		} else {
			facts = append(facts, display.Fact{Label: s.Label, Text: form.TextOf(s, value)})
		}
	}
	return facts
}

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

const messageSize = propertiesSetting + ".maxMessageSizeInKilobytes"

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

const headersLabel = "Headers"

// attributesLabel is what a type of destination calls the values of deliveryAttributeMappings.
func attributesLabel(kind destination.Type) string {
	switch kind {
	case destination.ServiceBusQueue, destination.ServiceBusTopic, destination.EventHub:
		return "Message properties"
	default:
		return headersLabel
	}
}

// dependentOnType changes fields whose texts are about webhooks.
func (s *subscriptionForm) dependentOnType(kind destination.Type, field *form.Field) {
	if example, ok := examples[kind][strings.TrimPrefix(field.Name, propertiesSetting+".")]; ok {
		field.Placeholder = example
	}
	if text, ok := defaults[kind][field.Name]; ok {
		field.Hint, _, _ = strings.Cut(field.Hint, " Default: ")
		field.Hint += " Default: " + text + "."
	}
	if s.secrets[field.Name] && kind == s.was {
		field.Placeholder, field.Hint = "stored", "Leave empty to keep the stored one. "+field.Hint
	}
	switch field.Name {
	case propertiesSetting + ".password":
		if kind == destination.Kafka {
			field.Hint = "Password at the broker. It is not shown again."
		}
	case "endpointValidation":
		field.Hint = "required: saving checks that the target exists and accepts the credentials. skip: nothing is " +
			"checked. Default: required."
	case "endpointKind":
		field.Hint = strings.Replace(field.Hint, string(policy.KindWebhook), string(policy.KindAzureResource), 1)
	case headerList:
		field.Label = attributesLabel(kind)
		field.Hint = strings.Replace(field.Hint, "Headers", field.Label, 1)
		if field.Label != headersLabel {
			s.list(headerList).row = "Property"
		}
	}
}
