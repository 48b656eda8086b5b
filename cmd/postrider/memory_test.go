package main

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestGCPercent(t *testing.T) {
	t.Parallel()
	const mb = 1 << 20
	for _, row := range []struct{ scan, live, percent uint64 }{
		{0, 0, 300},                 // before the first collection
		{6 * mb, 10 * mb, 300},      // idle
		{12 * mb, 24 * mb, 200},     // under load: 48 MB more
		{12 * mb, 96 * mb, 50},      // large bodies: the same
		{100 * mb, 120 * mb, 166},   // a large catalog
		{12 * mb, 100_000 * mb, 25}, // at least a quarter more
	} {
		require.EqualValues(t, row.percent, gcPercent(row.scan, row.live), "%+v", row)
	}
}

// The tuner follows each collection. The program's own percentage is left alone here.
func TestHeapTunerFollowsCollections(t *testing.T) {
	t.Parallel()
	var percent atomic.Int64
	newHeapTuner(func(p int) { percent.Store(int64(p)) }).watch()
	require.EqualValues(t, maxGCPercent, percent.Load())
	bodies := make([]byte, 256<<20)
	require.Eventually(t, func() bool {
		runtime.GC()
		return percent.Load() < maxGCPercent/2
	}, time.Minute, 10*time.Millisecond, "the percentage is lower")
	runtime.KeepAlive(bodies)
	require.Eventually(t, func() bool {
		runtime.GC()
		return percent.Load() > maxGCPercent/2
	}, time.Minute, 10*time.Millisecond, "the percentage is higher again")
}
