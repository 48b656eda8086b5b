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

// Any value but null is an event, also in a dead letter. Its fields have their defaults.
func TestParseCustomValues(t *testing.T) {
	t.Parallel()
	in := custom(t, `{"inputSchemaMappingType":"Json","properties":{`+
		`"eventType":{"sourceField":"what","defaultValue":"t"},"subject":{"defaultValue":"s"}}}`)
	values := []string{`"data"`, `-1.50`, `true`, `[]`, `[{"what":"x"}, 2]`}
	events, err := in.Parse("application/json", []byte("["+strings.Join(values, " , ")+"]"))
	require.NoError(t, err)
	require.Len(t, events, len(values))
	for i, value := range values {
		require.Equal(t, value, string(events[i].Body))
		require.Equal(t, "t", events[i].Type, "an array has no members")
		one, err := in.ParseOne([]byte(value))
		require.NoError(t, err)
		require.Equal(t, value, string(one.Body))
		delivered, err := AppendDelivery(nil, one, "orders", EventGrid)
		require.NoError(t, err)
		require.True(t, strings.HasSuffix(string(delivered), `,"data":`+value+`}`), "%s", delivered)
		dead, err := in.ReadDeadLetter([]byte(`{"deadLetterReason":"R",` + string(delivered[1:])))
		require.NoError(t, err)
		require.Equal(t, value, string(dead.Event.Body))
	}
}

func TestParseCustomFields(t *testing.T) {
	t.Parallel()
	full := Event{
		Schema: Custom, ID: "k", Type: "Order", Subject: "s", DataVersion: "2",
		Time: time.Date(2026, 1, 2, 2, 4, 5, 600000000, time.UTC),
	}
	defaults, numbers, empty := full, full, full
	defaults.Type, defaults.Subject, defaults.DataVersion = "Default.Type", "default subject", "7"
	numbers.ID, numbers.Subject = "12345678901234567890.10e2", "-0"
	empty.Subject, empty.DataVersion = "", ""
	const required, rest = `"key":"k","when":"2026-01-02T03:04:05.6+01:00"`, `"what":"Order","who":"s","version":"2"}`
	for _, c := range []struct {
		name, body string
		want       Event
	}{
		{"every field", `{` + required + `,` + rest, full},
		{
			"numbers as they are written",
			`{"key":12345678901234567890.10e2,"when":"2026-01-02T02:04:05.6Z","what":"Order","who":-0,"version":2}`, numbers,
		},
		{"defaults", `{` + required + `}`, defaults},
		{"defaults for null", `{` + required + `,"what":null,"who":null,"version":null}`, defaults},
		{"names in other case are other fields", `{` + required + `,"What":1,"WHO":[],"Version":{}}`, defaults},
		{"empty is not absent", `{` + required + `,"what":"Order","who":"","version":""}`, empty},
		{"escapes", `{"k\u0065y":"\u006b","when":"2026-01-02T02:04:05.6Z",` + rest, full},
		{"a time of date +%z", strings.Replace(`{`+required+`,`+rest, "+01:00", "+0100", 1), full},
		{"a time without an offset", `{"key":"k","when":"2026-01-02 02:04:05.6",` + rest, full},
		{"topic by name", `{` + required + `,"where":"orders",` + rest, full},
		{"topic by path", `{` + required + `,"where":"/topics/orders",` + rest, full},
		{"topic empty", `{` + required + `,"where":"",` + rest, full},
	} {
		events, err := custom(t, everyField).Parse("application/json", []byte(c.body))
		require.NoError(t, err, c.name)
		c.want.Body = []byte(c.body)
		require.Equal(t, []Event{c.want}, events, c.name)
	}
}

// A dot in a field leads into an object. Only dataVersion may be mapped without a default and be absent.
func TestParseCustomMappings(t *testing.T) {
	t.Parallel()
	in := custom(t, `{"inputSchemaMappingType":"Json","properties":{"eventType":{"sourceField":"a.b"},`+
		`"subject":{"sourceField":"a.c.d","defaultValue":"s"},"dataVersion":{"sourceField":"v"}}}`)
	const body = `{"a": {"b":"first", "\u0062" : "inner","c":{"d":5}},"a.b":"outer"}`
	events, err := in.Parse("", []byte("["+body+","+with(body, `"v":null`)+","+with(body, `"v":"3"`)+"]"))
	require.NoError(t, err)
	for i, version := range []string{"", "", "3"} {
		require.Equal(t, "inner", events[i].Type)
		require.Equal(t, "5", events[i].Subject)
		require.Equal(t, version, events[i].DataVersion)
	}
	for _, subject := range []string{`{"d":null}`, `{"e":1}`, `null`, `"d"`, `[{"d":1}]`, `{}`} {
		events, err := in.Parse("", []byte(`{"a":{"b":"t","c":`+subject+`},"a.c.d":"no"}`))
		require.NoError(t, err, subject)
		require.Equal(t, "s", events[0].Subject, subject)
	}
}

