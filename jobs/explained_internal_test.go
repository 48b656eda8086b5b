package jobs

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/jobs/delivery"
	"postrider/jobs/endpoint"
	"postrider/jobs/queue"
	"postrider/policy"
)

// explained is one case of the engine's decisions: every attempt has the same result.
type explained struct {
	rules     policy.Rules
	kind      policy.EndpointKind
	result    policy.Result
	explained policy.Explanation
	name      string
}

// The engine does what `policy explain` says, for every result under every policy, behavior, endpoint kind and
// dead-letter setting; also to an event that is published while the result holds deliveries.
func TestEngineDoesWhatExplainSays(t *testing.T) {
	t.Parallel()
	for _, p := range policy.Builtins() {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			for _, behavior := range []policy.Behavior{policy.BehaviorSafe, policy.BehaviorDocumented} {
				for _, kind := range []policy.EndpointKind{policy.KindWebhook, policy.KindAzureResource} {
					for _, deadLetter := range []bool{true, false} {
						for _, result := range everyResult() {
							explainedCase(t, &p, behavior, kind, deadLetter, result).require(t, &p, behavior)
						}
					}
				}
			}
		})
	}
}

func everyResult() (all []policy.Result) {
	for status := 100; status <= 599; status++ {
		all = append(all, policy.Result{Status: status})
	}
	for _, kind := range []policy.ErrorKind{
		policy.ErrorTimeout, policy.ErrorCanceled, policy.ErrorSocket, policy.ErrorDNS, policy.ErrorUnauthorized,
		policy.ErrorArgument, policy.ErrorFull, policy.ErrorDisabled, policy.ErrorSession,
	} {
		all = append(all, policy.Result{Err: kind})
	}
	return all
}

func explainedCase(
	t *testing.T, p *policy.Policy, behavior policy.Behavior, kind policy.EndpointKind, deadLetter bool,
	result policy.Result,
) explained {
	t.Helper()
	inRange := result
	if result.Err == "" && result.Status < 200 {
		inRange.Status = 599 // explain takes final statuses only; both are "other" in every policy
	}
	x, err := policy.Explain(p,
		policy.ExplainOptions{Kind: kind, Result: inRange, Behavior: behavior, DeadLetter: &deadLetter})
	require.NoError(t, err)
	return explained{
		rules: p.Resolve(policy.Overrides{Behavior: behavior, DeadLetter: &deadLetter}), kind: kind, result: result,
		explained: x,
		name:      fmt.Sprintf("%s %s %s, dead letters %t: %s", p.Name, behavior, kind, deadLetter, result),
	}
}

func (x explained) require(t *testing.T, p *policy.Policy, behavior policy.Behavior) {
	t.Helper()
	published := time.Unix(0, 0).UTC()
	first := x.delivery(published)
	times, end := first.timeline(x.result, nil)
	require.Equal(t, x.attemptTimes(), times, x.name)
	require.Equal(t, x.explained.End, end, x.name)

	for _, scope := range p.Probation.Scopes() {
		x.requireOnHold(t, x.rules.Policy.Probation.Rule(scope), behavior)
	}
}

// requireOnHold checks an event that is published while one probation holds deliveries.
func (x explained) requireOnHold(t *testing.T, rule policy.Probation, behavior policy.Behavior) {
	t.Helper()
	published := time.Unix(0, 0).UTC()
	hold := x.failAll(&rule, published)
	require.Equal(t, expectedHold(rule.Scope, behavior, x.result), hold.Until.Sub(hold.Since), x.name)
	if !hold.Held() {
		return
	}
	second := x.delivery(published.Add(time.Second))
	second.work.Hold = catalog.HoldProbation
	second.work.Probations = []queue.Probation{{Rule: rule, Held: true, Result: hold.Result}}
	verdict, _, due := second.checkDue(published.Add(2 * time.Second))
	require.False(t, due, x.name)
	if verdict.Action != delivery.Hold {
		require.Equal(t, policy.ReasonProbation, verdict.Reason, x.name)
		require.Len(t, x.explained.Attempts, 1, "%s: ended by the hold, though the policy retries it", x.name)
		require.Equal(t, x.explained.End.State, stateOf(verdict), x.name)
		require.Equal(t, policy.BehaviorDocumented, behavior, x.name)
		return
	}
	second.work.Hold, second.work.Probations[0].Probe = "", true
	times, end := second.timeline(x.result, &hold)
	require.Equal(t, x.explained.End.State, end.State, x.name)
	if len(x.explained.Attempts) == 1 {
		require.Equal(t, x.explained.End.Reason, end.Reason, x.name)
		require.Len(t, times, 1, x.name)
		return
	}
	require.LessOrEqual(t, len(times), len(x.explained.Attempts), "%s: holds only remove attempts", x.name)
	require.Contains(t, []policy.Reason{policy.ReasonMaxDeliveryAttemptsExceeded, policy.ReasonTimeToLiveExceeded},
		end.Reason, x.name)
}

