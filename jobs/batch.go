package jobs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
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

// BatchArgs name one attempt of a batch. A pump's name no batch: it cuts the next one, and goes on as that batch's first
// attempt.
type BatchArgs struct {
	Subscription int64 `json:"s"`
	Batch        int64 `json:"b,omitempty"`
	Number       int   `json:"n,omitempty"`
	Reruns       int   `json:"r,omitempty"`
}

// Kind implements river.JobArgs.
func (BatchArgs) Kind() string { return queue.BatchKind }

// batchDeliverer is the River worker of batches. Its job is one attempt of one batch: one HTTP request.
type batchDeliverer struct {
	river.WorkerDefaults[BatchArgs]
	engine *Engine
}

// Timeout implements river.Worker: the ack timeout and what it takes to cut, load and record.
func (d *batchDeliverer) Timeout(job *river.Job[BatchArgs]) time.Duration {
	return d.engine.timeout(job.Args.Subscription)
}

func (e *Engine) timeout(subscription int64) time.Duration {
	if rules, ok := e.store.Cache.Catalogue().Rules(subscription); ok {
		return rules.Policy.AckTimeout + recordAllowance
	}
	return time.Minute
}

// Work implements river.Worker; see deliverer.Work.
func (d *batchDeliverer) Work(ctx context.Context, job *river.Job[BatchArgs]) error {
	release := d.engine.active.Add(job.ID)
	defer release()
	defer d.engine.progress.begin()()
	d.engine.store.Failpoint.Reach(PointFetched)
	a := &batchAttempt{
		attempt: attempt{
			engine: d.engine, args: DeliverArgs{Subscription: job.Args.Subscription}, job: tokenOf(job.JobRow), reruns: job.Args.Reruns + job.Attempt - 1,
		},
		batchID: job.Args.Batch,
	}
	return d.engine.worked(&a.attempt, a.run(ctx))
}

// batchAttempt is an attempt that sends several events. Its work is the batch's.
type batchAttempt struct {
	attempt
	batchID int64 // 0 for a pump
	batch   *delivery.Batch
}

func (a *batchAttempt) run(ctx context.Context) error {
	switch entered, err := a.enter(ctx); {
	case err != nil:
		return err
	case !entered:
		return a.park(ctx)
	}
	defer a.leave()
	switch found, err := a.configure(ctx); {
	case err != nil:
		return err
	case !found:
		return a.cancel(ctx)
	}
	for try, pump := 1, a.batchID == 0; ; try, pump = try+1, false {
		batch, err := a.engine.store.Loader.LoadBatch(ctx, a.sub, a.job, pump)
		if err != nil {
			return err
		}
		a.batch, a.work = batch, &batch.Work
		a.holdUnvalidated()
		ready, err := a.turn(batch.Now())
		if ready && (batch.Fresh() || try == loadTries) {
			defer batch.Release()
			return a.post()
		}
		batch.Release()
		if err != nil || !ready {
			return err
		}
	}
}

// park puts on hold what found no place at its endpoint: the batch, or what the next ones would have been cut from.
func (a *batchAttempt) park(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if a.batchID == 0 {
		return a.engine.store.Loader.HoldOpen(ctx, a.args.Subscription, a.job, catalog.HoldAdmission)
	}
	return a.engine.store.Recorder.Record(context.Background(), delivery.Result{
		JobToken: a.job, BatchID: a.batchID, SubscriptionID: a.args.Subscription, Reruns: a.reruns,
		Verdict: policy.Verdict{Action: delivery.Hold, Reason: catalog.HoldAdmission},
	})
}

// cancel ends what a deleted event subscription is still owed: a publish that was under way may have committed after the deletion.
func (a *batchAttempt) cancel(ctx context.Context) error {
	if err := a.engine.store.Subscriptions.CancelPending(ctx, a.args.Subscription); err != nil {
		return err
	}
	return a.engine.store.JobRows.EndJob(ctx, a.job)
}

// turn says whether the batch may be sent now. Members whose turn has ended leave it first; a hold keeps the rest.
func (a *batchAttempt) turn(now time.Time) (ready bool, err error) {
	hold := policy.Verdict{Action: delivery.Hold, Reason: policy.Reason(a.work.Hold)}
	if a.work.Hold != "" && a.work.TimeToLiveStopped {
		return false, a.record(hold, nil)
	}
	var fates []delivery.Fate
	alone := len(a.batch.Members) == 1
	a.batch.Keep(func(m *delivery.Member) bool {
		verdict, stays := a.stays(m, alone, now)
		if !stays {
			fates = append(fates, delivery.Fate{DeliveryID: m.DeliveryID, Verdict: verdict})
		}
		return stays
	})
	switch {
	case len(a.batch.Members) == 0:
		return false, a.end(fates)
	case len(fates) > 0:
		if err := a.record(policy.Verdict{Action: delivery.Leave}, fates); err != nil {
			return false, err
		}
	}
	if a.work.Hold != "" {
		return false, a.record(hold, nil)
	}
	if at, off := a.putOffAll(now); off {
		return false, a.record(waitUntil(at), nil)
	}
	return true, nil
}

