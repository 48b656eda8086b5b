package jobs_test

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/postgres"
	"postrider/internal/testnode"
	"postrider/policy"
)

// switchable is an endpoint whose status a test changes.
type switchable struct {
	*endpoint
	status atomic.Int64
}

func newSwitchable(t *testing.T, status int) *switchable {
	t.Helper()
	s := &switchable{}
	s.status.Store(int64(status))
	s.endpoint = newEndpoint(t, func(w http.ResponseWriter, _ request) { w.WriteHeader(int(s.status.Load())) })
	return s
}

// publishFailing publishes events one after the other, each when the attempt of the one before was recorded.
func publishFailing(t *testing.T, tn *testnode.Node, n int) {
	t.Helper()
	for i := range n {
		publishOne(t, tn, fmt.Sprint("failing-", i))
		tn.Attempt(t)
	}
}

// inProbation counts the deliveries that a probation has put on hold, without retries whose time has not come.
const inProbation = `SELECT count(*) FROM postrider.deliveries v WHERE hold = 'probation' AND EXISTS (
	SELECT FROM postrider_internal.deliveries d LEFT JOIN postrider_internal.batches b ON b.id = d.batch_id
	 WHERE d.id = v.delivery_id AND num_nonnulls(d.hold, b.hold) > 0)`

// passHold makes the end of each hold now.
func passHold(t *testing.T, tn *testnode.Node) {
	t.Helper()
	tn.Exec(t, "UPDATE postrider_internal.probations SET until = now() WHERE since IS NOT NULL")
}

// Ten different events fail in a row, after a success that reset the count: the endpoint is in probation for all its
// event subscriptions. New deliveries are held, one probe is sent at the end, and its success releases all.
func TestDelayedDeliveryHoldsTheEndpoint(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	bad := newSwitchable(t, http.StatusInternalServerError)
	copyPolicy(t, tn, "ga-2021", "hourly", `{"stepsInSeconds": [3600]}`)
	subscribe(t, tn, "billing", bad.URL, under("hourly"))
	tn.Start(t)
	publishFailing(t, tn, 2)
	bad.status.Store(http.StatusOK)
	publishOne(t, tn, "good")
	tn.Attempt(t)
	require.Zero(t, tn.Probations(t, ""), "a success leaves nothing to count on")
	bad.status.Store(http.StatusInternalServerError)
	publishFailing(t, tn, 9)
	require.Zero(t, tn.Rows(t, "event_subscriptions", "hold IS NOT NULL"))
	publishFailing(t, tn, 1)

	require.Equal(t, 1, tn.Rows(t, "event_subscriptions", "hold = 'probation' AND hold_cause = 'GenericError' "+
		"AND hold_until - hold_since = interval '5 minutes' AND endpoint_base_url = $1", bad.URL))

	// Another event subscription of the same endpoint, created during the hold, is held as well.
	subscribe(t, tn, "shipping", bad.URL, nil)
	publishOne(t, tn, "new")
	require.Equal(t, 2, tn.Count(t, inProbation))
	require.Equal(t, 2, tn.Count(t, "SELECT sum(held_deliveries) FROM postrider.event_subscriptions"))

	// The probe fails: the next hold is twice as long, and nothing else was attempted.
	passHold(t, tn)
	require.Equal(t, policy.Retry, tn.Attempt(t).Verdict.Action)
	require.Len(t, bad.requests(), 14)
	tn.Become(t, 600,
		"SELECT extract(epoch FROM until - updated_at)::int FROM postrider_internal.probations WHERE probe_job_id IS NULL")
	require.Equal(t, 1, tn.Count(t, inProbation), "the probe waits for its retry")

	bad.status.Store(http.StatusOK)
	passHold(t, tn)
	tn.Attempt(t)
	tn.Become(t, 0, "SELECT count(*) FROM postrider_internal.probations")
	require.Zero(t, tn.Rows(t, "event_subscriptions", "hold IS NOT NULL"))
	require.Equal(t, 1, tn.Rows(t, "delivery_attempts", "hold = 'probation' AND verdict = 'deliver' "+
		"AND started_at > due_at"))
}

