package e2e

import (
	"postrider/internal/catalog"
	"postrider/jobs"
	"postrider/jobs/delivery"
	"postrider/jobs/publish"
	"postrider/jobs/queue"
)

// failpoints are all names that a postgres.Failpoint is called with.
func failpoints() []string {
	return []string{
		publish.PointPublishBefore, publish.PointPublishInside, publish.PointPublishAfter, publish.PointRoute,
		publish.PointCollect,
		jobs.PointFetched, delivery.PointClaim, jobs.PointSent, jobs.PointResponded,
		delivery.PointRecordBefore, delivery.PointRecordInside, delivery.PointRecordAfter, delivery.PointDeadLetter,
		queue.PointPromote, queue.PointReclaim, catalog.PointRelease, delivery.PointRefill,
		jobs.PointPartition, jobs.PointDetach, jobs.PointDrop,
	}
}
