package event

import (
	"bytes"
	"fmt"
	"time"

	"postrider/jsonscan"
)

// span is src[start:end].
type span struct{ start, end int }

// member is one name and value of an object. The name has no quotes; members notes it as it is written, still escaped.
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

// readObject reads a text that is one object, without white space around it, and appends its members to dst. problem is
// what is wrong at byte at, "" if nothing is. maxDepth 0 is no limit.
func readObject(text []byte, maxDepth int, dst []member) (found []member, at int, problem string) {
	s := jsonscan.Scanner{Text: text, MaxDepth: maxDepth}
	if s.Peek() != '{' {
		return dst, 0, "it does not begin with {"
	}
	dst, ok := members(&s, dst)
	if ok && s.Pos < len(text) {
		s.Problem = "it goes on after its end"
	}
	return dst, s.Pos, s.Problem
}

// fields are the top-level members of one event, names decoded and each of them once.
type fields struct {
	src     []byte // the text the members' spans point into
	members []member
	index   int // the event's place in the request, for errors
}

// quadratic is up to how many members names are compared each with each, which needs no memory and is faster than a map
// for the ten or so members of an event. Beyond it a map keeps a hostile megabyte of members from costing minutes.
const quadratic = 24

// decodeNames resolves escapes in the members' names and returns a name that stands there twice, nil if there is none.
// Equal is what a reader would see: two names that differ in their lone surrogates alone are the same name.
func decodeNames(members []member) (twice []byte) {
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

func (f *fields) refuse(field, format string, args ...any) *Error {
	return rejectEvent(statusBadRequest, CodeInvalidEvent, f.index, field, format, args...)
}

// raw returns the text of a member's value; ok tells an absent member from one that says null.
func (f *fields) raw(name string) (value []byte, ok bool) {
	for _, m := range f.members {
		if string(m.name) == name {
			return f.src[m.value.start:m.value.end], true
		}
	}
	return nil, false
}

// given is raw with null taken for absent.
func (f *fields) given(name string) (value []byte, ok bool) {
	value, ok = f.raw(name)
	return value, ok && value[0] != 'n'
}

// rule bounds an envelope string; the lengths are bytes of the decoded text.
type rule struct {
	required bool
	min, max int
}

// The bounds are ours; Event Grid publishes none. They keep a row's indexed columns below the 2,704 bytes of a btree
// entry (subject is not indexed) and a delivery's headers below the 8 KB that common servers accept.
var (
	required            = rule{required: true, min: 1, max: 1024}
	requiredLongOrEmpty = rule{required: true, min: 0, max: 4096}
	optional            = rule{min: 1, max: 1024}
	optionalOrEmpty     = rule{min: 0, max: 1024}
	optionalLong        = rule{min: 1, max: 4096}
)

// text returns a member's decoded string, nil when it is absent and may be.
func (f *fields) text(name string, r rule) ([]byte, *Error) {
	value, ok := f.given(name)
	if !ok && r.required {
		return nil, f.refuse(name, "is required")
	}
	if !ok {
		return nil, nil
	}
	if value[0] != '"' {
		return nil, f.refuse(name, "must be a string, is %s", kind(value[0]))
	}
	text, lone := jsonscan.Unescape(value[1 : len(value)-1])
	if lone {
		return nil, f.refuse(name, "must not contain a lone surrogate")
	}
	if problem := r.problem(text); problem != "" {
		return nil, f.refuse(name, "%s", problem)
	}
	return text, nil
}

// problem says what is wrong with a text, "" when nothing is.
func (r rule) problem(text []byte) string {
	if len(text) < r.min || len(text) > r.max {
		return fmt.Sprintf("must be %d to %d bytes long, is %d", r.min, r.max, len(text))
	}
	if what := forbidden(text); what != "" {
		return "must not contain " + what
	}
	return ""
}

// forbidden names the first character that an envelope string must not hold: PostgreSQL's text has no NUL, and a line
// break in a header (aeg-data-version and its kin carry these strings) would start a header of the publisher's own.
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

// str is text as a string of its own memory.
func (f *fields) str(name string, r rule) (string, *Error) {
	text, err := f.text(name, r)
	return string(text), err
}

// time is a member's RFC 3339 time, zero when it is absent and may be.
func (f *fields) time(name string, r rule) (t time.Time, err *Error) {
	text, err := f.text(name, r)
	if err != nil || text == nil {
		return t, err
	}
	return f.parseTime(name, text)
}

func (f *fields) parseTime(name string, text []byte) (time.Time, *Error) {
	t, ok := parseTime(text)
	if !ok {
		return t, f.refuse(name, "not an RFC 3339 time")
	}
	return t, nil
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