// One event counts once, however many event subscriptions of an endpoint it matches and however often it is
// redelivered.
func TestOneEventCountsOnceAtItsEndpoint(t *testing.T) {
	t.Parallel()
	const counted = "SELECT coalesce(sum(failures_in_a_row), 0) FROM postrider_internal.probations"
	tn := setup(t)
	bad := newSwitchable(t, http.StatusNotFound) // never retried: a dead letter at once
	copyPolicy(t, tn, "ga-2021", "touchy", `{"probation": {"trigger": 3}}`)
	for i := range 5 {
		subscribe(t, tn, fmt.Sprint("all-", i), bad.URL, func(s *catalog.SubscriptionSpec) {
			s.RetryPolicy.Policy = "touchy"
			if i > 2 {
				s.MaxEventsPerBatch = new(10)
			}
		})
	}
	tn.Start(t)
	publishOne(t, tn, "first")
	tn.AttemptsMade(t, 5)
	require.Equal(t, 1, tn.Count(t, counted))
	for range 3 {
		tn.Exec(t, `SELECT postrider.redeliver(dead_letter_id) FROM postrider.dead_letters
			WHERE subscription = 'all-0' AND redelivered_at IS NULL`)
		tn.Attempt(t)
	}
	require.Equal(t, 1, tn.Count(t, counted))
	require.Len(t, bad.requests(), 8)

	publishOne(t, tn, "second")
	tn.AttemptsMade(t, 5)
	require.Equal(t, 2, tn.Count(t, counted))
	require.Zero(t, tn.Rows(t, "event_subscriptions", "hold IS NOT NULL"))
	publishOne(t, tn, "third")
	tn.Become(t, 1, "SELECT count(*) FROM postrider_internal.probations WHERE since IS NOT NULL AND failed_events IS NULL")
}

// A retry that becomes due during the hold is held without an attempt. An operator may request a probe, or the release
// of all, but not during a pause. A probe whose node died is replaced by another.
func TestRetryDuringProbationIsHeldAndNotCounted(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	bad := newSwitchable(t, http.StatusServiceUnavailable)
	copyPolicy(t, tn, "ga-2021", "touchy", `{"probation": {"trigger": 1}}`)
	subscribe(t, tn, "billing", bad.URL, under("touchy"))
	probe := func() (*catalog.Subscription, error) { return tn.System.Holds.Probe(t.Context(), topicName, "billing") }
	release := func() (*catalog.Subscription, error) {
		return tn.System.Holds.Release(t.Context(), topicName, "billing")
	}
	_, err := probe()
	require.ErrorIs(t, err, catalog.ErrNoProbation)
	_, err = release()
	require.NoError(t, err, "nothing to release")
	tn.Start(t)
	publishFailing(t, tn, 1)
	require.Equal(t, 1, makeDue(t, tn))
	tn.Become(t, 1, inProbation)
	require.Equal(t, 1, tn.Rows(t, "deliveries", "attempts = 1 AND state = 'pending'"))
	publishOne(t, tn, "a")
	publishOne(t, tn, "b")

	sub, err := probe()
	require.NoError(t, err)
	require.Equal(t, "probation", sub.Hold.Reason)
	tn.Attempt(t)
	require.Len(t, bad.requests(), 2, "one and no more")
	require.Equal(t, 2, tn.Count(t, inProbation))

	pause(t, tn, "billing")
	for _, act := range []func() (*catalog.Subscription, error){probe, release} {
		_, err = act()
		require.ErrorIs(t, err, postgres.ErrPaused)
	}
	resume(t, tn, "billing")
	bad.status.Store(http.StatusOK)
	// of a job that is gone
	tn.Exec(t, "UPDATE postrider_internal.probations SET until = now(), probe_job_id = 4711 WHERE since IS NOT NULL")
	tn.AttemptsMade(t, 2)
	tn.Become(t, 0, inProbation)
	require.Zero(t, tn.Probations(t, ""))

	makeDue(t, tn) // if the first one was the probe, it waits for its retry
	tn.BecomeRows(t, 3, "deliveries", "state = 'delivered'")
	bad.status.Store(http.StatusServiceUnavailable)
	publishOne(t, tn, "again")
	tn.BecomeRows(t, 1, "deliveries", "event_id = 'again' AND attempts = 1")
	bad.status.Store(http.StatusOK)
	require.Equal(t, 1, makeDue(t, tn))
	tn.Become(t, 1, inProbation)
	const heldRetries = "number = 2 AND hold = 'probation'"
	before := tn.Rows(t, "delivery_attempts", heldRetries)
	sub, err = release()
	require.NoError(t, err)
	require.Empty(t, sub.Hold.Reason)
	tn.BecomeRows(t, before+1, "delivery_attempts", heldRetries)
}

