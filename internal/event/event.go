// Package event reads published requests into events (Event Grid schema, CloudEvents 1.0, custom JSON with a mapping)
// and writes events as the body of a delivery. It is pure: it uses no clock, network, database or random number; the id
// and the time that a custom event may lack are arguments. It never changes the bytes of an event's data.
package event

import "time"

// Schema is the schema of an event's envelope, in a topic's input and in deliveries. The values are Event Grid's own
// (inputSchema of a topic, eventDeliverySchema of an event subscription). See CanDeliver for the conversions.
type Schema string

const (
	// EventGrid is the Event Grid schema: id, subject, eventType, eventTime, data, dataVersion, topic, metadataVersion.
	// Source: Microsoft, Azure Event Grid event schema, 2023-05-24.
	EventGrid Schema = "EventGridSchema"
	// CloudEvents is CloudEvents 1.0 in the JSON format.
	// Source: CNCF, CloudEvents 1.0.2 and its JSON event format.
	CloudEvents Schema = "CloudEventSchemaV1_0"
	// Custom is the publisher's own JSON, whose envelope a topic's Mapping names. It is only an input schema.
	// Source: Microsoft, Map custom fields to Event Grid schema, 2021-09-28.
	Custom Schema = "CustomEventSchema"
	// CustomInput delivers a custom event as received. It is only a delivery schema; same source.
	CustomInput Schema = "CustomInputSchema"
)

// Event is one accepted event. The strings are the decoded envelope for filters, columns and headers: valid UTF-8
// without NUL, CR or LF. Deliveries read Schema and Body again, usually in another process. The body of a custom event
// has no envelope, so its strings and Time are stored as well.
type Event struct {
	// Schema is the envelope Body is written in.
	Schema Schema
	// ID is the publisher's id; 1 to 1,024 bytes, not necessarily unique. It is from Input.NewID if a custom event's
	// mapping names no field for it.
	ID string
	// Type is eventType (Event Grid, mapped) or type (CloudEvents); 1 to 1,024 bytes.
	Type string
	// Subject is at most 4,096 bytes; "" if a CloudEvent has none or it is "".
	Subject string
	// Source is CloudEvents' source, 1 to 1,024 bytes. For the other schemas it is the `topic` of an event that a relay
	// topic accepted for another topic, up to 1,024 bytes; "" for all others, whose source is the topic.
	Source string
	// Time is eventTime or time in UTC, cut to nanoseconds; zero if a CloudEvent has none, and Input.Now if a custom
	// event's mapping names no field for it.
	Time time.Time
	// DataVersion is Event Grid's dataVersion, as given or mapped, at most 1,024 bytes; "" if absent, and for
	// CloudEvents.
	DataVersion string
	// Body is the event's JSON, byte for byte as received. After Parse it shares memory with the request body. Of a
	// CloudEvent in binary mode it is what parseBinary wrote. In the Event Grid schema, the names of its members have
	// their usual letter case and its texts are strings, whatever was received.
	Body []byte
	// Trace is the distributed trace that the event was published in; zero if there is none.
	Trace Trace
}

// pathPrefix precedes a topic's name in `topic` and `source`. Event Grid writes the topic's resource id there, which
// starts with a slash too; ours is the path that events are published to.
const pathPrefix = "/topics/"

// topicPath is "/topics/<name>": the value of `topic` in a delivered Event Grid event and of `source` in a converted
// one.
func topicPath(topic string) string { return pathPrefix + topic }

// TopicOf is the topic that an event of a topic names in its deliveries: that of Source, or the topic's path. Source of
// a CloudEvent names no topic.
func (e *Event) TopicOf(topic string) string {
	if e.Source != "" && e.Schema != CloudEvents {
		return e.Source
	}
	return topicPath(topic)
}

// isTopic reports whether a publisher's `topic` is this topic: its exact name or path.
func isTopic(text []byte, topic string) bool {
	if len(text) == len(pathPrefix)+len(topic) && string(text[:len(pathPrefix)]) == pathPrefix {
		text = text[len(pathPrefix):]
	}
	return string(text) == topic
}

// Limits bounds one publish request. A field that is zero or less takes its value from DefaultLimits.
type Limits struct {
	// MaxEvents is the most events in one request; otherwise 413.
	MaxEvents int
	// MaxEventBytes is the most bytes of one event as it is stored, from brace to brace; otherwise 413.
	MaxEventBytes int
	// MaxDepth is the most nested objects and arrays, the event's own object counting as 1; otherwise 400.
	MaxDepth int
}

// DefaultLimits are Event Grid's 5,000 events per request (Microsoft, Azure Event Grid quotas and limits) and 1 MB per
// event (Microsoft, Azure Event Grid event schema, 2023-05-24; read as 1 MiB), and our own 256 levels, which protect
// recursive readers.
func DefaultLimits() Limits {
	return Limits{MaxEvents: 5000, MaxEventBytes: 1 << 20, MaxDepth: 256}
}

// MaxRelayedBytes is the most bytes of an event, and of a request, on a relay topic. Event Grid accepts a little more
// than 1 MiB, and adds members and the array to it. Its preferredBatchSizeInKilobytes is 1,024 at most.
const MaxRelayedBytes = 2 << 20

func (l Limits) withDefaults(anyTopic bool) Limits {
	d := DefaultLimits()
	if anyTopic {
		d.MaxEventBytes = MaxRelayedBytes
	}
	if l.MaxEvents <= 0 {
		l.MaxEvents = d.MaxEvents
	}
	if l.MaxEventBytes <= 0 {
		l.MaxEventBytes = d.MaxEventBytes
	}
	if l.MaxDepth <= 0 {
		l.MaxDepth = d.MaxDepth
	}
	return l
}
