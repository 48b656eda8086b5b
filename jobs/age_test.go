package jobs_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/policy"
)

// aging creates an event subscription with a time to live in minutes, with batches or without.
func (b *bundle) aging(t *testing.T, url string, minutes int, batched bool) {
	t.Helper()
	b.subscribe(t, "all", url, func(s *catalog.SubscriptionSpec) {
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
			b := setup(t)
			e, h := newHanging(t, respondWith(http.StatusNotFound))
			b.aging(t, e.URL, 1, test.batched)
			b.publishOne(t, "e")
			b.exec(t, "UPDATE postrider_internal.deliveries SET time_to_live_since = time_to_live_since - interval '50 seconds'")
			b.start(t, nil)
			<-h.begun
			_, err := b.store.Holds.Pause(t.Context(), topicName, "all", &test.stop)
			require.NoError(t, err)
			b.exec(t, agedAtPause, "51 seconds")
			b.become(t, 1,
				"SELECT count(*) FROM postrider_internal.deliveries WHERE time_to_live_since < clock_timestamp() - interval '61 "+
					"seconds'")
			if test.resumed {
				b.resume(t, "all")
			}
			h.letGo()
			report := b.attempt(t)
			require.Equal(t, test.want, report.Verdict.Action)
			if test.want == policy.DeadLetter {
				require.Equal(t, policy.ReasonTimeToLiveExceeded, report.Verdict.Reason)
				return
			}
			b.resume(t, "all")
			b.travel(t) // it has some seconds to live at most
			b.become(t, 1, "SELECT count(*) FROM postrider.dead_letters WHERE reason = 'TimeToLiveExceeded' AND attempts = 1")
			require.Equal(t, 1,
				b.count(t,
					"SELECT count(*) FROM postrider_internal.dead_letters WHERE dead_lettered_at - time_to_live_since BETWEEN '60 "+
						"seconds' AND '80 seconds'"), "as old as it was at the pause, and then the rest")
		})
	}
}

// laterBy moves all times into the past by the length of the pause.
func (b *bundle) laterBy(t *testing.T, pause string) {
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
		b.exec(t, "UPDATE postrider_internal."+earlier, pause)
	}
}

// A due check that was to end a delivery makes no attempt if the delivery got more time to live: the minimum delay of
// the status stays.
func TestMoreTimeToLiveBringsNoEarlierAttempt(t *testing.T) {
	t.Parallel()
	for _, batched := range []bool{false, true} {
		name := map[bool]string{false: "alone", true: "in a batch"}[batched]
		begin := func(t *testing.T) (*bundle, *endpoint) {
			t.Helper()
			b := setup(t)
			e := newEndpoint(t, respondWith(http.StatusNotFound)) // at least 5 min
			b.aging(t, e.URL, 1, batched)
			b.start(t, nil)
			b.publishOne(t, "e")
			b.attempt(t)
			require.Equal(t, 1,
				b.count(t,
					"SELECT count(*) FROM postrider.deliveries WHERE next_attempt_at = time_to_live_since + interval '1 minute'"))
			return b, e
		}
		const waitsForFloor = "SELECT count(*) FROM postrider.deliveries d JOIN postrider.delivery_attempts a " +
			"USING (subscription) WHERE waits_for = 'next_attempt_at' AND d.next_attempt_at >= a.started_at + interval '5 " +
			"minutes'"
		attemptedAgain := func(t *testing.T, b *bundle, e *endpoint) {
			t.Helper()
			b.become(t, 1, waitsForFloor)
			require.Len(t, e.requests(), 1)
			require.Equal(t, 1, b.travel(t))
			b.attempt(t)
			require.Len(t, e.requests(), 2)
		}
		t.Run(name+", changed by a user", func(t *testing.T) {
			t.Parallel()
			b, e := begin(t)
			b.aging(t, e.URL, 1440, batched)
			require.Equal(t, 1, b.travel(t))
			attemptedAgain(t, b, e)
		})
		t.Run(name+", after a pause", func(t *testing.T) {
			t.Parallel()
			b, e := begin(t)
			stop := true
			_, err := b.store.Holds.Pause(t.Context(), topicName, "all", &stop)
			require.NoError(t, err)
			b.laterBy(t, "30 seconds")
			b.resume(t, "all")
			require.Equal(t, 1, b.travel(t), "the end of the time to live as it was")
			b.become(t, 1, "SELECT count(*) FROM postrider.deliveries WHERE waits_for = 'next_attempt_at'")
			require.Equal(t, 1, b.travel(t), "and as it is")
			b.become(t, 1, "SELECT count(*) FROM postrider.dead_letters WHERE reason = 'TimeToLiveExceeded' AND attempts = 1")
			require.Len(t, e.requests(), 1)
		})
		t.Run(name+", but not enough", func(t *testing.T) {
			t.Parallel()
			b, e := begin(t)
			b.aging(t, e.URL, 3, batched)
			require.Equal(t, 1, b.travel(t))
			b.become(t, 1, "SELECT count(*) FROM postrider.deliveries WHERE waits_for = 'next_attempt_at' "+
				"AND next_attempt_at = time_to_live_since + interval '3 minutes'")
			require.Equal(t, 1, b.travel(t))
			b.become(t, 1, "SELECT count(*) FROM postrider.dead_letters WHERE reason = 'TimeToLiveExceeded' AND attempts = 1")
			require.Len(t, e.requests(), 1)
		})
	}
}
