package postgres

import (
	"slices"
	"sync/atomic"
)

// Histogram counts values by their size. Any goroutine may add values; each costs two atomic additions.
type Histogram struct {
	bounds []int64
	counts []atomic.Int64 // one more than bounds
	sum    atomic.Int64
}

// NewHistogram returns a histogram with buckets up to each of the ascending bounds, and one above the last.
func NewHistogram(bounds ...int64) *Histogram {
	return &Histogram{bounds: bounds, counts: make([]atomic.Int64, len(bounds)+1)}
}

// Observe counts a value. A bound belongs to the bucket that it ends.
func (h *Histogram) Observe(value int64) {
	bucket, _ := slices.BinarySearch(h.bounds, value)
	h.counts[bucket].Add(1)
	h.sum.Add(value)
}

// Read returns the counts. It may miss values that are counted at the same time.
func (h *Histogram) Read() Distribution {
	d := Distribution{Bounds: h.bounds, Counts: make([]int64, len(h.counts)), Sum: h.sum.Load()}
	for i := range h.counts {
		d.Counts[i] = h.counts[i].Load()
	}
	return d
}

// Distribution has the counts of a Histogram.
type Distribution struct {
	// Bounds are the ends of the buckets. Counts has one more, for values above the last bound.
	Bounds, Counts []int64
	// Sum of all values.
	Sum int64
}
