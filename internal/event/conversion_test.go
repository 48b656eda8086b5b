package event

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The table "Event schema compatibility" of Microsoft's page, and the other combinations.
func TestCanDeliver(t *testing.T) {
	t.Parallel()
	for input, want := range map[Schema][]Schema{
		EventGrid:   {EventGrid, CloudEvents},
		CloudEvents: {CloudEvents},
		Custom:      {EventGrid, CloudEvents, CustomInput},
		CustomInput: nil, "": nil, "eventgridschema": nil,
	} {
		require.Equal(t, want, Deliveries(input), input)
		for _, delivery := range []Schema{EventGrid, CloudEvents, Custom, CustomInput, "", "eventgridschema"} {
			require.Equal(t, slices.Contains(want, delivery), CanDeliver(input, delivery), "%s as %s", input, delivery)
		}
	}
}

func TestMetadataVersion(t *testing.T) {
	t.Parallel()
	require.Equal(t, "1", MetadataVersion(EventGrid))
	require.Equal(t, "1", MetadataVersion(CustomInput))
	require.Equal(t, "1.0", MetadataVersion(CloudEvents))
}

func TestAppendDeliveryOfCustomEvents(t *testing.T) {
	t.Parallel()
	const body = `{ "a":1.50, "\u0062":[] }`
	full := Event{
		Schema: Custom, ID: "k\"", Type: "Order", Subject: "s\t", DataVersion: "2", Body: []byte(body),
		Time: time.Date(2026, 1, 2, 3, 4, 5, 600000000, time.FixedZone("", 3600)),
	}
	bare := Event{Schema: Custom, ID: "k", Type: "Order", Time: arrival, Body: []byte(`{}`)}
	for _, c := range []struct {
		name     string
		event    Event
		delivery Schema
		want     string
	}{
		{"as received", full, CustomInput, body},
		{"as received, whatever is known of it", Event{Schema: Custom, Body: []byte(body)}, CustomInput, body},
		{
			"Event Grid", full, EventGrid,
			`{"id":"k\"","eventTime":"2026-01-02T02:04:05.6Z","eventType":"Order","dataVersion":"2","metadataVersion":"1",` +
				`"topic":"/topics/orders","subject":"s\u0009","data":` + body + `}`,
		},
		{
			"Event Grid, nothing given", bare, EventGrid,
			`{"id":"k","eventTime":"2018-11-07T23:59:14.7997564Z","eventType":"Order","dataVersion":"","metadataVersion":"1",` +
				`"topic":"/topics/orders","subject":"","data":{}}`,
		},
		{
			"CloudEvents", full, CloudEvents,
			`{"specversion":"1.0","source":"/topics/orders","id":"k\"","type":"Order","subject":"s\u0009",` +
				`"time":"2026-01-02T02:04:05.6Z",` +
				`"dataversion":"2","datacontenttype":"application/json","data":` + body + `}`,
		},
		{
			"CloudEvents, nothing given", bare, CloudEvents,
			`{"specversion":"1.0","source":"/topics/orders","id":"k","type":"Order","time":"2018-11-07T23:59:14.7997564Z",` +
				`"datacontenttype":"application/json","data":{}}`,
		},
	} {
		requireDelivery(t, &c.event, c.delivery, c.want, c.name)
	}
}

func TestAppendDeliveryOfCustomEventsFails(t *testing.T) {
	t.Parallel()
	for _, delivery := range []Schema{EventGrid, CloudEvents} {
		got, err := AppendDelivery([]byte("before"), &Event{Schema: Custom, Time: arrival, Body: []byte("{}")},
			"orders", delivery)
		require.EqualError(t, err, "deliver event: a custom event without an id")
		require.Equal(t, "before", string(got))
	}
	_, err := AppendDelivery(nil, &Event{Schema: Custom}, "orders", Custom)
	require.EqualError(t, err, `deliver event: no conversion from "CustomEventSchema" to "CustomEventSchema"`)
	_, err = AppendDelivery(nil, &Event{Schema: EventGrid}, "orders", CustomInput)
	require.EqualError(t, err, `deliver event: no conversion from "EventGridSchema" to "CustomInputSchema"`)
}

