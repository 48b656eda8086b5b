package jobs

import (
	"context"
	"sync"
	"time"

	"postrider/jobs/publish"
)

const (
	// collectPause is the pause between two searches for publishes by SQL while they arrive, and collectPoll otherwise. A
	// search takes 0.25 ms. Publishers do not notify: PostgreSQL serializes the commits of transactions that do.
	collectPause = 20 * time.Millisecond
	collectPoll  = 250 * time.Millisecond
	// collectRetry follows an error.
	collectRetry = 500 * time.Millisecond
	// collectIdle is how long after the last publish collectPause applies.
	collectIdle = 3 * time.Second
)

// collect collects publishes by SQL, and creates their deliveries.
func (r *runs) collect(ctx context.Context, publisher *publish.Publisher) {
	var found time.Time
	for ctx.Err() == nil {
		began := time.Now()
		bounded, cancel := context.WithTimeout(ctx, taskTimeout)
		n, jobs, err := publisher.CollectPublishes(bounded)
		if err != nil && ctx.Err() == nil {
			r.log.Warn("publishes by SQL could not be collected, trying again", "in", collectRetry, "error", err)
			pause(ctx, collectRetry)
		}
		cancel()
		took := time.Since(began)
		var routed sync.WaitGroup
		for _, job := range jobs {
			routed.Go(func() {
				err := r.run(job, func() error { return publisher.Route(ctx, job) })
				if err != nil && ctx.Err() == nil {
					// It is reclaimed after 15 s. Its row has the topic and the events.
					r.log.Error("deliveries of events published by SQL could not be created, trying again; "+
						"postrider_internal.routes has their topic and ids", "route_job", job, "error", err)
				}
			})
		}
		routed.Wait()
		if n > 0 {
			found = time.Now()
		}
		wait := collectPoll
		if time.Since(found) < collectIdle {
			// A search that finds none takes long if a transaction stays open for hours: dead rows remain.
			wait = min(max(collectPause, 3*took), collectPoll)
		}
		pause(ctx, wait)
	}
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
