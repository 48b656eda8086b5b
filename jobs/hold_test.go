package jobs_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/internal/testnode"
	"postrider/policy"
)

func pause(t *testing.T, tn *testnode.Node, name string) {
	t.Helper()
	_, err := tn.System.Holds.Pause(t.Context(), topicName, name, nil)
	require.NoError(t, err)
}

func resume(t *testing.T, tn *testnode.Node, name string) {
	t.Helper()
	_, err := tn.System.Holds.Resume(t.Context(), topicName, name)
	require.NoError(t, err)
}

const heldQuery = "SELECT count(*) FROM postrider.deliveries WHERE hold = 'paused'"

// What is published during a pause waits. A job from before finds the pause at its due check: its delivery or batch
// waits, without an attempt. The resume releases all.
func TestPausedSubscriptionWaitsAndIsReleased(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newSwitchable(t, http.StatusServiceUnavailable)
	subscribe(t, tn, "alone", e.URL+"/alone", nil)
	subscribe(t, tn, "batched", e.URL+"/batched", batching(3, 64))
	publishAtOnce(t, tn, "before", 3)
	tn.Start(t)
	tn.AttemptsMade(t, 3+1)
	pauseBoth(t, tn, "", false)
	publishAtOnce(t, tn, "during", 4)
	require.Equal(t, 3+1, makeDue(t, tn))
	tn.Become(t, 14, heldQuery)
	require.Equal(t, 6, tn.Rows(t, "deliveries", "attempts = 1 AND state = 'pending'"), "a held due check is no attempt")
	// The due check of the batch may still be running: then the view does not show its hold yet.
	tn.BecomeRows(t, 1, "batches", "hold = 'paused' AND attempts = 1 AND members = 3")
	tn.BecomeRows(t, 2, "event_subscriptions", "held_deliveries = 7")
	before := e.requests()
	require.Len(t, before, 3+1)

	e.status.Store(http.StatusOK)
	resumeBoth(t, tn, "")
	tn.AttemptsMade(t, 7+3)
	again := map[string]int{}
	for _, r := range e.requests() {
		if r.header.Get("Aeg-Delivery-Count") == "1" {
			again[r.uri+r.body]++
		}
	}
	for _, first := range before {
		require.Equal(t, 1, again[first.uri+first.body], "a delivery and a batch go as they were")
	}
	require.Equal(t, 14, tn.Rows(t, "deliveries", "state = 'delivered'"))
	require.Equal(t, 3+1, tn.Rows(t, "delivery_attempts", "number = 2 AND hold = 'paused' AND started_at > due_at"))
}

// A local job waits for the gate, and obeys a pause that was confirmed meanwhile.
func TestPauseHoldsLocalJobs(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	endpoint, h := newHanging(t, respondWith(http.StatusOK))
	subscribe(t, tn, "billing", endpoint.URL, func(s *catalog.SubscriptionSpec) { s.MaxConcurrentDeliveries = new(1) })
	tn.Start(t)
	publishOne(t, tn, "first")
	await(t, h.begun)
	publishOne(t, tn, "second")
	// Both are local jobs, unless others were due: then the second one is fetched and waits for the gate, too.
	tn.Become(t, 2, "SELECT count(*) FROM postrider_internal.river_job WHERE state = 'running'")
	pause(t, tn, "billing")
	h.unblock()
	tn.AttemptsMade(t, 1)
	tn.Become(t, 1, heldQuery)
	require.Len(t, endpoint.requests(), 1)
	resume(t, tn, "billing")
	tn.AttemptsMade(t, 1)
	require.Equal(t, 2, tn.Rows(t, "deliveries", "state = 'delivered' AND attempts = 1"))
}

// kinds are the event subscriptions of these tests: without batches and with them.
var kinds = []string{"alone", "batched"}

// aging creates event subscriptions of both kinds with a time to live in minutes; their names end with the suffix.
func aging(t *testing.T, tn *testnode.Node, suffix, url string, minutes int) {
	t.Helper()
	for i, name := range kinds {
		subscribe(t, tn, name+suffix, url, func(s *catalog.SubscriptionSpec) {
			s.RetryPolicy.Policy, s.RetryPolicy.EventTimeToLiveInMinutes = "ga-2019", &minutes
			s.MaxEventsPerBatch = new(1 + 9*i)
		})
	}
}

