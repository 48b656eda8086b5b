package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPercentile(t *testing.T) {
	t.Parallel()
	require.Zero(t, percentile(nil, 99), "of nothing")
	var took []time.Duration
	for i := range 1000 {
		took = append(took, time.Duration(1000-i)*time.Millisecond)
	}
	for p, want := range map[float64]time.Duration{0: 1, 0.1: 1, 50: 500, 99: 990, 99.95: 1000, 100: 1000} {
		require.Equal(t, want*time.Millisecond, percentile(took, p), p)
	}
	require.Equal(t, Latencies{P50: 500, P90: 900, P95: 950, P99: 990, Max: 1000}, latencies(took))
	require.Equal(t, 7*time.Second, percentile([]time.Duration{7 * time.Second}, 50))
}
