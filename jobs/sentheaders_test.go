package jobs_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/endpointconf"
)

// An attempt stores its request headers without secrets, whatever the result.
func TestAttemptsStoreRequestHeaders(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, statusOfPath)
	for _, status := range []string{"200", "503"} {
		subscribe(t, tn, "all-"+status, e.URL+"/"+status, func(s *catalog.SubscriptionSpec) {
			s.Signing.Enabled = true
			s.DeliveryAttributes = []endpointconf.DeliveryAttribute{
				staticHeader("X-Open", "open"), staticHeader("X-Repeats", "of hush-hush"), secretHeader("X-Secret", "hush-hush"),
				secretHeader("Authorization", "Bearer token-1234"), staticHeader("X-Long", strings.Repeat("l", 3000)),
			}
		})
	}
	tn.Start(t)
	publishOne(t, tn, "1")
	tn.AttemptsMade(t, 2)
	for _, status := range []string{"200", "503"} {
		var kept string
		require.NoError(t, tn.Pool.QueryRow(t.Context(),
			"SELECT request_headers FROM postrider.delivery_attempts WHERE status = $1::int", status).Scan(&kept))
		for _, line := range []string{
			"Aeg-Delivery-Count: 0", "Aeg-Event-Type: Notification", "Aeg-Subscription-Name: ALL-" + status,
			"Authorization: ***", "Content-Type: application/json",
		} {
			require.Contains(t, kept, line)
		}
		require.NotContains(t, kept, "hush")
		require.NotContains(t, kept, "token-1234")
		require.LessOrEqual(t, len(kept), 2048)
	}
}
