package bench

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestPace runs the scenario with the real program, small and short. It does not check speed.
func TestPace(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds and runs the whole program")
	}
	binary, err := build()
	require.NoError(t, err)
	var log bytes.Buffer
	r, err := Pace(t.Context(), PaceOptions{
		Binary: binary, Command: "as typed", Nodes: 2, Pending: 1000, Limit: 50, Kill: true, Duration: 2 * time.Second,
	}, &log)
	require.NoError(t, err, log.String())
	require.NoError(t, r.Err())
	require.Positive(t, r.Accepted)
	require.LessOrEqual(t, r.Accepted, 55.0)
	require.Equal(t, "node-2", r.Killed)
	require.Contains(t, r.String(), "as typed")
	r.DeadLettered = 1
	require.Error(t, r.Err())
}

func TestPaceReport(t *testing.T) {
	t.Parallel()
	began := time.Unix(1_800_000_000, 0)
	var arrivals []arrival
	for i := range 400 { // 20/s for 20 s; every tenth of the last 10 s is throttled
		at := began.Add(time.Duration(i) * 50 * time.Millisecond)
		arrivals = append(arrivals, arrival{At: at.UnixNano(), Acknowledged: i < 200 || i%10 > 0})
	}
	var r PaceReport
	r.addArrivals(arrivals, span{began, began.Add(20 * time.Second)})
	require.Equal(t, PaceReport{Accepted: 19, Lowest: 18, Highest: 20, Throttled: 5, MostThrottled: 10}, r)
}
