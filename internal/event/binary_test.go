package event

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// ceHeaders are the headers of a CloudEvent in binary mode: the required ones and these, as net/http reads them.
func ceHeaders(pairs ...string) http.Header {
	h := http.Header{"Ce-Specversion": {"1.0"}, "Ce-Id": {"1"}, "Ce-Source": {"/s"}, "Ce-Type": {"t"}}
	for i := 0; i < len(pairs); i += 2 {
		h[http.CanonicalHeaderKey(pairs[i])] = []string{pairs[i+1]}
	}
	return h
}

func parseBinary(h http.Header, body string) ([]Event, error) {
	return Input{Schema: CloudEvents, Topic: "orders"}.parseBinary(h, []byte(body))
}

// The example of Microsoft's page, and the member of each header.
func TestParseBinaryAsDocumented(t *testing.T) {
	t.Parallel()
	h := http.Header{
		"Ce-Specversion": {"1.0"}, "Ce-Type": {"com.example.someevent"}, "Ce-Source": {"/mycontext"},
		"Ce-Id":   {"A234-1234-1234"},
		"Ce-Time": {"2018-04-05T17:31:00Z"}, "Ce-Comexampleextension1": {"value"}, "Ce-Comexampleothervalue": {"5"},
		"Content-Type": {"application/protobuf"}, "User-Agent": {"curl"}, "Cereal": {"no"},
	}
	events, err := parseBinary(h, "\x00\xff")
	require.NoError(t, err)
	require.Equal(t, []Event{{
		Schema: CloudEvents, ID: "A234-1234-1234", Type: "com.example.someevent", Source: "/mycontext",
		Time: time.Date(2018, 4, 5, 17, 31, 0, 0, time.UTC),
		Body: []byte(
			`{"comexampleextension1":"value","comexampleothervalue":"5","id":"A234-1234-1234","source":"/mycontext",` +
				`"specversion":"1.0","time":"2018-04-05T17:31:00Z","type":"com.example.someevent",` +
				`"datacontenttype":"application/protobuf","data_base64":"AP8="}`),
	}}, events)
}

func TestParseBinaryData(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ contentType, body, want string }{
		{"application/json", `{"a" : 1.50}`, `"data":{"a" : 1.50}`},
		{"application/json; charset=utf-8", "\ufeff [1e999999]\r\n", `"data":[1e999999]`},
		{"Application/JSON", `"text"`, `"data":"text"`},
		{"application/json", `null`, `"data":null`},
		{"application/vnd.shop+json", `true`, `"data":true`},
		{"text/json", `1`, `"data":1`},
		{"application/json; charset=us-ascii", `1`, `"data":1`},
		{"application/json; charset=iso-8859-1", "\"\xe9\"", `"data_base64":"Iuki"`},
		{"application/json", ``, ``},
		{"text/plain", "a\"b\\c\n\x00é", `"data":"a\"b\\c\u000a\u0000é"`},
		{"text/plain; charset=UTF-8", "é", `"data":"é"`},
		{"text/plain; charset=iso-8859-1", "\xe9", `"data_base64":"6Q=="`},
		{"text/plain", "\xe9", `"data_base64":"6Q=="`},
		{"text/csv", "{", `"data":"{"`},
		{"application/xml", `<a b="c"/>`, `"data":"<a b=\"c\"/>"`},
		{"image/svg+xml", `<svg/>`, `"data":"<svg/>"`},
		{"application/octet-stream", `{}`, `"data_base64":"e30="`},
		{"application/x-www-form-urlencoded", `a=b`, `"data_base64":"YT1i"`},
		{"", `{}`, `"data_base64":"e30="`},
		{"", ``, ``},
	} {
		h, want := ceHeaders(), `{"id":"1","source":"/s","specversion":"1.0","type":"t"`
		if c.contentType != "" {
			h.Set("Content-Type", c.contentType)
			want += `,"datacontenttype":"` + c.contentType + `"`
		}
		if c.want != "" {
			want += "," + c.want
		}
		events, err := parseBinary(h, c.body)
		require.NoError(t, err, "%s %q", c.contentType, c.body)
		require.Len(t, events, 1)
		require.Equal(t, want+"}", string(events[0].Body))
	}
}

