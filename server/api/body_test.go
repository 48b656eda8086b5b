package api

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReadBodyTrustsNoLength(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		length int64
		body   string
		status int
	}{
		"as promised":               {5, "hello", 0},
		"no promise":                {-1, "hello", 0},
		"a promise of too much":     {MaxBodyBytes + 1, "hello", http.StatusRequestEntityTooLarge},
		"a promise of all there is": {MaxBodyBytes, "hello", 0},
		"more than there may be":    {-1, strings.Repeat("x", MaxBodyBytes+1), http.StatusRequestEntityTooLarge},
	} {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(row.body))
		r.ContentLength = row.length
		buf, err := ReadBody(r, MaxBodyBytes)
		if row.status != 0 {
			var rejected *RejectionError
			require.ErrorAs(t, err, &rejected, name)
			require.Equal(t, row.status, rejected.Status, name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, row.body, buf.String(), name)
		require.LessOrEqual(t, buf.Cap(), 2*maxPooledBytes, "%s: a length alone takes no large memory", name)
		Free(buf)
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestReadBodyThatBreaksOff(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequest(http.MethodPost, "/", broken{})
	_, err := ReadBody(r, MaxBodyBytes)
	var rejected *RejectionError
	require.ErrorAs(t, err, &rejected)
	require.Equal(t, http.StatusServiceUnavailable, rejected.Status, "the client should send it again")
	require.NotContains(t, rejected.Message, "EOF")
}

func TestReadBodyGrowsOnce(t *testing.T) {
	t.Parallel()
	for _, size := range []int{maxPooledBytes - 1024, maxPooledBytes, 5 * maxPooledBytes, MaxBodyBytes} {
		text := strings.Repeat("x", size)
		buf, err := ReadBody(httptest.NewRequest(http.MethodPost, "/", strings.NewReader(text)), MaxBodyBytes)
		require.NoError(t, err)
		require.Equal(t, text, buf.String(), size)
		require.LessOrEqual(t, buf.Cap(), max(size, 2*maxPooledBytes)+maxPooledBytes/4, size)
	}
}
