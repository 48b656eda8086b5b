package jobs

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/riverqueue/river"

	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/internal/postgres"
	"postrider/jobs/delivery"
	"postrider/jobs/endpoint"
	"postrider/jobs/queue"
	"postrider/policy"
)

const (
	// maxReruns bounds how often one attempt is repeated after crashes and other failures of this program: an event may
	// crash the process at each delivery.
	maxReruns = 20
	// beginPause is the wait of an attempt that could not begin because the database was unavailable. It is no rerun: an
	// outage of half an hour would otherwise dead-letter events that were never attempted.
	beginPause = 2 * time.Second
	// beginTimeout bounds each step before the request.
	beginTimeout = time.Minute
	// loadTries bounds how often a work is loaded again because its holds were read too long ago: a slow database must not
	// stop delivery.
	loadTries = 3
)

// Failpoints of a delivery attempt: the job was fetched, the request was sent, the response was read.
const (
	PointFetched   = "fetched"
	PointSent      = "sent"
	PointResponded = "responded"
)

// deliverer makes delivery attempts.
type deliverer struct {
	*runs
	Admission
	Delivery
	cache         *catalog.Cache
	subscriptions *catalog.Subscriptions
	nodes         *queue.Nodes
	options       *Options
	endpoint      *endpoint.Client
	requests      context.Context //nolint:containedctx // the lifetime of requests and local attempts, which Stop cuts
	failures      *joberrors
	fail          postgres.Failpoint

	local    sync.WaitGroup // attempts of the local handoff
	era      atomic.Pointer[era]
	logLimit logLimit
}

// deliver runs a job that River has fetched: one delivery attempt, one HTTP request. An endpoint's failure is an
// outcome and no error. An error means that the attempt has no outcome: River then runs the job again, as a rerun.
func (d *deliverer) deliver(ctx context.Context, job *river.Job[queue.AttemptArgs]) error {
	ended := make(chan error, 1)
	a := &attempt{
		deliverer: d, args: job.Args, job: tokenOf(job.JobRow), due: job.ScheduledAt,
		reruns: job.Args.Reruns + job.Attempt - 1, end: func(err error) { ended <- err }, within: d.era.Load().ctx,
	}
	defer d.Active.Add(job.ID)()
	d.Handoff.Begin()
	a.start(ctx)
	err := <-ended
	pause := a.settle(err)
	if pause == 0 {
		return nil
	}
	if a.begun {
		return err // after the same pause, see retryPolicy
	}
	a.warn(notBegun, pause, err)
	return river.JobSnooze(pause)
}

// deliverLocal runs a job of the local handoff, which is active, without River: River would take a tenth of the CPU of
// the attempt. A job that runs again is deferred; if that fails, it is reclaimed as one that never arrived.
func (d *deliverer) deliverLocal(work *queue.Work) {
	args := queue.AttemptArgs{Subscription: work.SubscriptionID, Delivery: work.Members[0].DeliveryID}
	a := &attempt{deliverer: d, args: args, job: work.Job, local: work, within: d.eraOf(work)}
	a.end = func(err error) {
		defer d.local.Done()
		defer d.Active.Remove(work.Job.JobID)
		work.Release() // if it was not used
		pause := a.settle(err)
		if pause == 0 {
			return
		}
		what := "an attempt has no outcome, trying again"
		if !a.begun {
			what = notBegun
		}
		a.warn(what, pause, err)
		ctx, cancel := context.WithTimeout(d.requests, beginTimeout)
		defer cancel()
		again := queue.Deferred{Job: a.job.JobID, After: pause, Begun: a.begun}
		if _, err := d.JobRows.Defer(ctx, []queue.Deferred{again}); err != nil {
			a.warn("a job could not be deferred; a node will reclaim it", pause, err)
		}
	}
	a.start(a.within)
}

// settle ends the job of a run, or leaves it to Stop, and returns 0. If the attempt has no outcome, it returns how long
// the job waits until it runs again.
func (a *attempt) settle(err error) (pause time.Duration) {
	cut := errors.Is(err, endpoint.ErrInterrupted) || errors.Is(err, context.Canceled)
	switch {
	case err == nil: // recorded, or there was nothing to send: the row is gone
	case errors.Is(context.Cause(a.within), errReset): // the row is gone, too
	case errors.Is(err, postgres.ErrNotFound):
		a.drop(a.job, err) // the delivery has ended, or has another job
	case cut && a.begun:
		a.interrupted.Add(a.job.JobID) // Stop gives it back as a rerun
	case cut:
		a.notBegun.Add(a.job.JobID)
	case a.begun:
		return rerunPause(a.reruns)
	default:
		return beginPause
	}
	return 0
}