func TestDecodeHeader(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"plain":                           "plain",
		"":                                "",
		" \tOWS\t":                        "OWS",
		"Euro%20%E2%82%AC%20%F0%9F%98%80": "Euro € 😀",
		"%e2%82%ac":                       "€",
		"%2541":                           "%41", // one round
		"unneeded%41":                     "unneededA",
		`"a b"`:                           "a b",
		`"a \"b\" \\ \c%20"`:              `a "b" \ c `,
		`""`:                              "",
		`a"b"`:                            `a"b"`,
		"raw é":                           "raw é",
		"%00%0A":                          "\x00\n",
	} {
		text, problem := decodeHeader(value)
		require.Empty(t, problem, value)
		require.Equal(t, want, text, value)
	}
	const percent, notText, noQuote = "must have two hexadecimal digits after each %; a % itself is %25", "is not UTF-8",
		"has no closing quote"
	for value, want := range map[string]string{
		"50%": percent, "%2": percent, "%zz": percent, "%+1": percent,
		"%C0%A0": notText, "%ED%A0%80": notText, "\xe9": notText,
		`"`: noQuote, `"abc`: noQuote, `"abc\"`: noQuote, `"abc\`: noQuote,
		`"a" b`: "continues after its closing quote", `"a""`: "continues after its closing quote",
	} {
		text, problem := decodeHeader(value)
		require.Equal(t, want, problem, value)
		require.Empty(t, text)
	}
}

func TestParseBinaryDecodesAttributes(t *testing.T) {
	t.Parallel()
	events, err := parseBinary(ceHeaders("ce-subject", `a%22b%5C%E2%82%AC`, "CE-EXT", "", "ce-dataschema", `"#"`), "")
	require.NoError(t, err)
	require.Equal(t, `a"b\€`, events[0].Subject)
	require.Equal(t,
		`{"dataschema":"#","ext":"","id":"1","source":"/s","specversion":"1.0","subject":"a\"b\\€","type":"t"}`,
		string(events[0].Body))
}

func TestParseBinaryErrors(t *testing.T) {
	t.Parallel()
	without := func(name string) http.Header {
		h := ceHeaders()
		h.Del(name)
		return h
	}
	twice := ceHeaders()
	twice.Add("ce-id", "2")
	const noName = "must name an attribute of 1 to 20 characters of a-z and 0-9; the data is the body"
	one := func(name, value string) http.Header { return ceHeaders(name, value) }
	for _, c := range []struct {
		header      http.Header
		field, text string
	}{
		{http.Header{}, "ce-specversion", "is required"},
		{without("ce-specversion"), "ce-specversion", "is required"},
		{without("ce-id"), "ce-id", "is required"},
		{without("ce-source"), "ce-source", "is required"},
		{without("ce-type"), "ce-type", "is required"},
		{one("ce-specversion", "0.3"), "ce-specversion", `must be "1.0"`},
		{one("ce-id", ""), "ce-id", "must be 1 to 1024 bytes long, is 0"},
		{one("ce-id", "%0d"), "ce-id", "must not contain a line break"},
		{one("ce-time", "now"), "ce-time", notRFC3339},
		{one("ce-time", "2018-04-05T17:31:00+0000"), "ce-time", notRFC3339},
		{one("ce-time", "1990-12-31T23:59:60Z"), "ce-time", noLeapSecond},
		{one("ce-subject", "%"), "ce-subject", "must have two hexadecimal digits after each %; a % itself is %25"},
		{twice, "ce-id", "must have one value, has 2"},
		{http.Header{"ce-id": {"1"}, "Ce-Id": {"2"}}, "ce-id", "appears twice"},
		{
			one("ce-datacontenttype", "text/plain"), "ce-datacontenttype",
			"must not be sent: content-type is the type of the data",
		},
		{one("ce-data", "x"), "ce-data", noName},
		{one("ce-data_base64", "x"), "ce-data_base64", noName},
		{one("ce-", "x"), "ce-", noName},
		{one("ce-my-own", "x"), "ce-my-own", noName},
		{one("ce-abcdefghij0123456789a", "x"), "ce-abcdefghij0123456789a", noName},
		{one("ce-"+strings.Repeat("a", 100), "x"), "ce-" + strings.Repeat("a", 61) + "...", noName},
		{
			one("content-type", "text/plain; x="+strings.Repeat("y", 1024)), "content-type",
			"must be 1 to 1024 bytes long, is 1038",
		},
	} {
		requireBinaryError(t, c.header, "{}",
			Error{Status: 400, Code: CodeInvalidEvent, Field: c.field, Message: "header " + c.field + ": " + c.text})
	}
	for contentType, quoted := range map[string]string{"json?": `"json?"`, "a/b; c=\"\xe9\"": `"a/b; c=\"\xe9\""`} {
		requireBinaryError(t, one("content-type", contentType), "", Error{
			Status: 415, Code: CodeUnsupportedMediaType, Index: -1, Message: "content type " + quoted + " is not a media type",
		})
	}
	for body, text := range map[string]string{
		"{":                      "the text ends too early, at byte 1 of the body",
		"{} x":                   "the body continues after its end, at byte 3",
		" \xff":                  "the body is not UTF-8: first wrong byte at 1",
		strings.Repeat("[", 256): "nested deeper than 256 levels, at byte 255 of the body",
	} {
		requireBinaryError(t, one("content-type", "a/b+json"), body,
			Error{Status: 400, Code: CodeInvalidJSON, Field: "data", Message: "events[0].data: " + text})
	}
}

