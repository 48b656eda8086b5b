package jobs

import (
	"bytes"
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"
	"time"

	"postrider/internal/catalog"
	"postrider/internal/endpointconf"
	"postrider/jobs/delivery"
	"postrider/jobs/endpoint"
	"postrider/policy"
)

// facts are the input of the policy's decision, except TimeToLiveSince, which differs from member to member, and
// Throttled.
func (a *attempt) facts(started, now time.Time, resp endpoint.Response) policy.Attempt {
	first := started
	if a.work.FirstAttemptAt != nil {
		first = *a.work.FirstAttemptAt
	}
	facts := policy.Attempt{
		Result: resp.Result, Kind: a.sub.EndpointKind, Number: a.work.Attempts + 1, SkippedOffsets: a.work.SkippedOffsets,
		FirstAttemptAt: first, ScheduledAt: a.work.NextAttemptAt, FinishedAt: now,
		Limits: a.rules.Limits, DeadLetter: a.rules.DeadLetter,
		HonorRetryAfter: a.rules.Policy.HonorRetryAfter, RetryAfter: a.rules.Wait(retryAfter(resp.RetryAfter, now)),
		Jitter: a.engine.options.Jitter(),
	}
	if a.work.LastHold == catalog.HoldRateLimited && a.due.Sub(a.work.NextAttemptAt) >= leastWait {
		facts.WaitedFor = a.waitedFor()
	}
	return facts
}

// closedAlone is how long 429 without Retry-After closes an endpoint to which no other request is in flight.
const closedAlone = time.Second

// adapt changes the concurrency by a response, and closes or opens the endpoint. It sets Throttled.
func (a *attempt) adapt(facts *policy.Attempt, resp endpoint.Response) {
	parts, wait := &a.engine.parts, facts.RetryAfter
	if !facts.HonorRetryAfter {
		wait = 0
	}
	if facts.Throttled = a.rules.Throttles(resp.Result, wait > 0); !facts.Throttled {
		parts.Gate.Observe(a.sub.ID, a.rules.Policy.Classify(a.sub.EndpointKind, resp.Result), resp.Result, resp.Duration)
		a.endTrial(true, 0)
		return
	}
	wait = min(wait, cmp.Or(a.rules.Policy.RetryAfterCap, wait))
	alone := parts.Gate.ObserveThrottled(a.sub.ID, resp.Duration)
	if wait == 0 && (alone || a.trial.Load() != nil) {
		wait = a.rules.Wait(closedAlone)
	}
	if !a.endTrial(false, wait) && wait > 0 {
		parts.Closed.Close(a.sub, wait)
	}
}

// combine combines the members' verdicts: the batch is retried at the latest of their times. separate are the members
// with their own fates: those that end before that time, and dead letters, because each becomes its own row.
func combine(verdicts []policy.Verdict) (all policy.Verdict, separate []int) {
	all = verdicts[len(verdicts)-1]
	for _, v := range verdicts {
		if v.Action == policy.Retry && (all.Action != policy.Retry || v.At.After(all.At)) {
			all = v
		}
	}
	for i, v := range verdicts {
		if v.Action == policy.DeadLetter || v.Action != all.Action || v.Reason != all.Reason || !v.At.Equal(all.At) {
			separate = append(separate, i)
		}
	}
	return all, separate
}

// checkExpired repeats the decisions that end a delivery because it expired, with its current age: a pause that stops
// the time to live may have begun or ended during the request.
func (a *attempt) checkExpired(facts policy.Attempt, verdicts []policy.Verdict) {
	expired := func(v policy.Verdict) bool { return v.Why.Rule == policy.RuleExpired }
	if !slices.ContainsFunc(verdicts, expired) {
		return
	}
	ids := make([]int64, len(verdicts))
	for i := range ids {
		ids[i] = a.work.Members[i].DeliveryID
	}
	current, err := a.engine.parts.Loader.TimeToLiveSince(context.Background(), ids, facts.FinishedAt)
	if err != nil {
		a.engine.log.Warn("it could not be checked whether a delivery has expired; its next due check decides",
			"subscription", a.sub.ID, "error", err)
	}
	for i, v := range verdicts {
		since, found := current[ids[i]]
		switch {
		case !expired(v):
		case err != nil:
			verdicts[i] = a.checkAgain(facts)
		case found:
			facts.TimeToLiveSince = since
			verdicts[i] = policy.Decide(a.rules.Policy, facts)
		}
	}
}

// checkAgain leaves the decision to the next due check, at once. A delivery that has not expired is then deferred to
// the time that it would have now.
func (a *attempt) checkAgain(facts policy.Attempt) policy.Verdict {
	facts.TimeToLiveSince = facts.FinishedAt
	v := policy.Decide(a.rules.Policy, facts)
	if v.At.After(v.NotBefore) {
		v.NotBefore = v.At
	}
	v.At = facts.FinishedAt
	return v
}

