package jobs_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/testnode"
	"postrider/policy"
)

// kinds are the event subscriptions of these tests: without batches and with them.
var kinds = []string{"alone", "batched"}

// aging creates event subscriptions of both kinds with a time to live in minutes.
func aging(t *testing.T, tn *testnode.Node, url string, minutes int) {
	t.Helper()
	for i, name := range kinds {
		subscribe(t, tn, name, url, func(s *catalog.SubscriptionSpec) {
			s.RetryPolicy.Policy, s.RetryPolicy.EventTimeToLiveInMinutes = "ga-2019", &minutes
			s.MaxEventsPerBatch = new(1 + 9*i)
		})
	}
}

// pauseBoth pauses both, and resumeBoth resumes them.
func pauseBoth(t *testing.T, tn *testnode.Node, stopTimeToLive bool) {
	t.Helper()
	for _, name := range kinds {
		_, err := tn.System.Holds.Pause(t.Context(), topicName, name, &stopTimeToLive)
		require.NoError(t, err)
	}
}

func resumeBoth(t *testing.T, tn *testnode.Node) {
	t.Helper()
	for _, name := range kinds {
		resume(t, tn, name)
	}
}

// agedAtPause starts the pause when all deliveries have this age.
const agedAtPause = `UPDATE postrider_internal.event_subscription_states
	    SET paused_since = (SELECT min(time_to_live_since)
	    FROM postrider_internal.deliveries) + $1::interval`

// A pause begins during a request. A delivery that would expire has its current age checked, which the pause may have
// stopped.
func TestExpiryAfterAPause(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		stop, resumed bool
		want          policy.VerdictAction
	}{
		"the clock runs on": {want: policy.DeadLetter},
		"the clock stands":  {stop: true, want: policy.Retry},
		"the clock stood":   {stop: true, resumed: true, want: policy.Retry},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tn := setup(t)
			e, h := newHanging(t, respondWith(http.StatusNotFound))
			aging(t, tn, e.URL, 1)
			publishOne(t, tn, "e")
			tn.Exec(t, "UPDATE postrider_internal.deliveries SET time_to_live_since = time_to_live_since - interval "+
				"'40 seconds'") // 20 s are enough to begin the request, and less than its time-out
			tn.Start(t)
			await(t, h.begun)
			await(t, h.begun)
			pauseBoth(t, tn, test.stop)
			tn.Exec(t, agedAtPause, "51 seconds")
			tn.Become(t, 2,
				"SELECT count(*) FROM postrider_internal.deliveries WHERE time_to_live_since < clock_timestamp() - interval '61 "+
					"seconds'")
			if test.resumed {
				resumeBoth(t, tn)
			}
			h.letGo()
			for range kinds {
				report := tn.Attempt(t)
				require.Equal(t, test.want, report.Verdict.Action, report.Subscription)
				if test.want == policy.DeadLetter {
					require.Equal(t, policy.ReasonTimeToLiveExceeded, report.Verdict.Reason)
				}
			}
			if test.want == policy.DeadLetter {
				return
			}
			resumeBoth(t, tn)
			travel(t, tn) // they have some seconds to live at most
			tn.BecomeRows(t, 2, "dead_letters", "reason = 'TimeToLiveExceeded' AND attempts = 1")
			require.Equal(t, 2,
				tn.Count(t,
					"SELECT count(*) FROM postrider_internal.dead_letters WHERE dead_lettered_at - time_to_live_since BETWEEN '60 "+
						"seconds' AND '80 seconds'"), "as old as it was at the pause, and then the rest")
		})
	}
}

// laterBy moves all times into the past by the length of the pause.
func laterBy(t *testing.T, tn *testnode.Node, pause string) {
	t.Helper()
	for _, earlier := range []string{
		"event_subscription_states SET paused_since = paused_since - $1::interval",
		"deliveries SET time_to_live_since = time_to_live_since - $1::interval, next_attempt_at = next_attempt_at - " +
			"$1::interval, " +
			"not_before = not_before - $1::interval",
		"batches SET next_attempt_at = next_attempt_at - $1::interval, not_before = not_before - $1::interval",
		"delivery_attempts SET started_at = started_at - $1::interval, next_attempt_at = next_attempt_at - $1::interval",
		"river_job SET scheduled_at = scheduled_at - $1::interval",
	} {
		tn.Exec(t, "UPDATE postrider_internal."+earlier, pause)
	}
}

// A due check that was to end a delivery makes no attempt if the delivery got more time to live: the minimum delay of
// the status stays.
func TestMoreTimeToLiveBringsNoEarlierAttempt(t *testing.T) {
	t.Parallel()
	begin := func(t *testing.T) (*testnode.Node, *endpoint) {
		t.Helper()
		tn := setup(t)
		e := newEndpoint(t, respondWith(http.StatusNotFound)) // at least 5 min
		aging(t, tn, e.URL, 1)
		tn.Start(t)
		publishOne(t, tn, "e")
		tn.AttemptsMade(t, 2)
		require.Equal(t, 2, tn.Rows(t, "deliveries", "next_attempt_at = time_to_live_since + interval '1 minute'"))
		return tn, e
	}
	const expired = "SELECT count(*) FROM postrider.dead_letters WHERE reason = 'TimeToLiveExceeded' AND attempts = 1"
	t.Run("changed by a user", func(t *testing.T) {
		t.Parallel()
		tn, e := begin(t)
		aging(t, tn, e.URL, 1440)
		require.Equal(t, 2, travel(t, tn))
		tn.Become(t, 2, "SELECT count(*) FROM postrider.deliveries d JOIN postrider.delivery_attempts a "+
			"USING (subscription) WHERE waits_for = 'next_attempt_at' AND d.next_attempt_at >= a.started_at + interval '5 "+
			"minutes'")
		require.Len(t, e.requests(), 2)
		require.Equal(t, 2, travel(t, tn))
		tn.AttemptsMade(t, 2)
		require.Len(t, e.requests(), 4)
	})
	t.Run("after a pause", func(t *testing.T) {
		t.Parallel()
		tn, e := begin(t)
		pauseBoth(t, tn, true)
		laterBy(t, tn, "30 seconds")
		resumeBoth(t, tn)
		require.Equal(t, 2, travel(t, tn), "the end of the time to live as it was")
		tn.BecomeRows(t, 2, "deliveries", "waits_for = 'next_attempt_at'")
		require.Equal(t, 2, travel(t, tn), "and as it is")
		tn.Become(t, 2, expired)
		require.Len(t, e.requests(), 2)
	})
	t.Run("but not enough", func(t *testing.T) {
		t.Parallel()
		tn, e := begin(t)
		aging(t, tn, e.URL, 3)
		require.Equal(t, 2, travel(t, tn))
		tn.BecomeRows(t, 2, "deliveries", "waits_for = 'next_attempt_at' "+
			"AND next_attempt_at = time_to_live_since + interval '3 minutes'")
		require.Equal(t, 2, travel(t, tn))
		tn.Become(t, 2, expired)
		require.Len(t, e.requests(), 2)
	})
}
