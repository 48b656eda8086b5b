package rest

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
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

// A key is sent to no server whose certificate is unknown, and to none that a redirect names.
func TestKeysStayWithTheirServer(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("the redirect was followed")
	}))
	t.Cleanup(other.Close)
	api := httptest.NewTLSServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	t.Cleanup(api.Close)
	call := func(caFile string) error {
		client, err := ServerFlags{URL: api.URL, APIKey: "prk_any", CAFile: caFile}.Client()
		require.NoError(t, err)
		client.http.Timeout = time.Minute
		return client.Call(t.Context(), http.MethodGet, "/v1/topics", nil, nil)
	}
	require.ErrorContains(t, call(""), "certificate signed by unknown authority")
	file := filepath.Join(t.TempDir(), "ca.pem")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw})
	require.NoError(t, os.WriteFile(file, certificate, 0o600))
	require.ErrorContains(t, call(file), "307")
}

// What is no response of postrider is reported as such, and details that repeat are printed once.
func TestErrorTexts(t *testing.T) {
	t.Parallel()
	for want, body := range map[string]string{
		"the server responded 404 Not Found without an error of postrider: check POSTRIDER_URL or --url, and proxies " +
			"before the service": "404 page not found",
		"it failed\n  endpointUrl: no response (2 times)\n  endpointUrl: 500\n  endpointUrl: no response": `{"error":{` +
			`"code":"EndpointValidationFailed","message":"it failed","details":[` +
			`{"target":"endpointUrl","message":"no response"},{"target":"endpointUrl","message":"no response"},` +
			`{"target":"endpointUrl","message":"500"},{"target":"endpointUrl","message":"no response"}]}}`,
	} {
		api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(body))
		}))
		t.Cleanup(api.Close)
		client, err := ServerFlags{URL: api.URL, APIKey: "prk_any"}.Client()
		require.NoError(t, err)
		require.EqualError(t, client.Call(t.Context(), http.MethodGet, "/v1/topics", nil, nil), want)
	}
}
