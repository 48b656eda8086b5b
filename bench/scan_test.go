package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEachEvent(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		body string
		ids  []string
		sent []int64
	}{
		"one in an array": {`[{"id":"a","data":{"sentAt":5}}]`, []string{"a"}, []int64{5}},
		"a CloudEvent":    {`{"specversion":"1.0","id":"a","data":{"sentAt":5}}`, []string{"a"}, []int64{5}},
		"a batch": {
			` [ {"id":"a"} , {"id":"b","data":{"sentAt":7}} ] `, []string{"a", "b"}, []int64{0, 7},
		},
		"an id inside data is not the id": {`[{"data":{"id":"x","sentAt":1},"id":"a"}]`, []string{"a"}, []int64{1}},
		"sentAt outside data is not it": {
			`[{"id":"a","sentAt":9,"data":{"deep":{"sentAt":8}}}]`, []string{"a"}, []int64{0},
		},
		"brackets and quotes in strings": {`[{"data":{"s":"}]\"[{","sentAt":3},"id":"a\\"}]`, []string{`a\`}, []int64{3}},
		"an escaped id":                  {`[{"id":"a\u00e9\"b"}]`, []string{`aé"b`}, []int64{0}},
		"an id with spaces":              {`[{"id":"a b"}]`, []string{"a b"}, []int64{0}},
		"no id":                          {`[{"data":1}]`, []string{""}, []int64{0}},
		"an id that is no string":        {`[{"id":7}]`, []string{""}, []int64{0}},
		"data that is no object":         {`[{"id":"a","data":"sentAt"}]`, []string{"a"}, []int64{0}},
		"no events":                      {`[]`, nil, nil},
		"nothing":                        {``, nil, nil},
		"no JSON":                        {`hello`, nil, nil},
		"an event that breaks off":       {`[{"id":"a"},{"id":"b`, []string{"a"}, []int64{0}},
		"an array that breaks off":       {`[{"id":"a"},`, []string{"a"}, []int64{0}},
		"literals, numbers and empty ones": {
			`[{"a":null,"b":-1.5e3,"c":true,"d":[],"e":{},"id":"a"}]`, []string{"a"}, []int64{0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var ids []string
			var sent []int64
			eachEvent([]byte(tc.body), func(e *receivedEvent) {
				ids, sent = append(ids, string(e.id)), append(sent, e.sentAt)
			})
			require.Equal(t, tc.ids, ids)
			require.Equal(t, tc.sent, sent)
		})
	}
}

// FuzzEachEvent holds the scanner against encoding/json on what is JSON, and has it survive the rest.
func FuzzEachEvent(f *testing.F) {
	f.Add([]byte(`[{"id":"a","data":{"sentAt":5}},{"id":"\u0062","x":[{"id":"c"}]}]`))
	f.Add([]byte(`{"id":"a\\","data":{"s":"}\"","sentAt":1}}`))
	f.Add([]byte(`[{"id`))
	f.Add([]byte(`{{{"":`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var events [][]byte
		eachEvent(body, func(e *receivedEvent) { events = append(events, e.text) })
		var want []json.RawMessage
		if json.Unmarshal(body, &want) != nil || !allObjects(want) {
			return
		}
		require.Len(t, events, len(want))
		for i := range want {
			require.Equal(t, string(want[i]), string(events[i]))
		}
	})
}

func allObjects(values []json.RawMessage) bool {
	for _, v := range values {
		if v[0] != '{' {
			return false
		}
	}
	return true
}
