package event

import (
	"errors"
	"fmt"
	"slices"

	"postrider/internal/jsonscan"
)

const utf8Parameter = "; charset=utf-8"

// ContentType returns the Content-Type of a delivery. CloudEvents have a type for one event and one for a batch; the
// other schemas are always an array with one type. There are no deliveries in binary mode. Source: Microsoft,
// CloudEvents v1.0 schema with Azure Event Grid, 2021-07-22, and support for CloudEvents schema, 2024-09-25; CNCF, JSON
// event format 1.0.2, section 4.2.
func ContentType(delivery Schema, batched bool) string {
	if delivery != CloudEvents {
		return mediaJSON + utf8Parameter
	}
	if batched {
		return mediaBatch + utf8Parameter
	}
	return mediaStructured + utf8Parameter
}

// deliverable are the conversions. A CloudEvent cannot become an Event Grid event, which has no members for extension
// attributes, and only custom events are delivered as received. Source: Microsoft, Endpoint validation with Event Grid
// event schema, 2024-09-25, "Event schema compatibility".
var deliverable = map[Schema][]Schema{
	EventGrid:   {EventGrid, CloudEvents},
	CloudEvents: {CloudEvents},
	Custom:      {EventGrid, CloudEvents, CustomInput},
}

// CanDeliver reports whether events of the input schema can be delivered in the delivery schema.
func CanDeliver(input, delivery Schema) bool { return slices.Contains(Deliveries(input), delivery) }

// Deliveries returns the schemas in which events of the input schema can be delivered, Event Grid's first.
func Deliveries(input Schema) []Schema { return deliverable[input] }

// MetadataVersion returns the version of a delivery's envelope for the header aeg-metadata-version: CloudEvents'
// specversion, "1" for the other schemas. Source: Microsoft, Event Grid message delivery headers (include
// event-grid-message-headers).
func MetadataVersion(delivery Schema) string {
	if delivery == CloudEvents {
		return specVersion
	}
	return metadataVersion
}

// Body appends the body of one delivery to dst. A CloudEvents body is one object, or an array if batched: CloudEvents
// SDKs reject an array under the type of a single event. Other bodies are always an array. It fails, returning dst
// unchanged, without events, for several CloudEvents that are not batched, and if AppendDelivery fails.
func Body(dst []byte, events []*Event, topicName string, delivery Schema, batched bool) ([]byte, error) {
	single := delivery == CloudEvents && !batched
	dst = slices.Grow(dst, bodySize(events, topicName))
	switch {
	case len(events) == 0:
		return dst, errors.New("delivery body: no event")
	case single && len(events) > 1:
		return dst, fmt.Errorf("delivery body: %d CloudEvents, but not batched", len(events))
	case single:
		return AppendDelivery(dst, events[0], topicName, delivery)
	}
	body := dst
	body = append(body, '[')
	for i, e := range events {
		if i > 0 {
			body = append(body, ',')
		}
		var err error
		if body, err = AppendDelivery(body, e, topicName, delivery); err != nil {
			return dst, fmt.Errorf("delivery body: event %d: %w", i, err)
		}
	}
	return append(body, ']'), nil
}

// bodySize is enough for most bodies: a schema conversion or added members take less than addedBytes and the topic.
func bodySize(events []*Event, topicName string) int {
	const addedBytes = 128
	size := 2
	for _, e := range events {
		size += len(e.Body) + len(topicName) + addedBytes
	}
	return size
}

