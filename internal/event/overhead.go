package event

import "time"

// Size returns the bytes of a delivery that come from the event: those of Body, for a custom event those of its
// envelope's strings, which a conversion writes next to the body, and without CloudEvents those of Source.
func (e *Event) Size() int {
	size := len(e.Body)
	if e.Schema == Custom {
		size += quotedLen(e.ID) + quotedLen(e.Type) + quotedLen(e.Subject) + quotedLen(e.DataVersion)
	}
	if e.Schema != CloudEvents {
		size += quotedLen(e.Source)
	}
	return size
}

// quotedLen is the length of s in a JSON string, without its quotes.
func quotedLen(s string) int {
	n := len(s)
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			n++
		case c < ' ':
			n += len(`\u0000`) - 1
		}
	}
	return n
}

// Overhead returns the most bytes that a delivery of an event has more than its Size: the members that AppendDelivery
// adds, with their commas. Batches are cut with it, without reading the events' bodies.
func Overhead(input, delivery Schema, topicName string) int {
	path := topicPath(topicName)
	comma := []byte{','}
	switch {
	case delivery == CustomInput, input == CloudEvents:
		return 0
	case input == Custom:
		// A converted custom event without Size. No time is longer than one with nanoseconds.
		e := &Event{
			Schema: Custom, Subject: "s", DataVersion: "1", Time: time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC),
		}
		if delivery == CloudEvents { // leaves the two strings out if they are empty
			return len(appendMappedCloudEvent(nil, e, path)) - e.Size()
		}
		return len(appendMapped(nil, e, path)) - e.Size()
	case delivery == CloudEvents:
		return len(appendMembers(comma, "specversion", specVersion, "source", path, "datacontenttype", mediaJSON)) - 1
	}
	return len(appendMembers(comma, memberTopic, path, memberMetadataVersion, metadataVersion, memberDataVersion, "")) - 1
}
