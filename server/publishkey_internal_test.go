package server

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/jobs/publish"
)

// FuzzIdempotencyKey: a key is accepted unchanged, or rejected.
func FuzzIdempotencyKey(f *testing.F) {
	for _, key := range []string{"", "a", `"quoted"`, "\x00", "é", "a, b"} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, given string) {
		key, err := idempotencyKey(http.Header{"Idempotency-Key": {given}})
		if err != nil {
			require.Empty(t, key)
			return
		}
		require.Equal(t, given, key)
		require.NotEmpty(t, key)
		require.LessOrEqual(t, len(key), publish.MaxIdempotencyKey)
	})
}
