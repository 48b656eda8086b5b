package jobs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
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

// maxReruns bounds how often one attempt is made again after crashes and other failures of ours: an event whose delivery
// kills the process, or whose stored body cannot be sent, must not do so for ever. River would discard its job in the end.
const maxReruns = 20

// beginPause is how long an attempt waits that could not begin because the database did not answer or results could not be
// recorded. It is no rerun: at 20 reruns an outage of half an hour would give up events that were never tried.
const beginPause = 2 * time.Second

// loadTries: a look at the holds that is old when it arrives is taken again. A database that is always as slow must not keep everything waiting.
const loadTries = 3

// DeliverArgs name one delivery attempt. Ids only: the body is read when the attempt begins.
type DeliverArgs struct {
	Delivery     int64 `json:"d"`
	Subscription int64 `json:"s"`
	Number       int   `json:"n"`
	Reruns       int   `json:"r,omitempty"`
}

// Kind implements river.JobArgs.
func (DeliverArgs) Kind() string { return queue.DeliverKind }

// Failpoints of a delivery attempt: the job was fetched, the request was sent, the response was read.
const (
	PointFetched  = "fetched"
	PointSent     = "sent"
	PointAnswered = "answered"
)

// deliverer is the River worker. Its job is one delivery attempt: one HTTP request.
type deliverer struct {
	river.WorkerDefaults[DeliverArgs]
	engine *Engine
}

// Timeout implements river.Worker: none. Every wait here has a bound of its own (the gate, loading, the ack timeout), but for the
// one that must not: until results can be recorded. River's would cost a goroutine and two timers for each attempt, a
// twenty-fifth of the service's time.
func (d *deliverer) Timeout(*river.Job[DeliverArgs]) time.Duration { return -1 }

// Work implements river.Worker. An endpoint's failure is an outcome and no error. An error means that the attempt did
// not come to an outcome: River then gives the job out again, which counts as a rerun once the attempt has begun.
func (d *deliverer) Work(ctx context.Context, job *river.Job[DeliverArgs]) error {
	release := d.engine.active.Add(job.ID)
	defer release()
	defer d.engine.progress.begin()()
	defer d.engine.handoff.Forget(job.ID)
	d.engine.store.Failpoint.Reach(PointFetched)
	a := &attempt{engine: d.engine, args: job.Args, job: tokenOf(job.JobRow), reruns: job.Args.Reruns + job.Attempt - 1}
	return d.engine.worked(a, a.run(ctx))
}

// tokenOf is the row of a job.
func tokenOf(job *rivertype.JobRow) queue.JobToken {
	return queue.JobToken{JobID: job.ID, JobMade: job.CreatedAt}
}

// worked is what River is told of a turn.
func (e *Engine) worked(a *attempt, err error) error {
	switch {
	case err == nil:
		e.ended.add(a.job.JobID) // recorded: the row is gone
	case errors.Is(err, postgres.ErrNotFound):
		e.drop(a.job, err) // finished, canceled or given to another job meanwhile: this row is nobody's token
		return nil
	case errors.Is(err, endpoint.ErrInterrupted):
		e.interrupted.Add(a.job.JobID) // put off by River's completer as a rerun, or given back by Stop where that came too late
	case !a.begun && !errors.Is(err, context.Canceled): // canceled: this node stops, and River gives the job back itself
		e.log.Warn("an attempt could not begin, trying again", "job", a.job.JobID, "delivery", a.args.Delivery, "in", beginPause, "error", err)
		return river.JobSnooze(beginPause)
	}
	return err
}

// attempt is one job's way from its row to its result.
type attempt struct {
	engine *Engine
	args   DeliverArgs
	job    queue.JobToken
	reruns int
	begun  bool // from here on a failure is a rerun: of this event, and perhaps with a request that was sent

	work   *queue.Work
	sub    *catalog.Subscription
	rules  policy.Rules
	policy *policy.Policy // that of rules
	token  string         // that its request carried; "" = none
	posted http.Header    // the headers of its request; nil = none was made
	leave  func()         // gives the place at the endpoint back, once
	events int            // of a batch
	ids    []string       // of the first few of them
}

// enter waits until results can be recorded, and takes a place at the endpoint; false where there is none to be had. Whoever entered leaves.
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