// putOffAll is putOff for the members: the next turn is at the end of the first one's time to live, if that is sooner.
func (a *batchAttempt) putOffAll(now time.Time) (first time.Time, off bool) {
	for i := range a.batch.Members {
		at, early := a.putOff(a.batch.Members[i].OwedSince, now)
		if early && (!off || at.Before(first)) {
			first, off = at, true
		}
	}
	return first, off
}

// end ends a batch that has nobody left.
func (a *batchAttempt) end(fates []delivery.Fate) error {
	verdict := policy.Verdict{Action: delivery.Cancel}
	if len(fates) > 0 && fates[len(fates)-1].Verdict.Action != policy.Retry {
		verdict = fates[len(fates)-1].Verdict
	}
	return a.record(verdict, fates)
}

// stays says whether a member may be sent with the others, and else what becomes of it. One event whose delivery kills the
// process must not take all that it was cut with along: after too many re-runs each goes alone, and has re-runs of its own.
func (a *batchAttempt) stays(m *delivery.Member, alone bool, now time.Time) (verdict policy.Verdict, stays bool) {
	switch {
	case m.EventMissing:
		return policy.Verdict{Action: policy.Drop, Reason: policy.ReasonEventMissing}, false
	case a.reruns >= maxReruns && alone:
		return a.giveUp(policy.ReasonTooManyReruns), false
	case a.reruns >= maxReruns:
		return policy.Verdict{Action: policy.Retry, At: now, Reason: policy.ReasonTooManyReruns}, false
	}
	if verdict, due := policy.Due(a.policy, a.due(m.OwedSince, now)); !due {
		return verdict, false
	}
	if a.work.Hold == catalog.HoldProbation && a.policy.EndsInProbation(a.sub.EndpointKind, a.work.Rest.Met, a.rules.DeadLetter) {
		return a.giveUp(policy.ReasonProbation), false
	}
	return policy.Verdict{}, true
}

func (a *batchAttempt) post() error {
	a.begun = true
	if err := a.partHeaders(); err != nil {
		return err
	}
	body, err := a.body()
	if err != nil {
		return err
	}
	header := a.headerOf()
	a.events, a.ids = len(a.batch.Members), firstIDs(a.batch.Members)
	a.work.Event = event.Event{ID: a.batch.Members[0].Event.ID, Type: a.batch.Members[0].Event.Type, Trace: event.TraceOf(events(a.batch.Members))} // for the report
	for i := range a.batch.Members {
		a.batch.Members[i].Event = event.Event{} // the request has its own copy
	}
	started, size := a.work.Now(), len(body)
	if a.sub.Signing != nil {
		a.sign(header, a.batch.MessageID(), started, body)
	}
	sent := endpoint.NewPayload(body, a.work.Release)
	met, late, err := a.send(header, sent)
	sent.Drop()
	if err != nil {
		return err
	}
	err = a.conclude(started, met, size)
	if late != nil {
		a.follow(late, err, func(met endpoint.Answer, verdict policy.Verdict, why string) {
			a.concludeLate(a.attempted(verdict, started, met), met, why)
		})
	}
	return err
}

// batched says which format the body has: an event subscription that took batches when they were cut may not any more.
func (a *batchAttempt) batched() bool { return a.sub.Batching() || len(a.batch.Members) > 1 }

// body writes the members' events in their order. One that cannot be written leaves, to be attempted alone: it would keep all
// the others waiting for ever.
func (a *batchAttempt) body() ([]byte, error) {
	body, err := a.write()
	if err == nil {
		return body, nil
	}
	if err := a.part(delivery.ReasonUnsendable, func(m *delivery.Member) bool {
		_, err := event.AppendDelivery(nil, &m.Event, a.sub.Topic, a.sub.EventDeliverySchema)
		return err == nil
	}); err != nil {
		return nil, err
	}
	if len(a.batch.Members) == 0 {
		return nil, errors.Join(a.end(nil), postgres.ErrNotFound)
	}
	return a.write()
}

// partHeaders keeps the members that have the first one's values of Dynamic headers: the headers may have been changed
// after the batch was cut.
func (a *batchAttempt) partHeaders() error {
	if !a.sub.Headers.HasDynamic() {
		return nil
	}
	values := func(m *delivery.Member) string {
		view := catalog.EventView(a.sub.Topic, &m.Event)
		return a.sub.Headers.DynamicValues(&view, a.engine.options.MaxHeaderBytes)
	}
	first := values(&a.batch.Members[0])
	return a.part(delivery.ReasonHeaderValue, func(m *delivery.Member) bool { return values(m) == first })
}

