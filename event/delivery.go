package event

import (
	"errors"
	"fmt"
)

const utf8Parameter = "; charset=utf-8"

// ContentType returns the Content-Type of a delivery. An Event Grid delivery, or one as received, is an array with or
// without batching and has one type; CloudEvents have a type for one event and one for a batch. Nothing is delivered in
// binary mode. Source: Microsoft, CloudEvents v1.0 schema with Azure Event Grid, 2021-07-22, and support for
// CloudEvents schema, 2024-09-25; CNCF, JSON event format 1.0.2, section 4.2.
func ContentType(delivery Schema, batched bool) string {
	switch {
	case delivery != CloudEvents:
		return mediaJSON + utf8Parameter
	case batched:
		return mediaBatch + utf8Parameter
	}
	return mediaStructured + utf8Parameter
}

// deliverable says what may be delivered as what. A CloudEvent cannot become an Event Grid event, which has no place
// for its extension attributes, and as received only a custom event is delivered by that name. Source: Microsoft,
// Endpoint validation with Event Grid event schema, 2024-09-25, "Event schema compatibility".
var deliverable = [...]struct{ input, delivery Schema }{
	{EventGrid, EventGrid},
	{EventGrid, CloudEvents},
	{CloudEvents, CloudEvents},
	{Custom, EventGrid},
	{Custom, CloudEvents},
	{Custom, CustomInput},
}

// CanDeliver reports whether events of the input schema can be delivered in the delivery schema.
func CanDeliver(input, delivery Schema) bool {
	for _, d := range deliverable {
		if d.input == input && d.delivery == delivery {
			return true
		}
	}
	return false
}

// Deliveries returns the schemas in which events of the input schema can be delivered, Event Grid's own first; none for
// what is no input schema.
func Deliveries(input Schema) (delivery []Schema) {
	for _, d := range deliverable {
		if d.input == input {
			delivery = append(delivery, d.delivery)
		}
	}
	return delivery
}

// MetadataVersion returns the version of a delivery's envelope, for the header aeg-metadata-version: CloudEvents'
// specversion, "1" for the other schemas. Source: Microsoft, Event Grid message delivery headers (include
// event-grid-message-headers).
func MetadataVersion(delivery Schema) string {
	if delivery == CloudEvents {
		return specVersion
	}
	return metadataVersion
}

// Body appends the body of one delivery to dst. An Event Grid body is always an array, and so is one as received; a
// CloudEvents body is one object, or an array when batched: endpoints built on the CloudEvents SDKs refuse an array
// under the type of a single event. batched changes nothing about the other bodies. It fails, returning dst unchanged,
// on no event, on several CloudEvents not batched, and wherever AppendDelivery does.
func Body(dst []byte, events []*Event, topicName string, delivery Schema, batched bool) ([]byte, error) {
	lone := delivery == CloudEvents && !batched
	switch {
	case len(events) == 0:
		return dst, errors.New("delivery body: no event")
	case lone && len(events) > 1:
		return dst, fmt.Errorf("delivery body: %d CloudEvents, but not batched", len(events))
	case lone:
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

// AppendDelivery appends one event to dst as it stands in a delivery's body, without the array's brackets. It reads
// Schema and Body of e alone, and of a custom event that is converted also ID, Type, Subject, Time and DataVersion: the
// mapping they came by, or the moment, may be gone.
//
// Within a schema every byte is delivered as accepted, but for three members of the Event Grid schema: a missing
// `topic`, `metadataVersion` and `dataVersion` are added at the object's end, and written over null (or, for topic, "")
// where that stands. From Event Grid to CloudEvents the envelope is written anew and data is copied. A custom event is
// given an envelope and becomes its data whole. It fails, returning dst unchanged, when CanDeliver says no, when Body
// of an Event Grid event is not one JSON object, and when a custom event to convert has no ID or Time.
func AppendDelivery(dst []byte, e *Event, topicName string, delivery Schema) ([]byte, error) {
	if !CanDeliver(e.Schema, delivery) {
		return dst, fmt.Errorf("deliver event: no conversion from %q to %q", e.Schema, delivery)
	}
	if e.Schema == Custom {
		return appendCustom(dst, e, topicName, delivery)
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
	if twice := decodeNames(f.members); twice != nil {
		return dst, fmt.Errorf("deliver event: stored body has %q twice", shorten(string(twice)))
	}
	path := Envelope{Topic: topicName}.Path()
	if delivery == CloudEvents {
		return appendConverted(dst, &f, path), nil
	}
	return appendSpliced(dst, &f, path), nil
}

func appendCustom(dst []byte, e *Event, topicName string, delivery Schema) ([]byte, error) {
	if delivery == CustomInput {
		return append(dst, e.Body...), nil
	}
	if e.ID == "" {
		return dst, errors.New("deliver event: a custom event without its id")
	}
	// Its time may be the zero time.Time: 0001-01-01T00:00:00Z is what .NET writes where nobody has set one.
	path := Envelope{Topic: topicName}.Path()
	if delivery == CloudEvents {
		return appendMappedCloudEvent(dst, e, path), nil
	}
	return appendMapped(dst, e, path), nil
}

// filled are the members that a delivery in the Event Grid schema always has, with what is written where the publisher
// gave none. The topic's value is its path.
var filled = [...]struct{ name, value string }{
	{memberTopic, ""},
	{memberMetadataVersion, metadataVersion},
	{memberDataVersion, ""},
}

// appendSpliced writes the event with those of the filled members that it does not have.
func appendSpliced(dst []byte, f *fields, path string) []byte {
	fills, done := filled, 0
	fills[0].value = path
	var given [len(filled)]bool
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
	end := len(f.src) - 1
	dst = append(dst, f.src[done:end]...)
	first := len(f.members) == 0
	for i, fill := range fills {
		if !given[i] {
			dst, first = appendMember(dst, first, fill.name, fill.value), false
		}
	}
	return append(dst, f.src[end])
}

func appendMember(dst []byte, first bool, name, value string) []byte {
	if !first {
		dst = append(dst, ',')
	}
	dst = append(appendQuoted(dst, name), ':')
	return appendQuoted(dst, value)
}

// conversions are the members of an Event Grid event that become CloudEvents attributes, in the order they are written.
// dataVersion has no attribute of its own and travels as an extension. The source is the topic's path.
// Source: Microsoft, Use CloudEvents schema with Event Grid, 2018-11-07, mapping table; later pages have no table.
var conversions = [...]struct{ from, to string }{
	{"id", "id"},
	{"eventType", "type"},
	{"subject", "subject"},
	{"eventTime", "time"},
	{"dataVersion", "dataversion"},
}

// appendConverted writes an Event Grid event as a CloudEvent. Values are copied as they were written, escapes and all.
// An empty subject or dataVersion is left out: CloudEvents wants an attribute unset rather than empty.
func appendConverted(dst []byte, f *fields, path string) []byte {
	dst = append(dst, '{')
	dst = appendMember(dst, true, "specversion", specVersion)
	dst = appendMember(dst, false, "source", path)
	for _, c := range conversions {
		if value, ok := f.given(c.from); ok && len(value) > len(`""`) {
			dst = append(append(append(append(dst, `,"`...), c.to...), `":`...), value...)
		}
	}
	if data, ok := f.raw("data"); ok {
		dst = appendMember(dst, false, "datacontenttype", mediaJSON)
		dst = append(append(dst, `,"data":`...), data...)
	}
	return append(dst, '}')
}
