package policy

import "time"

// ProbationState is the state of the circuit breaker of an endpoint, or of one event subscription, as Probation.Scope
// says. During a hold its deliveries, new ones too, wait until one of them, the probe, succeeds. Event Grid calls it
// delayed delivery (2019, 2021, 2026) and probation (namespaces, 2026). The zero state is healthy, without a failure
// since the last success.
type ProbationState struct {
	Since          time.Time // when the hold began; zero = healthy. A failed probe does not change it
	Until          time.Time // when the next probe is due
	Cause          Outcome   // of the failure that began the hold, or of the last probe
	Result         Result    // of that attempt; zero if healthy
	Step           int       // holds since the last success: 1 is the first, each failed probe adds one
	FailuresInARow int       // different events that failed since the last success; not counted during a hold
}

// Held reports whether deliveries wait. They also wait when the probe is due: until it succeeds, all held deliveries
// would be sent at once to an endpoint that may not have recovered.
func (s ProbationState) Held() bool { return !s.Since.IsZero() }

// ProbeDue reports whether one delivery may be attempted in spite of the hold.
func (s ProbationState) ProbeDue(now time.Time) bool { return s.Held() && !now.Before(s.Until) }

// Scopes returns the scopes of the probation's rules: none, one, or the two of ProbationBoth. Each rule has its own
// state. While both hold a delivery, the first one decides: only its probes are sent.
func (r *Probation) Scopes() []ProbationScope {
	switch r.Scope {
	case ProbationNone:
		return nil
	case ProbationBoth:
		return []ProbationScope{ProbationEndpoint, ProbationEventSubscription}
	default:
		return []ProbationScope{r.Scope}
	}
}

// Rule returns the rule of one of Scopes.
func (r *Probation) Rule(scope ProbationScope) Probation {
	rule := *r
	if r.Scope != ProbationBoth {
		return rule
	}
	if rule.Scope = scope; scope == ProbationEndpoint {
		rule.Action, rule.ByOutcome = ProbationHold, nil
		return rule
	}
	rule.Trigger, rule.First, rule.Max = 1, 0, 0
	return rule
}

// Counts reports whether a failed attempt may count toward a probation of the rule, or start one. It is false for a
// success. r has one scope, see Rule.
func (r *Probation) Counts(o Outcome, result Result) bool {
	return r.Scope != ProbationNone && o.blamesEndpoint() && r.hold(o, result, 1) > 0
}

// AfterFailure returns the state after a failed attempt, other than a probe, and whether it differs from s.
// differentEvent says that this is an event's first attempt, and that the event is not counted in s: one event that
// fails ten times, or at ten event subscriptions of one endpoint, does not show that the endpoint fails. The caller
// remembers the counted events by changed. The first failure after a success counts in any case. A failed batch is one
// failure, of its first event.
//
// If the policy has holds by outcome, other outcomes neither count nor reset the count. Otherwise all failures count
// under BehaviorDocumented, even 400, because the page speaks of events that fail; BehaviorSafe counts those that
// concern the endpoint. Canceled and aborted attempts never count. During a hold nothing counts: those attempts began
// before it. A policy without probation changes nothing, because others may share its endpoint. r has one scope, see
// Rule.
//
// Sources: if the first ten events published to an endpoint fail, Event Grid assumes that the endpoint has problems and
// delays all further retries and new deliveries, up to several hours (Microsoft, Event Grid message delivery and retry,
// 2019-05-15; 5 minutes, doubled up to 4 hours, are ours); and the probation table of Microsoft, Event Grid namespace
// push delivery and retry, 2023-11, and Event Grid message delivery and retry, 2026-02-09.
func (r *Probation) AfterFailure(
	s ProbationState, o Outcome, result Result, differentEvent bool, now time.Time,
) (next ProbationState, changed bool) {
	if s.Held() || !r.Counts(o, result) {
		return s, false
	}
	if !differentEvent && s.FailuresInARow > 0 {
		return s, false
	}
	s.FailuresInARow++
	if s.FailuresInARow >= r.Trigger {
		s = s.hold(r, o, result, now)
	}
	return s, true
}

