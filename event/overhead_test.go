package event

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOverhead(t *testing.T) {
	t.Parallel()
	const topic = "orders"
	for name, row := range map[string]struct {
		input, delivery Schema
		body            string
		exact           bool
	}{
		"both members missing":                   {EventGrid, EventGrid, `{"id":"1","data":{}}`, true},
		"topic given, version null":              {EventGrid, EventGrid, `{"id":"1","topic":"/topics/orders","metadataVersion":null}`, false},
		"topic empty":                            {EventGrid, EventGrid, `{"id":"1","topic":"","metadataVersion":"1"}`, false},
		"no member at all":                       {EventGrid, EventGrid, `{}`, false},
		"Event Grid to CloudEvents":              {EventGrid, CloudEvents, `{"id":"1","subject":"s","eventType":"t","eventTime":"2026-01-01T00:00:00Z","dataVersion":"1","data":{"a":1}}`, false},
		"Event Grid to CloudEvents, names alike": {EventGrid, CloudEvents, `{"id":"1","subject":"s","dataVersion":"1","data":{}}`, false},
		"CloudEvents as accepted":                {CloudEvents, CloudEvents, `{ "id": "1" }`, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sent, err := AppendDelivery(nil, &Event{Schema: row.input, Body: []byte(row.body)}, topic, row.delivery)
			require.NoError(t, err)
			bound := Overhead(row.input, row.delivery, topic)
			require.LessOrEqual(t, len(sent)-len(row.body), bound)
			if row.exact {
				require.Len(t, sent, len(row.body)+bound)
			}
		})
	}
}
