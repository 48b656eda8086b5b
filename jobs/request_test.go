package jobs_test

import (
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/endpointconf"
	"postrider/internal/event"
	"postrider/policy"
)

const (
	jsonType       = "application/json"
	structuredType = "application/cloudevents+json; charset=utf-8"
)

// The headers of an Event Grid delivery: Microsoft, Event Grid message headers; first attempts count 0.
func TestEventGridDelivery(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWith(http.StatusServiceUnavailable))
	subscribe(t, tn, "Mixed-Case.sub", e.URL+"/hook?code=s%20ecret&x=1", nil)
	tn.Start(t)
	receipt := publishBody(t, tn, jsonType,
		`[{"id":"1","subject":"s/é","eventType":"t","eventTime":"2026-01-01T00:00:00Z",`+
			`"dataVersion":"2.1","data":{"n":1.50,  "a":"\u0041"}}]`)
	tn.Attempt(t)
	makeDue(t, tn)
	tn.Attempt(t)

	seen := e.requests()
	require.Len(t, seen, 2)
	for i, r := range seen {
		require.Equal(t, http.MethodPost, r.method)
		require.Equal(t, "/hook?code=s%20ecret&x=1", r.uri,
			"the query string is the endpoint's secret: not one byte may differ")
		require.Equal(t, http.Header{
			"Content-Type":          {"application/json; charset=utf-8"},
			"Content-Length":        r.header["Content-Length"],
			"User-Agent":            {"postrider"},
			"Aeg-Event-Type":        {"Notification"},
			"Aeg-Subscription-Name": {"MIXED-CASE.SUB"},
			"Aeg-Delivery-Count":    {[]string{"0", "1"}[i]},
			"Aeg-Data-Version":      {"2.1"},
			"Aeg-Metadata-Version":  {"1"},
			"Aeg-Output-Event-Id":   {receipt.SystemIDs[0].String()},
			"Postrider-Origin":      {tn.System.Cache.Snapshot().ServerID},
		}, r.header)
		require.Equal(t,
			`[{"id":"1","subject":"s/é","eventType":"t","eventTime":"2026-01-01T00:00:00Z","dataVersion":"2.1",`+
				`"data":{"n":1.50,  "a":"\u0041"},"topic":"/topics/orders","metadataVersion":"1"}]`, r.body)
	}
	require.Equal(t, 1, tn.Rows(t, "events", "system_id = $1", receipt.SystemIDs[0]))
}

func TestCloudEventsDelivery(t *testing.T) {
	t.Parallel()
	tn := setupTopic(t, event.CloudEvents)
	e := newEndpoint(t, respondWith(http.StatusOK))
	subscribe(t, tn, "all", e.URL, func(s *catalog.SubscriptionSpec) { s.EventDeliverySchema = event.CloudEvents })
	tn.Start(t)
	const body = `{ "specversion":"1.0", "id":"1","source":"/s","type":"t","ext":5,"data":{"n":1.50,"s":"\u00e9é"},` +
		` "datacontenttype":"application/json" }`
	receipt := publishBody(t, tn, structuredType, body)
	tn.Attempt(t)
	r := requireOneRequest(t, e)
	require.Equal(t, body, r.body, "one object, byte for byte")
	require.Equal(t, structuredType, r.header.Get("Content-Type"))
	require.Equal(t, "1.0", r.header.Get("Aeg-Metadata-Version"))
	require.Equal(t, receipt.SystemIDs[0].String(), r.header.Get("Aeg-Output-Event-Id"))
	require.NotContains(t, r.header, "Aeg-Data-Version")
	require.NotContains(t, r.header, "Accept", "Event Grid sends none")
}