// attempt is the run of one job, from its row to its result.
type attempt struct {
	*deliverer
	args   queue.AttemptArgs
	job    queue.JobToken
	due    time.Time // of the job; zero in the local handoff
	reruns int
	local  *queue.Work     // of the local handoff; nil = the work is to be loaded
	within context.Context //nolint:containedctx // of the era in which it began: its end cuts the request
	begun  bool            // a failure is a rerun from now on: the request may have been sent
	leave  func()          // releases the place at the gate, once
	end    func(error)     // gets the end of the attempt, see finish
	over   atomic.Bool
	trial  atomic.Pointer[queue.Trial] // of a half-open endpoint, until it ends

	work  *queue.Work
	sub   *catalog.Subscription
	rules policy.Rules

	trace event.Trace // of the request's events
}

// start runs the attempt on its own goroutine: its call may stay open after the attempt has ended.
func (a *attempt) start(ctx context.Context) {
	a.fail.Reach(PointFetched)
	go func() { a.finish(a.recovered(func() error { return a.run(ctx) })) }()
}

// finish ends the attempt; only the first call counts.
func (a *attempt) finish(err error) {
	if a.over.CompareAndSwap(false, true) {
		a.Handoff.End()
		a.end(err)
	}
}

// recovered turns a panic into an error.
func (a *attempt) recovered(step func() error) error {
	return a.failures.recovered(a.job.JobID, a.args.Kind(), step)
}

const notBegun = "an attempt could not begin, trying again"

// warn logs that an attempt is made again, and why.
func (a *attempt) warn(what string, in time.Duration, err error) {
	a.log.Warn(what, "job", a.job.JobID, "delivery", a.args.Delivery, "batch", a.args.Batch,
		"subscription", a.args.Subscription, "in", in, "error", err, "sqlstate", postgres.SQLState(err))
}

// run makes the attempt, and returns when its call has ended. These are its gates, in their order:
//
//  1. Results can be recorded: an attempt that cannot be recorded would be repeated.
//  2. The job has permits if there is a rate limit. It has none if the limit was set after its release.
//  3. It is the job's turn within the limit. It waits for up to half a second, and not at the next gate, where it would
//     take the place of another request.
//  4. There is a place at the gate, which bounds the requests to an endpoint and spaces those to one that throttles.
//  5. The endpoint is not closed. All others wait for the trial of a half-open one, so it must have its place by now.
//  6. A batch cutter cuts its batch. While it waited, more events may have come.
//  7. The work is loaded and due. Bodies take memory, and the due check needs recent holds and times: so this is last.
//
// A job that does not pass returns its work to hold, and its permits.
func (a *attempt) run(ctx context.Context) error {
	if err := a.Recorder.WaitRecording(ctx); err != nil {
		return err
	}
	if a.args.Permits == 0 && !a.args.Exempt && a.Traffic.Limited(a.args.Subscription) {
		return a.hold(ctx, catalog.HoldRateLimited)
	}
	inTime, err := a.space(ctx)
	if err != nil {
		return err
	}
	if !inTime {
		return a.hold(ctx, catalog.HoldRateLimited)
	}
	if !a.Gate.Enter(ctx, a.args.Subscription, a.limit(a.args.Subscription)) {
		if a.args.Permits > 0 && !a.args.Exempt {
			return a.hold(ctx, catalog.HoldRateLimited)
		}
		return a.hold(ctx, catalog.HoldAdmission)
	}
	a.leave = sync.OnceFunc(func() { a.Gate.Leave(a.args.Subscription) })
	defer a.leave()
	if queue.Pause(ctx, a.Gate.Spacing(a.args.Subscription)); ctx.Err() != nil {
		return ctx.Err()
	}
	open, err := a.enterEndpoint(ctx)
	if err != nil {
		return err
	}
	if !open {
		return a.hold(ctx, catalog.HoldRateLimited)
	}
	defer a.endTrial(false, 0) // unless it has ended
	if a.args.CutsBatch() {
		if cut, err := a.cut(ctx); err != nil || !cut {
			return err
		}
	}
	for try := 1; ; try++ {
		work, err := a.load(ctx)
		if err != nil {
			return err
		}
		a.work = work
		recent := func() bool { return work.Fresh() || try >= loadTries }
		ready := true
		if recent() {
			ready, err = a.begin(ctx)
		}
		if err == nil && ready && recent() {
			defer work.Release()
			return a.post()
		}
		work.Release()
		if err != nil || !ready {
			return err
		}
	}
}

