package endpoint

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// FuzzReadToken: whatever a token server answers, there is a token that a header can carry, or a problem that repeats
// nothing of the answer but a word for an error.
func FuzzReadToken(f *testing.F) {
	f.Add(200, `{"access_token":"a.b","token_type":"Bearer","expires_in":3600}`)
	f.Add(200, `{"access_token":"a\r\nX: b"}`)
	f.Add(400, `{"error":"invalid_client","error_description":"pl4nted"}`)
	f.Add(200, `{"access_token":{},"expires_in":"1e999"}`)
	f.Add(500, ``)
	f.Fuzz(func(t *testing.T, status int, body string) {
		text, lifetime, problem := readToken(status, []byte(body))
		if problem != "" {
			require.Empty(t, text)
			require.Less(t, len(problem), 120)
			return
		}
		require.NotEmpty(t, text)
		require.False(t, strings.ContainsAny(text, "\r\n\x00 "))
		require.GreaterOrEqual(t, lifetime, time.Duration(0))
		require.LessOrEqual(t, lifetime, maxTokenLifetime)
	})
}
