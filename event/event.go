package event

import "time"

// Schema names an event's envelope, for a topic's input and for an event subscription's delivery alike.
// The values are Event Grid's own (property inputSchema of a topic, eventDeliverySchema of an event subscription).
// Which input can be delivered as what: CanDeliver.
type Schema string

const (
	// EventGrid is the Event Grid schema: id, subject, eventType, eventTime, data, dataVersion, topic, metadataVersion.
	// Source: Microsoft, Azure Event Grid event schema, 2023-05-24.
	EventGrid Schema = "EventGridSchema"
	// CloudEvents is CloudEvents 1.0 in the JSON format.
	// Source: CNCF, CloudEvents 1.0.2 and its JSON event format.
	CloudEvents Schema = "CloudEventSchemaV1_0"
	// Custom is the publisher's own JSON, from which a topic's Mapping takes the envelope. It is an input schema alone.
	// Source: Microsoft, Map custom fields to Event Grid schema, 2021-09-28.
	Custom Schema = "CustomEventSchema"
	// CustomInput delivers a custom event as it was received. It is a delivery schema alone; same source.
	CustomInput Schema = "CustomInputSchema"
)

// Event is one accepted event. The strings are the decoded envelope, ready for filters, columns and headers: valid
// UTF-8 without NUL, CR or LF. Body is the truth: whatever a delivery needs is read from Schema and Body again, because
// the process that delivers is seldom the one that accepted. Only a custom event's body has no envelope: for that the
// strings and Time must be kept as well.
type Event struct {
	// Schema is the envelope Body is written in.
	Schema Schema
	// ID is the publisher's id; 1 to 1,024 bytes, not necessarily unique. A custom event has one from Input.NewID when the
	// topic's mapping names no field for it.
	ID string
	// Type is eventType (Event Grid, mapped) or type (CloudEvents); 1 to 1,024 bytes.
	Type string
	// Subject is at most 4,096 bytes; "" when a CloudEvent has none or an Event Grid event says "".
	Subject string
	// Source is CloudEvents' source, 1 to 1,024 bytes; "" for the other schemas, whose source is the topic.
	Source string
	// Time is eventTime or time in UTC, cut to nanoseconds; zero when a CloudEvent has none, and Input.Now when a custom
	// event has none because none is mapped.
	Time time.Time
	// DataVersion is Event Grid's dataVersion, as given or mapped, at most 1,024 bytes; "" when absent, and for
	// CloudEvents.
	DataVersion string
	// Body is the event's JSON object byte for byte as received. After Parse it shares memory with the request body.
	// A CloudEvent received in binary mode has none: Body is what ParseBinary made of it.
	Body []byte
	// Trace is the distributed trace that the event was published in; zero when there is none.
	Trace Trace
}

// Envelope is what the server knows of an event though its publisher need not say it.
type Envelope struct {
	// Topic is the topic's name, as in the publishing address.
	Topic string
}

// pathPrefix turns a topic's name into the value of `topic` and `source`. Event Grid writes the topic's resource id
// there, which starts with a slash too; ours ends where the publishing address does.
const pathPrefix = "/topics/"

// Path is "/topics/<name>": the value of `topic` in a delivered Event Grid event and of `source` in a converted one.
func (v Envelope) Path() string { return pathPrefix + v.Topic }

// names reports whether a publisher's `topic` means this topic: its name or its path, letter for letter.
func (v Envelope) names(topic []byte) bool {
	if len(topic) == len(pathPrefix)+len(v.Topic) && string(topic[:len(pathPrefix)]) == pathPrefix {
		topic = topic[len(pathPrefix):]
	}
	return string(topic) == v.Topic
}

// Limits bounds one publish request. A field that is zero or less takes its value from DefaultLimits.
type Limits struct {
	// MaxEvents is the most events in one request; more is a 413.
	MaxEvents int
	// MaxEventBytes is the most bytes of one event, from brace to brace; more is a 413.
	MaxEventBytes int
	// MaxDepth is how deep objects and arrays may nest, the event's own object counting as 1; deeper is a 400.
	MaxDepth int
}

// DefaultLimits are Event Grid's 5,000 events per request (Microsoft, Azure Event Grid quotas and limits) and 1 MB per
// event (Microsoft, Azure Event Grid event schema, 2023-05-24; read as 1 MiB), and our own 256 levels: no honest event
// comes near it, and every reader downstream can still recurse.
func DefaultLimits() Limits {
	return Limits{MaxEvents: 5000, MaxEventBytes: 1 << 20, MaxDepth: 256}
}

func (l Limits) withDefaults() Limits {
	d := DefaultLimits()
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
