package store

import (
	"sync/atomic"
	"time"
)

// millisecond and the bounds below are in nanoseconds, as time.Duration is.
const millisecond = int64(time.Millisecond)

// stats counts what this node does. Each publish, attempt and wave costs a few atomic additions, and nothing else is on their way: what the
// database counts for itself is asked for by a Meter.
type stats struct {
	recordResults, recordTime *Histogram

	recordFailures, released atomic.Int64
	exported, exportsGivenUp atomic.Int64
}

func newStats() *stats {
	return &stats{
		recordResults: NewHistogram(1, 2, 5, 10, 20, 50, 100, flushResults),
		recordTime:    NewHistogram(millisecond, 2*millisecond, 5*millisecond, 10*millisecond, 25*millisecond, 50*millisecond, 100*millisecond, 250*millisecond, 1000*millisecond, 5000*millisecond),
	}
}

// recorded counts a flush that was committed, however often it had to be tried.
func (s *stats) recorded(results int, took time.Duration) {
	s.recordResults.Observe(int64(results))
	s.recordTime.Observe(int64(took))
}

// Stats is what this node has done since its process began, and what waits in its memory.
type Stats struct {
	// PublishGroups are the transactions that stored events, by how many events each had; PublishTime by how long each took, in
	// nanoseconds.
	PublishGroups, PublishTime Distribution
	// RecordFlushes are the transactions that recorded attempts, by how many results each had; RecordTime by how long it was until they were
	// stored, in nanoseconds, repeats included.
	RecordFlushes, RecordTime Distribution
	// RecordFailures counts flushes that failed and were tried again.
	RecordFailures int64
	// Promoted jobs were made available because their time had come; Released deliveries were let go from a hold; Reclaimed jobs had been
	// interrupted and were given out again.
	Promoted, Released, Reclaimed int64
	// Exported dead letters were written to a location outside; of ExportsGivenUp ones that was given up.
	Exported, ExportsGivenUp int64
	// SweeperFinds is what Sweep had to mend.
	SweeperFinds int64
	// WaitingPublishes are the publish requests that wait for their commit, and WaitingPublishBytes their bodies; WaitingResults those that
	// wait to be recorded.
	WaitingPublishes, WaitingPublishBytes, WaitingResults int64
	// BodyBytes are the bodies of the attempts in flight.
	BodyBytes int64
}

// Stats reads the counts. It asks the database nothing.
func (s *Store) Stats() Stats {
	n, jobs, publishes := s.stats, s.JobCounters(), s.PublishCounters()
	return Stats{
		PublishGroups: publishes.Groups, PublishTime: publishes.Time, RecordFlushes: n.recordResults.Read(), RecordTime: n.recordTime.Read(),
		RecordFailures: n.recordFailures.Load(), Promoted: jobs.Promoted, Released: n.released.Load(), Reclaimed: jobs.Reclaimed,
		Exported: n.exported.Load(), ExportsGivenUp: n.exportsGivenUp.Load(), SweeperFinds: s.SweeperFinds(),
		WaitingPublishes: publishes.Waiting, WaitingPublishBytes: publishes.WaitingBytes, WaitingResults: int64(s.recorder.queue.len()),
		BodyBytes: s.memory.InUse(),
	}
}
