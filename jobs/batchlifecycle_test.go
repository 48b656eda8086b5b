package jobs_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/node"
	"postrider/internal/testnode"
	"postrider/jobs"
	"postrider/policy"
)

// A node stops during a batch's request; another node sends the same bytes.
func TestBatchCutByAStopIsSentAgain(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e, h := newHanging(t, respondWith(http.StatusOK))
	subscribe(t, tn, "all", e.URL, batching(5, 64))
	first := tn.Engine(t, func(o *jobs.Options) { o.StopTimeout = 100 * time.Millisecond })
	publishAtOnce(t, tn, "e", 5)
	require.NoError(t, first.Start(t.Context()))
	await(t, h.begun)
	publishAtOnce(t, tn, "more", 3) // waits for the next batch
	testnode.RequireStops(t, first)
	require.Zero(t, tn.Rows(t, "delivery_attempts", "batch_id = 1"))
	tn.RequireInvariants(t)

	h.letGo()
	other := tn.Beside(t, node.Options{Node: "node-2"})
	second := other.Engine(t)
	require.NoError(t, second.Start(t.Context()))
	t.Cleanup(func() { testnode.RequireStops(t, second) })
	tn.BecomeRows(t, 8, "deliveries", "state = 'delivered' AND attempts = 1")
	same := 0
	for _, r := range e.requests() {
		if r.ids(t)[0] == "e-0" {
			require.Equal(t, e.requests()[0].body, r.body)
			require.Equal(t, "0", r.header.Get("Aeg-Delivery-Count"), "a rerun is not a further attempt")
			same++
		}
	}
	require.Equal(t, 2, same)
	require.Equal(t, 1, tn.Rows(t, "delivery_attempts", "batch_id = 1 AND number = 1 AND reruns >= 1"))
}

// After twenty reruns the members of a batch are sent alone: only the event that causes the crashes is abandoned.
func TestTwentyRerunsOfABatchAreEnough(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	subscribe(t, tn, "all", e.URL, batching(5, 64))
	publishAtOnce(t, tn, "e", 3)
	tn.Exec(t, `UPDATE postrider_internal.river_job SET args = args || '{"r": 20}'`)
	tn.Start(t)
	tn.AttemptsMade(t, 3)
	require.Len(t, e.requests(), 3, "each by itself")
	require.Equal(t, 1, tn.Rows(t, "batches", "state = 'canceled' AND attempts = 0"))
	require.Equal(t, 3, tn.Rows(t, "batch_members", "left_reason = 'TooManyReruns'"))
	require.Equal(t, 3, tn.Rows(t, "deliveries", "state = 'delivered' AND attempts = 1"))
}

func TestTwentyRerunsOfABatchOfOneAreEnough(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	subscribe(t, tn, "all", e.URL, batching(5, 64))
	publishAtOnce(t, tn, "e", 1)
	tn.Exec(t, `UPDATE postrider_internal.river_job SET args = args || '{"r": 20}'`)
	tn.Start(t)
	tn.BecomeRows(t, 1, "dead_letters", "reason = 'TooManyReruns' AND attempts = 0")
	require.Empty(t, e.requests())
	require.Equal(t, 1, tn.Rows(t, "batches", "state = 'dead_lettered' AND attempts = 0"))
}

// A member whose time to live has passed leaves before the request; the others are sent.
func TestExpiredMemberLeavesItsBatch(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	minute := 1
	subscribe(t, tn, "all", e.URL,
		both(batching(5, 64), func(s *catalog.SubscriptionSpec) { s.RetryPolicy.EventTimeToLiveInMinutes = &minute }))
	publishAtOnce(t, tn, "old", 2)
	tn.Exec(t, "UPDATE postrider_internal.deliveries SET time_to_live_since = time_to_live_since - interval '1 minute', "+
		"next_attempt_at "+
		"= next_attempt_at - interval '1 minute'")
	publishAtOnce(t, tn, "new", 2)
	tn.Start(t)
	tn.Attempt(t)
	require.Equal(t, names("new", 2), requireOneRequest(t, e).ids(t))
	require.Equal(t, 2, tn.Rows(t, "dead_letters", "event_id LIKE 'old-%' AND reason = 'TimeToLiveExceeded' "+
		"AND attempts = 0"))
	require.Equal(t, 2, tn.Rows(t, "batch_members", "event_id LIKE 'old-%' AND left_at IS NOT NULL "+
		"AND left_reason = 'TimeToLiveExceeded'"))
	require.Equal(t, 1, tn.Rows(t, "batches", "state = 'delivered' AND members = 2"))
}