func requireBinaryError(t *testing.T, h http.Header, body string, want Error) {
	t.Helper()
	events, err := parseBinary(h, body)
	require.Nil(t, events)
	var got *Error
	require.ErrorAs(t, err, &got, want.Message)
	want.Offset = got.Offset
	require.Equal(t, want, *got)
}

func TestParseBinaryLimits(t *testing.T) {
	t.Parallel()
	parse := func(most int, body string) error {
		_, err := Input{Schema: CloudEvents, Limits: Limits{MaxEventBytes: most}}.parseBinary(ceHeaders(), []byte(body))
		return err
	}
	const size = len(`{"id":"1","source":"/s","specversion":"1.0","type":"t","data_base64":"AAAA"}`)
	require.NoError(t, parse(size, "\x00\x00\x00"))
	require.EqualError(t, parse(size-1, "\x00\x00\x00"),
		"events[0]: an event has at most 75 bytes in the JSON format, this one has 76")
	require.EqualError(t, parse(2, "\x00\x00\x00"),
		"events[0]: an event has at most 2 bytes in the JSON format, this one has 3")
	var got *Error
	require.ErrorAs(t, parse(2, "abc"), &got)
	require.Equal(t, 413, got.Status)
	_, err := Input{Schema: EventGrid}.parseBinary(ceHeaders(), nil)
	require.EqualError(t, err, `parse events: schema "EventGridSchema" has no binary mode`)
}

func TestIsBinary(t *testing.T) {
	t.Parallel()
	for contentType, want := range map[string]bool{
		"": true, "application/json": true, "text/plain": true, "application/avro": true,
		"application/cloudevents+json": false, "application/cloudevents-batch+json; charset=utf-8": false,
		"Application/CloudEvents+avro": false,
	} {
		require.Equal(t, want, IsBinary(ceHeaders("content-type", contentType)), contentType)
	}
	require.False(t, IsBinary(http.Header{"Content-Type": {"application/json"}, "Ce-Subject": {"x"}, "Ce": {"x"}}))
	for _, name := range []string{"ce-id", "CE-Source", "cE-type", "Ce-Specversion"} {
		require.True(t, IsBinary(map[string][]string{name: {"x"}}), name)
	}
}

