package event

import (
	"bytes"
	"unicode/utf8"

	"postrider/internal/jsonscan"
)

const (
	statusBadRequest           = 400
	statusPayloadTooLarge      = 413
	statusUnsupportedMediaType = 415
)

// parser reads the events of one request's body.
type parser struct {
	jsonscan.Scanner
	in      Input
	events  []Event
	members []member // of the current event; reused
	few     [16]member
}

// parser returns a parser of src.
func (in Input) parser(src []byte) *parser {
	in.Limits = in.Limits.withDefaults(in.AnyTopic)
	p := &parser{in: in}
	p.Scanner = jsonscan.Scanner{Text: src, MaxDepth: in.Limits.MaxDepth}
	p.members = p.few[:0]
	return p
}

var byteOrderMark = []byte("\ufeff")

// document reads the whole body.
func (p *parser) document(expected shape) *Error {
	if bytes.HasPrefix(p.Text, byteOrderMark) {
		p.Pos = len(byteOrderMark)
	}
	if !utf8.Valid(p.Text) {
		wrong := firstInvalid(p.Text)
		return reject(statusBadRequest, CodeInvalidJSON, "the body is not UTF-8: first wrong byte at %d", wrong).at(wrong)
	}
	first := p.Space()
	if p.Pos == len(p.Text) {
		return reject(statusBadRequest, CodeInvalidJSON, "the body is empty: expected %s", expected)
	}
	anyValue := p.in.Schema == Custom && expected == oneEvent
	if !anyValue && (first != '{' || expected == eventArray) && (first != '[' || expected == oneEvent) {
		if first != '{' && first != '[' && !p.Value() {
			return reject(statusBadRequest, CodeInvalidJSON, "%s, at byte %d of the body", p.Problem, p.Pos).at(p.Pos)
		}
		return reject(statusBadRequest, CodeInvalidEvent, "expected %s, found %s", expected, kind(first)).at(p.Pos)
	}
	one := first == '{' || anyValue
	if err := p.outermost(one); err != nil {
		return err
	}
	if p.Space(); p.Pos < len(p.Text) {
		return reject(statusBadRequest, CodeInvalidJSON, "the body continues after its end, at byte %d", p.Pos).at(p.Pos)
	}
	return nil
}

// outermost reads one event or an array of them.
func (p *parser) outermost(one bool) *Error {
	if one {
		return p.event(0)
	}
	p.Depth-- // the array is not a level of an event
	i, err := 0, (*Error)(nil)
	ok := p.Array(func() bool {
		if i == p.in.Limits.MaxEvents {
			err = rejectEvent(statusPayloadTooLarge, CodePayloadTooLarge, i, "",
				"a request has at most %d events", p.in.Limits.MaxEvents)
			return false
		}
		err = p.event(i)
		i++
		return err == nil
	})
	if !ok && err == nil {
		return p.malformed(i - 1)
	}
	return err
}

// event reads the event at index i of the request: an object, or of a custom topic any value but null, whose mapped
// fields have their defaults. Event Grid accepts such values: the recorded sessions of its clients publish ["data"].
func (p *parser) event(i int) *Error {
	start, first := p.Pos, p.Peek()
	var ok bool
	if p.members = p.members[:0]; first == '{' {
		p.members, ok = members(&p.Scanner, p.members)
	} else {
		ok = p.Value()
	}
	switch {
	case !ok:
		return p.malformed(i)
	case first == 'n' && p.in.Schema == Custom:
		return rejectEvent(statusBadRequest, CodeInvalidEvent, i, "", "must not be null")
	case first != '{' && p.in.Schema != Custom:
		return rejectEvent(statusBadRequest, CodeInvalidEvent, i, "", "must be an object, is %s", kind(first))
	}
	// The capacity ends with the event, so that appending to a Body does not overwrite the next one.
	e := Event{Schema: p.in.Schema, Body: p.Text[start:p.Pos:p.Pos]}
	f := fields{src: p.Text, members: p.members, index: i}
	if duplicate := decodeNames(f.members); duplicate != nil {
		f.reject(string(duplicate), "appears twice")
		return f.err
	}
	switch p.in.Schema {
	case CloudEvents:
		readCloudEvent(&f, &e)
	case Custom:
		readCustom(&f, &p.in, &e)
	default:
		readEventGrid(&f, &p.in, &e)
	}
	if size := len(e.Body); size > p.in.Limits.MaxEventBytes { // the usual form may be longer
		return rejectEvent(statusPayloadTooLarge, CodePayloadTooLarge, i, "",
			"an event has at most %d bytes, this one has %d", p.in.Limits.MaxEventBytes, size)
	}
	if e.Trace.Parent == "" {
		e.Trace = p.in.Trace
	}
	p.events = append(p.events, e)
	return f.err
}

// malformed reports that the text of the event at index i is not JSON.
func (p *parser) malformed(i int) *Error {
	return rejectEvent(statusBadRequest, CodeInvalidJSON, i, "", "%s, at byte %d of the body", p.Problem, p.Pos).at(p.Pos)
}

// firstInvalid returns the index of the first byte that is not UTF-8, or the length of b, where DecodeRune has width 0.
func firstInvalid(b []byte) int {
	for i := 0; ; {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n <= 1 {
			return i
		}
		i += n
	}
}