// A member whose time to live ends before the batch's next attempt leaves the batch and has its own due check.
func TestMemberOfLessTimeLeavesItsBatch(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newSwitchable(t, http.StatusServiceUnavailable)
	minute := 1
	ttl := func(s *catalog.SubscriptionSpec) {
		s.RetryPolicy.Policy, s.RetryPolicy.EventTimeToLiveInMinutes = "at-ttl", &minute
	}
	copyPolicy(t, tn, "ga-2021", "at-ttl", `{"expiry":"at_ttl"}`)
	subscribe(t, tn, "all", e.URL, both(batching(5, 64), ttl))
	publishAtOnce(t, tn, "old", 1)
	tn.Exec(t, "UPDATE postrider_internal.deliveries SET time_to_live_since = time_to_live_since - interval '40 seconds'")
	publishAtOnce(t, tn, "new", 2)
	tn.Start(t)
	require.Equal(t, policy.Retry, tn.Attempt(t).Verdict.Action)
	require.Equal(t, 1, tn.Rows(t, "batch_members", "event_id = 'old-0' AND left_reason = 'OwnTime'"))
	require.Equal(t, 1, tn.Rows(t, "deliveries", "event_id = 'old-0' AND batch_id IS NULL AND attempts = 1 "+
		"AND next_attempt_at = time_to_live_since + interval '1 minute'"))
	require.Equal(t, 1,
		tn.Pending(t, "not_before > next_attempt_at"),
		"it keeps its members")
	require.Equal(t, 2, tn.Rows(t, "deliveries", "batch_id IS NOT NULL AND attempts = 1 "+
		"AND next_attempt_at < time_to_live_since + interval '1 minute'"))

	e.status.Store(http.StatusOK)
	travel(t, tn)
	tn.Attempt(t)
	require.Equal(t, names("new", 2), e.requests()[1].ids(t))
	tn.BecomeRows(t, 1, "dead_letters", "event_id = 'old-0' AND reason = 'TimeToLiveExceeded' AND attempts = 1")
	require.Equal(t, 1, tn.Count(t, `SELECT count(*) FROM postrider.deliveries d JOIN postrider.delivery_attempts a
		    ON a.delivery_id = d.delivery_id OR EXISTS (
		SELECT FROM postrider.batch_members m WHERE m.batch_id = a.batch_id AND m.delivery_id = d.delivery_id
		    AND a.number <= coalesce(m.left_after, a.number))
		WHERE d.event_id = 'old-0'`), "the batch's second request was not its own")
}

// An event whose row is gone, or that cannot be written, delays no other member.
func TestBrokenMembersLeaveTheirBatch(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	subscribe(t, tn, "all", e.URL, batching(5, 64))
	publishAtOnce(t, tn, "e", 4)
	tn.Exec(t, "DELETE FROM postrider_internal.events WHERE event_id = 'e-1'")
	tn.Exec(t, "UPDATE postrider_internal.events SET body = 'not an object' WHERE event_id = 'e-2'")
	tn.Start(t)
	tn.Attempt(t)
	require.Equal(t, []string{"e-0", "e-3"}, requireOneRequest(t, e).ids(t))
	require.Equal(t, 1, tn.Rows(t, "deliveries", "state = 'dropped' AND reason = 'EventMissing'"))
	require.Equal(t, 1, tn.Rows(t, "batch_members", "event_id = 'e-2' AND left_reason = 'Unsendable'"))
	require.Equal(t, 1, tn.Rows(t, "deliveries", "event_id = 'e-2' AND state = 'pending' AND attempts = 0 "+
		"AND batch_id IS NULL"))
}

