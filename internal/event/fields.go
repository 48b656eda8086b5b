package event

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"postrider/internal/jsonscan"
)

// span is src[start:end].
type span struct{ start, end int }

// member is one name and value of an object. The name has no quotes; members leaves it escaped.
type member struct {
	name  []byte
	value span
}

// members reads the object at s.Pos and appends its members to dst, in the order of the text.
func members(s *jsonscan.Scanner, dst []member) ([]member, bool) {
	ok := s.Object(func(name []byte) bool {
		start := s.Pos
		ok := s.Value()
		dst = append(dst, member{name, span{start, s.Pos}})
		return ok
	})
	return dst, ok
}

// readObject reads a text that is one object, without white space around it, and appends its members to dst. problem
// describes the error at byte at; "" if there is none. maxDepth 0 is no limit.
func readObject(text []byte, maxDepth int, dst []member) (found []member, at int, problem string) {
	s := jsonscan.Scanner{Text: text, MaxDepth: maxDepth}
	if s.Peek() != '{' {
		return dst, 0, "it does not begin with {"
	}
	dst, ok := members(&s, dst)
	if ok && s.Pos < len(text) {
		s.Problem = "it continues after its end"
	}
	return dst, s.Pos, s.Problem
}

// fields are the top-level members of one event, with decoded and distinct names. Its methods keep the first mistake in
// err and return zero values after it.
type fields struct {
	src     []byte // the text the members' spans point into
	members []member
	index   int // the event's index in the request, for errors
	err     *Error
	unusual bool // a member has another spelling, or is a number instead of a string
}

// quadratic is the most members whose names are compared with each other, which is faster than a map for the ten or so
// members of an event. More members use a map: an event of a megabyte of them would take minutes.
const quadratic = 24

// decodeNames resolves escapes in the members' names and returns a duplicate name, nil if there is none. Names that
// differ only in lone surrogates are equal, as they are for readers.
func decodeNames(members []member) (duplicate []byte) {
	var seen map[string]struct{}
	if len(members) > quadratic {
		seen = make(map[string]struct{}, len(members))
	}
	for i := range members {
		name, _ := jsonscan.Unescape(members[i].name)
		members[i].name = name
		if seen == nil {
			for _, m := range members[:i] {
				if bytes.Equal(m.name, name) {
					return name
				}
			}
			continue
		}
		if _, ok := seen[string(name)]; ok {
			return name
		}
		seen[string(name)] = struct{}{}
	}
	return nil
}

func (f *fields) reject(field, format string, args ...any) {
	if f.err != nil {
		return
	}
	f.err = rejectEvent(statusBadRequest, CodeInvalidEvent, f.index, field, format, args...)
	for _, m := range f.members {
		if name := string(m.name); name == field || strings.HasPrefix(field, name+".") {
			f.err.Offset = m.value.start // of two equal names, the second
		}
	}
}

// raw returns the text of a member's value; ok is false if it is absent, true if it is null.
func (f *fields) raw(name string) (value []byte, ok bool) {
	for _, m := range f.members {
		if string(m.name) == name {
			return f.src[m.value.start:m.value.end], true
		}
	}
	return nil, false
}

// given is raw, but null counts as absent.
func (f *fields) given(name string) (value []byte, ok bool) {
	value, ok = f.raw(name)
	return value, ok && value[0] != 'n'
}

// at is given for the path of a member: its names with dots between them, as the key of a filter.
func (f *fields) at(path string) (value []byte, ok bool) {
	name, rest, nested := strings.Cut(path, ".")
	value, ok = f.given(name)
	for ok && nested {
		name, rest, nested = strings.Cut(rest, ".")
		value, ok = memberOf(value, name)
	}
	return value, ok && value[0] != 'n'
}

