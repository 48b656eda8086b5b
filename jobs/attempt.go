package jobs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

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

// loadTries bounds how often a work is loaded again because its holds were read too long ago. A database that is always
// slow must not stop delivery.
const loadTries = 3

// Failpoints of a delivery attempt: the job was fetched, the request was sent, the response was read.
const (
	PointFetched  = "fetched"
	PointSent     = "sent"
	PointAnswered = "answered"
)

// deliverer is the River worker. Its job is one delivery attempt: one HTTP request.
type deliverer struct {
	river.WorkerDefaults[queue.AttemptArgs]
	engine *Engine
}

// Timeout implements river.Worker: none. Every wait has its own bound (the gate, loading, the ack timeout), except the
// one that must not have one: until results can be recorded. River's would cost a goroutine and two timers for each
// attempt, 4 % of the service's time.
func (d *deliverer) Timeout(*river.Job[queue.AttemptArgs]) time.Duration { return -1 }

// Work implements river.Worker. An endpoint's failure is an outcome and no error. An error means that the attempt has
// no outcome: River then runs the job again, which counts as a rerun once the attempt has begun.
func (d *deliverer) Work(ctx context.Context, job *river.Job[queue.AttemptArgs]) error {
	release := d.engine.active.Add(job.ID)
	defer release()
	defer d.engine.progress.begin()()
	defer d.engine.handoff.Forget(job.ID)
	d.engine.store.Failpoint.Reach(PointFetched)
	a := &attempt{
		engine: d.engine, args: job.Args, job: tokenOf(job.JobRow), reruns: job.Args.Reruns + job.Attempt - 1,
	}
	return d.engine.worked(a, a.run(ctx))
}

// tokenOf is the row of a job.
func tokenOf(job *rivertype.JobRow) queue.JobToken {
	return queue.JobToken{JobID: job.ID, JobMade: job.CreatedAt}
}