// A batch with only broken members ends without a request.
func TestBatchOfBrokenMembersEnds(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	subscribe(t, tn, "all", e.URL, batching(5, 64))
	publishAtOnce(t, tn, "e", 2)
	tn.Exec(t, "UPDATE postrider_internal.events SET body = 'not an object'")
	tn.Start(t)
	tn.BecomeRows(t, 1, "batches", "state = 'canceled' AND members = 0")
	require.Empty(t, e.requests())
	require.Equal(t, 2, tn.Rows(t, "deliveries", "state = 'pending' AND batch_id IS NULL"))
}

// Open deliveries of a paused event subscription are shown as held, and so is a batch that waits for its retry.
func TestPauseHoldsBatchesAndLosesNothing(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newSwitchable(t, http.StatusServiceUnavailable)
	subscribe(t, tn, "billing", e.URL, batching(3, 64))
	publishAtOnce(t, tn, "before", 3)
	tn.Start(t)
	tn.Attempt(t)
	pause(t, tn, "billing")
	publishAtOnce(t, tn, "during", 4)
	travel(t, tn)
	tn.Become(t, 7, heldQuery)
	require.Equal(t, 1, tn.Rows(t, "batches", "hold = 'paused' AND attempts = 1 AND members = 3"))
	require.Equal(t, 7, tn.Count(t, "SELECT held_deliveries FROM postrider.event_subscriptions"))
	require.Len(t, e.requests(), 1)

	e.status.Store(http.StatusOK)
	resume(t, tn, "billing")
	tn.AttemptsMade(t, 3)
	seen := e.requests()
	again := slices.IndexFunc(seen[1:], func(r request) bool { return r.body == seen[0].body }) + 1
	require.Positive(t, again, "the batch went as it was")
	require.Equal(t, "1", seen[again].header.Get("Aeg-Delivery-Count"))
	require.Equal(t, 7, tn.Rows(t, "deliveries", "state = 'delivered'"))
	require.Equal(t, 1, tn.Rows(t, "delivery_attempts", "number = 2 AND hold = 'paused' AND started_at > due_at"))
}

// The probe of an event subscription with batches is one event in an array: its failure costs one attempt. If only
// batches are held, the oldest is the probe.
func TestProbeOfBatches(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newSwitchable(t, http.StatusServiceUnavailable)
	copyPolicy(t, tn, "ga-2021", "touchy", `{"probation_trigger":1,"steps":["1 hour"]}`)
	subscribe(t, tn, "billing", e.URL, both(batching(3, 64), under("touchy")))
	publishAtOnce(t, tn, "first", 3)
	tn.Start(t)
	tn.Attempt(t)
	require.Equal(t, 1, tn.Rows(t, "event_subscriptions", "hold = 'probation'"), "one request has failed")
	travel(t, tn)
	tn.Become(t, 3, inProbation)

	passHold(t, tn)
	require.Equal(t, policy.Retry, tn.Attempt(t).Verdict.Action)
	require.Equal(t, e.requests()[0].body, e.requests()[1].body, "the held batch is the probe")
	tn.Become(t, 1, "SELECT count(*) FROM postrider_internal.probations WHERE step = 2 AND probe_job_id IS NULL")

	publishAtOnce(t, tn, "second", 4)
	require.Equal(t, 4, tn.Count(t, inProbation))
	e.status.Store(http.StatusOK)
	passHold(t, tn)
	tn.Attempt(t)
	require.Equal(t, []string{"second-0"}, e.requests()[2].ids(t))
	tn.BecomeRows(t, 4, "deliveries", "state = 'delivered'")
	require.Zero(t, tn.Probations(t, ""))
}

