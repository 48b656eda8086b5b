package store

// Points are the moments of an event's way at which a process that dies leaves most behind. Options.Failpoint is told when one
// is reached; see docs/reliability.md for what is proved with them.
const (
	// PointPublishBefore to PointPublishAfter are around T1: the group was chosen; the transaction is under way; it is
	// committed and nobody was answered.
	PointPublishBefore = "publish.before"
	PointPublishInside = "publish.inside"
	PointPublishAfter  = "publish.after"
	// PointRoute: one step's deliveries are made and not committed.
	PointRoute = "route"
	// PointCollect: what was published by SQL has its routes, and none of their deliveries.
	PointCollect = "collect"
	// PointFetched: a worker has its job and has read nothing yet.
	PointFetched = "fetched"
	// PointClaim: a batch is cut, and not posted.
	PointClaim = "claim"
	// PointSent: a request was written, and there is no answer yet.
	PointSent = "sent"
	// PointAnswered: an answer was read, and is written down nowhere.
	PointAnswered = "answered"
	// PointRecordBefore to PointRecordAfter are around T3: the results were chosen; the statement is under way; it is committed,
	// and no worker knows.
	PointRecordBefore = "record.before"
	PointRecordInside = "record.inside"
	PointRecordAfter  = "record.after"
	// PointDeadLetter: a result that ends in a dead letter is handed to T3.
	PointDeadLetter = "dead-letter"
	// PointPromote: due retries are ready, and no fetcher was woken.
	PointPromote = "promote"
	// PointReclaim: the jobs of the dead are locked, and not replaced yet.
	PointReclaim = "reclaim"
	// PointRelease: a pause or a probation was ended, and the answer was not given.
	PointRelease = "release"
	// PointRefill: a wave of held deliveries has its jobs, and no fetcher was woken.
	PointRefill = "refill"
	// PointPartition: a day's partition is made and not committed.
	PointPartition = "partition"
	// PointDetach: a day's time is over, and its partition is still there. PointDrop: it is detached, and not dropped.
	PointDetach = "partition.detach"
	PointDrop   = "partition.drop"
)

// Points lists them all.
func Points() []string {
	return []string{
		PointPublishBefore, PointPublishInside, PointPublishAfter, PointRoute, PointCollect, PointFetched, PointClaim, PointSent, PointAnswered,
		PointRecordBefore, PointRecordInside, PointRecordAfter, PointDeadLetter, PointPromote, PointReclaim, PointRelease, PointRefill, PointPartition, PointDetach, PointDrop,
	}
}

// Reach tells the hook, where there is one, that a point is reached.
func (s *Store) Reach(point string) {
	if s.failpoint != nil {
		s.failpoint(point)
	}
}
