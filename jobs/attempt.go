package jobs

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/riverqueue/river"

	"postrider/catalog"
	"postrider/event"
	"postrider/jobs/delivery"
	"postrider/jobs/endpoint"
	"postrider/jobs/queue"
	"postrider/policy"
	"postrider/postgres"
)

// maxReruns bounds how often one attempt is repeated after crashes and other failures of this program: an event whose
// delivery kills the process, or whose stored body cannot be sent, must not do so for ever.
const maxReruns = 20

// beginPause is how long an attempt waits that could not begin because the database was unavailable or results could
// not be recorded. It does not count as a rerun: at 20 reruns an outage of half an hour would dead-letter events that
// were never attempted.
const beginPause = 2 * time.Second

// beginTimeout bounds each step before the request.
const beginTimeout = time.Minute

// loadTries bounds how often a work is loaded again because its holds were read too long ago. A database that is always
// slow must not stop delivery.
const loadTries = 3

// Failpoints of a delivery attempt: the job was fetched, the request was sent, the response was read.
const (
	PointFetched  = "fetched"
	PointSent     = "sent"
	PointAnswered = "answered"
)

// deliver is one delivery attempt: one HTTP request. An endpoint's failure is an outcome and no error. An error means
// that the attempt has no outcome: River then runs the job again, which counts as a rerun once the attempt has begun.
func (e *Engine) deliver(ctx context.Context, job *river.Job[queue.AttemptArgs]) error {
	release := e.parts.Active.Add(job.ID)
	defer release()
	defer e.progress.begin()()
	defer e.parts.Handoff.Forget(job.ID)
	e.parts.Failpoint.Reach(PointFetched)
	a := &attempt{engine: e, args: job.Args, job: tokenOf(job.JobRow), reruns: job.Args.Reruns + job.Attempt - 1}
	return e.worked(a, a.run(ctx))
}

// worked returns to River how an attempt went.
func (e *Engine) worked(a *attempt, err error) error {
	switch {
	case err == nil:
		e.ended.Add(a.job.JobID) // recorded: the row is gone
	case errors.Is(err, postgres.ErrNotFound):
		e.drop(a.job, err) // ended, canceled or given to another job meanwhile: this row is no delivery's token
		return nil
	case errors.Is(err, endpoint.ErrInterrupted):
		e.interrupted.Add(a.job.JobID) // River's completer defers it as a rerun, or Stop gives it back if that is too late
	case !a.begun && !errors.Is(err, context.Canceled): // canceled: this node stops, and River gives the job back itself
		e.log.Warn("an attempt could not begin, trying again", "job", a.job.JobID, "delivery", a.args.Delivery,
			"batch", a.args.Batch, "subscription", a.args.Subscription, "in", beginPause, "error", err)
		return river.JobSnooze(beginPause)
	}
	return err
}

// attempt is one job's way from its row to its result.
type attempt struct {
	engine *Engine
	args   queue.AttemptArgs
	job    queue.JobToken
	reruns int
	begun  bool   // from here on a failure is a rerun: of these events, and perhaps with a request that was sent
	leave  func() // gives the place at the endpoint back, once

	work  *queue.Work
	sub   *catalog.Subscription
	rules policy.Rules

	trace  event.Trace // that the events of the request share
	token  string      // that the request carried; "" = none
	posted http.Header // the headers of the request; nil = none was made
}

// run takes a place at the endpoint, loads the work, and sends it if its turn has come.
func (a *attempt) run(ctx context.Context) error {
	switch entered, err := a.enter(ctx); {
	case err != nil:
		return err
	case !entered:
		return a.park(ctx)
	}
	defer a.leave()
	if a.args.CutsBatch() {
		if err := a.cut(ctx); err != nil {
			return err
		}
	}
	for try := 1; ; try++ {
		work, err := a.load(ctx)
		if err != nil {
			return err
		}
		if !work.Fresh() && try < loadTries {
			work.Release()
			continue
		}
		a.work = work
		ready, err := a.begin(ctx)
		if ready && err == nil && (work.Fresh() || try >= loadTries) {
			defer work.Release()
			return a.post()
		}
		work.Release()
		if err != nil || !ready {
			return err
		}
	}
}

// enter waits until results can be recorded, and takes a place at the endpoint; false if it has none free. After true
// the caller must leave.
func (a *attempt) enter(ctx context.Context) (entered bool, err error) {
	if err := a.engine.parts.Recorder.WaitRecording(ctx); err != nil {
		return false, err
	}
	if !a.engine.parts.Gate.Enter(ctx, a.args.Subscription, a.engine.limit(a.args.Subscription)) {
		return false, nil
	}
	a.leave = sync.OnceFunc(func() { a.engine.parts.Gate.Leave(a.args.Subscription) })
	return true, nil
}

