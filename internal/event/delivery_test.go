package event

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestContentType(t *testing.T) {
	t.Parallel()
	require.Equal(t, "application/json; charset=utf-8", ContentType(EventGrid, false))
	require.Equal(t, "application/json; charset=utf-8", ContentType(EventGrid, true))
	require.Equal(t, "application/cloudevents+json; charset=utf-8", ContentType(CloudEvents, false))
	require.Equal(t, "application/cloudevents-batch+json; charset=utf-8", ContentType(CloudEvents, true))
	require.Equal(t, "application/json; charset=utf-8", ContentType(CustomInput, false))
	require.Equal(t, "application/json; charset=utf-8", ContentType(CustomInput, true))
}

func TestAppendDeliverySplices(t *testing.T) {
	t.Parallel()
	const topic, version, data = `"topic":"/topics/orders"`, `"metadataVersion":"1"`, `"dataVersion":""`
	const all = topic + "," + version + "," + data
	for _, c := range []struct{ name, body, want string }{
		{"nothing there", `{"id":"1"}`, `{"id":"1",` + all + `}`},
		{"empty object", `{}`, `{` + all + `}`},
		{"empty object with white space", `{ }`, `{ ` + all + `}`},
		{"white space before the end", "{ \"id\" : \"1\"\r\n}", "{ \"id\" : \"1\"\r\n," + all + "}"},
		{
			"all there", `{"topic":"/topics/orders","id":"1","dataVersion":"2","metadataVersion":"1"}`,
			`{"topic":"/topics/orders","id":"1","dataVersion":"2","metadataVersion":"1"}`,
		},
		{"by its name", `{"topic":"orders","metadataVersion":"1"}`, `{"topic":"orders","metadataVersion":"1",` + data + `}`},
		{"topic there", `{"topic":"orders"}`, `{"topic":"orders",` + version + `,` + data + `}`},
		{"metadataVersion there", `{"metadataVersion":"1"}`, `{"metadataVersion":"1",` + topic + `,` + data + `}`},
		{"topic null", `{"topic" : null , "id":"1"}`, `{"topic" : "/topics/orders" , "id":"1",` + version + `,` + data + `}`},
		{"topic empty", `{"id":"1","topic":"" }`, `{"id":"1",` + topic + ` ,` + version + `,` + data + `}`},
		{"metadataVersion null", `{"metadataVersion":null}`, `{` + version + `,` + topic + `,` + data + `}`},
		{"both null", `{"topic":null,"metadataVersion":null}`, `{` + all + `}`},
		{
			"both null, other order", `{"metadataVersion":null,"x":[null],"topic":""}`,
			`{` + version + `,"x":[null],` + topic + `,` + data + `}`,
		},
		{"dataVersion there", `{"dataVersion":"2"}`, `{"dataVersion":"2",` + topic + `,` + version + `}`},
		{"dataVersion empty", `{"dataVersion":""}`, `{"dataVersion":"",` + topic + `,` + version + `}`},
		{
			"dataVersion null", `{"dataVersion" : null, "id":"1"}`,
			`{"dataVersion" : "", "id":"1",` + topic + `,` + version + `}`,
		},
		{
			"names with escapes", `{"\u0074opic":null,"metadata\u0056ersion":null}`,
			`{"\u0074opic":"/topics/orders","metadata\u0056ersion":"1",` + data + `}`,
		},
		{
			"names inside data", `{"data":{"topic":null,"metadataVersion":null}}`,
			`{"data":{"topic":null,"metadataVersion":null},` + all + `}`,
		},
		{"names inside a string", `{"data":"\"topic\":null}"}`, `{"data":"\"topic\":null}",` + all + `}`},
		{"names in other case", `{"Topic":null,"metadataversion":null}`, `{"Topic":null,"metadataversion":null,` + all + `}`},
		{
			"data odd but sound", `{"data":{"a":1,"a":1e999999,"\ud800":"\u0000"}}`,
			`{"data":{"a":1,"a":1e999999,"\ud800":"\u0000"},` + all + `}`,
		},
	} {
		requireDelivery(t, &Event{Schema: EventGrid, Body: []byte(c.body)}, EventGrid, c.want, c.name)
	}
	got, err := AppendDelivery(nil, &Event{Schema: EventGrid, Body: []byte(`{}`)}, "a\"\\\n", EventGrid)
	require.NoError(t, err)
	require.Equal(t, `{"topic":"/topics/a\"\\\u000a","metadataVersion":"1","dataVersion":""}`, string(got))
}

