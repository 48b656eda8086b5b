package event

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAttributeOfEventGrid(t *testing.T) {
	t.Parallel()
	e := &Event{Schema: EventGrid, Body: []byte(`{ "id" : "\u0031" ,"ID":7,"subject":"s","eventType":"t","eventTime":"2026-01-01T00:00:00Z","d\u0061ta":{"a":[1.50]},"extra":1}`)}
	for name, want := range map[string]string{
		"id": `"\u0031"`, "ID": `"\u0031"`, "Id": `"\u0031"`, "Subject": `"s"`, "eventtype": `"t"`, "EventTime": `"2026-01-01T00:00:00Z"`,
		"Data": `{"a":[1.50]}`, "data": `{"a":[1.50]}`, "metadataVersion": `"1"`,
		"dataVersion": "", "topic": "", "extra": "", "": "", "data.a": "", "source": "",
	} {
		requireAttribute(t, want, e, name)
	}
	requireAttribute(t, `"9"`, &Event{Schema: EventGrid, Body: []byte(`{"metadataVersion":"9"}`)}, "metadataversion")
	requireAttribute(t, `null`, &Event{Schema: EventGrid, Body: []byte(`{"data":null}`)}, "data")
}

func requireAttribute(t *testing.T, want string, e *Event, name string) {
	t.Helper()
	got, ok := e.Attribute(name)
	require.Equal(t, want != "", ok, name)
	require.Equal(t, want, string(got), name)
}

func TestAttributeOfCloudEvents(t *testing.T) {
	t.Parallel()
	e := &Event{Schema: CloudEvents, Body: []byte(cloud(`"subject":null,"ext":5,"topic":"own","data":[]`))}
	for name, want := range map[string]string{
		"id": `"1"`, "source": `"/s"`, "Type": `"t"`, "SPECVERSION": `"1.0"`, "subject": "null", "ext": "5", "topic": `"own"`, "Data": "[]",
		"time": "", "eventType": "", "data_base64": "", "": "",
	} {
		requireAttribute(t, want, e, name)
	}
	requireAttribute(t, "", &Event{Schema: CloudEvents, Body: []byte(cloud(`"data_base64":"AA=="`))}, "data")
}

func TestAttributeOfCustomEvents(t *testing.T) {
	t.Parallel()
	const body = `{"key":"k","when":"2026-01-02T03:04:05.6+01:00","what":"a\"b","data":{"inner":1},"id":"own","Own":2}`
	events, err := custom(t, everyField).Parse("", []byte(body))
	require.NoError(t, err)
	for name, want := range map[string]string{
		"id": `"k"`, "ID": `"k"`, "eventType": `"a\"b"`, "Subject": `"default subject"`, "eventTime": `"2026-01-02T02:04:05.6Z"`, "dataVersion": `"7"`,
		"metadataVersion": `"1"`, "data": body, "Data": body, "key": `"k"`, "Own": "2",
		"own": "", "topic": "", "Key": "", "": "",
	} {
		requireAttribute(t, want, &events[0], name)
	}
	bare := &Event{Schema: Custom, Body: []byte(`{}`)}
	for _, name := range []string{"id", "eventType", "eventTime", "dataVersion"} {
		requireAttribute(t, "", bare, name)
	}
	requireAttribute(t, `""`, bare, "subject")
}

func TestEnvelopeAttribute(t *testing.T) {
	t.Parallel()
	v := Envelope{Topic: `or"ders`}
	const path = `"/topics/or\"ders"`
	for _, c := range []struct {
		schema     Schema
		body, want string
	}{
		{EventGrid, `{}`, path},
		{EventGrid, `{"topic":""}`, path},
		{EventGrid, `{"topic":null}`, path},
		{EventGrid, `{"topic":"orders"}`, path},
		{Custom, `{"topic":"own"}`, path},
		{CloudEvents, `{"topic":"own"}`, `"own"`},
		{CloudEvents, `{}`, ""},
	} {
		for _, name := range []string{"topic", "Topic"} {
			got, ok := v.Attribute(&Event{Schema: c.schema, Body: []byte(c.body)}, name)
			require.Equal(t, c.want != "", ok, c.body)
			require.Equal(t, c.want, string(got), c.body)
		}
	}
	got, ok := v.Attribute(&Event{Schema: EventGrid, Body: []byte(`{"id":"1"}`)}, "ID")
	require.True(t, ok)
	require.Equal(t, `"1"`, string(got))
}

func TestAttributeOfNoObject(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"", "[]", "{", `{"a"`, `{"a":1`, `{"a":1,`, `{"a":}`, `{"a":1 "id":1}`, "{}"} {
		for _, schema := range []Schema{EventGrid, CloudEvents} {
			requireAttribute(t, "", &Event{Schema: schema, Body: []byte(body)}, "id")
		}
	}
}

// FuzzAttribute: every attribute of an accepted event is the member that encoding/json finds.
func FuzzAttribute(f *testing.F) {
	f.Add([]byte(cloudOne), "id")
	f.Add([]byte(cloud(`"data":{"a":1},"ext":"v"`)), "ext")
	f.Fuzz(func(t *testing.T, body []byte, name string) {
		e := &Event{Schema: CloudEvents, Body: body}
		raw, ok := e.Attribute(name)
		events, err := parseCloud(string(body))
		if err != nil || len(events) != 1 || len(events[0].Body) != len(body) {
			return
		}
		var members map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(body, &members))
		want, there := members[strings.ToLower(name)]
		require.Equal(t, there, ok)
		require.Equal(t, string(want), string(raw))
	})
}
