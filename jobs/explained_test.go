package jobs_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/endpointconf"
	"postrider/policy"
)

// A hold starts, and ends what is published during it, by the result of the failed attempt, and by no other cell of the
// table.
func TestHoldFollowsTheResult(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, statusOfPath)
	safe, documented := under("namespace-2023"), literally("namespace-2023")
	azure := func(s *catalog.SubscriptionSpec) { s.EndpointKind = policy.KindAzureResource }
	withoutToken := func(s *catalog.SubscriptionSpec) {
		s.Connection = endpointconf.Connection{
			OAuth2: &endpointconf.OAuth2{TokenURL: closedPort, ClientID: "id", ClientSecret: "secret"},
		}
	}
	const ended, waits = "dropped UndeliverableDueToProbationCausedByClientError 0", "pending probation 0"
	rows := map[string]struct {
		change func(*catalog.SubscriptionSpec)
		url    string
		want   string // state, hold or reason, and attempts of the second event
	}{
		"404":                       {documented, e.URL + "/404", ended},
		"404-azure":                 {both(documented, azure), e.URL + "/404", waits},
		"404-safe":                  {safe, e.URL + "/404", waits},
		"410":                       {documented, e.URL + "/410", "pending 1"},
		"410-safe":                  {safe, e.URL + "/410", "pending 1"},
		"400":                       {documented, e.URL + "/400", "dropped UndeliverableDueToHttpBadRequest 1"},
		"500":                       {documented, e.URL + "/500", "pending 1"},
		"503":                       {documented, e.URL + "/503", waits},
		"closed-port":               {documented, closedPort, waits},
		"closed-port-safe":          {safe, closedPort, waits},
		"401-azure":                 {both(documented, azure), e.URL + "/401", waits},
		"no-token-is-not-401-azure": {both(documented, azure, withoutToken), e.URL + "/200", ended},
	}
	for name, row := range rows {
		subscribe(t, tn, name, row.url, row.change)
	}
	tn.Start(t)
	publishOne(t, tn, "first")
	tn.AttemptsMade(t, len(rows))
	publishOne(t, tn, "second")
	for name, row := range rows {
		tn.BecomeRows(t, 1, "deliveries", "event_id = 'second' AND subscription = $1 "+
			"AND concat_ws(' ', state, coalesce(hold, reason), attempts) = $2", name, row.want)
	}
}

// However many events a request has, its failure counts once, also for the second event subscription with the same
// events.
func TestFailedBatchIsOneFailure(t *testing.T) {
	t.Parallel()
	const counted = "SELECT coalesce(sum(failures_in_a_row), 0) FROM postrider_internal.probations"
	for name, row := range map[string]struct {
		status int
		change func(*catalog.SubscriptionSpec)
		want   int // failures after the first batch
	}{
		"503":             {http.StatusServiceUnavailable, under("touchy"), 1},
		"400":             {http.StatusBadRequest, under("touchy"), 0},
		"400, documented": {http.StatusBadRequest, literally("touchy"), 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tn := setup(t)
			bad := newSwitchable(t, row.status)
			copyPolicy(t, tn, "ga-2021", "touchy", `{"probation_trigger":3}`)
			subscribe(t, tn, "billing", bad.URL, both(batching(20, 64), row.change))
			subscribe(t, tn, "shipping", bad.URL, both(batching(20, 64), row.change))
			publishAtOnce(t, tn, "first", 20)
			tn.Start(t)
			tn.AttemptsMade(t, 2)
			require.Len(t, bad.requests()[0].ids(t), 20)
			require.Equal(t, row.want, tn.Count(t, counted))
			publishAtOnce(t, tn, "second", 1)
			tn.AttemptsMade(t, 2)
			publishAtOnce(t, tn, "third", 1)
			tn.AttemptsMade(t, 2-row.want) // a failure that counts may hold the other attempt
			tn.Become(t, row.want, "SELECT count(*) FROM postrider_internal.probations WHERE since IS NOT NULL")
		})
	}
}

// A limit below the number of attempts ends a delivery or a batch at its due check: no request is sent.
func TestLoweredLimitEndsDeliveriesAtTheirDueCheck(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newSwitchable(t, http.StatusInternalServerError)
	specs := map[string]func(*catalog.SubscriptionSpec){
		"single": nil, "batched": batching(10, 64),
		"dropped": func(s *catalog.SubscriptionSpec) {
			s.DeadLetterDestination = &catalog.DeadLetterDestination{EndpointType: catalog.DeadLetterNone}
		},
		"equal": nil,
	}
	for name, change := range specs {
		subscribe(t, tn, name, e.URL, change)
	}
	publishAtOnce(t, tn, "e", 2)
	tn.Start(t)
	const each = 2 + 1 + 2 + 2 // requests, the two events in one batch
	for n := range 3 {
		if n > 0 {
			require.Equal(t, each, travel(t, tn))
		}
		tn.AttemptsMade(t, each)
	}
	for name, change := range specs {
		limit := 2
		if name == "equal" {
			limit = 3
		}
		lowered := func(s *catalog.SubscriptionSpec) { s.RetryPolicy.MaxDeliveryAttempts = &limit }
		if change != nil {
			lowered = both(change, lowered)
		}
		subscribe(t, tn, name, e.URL, lowered)
	}
	require.Equal(t, each, travel(t, tn))
	tn.BecomeRows(t, 8, "deliveries", "reason = 'MaxDeliveryAttemptsExceeded' AND attempts = 3 "+
		"AND state = CASE subscription WHEN 'dropped' THEN 'dropped' ELSE 'dead_lettered' END")
	require.Equal(t, 6, tn.Rows(t, "dead_letters", "attempts = 3 AND last_status = 500"))
	require.Len(t, e.requests(), 3*each)
	tn.Become(t, 0, "SELECT count(*) FROM postrider_internal.river_job")
	for name, change := range specs { // the test's end compares attempts with the limit in force
		subscribe(t, tn, name, e.URL, change)
	}
}
