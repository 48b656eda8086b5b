package main

import (
	"runtime"
	"runtime/metrics"
)

// The heap grows by minHeapGrowth between two collections, or by scanGrowth times the memory that each collection has
// to scan, if that is more. Thousands of goroutines wait for endpoints: collecting at Go's default of 100 percent took
// 11 % of the CPU per event. A constant percentage of 300 let large bodies, which are not scanned, grow the heap too.
const (
	minHeapGrowth = 48 << 20
	scanGrowth    = 2
	minGCPercent  = 25
	maxGCPercent  = 300
)

// heapTuner sets Go's percentage after each collection.
type heapTuner struct {
	set     func(percent int)
	percent int
	samples []metrics.Sample
}

func newHeapTuner(set func(int)) *heapTuner {
	set(maxGCPercent)
	return &heapTuner{set: set, percent: maxGCPercent, samples: []metrics.Sample{
		{Name: "/gc/scan/total:bytes"},
		{Name: "/gc/heap/live:bytes"},
		{Name: "/gc/scan/stack:bytes"},
		{Name: "/gc/scan/globals:bytes"},
	}}
}

// watch calls tune after each collection: the collection finds an object that is unreachable.
func (t *heapTuner) watch() {
	runtime.AddCleanup(new([64]byte), func(*heapTuner) {
		metrics.Read(t.samples)
		scan, live := t.samples[0].Value.Uint64(), uint64(0)
		for _, s := range t.samples[1:] {
			live += s.Value.Uint64()
		}
		percent := gcPercent(scan, live)
		if max(percent, t.percent)-min(percent, t.percent) > t.percent/16 { // a change stops the program for microseconds
			t.percent = percent
			t.set(percent)
		}
		t.watch()
	}, t)
}

// gcPercent is the percentage for what the last collection scanned and found live.
func gcPercent(scan, live uint64) int {
	growth := max(minHeapGrowth, scanGrowth*scan)
	return int(min(max(growth*100/max(live, 1), minGCPercent), maxGCPercent))
}
