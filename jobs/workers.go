package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"postrider/internal/operator"
	"postrider/internal/postgres"
	"postrider/jobs/endpoint"
	"postrider/jobs/queue"
)

const (
	// A fetch takes at most the free workers, at most once per cooldown: 1,000 workers at 2 ms never bound the rate,
	// and a single job waits 2 ms at most.
	fetchCooldown = 2 * time.Millisecond
	// rareCooldown is for queues with few jobs: a flood of wake-ups costs at most 50 fetches a second.
	rareCooldown = 20 * time.Millisecond
	// Notifications may be lost (a fetch can be notified just before the commit); the poll finds those jobs.
	fetchPollInterval = 100 * time.Millisecond
	// The polls of an idle node were half of its queries.
	idlePollInterval = 250 * time.Millisecond
	// Without notifications only polls find jobs. Measured: a single event reached its endpoint 15 ms after the response
	// to its publish (2 ms with notifications), and an idle node took 3 % of a core of the database (1 %).
	pollOnlyInterval = 20 * time.Millisecond
	// rarePollOnly is the same for handshakes and operations.
	rarePollOnly = 100 * time.Millisecond

	// routeWorkers is how many route jobs one node runs at once. They only wait: the publisher creates the deliveries of
	// all waiting routes in one transaction. 20,000 routes of one delivery each took 2.5 s with 500 workers and 3.6 s with
	// 200.
	routeWorkers = 500
	// rarePollInterval finds jobs whose notification was lost.
	rarePollInterval = 5 * time.Second
	// handshakeWorkers is how many requests of handshakes one node has in flight, each at most 30 s.
	handshakeWorkers = 200
	// exportWorkers is how many files of dead letters one node writes at once. Each is in memory: 8 MiB of events, twice.
	exportWorkers = 4
	// operationWorkers is how many operations one node works on. Each is one transaction at a time.
	operationWorkers = 8

	// The pauses between tries to record a result. They end only with the process: a repeated request would reach an
	// endpoint that has responded, and a file would be written twice.
	recordMinPause = 100 * time.Millisecond
	recordMaxPause = 5 * time.Second

	dropTimeout = 5 * time.Second
)

// ownedArgs are the arguments of the jobs that are not attempts: the id of a handshake or of an export. Routes and
// operations are found by their job.
type ownedArgs struct {
	kind      string
	Handshake int64 `json:"h"`
	Export    int64 `json:"x"`
}

// Kind implements river.JobArgs.
func (a ownedArgs) Kind() string { return a.kind }

// limit is this node's share of an event subscription's maxConcurrentDeliveries, at least 1; 0 = no limit. Nodes share
// it evenly.
func (d *deliverer) limit(subscription int64) int {
	sub, ok := d.cache.Snapshot().Subscription(subscription)
	if !ok || sub.MaxConcurrentDeliveries == nil {
		return 0
	}
	return max(*sub.MaxConcurrentDeliveries/d.nodes.WorkerNodes(), 1)
}

// runs are the jobs that a node runs, and how their runs end.
type runs struct {
	Queue
	node        string
	log         *slog.Logger
	interrupted *queue.JobSet // jobs whose attempt was cut by Stop
	notBegun    *queue.JobSet // jobs that Stop cut before their attempt began
}

// run runs a job that is not a delivery attempt. Stop gives it back, as a new row, if it was cut: it may still end.
func (r *runs) run(job int64, work func() error) error {
	defer r.Active.Add(job)()
	err := work()
	if errors.Is(err, endpoint.ErrInterrupted) || errors.Is(err, context.Canceled) {
		r.interrupted.Add(job)
	}
	return err
}

// notLoaded ends the run of a job whose row could not be read. If the database is unavailable, the job is deferred.
func (r *runs) notLoaded(job *river.Job[ownedArgs], what string, err error) error {
	if errors.Is(err, postgres.ErrNotFound) {
		r.drop(tokenOf(job.JobRow), err) // the row has ended, or has another job
		return nil
	}
	if errors.Is(err, context.Canceled) {
		return err
	}
	r.log.Warn(what+" could not be read, trying again", "job", job.ID, "in", beginPause, "error", err)
	return river.JobSnooze(beginPause)
}

