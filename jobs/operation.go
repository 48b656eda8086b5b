package jobs

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/riverqueue/river"

	"postrider/jobs/queue"
)

// operationWorkers is how many operations one node works at. Each is one transaction at a time, and they share the
// database with everything else.
const operationWorkers = 8

// operationPollInterval is the net under notifications. Who starts an operation wakes the fetchers, and so does whoever
// has made a step.
const operationPollInterval = 5 * time.Second

func (e *Engine) operationPoll() time.Duration {
	if e.options.PollOnly {
		return handshakePollOnly
	}
	return operationPollInterval
}

// OperationArgs name an operation.
type OperationArgs struct {
	Operation uuid.UUID `json:"o"`
}

// Kind implements river.JobArgs.
func (OperationArgs) Kind() string { return queue.OperationKind }

// operationWorker is the River worker of operations. Its job is one step.
type operationWorker struct {
	river.WorkerDefaults[OperationArgs]
	engine *Engine
}

// Timeout implements river.Worker: none. A step has a limit of its own, and one that the database does not answer is
// tried again.
func (w *operationWorker) Timeout(*river.Job[OperationArgs]) time.Duration { return -1 }

// Work implements river.Worker. It stays until the next step is due and wakes whoever makes it: the poll alone would be
// too slow for the rate.
func (w *operationWorker) Work(ctx context.Context, job *river.Job[OperationArgs]) error {
	release := w.engine.active.Add(job.ID)
	until, more, err := w.engine.parts.Operator.Operate(ctx, job.ID)
	release()
	if err := w.engine.settled(job.ID, err); err != nil || !more {
		return err
	}
	if pause(ctx, until); ctx.Err() == nil {
		w.engine.parts.Notifier.PokeQueue(ctx, queue.OperationQueue)
	}
	return nil
}