func TestDeletingTheEventSubscriptionDuringABatch(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e, h := newHanging(t, respondWith(http.StatusOK))
	subscribe(t, tn, "all", e.URL, batching(3, 64))
	tn.Start(t)
	publishAtOnce(t, tn, "e", 3)
	await(t, h.begun)
	publishAtOnce(t, tn, "open", 2)
	require.NoError(t, tn.System.Subscriptions.Delete(t.Context(), topicName, "all"))
	h.letGo()
	tn.BecomeRows(t, 5, "deliveries", "state = 'canceled'")
	tn.Become(t, 0, "SELECT count(*) FROM postrider_internal.river_job WHERE state <> 'completed'")
}

func TestLateSuccessOfABatchCancelsItsRetry(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	copyPolicy(t, tn, "ga-2021", "one-second", `{"ack_timeout": "1 second", "late_response_window": "3 minutes"}`)
	x := newManualEndpoint(t)
	subscribe(t, tn, "all", x.URL, both(batching(3, 64), under("one-second")))
	publishAtOnce(t, tn, "e", 3)
	tn.Start(t)
	r := x.next(t)
	require.Equal(t, policy.Result{Err: policy.ErrorTimeout}, tn.Attempt(t).Result)
	require.Equal(t, 3, tn.Rows(t, "deliveries", "state = 'pending' AND last_outcome = 'TimedOut' AND attempts = 1 "+
		"AND next_attempt_at > now()"))
	r.respond(http.StatusOK)
	require.Equal(t, policy.Delivered, tn.Attempt(t).Verdict.Action)
	require.Equal(t, 3, tn.Rows(t, "deliveries", "state = 'delivered' AND attempts = 1 AND last_status = 200"))
	require.Equal(t, 1, tn.Rows(t, "batches", "state = 'delivered' AND attempts = 1 AND last_status = 200"))
	require.Equal(t, 1, tn.Count(t, lateRows, 1, "Delivered", "deliver",
		"response after the ack timeout: 200: success; the queued retry was canceled"))
	require.Zero(t, tn.Jobs(t, ""))
	require.Len(t, x.requests(), 1)
}

func TestLateSuccessOfABatchWhileTheRetryRuns(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	copyPolicy(t, tn, "ga-2021", "one-second", `{"ack_timeout": "1 second", "late_response_window": "3 minutes"}`)
	x := newManualEndpoint(t)
	subscribe(t, tn, "all", x.URL, both(batching(3, 64), under("one-second")))
	publishAtOnce(t, tn, "e", 3)
	tn.Start(t)
	first := x.next(t)
	tn.Attempt(t)
	subscribe(t, tn, "all", x.URL, both(batching(3, 64), under("ga-2021")))
	travel(t, tn)
	second := x.next(t)
	first.respond(http.StatusOK)
	tn.Become(t, 1, lateRows, 1, "Delivered", "note",
		"response after the ack timeout: 200: success; only noted: no retry was waiting in the queue")
	require.Equal(t, 3, tn.Rows(t, "deliveries", "state = 'pending' AND attempts = 1"))
	second.respond(http.StatusOK)
	tn.Attempt(t)
	require.Equal(t, 3, tn.Rows(t, "deliveries", "state = 'delivered' AND attempts = 2"))
}

// After a failover that lost commits another batch may have the job's id. The result of the lost batch must not end the
// other's row, as River would, which knows only ids.
func TestStaleBatchLeavesTheRowOfItsID(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e, h := newHanging(t, respondWith(http.StatusOK))
	subscribe(t, tn, "all", e.URL, batching(5, 64))
	publishAtOnce(t, tn, "e", 5)
	first := tn.Engine(t)
	require.NoError(t, first.Start(t.Context()))
	await(t, h.begun)
	tn.Exec(t, "UPDATE postrider_internal.river_job SET created_at = created_at + interval '1 second'")
	h.letGo()
	testnode.RequireStops(t, first)
	require.Zero(t, tn.Jobs(t, "finalized_at IS NOT NULL"))
	require.Zero(t, tn.Rows(t, "delivery_attempts", ""))
}
