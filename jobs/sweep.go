package jobs

import (
	"context"
	"time"
)

const (
	sweepInterval = time.Minute
	mergeInterval = 10 * time.Second
)

// sweep is the net under everything else: it should find nothing, ever. What it does find is mended, and told as an error,
// because some statement of ours let a delivery and its job part.
func (e *Engine) sweep(ctx context.Context) {
	e.every(ctx, sweepInterval, "sweeping", func(ctx context.Context) error {
		found, err := e.store.Sweep(ctx)
		if found.Mended+found.Removed+found.Routes > 0 {
			e.log.Error("deliveries and jobs had come apart and were mended; this should never happen",
				"deliveries_without_job", found.Mended, "jobs_without_delivery", found.Removed, "routes_without_job", found.Routes)
		}
		return err
	})
}

// mergeRollups keeps the appended counts few.
func (e *Engine) mergeRollups(ctx context.Context) {
	e.every(ctx, mergeInterval, "merging roll-ups", func(ctx context.Context) error {
		_, err := e.store.MergeRollups(ctx)
		return err
	})
}