// requireDelivery appends an event of the topic orders in a schema, and requires JSON.
func requireDelivery(t *testing.T, e *Event, delivery Schema, want, about string) {
	t.Helper()
	got, err := AppendDelivery([]byte("before"), e, "orders", delivery)
	require.NoError(t, err, about)
	require.Equal(t, "before"+want, string(got), about)
	require.True(t, json.Valid([]byte(want)), about)
}

func TestAppendDeliveryConverts(t *testing.T) {
	t.Parallel()
	const head = `{"specversion":"1.0","source":"/topics/orders"`
	const short = `{"id":"1","subject":"s","eventType":"t","eventTime":"2017-06-26T18:41:00Z"}`
	for _, c := range []struct{ name, body, want string }{
		{
			"every member",
			`{ "topic":"orders", "metadataVersion":"1", "data" : { "a" : [ 1 ] } , "dataVersion":"2",` +
				` "eventTime":"2017-06-26T18:41:00.9584103Z", "subject":"s", "eventType":"t", "id":"1", "extra":1 }`,
			head + `,"id":"1","type":"t","subject":"s","time":"2017-06-26T18:41:00.9584103Z","dataversion":"2",` +
				`"datacontenttype":"application/json","data":{ "a" : [ 1 ] }}`,
		},
		{
			"without data and dataVersion", gridEvent,
			head + `,"id":"1","type":"t","subject":"s","time":"2017-06-26T18:41:00.9584103Z"}`,
		},
		{
			"empty subject and dataVersion",
			`{"id":"1","subject":"","eventType":"t","eventTime":"2017-06-26T18:41:00Z","dataVersion":""}`,
			head + `,"id":"1","type":"t","time":"2017-06-26T18:41:00Z"}`,
		},
		{
			"dataVersion null", with(short, `"dataVersion":null`),
			head + `,"id":"1","type":"t","subject":"s","time":"2017-06-26T18:41:00Z"}`,
		},
		{
			"data null", with(short, `"data":null`), head + `,"id":"1","type":"t","subject":"s",` +
				`"time":"2017-06-26T18:41:00Z","datacontenttype":"application/json","data":null}`,
		},
		{
			"a time of ISO 8601 becomes one of RFC 3339",
			`{"id":"1","subject":"","eventType":"t","eventTime":"2017-06-26 20:41:00.9584103+0200"}`,
			head + `,"id":"1","type":"t","time":"2017-06-26T20:41:00.9584103+02:00"}`,
		},
		{
			"a time without an offset, with escapes",
			`{"id":"1","subject":"","eventType":"t","eventTime":"2017\u002d06-26T18:41"}`,
			head + `,"id":"1","type":"t","time":"2017-06-26T18:41:00Z"}`,
		},
		{
			"members of no schema are left out", with(short, `"traceparent":"00-x","Extra":{"a":1}`),
			head + `,"id":"1","type":"t","subject":"s","time":"2017-06-26T18:41:00Z"}`,
		},
		{
			"escapes stay as written",
			`{"\u0069d":"\u0031","subject":"\/a\"","eventType":"\ud83d\ude00","eventTime":"2017-06-26T18:41:00Z"}`,
			head + `,"id":"\u0031","type":"\ud83d\ude00","subject":"\/a\"","time":"2017-06-26T18:41:00Z"}`,
		},
	} {
		requireDelivery(t, &Event{Schema: EventGrid, Body: []byte(c.body)}, CloudEvents, c.want, c.name)
		events, err := parseCloud(c.want)
		require.NoError(t, err, "a converted event is a CloudEvent that we would accept")
		require.Equal(t, "/topics/orders", events[0].Source)
	}
}

func TestAppendDeliveryOfCloudEventsIsIdentity(t *testing.T) {
	t.Parallel()
	body := "{ \"specversion\" : \"1.0\",\r\n\"id\":\"\\u0031\",\"source\":\"/s\",\"type\":\"t\" , \"topic\":null}"
	requireDelivery(t, &Event{Schema: CloudEvents, Body: []byte(body)}, CloudEvents, body, "as accepted")
}