// Namespace probation applies to one event subscription, starts at the first failure in the table, and lasts as long as
// the table says for its outcome. An outcome that is not in the table starts none.
func TestNamespaceProbation(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	bad := newEndpoint(t, statusOfPath)
	subscribe(t, tn, "unlisted", bad.URL+"/500", under("namespace-2023"))
	tn.Start(t)
	publishFailing(t, tn, 3)
	require.Zero(t, tn.Probations(t, ""))
	subscribe(t, tn, "billing", bad.URL+"/503", under("namespace-2023"))
	publishOne(t, tn, "first")
	const inProbationNow = "SELECT count(*) FROM postrider.event_subscriptions WHERE hold = 'probation'"
	tn.Become(t, 1, inProbationNow)
	require.Equal(t, 10, tn.Count(t, "SELECT extract(epoch FROM hold_until - hold_since)::int "+
		"FROM postrider.event_subscriptions WHERE hold = 'probation'"))
	subscribe(t, tn, "shipping", bad.URL+"/408", under("namespace-2023"))
	publishOne(t, tn, "new")
	tn.Become(t, 2, inProbationNow)
	require.Equal(t, 1, tn.Count(t, inProbation+" AND attempts = 0"), "the endpoint is the same, the probation is not")
}

// A late success of a request that began before the probation does not end it, as one in time; that of the probe does:
// the endpoint is slow but works.
func TestLateSuccessOfTheProbeEndsTheProbation(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	copyPolicy(t, tn, "ga-2019", "one-second",
		`{"ackTimeoutInSeconds": 1, "lateResponseWindowInSeconds": 180, "probation": {"trigger": 1}}`)
	x := newManualEndpoint(t)
	subscribe(t, tn, "all", x.URL, under("one-second"))
	tn.Start(t)
	slow := timedOut(t, tn, x, "e")
	publishOne(t, tn, "waits")
	require.Equal(t, 1, tn.Count(t, inProbation))
	slow.respond(http.StatusOK)
	require.Equal(t, policy.Delivered, tn.Attempt(t).Verdict.Action)
	require.Equal(t, 1, tn.Probations(t, "since IS NOT NULL"))
	require.Equal(t, 1, tn.Count(t, inProbation))
	tn.Exec(t, "UPDATE postrider_internal.probations SET until = now()")
	probe := x.next(t)
	require.Equal(t, policy.Result{Err: policy.ErrorTimeout}, tn.Attempt(t).Result)
	require.Equal(t, 1, tn.Probations(t, "since IS NOT NULL AND until > now()"))
	probe.respond(http.StatusOK)
	require.Equal(t, "waits", tn.Attempt(t).EventID)
	tn.Become(t, 0, "SELECT count(*) FROM postrider_internal.probations")
}
