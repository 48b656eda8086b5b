package event

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	gridEvent = `{"id":"1","subject":"s","eventType":"t","eventTime":"2017-06-26T18:41:00.9584103Z"}`
	cloudOne  = `{"specversion":"1.0","id":"1","source":"/s","type":"t"}`
)

// grid is a request of one Event Grid event with these members and the required ones.
func grid(members string) string { return "[" + with(gridEvent, members) + "]" }

// cloud is one CloudEvent with these members and the required ones.
func cloud(members string) string { return with(cloudOne, members) }

func with(object, members string) string { return object[:len(object)-1] + "," + members + "}" }

// change replaces one member of a request. It panics if nothing changes.
func change(body, member, by string) string {
	if !strings.Contains(body, member) {
		panic("no " + member + " in " + body)
	}
	return strings.Replace(body, member, by, 1)
}

func parseBody(schema Schema, contentType string, body []byte, topic string, l Limits) ([]Event, error) {
	return Input{Schema: schema, Topic: topic, Limits: l}.Parse(contentType, body)
}

func parseGrid(body string) ([]Event, error) {
	return parseBody(EventGrid, "application/json", []byte(body), "orders", Limits{})
}

func parseCloud(body string) ([]Event, error) {
	return parseBody(CloudEvents, "application/json", []byte(body), "orders", Limits{})
}

func TestParseEventGrid(t *testing.T) {
	t.Parallel()
	first := `{ "topic" : "/topics/orders", "id":"b6\u0038", "subject":"/myapp/vehicles/motorcycles",` +
		` "eventType":"recordInserted",
		"eventTime":"2017-06-26T20:41:00.9584103+02:00", "data":{ "make":"Ducati", "id":"not me" }, "dataVersion":"1.0",` +
		` "metadataVersion":"1" }`
	second := `{"eventTime":"2017-06-26T18:41:00Z","eventType":"ü","subject":"","id":"2","extra":[{}]}`
	events, err := parseGrid("\ufeff \n[ " + first + " ,\t" + second + " ]\r\n")
	require.NoError(t, err)
	require.Equal(t, []Event{{
		Schema: EventGrid, ID: "b68", Type: "recordInserted", Subject: "/myapp/vehicles/motorcycles",
		Time: time.Date(2017, 6, 26, 18, 41, 0, 958410300, time.UTC), DataVersion: "1.0", Body: []byte(first),
	}, {
		Schema: EventGrid, ID: "2", Type: "ü", Time: time.Date(2017, 6, 26, 18, 41, 0, 0, time.UTC), Body: []byte(second),
	}}, events)
}

func TestParseCloudEvents(t *testing.T) {
	t.Parallel()
	const full = `{"specversion":"1.0","id":"A234","source":"https://github.com/cloudevents/spec/pull",` +
		`"type":"com.example","subject":"123",
		"time":"2018-04-05T17:31:00Z","datacontenttype":"text/xml","dataschema":"#","comexample1":"value","other2":5,` +
		`"flag":true,
		"unset":null,"data":"<much wow=\"xml\"/>"}`
	want := Event{
		Schema: CloudEvents, ID: "A234", Type: "com.example", Subject: "123",
		Source: "https://github.com/cloudevents/spec/pull",
		Time:   time.Date(2018, 4, 5, 17, 31, 0, 0, time.UTC), Body: []byte(full),
	}
	least := Event{Schema: CloudEvents, ID: "1", Type: "t", Source: "/s", Body: []byte(cloudOne)}
	for _, c := range []struct {
		name, contentType, body string
		want                    []Event
	}{
		{"structured", "application/cloudevents+json; charset=utf-8", full, []Event{want}},
		{
			"batch", "application/cloudevents-batch+json; charset=utf-8", "[" + full + "," + cloudOne + "]",
			[]Event{want, least},
		},
		{"batch of none", "application/cloudevents-batch+json", "[]", nil},
		{"plain JSON, one", "application/json", full, []Event{want}},
		{"plain JSON, batch", "application/json", "[" + cloudOne + "]", []Event{least}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			events, err := parseBody(CloudEvents, c.contentType, []byte(c.body), "orders", DefaultLimits())
			require.NoError(t, err)
			require.Equal(t, c.want, events)
		})
	}
}

