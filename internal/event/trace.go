package event

import (
	"strings"

	"postrider/internal/jsonscan"
)

// Trace is the distributed trace of an event, as in W3C's headers.
// Source: W3C, Trace Context, 2021-11-23; CNCF, CloudEvents 1.0.2, Distributed Tracing extension.
type Trace struct {
	// Parent is a valid traceparent, or "" for no trace.
	Parent string
	// State is tracestate, up to 512 bytes of printable ASCII; "" if there is none, and without a Parent.
	State string
}

const (
	memberTraceParent = "traceparent"
	memberTraceState  = "tracestate"
	// maxTraceState is the length that W3C requires to be passed on (Trace Context, section 3.3.1.5); longer ones are left
	// out.
	maxTraceState = 512
)

// TraceOf returns the trace for the headers traceparent and tracestate of a delivery: that of its events if all have
// the same, otherwise none, because one request has one trace. Event Grid documents no such headers. CloudEvents'
// extension requires that headers and attributes agree, and that a trace is not created on the way.
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

// newTrace returns a publisher's trace. Malformed ones are ignored, as Trace Context (section 2.2.2) requires: they are
// no reason to reject an event.
func newTrace(parent, state string) Trace {
	if !isTraceParent(parent) {
		return Trace{}
	}
	if len(state) > maxTraceState || strings.ContainsFunc(state, func(c rune) bool { return c < ' ' || c > '~' }) {
		return Trace{Parent: parent}
	}
	return Trace{Parent: parent, State: state}
}

// plain returns the text of a string, "" for any other value.
func plain(value []byte) string {
	if len(value) == 0 || value[0] != '"' {
		return ""
	}
	text, _ := jsonscan.Unescape(value[1 : len(value)-1])
	return string(text)
}

// headerTrace reads the headers of a request. tracestate may have several lines, traceparent only one (Trace Context,
// section 3.3.1.1 and its test suite).
func headerTrace(header map[string][]string) Trace {
	parent := lines(header, memberTraceParent)
	if len(parent) != 1 {
		return Trace{}
	}
	return newTrace(parent[0], strings.Join(lines(header, memberTraceState), ","))
}

// isTraceParent checks version, trace id, parent id and flags. Versions after 00 may have more.
func isTraceParent(s string) bool {
	const (
		form = "vv-tttttttttttttttttttttttttttttttt-pppppppppppppppp-ff"
		most = 128 // no known version is longer than form
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