// pauseBoth pauses both, and resumeBoth resumes them.
func pauseBoth(t *testing.T, tn *testnode.Node, suffix string, stopTimeToLive bool) {
	t.Helper()
	for _, name := range kinds {
		_, err := tn.System.Holds.Pause(t.Context(), topicName, name+suffix, &stopTimeToLive)
		require.NoError(t, err)
	}
}

func resumeBoth(t *testing.T, tn *testnode.Node, suffix string) {
	t.Helper()
	for _, name := range kinds {
		resume(t, tn, name+suffix)
	}
}

// agedAtPause starts the pauses when all deliveries have this age.
const agedAtPause = `UPDATE postrider_internal.event_subscription_states
	SET paused_since = (SELECT min(time_to_live_since) FROM postrider_internal.deliveries) + $1::interval`

// A pause begins during a request. A delivery that would expire has its current age checked, which the pause may have
// stopped.
func TestExpiryAfterAPause(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e, h := newHanging(t, respondWith(http.StatusNotFound))
	rows := map[string]policy.VerdictAction{
		"-clock-runs-on": policy.DeadLetter, "-clock-stands": policy.Retry, "-clock-stood": policy.Retry,
	}
	for suffix := range rows {
		aging(t, tn, suffix, e.URL, 1)
	}
	publishOne(t, tn, "e")
	tn.Exec(t, "UPDATE postrider_internal.deliveries SET time_to_live_since = time_to_live_since - interval "+
		"'40 seconds'") // 20 s are enough to begin the request, and less than its time-out
	tn.Start(t)
	for range 2 * len(rows) {
		await(t, h.begun)
	}
	for suffix, want := range rows {
		pauseBoth(t, tn, suffix, want == policy.Retry)
	}
	tn.Exec(t, agedAtPause, "51 seconds")
	tn.Become(t, 6, "SELECT count(*) FROM postrider_internal.deliveries "+
		"WHERE time_to_live_since < clock_timestamp() - interval '61 seconds'")
	resumeBoth(t, tn, "-clock-stood")
	h.unblock()
	for range 2 * len(rows) {
		report := tn.Attempt(t)
		_, suffix, _ := strings.Cut(report.Subscription, "-")
		want := rows["-"+suffix]
		require.Equal(t, want, report.Verdict.Action, report.Subscription)
		if want == policy.DeadLetter {
			require.Equal(t, policy.ReasonTimeToLiveExceeded, report.Verdict.Reason)
		}
	}
	resumeBoth(t, tn, "-clock-stands")
	makeDue(t, tn) // they have some seconds to live at most
	tn.BecomeRows(t, 6, "dead_letters", "reason = 'TimeToLiveExceeded' AND attempts = 1")
	require.Equal(t, 4, tn.Rows(t, "dead_letters", "subscription NOT LIKE '%runs-on' "+
		"AND dead_lettered_at - time_to_live_since BETWEEN '60 seconds' AND '80 seconds'"),
		"as old as it was at the pause, and then the rest")
}

// laterBy moves all times into the past by the length of the pause.
func laterBy(t *testing.T, tn *testnode.Node, pause string) {
	t.Helper()
	for _, earlier := range []string{
		"event_subscription_states SET paused_since = paused_since - $1::interval",
		"deliveries SET time_to_live_since = time_to_live_since - $1::interval, " +
			"next_attempt_at = next_attempt_at - $1::interval, not_before = not_before - $1::interval",
		"batches SET next_attempt_at = next_attempt_at - $1::interval, not_before = not_before - $1::interval",
		"delivery_attempts SET started_at = started_at - $1::interval, next_attempt_at = next_attempt_at - $1::interval",
		"river_job SET scheduled_at = scheduled_at - $1::interval",
	} {
		tn.Exec(t, "UPDATE postrider_internal."+earlier, pause)
	}
}

