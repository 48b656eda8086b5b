package event

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestOverhead(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		input, delivery Schema
		body            string
		exact           bool
	}{
		"both members missing": {EventGrid, EventGrid, `{"id":"1","data":{}}`, true},
		"topic given, version null": {
			EventGrid, EventGrid, `{"id":"1","topic":"/topics/orders","metadataVersion":null}`, false,
		},
		"topic empty":      {EventGrid, EventGrid, `{"id":"1","topic":"","metadataVersion":"1"}`, false},
		"no member at all": {EventGrid, EventGrid, `{}`, false},
		"Event Grid to CloudEvents": {
			EventGrid, CloudEvents,
			`{"id":"1","subject":"s","eventType":"t","eventTime":"2026-01-01T00:00:00Z","dataVersion":"1","data":{"a":1}}`,
			false,
		},
		"Event Grid to CloudEvents, names alike": {
			EventGrid, CloudEvents, `{"id":"1","subject":"s","dataVersion":"1","data":{}}`, false,
		},
		"Event Grid to CloudEvents, a date as its time": {
			EventGrid, CloudEvents, `{"id":"1","subject":"","eventType":"t","eventTime":"2026-01-01","data":{}}`, false,
		},
		"Event Grid to CloudEvents, a short time": {
			EventGrid, CloudEvents, `{"id":"1","subject":"","eventType":"t","eventTime":"2026-01-01T00:00+00","data":{}}`, false,
		},
		"CloudEvents as accepted": {CloudEvents, CloudEvents, `{ "id": "1" }`, true},
	} {
		requireBound(t, &Event{Schema: row.input, Body: []byte(row.body)}, row.delivery, row.exact, name)
	}
	require.Zero(t, Overhead(Custom, CustomInput, "orders"))
	require.Zero(t, Overhead(CloudEvents, CloudEvents, "orders"))
}

func requireBound(t *testing.T, e *Event, delivery Schema, exact bool, about string) {
	t.Helper()
	sent, err := AppendDelivery(nil, e, "orders", delivery)
	require.NoError(t, err)
	bound := e.Size() + Overhead(e.Schema, delivery, "orders")
	require.LessOrEqual(t, len(sent), bound, about)
	if exact {
		require.Len(t, sent, bound, about)
	}
}

func TestOverheadOfCustomEvents(t *testing.T) {
	t.Parallel()
	long := time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC)
	for name, row := range map[string]struct {
		event    Event
		delivery Schema
		exact    bool
	}{
		"as received":             {Event{ID: "1", Type: "t", Subject: "s", Time: long}, CustomInput, false},
		"Event Grid":              {Event{ID: "1", Type: "t", Subject: "s", DataVersion: "2", Time: long}, EventGrid, true},
		"Event Grid, escapes":     {Event{ID: "\"", Type: "\\", Subject: "\t\x1f", Time: long}, EventGrid, true},
		"Event Grid, short time":  {Event{ID: "1", Type: "t", Time: arrival}, EventGrid, false},
		"CloudEvents":             {Event{ID: "1", Type: "t", Subject: "é", DataVersion: "2", Time: long}, CloudEvents, true},
		"CloudEvents, no subject": {Event{ID: "1", Type: "t", Time: long}, CloudEvents, false},
	} {
		row.event.Schema, row.event.Body = Custom, []byte(`{"a":1}`)
		requireBound(t, &row.event, row.delivery, row.exact, name)
	}
}

func TestSize(t *testing.T) {
	t.Parallel()
	for _, schema := range []Schema{EventGrid, CloudEvents} {
		require.Equal(t, 2,
			(&Event{Schema: schema, ID: "1", Type: "t", Subject: "s", DataVersion: "2", Body: []byte("{}")}).Size())
	}
}
