package event

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var arrival = time.Date(2018, 11, 7, 23, 59, 14, 799756400, time.UTC)

// custom is the input of topic orders with a mapping; generated ids are "made-1", "made-2" and so on.
func custom(t testing.TB, text string) Input {
	made := 0
	return Input{
		Schema: Custom, Topic: "orders", Mapping: mapping(t, text), Now: arrival,
		NewID: func() string { made++; return "made-" + string(rune('0'+made)) },
	}
}

// documentedEvent is the event of Microsoft's page.
const documentedEvent = `{ "myEventTypeField":"Created", "resource":"Users/example/Messages/1000",` +
	` "resourceData":{"someDataField1":"SomeDataFieldValue"} }`

func TestParseCustomAsDocumented(t *testing.T) {
	t.Parallel()
	events, err := custom(t, documented).Parse("application/json", []byte("[ "+documentedEvent+" ,"+documentedEvent+"]"))
	require.NoError(t, err)
	first := Event{
		Schema: Custom, ID: "made-1", Type: "Created", Subject: "DefaultSubject", Time: arrival, DataVersion: "1.0",
		Body: []byte(documentedEvent),
	}
	second := first
	second.ID = "made-2"
	require.Equal(t, []Event{first, second}, events)
}

func TestParseCustomShapes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		contentType, body string
		events            int
	}{
		{"application/json", documentedEvent, 1},
		{"", " " + documentedEvent + "\n", 1},
		{"application/json; charset=utf-8", "[" + documentedEvent + "]", 1},
		{"application/json", "[]", 0},
	} {
		events, err := custom(t, documented).Parse(c.contentType, []byte(c.body))
		require.NoError(t, err)
		require.Len(t, events, c.events)
		for _, e := range events {
			require.Equal(t, documentedEvent, string(e.Body))
		}
	}
}

func TestParseCustomFields(t *testing.T) {
	t.Parallel()
	full := Event{
		Schema: Custom, ID: "k", Type: "Order", Subject: "s", DataVersion: "2",
		Time: time.Date(2026, 1, 2, 2, 4, 5, 600000000, time.UTC),
	}
	with := func(change func(*Event)) Event {
		e := full
		change(&e)
		return e
	}
	const required = `"key":"k","when":"2026-01-02T03:04:05.6+01:00"`
	for _, c := range []struct {
		name, body string
		want       Event
	}{
		{"every field", `{` + required + `,"what":"Order","who":"s","version":"2"}`, full},
		{"numbers as they are written", `{"key":12345678901234567890.10e2,"when":"2026-01-02T02:04:05.6Z","what":"Order",` +
			`"who":-0,"version":2}`, with(func(e *Event) {
			e.ID, e.Subject = "12345678901234567890.10e2", "-0"
		})},
		{"defaults", `{` + required + `}`, with(func(e *Event) {
			e.Type, e.Subject, e.DataVersion = "Default.Type", "default subject", "7"
		})},
		{"defaults for null", `{` + required + `,"what":null,"who":null,"version":null}`, with(func(e *Event) {
			e.Type, e.Subject, e.DataVersion = "Default.Type", "default subject", "7"
		})},
		{"names in other case are other fields", `{` + required + `,"What":1,"WHO":[],"Version":{}}`, with(func(e *Event) {
			e.Type, e.Subject, e.DataVersion = "Default.Type", "default subject", "7"
		})},
		{"empty is not absent", `{` + required + `,"what":"Order","who":"","version":""}`, with(func(e *Event) {
			e.Subject, e.DataVersion = "", ""
		})},
		{"escapes", `{"k\u0065y":"\u006b","when":"2026-01-02T02:04:05.6Z","what":"Order","who":"s","version":"2"}`, full},
		{"topic by name", `{` + required + `,"where":"orders","what":"Order","who":"s","version":"2"}`, full},
		{"topic by path", `{` + required + `,"where":"/topics/orders","what":"Order","who":"s","version":"2"}`, full},
		{"topic empty", `{` + required + `,"where":"","what":"Order","who":"s","version":"2"}`, full},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			events, err := custom(t, everyField).Parse("application/json", []byte(c.body))
			require.NoError(t, err)
			c.want.Body = []byte(c.body)
			require.Equal(t, []Event{c.want}, events)
		})
	}
}

// A dot is part of a field's name.
func TestParseCustomDotIsPartOfTheName(t *testing.T) {
	t.Parallel()
	in := custom(t, `{"inputSchemaMappingType":"Json","properties":{"eventType":{"sourceField":"a.b"},`+
		`"subject":{"sourceField":"a.c","defaultValue":"s"}}}`)
	events, err := in.Parse("", []byte(`{"a":{"b":"inner","c":"inner"},"a.b":"outer"}`))
	require.NoError(t, err)
	require.Equal(t, "outer", events[0].Type)
	require.Equal(t, "s", events[0].Subject)
	require.Empty(t, events[0].DataVersion)
}

