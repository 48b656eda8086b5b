package jobs

import (
	"context"
	"errors"
	"time"

	"github.com/riverqueue/river"

	"postrider/jobs/queue"
)

// routeWorkers is how many route jobs one node takes up at once. They only wait: the store makes the deliveries of all
// that wait together in one transaction. So small routes need many workers: 20,000 of one delivery each took 2.5 s with
// 500 workers and 3.6 s with 200.
const routeWorkers = 500

// routePollInterval is the net under the notification that each stored route sends.
const routePollInterval = time.Second

// RouteArgs name a route: a publish whose deliveries are made after it was answered.
type RouteArgs struct {
	Route int64 `json:"route"`
}

// Kind implements river.JobArgs.
func (RouteArgs) Kind() string { return queue.RouteKind }

// routeWorker is the River worker of route jobs. Its job is one step of a route: up to 10,000 deliveries.
type routeWorker struct {
	river.WorkerDefaults[RouteArgs]
	engine *Engine
}

// Timeout implements river.Worker: none. A step that the database refuses is tried again for as long as the process
// lives.
func (w *routeWorker) Timeout(*river.Job[RouteArgs]) time.Duration { return -1 }

// Work implements river.Worker.
func (w *routeWorker) Work(ctx context.Context, job *river.Job[RouteArgs]) error {
	return w.engine.route(ctx, job.ID)
}

func (e *Engine) route(ctx context.Context, jobID int64) error {
	release := e.active.Add(jobID)
	defer release()
	err := e.parts.Publisher.Route(ctx, jobID)
	if errors.Is(err, context.Canceled) {
		e.interrupted.Add(jobID) // given back by Stop, as a new row: this one may still make its step
	}
	return err
}