func TestBodyOfCustomEvents(t *testing.T) {
	t.Parallel()
	e := &Event{Schema: Custom, ID: "k", Type: "t", Time: arrival, Body: []byte(`{"a":1}`)}
	for _, batched := range []bool{false, true} {
		got, err := Body(nil, []*Event{e, e}, "orders", CustomInput, batched)
		require.NoError(t, err)
		require.Equal(t, `[{"a":1},{"a":1}]`, string(got))
	}
	got, err := Body(nil, []*Event{e}, "orders", CustomInput, false)
	require.NoError(t, err)
	require.Equal(t, `[{"a":1}]`, string(got), "as received, but always in an array")
	_, err = Body(nil, []*Event{e, e}, "orders", CloudEvents, false)
	require.EqualError(t, err, "delivery body: 2 CloudEvents, but not batched")
}

// data_base64 is not decoded.
func TestDataBase64IsCopied(t *testing.T) {
	t.Parallel()
	body := cloud(`"data_base64":"A\/8="`)
	events, err := parseCloud(body)
	require.NoError(t, err)
	got, err := Body(nil, []*Event{&events[0]}, "orders", CloudEvents, false)
	require.NoError(t, err)
	require.Equal(t, body, string(got))
}

// requireCustomRoundTrip delivers e in every schema that it may have, reads the deliveries back and compares.
func requireCustomRoundTrip(t *testing.T, e Event) {
	t.Helper()
	for _, delivery := range Deliveries(Custom) {
		body, err := Body(nil, []*Event{&e}, "orders", delivery, true)
		require.NoError(t, err)
		require.True(t, json.Valid(body), "%q", body)
		require.LessOrEqual(t, len(body)-len("[]"), e.Size()+Overhead(Custom, delivery, "orders"))
		if delivery == CustomInput {
			require.Equal(t, "["+string(e.Body)+"]", string(body))
			continue
		}
		read, err := parseBody(delivery, ContentType(delivery, true), body, "orders",
			Limits{MaxEventBytes: len(body), MaxDepth: 1 << 20})
		require.NoError(t, err, "%q", body)
		require.Len(t, read, 1)
		got := read[0]
		require.Equal(t, string(e.Body), dataOf(t, got.Body))
		want := e
		want.Schema, want.Body = delivery, got.Body
		if delivery == CloudEvents {
			want.Source, want.DataVersion = "/topics/orders", ""
		}
		require.Equal(t, want, got)
	}
}

// FuzzParseCustom: Parse never panics, returns the bytes of the body, and accepted events can be delivered in every
// schema.
func FuzzParseCustom(f *testing.F) {
	f.Add(documented, []byte("["+documentedEvent+"]"))
	f.Add(everyField,
		[]byte(`{"key":1e9,"when":"2026-01-02T03:04:05.6+01:00","what":null,"who":"\u00e9\"\t","where":"orders"}`))
	f.Add(everyField, []byte(`{"key":"k","when":"0001-01-01T00:00:00Z","what":"a\"","who":"","where":"orders"}`))
	f.Add(everyField,
		[]byte("\ufeff [ {\"key\":\"\\u006b\",\"when\":\"2026-01-02T03:04:05Z\",\"x\":{\"a\":1,\"a\":2}} ] "))
	f.Fuzz(func(t *testing.T, text string, body []byte) {
		m := new(Mapping)
		if json.Unmarshal([]byte(text), m) != nil || m.Validate() != nil {
			return
		}
		in := custom(t, documented)
		in.Mapping, in.Limits = m, Limits{MaxDepth: 8, MaxEvents: 3, MaxEventBytes: 2048}
		kept := string(body)
		events, err := in.Parse("", body)
		require.Equal(t, kept, string(body), "the body is left alone")
		if err != nil {
			var rejection *Error
			require.ErrorAs(t, err, &rejection)
			require.NotEmpty(t, rejection.Message)
			return
		}
		for _, e := range events {
			require.Contains(t, kept, string(e.Body))
			requireCustomRoundTrip(t, e)
		}
	})
}
