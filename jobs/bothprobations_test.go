package jobs_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/testnode"
	"postrider/policy"
)

// Under ga-2026 the first failure that the table lists holds one event subscription, and failures of different events
// hold the endpoint. The endpoint's probation decides while both last: there is no probe of the other one, and the
// endpoint's is not sent for an event subscription that waits for its own. The success of a probe ends both.
func TestBothProbations(t *testing.T) {
	t.Parallel()
	const own, ofEndpoint = "octet_length(probation_key) = 8 AND since IS NOT NULL",
		"octet_length(probation_key) > 8 AND since IS NOT NULL"
	tn := setup(t)
	requireHeld := func(subscriptions int, probation, cause string, seconds int) {
		t.Helper()
		require.Equal(t, subscriptions, tn.Rows(t, "event_subscriptions", "hold = 'probation' AND hold_cause = $1", cause))
		require.Equal(t, 1, tn.Probations(t, fmt.Sprintf("%s AND cause = '%s' AND until - since = interval '%d seconds'",
			probation, cause, seconds)))
	}
	bad := newSwitchable(t, http.StatusServiceUnavailable)
	copyPolicy(t, tn, "ga-2026", "touchy", `{"stepsInSeconds": [3600], "probation": {"trigger": 2}}`)
	subscribe(t, tn, "billing", bad.URL, both(under("touchy"), only("test")))
	subscribe(t, tn, "shipping", bad.URL, both(under("touchy"), only("other")))
	tn.Start(t)
	publishFailing(t, tn, 1)
	requireHeld(1, own, "Busy", 10)
	require.Zero(t, tn.Probations(t, ofEndpoint), "the other event subscription continues")

	bad.status.Store(http.StatusInternalServerError) // not in the table
	publishOther(t, tn, "second")
	tn.Attempt(t)
	require.Equal(t, 1, tn.Probations(t, own))
	requireHeld(2, ofEndpoint, "GenericError", 300) // the endpoint's comes first

	publishOne(t, tn, "held-billing")
	publishOther(t, tn, "held-shipping")
	require.Equal(t, 2, tn.Count(t, inProbation))
	tn.Exec(t, "UPDATE postrider_internal.probations SET until = now() WHERE "+own)
	require.Empty(t, tn.Traffic(t).ProbesDue(tn.System.Cache.Snapshot()), "no probe while the endpoint is on hold")

	// The endpoint's probe is due, but billing, whose delivery is older, still waits for its own.
	tn.Exec(t, "UPDATE postrider_internal.probations SET until = now() + interval '1 hour' WHERE "+own)
	const later = "subscription = $1 AND hold_cause = 'GenericError' AND hold_until > now() + interval '30 minutes'"
	require.Equal(t, 1, tn.Rows(t, "event_subscriptions", later, "billing"), "the later time is shown")
	require.Zero(t, tn.Rows(t, "event_subscriptions", later, "shipping"))
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

// Two probations that begin at once are two notices, and each end has the id of its beginning.
func TestNoticesOfBothProbations(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	operators := newEndpoint(t, respondWith(http.StatusOK))
	bad := newEndpoint(t, respondWith(http.StatusServiceUnavailable))
	subscribeSystem(t, tn, "operators", operators.URL, "postrider.probation.started", "postrider.probation.ended")
	copyPolicy(t, tn, "ga-2026", "touchy", `{"stepsInSeconds": [3600], "probation": {"trigger": 1}}`)
	subscribe(t, tn, "billing", bad.URL, under("touchy"))
	tn.Start(t)
	publishOne(t, tn, "a")
	testnode.Within(t, "both notices of the beginning", func() bool { return len(operators.requests()) == 2 })
	_, err := tn.System.Holds.Release(t.Context(), topicName, "billing")
	require.NoError(t, err)
	testnode.Within(t, "both notices of the end", func() bool { return len(operators.requests()) == 4 })
	ids := map[string][]string{}
	for _, r := range operators.requests() {
		var n struct {
			Data struct{ Scope, ProbationID string }
		}
		require.NoError(t, json.Unmarshal([]byte(r.body), &n))
		ids[n.Data.Scope] = append(ids[n.Data.Scope], n.Data.ProbationID)
	}
	require.Len(t, ids, 2)
	endpoint, own := ids["endpoint"], ids["event_subscription"]
	require.Equal(t, []int{2, 2}, []int{len(endpoint), len(own)})
	require.Equal(t, endpoint[0], endpoint[1])
	require.Equal(t, own[0], own[1])
	require.NotEqual(t, own[0], endpoint[0])
}