// record records a due check without a request, or members that leave the work before the request.
func (a *attempt) record(verdict policy.Verdict, fates []delivery.Fate) error {
	result := a.result(verdict)
	result.Fates = fates
	if slices.ContainsFunc(fates, func(f delivery.Fate) bool { return f.Verdict.Why.Rule == policy.RuleExpired }) {
		if limit := a.waitedFor(); limit != "" {
			result.Error = policy.ExpiredWaiting(limit)
		}
	}
	return a.engine.parts.Recorder.Record(context.Background(), result)
}

// leastWait is the shortest wait for a rate limit that an attempt mentions.
const leastWait = time.Second

// waitedFor is the rate limit that the work waited for at last; "" = none. What was on hold for another reason, such as
// a pause, waits for the limit after the end of that.
func (a *attempt) waitedFor() string {
	if a.work.LastHold == "" || a.work.Hold != "" && a.work.LastHold != catalog.HoldRateLimited {
		return ""
	}
	rate, limited := a.engine.parts.Cache.Snapshot().Rate(a.args.Subscription)
	if !limited {
		return ""
	}
	return rate.String()
}

func (a *attempt) result(verdict policy.Verdict) delivery.Result {
	r := delivery.Result{
		JobToken: a.job, DeliveryID: a.args.Delivery, SubscriptionID: a.work.SubscriptionID, Reruns: a.reruns,
		Verdict: verdict,
		DueAt:   a.work.NextAttemptAt, LastHold: a.work.LastHold, Probation: a.work.Probation,
		BatchID: a.work.BatchID, BatchCreatedAt: a.work.BatchCreatedAt, Events: len(a.work.Members),
	}
	if a.rules.Policy != nil {
		r.RetryPolicy = a.rules.Policy.Name
	}
	return r
}

// attempted is the result of a request.
func (a *attempt) attempted(verdict policy.Verdict, started time.Time, resp endpoint.Response) delivery.Result {
	r := a.result(verdict)
	r.Number, r.StartedAt, r.Duration = a.work.Attempts+1, started, resp.Duration
	r.Timings = delivery.Timings(resp.Timings)
	r.Status, r.Err, r.Error = resp.Result.Status, resp.Result.Err, resp.ErrorText
	r.Outcome, r.Throttled = a.rules.Policy.Classify(a.sub.EndpointKind, resp.Result), verdict.Why.Throttled
	r.ResponseHeaders, r.ResponseExcerpt = resp.Headers, resp.Excerpt
	r.RequestHeaders = a.sentHeaders()
	r.FirstEvent = a.work.Members[0].SystemID
	if secrets := a.secrets(&r); secrets != nil {
		redact(&r, secrets)
	}
	return r
}

const (
	// maxSentBytes is how much of a request's headers an attempt keeps.
	maxSentBytes = 2048
	hidden       = "***"
)

// sentHeaders are the request's headers as the attempt stores them, without the values of headers that authenticate.
// They cost a delivery 9 % more WAL and 3 % more CPU (docs/internals/decisions.md).
func (a *attempt) sentHeaders() []byte {
	if a.posted == nil {
		return nil
	}
	shown := a.posted.Clone()
	hide := func(name string) {
		if shown.Get(name) != "" {
			shown.Set(name, hidden)
		}
	}
	for _, name := range []string{"Authorization", "Proxy-Authorization", "Cookie", "Webhook-Signature"} {
		hide(name)
	}
	for i := range a.sub.DeliveryAttributes {
		if a.sub.DeliveryAttributes[i].IsSecret {
			hide(a.sub.DeliveryAttributes[i].Name)
		}
	}
	out := bytes.NewBuffer(make([]byte, 0, 512)) // enough for most
	_ = shown.Write(out)                         // a bytes.Buffer cannot fail
	return out.Bytes()[:min(out.Len(), maxSentBytes)]
}

// secrets must not be stored with this result. Most results have no text to search.
func (a *attempt) secrets(r *delivery.Result) *endpointconf.Secrets {
	if a.token == "" || r.Error == "" && len(r.ResponseHeaders) == 0 && len(r.ResponseExcerpt) == 0 {
		return a.sub.Secrets
	}
	return a.sub.Secrets.With(a.token, a.sub.Connection.OAuth2.ClientSecret)
}

// redact removes secrets that the endpoint, or an error that quotes it, repeats.
func redact(r *delivery.Result, secrets *endpointconf.Secrets) {
	r.Error = secrets.Redact(r.Error)
	for _, kept := range []*[]byte{&r.RequestHeaders, &r.ResponseHeaders, &r.ResponseExcerpt} {
		if len(*kept) > 0 {
			*kept = []byte(secrets.Redact(string(*kept)))
		}
	}
}

// maxRetryAfter keeps a huge header from overflowing; the time to live ends the wait long before.
const maxRetryAfter = 365 * 24 * time.Hour

// retryAfter reads both forms of the header (RFC 9110, 10.2.3): seconds, or a date. 0 if absent or unreadable.
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