func (a *attempt) run(ctx context.Context) error {
	switch entered, err := a.enter(ctx); {
	case err != nil:
		return err
	case !entered:
		return a.park(ctx)
	}
	defer a.leave()
	work, err := a.load(ctx)
	if err != nil {
		return err
	}
	defer work.Release()
	a.work = work
	switch found, err := a.configure(ctx); {
	case err != nil:
		return err
	case !found:
		return a.cancel(ctx)
	case work.EventMissing:
		return a.record(policy.Verdict{Action: policy.Drop, Reason: policy.ReasonEventMissing})
	case a.reruns >= maxReruns:
		return a.record(a.giveUp(policy.ReasonTooManyReruns))
	}
	if verdict, due := a.turn(work.Now()); !due {
		return a.record(verdict)
	}
	return a.post()
}

// load reads the delivery, unless it came with the job.
func (a *attempt) load(ctx context.Context) (*queue.Work, error) {
	if work := a.engine.handoff.Work(a.job.JobID); work != nil {
		return work, nil
	}
	for try := 1; ; try++ {
		work, err := a.engine.store.Loader.Load(ctx, a.args.Delivery, a.args.Subscription, a.job.JobID)
		if err != nil || work.Fresh() || try == loadTries {
			return work, err
		}
		work.Release()
	}
}

// turn says whether an attempt may be made now, and else what becomes of the delivery. A hold may have begun after the
// publish, or while this job waited for its time.
func (a *attempt) turn(now time.Time) (verdict policy.Verdict, due bool) {
	hold := policy.Verdict{Action: delivery.Hold, Reason: policy.Reason(a.work.Hold)}
	if a.work.Hold != "" && a.work.TimeToLiveStopped {
		return hold, false
	}
	if verdict, due := policy.Due(a.policy, a.due(a.work.OwedSince, now)); !due {
		return verdict, false
	}
	switch {
	case a.work.Hold == catalog.HoldProbation && a.policy.EndsInProbation(a.sub.EndpointKind, a.work.Rest.Met, a.rules.DeadLetter):
		return a.giveUp(policy.ReasonProbation), false
	case a.work.Hold != "":
		return hold, false
	}
	if at, off := a.putOff(a.work.OwedSince, now); off {
		return waitUntil(at), false
	}
	return policy.Verdict{}, true
}

// due is the turn of what is pending since then.
func (a *attempt) due(owedSince, now time.Time) policy.Turn {
	return policy.Turn{
		Attempts: a.work.Attempts, OwedSince: owedSince, Now: now, Limits: a.rules.Limits, DeadLetter: a.rules.DeadLetter,
	}
}

// putOff says whether a turn that was to end what is owed since then comes too early for an attempt, and when the next one is.
func (a *attempt) putOff(owedSince, now time.Time) (at time.Time, off bool) {
	if a.work.NotBefore == nil {
		return time.Time{}, false
	}
	return a.policy.PutOff(*a.work.NotBefore, owedSince, now, a.rules.Limits)
}

// waitUntil gives the token back: the next wave makes a new one, for that time.
func waitUntil(at time.Time) policy.Verdict {
	return policy.Verdict{Action: delivery.Hold, Reason: catalog.HoldAdmission, At: at}
}

// park puts a delivery on hold that found no place at its endpoint; a later wave brings it back.
func (a *attempt) park(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return a.engine.store.Recorder.Record(context.Background(), delivery.Result{
		JobToken: a.job, DeliveryID: a.args.Delivery, SubscriptionID: a.args.Subscription, Reruns: a.reruns,
		Verdict: policy.Verdict{Action: delivery.Hold, Reason: catalog.HoldAdmission},
	})
}

// cancel ends a delivery whose event subscription was deleted.
func (a *attempt) cancel(ctx context.Context) error {
	reason, err := a.engine.store.Subscriptions.CancelReason(ctx, a.args.Subscription)
	if err != nil {
		return err
	}
	return a.record(policy.Verdict{Action: delivery.Cancel, Reason: reason})
}

// configure finds the event subscription and what holds for it; false when it was deleted.
func (a *attempt) configure(ctx context.Context) (bool, error) {
	catalogue := a.engine.store.Cache.Catalogue()
	sub, ok := catalogue.Subscription(a.args.Subscription)
	// Made on another node within the last second, or deleted; or no longer waiting for its validation, since less than a second.
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
	a.holdUnvalidated()
	if a.rules, ok = catalogue.Rules(sub.ID); !ok {
		return false, fmt.Errorf("event subscription %q of topic %q: %w", sub.Name, sub.Topic, errNoPolicy)
	}
	a.policy = a.rules.Policy
	return true, nil
}