// Only dataVersion may be mapped without a default and be absent.
func TestParseCustomWithoutDataVersion(t *testing.T) {
	t.Parallel()
	in := custom(t, `{"inputSchemaMappingType":"Json","properties":{"eventType":{"defaultValue":"t"},`+
		`"subject":{"defaultValue":""},"dataVersion":{"sourceField":"v"}}}`)
	events, err := in.Parse("", []byte(`[{},{"v":null},{"v":"3"}]`))
	require.NoError(t, err)
	require.Empty(t, events[0].DataVersion)
	require.Empty(t, events[1].DataVersion)
	require.Equal(t, "3", events[2].DataVersion)
}

func TestInvalidCustomEvents(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 1025)
	const required = `"key":"k","when":"2026-01-02T03:04:05Z"`
	for _, c := range []rejection{
		{name: "no id", body: `{"when":"2026-01-02T03:04:05Z"}`, field: "key", message: "events[0].key: is required: " +
			"inputSchemaMapping reads id from it"},
		{name: "id null", body: `{"key":null}`, field: "key", message: "events[0].key: is required: inputSchemaMapping " +
			"reads id from it"},
		{
			name: "id an object", body: `{"key":{}}`, field: "key",
			message: "events[0].key: must be a string or a number, is an object",
		},
		{name: "id a boolean", body: `{"key":true}`, field: "key", message: "events[0].key: must be a string or a number, " +
			"is a boolean"},
		{name: "id empty", body: `{"key":""}`, field: "key", message: "events[0].key: must be 1 to 1024 bytes long, is 0"},
		{name: "id a long number", body: `{"key":` + strings.Repeat("1", 1025) +
			`}`, field: "key", message: "events[0].key: must be 1 to 1024 bytes long, is 1025"},
		{name: "no eventTime", body: `{"key":"k"}`, field: "when", message: "events[0].when: is required: " +
			"inputSchemaMapping reads eventTime from it"},
		{name: "eventTime a number", body: `{"key":"k","when":1767323045}`, field: "when", message: "events[0].when: not " +
			"an RFC 3339 time"},
		{name: "eventType too long", body: `{` + required + `,"what":"` + long +
			`"}`, field: "what", message: "events[0].what: must be 1 to 1024 bytes long, is 1025"},
		{name: "subject with a line break", body: `{` + required +
			`,"who":"\n"}`, field: "who", message: "events[0].who: must not contain a line break"},
		{name: "dataVersion an array", body: `{` + required +
			`,"version":[]}`, field: "version", message: "events[0].version: must be a string or a number, is an array"},
		{name: "another topic", body: `{` + required + `,"where":"invoices"}`, field: "where", message: `events[0].where: ` +
			`is the event's topic: must be absent, empty, "orders" or "/topics/orders"`},
		{name: "topic an object", body: `{` + required + `,"where":{}}`, field: "where", message: "events[0].where: must " +
			"be a string or a number, is an object"},
		{name: "a name twice", body: `{` + required + `,"x":1,"x":2}`, field: "x", message: "events[0].x: appears twice"},
		{name: "no object", body: `[5]`, message: "events[0]: must be an object, is a number"},
		{
			name: "no array", body: `5`, index: -1,
			message: "expected one event (an object) or an array of events, found a number",
		},
	} {
		c.parse = func(body string) ([]Event, error) {
			return custom(t, everyField).Parse("application/json", []byte(body))
		}
		c.status, c.code = 400, CodeInvalidEvent
		c.run(t)
	}
}

func TestInvalidCustomEventsWithoutDefaults(t *testing.T) {
	t.Parallel()
	const noDefaults = `{"inputSchemaMappingType":"Json","properties":{"eventType":{"sourceField":"what"},` +
		`"subject":{"sourceField":"who"}}}`
	for _, c := range []rejection{
		{
			name: "no eventType and no default", body: `[{"what":"t","who":"s"},{"who":"s"}]`, index: 1, field: "what",
			message: "events[1].what: is required: inputSchemaMapping reads eventType from it",
		},
		{
			name: "no subject and no default", body: `{"what":"t"}`, field: "who",
			message: "events[0].who: is required: inputSchemaMapping reads subject from it",
		},
	} {
		c.parse = func(body string) ([]Event, error) {
			return custom(t, noDefaults).Parse("application/json", []byte(body))
		}
		c.status, c.code = 400, CodeInvalidEvent
		c.run(t)
	}
}

func TestParseCustomNeedsInput(t *testing.T) {
	t.Parallel()
	whole := custom(t, documented)
	for message, change := range map[string]func(*Input){
		"parse events: schema CustomEventSchema without a mapping": func(in *Input) { in.Mapping = nil },
		"parse events: a mapping without NewID and Now":            func(in *Input) { in.NewID = nil },
		"parse events: a mapping without NewID and Now\n":          func(in *Input) { in.Now = time.Time{} },
		`parse events: unknown schema "customeventschema"`: func(in *Input) {
			in.Schema = "customeventschema"
		},
		`parse events: unknown schema "CustomInputSchema"`: func(in *Input) { in.Schema = CustomInput },
		`parse events: unknown schema ""`:                  func(in *Input) { in.Schema = "" },
	} {
		in := whole
		change(&in)
		_, err := in.Parse("application/json", []byte("[]"))
		require.EqualError(t, err, strings.TrimSpace(message))
		var rejection *Error
		require.NotErrorAs(t, err, &rejection)
	}
}
