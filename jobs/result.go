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

// facts are the input of the policy's decision, except TimeToLiveSince, which differs from member to member.
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
		Jitter: a.options.Jitter(),
	}
	facts.Throttled = a.rules.Throttles(resp.Result, facts.HonorRetryAfter && facts.RetryAfter > 0)
	if a.work.LastHold == catalog.HoldRateLimited && a.due.Sub(a.work.NextAttemptAt) >= leastWait {
		facts.WaitedFor = a.waitedFor()
	}
	return facts
}

// closedAlone is how long 429 without Retry-After closes an endpoint to which no other request is in flight.
const closedAlone = time.Second

// adapt changes the concurrency by a response, and closes or opens the endpoint.
func (a *attempt) adapt(facts policy.Attempt, resp endpoint.Response) {
	if !facts.Throttled {
		a.Gate.Observe(a.sub.ID, a.rules.Policy.Classify(a.sub.EndpointKind, resp.Result), resp.Result, resp.Duration)
		a.endTrial(true, 0)
		return
	}
	wait := time.Duration(0)
	if facts.HonorRetryAfter {
		wait = min(facts.RetryAfter, cmp.Or(time.Duration(a.rules.Policy.RetryAfterCap), facts.RetryAfter))
	}
	alone := a.Gate.ObserveThrottled(a.sub.ID, resp.Duration)
	if wait == 0 && (alone || a.trial.Load() != nil) {
		wait = a.rules.Wait(closedAlone)
	}
	if !a.endTrial(false, wait) && wait > 0 {
		a.Closed.Close(a.sub, wait)
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

// verdicts decides about each member. Whether one has expired is decided with its current age: a pause that stops the
// time to live may have begun or ended during the request.
func (a *attempt) verdicts(facts policy.Attempt) []policy.Verdict {
	decide := func(since time.Time) policy.Verdict {
		facts.TimeToLiveSince = since
		return policy.Decide(a.rules.Policy, facts)
	}
	expired := func(v policy.Verdict) bool { return v.Why.Rule == policy.RuleExpired }
	verdicts, ids := make([]policy.Verdict, len(a.work.Members)), make([]int64, len(a.work.Members))
	for i := range a.work.Members {
		verdicts[i], ids[i] = decide(a.work.Members[i].TimeToLiveSince), a.work.Members[i].DeliveryID
	}
	if !slices.ContainsFunc(verdicts, expired) {
		return verdicts
	}
	current, err := a.Loader.TimeToLiveSince(context.Background(), ids, facts.FinishedAt)
	if err != nil {
		a.log.Warn("it could not be checked whether a delivery has expired; its next due check decides",
			"subscription", a.sub.ID, "error", err)
	}
	for i, v := range verdicts {
		since, found := current[ids[i]]
		switch {
		case !expired(v):
		case err != nil:
			verdicts[i] = a.checkAgain(facts)
		case found:
			verdicts[i] = decide(since)
		}
	}
	return verdicts
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
	decision := a.decision(verdict, fates)
	if slices.ContainsFunc(fates, func(f delivery.Fate) bool { return f.Verdict.Why.Rule == policy.RuleExpired }) {
		if limit := a.waitedFor(); limit != "" {
			decision.Error = policy.ExpiredWaiting(limit)
		}
	}
	return a.Recorder.RecordDecision(context.Background(), decision)
}

// leastWait is the shortest wait for a rate limit that an attempt mentions.
const leastWait = time.Second

// waitedFor is the rate limit that the work waited for at last; "" = none. What was on hold for another reason, such as
// a pause, waits for the limit after the end of that.
func (a *attempt) waitedFor() string {
	if a.work.LastHold == "" || a.work.Hold != "" && a.work.LastHold != catalog.HoldRateLimited {
		return ""
	}
	rate, limited := a.cache.Snapshot().Rate(a.args.Subscription)
	if !limited {
		return ""
	}
	return rate.String()
}

func (a *attempt) decision(verdict policy.Verdict, fates []delivery.Fate) delivery.Decision {
	d := delivery.Decision{
		JobToken: a.job, DeliveryID: a.args.Delivery, BatchID: a.work.BatchID, SubscriptionID: a.work.SubscriptionID,
		Events: len(a.work.Members), Reruns: a.reruns, Verdict: verdict, Fates: fates,
	}
	if a.rules.Policy != nil {
		d.RetryPolicy = a.rules.Policy.Name
	}
	return d
}

// request describes a request and its response, without secrets that the endpoint repeats.
func (a *attempt) request(started time.Time, resp endpoint.Response) delivery.Request {
	secrets := a.secrets(resp)
	redacted := func(text []byte) []byte {
		if secrets == nil || len(text) == 0 {
			return text
		}
		return []byte(secrets.Redact(string(text)))
	}
	return delivery.Request{
		Number: a.work.Attempts + 1, StartedAt: started, Duration: resp.Duration, Timings: delivery.Timings(resp.Timings),
		Status: resp.Result.Status, Err: resp.Result.Err,
		Outcome:        a.rules.Policy.Classify(a.sub.EndpointKind, resp.Result),
		RequestHeaders: redacted(a.sentHeaders(resp.Sent)), ResponseHeaders: redacted(resp.Headers),
		ResponseExcerpt: redacted(resp.Excerpt), FirstEvent: a.work.Members[0].SystemID,
	}
}

const (
	// maxSentBytes is how much of a request's headers an attempt keeps.
	maxSentBytes = 2048
	hidden       = "***"
)

// signatureHeaders have the signatures of requests to services of Azure.
var signatureHeaders = []string{"Authorization", "Servicebusauthorization"}

// sentHeaders are the request's headers as the attempt stores them, without the values of headers that authenticate.
// They cost a delivery 9 % more WAL and 3 % more CPU (docs/internals/decisions.md).
func (a *attempt) sentHeaders(sent http.Header) []byte {
	if sent == nil {
		return nil
	}
	shown := sent.Clone()
	hide := func(name string) {
		if shown.Get(name) != "" {
			shown.Set(name, hidden)
		}
	}
	for _, name := range []string{
		"Authorization", "Proxy-Authorization", "Servicebusauthorization", "Cookie", "Webhook-Signature",
	} {
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

// secrets must not be stored with a response: the endpoint, or an error that quotes it, may repeat them. Most responses
// have no text to search.
func (a *attempt) secrets(resp endpoint.Response) *endpointconf.Secrets {
	secrets := a.sub.Secrets
	if resp.ErrorText == "" && len(resp.Headers) == 0 && len(resp.Excerpt) == 0 {
		return secrets
	}
	if a.sub.Form != nil {
		secrets = secrets.With(signatures(resp.Sent)...)
	}
	if resp.Token == "" {
		return secrets
	}
	return secrets.With(resp.Token, a.sub.Connection.OAuth2.ClientSecret)
}

// concludeLate records the response that came after the ack timeout.
func (a *attempt) concludeLate(started time.Time, resp endpoint.Response) {
	success, why, counts := lateVerdict(a.rules.Policy, a.sub.EndpointKind, resp.Result)
	if !counts {
		return
	}
	late := delivery.Late{Attempt: delivery.Attempt{
		Decision: a.decision(policy.Verdict{}, nil), Request: a.request(started, resp), Probations: a.work.Probations,
	}, BatchCreatedAt: a.work.BatchCreatedAt, Success: success, Why: why}
	if success { // the timeout has counted as this request's failure
		a.Gate.Observe(a.sub.ID, late.Outcome, resp.Result, resp.Duration)
	}
	ended, err := a.Recorder.RecordLate(context.Background(), late)
	if err != nil {
		a.log.Warn("a late response could not be recorded; the delivery is retried", "delivery", late.DeliveryID,
			"batch", late.BatchID, "result", resp.Result.String(), "error", err)
		return
	}
	if ended {
		a.report(&late.Request, policy.Verdict{Action: policy.Delivered}, resp, a.work.Now(), true)
	}
}

// lateVerdict decides about a call after its ack timeout. A success cancels the queued retry. A response that the
// policy calls a failure is only noted: it must not end a delivery whose retry is already scheduled. Without a response
// nothing is recorded.
func lateVerdict(
	p *policy.Policy, kind policy.EndpointKind, result policy.Result,
) (success bool, why string, counts bool) {
	const late = "response after the ack timeout: "
	if !result.Responded() {
		return false, "", false
	}
	if p.Cell(kind, result).Action == policy.ActionSuccess {
		return true, late + result.String() + ": success", true
	}
	return false, late + result.String(), true
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
