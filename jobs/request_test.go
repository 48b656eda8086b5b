package jobs_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/event"
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
	travel(t, tn)
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