// space waits for the work's turn within its rate limits on this node; false if that is too late. Last attempts do not
// wait, nor do batch cutters: those of one node become one, and the batches of the others wait.
func (a *attempt) space(ctx context.Context) (inTime bool, err error) {
	if a.args.Permits == 0 || a.args.Exempt || a.args.CutsBatch() {
		return true, nil
	}
	wait, inTime := a.Traffic.Space(a.args.Subscription, a.args.Permits)
	queue.Pause(ctx, wait)
	return inTime, ctx.Err()
}

// enterEndpoint reports whether the endpoint is open for the work; last attempts and probes do not wait for it. Of a
// half-open endpoint, this may be the trial.
func (a *attempt) enterEndpoint(ctx context.Context) (open bool, err error) {
	if a.args.Exempt {
		return true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, beginTimeout)
	defer cancel()
	open, trial, err := a.Closed.Enter(ctx, a.args.Subscription)
	a.trial.Store(trial)
	return open, err
}

// endTrial opens the endpoint, or closes it again for so long, if the request is its trial. If that fails, another
// request tries when this one could no longer take.
func (a *attempt) endTrial(opens bool, wait time.Duration) (ended bool) {
	trial := a.trial.Swap(nil)
	if trial == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), beginTimeout)
	defer cancel()
	if err := a.Closed.EndTrial(ctx, trial, opens, wait); err != nil {
		a.log.Warn("an endpoint stays closed until its next trial", "subscription", a.args.Subscription,
			"error", err, "sqlstate", postgres.SQLState(err))
	}
	return true
}

// hold puts the work on hold because the gate is full, or because it has no permit of the rate limit; a later refill
// releases it. A batch cutter holds all open deliveries of the event subscription. The permits of the job are returned.
// If that fails they are lost: later deliveries wait longer.
func (a *attempt) hold(ctx context.Context, hold string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	permits := a.args.Permits
	if a.args.CutsBatch() {
		return within(ctx, beginTimeout, func(ctx context.Context) error {
			return a.Loader.HoldOpen(ctx, a.args.Subscription, a.job, hold, permits)
		})
	}
	err := a.Recorder.RecordDecision(context.Background(), delivery.Decision{
		JobToken: a.job, DeliveryID: a.args.Delivery, BatchID: a.args.Batch, SubscriptionID: a.args.Subscription,
		Reruns: a.reruns, Verdict: policy.Verdict{Action: delivery.Hold, Reason: policy.Reason(hold)},
	})
	if err != nil || permits == 0 {
		return err
	}
	err = within(context.Background(), beginTimeout, func(ctx context.Context) error {
		return a.Loader.ReturnPermits(ctx, a.args.Subscription, permits)
	})
	if err != nil {
		a.log.Warn("the next deliveries wait longer for their rate limit", "subscription", a.args.Subscription,
			"permits", permits, "error", err, "sqlstate", postgres.SQLState(err))
	}
	return nil
}

// cut cuts the batch that this job is going to send; false if there is none, and the job is gone. If the event
// subscription was deleted, it cancels its pending deliveries: a publish in progress may have committed after the
// deletion.
func (a *attempt) cut(ctx context.Context) (cut bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, beginTimeout)
	defer cancel()
	found, err := a.configure(ctx)
	switch {
	case err != nil:
		return false, err
	case found && a.sub.Pulled():
		return false, a.hold(ctx, catalog.HoldAdmission)
	case found:
		return a.Loader.Cut(ctx, a.sub, a.job, a.args.Permits)
	}
	if err := a.subscriptions.CancelPending(ctx, a.args.Subscription); err != nil {
		return false, err
	}
	return false, a.JobRows.EndJob(ctx, a.job)
}

// load reads the work, unless it came by the local handoff a moment ago.
func (a *attempt) load(ctx context.Context) (*queue.Work, error) {
	if work := a.local; work != nil {
		if a.local = nil; work.Fresh() {
			return work, nil
		}
		work.Release()
	}
	ctx, cancel := context.WithTimeout(ctx, beginTimeout)
	defer cancel()
	return a.Loader.Load(ctx, a.args, a.job)
}

