package main

import (
	"postrider/jobs"
	"postrider/store"
)

// failpoints are all names that a store.Failpoint is called with.
func failpoints() []string {
	return []string{
		store.PointPublishBefore, store.PointPublishInside, store.PointPublishAfter, store.PointRoute, store.PointCollect,
		jobs.PointFetched, store.PointClaim, jobs.PointSent, jobs.PointAnswered,
		store.PointRecordBefore, store.PointRecordInside, store.PointRecordAfter, store.PointDeadLetter,
		store.PointPromote, store.PointReclaim, store.PointRelease, store.PointRefill,
		store.PointPartition, store.PointDetach, store.PointDrop,
	}
}
