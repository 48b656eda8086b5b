package bench

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Latencies are percentiles in milliseconds. Members of reports that hold them are named …Ms.
type Latencies struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// String is the latencies for a person.
func (l Latencies) String() string {
	return fmt.Sprintf("p50 %.1f  p90 %.1f  p95 %.1f  p99 %.1f  max %.1f ms", l.P50, l.P90, l.P95, l.P99, l.Max)
}

func latencies(took []time.Duration) Latencies {
	at := func(p float64) float64 { return millis(Percentile(took, p)) }
	return Latencies{P50: at(50), P90: at(90), P95: at(95), P99: at(99), Max: at(100)}
}

// Percentile sorts the durations and returns the one that p percent of them do not exceed; 0 if there are none.
func Percentile(took []time.Duration, p float64) time.Duration {
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	rank := int(math.Ceil(p / 100 * float64(len(took))))
	return took[max(rank, 1)-1]
}

func millis(d time.Duration) float64 { return round(d.Seconds()*1000, 3) }

// perSecond returns the time in seconds and the number per second; both are 0 if n is 0.
func perSecond(n int64, d time.Duration) (seconds, rate float64) {
	if n == 0 || d <= 0 {
		return 0, 0
	}
	return round(d.Seconds(), 3), round(float64(n)/d.Seconds(), 1)
}

// ratio returns 0 if there is nothing to compare with.
func ratio(value, to float64) float64 {
	if to == 0 {
		return 0
	}
	return round(value/to, 3)
}

func round(x float64, digits int) float64 {
	unit := math.Pow10(digits)
	return math.Round(x*unit) / unit
}
