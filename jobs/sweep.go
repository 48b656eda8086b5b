package jobs

import (
	"context"
	"time"
)

const (
	sweepInterval = time.Minute
	mergeInterval = 10 * time.Second
	// vacuumInterval is a compromise: a fetch reads past what died since, a vacuum reads every index of the table. Every 5 s
	// cost a tenth of the throughput; every 15 s saved a tenth of PostgreSQL's time in runs of 75 s.
	vacuumInterval = 15 * time.Second
	// vacuumTimeout is amply what a table of millions takes; one that is cut off has done nothing.
	vacuumTimeout = 10 * time.Minute
)

// sweep is the net under everything else: it should find nothing, ever. What it does find is mended, and told as an error,
// because some statement of ours let a delivery and its job part.
func (e *Engine) sweep(ctx context.Context) {
	e.every(ctx, sweepInterval, "sweeping", func(ctx context.Context) error {
		found, err := e.store.Maintenance.Sweep(ctx)
		if found.Total() > 0 {
			e.log.Error("deliveries and jobs had come apart and were mended; this should never happen",
				"deliveries_without_job", found.Mended, "jobs_without_delivery", found.Removed, "routes_without_job", found.Routes, "handshakes_without_job", found.Handshakes,
				"exports_without_job", found.Exports, "operations_without_job", found.Operations)
		}
		return err
	})
}

// mergeRollups keeps the appended counts few.
func (e *Engine) mergeRollups(ctx context.Context) {
	e.every(ctx, mergeInterval, "merging roll-ups", func(ctx context.Context) error {
		_, err := e.store.Maintenance.MergeRollups(ctx)
		return err
	})
}

// vacuum keeps the fetch of jobs short.
func (e *Engine) vacuum(ctx context.Context) {
	e.every(ctx, vacuumInterval, "vacuuming", func(context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, vacuumTimeout)
		defer cancel()
		return e.store.Maintenance.VacuumJobs(ctx)
	})
}
