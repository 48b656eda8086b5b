package bench

import (
	"fmt"
	"math/bits"
	"sync/atomic"
	"time"
)

const (
	// Each power of two is cut into 64 equal buckets, so that a percentile is at most 1/64 = 1.6 % above the true value.
	subBits    = 6
	subBuckets = 1 << subBits
	// 2^33 microseconds are 2.4 hours, longer than any run; what is longer counts as that.
	maxBits     = 33
	bucketCount = (maxBits - subBits + 1) * subBuckets
)

// Histogram counts durations in log-linear buckets of microseconds: 14 KB however many values, and percentiles that are
// at most 1.6 % too high. The zero value is ready, and every method may be called from several goroutines.
type Histogram struct {
	counts [bucketCount]atomic.Int64
	total  atomic.Int64
	max    atomic.Int64
}

// bucket is where a value of that many microseconds is counted: below 128 one bucket each, then 64 to the power of two.
func bucket(micros int64) int {
	v := uint64(min(max(micros, 0), 1<<maxBits-1))
	shift := max(bits.Len64(v)-subBits-1, 0)
	return shift*subBuckets + int(v>>shift)
}

// upper is the largest value that is counted in that bucket.
func upper(index int) int64 {
	shift := max(index/subBuckets-1, 0)
	return int64(index-shift*subBuckets+1)<<shift - 1
}

// Record counts one duration. A negative one, which two clocks can produce, counts as zero.
func (h *Histogram) Record(d time.Duration) {
	micros := d.Microseconds()
	h.counts[bucket(micros)].Add(1)
	h.total.Add(1)
	for seen := h.max.Load(); micros > seen && !h.max.CompareAndSwap(seen, micros); seen = h.max.Load() {
	}
}

// Count is how many durations were recorded.
func (h *Histogram) Count() int64 { return h.total.Load() }

// Percentile is the duration that p percent of the recorded ones do not exceed; 0 when none was recorded.
func (h *Histogram) Percentile(p float64) time.Duration {
	rank := max(int64(p/100*float64(h.total.Load())+0.5), 1)
	for i := range h.counts {
		if rank -= h.counts[i].Load(); rank <= 0 {
			return time.Duration(min(upper(i), h.max.Load())) * time.Microsecond
		}
	}
	return time.Duration(h.max.Load()) * time.Microsecond
}

// Latencies are percentiles in milliseconds, as reports print them. Members of reports that hold them are named …Ms.
type Latencies struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// Latencies are the histogram's usual percentiles.
func (h *Histogram) Latencies() Latencies {
	at := func(p float64) float64 { return millis(h.Percentile(p)) }
	return Latencies{P50: at(50), P90: at(90), P95: at(95), P99: at(99), Max: at(100)}
}

// String is the latencies for a person.
func (l Latencies) String() string {
	return fmt.Sprintf("p50 %.1f  p90 %.1f  p95 %.1f  p99 %.1f  max %.1f ms", l.P50, l.P90, l.P95, l.P99, l.Max)
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