func TestAppendDeliveryFails(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		input, delivery Schema
		body, message   string
	}{
		{CloudEvents, EventGrid, cloudOne, `no conversion from "CloudEventSchemaV1_0" to "EventGridSchema"`},
		{"", EventGrid, gridEvent, `no conversion from "" to "EventGridSchema"`},
		{EventGrid, EventGrid, ``, notOne + "byte 0: it does not begin with {"},
		{EventGrid, EventGrid, `[]`, notOne + "byte 0: it does not begin with {"},
		{EventGrid, EventGrid, `{} `, notOne + "byte 2: it continues after its end"},
		{EventGrid, CloudEvents, `{"a":1`, notOne + "byte 6: the text ends too early"},
		{EventGrid, EventGrid, `{"a":1,"a":2}`, `stored body has "a" twice`},
	} {
		got, err := AppendDelivery([]byte("before"), &Event{Schema: c.input, Body: []byte(c.body)}, "orders", c.delivery)
		require.EqualError(t, err, "deliver event: "+c.message)
		require.Equal(t, "before", string(got))
	}
}

const notOne = "stored body is not one JSON object at "

func TestBody(t *testing.T) {
	t.Parallel()
	gridOne := &Event{Schema: EventGrid, Body: []byte(`{"topic":"orders","metadataVersion":"1"}`)}
	one := &Event{Schema: CloudEvents, Body: []byte(`{"id":"1"}`)}
	two := &Event{Schema: CloudEvents, Body: []byte(`{"id":"2"}`)}
	const spliced = `{"topic":"orders","metadataVersion":"1","dataVersion":""}`
	for _, c := range []struct {
		name     string
		events   []*Event
		delivery Schema
		batched  bool
		want     string
	}{
		{"Event Grid, one", []*Event{gridOne}, EventGrid, false, "[" + spliced + "]"},
		{"Event Grid, one, batched", []*Event{gridOne}, EventGrid, true, "[" + spliced + "]"},
		{"Event Grid, two", []*Event{gridOne, gridOne}, EventGrid, false, "[" + spliced + "," + spliced + "]"},
		{"Event Grid, two, batched", []*Event{gridOne, gridOne}, EventGrid, true, "[" + spliced + "," + spliced + "]"},
		{"CloudEvents, one", []*Event{one}, CloudEvents, false, `{"id":"1"}`},
		{"CloudEvents, one, batched", []*Event{one}, CloudEvents, true, `[{"id":"1"}]`},
		{"CloudEvents, two, batched", []*Event{one, two}, CloudEvents, true, `[{"id":"1"},{"id":"2"}]`},
		{
			"converted and kept in one batch",
			[]*Event{gridOne, one},
			CloudEvents, true,
			`[{"specversion":"1.0","source":"/topics/orders"},{"id":"1"}]`,
		},
	} {
		got, err := Body([]byte("before"), c.events, "orders", c.delivery, c.batched)
		require.NoError(t, err, c.name)
		require.Equal(t, "before"+c.want, string(got), c.name)
	}
}

func TestBodyFails(t *testing.T) {
	t.Parallel()
	one := &Event{Schema: CloudEvents, Body: []byte(cloudOne)}
	broken := &Event{Schema: EventGrid, Body: []byte(`{`)}
	for _, c := range []struct {
		events   []*Event
		delivery Schema
		batched  bool
		message  string
	}{
		{nil, EventGrid, true, "delivery body: no event"},
		{nil, CloudEvents, false, "delivery body: no event"},
		{[]*Event{one, one}, CloudEvents, false, "delivery body: 2 CloudEvents, but not batched"},
		{
			[]*Event{one, broken},
			CloudEvents, true,
			"delivery body: event 1: deliver event: " + notOne + "byte 1: the text ends too early",
		},
	} {
		got, err := Body([]byte("before"), c.events, "orders", c.delivery, c.batched)
		require.EqualError(t, err, c.message)
		require.Equal(t, "before", string(got))
	}
}

// dataOf is the text of an event's data, absent as "".
func dataOf(t *testing.T, body []byte) string {
	t.Helper()
	members, _, problem := readObject(body, 1<<20, nil)
	require.Empty(t, problem)
	f := fields{src: body, members: members}
	require.Nil(t, decodeNames(members))
	data, _ := f.raw("data")
	return string(data)
}