func TestParseAccepts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, body string
		parse      func(string) ([]Event, error)
	}{
		{"topic by name", grid(`"topic":"orders"`), parseGrid},
		{"topic by path", grid(`"topic":"/topics/orders"`), parseGrid},
		{"topic by path, escaped", grid(`"topic":"\/topics\/orders"`), parseGrid},
		{"topic empty", grid(`"topic":""`), parseGrid},
		{"topic null", grid(`"topic":null`), parseGrid},
		{"metadataVersion 1", grid(`"metadataVersion":"1"`), parseGrid},
		{"metadataVersion null", grid(`"metadataVersion":null`), parseGrid},
		{"dataVersion null", grid(`"dataVersion":null`), parseGrid},
		{"dataVersion empty", grid(`"dataVersion":""`), parseGrid},
		{"names differ in case", grid(`"ID":7,"Topic":8,"data":1,"Data":2`), parseGrid},
		{"name that needs no reader", grid(`"\ud800":1`), parseGrid},
		{"data null", grid(`"data":null`), parseGrid},
		{"data with NUL", grid(`"data":"\u0000"`), parseGrid},
		{"data with a lone surrogate", grid(`"data":"\ud800"`), parseGrid},
		{"data with a huge number", grid(`"data":1e999999`), parseGrid},
		{"data with equal names", grid(`"data":{"a":1,"a":2}`), parseGrid},
		{"data with envelope names", grid(`"data":{"id":1,"topic":2,"id":3}`), parseGrid},
		{"longest id", change(grid(`"x":1`), `"id":"1"`, `"id":"`+strings.Repeat("a", 1024)+`"`), parseGrid},
		{"longest subject", change(grid(`"x":1`), `"subject":"s"`, `"subject":"`+strings.Repeat("a", 4096)+`"`), parseGrid},
		{"length counts decoded bytes", change(grid(`"x":1`), `"id":"1"`,
			`"id":"`+strings.Repeat(`\u0061`, 1024)+`"`), parseGrid},
		{"tab in the id", change(grid(`"x":1`), `"id":"1"`, `"id":"a\tb"`), parseGrid},
		{"surrogate pair in the id", change(grid(`"x":1`), `"id":"1"`, `"id":"\ud83d\ude00"`), parseGrid},
		{"deepest data", grid(`"data":` + strings.Repeat("[", 255) + strings.Repeat("]", 255)), parseGrid},

		{
			"optional attributes null", cloud(`"subject":null,"time":null,"datacontenttype":null,"dataschema":null`), parseCloud,
		},
		{"data null", cloud(`"data":null`), parseCloud},
		{"data_base64", cloud(`"data_base64":"AAECAw=="`), parseCloud},
		{"data_base64 empty", cloud(`"data_base64":""`), parseCloud},
		{"data_base64 with escaped slashes", cloud(`"data_base64":"\/\/\/\/"`), parseCloud},
		{"data_base64 null beside data", cloud(`"data_base64":null,"data":{}`), parseCloud},
		{"extension of 20 characters", cloud(`"abcdefghij0123456789":"x"`), parseCloud},
		{"extension empty string", cloud(`"x":""`), parseCloud},
		{"extension false", cloud(`"x":false`), parseCloud},
		{"extension negative", cloud(`"x":-1`), parseCloud},
		{"extension named as in Event Grid", cloud(`"topic":"elsewhere"`), parseCloud},
		{"attribute name written with escapes", change(cloudOne, `"id"`, `"\u0069d"`), parseCloud},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			events, err := c.parse(c.body)
			require.NoError(t, err)
			require.Len(t, events, 1)
		})
	}
}

func TestParseNothing(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"[]", " [ ] ", "\ufeff[]"} {
		events, err := parseGrid(body)
		require.NoError(t, err)
		require.Empty(t, events)
	}
}

type rejection struct {
	name, body, message string
	parse               func(string) ([]Event, error)
	status              int
	code                string
	index               int
	field               string
}

func (c rejection) run(t *testing.T) {
	t.Helper()
	t.Run(c.name, func(t *testing.T) {
		t.Parallel()
		events, err := c.parse(c.body)
		require.Nil(t, events)
		require.EqualError(t, err, c.message)
		var got *Error
		require.ErrorAs(t, err, &got)
		require.True(t, got.Offset >= 0 && got.Offset <= len(c.body), "the mistake is at byte %d", got.Offset)
		want := Error{Status: c.status, Code: c.code, Index: c.index, Field: c.field, Message: c.message, Offset: got.Offset}
		require.Equal(t, want, *got)
	})
}

