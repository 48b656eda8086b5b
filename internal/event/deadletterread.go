package event

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"postrider/internal/jsonscan"
)

// Members of a namespace topic's dead letter. Microsoft's pages have two spellings of the first in samples, and a third
// name in the text.
const (
	memberEvent            = "event"
	memberProperties       = "deadletterproperties"
	memberBrokerProperties = "brokerproperties"
	// memberCustomProperties are the headers that the endpoint would have received. They are no part of the event.
	memberCustomProperties = "customdeliveryproperties"
)

// SplitDeadLetters returns the texts of the dead letters in a file: one object, an array of objects, or one of these
// after another, as in NDJSON. They share memory with text. With an *Error, it returns those before the mistake.
func SplitDeadLetters(text []byte) (letters [][]byte, err error) {
	text = bytes.TrimPrefix(text, byteOrderMark)
	if !utf8.Valid(text) {
		wrong := firstInvalid(text)
		return nil, reject(statusBadRequest, CodeInvalidJSON, "it is not UTF-8: first wrong byte at %d", wrong).at(wrong)
	}
	s := jsonscan.Scanner{Text: text, MaxDepth: 2 * DefaultLimits().MaxDepth}
	var wrong *Error
	one := func() bool {
		start, first := s.Pos, s.Peek()
		if !s.Value() {
			return false
		}
		if first != '{' {
			wrong = reject(statusBadRequest, CodeInvalidEvent, "must be an object, is %s", kind(first)).at(start)
			return false
		}
		letters = append(letters, text[start:s.Pos:s.Pos])
		return true
	}
	for first := s.Space(); s.Pos < len(text); first = s.Space() {
		read := one
		if first == '[' {
			read = func() bool { return s.Array(one) }
		}
		ok := read()
		switch {
		case wrong != nil:
			return letters, wrong
		case !ok:
			line, column := jsonscan.Position(text, s.Pos)
			return letters, reject(statusBadRequest, CodeInvalidJSON, "it is not JSON: %s, at line %d, column %d", s.Problem,
				line, column).at(s.Pos)
		}
	}
	return letters, nil
}

// ReadDeadLetter reads a dead letter that Event Grid has written for a topic of the Input, in any of the forms of
// DeadLetterForm and in those in which Microsoft's pages differ from them. Names of its properties have any letter
// case. The event's bytes are those of the text without the properties, with two exceptions: those of Event.Body, and a
// missing specversion is added. Topic and Delivery stay empty, and an unknown reason is kept as it is. *Error.
//
// For a topic of schema Custom the event is the publisher's own JSON, which Event Grid writes as data.
// Sources: those of DeadLetterFlat and DeadLetterNested, and Microsoft, Dead lettering for event subscriptions to
// namespace topics, 2023-09-29.
func (in Input) ReadDeadLetter(text []byte) (*DeadLetter, error) {
	text = bytes.TrimSpace(bytes.TrimPrefix(text, byteOrderMark))
	if !utf8.Valid(text) {
		return nil, rejectEvent(statusBadRequest, CodeInvalidJSON, 0, "", "not UTF-8")
	}
	f, err := objectFields(text, in.Limits.withDefaults(true).MaxDepth+1) // the event may be a member
	if err != nil {
		return nil, err
	}
	properties, cloud, body, err := splitDeadLetter(f)
	if err != nil {
		return nil, err
	}
	names := &nested
	if properties == f { // which also has the event's own members
		names = &flatCloudEvents
	}
	d := &DeadLetter{
		Reason:        string(properties.folded(names[0], required)),
		Attempts:      properties.count(names[1], math.MaxInt32),
		Outcome:       string(properties.folded(names[2], optionalOrEmpty)),
		Status:        properties.count(flatCloudEvents[3], 999),
		PublishedAt:   properties.timeOrNone(names[4]),
		LastAttemptAt: properties.timeOrNone(names[5]),
	}
	if properties.err != nil {
		return nil, properties.err
	}
	e, err := in.deadEvent(body, cloud)
	if err != nil {
		return nil, err
	}
	if e.Schema == Custom && e.Time.IsZero() {
		e.Time = d.PublishedAt
	}
	d.Event = *e
	return d, nil
}

// objectFields reads a text that is one object with distinct names.
func objectFields(text []byte, maxDepth int) (*fields, error) {
	members, at, problem := readObject(text, maxDepth, nil)
	if problem != "" {
		return nil, rejectEvent(statusBadRequest, CodeInvalidJSON, 0, "", "not an object of JSON: %s, at byte %d",
			problem, at)
	}
	f := &fields{src: text, members: members}
	if duplicate := decodeNames(f.members); duplicate != nil {
		f.reject(string(duplicate), "appears twice")
		return nil, f.err
	}
	return f, nil
}