// requireRoundTrip delivers e in both schemas, reads the deliveries back and compares envelope and data.
func requireRoundTrip(t *testing.T, e Event) {
	t.Helper()
	for _, delivery := range []Schema{EventGrid, CloudEvents} {
		if !CanDeliver(e.Schema, delivery) {
			continue
		}
		body, err := Body(nil, []*Event{&e}, "orders", delivery, true)
		require.NoError(t, err)
		require.True(t, json.Valid(body), "%q", body)
		contentType := ContentType(delivery, true)
		read, err := parseBody(delivery, contentType, body, "orders", Limits{MaxEventBytes: len(body)})
		require.NoError(t, err, "%q", body)
		require.Len(t, read, 1)
		got := read[0]
		require.Equal(t, dataOf(t, e.Body), dataOf(t, got.Body))
		want := e
		want.Schema, want.Body = got.Schema, got.Body
		if delivery != e.Schema {
			want.Source, want.DataVersion = "/topics/orders", ""
		}
		require.Equal(t, want, got)
		again, err := Body(nil, []*Event{&got}, "orders", delivery, true)
		require.NoError(t, err)
		require.Equal(t, string(body), string(again), "what was delivered is complete")
	}
}

// FuzzParse: Parse never panics, accepts only JSON, returns the bytes of the body, and accepted events can be
// delivered.
func FuzzParse(f *testing.F) {
	for _, body := range []string{
		"[" + gridEvent + "]",
		grid(`"data":{"topic":null,"a":[1,2,{"b":"\ud800"}]},"dataVersion":"1"`),
		grid(`"topic":"","metadataVersion":null,"data":1e999999`),
		grid(`"topic":"orders","data":"text"`),
		change(grid(`"data":null`), `"subject":"s"`, `"subject":"\u00e9\"\/"`),
	} {
		f.Add(true, []byte(body))
	}
	f.Add(true, []byte("\ufeff [ "+gridEvent+" , "+gridEvent+" ] "))
	f.Add(true,
		[]byte(grid(`"topic":"","metadataVersion":null,"data":{"a":[1e9,"\ud800"]},"dataVersion":"1","\u0078":[]`)))
	f.Add(false, []byte(cloudOne))
	f.Add(false, []byte("["+cloud(`"data_base64":"AAAA","x":1`)+"]"))
	f.Add(false, []byte(cloud(`"data":{"a":1},"subject":"s","time":"2018-04-05T17:31:00.5+02:00"`)))
	f.Fuzz(func(t *testing.T, isGrid bool, body []byte) {
		schema := CloudEvents
		if isGrid {
			schema = EventGrid
		}
		kept := string(body)
		events, err := parseBody(schema, "application/json", body, "orders",
			Limits{MaxDepth: 8, MaxEvents: 3, MaxEventBytes: 2048})
		require.Equal(t, kept, string(body), "the body is left alone")
		if err != nil {
			var rejection *Error
			require.ErrorAs(t, err, &rejection)
			require.Contains(t, []int{400, 413}, rejection.Status)
			require.NotEmpty(t, rejection.Message)
			require.Empty(t, events)
			return
		}
		require.True(t, json.Valid([]byte(strings.TrimPrefix(kept, "\ufeff"))), "%q", kept)
		require.LessOrEqual(t, len(events), 3)
		for _, e := range events {
			require.Contains(t, kept, string(e.Body))
			requireRoundTrip(t, e)
		}
	})
}

// A large body is allocated once.
func TestBodySize(t *testing.T) {
	t.Parallel()
	events, err := parseGrid(grid(`"data":"` + strings.Repeat("x", 100_000) + `"`))
	require.NoError(t, err)
	for _, delivery := range []Schema{EventGrid, CloudEvents} {
		body, err := Body(nil, []*Event{&events[0], &events[0], &events[0]}, "orders", delivery, true)
		require.NoError(t, err)
		require.LessOrEqual(t, len(body), bodySize([]*Event{&events[0], &events[0], &events[0]}, "orders"))
		require.LessOrEqual(t, cap(body), len(body)+16<<10, "rounded up to pages")
	}
}