func TestParseOne(t *testing.T) {
	t.Parallel()
	in := Input{Schema: EventGrid, Topic: "orders"}
	const body = `{"id":"a","subject":"","eventType":"T","eventTime":"2026-11-20T09:30:00Z"}`
	e, err := in.ParseOne([]byte(" " + body + "\n"))
	require.NoError(t, err)
	require.Equal(t, body, string(e.Body))
	require.Equal(t, "a", e.ID)
	for _, c := range []struct {
		text, message string
		offset        int
	}{
		{"[" + body + "]", "expected one event (an object), found an array", 0},
		{body + body, "the body continues after its end, at byte 74", 74},
		{`{"id":`, "events[0]: the text ends too early, at byte 6 of the body", 6},
		{"\n" + strings.Replace(body, `"a"`, "7", 1), "events[0].id: must be a string, is a number", 7},
		{`{"subject":""}`, "events[0].id: is required", 0},
		{"\xff", "the body is not UTF-8: first wrong byte at 0", 0},
	} {
		_, err := in.ParseOne([]byte(c.text))
		var rejected *Error
		require.ErrorAs(t, err, &rejected)
		require.Equal(t, c.message, rejected.Message)
		require.Equal(t, c.offset, rejected.Offset, c.message)
	}
	_, err = Input{Schema: Custom}.ParseOne(nil)
	require.ErrorContains(t, err, "without a mapping")
}

func TestInvalidBodies(t *testing.T) {
	t.Parallel()
	for _, c := range []rejection{
		{name: "empty", body: "", message: "the body is empty: expected an array of events"},
		{name: "white space", body: " \n", message: "the body is empty: expected an array of events"},
		{name: "byte order mark alone", body: "\ufeff", message: "the body is empty: expected an array of events"},
		{name: "two byte order marks", body: "\ufeff\ufeff[]", message: "expected a value, at byte 3 of the body"},
		{name: "no JSON", body: "hello", message: "expected a value, at byte 0 of the body"},
		{name: "string without end", body: `"abc`, message: "the text ends too early, at byte 4 of the body"},
		{name: "continues", body: "[] x", message: "the body continues after its end, at byte 3"},
		{name: "two arrays", body: "[][]", message: "the body continues after its end, at byte 2"},
		{name: "NUL after the end", body: "[]\x00", message: "the body continues after its end, at byte 2"},
		{name: "not UTF-8", body: grid("\"data\":\"\xff\""), message: "the body is not UTF-8: first wrong byte at 92"},
		{name: "surrogate in UTF-8", body: "[\"\xed\xa0\x80\"]", message: "the body is not UTF-8: first wrong byte at 2"},
		{name: "UTF-16", body: "\xff\xfe[\x00]\x00", message: "the body is not UTF-8: first wrong byte at 0"},
	} {
		c.parse, c.status, c.code, c.index = parseGrid, 400, CodeInvalidJSON, -1
		c.run(t)
	}
}

func TestInvalidShapes(t *testing.T) {
	t.Parallel()
	structured := func(body string) ([]Event, error) {
		return parseBody(CloudEvents, "application/cloudevents+json", []byte(body), "orders", Limits{})
	}
	batch := func(body string) ([]Event, error) {
		return parseBody(CloudEvents, "application/cloudevents-batch+json", []byte(body), "orders", Limits{})
	}
	for _, c := range []rejection{
		{
			name: "Event Grid, object", parse: parseGrid, body: gridEvent,
			message: "expected an array of events, found an object",
		},
		{name: "Event Grid, string", parse: parseGrid, body: `"x"`, message: "expected an array of events, found a string"},
		{name: "Event Grid, number", parse: parseGrid, body: `-1`, message: "expected an array of events, found a number"},
		{name: "Event Grid, null", parse: parseGrid, body: `null`, message: "expected an array of events, found null"},
		{
			name: "Event Grid, boolean", parse: parseGrid, body: `true`, message: "expected an array of events, found a boolean",
		},
		{name: "structured, array", parse: structured, body: `[]`, message: "expected one event (an object), found an array"},
		{name: "batch, object", parse: batch, body: cloudOne, message: "expected an array of events, found an object"},
		{name: "plain JSON, string", parse: parseCloud, body: `"x"`, message: "expected one event (an object) or an array " +
			"of events, found a string"},
	} {
		c.status, c.code, c.index = 400, CodeInvalidEvent, -1
		c.run(t)
	}
}

