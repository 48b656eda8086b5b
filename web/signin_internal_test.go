package web

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/web/site"
)

// The responses to ten wrong tokens are delayed, and others are rejected at once. The right token works meanwhile.
func TestWrongAdminTokensAreDelayed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &pages{Options: Options{AdminToken: "right"}, wrongTokens: make(chan struct{}, wrongTokensAtOnce)}
		responses := make(chan error, 40)
		for range cap(responses) {
			go func() { responses <- p.checkAdminToken(t.Context(), "wrong") }()
		}
		for at, want := range []struct{ status, responses int }{
			{http.StatusTooManyRequests, 30}, {http.StatusUnauthorized, 10},
		} {
			time.Sleep(time.Duration(at) * wrongTokenDelay) //nolint:forbidigo // virtual time
			synctest.Wait()
			require.Len(t, responses, want.responses)
			require.NoError(t, p.checkAdminToken(t.Context(), "right"))
			for range want.responses {
				var rejection *site.RejectionError
				require.ErrorAs(t, <-responses, &rejection)
				require.Equal(t, want.status, rejection.Status)
			}
		}
	})
}
