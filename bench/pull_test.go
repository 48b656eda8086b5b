package bench

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestPull runs the scenario with the real program, small and short. It does not check speed.
func TestPull(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds and runs the whole program")
	}
	binary, err := build()
	require.NoError(t, err)
	var log bytes.Buffer
	r, err := Pull(t.Context(), PullOptions{
		Binary: binary, Command: "as typed", Consumers: 4, Events: 1000, EventBytes: 1024, Rate: 20, Duration: time.Second,
		Receivers: 20,
	}, &log)
	require.NoError(t, err, log.String())
	require.NoError(t, r.Err())
	require.Equal(t, []int64{1000, 1020, 1020, 0}, []int64{r.Acknowledged, r.Published, r.Delivered, r.Left})
	for what, value := range map[string]float64{
		"acknowledged": r.AcknowledgedPerSecond, "service": r.CPUSecondsPer10k["service"], "receive": r.ReceiveMs.P50,
		"acknowledge": r.AcknowledgeMs.P50, "latency": r.LatencyMs.P50, "memory": r.RSSPeakMB,
	} {
		require.Positive(t, value, what)
	}
	require.Less(t, r.LatencyMs.P50, 1e6, "not since 1970")
	require.Contains(t, r.String(), "as typed")
	r.Left = 1
	require.Error(t, r.Err())
}