func TestMalformedEvents(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 256) + strings.Repeat("]", 256)
	for _, c := range []rejection{
		{name: "no end", body: "[" +
			gridEvent, index: 0, message: "events[0]: the text ends too early, at byte 84 of the body"},
		{name: "no comma", body: "[" + gridEvent + gridEvent + "]", index: 0, message: "events[0]: expected ',' or ']' " +
			"after an element, at byte 84 of the body"},
		{name: "comma before the end", body: "[" + gridEvent + ",]", index: 1, message: "events[1]: expected a value, at " +
			"byte 85 of the body"},
		{name: "comma only", body: "[,]", index: 0, message: "events[0]: expected a value, at byte 1 of the body"},
		{name: "broken data", body: grid(`"data":{]`), index: 0, message: "events[0]: expected a member's name in double " +
			"quotes, at byte 92 of the body"},
		{name: "too deep", body: grid(`"data":` + deep), index: 0, message: "events[0]: nested deeper than 256 levels, at " +
			"byte 346 of the body"},
	} {
		c.parse, c.status, c.code = parseGrid, 400, CodeInvalidJSON
		c.run(t)
	}
}

func TestInvalidEventGridEnvelopes(t *testing.T) {
	t.Parallel()
	plain := "[" + gridEvent + "]"
	long := func(n int) string { return strings.Repeat("a", n) }
	for _, c := range []rejection{
		{name: "no object", body: "[1]", message: "events[0]: must be an object, is a number"},
		{name: "array in the array", body: "[[]]", message: "events[0]: must be an object, is an array"},
		{name: "empty object", body: "[{}]", field: "id", message: "events[0].id: is required"},
		{name: "id null", body: change(plain, `"id":"1"`, `"id":null`), field: "id", message: "events[0].id: is required"},
		{name: "id in capitals", body: change(plain, `"id"`, `"Id"`), field: "id", message: "events[0].id: is required"},
		{name: "id a number", body: change(plain, `"id":"1"`, `"id":1`), field: "id", message: "events[0].id: must be a " +
			"string, is a number"},
		{name: "id empty", body: change(plain, `"id":"1"`, `"id":""`), field: "id", message: "events[0].id: must be 1 to " +
			"1024 bytes long, is 0"},
		{name: "id too long", body: change(plain, `"id":"1"`,
			`"id":"`+long(1025)+`"`), field: "id", message: "events[0].id: must be 1 to 1024 bytes long, is 1025"},
		{name: "id too long in bytes", body: change(plain, `"id":"1"`,
			`"id":"`+strings.Repeat("é", 513)+`"`), field: "id", message: "events[0].id: must be 1 to 1024 bytes long, is 1026"},
		{name: "id with NUL", body: change(plain, `"id":"1"`, `"id":"\u0000"`), field: "id", message: "events[0].id: must " +
			"not contain NUL"},
		{name: "id with CR", body: change(plain, `"id":"1"`, `"id":"a\rb"`), field: "id", message: "events[0].id: must not " +
			"contain a line break"},
		{name: "id with LF", body: change(plain, `"id":"1"`, `"id":"a\u000ab"`), field: "id", message: "events[0].id: must " +
			"not contain a line break"},
		{name: "id with a lone surrogate", body: change(plain, `"id":"1"`,
			`"id":"\udfff"`), field: "id", message: "events[0].id: must not contain a lone surrogate"},
		{name: "no subject", body: change(plain, `"subject":"s",`,
			``), field: "subject", message: "events[0].subject: is required"},
		{name: "subject an array", body: change(plain, `"subject":"s"`,
			`"subject":["s"]`), field: "subject", message: "events[0].subject: must be a string, is an array"},
		{
			name: "subject too long", body: change(plain, `"subject":"s"`, `"subject":"`+long(4097)+`"`), field: "subject",
			message: "events[0].subject: must be 0 to 4096 bytes long, is 4097",
		},
		{name: "subject with a line break", body: change(plain, `"subject":"s"`,
			`"subject":"\n"`), field: "subject", message: "events[0].subject: must not contain a line break"},
		{name: "no eventType", body: change(plain, `"eventType":"t",`,
			``), field: "eventType", message: "events[0].eventType: is required"},
		{
			name: "eventType too long", body: change(plain, `"eventType":"t"`, `"eventType":"`+long(1025)+`"`),
			field: "eventType", message: "events[0].eventType: must be 1 to 1024 bytes long, is 1025",
		},
		{name: "no eventTime", body: change(plain, `"eventTime"`,
			`"time"`), field: "eventTime", message: "events[0].eventTime: is required"},
		{name: "eventTime without offset", body: change(plain, `03Z"`,
			`03"`), field: "eventTime", message: "events[0].eventTime: not an RFC 3339 time"},
		{name: "eventTime empty", body: change(plain, `2017-06-26T18:41:00.9584103Z`,
			``), field: "eventTime", message: "events[0].eventTime: must be 1 to 1024 bytes long, is 0"},
		{
			name: "dataVersion a number", body: grid(`"dataVersion":1`), field: "dataVersion",
			message: "events[0].dataVersion: must be a string, is a number",
		},
		{
			name: "dataVersion with a line break", body: grid(`"dataVersion":"1\r\n"`), field: "dataVersion",
			message: "events[0].dataVersion: must not contain a line break",
		},
		{name: "another topic", body: grid(`"topic":"invoices"`), field: "topic", message: `events[0].topic: must be ` +
			`absent, empty, "orders" or "/topics/orders"`},
		{
			name: "topic a number", body: grid(`"topic":0`), field: "topic",
			message: "events[0].topic: must be a string, is a number",
		},
		{
			name: "metadataVersion 2", body: grid(`"metadataVersion":"2"`), field: "metadataVersion",
			message: `events[0].metadataVersion: must be absent or "1"`,
		},
		{
			name: "metadataVersion empty", body: grid(`"metadataVersion":""`), field: "metadataVersion",
			message: `events[0].metadataVersion: must be absent or "1"`,
		},
		{
			name: "metadataVersion a number", body: grid(`"metadataVersion":1`), field: "metadataVersion",
			message: "events[0].metadataVersion: must be a string, is a number",
		},
		{name: "id twice", body: grid(`"id":"1"`), field: "id", message: "events[0].id: appears twice"},
		{
			name: "id twice, once escaped", body: grid(`"\u0069\u0064":"2"`), field: "id",
			message: "events[0].id: appears twice",
		},
		{name: "data twice", body: grid(`"data":1,"data":1`), field: "data", message: "events[0].data: appears twice"},
		{name: "unknown member twice", body: grid(`"x y":1,"x y":1`), field: "x y", message: "events[0].x y: appears twice"},
		{name: "empty name twice", body: grid(`"":1,"":1`), field: "", message: "events[0]: appears twice"},
		{name: "the fourth event", body: "[" + strings.Repeat(gridEvent+",", 3) + change(gridEvent, "T18", "T28") +
			"]", index: 3, field: "eventTime", message: "events[3].eventTime: not an RFC 3339 time"},
		{name: "the first mistake wins", body: `[{"id":1},{"id":2},nonsense`, field: "id", message: "events[0].id: must be " +
			"a string, is a number"},
	} {
		c.parse, c.status, c.code = parseGrid, 400, CodeInvalidEvent
		c.run(t)
	}
}