// splitDeadLetter returns the properties of a dead letter and the text of its event, and whether that is a CloudEvent.
func splitDeadLetter(f *fields) (properties *fields, cloud bool, body []byte, err error) {
	for _, m := range f.members {
		name := strings.ToLower(string(m.name))
		if name != memberProperties && name != memberBrokerProperties || f.src[m.value.start] != '{' {
			continue
		}
		if properties, err = objectFields(f.src[m.value.start:m.value.end], 0); err != nil {
			return nil, false, nil, err
		}
		if event, ok := f.given(memberEvent); ok && event[0] == '{' {
			return properties, true, event, nil
		}
		return properties, true, without(f, memberProperties, memberBrokerProperties, memberCustomProperties), nil
	}
	for _, m := range f.members {
		if strings.EqualFold(string(m.name), flatCloudEvents[0]) {
			_, versioned := f.raw("specversion")
			cloud = versioned || string(m.name) == flatCloudEvents[0]
			return f, cloud, without(f, flatCloudEvents[:]...), nil
		}
	}
	return nil, false, nil, rejectEvent(statusBadRequest, CodeInvalidEvent, 0, "", "no dead letter: it has none of the "+
		"members deadLetterReason, deadletterreason and deadLetterProperties")
}

// without returns the text of an object without the members of some names, which are in lower case. All other bytes
// stay, but for the commas and the space around these members.
func without(f *fields, names ...string) []byte {
	kept := make([]byte, 0, len(f.src))
	kept = append(kept, '{')
	before := 1 // the end of the member before
	for i, m := range f.members {
		start := before
		for f.src[start] != '"' { // only a comma and space precede a name
			start++
		}
		if !slices.Contains(names, strings.ToLower(string(m.name))) {
			space := f.src[before:start]
			if len(kept) == 1 && i > 0 {
				space = bytes.TrimLeft(space, ", \t\r\n")
			}
			kept = append(append(kept, space...), f.src[start:m.value.end]...)
		}
		before = m.value.end
	}
	return append(kept, f.src[before:]...)
}

var comma = []byte(",")

// deadEvent reads the event of a dead letter.
func (in Input) deadEvent(body []byte, cloud bool) (*Event, error) {
	f, err := objectFields(body, 0)
	if err != nil {
		return nil, err
	}
	schema := in.Schema
	if in.Schema = EventGrid; cloud {
		in.Schema = CloudEvents
		if _, ok := f.raw("specversion"); !ok {
			body = slices.Concat([]byte(`{"specversion":"1.0"`), comma[:min(1, len(f.members))], body[1:])
		}
	}
	in.AnyTopic = true
	e, err := in.ParseOne(body)
	if err != nil || schema != Custom {
		return e, err
	}
	data, _ := memberOf(e.Body, "data")
	if len(data) == 0 || data[0] == 'n' {
		f.reject("data", "is required: topic %q has custom events", in.Topic)
		return nil, f.err
	}
	if isTopic([]byte(e.Source), in.Topic) { // else two topics of Azure, imported into one, may have equal ids
		e.Source = ""
	}
	e.Schema, e.Body = Custom, data
	return e, nil
}

// anyCase returns the name and the value of the member whose name is name in any letter case; null counts as absent.
func (f *fields) anyCase(name string) (given string, value []byte) {
	for _, m := range f.members {
		if strings.EqualFold(string(m.name), name) && f.src[m.value.start] != 'n' {
			return string(m.name), f.src[m.value.start:m.value.end]
		}
	}
	return name, nil
}

// folded is text for a name in any letter case.
func (f *fields) folded(name string, r rule) []byte {
	given, _ := f.anyCase(name)
	return f.text(given, r)
}

// count is a whole number of 0 or more, or its digits in a string; 0 if it is absent.
func (f *fields) count(name string, most int) int {
	given, value := f.anyCase(name)
	if value == nil {
		return 0
	}
	n, err := strconv.Atoi(string(bytes.Trim(value, `"`)))
	if err != nil || n < 0 || n > most {
		f.reject(given, "must be a whole number from 0 to %d, is %s", most, shorten(string(value)))
		return 0
	}
	return n
}

// timeOrNone is the time of a member whose name has any letter case; zero if it is absent or empty.
func (f *fields) timeOrNone(name string) time.Time {
	given, _ := f.anyCase(name)
	text := f.text(given, optionalOrEmpty)
	if len(text) == 0 {
		return time.Time{}
	}
	return f.isoTime(given, text)
}
