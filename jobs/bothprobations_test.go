package jobs_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/policy"
)

// Under ga-2026 the first failure that the table lists holds one event subscription, and failures of different events
// hold the endpoint. The endpoint's probation decides while both last: there is no probe of the other one, and the
// endpoint's is not sent for an event subscription that waits for its own. The success of a probe ends both.
func TestBothProbations(t *testing.T) {
	t.Parallel()
	const own, ofEndpoint = "octet_length(probation_key) = 8 AND since IS NOT NULL",
		"octet_length(probation_key) > 8 AND since IS NOT NULL"
	held := func(cause string, seconds int) string {
		return fmt.Sprintf("hold = 'probation' AND hold_cause = '%s' AND hold_until - hold_since = interval '%d seconds'",
			cause, seconds)
	}
	tn := setup(t)
	bad := newSwitchable(t, http.StatusServiceUnavailable)
	copyPolicy(t, tn, "ga-2026", "touchy", `{"stepsInSeconds": [3600], "probation": {"trigger": 2}}`)
	subscribe(t, tn, "billing", bad.URL, both(under("touchy"), only("test")))
	subscribe(t, tn, "shipping", bad.URL, both(under("touchy"), only("other")))
	tn.Start(t)
	publishFailing(t, tn, 1)
	require.Equal(t, 1, tn.Probations(t, own))
	require.Zero(t, tn.Probations(t, ofEndpoint))
	require.Equal(t, 1, tn.Rows(t, "event_subscriptions", held("Busy", 10)), "the other one goes on")

	bad.status.Store(http.StatusInternalServerError) // not in the table
	publishOther(t, tn, "second")
	tn.Attempt(t)
	require.Equal(t, 1, tn.Probations(t, own))
	require.Equal(t, 1, tn.Probations(t, ofEndpoint))
	require.Equal(t, 2, tn.Rows(t, "event_subscriptions", held("GenericError", 300)), "the endpoint's comes first")

	publishOne(t, tn, "held-billing")
	publishOther(t, tn, "held-shipping")
	require.Equal(t, 2, tn.Count(t, inProbation))
	tn.Exec(t, "UPDATE postrider_internal.probations SET until = now() WHERE "+own)
	require.Empty(t, tn.Traffic(t).ProbesDue(tn.System.Cache.Snapshot()), "no probe while the endpoint is on hold")

	// The endpoint's probe is due, but billing, whose delivery is older, still waits for its own.
	tn.Exec(t, "UPDATE postrider_internal.probations SET until = now() + interval '1 hour' WHERE "+own)
	tn.Traffic(t)
	bad.status.Store(http.StatusServiceUnavailable)
	tn.Exec(t, "UPDATE postrider_internal.probations SET until = now() WHERE "+ofEndpoint)
	require.Equal(t, "held-shipping", tn.Attempt(t).EventID)
	tn.Become(t, 600, "SELECT extract(epoch FROM until - updated_at)::int FROM postrider_internal.probations WHERE "+
		ofEndpoint+" AND probe_job_id IS NULL")
	require.Equal(t, 2, tn.Probations(t, own), "a failed probe is a failure of its event subscription, too")
	require.Len(t, bad.requests(), 3)

	bad.status.Store(http.StatusOK)
	passHold(t, tn)
	result := tn.Attempt(t)
	require.Equal(t, "held-billing", result.EventID)
	require.Equal(t, policy.Delivered, result.Verdict.Action)
	tn.Become(t, 1, "SELECT count(*) FROM postrider_internal.probations")
	require.Equal(t, 1, tn.Probations(t, own), "shipping waits for its own probe")
	makeDue(t, tn)
	tn.Become(t, 0, "SELECT count(*) FROM postrider_internal.probations")
	require.Zero(t, tn.Rows(t, "event_subscriptions", "hold IS NOT NULL"))
}

// An operator's release ends both probations, and a requested probe is due for both.
func TestOperatorEndsBothProbations(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	bad := newSwitchable(t, http.StatusServiceUnavailable)
	copyPolicy(t, tn, "ga-2026", "touchy", `{"stepsInSeconds": [3600], "probation": {"trigger": 1}}`)
	subscribe(t, tn, "billing", bad.URL, under("touchy"))
	tn.Start(t)
	publishFailing(t, tn, 1)
	require.Equal(t, 2, tn.Probations(t, "since IS NOT NULL"))
	publishOne(t, tn, "held")
	tn.Exec(t, "UPDATE postrider_internal.probations SET until = now() + interval '1 hour'")
	_, err := tn.System.Holds.Probe(t.Context(), topicName, "billing")
	require.NoError(t, err)
	require.Equal(t, "held", tn.Attempt(t).EventID)
	require.Equal(t, 2, tn.Probations(t, "since IS NOT NULL"))

	publishOne(t, tn, "released")
	require.Equal(t, 1, tn.Count(t, inProbation))
	bad.status.Store(http.StatusOK)
	sub, err := tn.System.Holds.Release(t.Context(), topicName, "billing")
	require.NoError(t, err)
	require.Empty(t, sub.Hold.Reason)
	require.Zero(t, tn.Probations(t, ""))
	require.Equal(t, "released", tn.Attempt(t).EventID)
}
