package event

import "time"

// What Event Grid itself tells an endpoint. Source: Microsoft, Azure Event Grid schemas of subscription validation and
// deletion (@azure/eventgrid's models), and Endpoint validation with Event Grid event schema, 2024-09-25.
const (
	typeValidation = "Microsoft.EventGrid.SubscriptionValidationEvent"
	typeDeleted    = "Microsoft.EventGrid.SubscriptionDeletedEvent"
)

// SystemEvent is an event that the service sends of itself.
type SystemEvent struct {
	ID           string
	Topic        string // name
	Subscription string // name of the event subscription
	Time         time.Time
}

// ValidationBody is the body of a validation event: an array of one, in the Event Grid schema.
func ValidationBody(e SystemEvent, code, validationURL string) []byte {
	data := appendMember([]byte{'{'}, true, "validationCode", code)
	data = append(appendMember(data, false, "validationUrl", validationURL), '}')
	return append(appendSystemEvent([]byte{'['}, e, typeValidation, data), ']')
}

// DeletedBody is the body that says that an event subscription was deleted: an array of one, or one CloudEvent.
func DeletedBody(e SystemEvent, delivery Schema) []byte {
	id := Envelope{Topic: e.Topic}.Path() + "/eventSubscriptions/" + e.Subscription
	data := append(appendMember([]byte{'{'}, true, "eventSubscriptionId", id), '}')
	if delivery == CloudEvents {
		return appendSystemCloudEvent(nil, e, typeDeleted, data)
	}
	return append(appendSystemEvent([]byte{'['}, e, typeDeleted, data), ']')
}

func appendSystemEvent(dst []byte, e SystemEvent, eventType string, data []byte) []byte {
	dst = appendMember(append(dst, '{'), true, "id", e.ID)
	dst = appendMember(dst, false, memberTopic, Envelope{Topic: e.Topic}.Path())
	dst = appendMember(dst, false, "subject", "")
	dst = append(append(dst, `,"data":`...), data...)
	dst = appendMember(dst, false, "eventType", eventType)
	dst = appendMember(dst, false, "eventTime", e.Time.UTC().Format(time.RFC3339Nano))
	dst = appendMember(dst, false, memberMetadataVersion, metadataVersion)
	return append(appendMember(dst, false, "dataVersion", "1"), '}')
}

func appendSystemCloudEvent(dst []byte, e SystemEvent, eventType string, data []byte) []byte {
	dst = appendMember(append(dst, '{'), true, "specversion", specVersion)
	dst = appendMember(dst, false, "id", e.ID)
	dst = appendMember(dst, false, "source", Envelope{Topic: e.Topic}.Path())
	dst = appendMember(dst, false, "type", eventType)
	dst = appendMember(dst, false, "time", e.Time.UTC().Format(time.RFC3339Nano))
	dst = appendMember(dst, false, "datacontenttype", mediaJSON)
	return append(append(append(dst, `,"data":`...), data...), '}')
}
