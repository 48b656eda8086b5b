package event

import (
	"fmt"
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
		events, err := parseBody(CloudEvents, c.contentType, []byte(c.body), "orders", DefaultLimits())
		require.NoError(t, err, c.name)
		require.Equal(t, c.want, events, c.name)
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
		{"unknown names differ in case", grid(`"extra":7,"Extra":8,"Datum":1,"K":2`), parseGrid},
		{"name that needs no reader", grid(`"\ud800":1`), parseGrid},
		{"data null", grid(`"data":null`), parseGrid},
		{"data with NUL", grid(`"data":"\u0000"`), parseGrid},
		{"data with a lone surrogate", grid(`"data":"\ud800"`), parseGrid},
		{"data with a huge number", grid(`"data":1e999999`), parseGrid},
		{"data with equal names", grid(`"data":{"a":1,"a":2}`), parseGrid},
		{"data with envelope names", grid(`"data":{"id":1,"topic":2,"id":3}`), parseGrid},
		{"longest id", change(grid(`"x":1`), `"id":"1"`, `"id":"`+strings.Repeat("a", 1024)+`"`), parseGrid},
		{"longest subject", change(grid(`"x":1`), `"subject":"s"`, `"subject":"`+strings.Repeat("a", 4096)+`"`), parseGrid},
		{"length of decoded bytes", change(grid(`"x":1`), `"1"`, `"`+strings.Repeat(`\u0061`, 1024)+`"`), parseGrid},
		{"tab in the id", change(grid(`"x":1`), `"id":"1"`, `"id":"a\tb"`), parseGrid},
		{"surrogate pair in the id", change(grid(`"x":1`), `"id":"1"`, `"id":"\ud83d\ude00"`), parseGrid},
		{"deepest data", grid(`"data":` + strings.Repeat("[", 255) + strings.Repeat("]", 255)), parseGrid},

		{"optional null", cloud(`"subject":null,"time":null,"datacontenttype":null,"dataschema":null`), parseCloud},
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
		events, err := c.parse(c.body)
		require.NoError(t, err, c.name)
		require.Len(t, events, 1, c.name)
	}
}

// Names in any letter case, and numbers as texts. Body has the usual form, and otherwise every byte that was received.
func TestParseUnusualEventGrid(t *testing.T) {
	t.Parallel()
	const usual = `{"id":"1","eventType":"t","subject":"s","eventTime":"2026-11-28T03:00:00Z","data":{"n":1},` +
		`"dataVersion":"1"}`
	want := Event{
		Schema: EventGrid, ID: "1", Type: "t", Subject: "s", DataVersion: "1",
		Time: time.Date(2026, 11, 28, 3, 0, 0, 0, time.UTC),
	}
	for _, c := range []struct{ name, body, stored string }{
		{"usual", usual, usual},
		{
			"as .NET spells it",
			`{"ID":"1","EventType":"t","Subject":"s","EventTime":"2026-11-28T03:00:00Z","Data":{"n":1},` +
				`"DataVersion":"1"}`, usual,
		},
		{"one member only", change(usual, `"data"`, `"Data"`), usual},
		{"a name with escapes", change(usual, `"data"`, `"\u0044at\u0061"`), usual},
		{
			"white space stays", change(usual, `"subject":"s"`, ` "SUBJECT" :`+"\n"+`"s" `),
			change(usual, `"subject":"s"`, ` "subject" :`+"\n"+`"s" `),
		},
		{"numbers", change(change(usual, `"1"`, `1`), `"1"`, `1`), usual},
		{"a number and its name", change(usual, `"id":"1"`, `"iD" : 1 `), change(usual, `"id":"1"`, `"id" : "1" `)},
		{"metadata", with(usual, `"MetadataVersion":1,"TOPIC":null`), with(usual, `"metadataVersion":"1","topic":null`)},
		{"data a number", change(usual, `"data":{"n":1}`, `"DATA":-1`), change(usual, `"data":{"n":1}`, `"data":-1`)},
	} {
		events, err := parseGrid("[" + c.body + "]")
		require.NoError(t, err, c.name)
		want.Body = []byte(c.stored)
		require.Equal(t, []Event{want}, events, c.name)
	}
	odd := with(change(usual, `{"n":1}`, `{"ID":1,"Data":2,":\"id\"":3}`), `"Extra":{"ID":4},"x\ud800":5,"\"ID\":":6`)
	events, err := parseGrid("[" + change(odd, `"id":"1"`, `"Id":-1.50e+3`) + "]")
	require.NoError(t, err)
	require.Equal(t, "-1.50e+3", events[0].ID, "as it is written")
	require.Equal(t, change(odd, `"id":"1"`, `"id":"-1.50e+3"`), string(events[0].Body), "what is not of the schema stays")
}

