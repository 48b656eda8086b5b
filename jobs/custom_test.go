package jobs_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/internal/testnode"
)

// setupCustom creates a database with one topic of custom events. postrider generates ids and times that the mapping
// does not name.
func setupCustom(t *testing.T, mapping string) *testnode.Node {
	t.Helper()
	var m event.Mapping
	require.NoError(t, json.Unmarshal([]byte(`{"inputSchemaMappingType":"Json","properties":{`+mapping+`}}`), &m))
	require.NoError(t, m.Validate())
	return setupSpec(t, catalog.TopicSpec{Kind: catalog.TopicBasic, InputSchema: event.Custom, InputSchemaMapping: &m})
}

func delivering(schema event.Schema) func(*catalog.SubscriptionSpec) {
	return func(s *catalog.SubscriptionSpec) { s.EventDeliverySchema = schema }
}

const wholeMapping = `"id":{"sourceField":"no"},"eventTime":{"sourceField":"at"},` +
	`"eventType":{"defaultValue":"order"},` +
	`"subject":{"sourceField":"who"},"dataVersion":{"defaultValue":"3"}`

// The conversions of package event, with the headers of each.
func TestCustomDelivery(t *testing.T) {
	t.Parallel()
	const own = `{"no": 7, "at":"2026-01-01T01:00:00.5+01:00","who":"a\"b"}`
	const asEventGrid = `[{"id":"7","eventTime":"2026-01-01T00:00:00.5Z","eventType":"order","dataVersion":"3",` +
		`"metadataVersion":"1","topic":"/topics/orders","subject":"a\"b","data":` + own + `}]`
	rows := map[string]struct {
		schema                                  event.Schema
		contentType, version, dataVersion, body string
		maxEvents                               int
	}{
		"/own":    {event.CustomInput, "application/json; charset=utf-8", "1", "3", `[` + own + `]`, 1},
		"/single": {event.EventGrid, "application/json; charset=utf-8", "1", "3", asEventGrid, 1},
		"/batch":  {event.EventGrid, "application/json; charset=utf-8", "1", "3", asEventGrid, 10},
		"/cloud": {
			event.CloudEvents, structuredType, "1.0", "",
			`{"specversion":"1.0","source":"/topics/orders","id":"7","type":"order","subject":"a\"b",` +
				`"time":"2026-01-01T00:00:00.5Z","dataversion":"3","datacontenttype":"application/json","data":` + own + `}`, 1,
		},
	}
	tn := setupCustom(t, wholeMapping)
	e := newEndpoint(t, respondWith(http.StatusOK))
	for path, row := range rows {
		subscribe(t, tn, path[1:], e.URL+path, both(delivering(row.schema), batching(row.maxEvents, 64)))
	}
	tn.Start(t)
	publishBody(t, tn, jsonType, own)
	tn.AttemptsMade(t, len(rows))
	require.Len(t, e.requests(), len(rows))
	for _, r := range e.requests() {
		row := rows[r.uri]
		require.Equal(t, row.body, r.body, r.uri)
		require.Equal(t, row.contentType, r.header.Get("Content-Type"), r.uri)
		require.Equal(t, row.version, r.header.Get("Aeg-Metadata-Version"), r.uri)
		require.Equal(t, row.dataVersion, r.header.Get("Aeg-Data-Version"), r.uri)
	}
}

// A generated id and time are the same at each attempt.
func TestCustomDeliveryGeneratesOnce(t *testing.T) {
	t.Parallel()
	tn := setupCustom(t, `"eventType":{"defaultValue":"order"},"subject":{"defaultValue":"s"}`)
	e := newEndpoint(t, respondWith(http.StatusServiceUnavailable))
	subscribe(t, tn, "all", e.URL, nil)
	tn.Start(t)
	receipt := publishBody(t, tn, jsonType, `{}`)
	tn.Attempt(t)
	travel(t, tn)
	tn.Attempt(t)
	seen := e.requests()
	require.Len(t, seen, 2)
	require.Equal(t, seen[0].body, seen[1].body)
	var sent []struct {
		ID        string
		EventTime time.Time
	}
	require.NoError(t, json.Unmarshal([]byte(seen[0].body), &sent))
	require.Equal(t, receipt.Events[0].ID, sent[0].ID)
	require.True(t, receipt.Events[0].Time.Equal(sent[0].EventTime), "%s, %s", receipt.Events[0].Time, sent[0].EventTime)
}

const (
	parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	other  = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b8-01"
)

func TestTraceIsForwarded(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	subscribe(t, tn, "all", e.URL, nil)
	tn.Start(t)
	event := "[" + eventGridBody("1", "{}") + "]"
	header := http.Header{"Content-Type": {jsonType}, "Traceparent": {parent}, "Tracestate": {"a=1", "b=2"}}
	publishRequest(t, tn, header, event)
	tn.Attempt(t)
	r := requireOneRequest(t, e)
	require.Equal(t, []string{parent}, r.header["Traceparent"])
	require.Equal(t, []string{"a=1,b=2"}, r.header["Tracestate"])
	require.Equal(t, 1, tn.Rows(t, "events", "traceparent = $1 AND tracestate = 'a=1,b=2'", parent))

	header.Set("Traceparent", "made-up")
	publishRequest(t, tn, header, event)
	tn.Attempt(t)
	require.NotContains(t, e.requests()[1].header, "Traceparent")
	require.NotContains(t, e.requests()[1].header, "Tracestate")
	require.Equal(t, 1, tn.Rows(t, "events", "traceparent IS NULL AND tracestate IS NULL"))
}

// A request has the trace of all its events, or none.
func TestTraceOfBatches(t *testing.T) {
	t.Parallel()
	tn := setupTopic(t, event.CloudEvents)
	e := newEndpoint(t, respondWith(http.StatusOK))
	subscribe(t, tn, "all", e.URL, both(delivering(event.CloudEvents), batching(10, 64)))
	cloud := func(id, trace string) string {
		return `{"specversion":"1.0","id":"` + id + `","source":"/s","type":"t","traceparent":"` + trace + `"}`
	}
	const batchType = "application/cloudevents-batch+json"
	publishBody(t, tn, batchType, "["+cloud("1", parent)+","+cloud("2", parent)+"]")
	tn.Start(t)
	tn.Attempt(t)
	publishBody(t, tn, batchType, "["+cloud("3", parent)+","+cloud("4", other)+"]")
	tn.Attempt(t)
	seen := e.requests()
	require.Len(t, seen, 2)
	require.Equal(t, parent, seen[0].header.Get("Traceparent"))
	require.NotContains(t, seen[1].header, "Traceparent")
	require.Contains(t, seen[1].body, other, "each event keeps its own")
}
