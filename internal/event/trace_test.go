package event

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	parentA = "00-0af7651916cd43dd8448eb211c80319c-b9c7c989f97918e1-01"
	parentB = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
)

func TestNewTrace(t *testing.T) {
	t.Parallel()
	for parent, want := range map[string]bool{
		parentA: true, parentB: true,
		"01" + parentA[2:]:                             true,
		"01" + parentA[2:] + "-what the future":        false,
		"01" + parentA[2:] + "-brings":                 true,
		"01" + parentA[2:] + "brings":                  false,
		"01" + parentA[2:] + "-a\nb":                   false,
		"01" + parentA[2:] + strings.Repeat("-", 200):  false,
		parentA + "-":                                  false,
		parentA[:54]:                                   false,
		"":                                             false,
		"ff" + parentA[2:]:                             false,
		"0g" + parentA[2:]:                             false,
		strings.ToUpper(parentA):                       false,
		" " + parentA:                                  false,
		strings.ReplaceAll(parentA, "-", "_"):          false,
		"00-" + strings.Repeat("0", 32) + parentA[35:]: false,
		parentA[:36] + strings.Repeat("0", 16) + "-01": false,
		parentA[:53] + "0x":                            false,
	} {
		trace := newTrace(parent, "a=b, c=d")
		require.Equal(t, want, trace != Trace{}, parent)
		if want {
			require.Equal(t, Trace{Parent: parent, State: "a=b, c=d"}, trace)
		}
	}
	require.Equal(t, Trace{Parent: parentA, State: strings.Repeat("a", 512)}, newTrace(parentA, strings.Repeat("a", 512)))
	for _, state := range []string{"", strings.Repeat("a", 513), "a\r\nb", "é", "a\x7f"} {
		require.Equal(t, Trace{Parent: parentA}, newTrace(parentA, state), state)
	}
}

func TestParseReadsTheTrace(t *testing.T) {
	t.Parallel()
	requested := Trace{Parent: parentB, State: "r=1"}
	for members, want := range map[string]Trace{
		`"x":1`:                           requested,
		`"traceparent":"` + parentA + `"`: {Parent: parentA},
		`"traceparent":"\u0030` + parentA[1:] + `","tracestate":"a=b"`: {Parent: parentA, State: "a=b"},
		`"traceparent":"` + parentA + `","tracestate":5`:               {Parent: parentA},
		`"traceparent":"` + parentA + `","tracestate":"a\nb"`:          {Parent: parentA},
		`"traceparent":"nonsense","tracestate":"a=b"`:                  requested,
		`"traceparent":5`:                      requested,
		`"traceparent":null,"tracestate":null`: requested,
		`"tracestate":"a=b"`:                   requested,
	} {
		events, err := Input{Schema: CloudEvents, Trace: requested}.Parse("application/json", []byte(cloud(members)))
		require.NoError(t, err, members)
		require.Equal(t, want, events[0].Trace, members)
	}
}

func TestParseRequestReadsTheTrace(t *testing.T) {
	t.Parallel()
	events, err := Input{
		Schema: EventGrid,
	}.ParseRequest(http.Header{"Traceparent": {parentA}, "Tracestate": {"a=b", "c=d"}}, []byte("["+gridEvent+"]"))
	require.NoError(t, err)
	require.Equal(t, Trace{Parent: parentA, State: "a=b,c=d"}, events[0].Trace)

	h := ceHeaders("traceparent", parentB, "ce-traceparent", parentA)
	events, err = Input{Schema: CloudEvents}.ParseRequest(h, nil)
	require.NoError(t, err)
	require.Equal(t, Trace{Parent: parentA}, events[0].Trace, "the event's own is the one it started with")

	h["Traceparent"] = []string{parentA, parentB}
	h.Del("ce-traceparent")
	events, err = Input{Schema: CloudEvents, Trace: Trace{Parent: parentA}}.ParseRequest(h, nil)
	require.NoError(t, err)
	require.Zero(t, events[0].Trace, "two are none")
}

func TestTraceOf(t *testing.T) {
	t.Parallel()
	a, b, none := &Event{Trace: Trace{Parent: parentA, State: "a=b"}}, &Event{Trace: Trace{Parent: parentA}}, &Event{}
	require.Equal(t, a.Trace, TraceOf([]*Event{a}))
	require.Equal(t, a.Trace, TraceOf([]*Event{a, a}))
	require.Zero(t, TraceOf([]*Event{a, a, b}))
	require.Zero(t, TraceOf([]*Event{none, a}))
	require.Zero(t, TraceOf([]*Event{none}))
	require.Zero(t, TraceOf(nil))
}