// holdUnvalidated: an endpoint that was named after the delivery was loaded, and has not shown that it wants events, gets none. The
// endpoint and whether it was validated are of one moment, that of the catalogue.
func (a *attempt) holdUnvalidated() {
	if a.work != nil && a.work.Hold == "" && a.sub.NotValidated() {
		a.work.Hold = catalog.HoldNotValidated
	}
}

func (a *attempt) giveUp(reason policy.Reason) policy.Verdict {
	if a.rules.DeadLetter {
		return policy.Verdict{Action: policy.DeadLetter, Reason: reason}
	}
	return policy.Verdict{Action: policy.Drop, Reason: reason}
}

func (a *attempt) post() error {
	a.begun = true
	body, err := event.Body(nil, []*event.Event{&a.work.Event}, a.sub.Topic, a.sub.EventDeliverySchema, a.sub.Batching())
	if err != nil {
		return fmt.Errorf("write the body of delivery %d: %w", a.work.DeliveryID, err)
	}
	started, header := a.work.Now(), a.header()
	a.work.Event.Body = nil // the request has its own copy
	if a.sub.Signing != nil {
		a.sign(header, a.work.SystemID.String(), started, body)
	}
	sent := endpoint.NewPayload(body, a.work.Release)
	met, late, err := a.send(header, sent)
	sent.Drop()
	if err != nil {
		return err
	}
	err = a.conclude(started, met)
	if late != nil {
		a.follow(late, err, func(met endpoint.Answer, verdict policy.Verdict, why string) {
			a.concludeLate(a.attempted(verdict, started, met), met, why)
		})
	}
	return err
}

// header carries what Event Grid sends with every delivery, see docs/endpoints.md. To an event subscription that takes
// batches a delivery that goes alone is a batch of one.
func (a *attempt) header() http.Header {
	h := a.batchHeader(a.sub.Batching(), &a.work.Event)
	h.Set("Aeg-Output-Event-Id", a.work.SystemID.String())
	if a.sub.EventDeliverySchema != event.CloudEvents {
		setIfValid(h, "Aeg-Data-Version", a.work.Event.DataVersion)
	}
	setTrace(h, a.work.Event.Trace)
	return h
}

// batchHeader is what all events of a batch have in common: their Dynamic headers have the same values (partHeaders).
func (a *attempt) batchHeader(batched bool, first *event.Event) http.Header {
	h := make(http.Header, 10)
	if a.sub.Headers != nil {
		view := catalog.EventView(a.sub.Topic, first)
		a.sub.Headers.Each(&view, a.engine.options.MaxHeaderBytes, h.Set) // first: no custom header replaces one of ours
	}
	h.Set("Content-Type", event.ContentType(a.sub.EventDeliverySchema, batched))
	h.Set("Aeg-Event-Type", "Notification")
	h.Set("Aeg-Subscription-Name", strings.ToUpper(a.sub.Name))
	h.Set("Aeg-Delivery-Count", strconv.Itoa(a.work.Attempts)) // attempts made before this one
	h.Set("Aeg-Metadata-Version", event.MetadataVersion(a.sub.EventDeliverySchema))
	return h
}

// setTrace passes on the trace that the events were published in.
func setTrace(h http.Header, t event.Trace) {
	if t.Parent == "" {
		return
	}
	h.Set("Traceparent", t.Parent)
	if t.State != "" {
		h.Set("Tracestate", t.State)
	}
}

// setIfValid leaves out a publisher's text that no header can carry (control characters; RFC 9110, 5.5). net/http would
// refuse the whole request at each attempt, and the event could never be delivered.
func setIfValid(h http.Header, name, value string) {
	control := func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }
	if !strings.ContainsFunc(value, control) {
		h.Set(name, value)
	}
}

// conclude lets the policy decide and records what it decided.
func (a *attempt) conclude(started time.Time, met endpoint.Answer) error {
	now := a.work.Now()
	a.learn(met)
	judged := a.judged(started, now, met)
	verdict := policy.Decide(a.policy, judged)
	if verdict.Why.Rule == policy.RuleExpired {
		verdict = a.judgeAges(judged, []int64{a.work.DeliveryID}, []policy.Verdict{verdict})[0]
	}
	result := a.attempted(verdict, started, met)
	if err := a.engine.store.Recorder.Record(context.Background(), result); err != nil {
		return err
	}
	a.report(&result, met, now, false)
	return nil
}