// AppendDelivery appends one event to dst as it is in a delivery's body, without the array's brackets. It reads Schema,
// Body and Source of e; of a custom event that is converted also ID, Type, Subject, Time and DataVersion, because the
// mapping may have been deleted.
//
// Within a schema it keeps every byte, with one exception: in the Event Grid schema it adds missing `topic`,
// `metadataVersion` and `dataVersion` at the object's end, and replaces null (or, of topic, ""). From Event Grid to
// CloudEvents it writes a new envelope and copies data. A custom event gets an envelope and becomes its data. It fails,
// returning dst unchanged, if CanDeliver is false, if the Body of an Event Grid event is not one JSON object, and if a
// custom event to convert has no ID.
func AppendDelivery(dst []byte, e *Event, topicName string, delivery Schema) ([]byte, error) {
	if !CanDeliver(e.Schema, delivery) {
		return dst, fmt.Errorf("deliver event: no conversion from %q to %q", e.Schema, delivery)
	}
	if e.Schema == Custom {
		if delivery == CustomInput {
			return append(dst, e.Body...), nil
		}
		if e.ID == "" {
			return dst, errors.New("deliver event: a custom event without an id")
		}
		// Its time may be the zero time.Time: .NET writes unset times as 0001-01-01T00:00:00Z.
		path := e.TopicOf(topicName)
		if delivery == CloudEvents {
			return appendMappedCloudEvent(dst, e, path), nil
		}
		return appendMapped(dst, e, path), nil
	}
	if e.Schema == CloudEvents {
		return append(dst, e.Body...), nil
	}
	var few [16]member
	members, at, problem := readObject(e.Body, 0, few[:0]) // the depth was checked when the event was accepted
	if problem != "" {
		return dst, fmt.Errorf("deliver event: stored body is not one JSON object at byte %d: %s", at, problem)
	}
	f := fields{src: e.Body, members: members}
	if duplicate := decodeNames(f.members); duplicate != nil {
		return dst, fmt.Errorf("deliver event: stored body has %q twice", shorten(string(duplicate)))
	}
	if delivery == CloudEvents {
		return appendConverted(dst, &f, e.TopicOf(topicName)), nil
	}
	return appendSpliced(dst, &f, topicPath(topicName)), nil
}

// appendSpliced writes the event with topic, metadataVersion and dataVersion added if the publisher did not set them.
func appendSpliced(dst []byte, f *fields, path string) []byte {
	fills := [...]struct{ name, value string }{
		{memberTopic, path}, {memberMetadataVersion, metadataVersion}, {memberDataVersion, ""},
	}
	var given [len(fills)]bool
	done := 0
	for _, m := range f.members {
		value := f.src[m.value.start:m.value.end]
		for i, fill := range fills {
			if string(m.name) != fill.name {
				continue
			}
			given[i] = true
			if value[0] == 'n' || fill.name == memberTopic && len(value) == len(`""`) {
				dst = appendQuoted(append(dst, f.src[done:m.value.start]...), fill.value)
				done = m.value.end
			}
		}
	}
	dst = append(dst, f.src[done:len(f.src)-1]...)
	comma := len(f.members) > 0
	for i, fill := range fills {
		if given[i] {
			continue
		}
		if comma {
			dst = append(dst, ',')
		}
		comma = true
		dst = appendQuoted(append(appendQuoted(dst, fill.name), ':'), fill.value)
	}
	return append(dst, '}')
}

// appendMembers appends names and string values in turn to an object in dst that is not yet closed.
func appendMembers(dst []byte, namesAndValues ...string) []byte {
	for pairs := namesAndValues; len(pairs) >= 2; pairs = pairs[2:] {
		if len(dst) > 0 && dst[len(dst)-1] != '{' {
			dst = append(dst, ',')
		}
		dst = append(appendQuoted(dst, pairs[0]), ':')
		dst = appendQuoted(dst, pairs[1])
	}
	return dst
}

// conversions are the members of an Event Grid event that become CloudEvents attributes, in the order in which they are
// written. dataVersion becomes an extension attribute. The source is TopicOf.
// Source: Microsoft, Use CloudEvents schema with Event Grid, 2018-11-07, mapping table; later pages have no table.
var conversions = [...]struct{ from, to string }{
	{"id", "id"},
	{"eventType", "type"},
	{"subject", "subject"},
	{"eventTime", "time"},
	{"dataVersion", "dataversion"},
}

// appendConverted writes an Event Grid event as a CloudEvent. Values are copied with their escapes; only a time that is
// not RFC 3339 is written anew. An empty subject or dataVersion is left out, because CloudEvents has no empty
// attributes. So are members that the Event Grid schema does not have.
func appendConverted(dst []byte, f *fields, path string) []byte {
	dst = appendMembers(append(dst, '{'), "specversion", specVersion, "source", path)
	for _, c := range conversions {
		if value, ok := f.given(c.from); ok && len(value) > len(`""`) {
			dst = append(append(append(dst, `,"`...), c.to...), `":`...)
			if c.to == "time" {
				dst = appendTime(dst, value)
			} else {
				dst = append(dst, value...)
			}
		}
	}
	if data, ok := f.raw("data"); ok {
		dst = appendMembers(dst, "datacontenttype", mediaJSON)
		dst = append(append(dst, `,"data":`...), data...)
	}
	return append(dst, '}')
}

// appendTime appends the string of an eventTime in the form of RFC 3339.
func appendTime(dst, value []byte) []byte {
	if text, _ := jsonscan.Unescape(value[1 : len(value)-1]); !isTimeShaped(text) {
		return appendQuoted(dst, string(usualTime(text)))
	}
	return append(dst, value...)
}
