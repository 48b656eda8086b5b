package jobs_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// A publish in progress may commit its delivery after the deletion; its attempt finds no event subscription, and knows
// the reason.
func TestAttemptOfAnExpiredSubscriptionIsCanceled(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	subscribe(t, tn, "expired", e.URL, nil)
	subscribe(t, tn, "deleted", e.URL, nil)
	publishOne(t, tn, "e")
	tn.Exec(t, "UPDATE postrider_internal.event_subscriptions SET deleted_at = now(), drained_at = now(), "+
		"expiration_time_utc = CASE name WHEN 'expired' THEN now() ELSE now() + interval '1 hour' END")
	require.NoError(t, tn.System.Cache.Reload(t.Context()))
	tn.Start(t)
	tn.BecomeRows(t, 1, "deliveries", "subscription = 'expired' AND state = 'canceled' "+
		"AND reason = 'EventSubscriptionExpired'")
	tn.BecomeRows(t, 1, "deliveries", "subscription = 'deleted' AND state = 'canceled' "+
		"AND reason = 'EventSubscriptionDeleted'")
	require.Empty(t, e.requests())
}
