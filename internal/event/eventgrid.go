package event

import (
	"bytes"
	"strings"

	"postrider/internal/jsonscan"
)

// Members of the Event Grid schema that postrider writes if the publisher does not.
const (
	memberTopic           = "topic"
	memberMetadataVersion = "metadataVersion"
	memberDataVersion     = "dataVersion"
	// metadataVersion is the version of the envelope; "1" is the only one.
	metadataVersion = "1"
)

// gridMembers are the members of the Event Grid schema.
var gridMembers = [...]string{
	"id", "subject", "eventType", "eventTime", "data", memberDataVersion, memberTopic, memberMetadataVersion,
}

// readEventGrid fills e from an event in the Event Grid schema. It ignores unknown members. Source: Microsoft, Azure
// Event Grid event schema, 2023-05-24: id, subject, eventType and eventTime are required, data and dataVersion are not.
// The page does not say whether a subject may be empty; Event Grid's own validation event has an empty one.
//
// Names in any letter case and numbers as texts are accepted: samples of Microsoft publish both. Body then gets the
// usual form, so that whatever reads it later knows only that one.
func readEventGrid(f *fields, in *Input, e *Event) {
	f.useUsualNames()
	e.ID = string(f.scalar("id", required))
	e.Subject = string(f.scalar("subject", requiredLongOrEmpty))
	e.Type = string(f.scalar("eventType", required))
	e.Time = f.isoTime("eventTime", f.scalar("eventTime", required))
	e.DataVersion = string(f.scalar(memberDataVersion, optionalOrEmpty))
	// The same page: if included, topic and metadataVersion must match what the server writes.
	if text := f.scalar(memberTopic, optionalOrEmpty); len(text) > 0 && !isTopic(text, in.Topic) {
		if e.Source = string(text); !in.AnyTopic {
			f.reject(memberTopic, "must be absent, empty, %q or %q", in.Topic, topicPath(in.Topic))
		}
	}
	if text := f.scalar(memberMetadataVersion, optionalOrEmpty); text != nil && string(text) != metadataVersion {
		f.reject(memberMetadataVersion, "must be absent or %q", metadataVersion)
	}
	if f.unusual && f.err == nil {
		e.Body = usualForm(e.Body)
	}
}

// usualName returns the schema's spelling of a member's name, whose letter case does not matter; "" for other names.
// Names of equal length differ in the case of a-z only: other letters that fold to these have more bytes.
func usualName(name []byte) string {
	for _, usual := range gridMembers {
		if len(usual) == len(name) && (string(name) == usual || strings.EqualFold(string(name), usual)) {
			return usual
		}
	}
	return ""
}

// useUsualNames gives the members the names of the schema, and rejects two spellings of one name.
func (f *fields) useUsualNames() {
	for i := range f.members {
		name := f.members[i].name
		usual := usualName(name)
		if usual == "" || usual == string(name) {
			continue
		}
		for k, other := range f.members {
			if k != i && usualName(other.name) == usual {
				f.reject(string(name), "is the same member as %q: send one of them", other.name)
				return
			}
		}
		f.members[i].name, f.unusual = []byte(usual), true
	}
}

// usualForm returns an event with the schema's spelling of its members and with strings for their numbers. All other
// bytes stay.
func usualForm(body []byte) []byte {
	usual := make([]byte, 0, len(body)+len(gridMembers)*len(`""`))
	s, done := jsonscan.Scanner{Text: body}, 0
	s.Object(func(raw []byte) bool {
		start := s.Pos
		s.Value()
		decoded, _ := jsonscan.Unescape(raw)
		name := usualName(decoded)
		if name != "" && name != string(decoded) {
			// Between a name and its value are only a quote, a colon and white space.
			end := bytes.LastIndexByte(body[:bytes.LastIndexByte(body[:start], ':')], '"')
			usual = append(append(usual, body[done:end-len(raw)]...), name...)
			done = end
		}
		if name != "" && name != "data" && (body[start] == '-' || isDigit(body[start])) {
			usual = append(append(append(usual, body[done:start]...), '"'), body[start:s.Pos]...)
			usual = append(usual, '"')
			done = s.Pos
		}
		return true
	})
	return append(usual, body[done:]...)
}