// delivery is an attempt that is loaded and configured, without a database.
func (x explained) delivery(published time.Time) *attempt {
	return &attempt{
		deliverer: &deliverer{options: &Options{Jitter: func() float64 { return 0 }}},
		work:      &queue.Work{Members: []queue.Member{{TimeToLiveSince: published}}, NextAttemptAt: published},
		sub:       &catalog.Subscription{SubscriptionSpec: catalog.SubscriptionSpec{EndpointKind: x.kind}},
		rules:     x.rules,
	}
}

// failAll fails the first attempts of as many events as start a hold, and returns the hold.
func (x explained) failAll(rule *policy.Probation, now time.Time) (hold policy.ProbationState) {
	p := x.rules.Policy
	for range rule.Trigger {
		hold, _ = rule.AfterFailure(hold, p.Classify(x.kind, x.result), x.result, true, now)
	}
	return hold
}

func (x explained) attemptTimes() (times []float64) {
	for _, a := range x.explained.Attempts {
		times = append(times, a.AtSeconds)
	}
	return times
}

// timeline runs a delivery's due checks; attempts take no time. hold, if any, is the hold whose probe each attempt is.
func (a *attempt) timeline(
	result policy.Result, hold *policy.ProbationState,
) (times []float64, end policy.ExplainedEnd) {
	for now := a.work.NextAttemptAt; ; now = a.work.NextAttemptAt {
		if hold != nil && hold.Held() && hold.Until.After(now) {
			now = hold.Until
		}
		at := now.Sub(a.work.Members[0].TimeToLiveSince).Seconds()
		verdict, _, due := a.checkDue(now)
		if due {
			times = append(times, at)
			facts := a.facts(now, now, endpoint.Response{Result: result})
			facts.TimeToLiveSince = a.work.Members[0].TimeToLiveSince
			verdict = policy.Decide(a.rules.Policy, facts)
		}
		if verdict.Action != policy.Retry {
			return times, policy.ExplainedEnd{AtSeconds: at, State: stateOf(verdict), Reason: verdict.Reason}
		}
		if hold != nil {
			outcome := a.rules.Policy.Classify(a.sub.EndpointKind, result)
			*hold, _ = a.work.Probations[0].Rule.AfterProbe(*hold, outcome, result, now)
		}
		if a.work.FirstAttemptAt == nil {
			a.work.FirstAttemptAt = &now
		}
		a.work.Attempts, a.work.SkippedOffsets, a.work.NextAttemptAt = a.work.Attempts+1, verdict.SkippedOffsets, verdict.At
		a.work.NotBefore = nil
		if !verdict.NotBefore.IsZero() {
			a.work.NotBefore = &verdict.NotBefore
		}
	}
}

func stateOf(v policy.Verdict) string {
	return map[policy.VerdictAction]string{
		policy.Delivered: "delivered", policy.DeadLetter: "dead_lettered", policy.Drop: "dropped",
	}[v.Action]
}

// expectedHold follows the pages, not the policies: how long such failures hold deliveries.
func expectedHold(scope policy.ProbationScope, behavior policy.Behavior, result policy.Result) time.Duration {
	switch {
	case result.Status >= 200 && result.Status <= 204 || result.Err == policy.ErrorCanceled:
		return 0
	case scope == policy.ProbationEventSubscription:
		return map[string]time.Duration{
			"429": 10 * time.Second, "503": 10 * time.Second, "408": 10 * time.Second, "timeout": 10 * time.Second,
			"socket": 30 * time.Second, "dns": 5 * time.Minute, "401": 5 * time.Minute, "unauthorized": 5 * time.Minute,
			"403": 5 * time.Minute, "404": 5 * time.Minute, "full": 5 * time.Minute, "disabled": 5 * time.Minute,
		}[result.String()]
	case behavior == policy.BehaviorDocumented:
		return 5 * time.Minute
	case result.Err == policy.ErrorUnauthorized || result.Err == policy.ErrorArgument: // no request was sent
		return 0
	case result.Err == policy.ErrorSession: // of the event
		return 0
	case result.Err != "" || result.Status >= 500:
		return 5 * time.Minute
	}
	switch result.Status {
	case 401, 403, 404, 408, 429:
		return 5 * time.Minute
	default:
		return 0
	}
}
