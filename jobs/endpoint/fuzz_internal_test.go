package endpoint

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/endpointconf"
)

// FuzzTokenResponse: whatever a token server responds, the outcome is a token that a header can carry, or an error that
// repeats nothing of the response but a word for an error.
func FuzzTokenResponse(f *testing.F) {
	f.Add(200, `{"access_token":"a.b","token_type":"Bearer","expires_in":3600}`)
	f.Add(200, `{"access_token":"a\r\nX: b"}`)
	f.Add(400, `{"error":"invalid_client","error_description":"pl4nted"}`)
	f.Add(200, `{"access_token":{},"expires_in":"1e999"}`)
	f.Add(500, ``)
	f.Fuzz(func(t *testing.T, status int, body string) {
		s := newTokens(t.Context(), "test", func(r *http.Request, _ *endpointconf.Connection) (*http.Response, error) {
			body := io.NopCloser(strings.NewReader(body))
			return &http.Response{StatusCode: status, Header: http.Header{}, Body: body, Request: r}, nil
		})
		by := &endpointconf.Connection{OAuth2: &endpointconf.OAuth2{TokenURL: "https://login/", ClientID: "id"}}
		text, lifetime, err := s.request(by)
		if err != nil {
			require.Empty(t, text)
			require.Less(t, len(err.Error()), 160)
			return
		}
		require.NotEmpty(t, text)
		require.False(t, strings.ContainsAny(text, "\r\n\x00 "))
		require.GreaterOrEqual(t, lifetime, time.Duration(0))
		require.LessOrEqual(t, lifetime, maxTokenLifetime)
	})
}