func TestParseNothing(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"[]", " [ ] ", "\ufeff[]"} {
		events, err := parseGrid(body)
		require.NoError(t, err)
		require.Empty(t, events)
	}
}

// rejection is an invalid body with the field and the text of the error, of events[0] unless the field names another
// event: "[3].eventTime". The field whole is the body itself.
type rejection struct{ name, body, field, text string }

const whole = "-"

func (c rejection) want(status int, code string) Error {
	e := Error{Status: status, Code: code, Field: c.field, Message: c.text}
	if c.field == whole {
		e.Index, e.Field = -1, ""
		return e
	}
	if _, err := fmt.Sscanf(c.field, "[%d]", &e.Index); err == nil {
		_, e.Field, _ = strings.Cut(c.field, "]")
		e.Field = strings.TrimPrefix(e.Field, ".")
	}
	at := fmt.Sprintf("events[%d]", e.Index)
	if e.Field != "" {
		at += "." + e.Field
	}
	e.Message = at + ": " + c.text
	return e
}

func requireRejections(t *testing.T, parse func(string) ([]Event, error), status int, code string, rows []rejection) {
	t.Helper()
	for _, c := range rows {
		events, err := parse(c.body)
		require.Nil(t, events, c.name)
		var got *Error
		require.ErrorAs(t, err, &got, c.name)
		require.True(t, got.Offset >= 0 && got.Offset <= len(c.body), "%s: at byte %d", c.name, got.Offset)
		want := c.want(status, code)
		want.Offset = got.Offset
		require.Equal(t, want, *got, c.name)
		require.EqualError(t, err, want.Message)
	}
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
		{"\n" + strings.Replace(body, `"a"`, "[]", 1), "events[0].id: must be a string or a number, is an array", 7},
		{strings.Replace(body, `"subject"`, `"ID"`, 1), `events[0].ID: is the same member as "id": send one of them`, 15},
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
	const empty = "the body is empty: expected an array of events"
	requireRejections(t, parseGrid, 400, CodeInvalidJSON, []rejection{
		{"empty", "", whole, empty},
		{"white space", " \n", whole, empty},
		{"byte order mark alone", "\ufeff", whole, empty},
		{"two byte order marks", "\ufeff\ufeff[]", whole, "expected a value, at byte 3 of the body"},
		{"no JSON", "hello", whole, "expected a value, at byte 0 of the body"},
		{"string without end", `"abc`, whole, "the text ends too early, at byte 4 of the body"},
		{"continues", "[] x", whole, "the body continues after its end, at byte 3"},
		{"two arrays", "[][]", whole, "the body continues after its end, at byte 2"},
		{"NUL after the end", "[]\x00", whole, "the body continues after its end, at byte 2"},
		{"not UTF-8", grid("\"data\":\"\xff\""), whole, "the body is not UTF-8: first wrong byte at 92"},
		{"surrogate in UTF-8", "[\"\xed\xa0\x80\"]", whole, "the body is not UTF-8: first wrong byte at 2"},
		{"UTF-16", "\xff\xfe[\x00]\x00", whole, "the body is not UTF-8: first wrong byte at 0"},
	})
}

