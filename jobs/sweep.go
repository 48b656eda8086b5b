package jobs

import (
	"context"
	"time"
)

const (
	sweepInterval = time.Minute
	// sweepRest bounds the sweepers of all nodes to a hundredth of a core: after a pass a node rests that many times as
	// long as the pass took, for each node. A pass over a million deliveries and their jobs takes 8.5 s, so it begins each
	// 14 minutes.
	sweepRest = 100

	mergeInterval = 10 * time.Second
	// vacuumInterval is a compromise: a fetch reads past the jobs that ended since, a vacuum reads every index of the
	// table. Every 5 s cost a tenth of the throughput; every 15 s saved a tenth of PostgreSQL's time in runs of 75 s.
	vacuumInterval = 15 * time.Second
	// vacuumTimeout is more than a table of millions takes; a vacuum that is cut off has done nothing.
	vacuumTimeout = 10 * time.Minute
)

// sweep repairs what is inconsistent. That should be nothing, so a repair is logged as an error: some statement
// separated a delivery from its job.
func (e *Engine) sweep(ctx context.Context) {
	e.every(ctx, sweepInterval, "sweeping", func(context.Context) error { // each step has its own timeout
		began := time.Now()
		found, err := e.parts.Maintenance.Sweep(ctx)
		if found.Total() > 0 {
			e.log.Error("inconsistent deliveries and jobs were repaired; this should never happen",
				"deliveries_without_job", found.Repaired, "jobs_without_delivery", found.Removed,
				"routes_without_job", found.Routes, "handshakes_without_job", found.Handshakes,
				"exports_without_job", found.Exports, "operations_without_job", found.Operations)
		}
		if err == nil {
			pause(ctx, time.Duration(sweepRest*e.parts.Nodes.WorkerNodes())*time.Since(began))
		}
		return err
	})
}

// mergeRollups keeps the appended counts few.
func (e *Engine) mergeRollups(ctx context.Context) {
	e.every(ctx, mergeInterval, "merging roll-ups", func(ctx context.Context) error {
		_, err := e.parts.Maintenance.MergeRollups(ctx)
		return err
	})
}

// vacuum keeps the fetch of jobs short.
func (e *Engine) vacuum(ctx context.Context) {
	e.every(ctx, vacuumInterval, "vacuuming", func(context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, vacuumTimeout)
		defer cancel()
		return e.parts.Maintenance.VacuumJobs(ctx)
	})
}
