package bench

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestHistogramBuckets(t *testing.T) {
	t.Parallel()
	for _, micros := range []int64{0, 1, 127, 128, 129, 255, 256, 1_000, 30_000_000, 1<<maxBits - 1} {
		top := upper(bucket(micros))
		require.GreaterOrEqual(t, top, micros)
		require.LessOrEqual(t, float64(top), float64(micros)*(1+1.0/subBuckets), "micros %d", micros)
	}
	require.Equal(t, 0, bucket(-5), "two clocks may disagree")
	require.Equal(t, bucketCount-1, bucket(1<<62), "longer than any run")
	for i := 1; i < bucketCount; i++ {
		require.Equal(t, i, bucket(upper(i)))
		require.Equal(t, i, bucket(upper(i-1)+1), "buckets meet without a gap")
	}
}

func TestHistogramPercentiles(t *testing.T) {
	t.Parallel()
	source := rand.New(rand.NewPCG(3, 4))
	var h Histogram
	require.Zero(t, h.Percentile(99), "of nothing")
	values := make([]time.Duration, 10_000)
	for i := range values {
		values[i] = time.Duration(source.ExpFloat64()*50_000) * time.Microsecond
		h.Record(values[i])
	}
	slices.Sort(values)
	for _, p := range []float64{1, 50, 90, 99, 99.9} {
		exact := values[int(p/100*float64(len(values)))-1]
		require.GreaterOrEqual(t, h.Percentile(p), exact)
		require.LessOrEqual(t, float64(h.Percentile(p)), float64(exact)*1.02+2000)
	}
	require.Equal(t, values[len(values)-1], h.Percentile(100), "the maximum is exact")
}

func TestHistogramConcurrently(t *testing.T) {
	t.Parallel()
	var h Histogram
	var recording sync.WaitGroup
	for i := range 4 {
		recording.Go(func() {
			for n := range 1000 {
				h.Record(time.Duration(i*1000+n) * time.Microsecond)
			}
		})
	}
	recording.Wait()
	require.EqualValues(t, 4000, h.Count())
	require.Equal(t, 3999*time.Microsecond, h.Percentile(100))
}