func TestInvalidShapes(t *testing.T) {
	t.Parallel()
	as := func(contentType string) func(string) ([]Event, error) {
		return func(body string) ([]Event, error) {
			return parseBody(CloudEvents, contentType, []byte(body), "orders", Limits{})
		}
	}
	requireRejections(t, parseGrid, 400, CodeInvalidEvent, []rejection{
		{"object", gridEvent, whole, "expected an array of events, found an object"},
		{"string", `"x"`, whole, "expected an array of events, found a string"},
		{"number", `-1`, whole, "expected an array of events, found a number"},
		{"null", `null`, whole, "expected an array of events, found null"},
		{"boolean", `true`, whole, "expected an array of events, found a boolean"},
	})
	requireRejections(t, as("application/cloudevents+json"), 400, CodeInvalidEvent, []rejection{
		{"array", `[]`, whole, "expected one event (an object), found an array"},
	})
	requireRejections(t, as("application/cloudevents-batch+json"), 400, CodeInvalidEvent, []rejection{
		{"object", cloudOne, whole, "expected an array of events, found an object"},
	})
	requireRejections(t, as("application/json"), 400, CodeInvalidEvent, []rejection{
		{"string", `"x"`, whole, "expected one event (an object) or an array of events, found a string"},
	})
}

func TestMalformedEvents(t *testing.T) {
	t.Parallel()
	deep := grid(`"data":` + strings.Repeat("[", 256) + strings.Repeat("]", 256))
	requireRejections(t, parseGrid, 400, CodeInvalidJSON, []rejection{
		{"no end", "[" + gridEvent, "", "the text ends too early, at byte 84 of the body"},
		{"no comma", "[" + gridEvent + gridEvent + "]", "", "expected ',' or ']' after an element, at byte 84 of the body"},
		{"comma before the end", "[" + gridEvent + ",]", "[1]", "expected a value, at byte 85 of the body"},
		{"comma only", "[,]", "", "expected a value, at byte 1 of the body"},
		{"broken data", grid(`"data":{]`), "", "expected a member's name in double quotes, at byte 92 of the body"},
		{"too deep", deep, "", "nested deeper than 256 levels, at byte 346 of the body"},
	})
}