// drop deletes a job that is no row's token, unless it is known to be gone. The id alone is not enough for that, see
// queue.JobToken; River would use it. If the database does not respond, the job is reclaimed later.
func (r *runs) drop(job queue.JobToken, known error) {
	if errors.Is(known, queue.ErrJobGone) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), dropTimeout)
	defer cancel()
	if err := r.JobRows.EndJob(ctx, job); err != nil {
		r.log.Warn("a job that has nothing to do could not be ended", "job", job.JobID, "error", err)
	}
}

// untilRecorded repeats record until it succeeds or the process stops. Repeating is safe: without the job row it
// changes nothing.
func (r *runs) untilRecorded(ctx context.Context, what string, id int64, record func() error) error {
	for wait := recordMinPause; ; wait = min(2*wait, recordMaxPause) {
		err := record()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r.log.Warn(what+" could not be recorded, trying again", "id", id, "in", wait, "error", err)
		queue.Pause(ctx, wait)
	}
}

func tokenOf(job *rivertype.JobRow) queue.JobToken {
	return queue.JobToken{JobID: job.ID, CreatedAt: job.CreatedAt}
}

// operate makes one step of an operation. It waits until the next step is due and then wakes the fetchers of all nodes:
// the poll alone would be too slow for the rate.
func (r *runs) operate(ctx context.Context, by *operator.Operator, job int64) error {
	until, more, err := by.Operate(ctx, job)
	if err != nil || !more {
		return err
	}
	if queue.Pause(ctx, until); ctx.Err() == nil {
		r.Notifier.RequestFetch(queue.OperationQueue)
	}
	return nil
}

// retryPolicy is for jobs whose attempt began and had no outcome, such as those cut by a stop: 1 s, 2 s, 4 s, … 60 s.
// Retries of deliveries follow the retry policy instead.
type retryPolicy struct{}

// NextRetry implements river.ClientRetryPolicy.
func (retryPolicy) NextRetry(job *rivertype.JobRow) time.Time {
	var args queue.AttemptArgs
	_ = json.Unmarshal(job.EncodedArgs, &args)
	return time.Now().Add(rerunPause(args.Reruns + job.Attempt - 1))
}

func rerunPause(reruns int) time.Duration {
	return min(time.Second<<min(max(reruns, 0), 6), time.Minute)
}

// joberrors logs the errors of jobs. River does not store them: the job runs again, with a new row.
type joberrors struct {
	river.MiddlewareDefaults
	log *slog.Logger
}

// Work runs a job.
func (m *joberrors) Work(ctx context.Context, job *rivertype.JobRow, run func(context.Context) error) error {
	err := m.recovered(job.ID, job.Kind, func() error { return run(ctx) })
	var snooze *rivertype.JobSnoozeError
	if err == nil || errors.As(err, &snooze) || errors.Is(err, errPanic) {
		return err
	}
	level := slog.LevelWarn
	if errors.Is(err, context.Canceled) || errors.Is(err, endpoint.ErrInterrupted) {
		level = slog.LevelDebug
	}
	m.log.Log(ctx, level, "a job ended with an error", "job", job.ID, "kind", job.Kind, "error", err,
		"sqlstate", postgres.SQLState(err))
	return err
}

// errPanic is the error of a job that panicked; the log has the cause.
var errPanic = errors.New("the job panicked")

// recovered turns a panic into an error, as River does, but logs the panic's text and stack.
func (m *joberrors) recovered(id int64, kind string, run func() error) (err error) {
	defer func() {
		cause := recover()
		if cause == nil {
			return
		}
		m.log.Error("a job panicked", "job", id, "kind", kind, "error", fmt.Sprint(cause), "stack", string(debug.Stack()))
		err = errPanic
	}()
	return run()
}