// begin reports whether the work may be sent now, and otherwise records what happens to it.
func (a *attempt) begin(ctx context.Context) (ready bool, err error) {
	switch found, err := a.configure(ctx); {
	case err != nil:
		return false, err
	case !found:
		return false, a.cancel(ctx)
	case a.sub.Pulled():
		return false, a.hold(ctx, catalog.HoldAdmission) // and then available, see Releaser.MakeAvailable
	}
	// An endpoint that was set after the work was loaded, and is not validated, gets no events.
	if a.work.Hold == "" && a.sub.NotValidated() {
		a.work.Hold = catalog.HoldNotValidated
	}
	verdict, fates, ready := a.checkDue(a.work.Now())
	if ready && len(fates) == 0 {
		return true, nil
	}
	return ready, a.record(verdict, fates)
}

// cancel ends the deliveries of a deleted event subscription.
func (a *attempt) cancel(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, beginTimeout)
	defer cancel()
	reason, err := a.subscriptions.CancelReason(ctx, a.args.Subscription)
	if err != nil {
		return err
	}
	return a.record(policy.Verdict{Action: delivery.Cancel, Reason: reason}, nil)
}

// post sends the work and records the outcome.
func (a *attempt) post() error {
	if err := a.within.Err(); err != nil {
		return err
	}
	a.begun = true
	if problem := a.sub.FormProblem; problem != nil {
		return a.conclude(a.work.Now(), unusable(problem), 0)
	}
	if left, err := a.separateForm(); err != nil || !left {
		return err
	}
	if left, err := a.separateHeaders(); err != nil || !left {
		return err
	}
	written, err := a.content()
	if err != nil || written.body == nil {
		return err
	}
	a.trace = event.TraceOf(a.work.Events())
	started, size := a.work.Now(), len(written.body)
	var header http.Header
	if written.message == nil {
		header = a.header(started, written)
	}
	for i := range a.work.Members { // the request has its own copy
		a.work.Members[i].Event.Body = nil
		if i >= loggedEvents {
			a.work.Members[i].Event = event.Event{}
		}
	}
	sent := endpoint.NewPayload(written.body, a.work.Release)
	done := func(resp endpoint.Response, err error) error {
		sent.Drop()
		if err == nil {
			err = a.recovered(func() error { return a.conclude(started, resp, size) })
		}
		a.finish(err)
		return err
	}
	if most, too := written.tooLarge(); too {
		return done(tooLarge(size, most), nil)
	}
	if written.message != nil {
		return a.endpoint.SendMessage(&endpoint.MessageRequest{
			Within: a.within, Destination: a.sub.Destination, Connection: &a.sub.Connection, Message: written.message,
			AckTimeout: time.Duration(a.rules.Policy.AckTimeout),
		}, done)
	}
	r := &endpoint.Request{
		Within: a.within, URL: a.sub.EndpointURL, Header: header, Body: sent, Connection: &a.sub.Connection,
		AckTimeout: time.Duration(a.rules.Policy.AckTimeout),
		Window:     time.Duration(a.rules.Policy.LateResponseWindow),
	}
	if written.form != nil {
		sign(r, written.form, header, written.body, started)
	}
	a.endpoint.Send(r, done, func(resp endpoint.Response) { a.concludeLate(started, resp) })
	return nil
}

// conclude records the policy's decision about each member.
func (a *attempt) conclude(started time.Time, resp endpoint.Response, size int) error {
	now := a.work.Now()
	a.fail.Reach(PointResponded)
	facts := a.facts(started, now, resp)
	a.adapt(facts, resp)
	a.leave() // recording does not occupy the endpoint
	alone := a.attemptedAlone(resp)
	if alone {
		facts.Result = policy.Result{}
		resp.ErrorText += "; its events are attempted alone"
	}
	verdicts := a.verdicts(facts)
	verdict, separate := combine(verdicts)
	if alone {
		separate = allButOne(len(verdicts), separate)
	}
	var fates []delivery.Fate
	for _, n := range separate {
		fates = append(fates, delivery.Fate{DeliveryID: a.work.Members[n].DeliveryID, Verdict: verdicts[n]})
	}
	result := delivery.Attempt{
		Decision: a.decision(verdict, fates), Request: a.request(started, resp), Bytes: size, DueAt: a.work.NextAttemptAt,
		LastHold: a.work.LastHold, Throttled: verdict.Why.Throttled, Probations: a.work.Probations,
	}
	result.Error = a.secrets(resp).Redact(resp.ErrorText)
	if err := a.Recorder.Record(context.Background(), result); err != nil {
		return err
	}
	a.report(&result.Request, verdict, resp, now, false)
	return nil
}

// loggedEvents is how many events of a batch a line of the log names.
const loggedEvents = 10
