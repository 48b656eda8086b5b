package rest

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestServerWithoutTLS(t *testing.T) {
	t.Parallel()
	api := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(api.Close)
	client, err := ServerFlags{URL: strings.Replace(api.URL, "http:", "https:", 1), APIKey: "prk_any"}.Client()
	require.NoError(t, err)
	client.http.Timeout = time.Minute
	err = client.Call(t.Context(), http.MethodGet, "/v1/topics", nil, nil)
	require.ErrorContains(t, err, "does not use TLS: use http:// in --url")
}
