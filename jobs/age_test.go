package jobs_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/testnode"
	"postrider/policy"
)

// aging creates an event subscription with a time to live in minutes, with batches or without.
func aging(t *testing.T, tn *testnode.Node, url string, minutes int, batched bool) {
	t.Helper()
	subscribe(t, tn, "all", url, func(s *catalog.SubscriptionSpec) {
		s.RetryPolicy.Policy, s.RetryPolicy.EventTimeToLiveInMinutes = "ga-2019", &minutes
		if batched {
			s.MaxEventsPerBatch = new(10)
		}
	})
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
		batched, stop, resumed bool
		want                   policy.VerdictAction
	}{
		"the clock runs on":            {want: policy.DeadLetter},
		"the clock stands":             {stop: true, want: policy.Retry},
		"the clock stood":              {stop: true, resumed: true, want: policy.Retry},
		"the clock runs on, batch":     {batched: true, want: policy.DeadLetter},
		"the clock stands, of a batch": {batched: true, stop: true, want: policy.Retry},
		"the clock stood, of a batch":  {batched: true, stop: true, resumed: true, want: policy.Retry},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tn := setup(t)
			e, h := newHanging(t, respondWith(http.StatusNotFound))
			aging(t, tn, e.URL, 1, test.batched)
			publishOne(t, tn, "e")
			tn.Exec(t, "UPDATE postrider_internal.deliveries SET time_to_live_since = time_to_live_since - interval "+
				"'40 seconds'") // 20 s are enough to begin the request, and less than its time-out
			tn.Start(t)
			await(t, h.begun)
			_, err := tn.System.Holds.Pause(t.Context(), topicName, "all", &test.stop)
			require.NoError(t, err)
			tn.Exec(t, agedAtPause, "51 seconds")
			tn.Become(t, 1,
				"SELECT count(*) FROM postrider_internal.deliveries WHERE time_to_live_since < clock_timestamp() - interval '61 "+
					"seconds'")
			if test.resumed {
				resume(t, tn, "all")
			}
			h.letGo()
			report := tn.Attempt(t)
			require.Equal(t, test.want, report.Verdict.Action)
			if test.want == policy.DeadLetter {
				require.Equal(t, policy.ReasonTimeToLiveExceeded, report.Verdict.Reason)
				return
			}
			resume(t, tn, "all")
			travel(t, tn) // it has some seconds to live at most
			tn.Become(t, 1, "SELECT count(*) FROM postrider.dead_letters WHERE reason = 'TimeToLiveExceeded' AND attempts = 1")
			require.Equal(t, 1,
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
	for _, batched := range []bool{false, true} {
		name := map[bool]string{false: "alone", true: "in a batch"}[batched]
		begin := func(t *testing.T) (*testnode.Node, *endpoint) {
			t.Helper()
			tn := setup(t)
			e := newEndpoint(t, respondWith(http.StatusNotFound)) // at least 5 min
			aging(t, tn, e.URL, 1, batched)
			tn.Start(t)
			publishOne(t, tn, "e")
			tn.Attempt(t)
			require.Equal(t, 1,
				tn.Count(t,
					"SELECT count(*) FROM postrider.deliveries WHERE next_attempt_at = time_to_live_since + interval '1 minute'"))
			return tn, e
		}
		const waitsForFloor = "SELECT count(*) FROM postrider.deliveries d JOIN postrider.delivery_attempts a " +
			"USING (subscription) WHERE waits_for = 'next_attempt_at' AND d.next_attempt_at >= a.started_at + interval '5 " +
			"minutes'"
		attemptedAgain := func(t *testing.T, tn *testnode.Node, e *endpoint) {
			t.Helper()
			tn.Become(t, 1, waitsForFloor)
			require.Len(t, e.requests(), 1)
			require.Equal(t, 1, travel(t, tn))
			tn.Attempt(t)
			require.Len(t, e.requests(), 2)
		}
		t.Run(name+", changed by a user", func(t *testing.T) {
			t.Parallel()
			tn, e := begin(t)
			aging(t, tn, e.URL, 1440, batched)
			require.Equal(t, 1, travel(t, tn))
			attemptedAgain(t, tn, e)
		})
		t.Run(name+", after a pause", func(t *testing.T) {
			t.Parallel()
			tn, e := begin(t)
			stop := true
			_, err := tn.System.Holds.Pause(t.Context(), topicName, "all", &stop)
			require.NoError(t, err)
			laterBy(t, tn, "30 seconds")
			resume(t, tn, "all")
			require.Equal(t, 1, travel(t, tn), "the end of the time to live as it was")
			tn.Become(t, 1, "SELECT count(*) FROM postrider.deliveries WHERE waits_for = 'next_attempt_at'")
			require.Equal(t, 1, travel(t, tn), "and as it is")
			tn.Become(t, 1, "SELECT count(*) FROM postrider.dead_letters WHERE reason = 'TimeToLiveExceeded' AND attempts = 1")
			require.Len(t, e.requests(), 1)
		})
		t.Run(name+", but not enough", func(t *testing.T) {
			t.Parallel()
			tn, e := begin(t)
			aging(t, tn, e.URL, 3, batched)
			require.Equal(t, 1, travel(t, tn))
			tn.Become(t, 1, "SELECT count(*) FROM postrider.deliveries WHERE waits_for = 'next_attempt_at' "+
				"AND next_attempt_at = time_to_live_since + interval '3 minutes'")
			require.Equal(t, 1, travel(t, tn))
			tn.Become(t, 1, "SELECT count(*) FROM postrider.dead_letters WHERE reason = 'TimeToLiveExceeded' AND attempts = 1")
			require.Len(t, e.requests(), 1)
		})
	}
}