// worked returns to River how an attempt went.
func (e *Engine) worked(a *attempt, err error) error {
	switch {
	case err == nil:
		e.ended.add(a.job.JobID) // recorded: the row is gone
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

	work   *queue.Work
	sub    *catalog.Subscription
	rules  policy.Rules
	policy *policy.Policy // that of rules

	events int         // how many events the request carries
	trace  event.Trace // that they share
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
		a.work = work
		ready, err := a.begin(ctx)
		if ready && err == nil && (work.Fresh() || try == loadTries) {
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
	if err := a.engine.store.Recorder.WaitRecording(ctx); err != nil {
		return false, err
	}
	if !a.engine.gate.Enter(ctx, a.args.Subscription, a.engine.limit(a.args.Subscription)) {
		return false, nil
	}
	a.leave = sync.OnceFunc(func() { a.engine.gate.Leave(a.args.Subscription) })
	return true, nil
}

// park puts on hold what found no place at its endpoint; a later wave releases it. For a batch cutter that is what the
// next batches would have been cut from.
func (a *attempt) park(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if a.args.CutsBatch() {
		return a.engine.store.Loader.HoldOpen(ctx, a.args.Subscription, a.job, catalog.HoldAdmission)
	}
	return a.engine.store.Recorder.Record(context.Background(), delivery.Result{
		JobToken: a.job, DeliveryID: a.args.Delivery, BatchID: a.args.Batch, SubscriptionID: a.args.Subscription,
		Reruns: a.reruns, Verdict: policy.Verdict{Action: delivery.Hold, Reason: catalog.HoldAdmission},
	})
}

// cut cuts the batch that this job is going to send. If the event subscription was deleted, it cancels what is pending:
// a publish that was in progress may have committed after the deletion.
func (a *attempt) cut(ctx context.Context) error {
	found, err := a.configure(ctx)
	switch {
	case err != nil:
		return err
	case found:
		return a.engine.store.Loader.Cut(ctx, a.sub, a.job)
	}
	if err := a.engine.store.Subscriptions.CancelPending(ctx, a.args.Subscription); err != nil {
		return err
	}
	return a.engine.store.JobRows.EndJob(ctx, a.job)
}

// load reads the work, unless it came with the job.
func (a *attempt) load(ctx context.Context) (*queue.Work, error) {
	if work := a.engine.handoff.Work(a.job.JobID); work != nil {
		return work, nil
	}
	return a.engine.store.Loader.Load(ctx, a.args, a.job)
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
	reason, err := a.engine.store.Subscriptions.CancelReason(ctx, a.args.Subscription)
	if err != nil {
		return err
	}
	return a.record(policy.Verdict{Action: delivery.Cancel, Reason: reason}, nil)
}

// configure finds the event subscription and its rules; false if it was deleted.
func (a *attempt) configure(ctx context.Context) (bool, error) {
	catalogue := a.engine.store.Cache.Catalogue()
	sub, ok := catalogue.Subscription(a.args.Subscription)
	// Created on another node within the last second, or deleted; or validated within the last second.
	if !ok || sub.NotValidated() && (a.work == nil || a.work.Hold == "") {
		if err := a.engine.store.Cache.Reload(ctx); err != nil {
			return false, err
		}
		catalogue = a.engine.store.Cache.Catalogue()
		if sub, ok = catalogue.Subscription(a.args.Subscription); !ok {
			return false, nil
		}
	}
	a.sub = sub
	if a.rules, ok = catalogue.Rules(sub.ID); !ok {
		return false, fmt.Errorf("event subscription %q of topic %q: %w", sub.Name, sub.Topic, errNoPolicy)
	}
	a.policy = a.rules.Policy
	return true, nil
}

// turn decides whether an attempt may be made now (ready), and otherwise what becomes of the work: a hold may have
// begun after the publish, or while the job waited for its time. Members whose turn has ended have their own fates and
// leave the work.
func (a *attempt) turn(now time.Time) (verdict policy.Verdict, fates []delivery.Fate, ready bool) {
	hold := policy.Verdict{Action: delivery.Hold, Reason: policy.Reason(a.work.Hold)}
	if a.work.Hold != "" && a.work.TimeToLiveStopped {
		return hold, nil, false
	}
	alone := len(a.work.Members) == 1
	a.work.Keep(func(m *queue.Member) bool {
		verdict, stays := a.stays(m, alone, now)
		if !stays {
			fates = append(fates, delivery.Fate{DeliveryID: m.DeliveryID, Verdict: verdict})
		}
		return stays
	})
	if len(a.work.Members) == 0 {
		return ended(fates), fates, false
	}
	if a.work.Hold != "" {
		return hold, fates, false
	}
	if at, off := a.putOff(now); off {
		return policy.Verdict{Action: delivery.Hold, Reason: catalog.HoldAdmission, At: at}, fates, false
	}
	return policy.Verdict{Action: delivery.Leave}, fates, true
}

// stays reports whether a member may be sent with the others, and otherwise what becomes of it. One event whose
// delivery kills the process must not take its whole batch along: after too many reruns each is sent alone, and has its
// own reruns.
func (a *attempt) stays(m *queue.Member, alone bool, now time.Time) (verdict policy.Verdict, stays bool) {
	switch {
	case m.EventMissing:
		return policy.Verdict{Action: policy.Drop, Reason: policy.ReasonEventMissing}, false
	case a.reruns >= maxReruns && alone:
		return a.abandon(policy.ReasonTooManyReruns), false
	case a.reruns >= maxReruns:
		return policy.Verdict{Action: policy.Retry, At: now, Reason: policy.ReasonTooManyReruns}, false
	}
	verdict, due := policy.Due(a.policy, policy.Turn{
		Attempts: a.work.Attempts, OwedSince: m.OwedSince, Now: now, Limits: a.rules.Limits, DeadLetter: a.rules.DeadLetter,
	})
	if !due {
		return verdict, false
	}
	if a.work.Hold == catalog.HoldProbation &&
		a.policy.EndsInProbation(a.sub.EndpointKind, a.work.Rest.Met, a.rules.DeadLetter) {
		return a.abandon(policy.ReasonProbation), false
	}
	return policy.Verdict{}, true
}

// abandon ends a delivery without success.
func (a *attempt) abandon(reason policy.Reason) policy.Verdict {
	if a.rules.DeadLetter {
		return policy.Verdict{Action: policy.DeadLetter, Reason: reason}
	}
	return policy.Verdict{Action: policy.Drop, Reason: reason}
}

// ended is the verdict on a work that has no members left.
func ended(fates []delivery.Fate) policy.Verdict {
	if len(fates) > 0 && fates[len(fates)-1].Verdict.Action != policy.Retry {
		return fates[len(fates)-1].Verdict
	}
	return policy.Verdict{Action: delivery.Cancel}
}

// putOff reports whether a turn that was to end deliveries comes too early for an attempt, and when the next one is: at
// the end of the first member's time to live, if that is sooner. Until then the job's row is not needed; the wave of
// that time inserts another.
func (a *attempt) putOff(now time.Time) (first time.Time, off bool) {
	if a.work.NotBefore == nil {
		return time.Time{}, false
	}
	for i := range a.work.Members {
		at, early := a.policy.PutOff(*a.work.NotBefore, a.work.Members[i].OwedSince, now, a.rules.Limits)
		if early && (!off || at.Before(first)) {
			first, off = at, true
		}
	}
	return first, off
}
