package event

import (
	"strings"

	"postrider/jsonscan"
)

// Trace is the distributed trace that an event belongs to, in the words of W3C's headers of the same names.
// Source: W3C, Trace Context, 2021-11-23; CNCF, CloudEvents 1.0.2, Distributed Tracing extension.
type Trace struct {
	// Parent is traceparent; well-formed, or "" for no trace.
	Parent string
	// State is tracestate, up to 512 bytes of printable ASCII; "" when there is none, and without a Parent.
	State string
}

const (
	memberTraceParent = "traceparent"
	memberTraceState  = "tracestate"
	// maxTraceState is what W3C asks everyone to pass on (Trace Context, section 3.3.1.5); longer ones are left out.
	maxTraceState = 512
)

// TraceOf returns the trace for the headers traceparent and tracestate of a delivery: that of its events when they all
// have the same, zero otherwise, because one request has one trace. Event Grid documents no such headers; CloudEvents'
// extension asks that headers and attributes of one hop agree, and that a trace is not made up on the way: neither is
// done here.
func TraceOf(events []*Event) Trace {
	if len(events) == 0 {
		return Trace{}
	}
	for _, e := range events[1:] {
		if e.Trace != events[0].Trace {
			return Trace{}
		}
	}
	return events[0].Trace
}

// newTrace takes what a stranger sent. What is malformed counts as not sent, as Trace Context (section 2.2.2) has it:
// a wrong trace is no reason to refuse an event.
func newTrace(parent, state string) Trace {
	switch {
	case !isTraceParent(parent):
		return Trace{}
	case len(state) > maxTraceState || strings.ContainsFunc(state, func(c rune) bool { return c < ' ' || c > '~' }):
		return Trace{Parent: parent}
	}
	return Trace{Parent: parent, State: state}
}

// trace reads the extension attributes of a CloudEvent.
func (f *fields) trace() Trace {
	parent, ok := f.raw(memberTraceParent)
	if !ok {
		return Trace{}
	}
	state, ok := f.raw(memberTraceState)
	if !ok {
		return newTrace(plain(parent), "")
	}
	return newTrace(plain(parent), plain(state))
}

// plain returns the text of a string, "" for any other value.
func plain(value []byte) string {
	if value[0] != '"' {
		return ""
	}
	text, _ := jsonscan.Unescape(value[1 : len(value)-1])
	return string(text)
}

// headerTrace reads the headers of a request. A tracestate may come in several lines, a traceparent not (Trace Context,
// section 3.3.1.1 and its test suite).
func headerTrace(header map[string][]string) Trace {
	parent := lines(header, memberTraceParent)
	if len(parent) != 1 {
		return Trace{}
	}
	return newTrace(parent[0], strings.Join(lines(header, memberTraceState), ","))
}

// isTraceParent checks version, trace id, parent id and flags. A version after 00 may go on after them.
func isTraceParent(s string) bool {
	const (
		form = "vv-tttttttttttttttttttttttttttttttt-pppppppppppppppp-ff"
		most = 128 // no version there is goes beyond form
	)
	if len(s) < len(form) || len(s) > most || s[2] != '-' || s[35] != '-' || s[52] != '-' {
		return false
	}
	version, trace, span, flags, rest := s[:2], s[3:35], s[36:52], s[53:55], s[55:]
	if !isLowerHex(version) || !isLowerHex(trace) || !isLowerHex(span) || !isLowerHex(flags) {
		return false
	}
	if version == "ff" || strings.Trim(trace, "0") == "" || strings.Trim(span, "0") == "" {
		return false
	}
	if version == "00" {
		return rest == ""
	}
	return rest == "" || rest[0] == '-' && !strings.ContainsFunc(rest, func(c rune) bool { return c <= ' ' || c > '~' })
}

func isLowerHex(s string) bool { return strings.Trim(s, "0123456789abcdef") == "" }
