package event

import "time"

// Types of events that Event Grid itself sends to an endpoint. Source: Microsoft, Azure Event Grid schemas of
// subscription validation and deletion (@azure/eventgrid's models), and Endpoint validation with Event Grid event
// schema, 2024-09-25.
const (
	typeValidation = "Microsoft.EventGrid.SubscriptionValidationEvent"
	typeDeleted    = "Microsoft.EventGrid.SubscriptionDeletedEvent"
)

// SystemEvent is an event about an event subscription that postrider itself sends.
type SystemEvent struct {
	ID           string
	Topic        string // name
	Subscription string // name of the event subscription
	Time         time.Time
}

// ValidationBody is the body of a validation event: an array of one, in the Event Grid schema.
func ValidationBody(e SystemEvent, code, validationURL string) []byte {
	data := append(appendMembers([]byte{'{'}, "validationCode", code, "validationUrl", validationURL), '}')
	return e.body(typeValidation, data, EventGrid)
}

// DeletedBody is the body of the event about a deleted event subscription: an array of one, or one CloudEvent.
func DeletedBody(e SystemEvent, delivery Schema) []byte {
	id := topicPath(e.Topic) + "/eventSubscriptions/" + e.Subscription
	return e.body(typeDeleted, append(appendMembers([]byte{'{'}, "eventSubscriptionId", id), '}'), delivery)
}

func (e *SystemEvent) body(eventType string, data []byte, delivery Schema) []byte {
	written := Event{ID: e.ID, Type: eventType, Time: e.Time, Body: data}
	if delivery == CloudEvents {
		return appendMappedCloudEvent(nil, &written, topicPath(e.Topic))
	}
	written.DataVersion = "1"
	return append(appendMapped([]byte{'['}, &written, topicPath(e.Topic)), ']')
}
