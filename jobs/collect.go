package jobs

import (
	"context"
	"sync"
	"time"

	"postrider/jobs/publish"
	"postrider/jobs/queue"
)

const (
	// collectPause is the pause between two searches for publishes by SQL while they arrive, and promptly otherwise. A
	// search takes 0.25 ms. Publishers do not notify: PostgreSQL serializes the commits of transactions that do.
	collectPause = 20 * time.Millisecond
	// collectIdle is how long after the last publish collectPause applies.
	collectIdle = 3 * time.Second
)

// collector collects publishes by SQL, and creates their deliveries.
type collector struct {
	*runs
	publisher *publish.Publisher
	found     time.Time     // when a search last found any
	again     chan struct{} // more may have arrived
	next      *time.Timer   // of the next search; nil = none
}

func (c *collector) collect(ctx context.Context) error {
	began, n, jobs := time.Now(), 0, []int64(nil)
	err := within(ctx, taskTimeout, func(ctx context.Context) error {
		var err error
		n, jobs, err = c.publisher.CollectPublishes(ctx)
		return err
	})
	took := time.Since(began)
	var routed sync.WaitGroup
	for _, job := range jobs {
		routed.Go(func() {
			err := c.run(job, func() error { return c.publisher.Route(ctx, job) })
			if err != nil && ctx.Err() == nil {
				// It is reclaimed after 15 s. Its row has the topic and the events.
				c.log.Error("deliveries of events published by SQL could not be created, trying again; "+
					"postrider_internal.routes has their topic and ids", "route_job", job, "error", err)
			}
		})
	}
	routed.Wait()
	if n > 0 {
		c.found = time.Now()
	}
	if err == nil && time.Since(c.found) < collectIdle {
		// A search that finds none takes long if a transaction stays open for hours: dead rows remain.
		c.searchAfter(max(collectPause, 3*took))
	}
	return err
}

// searchAfter requests the next search after a pause, instead of the request before: the loop's interval may be
// shorter, and each search that it begins would add another request.
func (c *collector) searchAfter(pause time.Duration) {
	if c.next != nil {
		c.next.Stop()
	}
	c.next = time.AfterFunc(pause, func() { queue.Signal(c.again) })
}
