package query_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/postgres"
	"postrider/internal/query"
)

func TestHistogramCountsUpToItsBounds(t *testing.T) {
	t.Parallel()
	h := postgres.NewHistogram(1, 5, 10)
	for _, value := range []int64{0, 1, 2, 5, 10, 11, 1000} {
		h.Observe(value)
	}
	require.Equal(t, postgres.Distribution{Bounds: []int64{1, 5, 10}, Counts: []int64{2, 2, 1, 2}, Sum: 1029}, h.Read())
}

func TestLatencyKnowsItsSumRoughly(t *testing.T) {
	t.Parallel()
	d := (&query.Latency{2, 0, 1, 13: 1}).Distribution() // two below 5 ms, one below 25 ms, one of a minute or more
	require.Equal(t, int64(5*time.Millisecond), d.Bounds[0])
	require.Equal(t, int64(2*2500*time.Microsecond+17500*time.Microsecond+time.Minute), d.Sum)
	require.Equal(t, &query.Latency{2, 0, 2, 13: 1}, (&query.Latency{2, 0, 1, 13: 1}).Plus(&query.Latency{0, 0, 1}))
	require.Equal(t, &query.Latency{1}, (*query.Latency)(nil).Plus(&query.Latency{1}))
}