// park puts on hold what found no place at its endpoint; a later wave releases it. A batch cutter holds all open
// deliveries of the event subscription.
func (a *attempt) park(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if a.args.CutsBatch() {
		ctx, cancel := context.WithTimeout(ctx, beginTimeout)
		defer cancel()
		return a.engine.parts.Loader.HoldOpen(ctx, a.args.Subscription, a.job, catalog.HoldAdmission)
	}
	return a.engine.parts.Recorder.Record(context.Background(), delivery.Result{
		JobToken: a.job, DeliveryID: a.args.Delivery, BatchID: a.args.Batch, SubscriptionID: a.args.Subscription,
		Reruns: a.reruns, Verdict: policy.Verdict{Action: delivery.Hold, Reason: catalog.HoldAdmission},
	})
}

// cut cuts the batch that this job is going to send. If the event subscription was deleted, it cancels what is pending:
// a publish that was in progress may have committed after the deletion.
func (a *attempt) cut(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, beginTimeout)
	defer cancel()
	found, err := a.configure(ctx)
	switch {
	case err != nil:
		return err
	case found:
		return a.engine.parts.Loader.Cut(ctx, a.sub, a.job)
	}
	if err := a.engine.parts.Subscriptions.CancelPending(ctx, a.args.Subscription); err != nil {
		return err
	}
	return a.engine.parts.JobRows.EndJob(ctx, a.job)
}

// load reads the work, unless it came with the job.
func (a *attempt) load(ctx context.Context) (*queue.Work, error) {
	if work := a.engine.parts.Handoff.Work(a.job.JobID); work != nil {
		return work, nil
	}
	ctx, cancel := context.WithTimeout(ctx, beginTimeout)
	defer cancel()
	return a.engine.parts.Loader.Load(ctx, a.args, a.job)
}

// begin reports whether the work may be sent now, and records what becomes of it otherwise.
func (a *attempt) begin(ctx context.Context) (ready bool, err error) {
	switch found, err := a.configure(ctx); {
	case err != nil:
		return false, err
	case !found:
		return false, a.cancel(ctx)
	}
	// An endpoint that was set after the work was loaded, and is not validated, gets no events. The endpoint and its
	// validation are of one moment, that of the catalogue.
	if a.work.Hold == "" && a.sub.NotValidated() {
		a.work.Hold = catalog.HoldNotValidated
	}
	verdict, fates, ready := a.turn(a.work.Now())
	if ready && len(fates) == 0 {
		return true, nil
	}
	return ready, a.record(verdict, fates)
}

// cancel ends the deliveries of a deleted event subscription.
func (a *attempt) cancel(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, beginTimeout)
	defer cancel()
	reason, err := a.engine.parts.Subscriptions.CancelReason(ctx, a.args.Subscription)
	if err != nil {
		return err
	}
	return a.record(policy.Verdict{Action: delivery.Cancel, Reason: reason}, nil)
}

// post sends the work and records the outcome.
func (a *attempt) post() error {
	a.begun = true
	if err := a.separateHeaders(); err != nil {
		return err
	}
	body, err := a.body()
	if err != nil {
		return err
	}
	a.trace = event.TraceOf(a.work.Events())
	started, size, header := a.work.Now(), len(body), a.header()
	if a.sub.SigningKeys != nil {
		a.sign(header, a.work.MessageID(), started, body)
	}
	for i := range a.work.Members { // the request has its own copy
		a.work.Members[i].Event.Body = nil
		if i >= loggedEvents {
			a.work.Members[i].Event = event.Event{}
		}
	}
	sent := endpoint.NewPayload(body, a.work.Release)
	met, late, err := a.send(header, sent)
	sent.Drop()
	if err != nil {
		return err
	}
	err = a.conclude(started, met, size)
	if late != nil {
		a.follow(late, err, started)
	}
	return err
}

// conclude lets the policy decide about each member, and records what it decided.
func (a *attempt) conclude(started time.Time, met endpoint.Answer, size int) error {
	now := a.work.Now()
	a.engine.parts.Failpoint.Reach(PointAnswered)
	a.leave() // recording is no load on the endpoint
	a.engine.parts.Gate.Learn(a.sub.ID, a.rules.Policy.Classify(a.sub.EndpointKind, met.Result), met.Result)
	facts := a.facts(started, now, met)
	verdicts := make([]policy.Verdict, len(a.work.Members))
	for i := range a.work.Members {
		facts.TimeToLiveSince = a.work.Members[i].TimeToLiveSince
		verdicts[i] = policy.Decide(a.rules.Policy, facts)
	}
	a.checkExpired(facts, verdicts)
	verdict, apart := together(verdicts)
	result := a.attempted(verdict, started, met)
	result.Bytes = size
	for _, n := range apart {
		result.Fates = append(result.Fates, delivery.Fate{DeliveryID: a.work.Members[n].DeliveryID, Verdict: verdicts[n]})
	}
	if err := a.engine.parts.Recorder.Record(context.Background(), result); err != nil {
		return err
	}
	a.report(&result, met, now, false)
	return nil
}