func TestInvalidCloudEventEnvelopes(t *testing.T) {
	t.Parallel()
	const base64Beside, name20 = "events[0].data_base64: must be absent if there is data",
		"an extension attribute's name must be 1 to 20 characters of a-z and 0-9"
	for _, c := range []rejection{
		{name: "no specversion", body: change(cloudOne, `"specversion":"1.0",`,
			``), field: "specversion", message: "events[0].specversion: is required"},
		{name: "specversion 0.3", body: change(cloudOne, `1.0`,
			`0.3`), field: "specversion", message: `events[0].specversion: must be "1.0"`},
		{name: "specversion a number", body: change(cloudOne, `"1.0"`,
			`1.0`), field: "specversion", message: "events[0].specversion: must be a string, is a number"},
		{name: "no id", body: change(cloudOne, `"id":"1",`, ``), field: "id", message: "events[0].id: is required"},
		{name: "id null", body: change(cloudOne, `"id":"1"`, `"id":null`), field: "id", message: "events[0].id: is required"},
		{name: "source empty", body: change(cloudOne, `"/s"`, `""`), field: "source", message: "events[0].source: must be " +
			"1 to 1024 bytes long, is 0"},
		{name: "source with a line break", body: change(cloudOne, `"/s"`,
			`"/\r"`), field: "source", message: "events[0].source: must not contain a line break"},
		{name: "no type", body: change(cloudOne, `,"type":"t"`, ``), field: "type", message: "events[0].type: is required"},
		{name: "subject empty", body: cloud(`"subject":""`), field: "subject", message: "events[0].subject: must be 1 to " +
			"4096 bytes long, is 0"},
		{
			name: "time a date", body: cloud(`"time":"2018-04-05"`), field: "time",
			message: "events[0].time: not an RFC 3339 time",
		},
		{
			name: "datacontenttype empty", body: cloud(`"datacontenttype":""`), field: "datacontenttype",
			message: "events[0].datacontenttype: must be 1 to 1024 bytes long, is 0",
		},
		{
			name: "dataschema an object", body: cloud(`"dataschema":{}`), field: "dataschema",
			message: "events[0].dataschema: must be a string, is an object",
		},
		{name: "data and data_base64", body: cloud(`"data":1,"data_base64":""`), field: "data_base64", message: base64Beside},
		{
			name: "data of null and data_base64", body: cloud(`"data":null,"data_base64":""`), field: "data_base64",
			message: base64Beside,
		},
		{
			name: "data_base64 a number", body: cloud(`"data_base64":1`), field: "data_base64",
			message: "events[0].data_base64: must be a string, is a number",
		},
		{
			name: "data_base64 without padding", body: cloud(`"data_base64":"AA"`), field: "data_base64",
			message: "events[0].data_base64: must be base64 with padding",
		},
		{
			name: "extension in capitals", body: cloud(`"traceParent":"x"`), field: "traceParent",
			message: "events[0].traceParent: " + name20,
		},
		{
			name: "extension of 21 characters", body: cloud(`"abcdefghij0123456789a":"x"`), field: "abcdefghij0123456789a",
			message: "events[0].abcdefghij0123456789a: " + name20,
		},
		{name: "extension without a name", body: cloud(`"":null`), field: "", message: "events[0]: " + name20},
		{
			name: "extension with a megabyte of name", body: cloud(`"` + strings.Repeat("é", 1<<19-60) + `":1`),
			field: strings.Repeat("é", 32) + "...", message: "events[0]." + strings.Repeat("é", 32) + "...: " + name20,
		},
		{name: "extension an object", body: cloud(`"x":{}`), field: "x", message: "events[0].x: an extension attribute " +
			"must be a string, a number or a boolean, is an object"},
		{name: "extension an array", body: cloud(`"x":[]`), field: "x", message: "events[0].x: an extension attribute must " +
			"be a string, a number or a boolean, is an array"},
		{name: "type twice", body: cloud(`"type":"t"`), field: "type", message: "events[0].type: appears twice"},
		{name: "in a batch", body: "[" + cloudOne + "," + change(cloudOne, "1.0", "2.0") +
			"]", index: 1, field: "specversion", message: `events[1].specversion: must be "1.0"`},
	} {
		c.parse, c.status, c.code = parseCloud, 400, CodeInvalidEvent
		c.run(t)
	}
}

