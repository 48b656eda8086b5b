package app

import (
	"postrider/postgres"
)

// Stats is what this node has done since its process began, and what waits in its memory.
type Stats struct {
	// PublishGroups are the transactions that stored events, by how many events each had; PublishTime by how long each
	// took, in nanoseconds.
	PublishGroups, PublishTime postgres.Distribution
	// RecordFlushes are the transactions that recorded attempts, by how many results each had; RecordTime by how long it
	// was until they were stored, in nanoseconds, repeats included.
	RecordFlushes, RecordTime postgres.Distribution
	// RecordFailures counts flushes that failed and were tried again.
	RecordFailures int64
	// Promoted jobs were made available because their time had come; Released deliveries were let go from a hold;
	// Reclaimed jobs had been interrupted and were given out again.
	Promoted, Released, Reclaimed int64
	// Exported dead letters were written to a location outside; of ExportsGivenUp ones that was given up.
	Exported, ExportsGivenUp int64
	// SweeperFinds is what Sweep had to mend.
	SweeperFinds int64
	// WaitingPublishes are the publish requests that wait for their commit, and WaitingPublishBytes their bodies;
	// WaitingResults those that wait to be recorded.
	WaitingPublishes, WaitingPublishBytes, WaitingResults int64
	// BodyBytes are the bodies of the attempts in flight.
	BodyBytes int64
}

// Stats reads the counts. It asks the database nothing.
func (s *System) Stats() Stats {
	jobs, publishes, records, exports := s.JobRows.JobCounters(), s.Publisher.PublishCounters(),
		s.Recorder.RecorderCounters(), s.Exports.ExportCounters()
	return Stats{
		PublishGroups: publishes.Groups, PublishTime: publishes.Time, RecordFlushes: records.Flushes,
		RecordTime:     records.Time,
		RecordFailures: records.Failures, Promoted: jobs.Promoted, Released: s.Releaser.ReleasedCount(),
		Reclaimed: jobs.Reclaimed,
		Exported:  exports.Written, ExportsGivenUp: exports.GivenUp, SweeperFinds: s.Maintenance.SweeperFinds(),
		WaitingPublishes: publishes.Waiting, WaitingPublishBytes: publishes.WaitingBytes, WaitingResults: records.Waiting,
		BodyBytes: s.Memory.InUse(),
	}
}
