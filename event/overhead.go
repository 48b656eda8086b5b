package event

import "time"

// Size returns how many bytes of a delivery the event itself accounts for, without what Overhead adds: Body's, and for
// a custom event also those of its envelope's strings, which a conversion writes beside the body.
func (e *Event) Size() int {
	size := len(e.Body)
	if e.Schema == Custom {
		size += quotedLen(e.ID) + quotedLen(e.Type) + quotedLen(e.Subject) + quotedLen(e.DataVersion)
	}
	return size
}

// quotedLen is the length of s inside a JSON string.
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

// Overhead returns how many bytes a delivery of an event may have more than its Size: the members that AppendDelivery
// writes by itself, with their commas. It is an upper bound, reached by an event that has none of them; what decides
// how many events fit into one request need not read their bodies for it.
func Overhead(input, delivery Schema, topicName string) int {
	path := Envelope{Topic: topicName}.Path()
	var added []byte
	switch {
	case delivery == CustomInput, input == CloudEvents:
		return 0
	case input == Custom:
		return customOverhead(delivery, path)
	case delivery == CloudEvents:
		added = appendMember(added, false, "specversion", specVersion)
		added = appendMember(added, false, "source", path)
		added = appendMember(added, false, "datacontenttype", mediaJSON)
	default:
		added = appendMember(added, false, memberTopic, path)
		added = appendMember(added, false, memberMetadataVersion, metadataVersion)
		added = appendMember(added, false, memberDataVersion, "")
	}
	return len(added)
}

// customOverhead is the length of a converted custom event of no Size. No time is longer than one with nanoseconds.
func customOverhead(delivery Schema, path string) int {
	e := &Event{
		Schema: Custom, Subject: "s", DataVersion: "1", Time: time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC),
	}
	if delivery == CloudEvents { // which would leave the two strings out if they were empty
		return len(appendMappedCloudEvent(nil, e, path)) - e.Size()
	}
	return len(appendMapped(nil, e, path)) - e.Size()
}
