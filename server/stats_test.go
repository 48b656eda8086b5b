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
	closed.send(http.MethodGet, "/metrics", "").rejected(401, "Unauthorized")
	require.Equal(t, "here they are", closed.get("/metrics").body)
	open := closed.with(func(o *server.Options) { o.Metrics, o.OpenMetrics = metrics, true })
	require.Equal(t, "here they are", open.send(http.MethodGet, "/metrics", "").body)
	closed.with(func(o *server.Options) { o.Metrics = nil }).get("/metrics").rejected(404, "NotFound")
}

// Responses are counted by route, not by the path of the request.
func TestResponsesAreCounted(t *testing.T) {
	t.Parallel()
	s := setup(t)
	key := s.topic("orders", "")
	s.subscription("orders", "billing",
		`{"endpointUrl":"https://example.com/hook","filter":{"includedEventTypes":["other"]}}`)
	s.publish("orders", key, gridEvents("e1", "e2")).is(200)
	s.publish("orders", key, "{").is(400)
	s.publish("orders", "wrong", gridEvent("e1")).is(401)
	s.send(http.MethodPost, "/topics/unknown/api/events", gridEvent("e1"), "Authorization", "Bearer "+adminToken).is(404)
	for _, path := range []string{"/nothing/here", "/nothing/there", "/v1/topics/orders/nothing"} {
		s.get(path).rejected(404, "NotFound")
	}
	s.manage("PROPFIND", "/v1/topics", "").rejected(405, "MethodNotAllowed")

	stats := s.counters.Read()
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
