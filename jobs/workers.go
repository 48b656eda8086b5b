package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"postrider/jobs/queue"
)

const (
	// A fetch takes at most the free workers, at most once per cooldown: 1,000 workers at 2 ms never bound the rate,
	// and a single job waits 2 ms at most.
	fetchCooldown = 2 * time.Millisecond
	// rareCooldown is for queues with few jobs: a flood of wake-ups for them costs 50 fetches a second.
	rareCooldown = 20 * time.Millisecond
	// Notifications may be lost (a fetch can be notified just before the commit); the poll finds those jobs.
	fetchPollInterval = 100 * time.Millisecond
	// The polls of an idle node were half of its queries.
	idlePollInterval = 250 * time.Millisecond
	// Without notifications, jobs are found by polls alone. River adds up to 10 ms. Measured: a single event reached its
	// endpoint 15 ms after its publish was answered (2 ms with notifications), and an idle node took 3 % of a core of the
	// database (1 %).
	pollOnlyInterval = 20 * time.Millisecond
	// rarePollOnly is the same for handshakes and operations.
	rarePollOnly = 100 * time.Millisecond

	// routeWorkers is how many route jobs one node runs at once. They only wait: the publisher creates the deliveries of
	// all routes that wait in one transaction. So small routes need many workers: 20,000 of one delivery each took 2.5 s
	// with 500 workers and 3.6 s with 200.
	routeWorkers = 500
	// routePollInterval finds a route whose notification was lost.
	routePollInterval = time.Second
	// handshakeWorkers is how many requests of handshakes one node has in flight. They mostly wait for an endpoint, at
	// most 30 s.
	handshakeWorkers = 200
	// handshakePollInterval finds a handshake whose notification was lost, and is how late a further request may be.
	handshakePollInterval = time.Second
	// exportWorkers is how many files of dead letters one node writes at once. Each is in memory: 8 MiB of events, twice.
	exportWorkers = 4
	// operationWorkers is how many operations one node works on. Each is one transaction at a time.
	operationWorkers = 8
	// operationPollInterval finds a step whose notification was lost.
	operationPollInterval = 5 * time.Second
)

// poll is how often jobs are searched for: an interval with notifications, and another without.
func (e *Engine) poll(interval, pollOnly time.Duration) time.Duration {
	if e.options.PollOnly {
		return pollOnly
	}
	return interval
}

func (e *Engine) queues() map[string]river.QueueConfig {
	return map[string]river.QueueConfig{
		queue.DeliverQueue: {MaxWorkers: e.parts.Handoff.Workers()},
		queue.RouteQueue:   {MaxWorkers: routeWorkers, FetchPollInterval: routePollInterval},
		queue.HandshakeQueue: {
			MaxWorkers: handshakeWorkers, FetchPollInterval: e.poll(handshakePollInterval, rarePollOnly),
			FetchCooldown: rareCooldown,
		},
		queue.ExportQueue: {MaxWorkers: exportWorkers, FetchPollInterval: exportInterval, FetchCooldown: rareCooldown},
		queue.OperationQueue: {
			MaxWorkers: operationWorkers, FetchPollInterval: e.poll(operationPollInterval, rarePollOnly),
			FetchCooldown: rareCooldown,
		},
	}
}

// ownedArgs are the arguments of the jobs that a row owns: the id of a handshake or of an export. Routes and operations
// are found by their job.
type ownedArgs struct {
	kind      string
	Handshake int64 `json:"h"`
	Export    int64 `json:"x"`
}

// Kind implements river.JobArgs.
func (a ownedArgs) Kind() string { return a.kind }

// workers are the functions that run the jobs of each kind.
func (e *Engine) workers() *river.Workers {
	workers := river.NewWorkers()
	for _, kind := range []queue.AttemptArgs{{Delivery: 1}, {Batch: 1}} {
		river.AddWorkerArgs(workers, kind, river.WorkFunc(e.deliver))
	}
	for kind, work := range map[string]func(context.Context, *river.Job[ownedArgs]) error{
		queue.RouteKind:     func(ctx context.Context, job *river.Job[ownedArgs]) error { return e.route(ctx, job.ID) },
		queue.HandshakeKind: e.handshake,
		queue.ExportKind:    e.exportJob,
		queue.OperationKind: e.operate,
	} {
		river.AddWorkerArgs(workers, ownedArgs{kind: kind}, river.WorkFunc(work))
	}
	return workers
}

// tokenOf is the row of a job.
func tokenOf(job *rivertype.JobRow) queue.JobToken {
	return queue.JobToken{JobID: job.ID, CreatedAt: job.CreatedAt}
}

// route makes one step of a route: up to 10,000 deliveries.
func (e *Engine) route(ctx context.Context, jobID int64) error {
	release := e.parts.Active.Add(jobID)
	defer release()
	err := e.parts.Publisher.Route(ctx, jobID)
	if errors.Is(err, context.Canceled) {
		e.interrupted.Add(jobID) // given back by Stop, as a new row: this one may still make its step
	}
	return err
}

// handshake makes one request of a handshake. An endpoint that does not respond is a result and no error.
func (e *Engine) handshake(ctx context.Context, job *river.Job[ownedArgs]) error {
	return workOwned(ctx, e, "a handshake", job.Args.Handshake, tokenOf(job.JobRow), e.parts.Handshakes.Load, e.shake)
}

// exportJob tries once to write one file. A location that rejects it is a result and no error.
func (e *Engine) exportJob(ctx context.Context, job *river.Job[ownedArgs]) error {
	return workOwned(ctx, e, "an export", job.Args.Export, tokenOf(job.JobRow), e.parts.Exports.LoadExport, e.export)
}

// operate makes one step of an operation. It waits until the next step is due and wakes the fetchers of all nodes: the
// poll alone would be too slow for the rate.
func (e *Engine) operate(ctx context.Context, job *river.Job[ownedArgs]) error {
	release := e.parts.Active.Add(job.ID)
	until, more, err := e.parts.Operator.Operate(ctx, job.ID)
	release()
	if err := e.settled(job.ID, err); err != nil || !more {
		return err
	}
	if pause(ctx, until); ctx.Err() == nil {
		e.parts.Notifier.RequestFetch(queue.OperationQueue)
	}
	return nil
}

// retryPolicy is for jobs whose attempt began and had no outcome, such as those cut by a stop: 1 s, 2 s, 4 s, … 60 s.
// It never decides about a delivery; the policy table does.
type retryPolicy struct{}

// NextRetry implements river.ClientRetryPolicy.
func (retryPolicy) NextRetry(job *rivertype.JobRow) time.Time {
	var args queue.AttemptArgs
	_ = json.Unmarshal(job.EncodedArgs, &args)
	exponent := min(max(args.Reruns+job.Attempt-1, 0), 6)
	return time.Now().Add(min(time.Second<<exponent, time.Minute))
}