func TestInvalidCustomEvents(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 1025)
	const required = `"key":"k","when":"2026-01-02T03:04:05Z"`
	parse := func(mapping string) func(string) ([]Event, error) {
		return func(body string) ([]Event, error) { return custom(t, mapping).Parse("application/json", []byte(body)) }
	}
	const noID, noTime = "is required: inputSchemaMapping reads id from it",
		"is required: inputSchemaMapping reads eventTime from it"
	requireRejections(t, parse(everyField), 400, CodeInvalidEvent, []rejection{
		{"no id", `{"when":"2026-01-02T03:04:05Z"}`, "key", noID},
		{"id null", `{"key":null}`, "key", noID},
		{"id an object", `{"key":{}}`, "key", "must be a string or a number, is an object"},
		{"id a boolean", `{"key":true}`, "key", "must be a string or a number, is a boolean"},
		{"id empty", `{"key":""}`, "key", "must be 1 to 1024 bytes long, is 0"},
		{"id a long number", `{"key":` + strings.Repeat("1", 1025) + `}`, "key", "must be 1 to 1024 bytes long, is 1025"},
		{"no eventTime", `{"key":"k"}`, "when", noTime},
		{"eventTime a number", `{"key":"k","when":1767323045}`, "when", notRFC3339},
		{"eventType long", `{` + required + `,"what":"` + long + `"}`, "what", "must be 1 to 1024 bytes long, is 1025"},
		{"subject with a line break", `{` + required + `,"who":"\n"}`, "who", "must not contain a line break"},
		{"dataVersion", `{` + required + `,"version":[]}`, "version", "must be a string or a number, is an array"},
		{
			"another topic", `{` + required + `,"where":"invoices"}`, "where",
			`is the event's topic: must be absent, empty, "orders" or "/topics/orders"`,
		},
		{"topic an object", `{` + required + `,"where":{}}`, "where", "must be a string or a number, is an object"},
		{"a name twice", `{` + required + `,"x":1,"x":2}`, "x", "appears twice"},
		{"null", `[null]`, "", "must not be null"},
		{"no object, and a required field", `["data"]`, "key", noID},
		{"no array", `5`, whole, "expected one event (an object) or an array of events, found a number"},
	})
	nested := strings.Replace(everyField, `"who"`, `"meta.who"`, 1)
	requireRejections(t, parse(nested), 400, CodeInvalidEvent, []rejection{
		{"nested", `{` + required + `,"meta":{"who":{}}}`, "meta.who", "must be a string or a number, is an object"},
		{"nested line break", `{` + required + `,"meta":{"who":"\n"}}`, "meta.who", "must not contain a line break"},
	})
	const noDefaults = `{"inputSchemaMappingType":"Json","properties":{"eventType":{"sourceField":"what"},` +
		`"subject":{"sourceField":"who"}}}`
	requireRejections(t, parse(noDefaults), 400, CodeInvalidEvent, []rejection{
		{
			"no eventType and no default", `[{"what":"t","who":"s"},{"who":"s"}]`, "[1].what",
			"is required: inputSchemaMapping reads eventType from it",
		},
		{"no subject and no default", `{"what":"t"}`, "who", "is required: inputSchemaMapping reads subject from it"},
	})
}

func TestParseCustomNeedsInput(t *testing.T) {
	t.Parallel()
	whole := custom(t, documented)
	for message, change := range map[string]func(*Input){
		"parse events: schema CustomEventSchema without a mapping": func(in *Input) { in.Mapping = nil },
		"parse events: a mapping without NewID and Now":            func(in *Input) { in.NewID = nil },
		"parse events: a mapping without NewID and Now\n":          func(in *Input) { in.Now = time.Time{} },
		`parse events: unknown schema "customeventschema"`:         func(in *Input) { in.Schema = "customeventschema" },
		`parse events: unknown schema "CustomInputSchema"`:         func(in *Input) { in.Schema = CustomInput },
		`parse events: unknown schema ""`:                          func(in *Input) { in.Schema = "" },
	} {
		in := whole
		change(&in)
		_, err := in.Parse("application/json", []byte("[]"))
		require.EqualError(t, err, strings.TrimSpace(message))
		var rejection *Error
		require.NotErrorAs(t, err, &rejection)
	}
}
