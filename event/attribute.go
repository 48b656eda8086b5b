package event

import (
	"math"
	"strings"
)

// gridNames are the names that filters know the Event Grid envelope by. Case does not matter: Event Grid's own pages write
// Subject and subject. Source: Microsoft, Event filtering for Azure Event Grid, 2022-09.
var gridNames = [...]string{"id", memberTopic, "subject", "eventType", "eventTime", "dataVersion", memberMetadataVersion, "data"}

func gridName(name string) string {
	for _, known := range gridNames {
		if strings.EqualFold(known, name) {
			return known
		}
	}
	return ""
}

// Attribute returns the JSON text of a part of the event as a filter's key names it, without what follows the key's first dot:
// a member of the envelope, or data. ok is false when the event has none. Case does not matter in the envelope's names.
//
// An Event Grid event has the members of its schema and no other. A CloudEvent has its attributes, extension attributes
// included, and data; data_base64 is found under that name alone. A custom event has the members of the Event Grid schema from
// its mapping, the whole object as data, and else its own top-level members, letter for letter.
// Source: Microsoft, Event filtering for Azure Event Grid, 2022-09, "Key".
//
// topic is known only if the publisher said it; Envelope.Attribute always knows it. The text must not be changed.
func (e *Event) Attribute(name string) (raw []byte, ok bool) {
	switch e.Schema {
	case CloudEvents:
		return find(e.Body, strings.ToLower(name))
	case Custom:
		return e.mappedAttribute(name)
	default:
		return e.gridAttribute(gridName(name))
	}
}

// Attribute is Event.Attribute with the topic that the server knows. Its path is the topic of every Event Grid and custom event,
// also of one that gives the topic by its name: a filter need not know how each publisher writes it.
func (v Envelope) Attribute(e *Event, name string) (raw []byte, ok bool) {
	if e.Schema != CloudEvents && strings.EqualFold(name, memberTopic) {
		return appendQuoted(nil, v.Path()), true
	}
	return e.Attribute(name)
}

func (e *Event) gridAttribute(name string) (raw []byte, ok bool) {
	if name == "" {
		return nil, false
	}
	raw, ok = find(e.Body, name)
	if name == memberMetadataVersion && (!ok || raw[0] == 'n') {
		return appendQuoted(nil, metadataVersion), true
	}
	return raw, ok
}

func (e *Event) mappedAttribute(name string) (raw []byte, ok bool) {
	text := ""
	switch gridName(name) {
	case "data":
		return e.Body, true
	case "id":
		text = e.ID
	case "subject":
		return appendQuoted(nil, e.Subject), true
	case "eventType":
		text = e.Type
	case "eventTime":
		if !e.Time.IsZero() {
			text = wholeTime(e.Time)
		}
	case "dataVersion":
		text = e.DataVersion
	case memberMetadataVersion:
		text = metadataVersion
	case memberTopic:
	default:
		return find(e.Body, name)
	}
	if text == "" {
		return nil, false
	}
	return appendQuoted(nil, text), true
}

// find returns the text of a top-level member of an object that was accepted, reading no further than to its end.
func find(object []byte, name string) (value []byte, ok bool) {
	s := scanner{src: object, maxDepth: math.MaxInt} // the depth was judged when the event was accepted
	if s.peek() != '{' {
		return nil, false
	}
	s.pos++
	for s.space() == '"' {
		m, ok := s.member(1)
		if !ok {
			return nil, false
		}
		if found, _ := unescape(m.name); string(found) == name {
			return object[m.value.start:m.value.end], true
		}
		if s.space() != ',' {
			return nil, false
		}
		s.pos++
	}
	return nil, false
}