func TestInvalidEventGridEnvelopes(t *testing.T) {
	t.Parallel()
	with := func(member, by string) string { return change("["+gridEvent+"]", member, by) }
	id := func(value string) string { return with(`"id":"1"`, `"id":`+value) }
	subject := func(value string) string { return with(`"subject":"s"`, `"subject":`+value) }
	long := func(n int) string { return `"` + strings.Repeat("a", n) + `"` }
	requireRejections(t, parseGrid, 400, CodeInvalidEvent, []rejection{
		{"no object", "[1]", "", "must be an object, is a number"},
		{"array in the array", "[[]]", "", "must be an object, is an array"},
		{"empty object", "[{}]", "id", "is required"},
		{"id null", id("null"), "id", "is required"},
		{"id a boolean", id("true"), "id", "must be a string or a number, is a boolean"},
		{"id in capitals, an object", with(`"id":"1"`, `"ID":{}`), "id", "must be a string or a number, is an object"},
		{"id a long number", id(strings.Repeat("1", 1025)), "id", "must be 1 to 1024 bytes long, is 1025"},
		{"id empty", id(`""`), "id", "must be 1 to 1024 bytes long, is 0"},
		{"id too long", id(long(1025)), "id", "must be 1 to 1024 bytes long, is 1025"},
		{"id too long in bytes", id(`"` + strings.Repeat("é", 513) + `"`), "id", "must be 1 to 1024 bytes long, is 1026"},
		{"id with NUL", id(`"\u0000"`), "id", "must not contain NUL"},
		{"id with CR", id(`"a\rb"`), "id", "must not contain a line break"},
		{"id with LF", id(`"a\u000ab"`), "id", "must not contain a line break"},
		{"id with a lone surrogate", id(`"\udfff"`), "id", "must not contain a lone surrogate"},
		{"no subject", with(`"subject":"s",`, ``), "subject", "is required"},
		{"subject an array", subject(`["s"]`), "subject", "must be a string or a number, is an array"},
		{"subject too long", subject(long(4097)), "subject", "must be 0 to 4096 bytes long, is 4097"},
		{"subject with a line break", subject(`"\n"`), "subject", "must not contain a line break"},
		{"no eventType", with(`"eventType":"t",`, ``), "eventType", "is required"},
		{"eventType too long", with(`"t"`, long(1025)), "eventType", "must be 1 to 1024 bytes long, is 1025"},
		{"no eventTime", with(`"eventTime"`, `"time"`), "eventTime", "is required"},
		{"eventTime in words", with(`2017-06-26T`, `26 June 2017 `), "eventTime", notRFC3339},
		{"eventTime a number", with(`"2017-06-26T18:41:00.9584103Z"`, `1498502460`), "eventTime", notRFC3339},
		{"leap second", with(`18:41:00.9584103Z`, `23:59:60Z`), "eventTime", noLeapSecond},
		{"leap second without an offset", with(`18:41:00.9584103Z`, `23:59:60`), "eventTime", noLeapSecond},
		{"eventTime empty", with(`2017-06-26T18:41:00.9584103Z`, ``), "eventTime", "must be 1 to 1024 bytes long, is 0"},
		{"dataVersion a boolean", grid(`"dataVersion":false`), "dataVersion", "must be a string or a number, is a boolean"},
		{"dataVersion of lines", grid(`"dataVersion":"1\r\n"`), "dataVersion", "must not contain a line break"},
		{"another topic", grid(`"topic":"invoices"`), "topic", `must be absent, empty, "orders" or "/topics/orders"`},
		{"topic a number", grid(`"topic":0`), "topic", `must be absent, empty, "orders" or "/topics/orders"`},
		{"metadataVersion 2", grid(`"metadataVersion":"2"`), "metadataVersion", `must be absent or "1"`},
		{"metadataVersion empty", grid(`"metadataVersion":""`), "metadataVersion", `must be absent or "1"`},
		{"metadataVersion a number", grid(`"metadataVersion":2`), "metadataVersion", `must be absent or "1"`},
		{"metadataVersion 1.0", grid(`"metadataVersion":1.0`), "metadataVersion", `must be absent or "1"`},
		{"id twice", grid(`"id":"1"`), "id", "appears twice"},
		{"id in two spellings", grid(`"ID":"1"`), "ID", `is the same member as "id": send one of them`},
		{"data in two spellings", grid(`"Data":1,"data":1`), "Data", `is the same member as "data": send one of them`},
		{
			"data in two, neither usual", grid(`"DATA":1,"\u0044ata":1`), "DATA",
			`is the same member as "Data": send one of them`,
		},
		{"the same spelling twice", grid(`"Data":1,"Data":1`), "Data", "appears twice"},
		{"id twice, once escaped", grid(`"\u0069\u0064":"2"`), "id", "appears twice"},
		{"data twice", grid(`"data":1,"data":1`), "data", "appears twice"},
		{"unknown member twice", grid(`"x y":1,"x y":1`), "x y", "appears twice"},
		{"empty name twice", grid(`"":1,"":1`), "", "appears twice"},
		{
			"the fourth event", "[" + strings.Repeat(gridEvent+",", 3) + change(gridEvent, "T18", "T28") + "]",
			"[3].eventTime", notRFC3339,
		},
		{"the first mistake wins", `[{"id":[]},{"id":{}},nonsense`, "id", "must be a string or a number, is an array"},
	})
}