func TestInvalidContentTypes(t *testing.T) {
	t.Parallel()
	events, err := parseBody(CloudEvents, "text/plain", []byte(cloudOne), "orders", Limits{})
	require.Nil(t, events)
	var got *Error
	require.ErrorAs(t, err, &got)
	require.Equal(t, 415, got.Status)
}

// A valid U+FFFD has the rune that DecodeRune returns for a wrong byte, but three bytes.
func TestFirstInvalid(t *testing.T) {
	t.Parallel()
	require.Equal(t, 4, firstInvalid([]byte("a\ufffd\xff")))
	require.Equal(t, 4, firstInvalid([]byte("a\ufffd")))
	require.Equal(t, 1, firstInvalid([]byte("a\xef\xbf")))
}

func TestParseUnknownSchema(t *testing.T) {
	t.Parallel()
	_, err := parseBody("CustomInputSchema", "application/json", []byte("[]"), "orders", Limits{})
	require.EqualError(t, err, `parse events: unknown schema "CustomInputSchema"`)
	var rejection *Error
	require.NotErrorAs(t, err, &rejection)
}

// Appending to one event's Body must not overwrite the next one's.
func TestParseBodiesDoNotOverlap(t *testing.T) {
	t.Parallel()
	events, err := parseGrid("[" + gridEvent + "," + gridEvent + "]")
	require.NoError(t, err)
	_ = append(events[0].Body, "xxxxxxxxxx"...)
	require.Equal(t, gridEvent, string(events[1].Body))
}
