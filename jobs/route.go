package jobs

import (
	"context"
	"errors"
	"time"

	"github.com/riverqueue/river"

	"postrider/store"
)

// routeWorkers is how many route jobs one node takes up at once. They only wait: the store makes the deliveries of all that
// wait together in one transaction. So small routes need many workers: 20,000 of one delivery each took 2.5 s with 500
// workers and 3.6 s with 200.
const routeWorkers = 500

// routePollInterval is the net under the notification that each stored route sends; where nobody listens it is all there is.
const routePollInterval = 500 * time.Millisecond

// While routes come, each node looks for more of them this often, until it has found none for a second. A publish by SQL is seen when
// the caller commits, and it does not notify when another route waits already, or when it is told not to.
const (
	routeWatchInterval = 10 * time.Millisecond
	routeWatchPatience = 100
)

// RouteArgs name a route: a publish whose deliveries are made after it was answered.
type RouteArgs struct {
	Route int64 `json:"route"`
}

// Kind implements river.JobArgs.
func (RouteArgs) Kind() string { return store.RouteKind }

// routeWorker is the River worker of route jobs. Its job is one step of a route: up to 10,000 deliveries.
type routeWorker struct {
	river.WorkerDefaults[RouteArgs]
	engine *Engine
}

// Timeout implements river.Worker: none. A step that the database refuses is tried again for as long as the process lives.
func (w *routeWorker) Timeout(*river.Job[RouteArgs]) time.Duration { return -1 }

// Work implements river.Worker.
func (w *routeWorker) Work(ctx context.Context, job *river.Job[RouteArgs]) error {
	release := w.engine.held.add(job.ID)
	defer release()
	tell(w.engine.routed)
	err := w.engine.store.Route(ctx, job.ID)
	if errors.Is(err, context.Canceled) {
		w.engine.interrupted.add(job.ID) // given back by Stop, as a new row: this one may still make its step
	}
	return err
}

// watchRoutes wakes the fetcher of route jobs while there is traffic of them.
func (e *Engine) watchRoutes(ctx context.Context) {
	tick := time.NewTicker(routeWatchInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.routed:
		}
		e.watchRoutesAwhile(ctx, tick.C)
	}
}

func (e *Engine) watchRoutesAwhile(ctx context.Context, tick <-chan time.Time) {
	for idle := 0; idle < routeWatchPatience; idle++ {
		select {
		case <-ctx.Done():
			return
		case <-tick:
		}
		// An outage is no news here: whoever routes tells of it.
		if waiting, err := e.store.RoutesWaiting(ctx); err == nil && waiting {
			idle = 0
			e.wakeRoutes()
		}
	}
}