func TestParseRequest(t *testing.T) {
	t.Parallel()
	in := Input{Schema: CloudEvents, Topic: "orders"}
	for _, c := range []struct {
		name   string
		header http.Header
		body   string
		want   string
	}{
		{"structured", http.Header{"Content-Type": {"application/cloudevents+json"}}, cloudOne, cloudOne},
		{"structured, headers repeat it", ceHeaders("content-type", "application/cloudevents+json"), cloudOne, cloudOne},
		{"batch", http.Header{"content-type": {"application/cloudevents-batch+json"}}, "[" + cloudOne + "]", cloudOne},
		{"plain JSON", http.Header{"Content-Type": {"application/json"}}, cloudOne, cloudOne},
		{
			"binary", ceHeaders("content-type", "application/json"), cloudOne,
			`{"id":"1","source":"/s","specversion":"1.0","type":"t","datacontenttype":"application/json","data":` +
				cloudOne + `}`,
		},
	} {
		events, err := in.ParseRequest(c.header, []byte(c.body))
		require.NoError(t, err, c.name)
		require.Len(t, events, 1)
		require.Equal(t, c.want, string(events[0].Body), c.name)
	}
	in.Schema = EventGrid
	events, err := in.ParseRequest(ceHeaders("content-type", "application/json"), []byte("["+gridEvent+"]"))
	require.NoError(t, err, "an Event Grid topic knows no ce- headers")
	require.Equal(t, gridEvent, string(events[0].Body))
}

// FuzzParseBinary: it never panics, and accepted requests become a CloudEvent with the same attributes and data.
func FuzzParseBinary(f *testing.F) {
	f.Add("application/json", "a%20b", "ext", "v", []byte(`{"a":1}`))
	f.Add("text/plain", `"q"`, "time", "2018-04-05T17:31:00Z", []byte("é\x00"))
	f.Add("application/xml; charset=utf-16", "1", "traceparent", "00-0af7651916cd43dd8448eb211c80319c-b9c7c989f97918e1-01",
		[]byte("<a/>"))
	f.Fuzz(func(t *testing.T, contentType, id, name, value string, body []byte) {
		h := maps.Clone(ceHeaders())
		h["Content-Type"], h["ce-id"], h["ce-"+name] = []string{contentType}, []string{id}, []string{value}
		delete(h, "Ce-Id")
		kept := string(body)
		events, err := Input{Schema: CloudEvents, Limits: Limits{MaxEventBytes: 4096}}.parseBinary(h, body)
		require.Equal(t, kept, string(body))
		if err != nil {
			var rejection *Error
			require.ErrorAs(t, err, &rejection)
			require.NotEmpty(t, rejection.Message)
			return
		}
		require.Len(t, events, 1)
		var read struct {
			ID     string          `json:"id"`
			Type   string          `json:"datacontenttype"`
			Data   json.RawMessage `json:"data"`
			Binary *string         `json:"data_base64"`
		}
		require.NoError(t, json.Unmarshal(events[0].Body, &read), "%q", events[0].Body)
		require.Equal(t, events[0].ID, read.ID)
		require.Equal(t, contentType, read.Type)
		requireSameData(t, contentType, kept, read.Data, read.Binary)
		requireRoundTrip(t, events[0])
	})
}

func requireSameData(t *testing.T, contentType, body string, data json.RawMessage, encoded *string) {
	t.Helper()
	form, err := formOf(contentType)
	require.Nil(t, err)
	switch {
	case body == "":
		require.Nil(t, data)
		require.Nil(t, encoded)
	case encoded != nil:
		require.Nil(t, data)
		plain, err := base64.StdEncoding.Strict().DecodeString(*encoded)
		require.NoError(t, err)
		require.Equal(t, body, string(plain))
	case form == textData:
		var text string
		require.NoError(t, json.Unmarshal(data, &text))
		require.Equal(t, body, text)
	default:
		require.Equal(t, jsonData, form)
		require.Equal(t, strings.Trim(strings.TrimPrefix(body, "\ufeff"), " \t\r\n"), string(data))
	}
}