// AfterSuccess returns the state after a successful attempt, other than a probe, and whether it differs from s. A
// success does not end a hold that began after its request; once the probe is due it counts as the probe's.
func (r *Probation) AfterSuccess(s ProbationState, now time.Time) (next ProbationState, changed bool) {
	if r.Scope == ProbationNone || s.Held() && !s.ProbeDue(now) {
		return s, false
	}
	return ProbationState{}, s.Held() || s.FailuresInARow > 0
}

// AfterProbe returns the state after a probe, and whether it differs from s. A success ends the hold; a failure begins
// the next one, twice as long or as long as the policy says for its outcome. An outcome without a hold ends the hold as
// well. A canceled or aborted probe changes nothing: the next one is due. Under BehaviorSafe, neither does a probe for
// which no request was sent.
func (r *Probation) AfterProbe(
	s ProbationState, o Outcome, result Result, now time.Time,
) (next ProbationState, changed bool) {
	switch {
	case !s.Held():
		return s, false // an operator has ended the hold
	case o == OutcomeDelivered:
		return ProbationState{}, true
	case !o.blamesEndpoint(), len(r.ByOutcome) == 0 && r.endpointFailuresOnly && result.unsent():
		return s, false
	case r.hold(o, result, s.Step+1) <= 0:
		return ProbationState{}, true
	default:
		return s.hold(r, o, result, now), true
	}
}

// EndsInProbation reports whether a delivery that is due during a probation of this scope ends without an attempt, with
// ReasonProbation, instead of being held. started is the result that started the probation. The page allows it for some
// causes and does not name them; here they are NotFound, Unauthorized and Forbidden, if the status table never retries
// the result at this kind of endpoint: the delivery would end the same way. It is false under ProbationHold, and for
// the endpoint under ProbationBoth: the page only delays those deliveries.
//
// Source: Microsoft, Event Grid namespace push delivery and retry, 2023-11.
func (p *Policy) EndsInProbation(scope ProbationScope, kind EndpointKind, started Result, deadLetter bool) bool {
	if rule := p.Probation.Rule(scope); rule.Action != ProbationDocumented {
		return false
	}
	switch p.Classify(kind, started) {
	case OutcomeUnauthorized, OutcomeForbidden, OutcomeNotFound:
		return p.neverRetried(p.Cell(kind, started), Attempt{Result: started, DeadLetter: deadLetter})
	default:
		return false
	}
}

// hold begins the next hold.
func (s ProbationState) hold(rule *Probation, cause Outcome, result Result, now time.Time) ProbationState {
	if !s.Held() {
		s.Since = now
	}
	s.Step++
	s.Cause, s.Result = cause, result
	s.Until = now.Add(rule.hold(cause, result, s.Step))
	return s
}

// hold returns how long the step-th hold lasts; 0 = this failure starts none.
func (r *Probation) hold(o Outcome, result Result, step int) time.Duration {
	if len(r.ByOutcome) > 0 {
		return time.Duration(r.ByOutcome[o])
	}
	if r.endpointFailuresOnly && !result.concernsEndpoint() {
		return 0
	}
	d := r.First
	for i := 1; i < step && d < r.Max; i++ {
		d *= 2
	}
	return time.Duration(min(d, r.Max))
}

// concernsEndpoint reports whether a failure shows a problem of the endpoint: there was no response to a request or a
// name lookup, its status is 401, 403, 404, 408, 429 or 5xx, or a broker's queue is full or disabled. Other statuses,
// such as 400 or 413, and a missing session id may concern the one event that was sent.
func (r Result) concernsEndpoint() bool {
	switch r.Status {
	case 401, 403, 404, 408, 429:
		return true
	default:
		return r.Err != ErrorNone && r.Err != ErrorSession && !r.unsent() || r.Status >= 500 && r.Status <= 599
	}
}

// unsent reports whether no request was sent: there was no token for it, its URL cannot be used or its address must not
// be called. Other event subscriptions of the same URL may be able to deliver.
func (r Result) unsent() bool { return r.Err == ErrorUnauthorized || r.Err == ErrorArgument }

// blamesEndpoint reports whether an outcome is a failure of the endpoint.
func (o Outcome) blamesEndpoint() bool {
	switch o {
	case OutcomeDelivered, OutcomeCanceled, OutcomeProbation, OutcomeAborted:
		return false
	default:
		return true
	}
}
