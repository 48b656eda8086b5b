package server_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/server"
)

func TestMetricsNeedATokenOutsideDev(t *testing.T) {
	t.Parallel()
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "here they are") })
	closed := setup(t, func(o *server.Options) { o.Metrics = metrics })
	closed.send(http.MethodGet, "/metrics", "").rejected(http.StatusUnauthorized, "Unauthorized")
	closed.send(http.MethodGet, "/metrics", "", "Authorization", "Bearer wrong").
		rejected(http.StatusUnauthorized, "Unauthorized")
	require.Equal(t, "here they are", closed.manage(http.MethodGet, "/metrics", "").body)
	open := setup(t, func(o *server.Options) { o.Metrics, o.OpenMetrics = metrics, true })
	require.Equal(t, "here they are", open.send(http.MethodGet, "/metrics", "").body)
	setup(t, func(o *server.Options) { o.Metrics = nil }).manage(http.MethodGet, "/metrics", "").
		rejected(http.StatusNotFound, "NotFound")
}

// Responses are counted by route, not by the path of the request.
func TestResponsesAreCounted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key := b.topic("orders", "")
	b.subscription("orders", "billing",
		`{"endpointUrl":"https://example.com/hook","filter":{"includedEventTypes":["other"]}}`)
	require.Equal(t, http.StatusOK, b.publish("orders", key, "["+gridEvent("e1")+","+gridEvent("e2")+"]").status)
	require.Equal(t, http.StatusBadRequest, b.publish("orders", key, "{").status)
	require.Equal(t, http.StatusUnauthorized, b.publish("orders", "wrong", gridEvent("e1")).status)
	require.Equal(t, http.StatusNotFound,
		b.send(http.MethodPost, "/topics/unknown/api/events", gridEvent("e1"), "Authorization", "Bearer "+adminToken).status)
	for _, path := range []string{"/nothing/here", "/nothing/there", "/v1/topics/orders/nothing"} {
		b.manage(http.MethodGet, path, "").rejected(http.StatusNotFound, "NotFound")
	}
	b.manage("PROPFIND", "/v1/topics", "").rejected(http.StatusMethodNotAllowed, "MethodNotAllowed")

	stats := b.counters.Read()
	count := func(key server.ResponseKey) (n int64) {
		for _, c := range stats.Responses[key].Counts {
			n += c
		}
		return n
	}
	const publish = "/topics/:topic/api/events"
	for _, status := range []int{http.StatusOK, http.StatusBadRequest, http.StatusUnauthorized, http.StatusNotFound} {
		require.Equal(t, int64(1), count(server.ResponseKey{Method: http.MethodPost, Route: publish, Status: status}), status)
	}
	require.Equal(t, int64(3), count(server.ResponseKey{Method: http.MethodGet, Status: http.StatusNotFound}),
		stats.Responses)
	for key := range stats.Responses {
		require.NotContains(t, key.Route, "nothing")
		require.NotEqual(t, "PROPFIND", key.Method)
	}
	require.Equal(t, map[server.FailureKey]int64{
		{Topic: "orders", Code: "InvalidEvent", Status: http.StatusBadRequest}:   1,
		{Topic: "orders", Code: "Unauthorized", Status: http.StatusUnauthorized}: 1,
		{Code: "NotFound", Status: http.StatusNotFound}:                          1,
	}, stats.PublishFailures)
	require.Equal(t, map[string]int64{"orders": 2}, stats.Unmatched)
	require.Positive(t, stats.Published.Sum)
}
