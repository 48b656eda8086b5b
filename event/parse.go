package event

import (
	"bytes"
	"unicode/utf8"
)

const (
	statusBadRequest           = 400
	statusPayloadTooLarge      = 413
	statusUnsupportedMediaType = 415
)

// parser is one reading of a body: the scanner's place in it and what was found so far.
type parser struct {
	scanner
	in      Input
	events  []Event
	members []member // of the current event; reused
	few     [16]member
}

// parser starts to read src.
func (in Input) parser(src []byte) *parser {
	in.Limits = in.Limits.withDefaults()
	p := &parser{in: in}
	p.scanner = scanner{src: src, maxDepth: in.Limits.MaxDepth}
	p.members = p.few[:0]
	return p
}

var byteOrderMark = []byte("\ufeff")

// document reads the whole body.
func (p *parser) document(want shape) *Error {
	if bytes.HasPrefix(p.src, byteOrderMark) {
		p.pos = len(byteOrderMark)
	}
	if !utf8.Valid(p.src) {
		return refuse(statusBadRequest, CodeInvalidJSON, "the body is not UTF-8: first wrong byte at %d", firstInvalid(p.src))
	}
	first := p.space()
	if p.pos == len(p.src) {
		return refuse(statusBadRequest, CodeInvalidJSON, "the body is empty: expected %s", want)
	}
	if !want.takes(first) {
		return p.misshapen(want)
	}
	if err := p.outermost(first); err != nil {
		return err
	}
	if p.space(); p.pos < len(p.src) {
		return refuse(statusBadRequest, CodeInvalidJSON, "the body goes on after its end, at byte %d", p.pos)
	}
	return nil
}

// misshapen tells a body of the wrong shape from one that is no JSON at all.
func (p *parser) misshapen(want shape) *Error {
	first := p.peek()
	if first != '{' && first != '[' && !p.value(1) {
		return refuse(statusBadRequest, CodeInvalidJSON, "%s, at byte %d of the body", p.problem, p.pos)
	}
	return refuse(statusBadRequest, CodeInvalidEvent, "expected %s, found %s", want, kind(first))
}

// outermost reads one event or an array of them.
func (p *parser) outermost(first byte) *Error {
	if first == '{' {
		return p.event(0)
	}
	return p.array()
}

// array reads a body that is an array of events.
func (p *parser) array() *Error {
	p.pos++
	if p.space() == ']' {
		p.pos++
		return nil
	}
	for i := 0; ; i++ {
		if i == p.in.Limits.MaxEvents {
			return refuseEvent(statusPayloadTooLarge, CodePayloadTooLarge, i, "",
				"a request holds at most %d events", p.in.Limits.MaxEvents)
		}
		if err := p.event(i); err != nil {
			return err
		}
		switch p.space() {
		case ',':
			p.pos++
			p.space()
		case ']':
			p.pos++
			return nil
		default:
			p.fail("expected ',' or ']' after an event")
			return p.malformed(i)
		}
	}
}

// event reads the event at index i of the request.
func (p *parser) event(i int) *Error {
	start := p.pos
	p.members = p.members[:0]
	switch p.peek() {
	case '{':
		if !p.object(1, &p.members) {
			return p.malformed(i)
		}
	default:
		if !p.value(1) {
			return p.malformed(i)
		}
		return refuseEvent(statusBadRequest, CodeInvalidEvent, i, "", "must be an object, is %s", kind(p.src[start]))
	}
	if size := p.pos - start; size > p.in.Limits.MaxEventBytes {
		return refuseEvent(statusPayloadTooLarge, CodePayloadTooLarge, i, "",
			"an event has at most %d bytes, this one has %d", p.in.Limits.MaxEventBytes, size)
	}
	// The capacity ends with the event: appending to a Body must not run into its neighbour.
	e := Event{Schema: p.in.Schema, Body: p.src[start:p.pos:p.pos]}
	if err := p.envelope(i, &e); err != nil {
		return err
	}
	p.events = append(p.events, e)
	return nil
}

// envelope fills e from the members just scanned.
func (p *parser) envelope(i int, e *Event) *Error {
	f := fields{src: p.src, members: p.members, index: i}
	if twice := decodeNames(f.members); twice != nil {
		return f.refuse(string(twice), "appears twice")
	}
	if err := p.read(&f, e); err != nil {
		return err
	}
	if e.Trace.Parent == "" {
		e.Trace = p.in.Trace
	}
	return nil
}

func (p *parser) read(f *fields, e *Event) *Error {
	switch p.in.Schema {
	case CloudEvents:
		return readCloudEvent(f, e)
	case Custom:
		return readCustom(f, &p.in, e)
	default:
		return readEventGrid(f, Envelope{Topic: p.in.Topic}, e)
	}
}

// malformed is the scanner's complaint about the event at index i.
func (p *parser) malformed(i int) *Error {
	return refuseEvent(statusBadRequest, CodeInvalidJSON, i, "", "%s, at byte %d of the body", p.problem, p.pos)
}

// firstInvalid returns the place of the first byte that is not UTF-8, or the length of b. At the end DecodeRune has
// width 0.
func firstInvalid(b []byte) (i int) {
	for {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n <= 1 {
			return i
		}
		i += n
	}
}
