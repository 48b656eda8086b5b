package jobs_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/policy"
)

const pendingDelivery = "SELECT delivery_id FROM postrider.deliveries WHERE state = 'pending'"

// The request of a canceled delivery arrives, and nothing of it is recorded.
func TestCancelDuringTheRequest(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*catalog.SubscriptionSpec){"alone": nil, "in a batch": batching(10, 64)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tn := setup(t)
			x := newManualEndpoint(t)
			subscribe(t, tn, "all", x.URL, change)
			tn.Start(t)
			publishOne(t, tn, "e")
			r := x.next(t)
			id := int64(tn.Count(t, pendingDelivery))
			err := tn.System.Operator.RetryNow(t.Context(), id)
			require.ErrorContains(t, err, "is in progress")
			require.NoError(t, tn.System.Operator.Cancel(t.Context(), id))
			r.respond(http.StatusOK)
			publishOne(t, tn, "another")
			x.next(t).respond(http.StatusOK)
			tn.BecomeRows(t, 1, "deliveries", "state = 'delivered'")

			require.Equal(t, 1, tn.Rows(t, "deliveries", "delivery_id = $1 AND state = 'canceled' AND attempts = 0", id))
			require.Equal(t, 1, tn.Rows(t, "delivery_attempts", ""), "the other one's")
			tn.Become(t, 0, "SELECT count(*) FROM postrider_internal.river_job")
		})
	}
}

// A requested retry is made at once, and is an attempt like others; of a batch, only for that member.
func TestRetryNowIsMadeAtOnce(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	withoutProbation(t, tn)
	e := newManualEndpoint(t)
	subscribe(t, tn, "all", e.URL, nil)
	tn.Start(t)
	publishOne(t, tn, "e")
	e.next(t).respond(http.StatusInternalServerError)
	require.Equal(t, policy.Retry, tn.Attempt(t).Verdict.Action)
	require.NoError(t, tn.System.Operator.RetryNow(t.Context(), int64(tn.Count(t, pendingDelivery))))
	e.next(t).respond(http.StatusOK)
	report := tn.Attempt(t)
	require.Equal(t, 2, report.Number)
	require.Equal(t, policy.Delivered, report.Verdict.Action)
	require.Equal(t, "1", e.requests()[1].header.Get("Aeg-Delivery-Count"))
}