// A header that HTTP cannot carry is omitted: it must not block the event's delivery.
func TestDataVersionThatNoHeaderCanCarry(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	subscribe(t, tn, "all", e.URL, nil)
	tn.Start(t)
	versions := map[string]any{`\u0001`: nil, `\u007f`: nil, `a\tb`: "a\tb", `é`: "é", ``: nil}
	for version := range versions {
		publishBody(t, tn, jsonType, `[{"id":"`+version+
			`x","subject":"s","eventType":"t","eventTime":"2026-01-01T00:00:00Z","dataVersion":"`+version+`","data":{}}]`)
	}
	tn.AttemptsMade(t, len(versions))
	require.Equal(t, len(versions), tn.Rows(t, "deliveries", "state = 'delivered'"))
	for _, r := range e.requests() {
		var sent []struct{ DataVersion string }
		require.NoError(t, json.Unmarshal([]byte(r.body), &sent))
		switch sent[0].DataVersion {
		case "\x01", "\x7f":
			require.NotContains(t, r.header, "Aeg-Data-Version")
		default:
			require.Equal(t, sent[0].DataVersion, r.header.Get("Aeg-Data-Version"))
		}
	}
}

// The phases of an attempt add up to at most its duration, also on a reused connection.
func TestPhasesAddUpToTheAttempt(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(e.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: e.Certificate().Raw})
	subscribe(t, tn, "all", e.URL, connecting(endpointconf.Connection{CertificateAuthorities: string(authority)}))
	tn.Start(t)
	for range 3 {
		publishOne(t, tn, "1")
		require.Equal(t, http.StatusOK, tn.Attempt(t).Result.Status)
	}
	const attempts = "SELECT count(*) FROM postrider.delivery_attempts WHERE "
	require.Equal(t, 1, tn.Count(t, attempts+"connect_ms > 0 AND tls_ms > 0 AND first_byte_ms > 0"))
	require.Equal(t, 2, tn.Count(t, attempts+"connect_ms IS NULL AND tls_ms IS NULL AND first_byte_ms > 0"))
	require.Equal(t, 3, tn.Count(t, attempts+
		"coalesce(dns_ms, 0) + coalesce(connect_ms, 0) + coalesce(tls_ms, 0) + first_byte_ms <= duration_ms"))
	require.Equal(t, 3, tn.Count(t, attempts+
		"scale(duration_ms) = 3 AND scale(first_byte_ms) = 3 AND scale(waited_ms::numeric) <= 3"))
}

// No page promises an order: an event that waits for its retry delays no later event.
func TestRetryDelaysNoLaterEvent(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newSwitchable(t, http.StatusServiceUnavailable)
	subscribe(t, tn, "all", e.URL, nil)
	tn.Start(t)
	publishOne(t, tn, "first")
	require.Equal(t, policy.Retry, tn.Attempt(t).Verdict.Action)
	e.status.Store(http.StatusOK)
	publishOne(t, tn, "second")
	require.Equal(t, "second", tn.Attempt(t).EventID)
	require.Equal(t, 1, makeDue(t, tn))
	require.Equal(t, "first", tn.Attempt(t).EventID)
	require.Len(t, e.requests(), 3)
	require.Equal(t, "second", e.requests()[1].eventID())
}

// A dead letter has the properties that Event Grid adds to the event, whatever the schema, and has them at once.
func TestDeadLetterHasEventGridsFields(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWith(http.StatusNotFound))
	putTopic(t, tn, "cloud", catalog.TopicSpec{Kind: catalog.TopicBasic, InputSchema: event.CloudEvents})
	putTopic(t, tn, "custom", customTopic(t, wholeMapping))
	tn.Start(t)
	for _, row := range []struct {
		topic             string
		delivery          event.Schema
		contentType, body string // of one event with id 7, type order and subject ann
	}{
		{
			topicName, event.EventGrid, jsonType,
			`{"id":"7","subject":"ann","eventType":"order","eventTime":"2026-01-01T00:00:00Z","dataVersion":"1",` +
				`"data":{"n":1.50}}`,
		},
		{
			"cloud", event.CloudEvents, structuredType,
			`{"specversion":"1.0","id":"7","source":"/s","type":"order","subject":"ann","time":"2026-01-01T00:00:00Z"}`,
		},
		{
			"custom", event.EventGrid, jsonType, `{"no":7,"at":"2026-01-01T00:00:00Z","who":"ann","total":1.50}`,
		},
	} {
		subscribeTo(t, tn, row.topic, "all", e.URL, delivering(row.delivery))
		body := row.body
		if row.topic == topicName {
			body = "[" + body + "]"
		}
		publishTo(t, tn, row.topic, http.Header{"Content-Type": {row.contentType}}, body)
		require.Equal(t, policy.DeadLetter, tn.Attempt(t).Verdict.Action)
		require.Equal(t, 1, tn.Count(t, `SELECT count(*) FROM postrider.dead_letters l JOIN postrider.events e
			USING (system_id) WHERE l.topic = $1
			  AND l.reason = 'UndeliverableDueToClientError' AND l.attempts = 1 AND l.last_outcome = 'NotFound'
			  AND l.last_status = 404
			  AND l.published_at = e.published_at AND l.last_attempt_at BETWEEN l.published_at AND l.dead_lettered_at
			  AND l.dead_lettered_at < l.last_attempt_at + interval '1 minute'
			  AND l.event_id = '7' AND l.event_type = 'order' AND l.subject = 'ann' AND l.event_time = '2026-01-01'
			  AND l.body_text = $2`, row.topic, row.body), row.topic)
	}
}