// memberOf returns the member of an object; of equal names the last one, as PostgreSQL does.
func memberOf(object []byte, name string) (value []byte, ok bool) {
	s := jsonscan.Scanner{Text: object}
	if s.Peek() != '{' {
		return nil, false
	}
	found, _ := members(&s, nil)
	for _, m := range found {
		if decoded, _ := jsonscan.Unescape(m.name); string(decoded) == name {
			value, ok = object[m.value.start:m.value.end], true
		}
	}
	return value, ok
}

// rule bounds an envelope string; the lengths are bytes of the decoded text.
type rule struct {
	required bool
	min, max int
}

// The bounds are ours; Event Grid's pages have none. They keep indexed columns below the 2,704 bytes of a btree entry
// (subject is not indexed) and a delivery's headers below the 8 KB that common servers accept.
var (
	required            = rule{required: true, min: 1, max: 1024}
	requiredLongOrEmpty = rule{required: true, min: 0, max: 4096}
	optional            = rule{min: 1, max: 1024}
	optionalOrEmpty     = rule{min: 0, max: 1024}
	optionalLong        = rule{min: 1, max: 4096}
)

// text returns a member's decoded string; nil if it is absent and may be.
func (f *fields) text(name string, r rule) []byte {
	value, ok := f.given(name)
	switch {
	case f.err != nil:
		return nil
	case !ok && r.required:
		f.reject(name, "is required")
		return nil
	case !ok:
		return nil
	case value[0] != '"':
		f.reject(name, "must be a string, is %s", kind(value[0]))
		return nil
	}
	return f.decoded(name, value, r)
}

// decoded returns the text of a string.
func (f *fields) decoded(name string, value []byte, r rule) []byte {
	text, lone := jsonscan.Unescape(value[1 : len(value)-1])
	if lone {
		f.reject(name, "must not contain a lone surrogate")
	} else if problem := r.problem(text); problem != "" {
		f.reject(name, "%s", problem)
	}
	return text
}

// problem describes what is wrong with a text; "" if nothing.
func (r rule) problem(text []byte) string {
	if len(text) < r.min || len(text) > r.max {
		return fmt.Sprintf("must be %d to %d bytes long, is %d", r.min, r.max, len(text))
	}
	if what := forbidden(text); what != "" {
		return "must not contain " + what
	}
	return ""
}

// forbidden names the first character that an envelope string must not contain: PostgreSQL's text has no NUL, and a
// line break in a header such as aeg-data-version would start another header.
func forbidden(text []byte) string {
	for _, c := range text {
		switch c {
		case 0:
			return "NUL"
		case '\r', '\n':
			return "a line break"
		}
	}
	return ""
}

// str is text as a string with its own memory.
func (f *fields) str(name string, r rule) string { return string(f.text(name, r)) }

// scalar is text for the path of a member, but a number is a text too: its digits as they are written.
func (f *fields) scalar(path string, r rule) []byte {
	value, ok := f.at(path)
	switch {
	case f.err != nil:
		return nil
	case !ok && r.required:
		f.reject(path, "is required")
		return nil
	case !ok:
		return nil
	case value[0] == '"':
		return f.decoded(path, value, r)
	case value[0] != '-' && !isDigit(value[0]):
		f.reject(path, "must be a string or a number, is %s", kind(value[0]))
		return nil
	}
	f.unusual = true
	if problem := r.problem(value); problem != "" {
		f.reject(path, "%s", problem)
	}
	return value
}

// time is a member's RFC 3339 time; zero if it is absent and may be.
func (f *fields) time(name string, r rule) time.Time {
	text := f.text(name, r)
	if text == nil {
		return time.Time{}
	}
	return f.moment(name, text, parseTime)
}

// isoTime is the time of an Event Grid or a custom event, whose text is that of a member.
func (f *fields) isoTime(name string, text []byte) time.Time {
	return f.moment(name, text, parseISOTime)
}

func (f *fields) moment(name string, text []byte, parse func([]byte) (time.Time, string)) time.Time {
	t, problem := parse(text)
	if problem != "" {
		f.reject(name, "%s", problem)
	}
	return t
}

// kind names a value by its first byte.
func kind(c byte) string {
	switch c {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}
