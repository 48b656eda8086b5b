package postgres

import (
	"slices"
	"sync/atomic"
)

// Histogram counts values by their size. It may be told of them from any goroutine, for two atomic additions each.
type Histogram struct {
	bounds []int64
	counts []atomic.Int64 // one more than there are bounds
	sum    atomic.Int64
}

// NewHistogram counts values up to each of the bounds, which ascend, and those above the last.
func NewHistogram(bounds ...int64) *Histogram {
	return &Histogram{bounds: bounds, counts: make([]atomic.Int64, len(bounds)+1)}
}

// Observe counts a value; one that equals a bound is below it.
func (h *Histogram) Observe(value int64) {
	place, _ := slices.BinarySearch(h.bounds, value)
	h.counts[place].Add(1)
	h.sum.Add(value)
}

// Read is what was counted so far. Values that are counted meanwhile are in it or not.
func (h *Histogram) Read() Distribution {
	d := Distribution{Bounds: h.bounds, Counts: make([]int64, len(h.counts)), Sum: h.sum.Load()}
	for i := range h.counts {
		d.Counts[i] = h.counts[i].Load()
	}
	return d
}

// Distribution is what a Histogram has counted.
type Distribution struct {
	// Bounds are where the buckets end; Counts has one more, for what is above the last.
	Bounds, Counts []int64
	// Sum of all values.
	Sum int64
}
