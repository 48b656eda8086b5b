package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every response of every route has a content type and forbids sniffing and frames.
func TestEveryResponseHasSecurityHeaders(t *testing.T) {
	t.Parallel()
	db := migratedDatabase(t)
	all, worker := startNode(t, db), startNode(t, db, "--role", "worker")
	key := all.topic("orders")
	guarded := func(base, method, path, body string, headers ...string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, base+path, strings.NewReader(body))
		require.NoError(t, err)
		for i := 0; i < len(headers); i += 2 {
			request.Header.Set(headers[i], headers[i+1])
		}
		response, err := caller.Transport.RoundTrip(request)
		require.NoError(t, err)
		defer response.Body.Close()
		where := method + " " + path + " " + response.Status
		require.Equal(t, "nosniff", response.Header.Get("X-Content-Type-Options"), where)
		require.Equal(t, "no-referrer", response.Header.Get("Referrer-Policy"), where)
		require.Contains(t, response.Header.Get("Content-Security-Policy"), "default-src 'none'", where)
		require.Contains(t, response.Header.Get("Content-Security-Policy"), "frame-ancestors 'none'", where)
		require.Empty(t, response.Header.Get("Access-Control-Allow-Origin"), where)
		if strings.HasPrefix(response.Header.Get("Content-Type"), "text/html") && response.Header.Get("Location") == "" {
			require.True(t, path == "/openapi" || strings.HasPrefix(path, "/ui"), where)
		}
	}
	paths := []string{
		"/", "/healthz", "/readyz", "/metrics", "/openapi", "/openapi/", "/openapi.yaml", "/v1/topics", "/v1/topics/orders",
		"/v1/topics/unknown", "/v1/deadLetters?cursor=x", "/topics/orders/api/events", "/topics/orders:publish",
		"/ui", "/ui/", "/ui/sign-in", "/ui/topics", "/ui/static/nothing.js", "/ui/%2e%2e/v1/topics", "//v1/topics",
		"/v1/../ui/", "/v1%2ftopics", "/nowhere", "/favicon.ico", "/robots.txt",
	}
	for _, path := range paths {
		for _, method := range []string{
			http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
			http.MethodOptions, http.MethodTrace, "NONSENSE",
		} {
			guarded(all.api, method, path, "", "Origin", "https://example.com")
			guarded(all.api, method, path, "{", "Authorization", "Bearer "+testAdminToken, "Content-Type", "application/json")
		}
		guarded(worker.api, http.MethodGet, path, "")
	}
	events := "/topics/orders/api/events"
	guarded(all.api, http.MethodPost, events, cloudEvent("1"), "aeg-sas-key", key, "Content-Type",
		"application/cloudevents+json")
	guarded(all.api, http.MethodPost, events, strings.Repeat(" ", 2<<20), "aeg-sas-key", key, "Content-Type",
		"application/json")
	guarded(all.api, http.MethodPost, events, "x", "aeg-sas-key", key, "Content-Encoding", "gzip")
	for range 40 {
		guarded(all.api, http.MethodPost, events, "", "aeg-sas-key", "wrong")
	}
}
