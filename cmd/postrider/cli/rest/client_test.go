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
	client, err := ServerFlags{Server: strings.Replace(api.URL, "http:", "https:", 1), APIKey: "prk_any"}.Client()
	require.NoError(t, err)
	client.http.Timeout = time.Minute
	err = client.Call(t.Context(), http.MethodGet, "/v1/topics", nil, nil)
	require.ErrorContains(t, err, "does not use TLS: use http:// in --server")
}

// A key of the flags or the environment is for the server of postrider dev if there is no default server.
func TestGivenKeysWithoutADefaultServer(t *testing.T) {
	t.Parallel()
	staging := SavedServer{Name: "staging", URL: "https://staging.example.com", Key: "prk_staging"}
	for _, saved := range []SavedServers{{Servers: []SavedServer{staging}}, {}} {
		f, err := ServerFlags{APIKey: "prk_given"}.resolvedWith(&saved)
		require.NoError(t, err)
		require.Equal(t, ServerFlags{Server: devServer, APIKey: "prk_given"}, f)
		f, err = ServerFlags{topicKey: "topic_given"}.resolvedWith(&saved)
		require.NoError(t, err)
		require.Equal(t, ServerFlags{Server: devServer, topicKey: "topic_given"}, f)
	}
}