// customTopic is a topic of custom events. postrider generates ids and times that the mapping does not name.
func customTopic(t *testing.T, mapping string) catalog.TopicSpec {
	t.Helper()
	var m event.Mapping
	require.NoError(t, json.Unmarshal([]byte(`{"inputSchemaMappingType":"Json","properties":{`+mapping+`}}`), &m))
	require.NoError(t, m.Validate())
	return catalog.TopicSpec{Kind: catalog.TopicBasic, InputSchema: event.Custom, InputSchemaMapping: &m}
}

func delivering(schema event.Schema) func(*catalog.SubscriptionSpec) {
	return func(s *catalog.SubscriptionSpec) { s.EventDeliverySchema = schema }
}

const wholeMapping = `"id":{"sourceField":"no"},"eventTime":{"sourceField":"at"},` +
	`"eventType":{"defaultValue":"order"},` +
	`"subject":{"sourceField":"who"},"dataVersion":{"defaultValue":"3"}`

// The conversions of package event, with the headers of each. A generated id and time are the same at each attempt.
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
	tn := setupSpec(t, customTopic(t, wholeMapping))
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

	putTopic(t, tn, "bare", customTopic(t, `"eventType":{"defaultValue":"order"},"subject":{"defaultValue":"s"}`))
	again := newEndpoint(t, respondWith(http.StatusServiceUnavailable))
	subscribeTo(t, tn, "bare", "all", again.URL, nil)
	receipt := publishTo(t, tn, "bare", http.Header{"Content-Type": {jsonType}}, `{}`)
	tn.Attempt(t)
	makeDue(t, tn)
	tn.Attempt(t)
	seen := again.requests()
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

// A request has the trace of all its events, or none.
func TestTraceIsForwarded(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	subscribe(t, tn, "single", e.URL+"/single", only("test"))
	subscribe(t, tn, "batched", e.URL+"/batched", both(only("batched"), batching(2, 64)))
	publish := func(eventType, trace string) {
		header := http.Header{"Content-Type": {jsonType}, "Traceparent": {trace}, "Tracestate": {"a=1", "b=2"}}
		publishRequest(t, tn, header, "["+strings.Replace(eventGridBody("1", "{}"), `"test"`, `"`+eventType+`"`, 1)+"]")
	}
	for _, trace := range []string{parent, parent, parent, other} {
		publish("batched", trace)
	}
	publish("test", parent)
	tn.Start(t)
	tn.AttemptsMade(t, 3)
	publish("test", "made-up")
	tn.Attempt(t)
	traces := map[string][]string{}
	for _, r := range e.requests() {
		traces[r.uri] = append(traces[r.uri], r.header.Get("Traceparent")+" "+r.header.Get("Tracestate"))
	}
	require.Equal(t, []string{parent + " a=1,b=2", " "}, traces["/single"])
	require.ElementsMatch(t, []string{parent + " a=1,b=2", " "}, traces["/batched"])
	require.Equal(t, 4, tn.Rows(t, "events", "traceparent = $1 AND tracestate = 'a=1,b=2'", parent))
	require.Equal(t, 1, tn.Rows(t, "events", "traceparent IS NULL AND tracestate IS NULL"))
}