func TestInvalidCloudEventEnvelopes(t *testing.T) {
	t.Parallel()
	const beside, name20 = "must be absent if there is data",
		"an extension attribute's name must be 1 to 20 characters of a-z and 0-9"
	const value = "an extension attribute must be a string, a number or a boolean"
	with := func(member, by string) string { return change(cloudOne, member, by) }
	requireRejections(t, parseCloud, 400, CodeInvalidEvent, []rejection{
		{"no specversion", with(`"specversion":"1.0",`, ``), "specversion", "is required"},
		{"specversion 0.3", with(`1.0`, `0.3`), "specversion", `must be "1.0"`},
		{"specversion a number", with(`"1.0"`, `1.0`), "specversion", "must be a string, is a number"},
		{"no id", with(`"id":"1",`, ``), "id", "is required"},
		{"id null", with(`"id":"1"`, `"id":null`), "id", "is required"},
		{"id a number", with(`"id":"1"`, `"id":1`), "id", "must be a string, is a number"},
		{"id in capitals", with(`"id":"1"`, `"ID":"1"`), "id", "is required"},
		{"source empty", with(`"/s"`, `""`), "source", "must be 1 to 1024 bytes long, is 0"},
		{"source with a line break", with(`"/s"`, `"/\r"`), "source", "must not contain a line break"},
		{"no type", with(`,"type":"t"`, ``), "type", "is required"},
		{"subject empty", cloud(`"subject":""`), "subject", "must be 1 to 4096 bytes long, is 0"},
		{"time a date", cloud(`"time":"2018-04-05"`), "time", notRFC3339},
		{"time without an offset", cloud(`"time":"2018-04-05T17:31:00"`), "time", notRFC3339},
		{"time with a short offset", cloud(`"time":"2018-04-05T17:31:00+0000"`), "time", notRFC3339},
		{"leap second", cloud(`"time":"1990-12-31T23:59:60Z"`), "time", noLeapSecond},
		{"no media type", cloud(`"datacontenttype":""`), "datacontenttype", "must be 1 to 1024 bytes long, is 0"},
		{"dataschema an object", cloud(`"dataschema":{}`), "dataschema", "must be a string, is an object"},
		{"data and data_base64", cloud(`"data":1,"data_base64":""`), "data_base64", beside},
		{"data of null and data_base64", cloud(`"data":null,"data_base64":""`), "data_base64", beside},
		{"data_base64 a number", cloud(`"data_base64":1`), "data_base64", "must be a string, is a number"},
		{"data_base64 without padding", cloud(`"data_base64":"AA"`), "data_base64", "must be base64 with padding"},
		{"extension in capitals", cloud(`"traceParent":"x"`), "traceParent", name20},
		{"extension of 21 characters", cloud(`"abcdefghij0123456789a":"x"`), "abcdefghij0123456789a", name20},
		{"extension without a name", cloud(`"":null`), "", name20},
		{
			"extension with a megabyte of name", cloud(`"` + strings.Repeat("é", 1<<19-60) + `":1`),
			strings.Repeat("é", 32) + "...", name20,
		},
		{"extension an object", cloud(`"x":{}`), "x", value + ", is an object"},
		{"extension an array", cloud(`"x":[]`), "x", value + ", is an array"},
		{"type twice", cloud(`"type":"t"`), "type", "appears twice"},
		{"in a batch", "[" + cloudOne + "," + with("1.0", "2.0") + "]", "[1].specversion", `must be "1.0"`},
	})
}

// A valid U+FFFD has the rune that DecodeRune returns for a wrong byte, but three bytes.
func TestFirstInvalid(t *testing.T) {
	t.Parallel()
	require.Equal(t, 4, firstInvalid([]byte("a\ufffd\xff")))
	require.Equal(t, 4, firstInvalid([]byte("a\ufffd")))
	require.Equal(t, 1, firstInvalid([]byte("a\xef\xbf")))
}

// Appending to one event's Body must not overwrite the next one's.
func TestParseBodiesDoNotOverlap(t *testing.T) {
	t.Parallel()
	events, err := parseGrid("[" + gridEvent + "," + gridEvent + "]")
	require.NoError(t, err)
	_ = append(events[0].Body, "xxxxxxxxxx"...)
	require.Equal(t, gridEvent, string(events[1].Body))
}
