package jobs

import (
	"context"
	"errors"
	"time"

	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"postrider/jobs/queue"
)

// driver is River's driver for pgx with four differences. Package queue fetches jobs. A job that runs again gets a new
// row. This process also wakes the fetchers. River does not complete jobs, whose rows are gone: those searches took a
// twelfth of PostgreSQL's time.
type driver struct {
	*riverpgxv5.Driver
	runs     *runs
	pollOnly bool
}

// GetListener implements riverdriver.Driver.
func (d driver) GetListener(p *riverdriver.GetListenenerParams) riverdriver.Listener {
	l := &listener{Listener: d.Driver.GetListener(p), wake: d.runs.Wake, arrivals: d.runs.Arrivals}
	if d.pollOnly {
		l.Listener = disconnected{l.Listener}
	}
	return l
}

// GetExecutor implements riverdriver.Driver.
func (d driver) GetExecutor() riverdriver.Executor {
	return executor{d.Driver.GetExecutor(), d.runs}
}

type executor struct {
	riverdriver.Executor
	*runs
}

// JobGetAvailable implements riverdriver.Executor. Jobs are due by the database's clock, not by River's.
func (e executor) JobGetAvailable(
	ctx context.Context, p *riverdriver.JobGetAvailableParams,
) (*riverdriver.JobGetAvailableResult, error) {
	limit, attempts := p.MaxToLock, p.Queue == queue.DeliverQueue
	if attempts {
		if limit = e.Handoff.Query(limit); limit == 0 {
			return &riverdriver.JobGetAvailableResult{}, nil
		}
	}
	fetched, err := e.JobRows.Fetch(ctx, p.Queue, p.Kind, limit)
	if err != nil {
		return nil, err
	}
	if attempts {
		e.Handoff.Fetched(len(fetched), limit)
		e.Backpressure.Fetched(fetched, limit)
	}
	return &riverdriver.JobGetAvailableResult{Jobs: fetched}, nil
}

// JobSetStateIfRunningMany implements riverdriver.Executor. It changes no row of a completed job: the statement that
// ended it has deleted its row.
//
// A job that runs again gets a new row. River would reschedule the same row, and again if the response is lost: then
// the row may already run, and two requests would be sent at once. A job that is not found runs at another node.
func (e executor) JobSetStateIfRunningMany(
	ctx context.Context, p *riverdriver.JobSetStateIfRunningManyParams,
) ([]*rivertype.JobRow, error) {
	again := deferred(p)
	if len(again) == 0 {
		return nil, nil
	}
	_, err := e.JobRows.Defer(ctx, again) // after an error, River calls again
	return nil, err
}

// deferred returns the jobs that run again: all that are not completed. No state ends a job whose row is still there.
func deferred(p *riverdriver.JobSetStateIfRunningManyParams) (again []queue.Deferred) {
	for i, state := range p.State {
		if state == rivertype.JobStateCompleted {
			continue
		}
		// River does not count a run that was snoozed before its attempt began.
		job := queue.Deferred{Job: p.ID[i], Begun: p.Attempt[i] == nil, After: rerunPause(0)}
		if at := p.ScheduledAt[i]; at != nil {
			job.After = min(max(time.Until(*at), 0), time.Minute) // both by the process's clock
		}
		again = append(again, job)
	}
	return again
}

// insertTopic is the only channel that nodes listen on. Any database login can notify any channel: on River's control
// channel it could pause queues and cancel jobs.
const insertTopic = "river_insert"

// wakeableQueues are the queues that notifications may wake.
var wakeableQueues = []string{
	queue.DeliverQueue, queue.RouteQueue, queue.HandshakeQueue, queue.ExportQueue, queue.OperationQueue,
}

func wakePayload(name string) string { return `{"queue":"` + name + `"}` }

// listener passes only wake-ups to River: those of this process and of the database, one for each queue at a time.
type listener struct {
	riverdriver.Listener
	wake     *queue.Wake
	arrivals *queue.Arrivals

	reading chan error // gets the reader's error at its end; nil = no reader runs
	stop    context.CancelFunc
}

// Listen implements riverdriver.Listener.
func (l *listener) Listen(ctx context.Context, topic string) error {
	if topic != insertTopic {
		return nil
	}
	return l.Listener.Listen(ctx, topic)
}

// Unlisten implements riverdriver.Listener.
func (l *listener) Unlisten(ctx context.Context, topic string) error {
	if topic != insertTopic {
		return nil
	}
	return l.Listener.Unlisten(ctx, topic)
}

// WaitForNotification implements riverdriver.Listener. A goroutine reads the database's notifications until ctx ends:
// restarting the read for each local wake-up would cost more than a notification.
func (l *listener) WaitForNotification(ctx context.Context) (*riverdriver.Notification, error) {
	if l.reading == nil {
		l.read()
	}
	for {
		select {
		case <-l.wake.Requested():
			if name := l.wake.Next(); name != "" {
				return &riverdriver.Notification{Topic: insertTopic, Payload: wakePayload(name)}, nil
			}
		case err := <-l.reading:
			l.reading = nil
			return nil, err
		case <-ctx.Done():
			l.stop()
			err := <-l.reading
			l.reading = nil
			return nil, errors.Join(ctx.Err(), err)
		}
	}
}

func (l *listener) read() {
	ctx, stop := context.WithCancel(context.Background())
	reading := make(chan error, 1)
	l.reading, l.stop = reading, stop
	go func() {
		defer stop()
		for {
			notification, err := l.Listener.WaitForNotification(ctx)
			if err != nil {
				reading <- err
				return
			}
			switch {
			case notification.Topic != insertTopic:
			case notification.Payload == wakePayload(queue.LockQueue):
				l.arrivals.ArrivedElsewhere()
			default:
				for _, name := range wakeableQueues {
					if notification.Payload == wakePayload(name) {
						l.wake.Request(name)
					}
				}
			}
		}
	}()
}

// disconnected is a listener that never connects: behind PgBouncer no session is kept.
type disconnected struct{ riverdriver.Listener }

// Close implements riverdriver.Listener.
func (disconnected) Close(context.Context) error { return nil }

// Connect implements riverdriver.Listener.
func (disconnected) Connect(context.Context) error { return nil }

// Listen implements riverdriver.Listener.
func (disconnected) Listen(context.Context, string) error { return nil }

// Ping implements riverdriver.Listener.
func (disconnected) Ping(context.Context) error { return nil }

// Unlisten implements riverdriver.Listener.
func (disconnected) Unlisten(context.Context, string) error { return nil }

// WaitForNotification implements riverdriver.Listener.
func (disconnected) WaitForNotification(ctx context.Context) (*riverdriver.Notification, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}
