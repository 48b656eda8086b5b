package jobs_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/endpointconf"
)

// An attempt stores its request headers without secrets, whatever the result.
func TestAttemptsStoreRequestHeaders(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusOK, http.StatusServiceUnavailable} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			t.Parallel()
			testSentHeaders(t, status)
		})
	}
}

func testSentHeaders(t *testing.T, status int) {
	tn := setup(t)
	e := newEndpoint(t, func(w http.ResponseWriter, _ request) { w.WriteHeader(status) })
	subscribe(t, tn, "all", e.URL, func(s *catalog.SubscriptionSpec) {
		s.Signing.Enabled = true
		s.DeliveryAttributes = []endpointconf.DeliveryAttribute{
			staticHeader("X-Open", "open"), staticHeader("X-Repeats", "of hush-hush"), secretHeader("X-Secret", "hush-hush"),
			secretHeader("Authorization", "Bearer token-1234"), staticHeader("X-Long", strings.Repeat("l", 3000)),
		}
	})
	tn.Start(t)
	publishOne(t, tn, "1")
	tn.AttemptsMade(t, 1)
	var kept string
	require.NoError(t, tn.Pool.QueryRow(t.Context(),
		"SELECT request_headers FROM postrider.delivery_attempts").Scan(&kept))
	for _, line := range []string{
		"Aeg-Delivery-Count: 0", "Aeg-Event-Type: Notification", "Aeg-Subscription-Name: ALL", "Authorization: ***",
		"Content-Type: application/json",
	} {
		require.Contains(t, kept, line)
	}
	require.NotContains(t, kept, "hush")
	require.NotContains(t, kept, "token-1234")
	require.LessOrEqual(t, len(kept), 2048)
}