// learn ends the call at the gate: recording is no load on the endpoint.
func (a *attempt) learn(met endpoint.Answer) {
	a.engine.store.Failpoint.Reach(PointAnswered)
	a.leave()
	a.engine.gate.Learn(a.sub.ID, a.policy.Classify(a.sub.EndpointKind, met.Result), met.Result)
}

// judged is what the policy decides by.
func (a *attempt) judged(started, now time.Time, met endpoint.Answer) policy.Attempt {
	first := started
	if a.work.FirstAttemptAt != nil {
		first = *a.work.FirstAttemptAt
	}
	return policy.Attempt{
		Result: met.Result, Kind: a.sub.EndpointKind, Number: a.work.Attempts + 1, SkippedMarks: a.work.SkippedMarks,
		OwedSince: a.work.OwedSince, FirstAttemptAt: first, ScheduledAt: a.work.NextAttemptAt, FinishedAt: now,
		Limits: a.rules.Limits, DeadLetter: a.rules.DeadLetter,
		HonorRetryAfter: a.policy.HonorRetryAfter, RetryAfter: a.rules.Wait(retryAfter(met.RetryAfter, now)),
		Jitter: a.engine.options.Jitter(),
	}
}

// attempted is the result of a turn that had a request.
func (a *attempt) attempted(verdict policy.Verdict, started time.Time, met endpoint.Answer) delivery.Result {
	r := a.result(verdict)
	r.Number, r.StartedAt, r.Duration, r.Timings = a.work.Attempts+1, started, met.Duration, delivery.Timings(met.Timings)
	r.Status, r.Err, r.Error = met.Result.Status, met.Result.Err, met.ErrorText
	r.Outcome = a.policy.Classify(a.sub.EndpointKind, met.Result)
	r.ResponseHeaders, r.ResponseExcerpt = met.Headers, met.Excerpt
	r.RequestHeaders = a.sentHeaders()
	if secrets := a.secrets(&r); secrets != nil {
		redact(&r, secrets)
	}
	r.FirstEvent = a.work.SystemID
	return r
}

// secrets are what this result must not be kept with. Most have nothing to look through.
func (a *attempt) secrets(r *delivery.Result) *policy.Secrets {
	if a.token == "" || r.Error == "" && len(r.ResponseHeaders) == 0 && len(r.ResponseExcerpt) == 0 {
		return a.sub.Secrets
	}
	return a.sub.Secrets.With(a.token, a.sub.Connection.OAuth2.ClientSecret)
}

// redact takes out what the endpoint, or an error that quotes it, repeats of what must not be kept.
func redact(r *delivery.Result, secrets *policy.Secrets) {
	r.Error = secrets.Redact(r.Error)
	for _, kept := range []*[]byte{&r.RequestHeaders, &r.ResponseHeaders, &r.ResponseExcerpt} {
		if len(*kept) > 0 {
			*kept = []byte(secrets.Redact(string(*kept)))
		}
	}
}

// record ends a turn that had no request.
func (a *attempt) record(verdict policy.Verdict) error {
	return a.engine.store.Recorder.Record(context.Background(), a.result(verdict))
}

func (a *attempt) result(verdict policy.Verdict) delivery.Result {
	r := delivery.Result{
		JobToken: a.job, DeliveryID: a.work.DeliveryID, SystemID: a.work.SystemID, SubscriptionID: a.work.SubscriptionID, Reruns: a.reruns, Verdict: verdict,
		DueAt: a.work.NextAttemptAt, LastHold: a.work.LastHold, Rest: a.work.Rest,
	}
	if a.policy != nil {
		r.RetryPolicy = a.policy.Name
	}
	return r
}

// retryAfter reads both forms of the header (RFC 9110, 10.2.3): seconds, or a date. 0 when absent or unreadable.
func retryAfter(value string, now time.Time) time.Duration {
	if value == "" {
		return 0
	}
	if seconds, err := strconv.Atoi(value); err == nil {
		return min(time.Duration(max(seconds, 0)), maxRetryAfter/time.Second) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(at.Sub(now), 0)
	}
	return 0
}

// maxRetryAfter keeps an absurd header from overflowing; the time to live ends the wait long before.
const maxRetryAfter = 365 * 24 * time.Hour
