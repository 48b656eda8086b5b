package jobs

import (
	"postrider/access"
	"postrider/catalog"
	"postrider/jobs/delivery"
	"postrider/jobs/export"
	"postrider/jobs/publish"
	"postrider/jobs/queue"
	"postrider/operator"
	"postrider/postgres"
)

// Parts are what an engine works with. All are required but Failpoint.
type Parts struct {
	Node      string
	DB        *postgres.DB
	Disk      *postgres.Disk
	Failpoint postgres.Failpoint

	Cache         *catalog.Cache
	Subscriptions *catalog.Subscriptions
	Holds         *catalog.Holds
	Handshakes    *catalog.Handshakes
	Access        *access.Access
	Operator      *operator.Operator

	Nodes    *queue.Nodes
	Notifier *queue.Notifier
	Traffic  *queue.Traffic
	JobRows  *queue.JobRows
	Active   *queue.JobSet
	Wake     *queue.Wake
	Handoff  *queue.Handoff
	Gate     *queue.Gate

	Publisher   *publish.Publisher
	Loader      *delivery.Loader
	Recorder    *delivery.Recorder
	Releaser    *delivery.Releaser
	Exports     *export.Exports
	Maintenance *Maintenance
}
