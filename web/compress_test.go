package web_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// Pages and files are compressed, but not pages with secrets, pages that another site requests, and streams.
func TestCompression(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.hook(t)
	gzipped := func(r *http.Request) { r.Header.Set("Accept-Encoding", "gzip, br") }
	plain := b.page(t, "/ui/deliveries")
	style := regexp.MustCompile(`/ui/static/style\.[0-9a-f]+\.css`).FindString(plain)
	for path, limit := range map[string]int{"/ui/": 5, "/ui/deliveries": 3, style: 3} {
		response := b.request(http.MethodGet, path, gzipped)
		require.Equal(t, "gzip", response.Header().Get("Content-Encoding"), path)
		require.Equal(t, "Accept-Encoding", response.Header().Get("Vary"), path)
		size := response.Body.Len()
		reader, err := gzip.NewReader(response.Body)
		require.NoError(t, err, path)
		body, err := io.ReadAll(reader)
		require.NoError(t, err, path)
		require.Less(t, size*limit, len(body)*2, path)
		require.Empty(t, b.request(http.MethodGet, path).Header().Get("Content-Encoding"), path)
		for accepted, coding := range map[string]string{
			"gzip;q=0": "", "br, gzip; q=0.0": "", "xgzip": "", "br;q=0, GZIP ;q=0.1": "gzip",
		} {
			accepting := func(r *http.Request) { r.Header.Set("Accept-Encoding", accepted) }
			header := b.request(http.MethodGet, path, accepting).Header()
			require.Equal(t, coding, header.Get("Content-Encoding"), "%s: %s", path, accepted)
		}
	}
	for _, path := range []string{
		"/ui/topics/orders/keys", "/ui/topics/orders/edit", "/ui/subscriptions/orders/billing/edit", "/ui/api-keys",
		"/ui/account", "/ui/users", "/ui/topics/orders/publish", "/ui/subscriptions/new?topic=orders",
	} {
		response := b.request(http.MethodGet, path, gzipped)
		require.Equal(t, http.StatusOK, response.Code, path)
		require.Empty(t, response.Header().Get("Content-Encoding"), path)
	}
	require.Contains(t, b.post("/ui/topics/orders/keys", url.Values{"show": {"1"}}, gzipped).Body.String(),
		`aria-label="Access key"`)
	for _, site := range []string{"cross-site", "same-site"} {
		response := b.request(http.MethodGet, "/ui/dead-letters?search=guess", gzipped,
			func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", site) })
		require.Empty(t, response.Header().Get("Content-Encoding"), site)
	}
	stream := b.request(http.MethodHead, "/ui/tail/stream", gzipped)
	require.Empty(t, stream.Header().Get("Content-Encoding"))
}
