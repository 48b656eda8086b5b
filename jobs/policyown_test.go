package jobs_test

import (
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/node"
	"postrider/internal/testnode"
	"postrider/jobs"
	"postrider/policy"
	v1 "postrider/server/v1"
)

// putExample stores a policy of the examples.
func putExample(t *testing.T, tn *testnode.Node, name string) *policy.Policy {
	t.Helper()
	body, err := os.ReadFile("../deploy/examples/policies/" + name + ".json")
	require.NoError(t, err)
	p, err := v1.ReadPolicy(name, body)
	require.NoError(t, err)
	_, made, err := tn.System.Policies.Put(t.Context(), p)
	require.NoError(t, err)
	require.True(t, made)
	return p
}

// patientTimes are the seconds of the attempts of policy "patient": densely in the first hour, then hourly for four
// days.
func patientTimes() []float64 {
	at := []float64{0, 10, 30, 60, 120, 300, 600, 900, 1200, 1500, 1800, 2100, 2400, 3000, 3600}
	for hour := 2; hour < 96; hour++ {
		at = append(at, float64(hour*3600))
	}
	return at
}

func TestPatientPolicyBridgesAWeekend(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	p := putExample(t, tn, "patient")
	explained, err := policy.Explain(p, policy.ExplainOptions{Result: policy.Result{Status: http.StatusNotFound}})
	require.NoError(t, err)
	var at []float64
	for _, a := range explained.Attempts {
		at = append(at, a.AtSeconds)
	}
	require.Equal(t, patientTimes(), at)
	require.Equal(t,
		policy.ExplainedEnd{AtSeconds: 96 * 3600, State: "dead_lettered", Reason: policy.ReasonTimeToLiveExceeded},
		explained.End)

	e := newEndpoint(t, statusOfPath)
	subscribe(t, tn, "missing", e.URL+"/404", under("patient"))
	subscribe(t, tn, "large", e.URL+"/413", under("patient"))
	publishOne(t, tn, "e")
	tn.Start(t, func(o *jobs.Options) { o.OnAttempt = nil })
	for settle(t, tn); travel(t, tn) > 0; settle(t, tn) {
	}
	requireTimeline(t, tn, "missing", explained)
	once, err := policy.Explain(p, policy.ExplainOptions{Result: policy.Result{Status: http.StatusRequestEntityTooLarge}})
	require.NoError(t, err)
	requireTimeline(t, tn, "large", once)
	require.Equal(t, 1, tn.Rows(t, "dead_letters", "subscription = 'large' AND attempts = 1"))
}

// A replaced policy applies to pending deliveries from the next decision on, on a running node; limits are moved into
// its ranges.
func TestReplacedPolicyAppliesToPendingDeliveries(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWith(http.StatusInternalServerError))
	copyPolicy(t, tn, policy.DefaultName, "mine", "{}")
	subscribe(t, tn, "billing", e.URL,
		func(s *catalog.SubscriptionSpec) {
			s.RetryPolicy.Policy, s.RetryPolicy.MaxDeliveryAttempts = "mine", new(20)
		})
	tn.Start(t)
	publishOne(t, tn, "e")
	tn.Attempt(t)
	requireGap(t, tn, 10*time.Second, "billing")

	elsewhere := tn.Beside(t, node.Options{Node: "node-2"}).System
	p, _ := elsewhere.Cache.Snapshot().Policy("mine")
	changed := p.Clone()
	changed.Steps, changed.MaxMaxAttempts, changed.DefaultMaxAttempts = []time.Duration{time.Second, 7 * time.Minute}, 3, 3
	_, _, err := elsewhere.Policies.Put(t.Context(), &changed)
	require.NoError(t, err)
	testnode.Within(t, "the policy is read again", func() bool { // the running node's own reload, once per second
		seen, _ := tn.System.Cache.Snapshot().Policy("mine")
		return seen.MaxMaxAttempts == 3
	})
	travel(t, tn)
	tn.Attempt(t)
	requireGap(t, tn, 7*time.Minute, "billing")
	travel(t, tn)
	require.Equal(t, policy.ReasonMaxDeliveryAttemptsExceeded, tn.Attempt(t).Verdict.Reason)
	require.Len(t, e.requests(), 3)
}

// A policy without probation ends the current one: no rule would end its holds.
func TestReplacedPolicyEndsItsProbations(t *testing.T) {
	t.Parallel()
	for _, scope := range []policy.ProbationScope{policy.ProbationEndpoint, policy.ProbationEventSubscription} {
		t.Run(string(scope), func(t *testing.T) {
			t.Parallel()
			tn := setup(t)
			e := newSwitchable(t, http.StatusInternalServerError)
			builtin, _ := policy.Builtin(policy.DefaultName)
			p := builtin.Clone()
			p.Name, p.BuiltIn, p.Probation.Scope, p.Probation.Trigger, p.Steps = "mine", false, scope, 1,
				[]time.Duration{time.Hour}
			_, _, err := tn.System.Policies.Put(t.Context(), &p)
			require.NoError(t, err)
			subscribe(t, tn, "billing", e.URL, under("mine"))
			tn.Start(t)
			publishFailing(t, tn, 1)
			publishOne(t, tn, "held")
			require.Equal(t, 1, tn.Count(t, inProbation))

			e.status.Store(http.StatusOK)
			p.Probation = policy.Probation{Scope: policy.ProbationNone, Action: policy.ProbationHold}
			_, _, err = tn.System.Policies.Put(t.Context(), &p)
			require.NoError(t, err)
			require.Equal(t, policy.Delivered, tn.Attempt(t).Verdict.Action, "the held event")
			require.Zero(t, tn.Rows(t, "deliveries", "hold IS NOT NULL"))
			require.Zero(t, tn.Rows(t, "event_subscriptions", "hold IS NOT NULL"))
		})
	}
}