// A due check that was to end a delivery makes no attempt if a user or a pause has extended the time to live: the
// minimum delay of the status still applies.
func TestLongerTimeToLiveKeepsTheMinimumDelay(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWith(http.StatusNotFound)) // at least 5 min
	for _, suffix := range []string{"-changed", "-paused", "-too-little"} {
		aging(t, tn, suffix, e.URL, 1)
	}
	tn.Start(t)
	publishOne(t, tn, "e")
	tn.AttemptsMade(t, 6)
	require.Equal(t, 6, tn.Rows(t, "deliveries", "next_attempt_at = time_to_live_since + interval '1 minute'"))

	aging(t, tn, "-changed", e.URL, 1440)
	aging(t, tn, "-too-little", e.URL, 3)
	pauseBoth(t, tn, "-paused", true)
	laterBy(t, tn, "30 seconds")
	resumeBoth(t, tn, "-paused")
	require.Equal(t, 6, makeDue(t, tn), "the end of the time to live as it was")
	tn.BecomeRows(t, 6, "deliveries", "waits_for = 'next_attempt_at'")
	require.Equal(t, 2, tn.Rows(t, "deliveries d JOIN postrider.delivery_attempts a USING (subscription)",
		"subscription LIKE '%-changed' AND d.next_attempt_at >= a.started_at + interval '5 minutes'"))
	require.Equal(t, 2, tn.Rows(t, "deliveries", "subscription LIKE '%-too-little' "+
		"AND next_attempt_at = time_to_live_since + interval '3 minutes'"))
	require.Len(t, e.requests(), 6)

	require.Equal(t, 6, makeDue(t, tn), "and as it is")
	tn.AttemptsMade(t, 2)
	tn.BecomeRows(t, 4, "dead_letters", "reason = 'TimeToLiveExceeded' AND attempts = 1")
	require.Equal(t, 2, tn.Rows(t, "deliveries", "subscription LIKE '%-changed' AND state = 'pending' AND attempts = 2"))
	require.Len(t, e.requests(), 6+2)
}

// Deliveries that wait for a retry, for a batch or in one, or on hold, become available when their event subscription
// becomes a queue. Back again, they are sent.
func TestPushBecomesQueue(t *testing.T) {
	t.Parallel()
	tn := setupSpec(t, catalog.TopicSpec{Kind: catalog.TopicNamespace, InputSchema: event.CloudEvents})
	e := newEndpoint(t, respondWith(http.StatusServiceUnavailable))
	set := func(change func(i int, s *catalog.SubscriptionSpec)) (subs []*catalog.Subscription) {
		for i, name := range kinds {
			subs = append(subs, subscribe(t, tn, name, "", func(s *catalog.SubscriptionSpec) {
				*s = catalog.SubscriptionSpec{
					EventDeliverySchema: event.CloudEvents, RetryPolicy: catalog.RetryPolicySpec{Policy: "namespace-2023"},
				}
				change(i, s)
			}))
		}
		return subs
	}
	push := func(i int, s *catalog.SubscriptionSpec) {
		s.EndpointURL, s.EndpointKind, s.MaxEventsPerBatch = e.URL, policy.KindWebhook, new(1+9*i)
	}
	publish := func(id string) {
		publishBody(t, tn, structuredType, `{"specversion":"1.0","id":"`+id+`","source":"/s","type":"t"}`)
	}
	set(push)
	withoutProbation(t, tn)
	tn.Start(t)
	publish("retried")
	tn.AttemptsMade(t, 2)
	pauseBoth(t, tn, "", false)
	publish("held")
	queues := set(func(_ int, s *catalog.SubscriptionSpec) {
		s.DeliveryConfiguration = &catalog.DeliveryConfiguration{DeliveryMode: catalog.ModeQueue}
	})
	makeDue(t, tn)
	resumeBoth(t, tn, "")
	tn.BecomeRows(t, 4, "deliveries", "waits_for = 'consumer'")
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
	for _, sub := range queues {
		received, err := tn.System.Receiver.Receive(t.Context(), sub, 10, time.Minute, "test")
		require.NoError(t, err)
		require.Len(t, received, 2)
		require.Equal(t, 3, received[0].Count+received[1].Count, "attempts of both modes count")
		require.NoError(t, tn.System.Receiver.Return(sub, received))
	}
	set(push)
	tn.AttemptsMade(t, 2)
	tn.Become(t, 0, "SELECT count(*) FROM postrider_internal.deliveries WHERE pulled")
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
}
