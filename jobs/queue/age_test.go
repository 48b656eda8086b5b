package queue_test

import (
	"testing"
	"time"

	"postrider/internal/testnode"

	"github.com/stretchr/testify/require"
)

// While a resume corrects ages step by step, those that it has come to count as they are, and the others as they will
// be.
func TestAgesWhileAResumeCorrectsThem(t *testing.T) {
	t.Parallel()
	tn, _ := testnode.Orders(t)
	tn.Publish(t, "orders", "e", 4)
	// Ids 1 and 2 were corrected. The pause lasted ten minutes; 4 was published in the middle of it.
	tn.Exec(t, "UPDATE postrider_internal.deliveries SET time_to_live_since = now() - make_interval(mins => (ARRAY [10, "+
		"10, 20, 5])[id])")
	tn.Exec(t, `INSERT INTO postrider_internal.event_subscription_states (subscription_id, paused_since, resumed_at,
		    stop_time_to_live, moved_to)
		SELECT subscription_id, min(time_to_live_since) + interval '10 minutes',
		       min(time_to_live_since) + interval '20 minutes', true, 2
		FROM postrider_internal.deliveries GROUP BY 1`)
	later := func(at time.Duration) []time.Duration {
		now := testnode.Value[time.Time](t, tn, "SELECT resumed_at FROM postrider_internal.event_subscription_states")
		since, err := tn.System.Loader.TimeToLiveSince(t.Context(), []int64{1, 2, 3, 4, 4711}, now.Add(at))
		require.NoError(t, err)
		require.Len(t, since, 4)
		ages := make([]time.Duration, 4)
		for i := range ages {
			ages[i] = now.Sub(since[int64(i+1)])
		}
		return ages
	}
	const minute = time.Minute
	require.Equal(t, []time.Duration{10 * minute, 10 * minute, 10 * minute, 0}, later(minute))
	require.Equal(t, []time.Duration{10 * minute, 10 * minute, 17 * minute, 5 * minute}, later(-7*minute),
		"three minutes into the pause")
	require.Equal(t, []time.Duration{10 * minute, 10 * minute, 20 * minute, 5 * minute}, later(-11*minute), "before it")

	tn.Exec(t, "UPDATE postrider_internal.event_subscription_states SET stop_time_to_live = false")
	require.Equal(t, []time.Duration{10 * minute, 10 * minute, 20 * minute, 5 * minute}, later(0), "the clock goes on")
}
