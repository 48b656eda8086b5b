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
	exported, exportsGivenUp atomic.Int64
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
	n, jobs, publishes, records := s.stats, s.JobCounters(), s.PublishCounters(), s.RecorderCounters()
	return Stats{
		PublishGroups: publishes.Groups, PublishTime: publishes.Time, RecordFlushes: records.Flushes, RecordTime: records.Time,
		RecordFailures: records.Failures, Promoted: jobs.Promoted, Released: s.ReleasedCount(), Reclaimed: jobs.Reclaimed,
		Exported: n.exported.Load(), ExportsGivenUp: n.exportsGivenUp.Load(), SweeperFinds: s.SweeperFinds(),
		WaitingPublishes: publishes.Waiting, WaitingPublishBytes: publishes.WaitingBytes, WaitingResults: records.Waiting,
		BodyBytes: s.memory.InUse(),
	}
}