// part lets members leave the batch before its request. Each is attempted alone.
func (a *batchAttempt) part(reason policy.Reason, stays func(*delivery.Member) bool) error {
	gone := a.batch.Keep(stays)
	if len(gone) == 0 {
		return nil
	}
	fates := make([]delivery.Fate, len(gone))
	for i := range gone {
		fates[i] = delivery.Fate{
			DeliveryID: gone[i].DeliveryID, Verdict: policy.Verdict{Action: policy.Retry, At: a.work.Now(), Reason: reason},
		}
	}
	return a.record(policy.Verdict{Action: delivery.Leave}, fates)
}

func (a *batchAttempt) write() ([]byte, error) {
	body, err := event.Body(nil, events(a.batch.Members), a.sub.Topic, a.sub.EventDeliverySchema, a.batched())
	if err != nil {
		return nil, fmt.Errorf("write the body of batch %d: %w", a.batch.ID, err)
	}
	return body, nil
}

func events(members []delivery.Member) []*event.Event {
	list := make([]*event.Event, len(members))
	for i := range members {
		list[i] = &members[i].Event
	}
	return list
}

// headerOf is a single delivery's header where the batch is of one event. What differs from event to event, the system id
// and the data version, is told only there.
func (a *batchAttempt) headerOf() http.Header {
	if len(a.batch.Members) > 1 {
		h := a.batchHeader(true, &a.batch.Members[0].Event)
		setTrace(h, event.TraceOf(events(a.batch.Members)))
		return h
	}
	a.work.SystemID, a.work.Event = a.batch.Members[0].SystemID, a.batch.Members[0].Event
	return a.header()
}

// conclude lets the policy decide about each member, and records what it decided.
func (a *batchAttempt) conclude(started time.Time, met endpoint.Answer, size int) error {
	now := a.work.Now()
	a.learn(met)
	judged := a.judged(started, now, met)
	verdicts := make([]policy.Verdict, len(a.batch.Members))
	for i := range a.batch.Members {
		judged.OwedSince = a.batch.Members[i].OwedSince
		verdicts[i] = policy.Decide(a.policy, judged)
	}
	verdicts = a.judgeMembersAges(judged, verdicts)
	verdict, apart := together(verdicts)
	result := a.attempted(verdict, started, met)
	result.Bytes, result.Fates = size, a.fates(verdicts, apart)
	if err := a.engine.store.Recorder.Record(context.Background(), result); err != nil {
		return err
	}
	a.report(&result, met, now, false)
	return nil
}

// judgeMembersAges is judgeAges where a member has expired.
func (a *batchAttempt) judgeMembersAges(judged policy.Attempt, verdicts []policy.Verdict) []policy.Verdict {
	if !slices.ContainsFunc(verdicts, func(v policy.Verdict) bool { return v.Why.Rule == policy.RuleExpired }) {
		return verdicts
	}
	ids := make([]int64, len(a.batch.Members))
	for i := range a.batch.Members {
		ids[i] = a.batch.Members[i].DeliveryID
	}
	return a.judgeAges(judged, ids, verdicts)
}

func (a *batchAttempt) fates(verdicts []policy.Verdict, apart []int) []delivery.Fate {
	fates := make([]delivery.Fate, len(apart))
	for i, n := range apart {
		fates[i] = delivery.Fate{DeliveryID: a.batch.Members[n].DeliveryID, Verdict: verdicts[n]}
	}
	return fates
}

// together makes one verdict of the members': all or none was delivered, and the rest is sent again at the latest of their
// times. Apart are those that do not go along: whose time to live or retry window ends before that time, and, as each
// becomes a row of its own, those that become dead letters.
func together(verdicts []policy.Verdict) (batch policy.Verdict, apart []int) {
	batch = verdicts[len(verdicts)-1]
	for _, v := range verdicts {
		if v.Action == policy.Retry && (batch.Action != policy.Retry || v.At.After(batch.At)) {
			batch = v
		}
	}
	for i, v := range verdicts {
		if v.Action == policy.DeadLetter || v.Action != batch.Action || v.Reason != batch.Reason || !v.At.Equal(batch.At) {
			apart = append(apart, i)
		}
	}
	return batch, apart
}

// attempted and record are as for a single delivery, in the batch's name.
func (a *batchAttempt) attempted(verdict policy.Verdict, started time.Time, met endpoint.Answer) delivery.Result {
	r := a.named(a.attempt.attempted(verdict, started, met))
	r.FirstEvent = a.batch.Members[0].SystemID
	return r
}

func (a *batchAttempt) record(verdict policy.Verdict, fates []delivery.Fate) error {
	result := a.named(a.result(verdict))
	result.Fates = fates
	return a.engine.store.Recorder.Record(context.Background(), result)
}

func (a *batchAttempt) named(r delivery.Result) delivery.Result {
	r.BatchID, r.BatchMade, r.Events = a.batch.ID, a.batch.CreatedAt, len(a.batch.Members)
	return r
}
