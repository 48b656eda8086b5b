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
			b := setup(t)
			x := newManualEndpoint(t)
			b.subscribe(t, "all", x.URL, change)
			b.start(t, nil)
			b.publishOne(t, "e")
			r := x.next(t)
			id := int64(b.count(t, pendingDelivery))
			err := b.store.Operator.RetryNow(t.Context(), id)
			require.ErrorContains(t, err, "is in progress")
			require.NoError(t, b.store.Operator.Cancel(t.Context(), id))
			r.respond(http.StatusOK)
			b.publishOne(t, "another")
			x.next(t).respond(http.StatusOK)
			b.become(t, 1, "SELECT count(*) FROM postrider.deliveries WHERE state = 'delivered'")

			require.Equal(t, 1, b.count(t,
				"SELECT count(*) FROM postrider.deliveries WHERE delivery_id = $1 AND state = 'canceled' AND attempts = 0", id))
			require.Equal(t, 1, b.count(t, "SELECT count(*) FROM postrider.delivery_attempts"), "the other one's")
			b.become(t, 0, "SELECT count(*) FROM postrider_internal.river_job")
		})
	}
}

// The response to a batch is not recorded for a member that is canceled during the request.
func TestCancelOfAMemberDuringItsBatch(t *testing.T) {
	t.Parallel()
	b := setup(t)
	x := newManualEndpoint(t)
	b.subscribe(t, "all", x.URL, batching(10, 64))
	b.publishAtOnce(t, "e", 3)
	b.start(t, nil)
	r := x.next(t)
	id := int64(b.count(t, "SELECT min(delivery_id) FROM postrider.deliveries"))
	require.NoError(t, b.store.Operator.Cancel(t.Context(), id))
	r.respond(http.StatusInternalServerError)
	b.become(t, 2, "SELECT count(*) FROM postrider.deliveries WHERE state = 'pending' AND attempts = 1")
	b.travel(t)
	second := x.next(t)
	second.respond(http.StatusOK)
	b.become(t, 2, "SELECT count(*) FROM postrider.deliveries WHERE state = 'delivered' AND attempts = 2")
	require.Len(t, x.requests()[0].ids(t), 3)
	require.Equal(t, []string{"e-1", "e-2"}, x.requests()[1].ids(t))
}

// A requested retry is made at once, and is an attempt like others; of a batch, only for that member.
func TestRetryNowIsMadeAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.withoutProbation(t)
	e := newManualEndpoint(t)
	b.subscribe(t, "all", e.URL, nil)
	b.start(t, nil)
	b.publishOne(t, "e")
	e.next(t).respond(http.StatusInternalServerError)
	require.Equal(t, policy.Retry, b.attempt(t).Verdict.Action)
	require.NoError(t, b.store.Operator.RetryNow(t.Context(), int64(b.count(t, pendingDelivery))))
	e.next(t).respond(http.StatusOK)
	report := b.attempt(t)
	require.Equal(t, 2, report.Number)
	require.Equal(t, policy.Delivered, report.Verdict.Action)
	require.Equal(t, "1", e.requests()[1].header.Get("Aeg-Delivery-Count"))
}

func TestRetryNowOfAMemberIsSentAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.withoutProbation(t)
	e := newManualEndpoint(t)
	b.subscribe(t, "all", e.URL, batching(10, 64))
	b.publishAtOnce(t, "e", 3)
	b.start(t, nil)
	e.next(t).respond(http.StatusInternalServerError)
	b.attempt(t)
	require.NoError(t,
		b.store.Operator.RetryNow(t.Context(), int64(b.count(t, "SELECT max(delivery_id) FROM postrider.deliveries"))))
	e.next(t).respond(http.StatusOK)
	require.Equal(t, 2, b.attempt(t).Number)
	require.Equal(t, []string{"e-2"}, e.requests()[1].ids(t))
	require.Equal(t, 2, b.count(t, "SELECT count(*) FROM postrider.deliveries WHERE state = 'pending' AND attempts = 1"))
}
