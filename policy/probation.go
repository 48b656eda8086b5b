package policy

import "time"

// ProbationState is what is known of an endpoint's failures, and whether it is given a rest: its deliveries are held, new ones
// too, until one of them, the probe, succeeds. Event Grid calls it delayed delivery (2019, 2021) and probation
// (namespaces). It belongs to what the policy's Probation.Scope says: an endpoint with all its event subscriptions, or
// one of these. The zero ProbationState is open and has seen no failure since the last success.
type ProbationState struct {
	Since          time.Time // when the hold began; zero = open. A failed probe does not move it
	Until          time.Time // when the next probe is due
	Cause          Outcome   // of the failure that began the hold, or of the last probe
	Result            Result    // what that attempt met; zero while open
	Step           int       // holds since the last success: 1 is the first, each failed probe adds one
	FailuresInARow int       // different events that have failed since the last success; it stops counting at the hold
}

// Held reports whether deliveries wait. They do until a success ends the hold, also once the probe is due: without its
// answer nothing says that the endpoint has recovered, and all that was held would meet it at once.
func (r ProbationState) Held() bool { return !r.Since.IsZero() }

// ProbeDue reports whether one delivery, and no more, may be attempted in spite of the hold.
func (r ProbationState) ProbeDue(now time.Time) bool { return r.Held() && !now.Before(r.Until) }

// AfterFailure returns what a failed attempt, other than a probe, makes of r, and whether that differs from r.
// differentEvent says that this is an event's first attempt, and that it is not among those that r counts: one event
// that fails ten times, or at ten event subscriptions of one endpoint, is no sign of a bad endpoint. The caller
// remembers which were counted, changed telling it so. The first failure after a success is counted whatever
// differentEvent says.
//
// A failed request is one failure, however many events it carried: a batch stands for its first event. So a failure is
// counted for at most one event, and an event for at most one failure.
//
// Where the policy lists holds by outcome, an outcome outside the list neither counts nor breaks the row. Otherwise
// every failure counts under BehaviorDocumented, 400 too, for the page speaks of events that fail; BehaviorSafe counts
// those that say something about the endpoint, see Result.concernsEndpoint. Attempts that were canceled or aborted
// never do. During a hold nothing counts: those calls were under way when it began. A policy without probation changes
// nothing, for its event subscriptions may share their endpoint with some that have one.
//
// Sources: where the first ten events published to an endpoint fail, Event Grid takes it to be in trouble and delays
// all further retries and new deliveries, up to several hours (Microsoft, Event Grid message delivery and retry,
// 2019-05-15; 5 minutes, doubled up to 4 hours, are ours); and the probation table of Microsoft, Event Grid namespace
// push delivery and retry, 2023-11.
func (p *Policy) AfterFailure(
	r ProbationState, o Outcome, met Result, differentEvent bool, now time.Time,
) (next ProbationState, changed bool) {
	rule := &p.Probation
	if rule.Scope == ProbationNone || r.Held() || !o.blamesEndpoint() || rule.hold(o, met, 1) <= 0 {
		return r, false
	}
	if !differentEvent && r.FailuresInARow > 0 {
		return r, false
	}
	r.FailuresInARow++
	if r.FailuresInARow >= rule.Trigger {
		r = r.held(rule, o, met, now)
	}
	return r, true
}

// AfterSuccess returns what a successful attempt, other than a probe, makes of r, and whether that differs from r:
// there is something to reset only where something has failed. During a hold a success does not end it, for its call
// was under way when the hold began; once the probe is due it is as good as the probe's.
func (p *Policy) AfterSuccess(r ProbationState, now time.Time) (next ProbationState, changed bool) {
	if p.Probation.Scope == ProbationNone || r.Held() && !r.ProbeDue(now) {
		return r, false
	}
	return ProbationState{}, r.Held() || r.FailuresInARow > 0
}

// AfterProbe returns what the probe's outcome makes of r, and whether that differs from r. A success ends the hold; a
// failure begins the next one, twice as long or as long as the policy says for its outcome. A probe that failed with an
// outcome that the policy holds nothing for ends the hold as well. A probe without an answer (canceled, aborted)
// changes nothing: the next one is due. Under BehaviorSafe that is also so of one for which no request was sent.
func (p *Policy) AfterProbe(r ProbationState, o Outcome, met Result, now time.Time) (next ProbationState, changed bool) {
	switch {
	case !r.Held():
		return r, false // released by a person meanwhile
	case o == OutcomeDelivered:
		return ProbationState{}, true
	case !o.blamesEndpoint(), len(p.Probation.ByOutcome) == 0 && p.Probation.endpointFailuresOnly && met.unsent():
		return r, false
	case p.Probation.hold(o, met, r.Step+1) <= 0:
		return ProbationState{}, true
	default:
		return r.held(&p.Probation, o, met, now), true
	}
}

// EndsInProbation reports whether a delivery whose turn comes during a probation is ended without an attempt, for
// ReasonProbation, instead of held. met is what started the probation. The page allows it for some causes and does not
// name them; here they are NotFound, Unauthorized and Forbidden. It applies only where the status table never retries
// what was met at this kind of endpoint: the waiting delivery would meet the same end. ProbationHold ends nothing.
//
// Source: Microsoft, Event Grid namespace push delivery and retry, 2023-11.
func (p *Policy) EndsInProbation(kind EndpointKind, met Result, deadLetter bool) bool {
	if p.Probation.Action != ProbationDocumented {
		return false
	}
	switch p.Classify(kind, met) {
	case OutcomeUnauthorized, OutcomeForbidden, OutcomeNotFound:
		return p.neverRetried(p.Cell(kind, met), Attempt{Result: met, DeadLetter: deadLetter})
	default:
		return false
	}
}

// held begins the next hold.
func (r ProbationState) held(rule *Probation, cause Outcome, met Result, now time.Time) ProbationState {
	if !r.Held() {
		r.Since = now
	}
	r.Step++
	r.Cause, r.Result = cause, met
	r.Until = now.Add(rule.hold(cause, met, r.Step))
	return r
}

// hold returns how long the step-th hold lasts; 0 = this failure starts none.
func (r *Probation) hold(o Outcome, met Result, step int) time.Duration {
	switch {
	case len(r.ByOutcome) > 0:
		return r.ByOutcome[o]
	case r.endpointFailuresOnly && !met.concernsEndpoint():
		return 0
	}
	d := r.First
	for i := 1; i < step && d < r.Max; i++ {
		d *= 2
	}
	return min(d, r.Max)
}

// concernsEndpoint reports whether a failure says something about the endpoint: a request was sent, or its host name
// was looked up, and there was no response or its status is 401, 403, 404, 408, 429 or 5xx. Any other status, such as
// 400 or 413, may concern the one event that was sent.
func (r Result) concernsEndpoint() bool {
	switch r.Status {
	case 401, 403, 404, 408, 429:
		return true
	default:
		return r.Err != ErrorNone && !r.unsent() || r.Status >= 500 && r.Status <= 599
	}
}

// unsent reports whether no request was sent because of our own side: there was no token for it, its URL cannot be used
// or its address may not be called. Other event subscriptions of the same URL may be able to deliver.
func (r Result) unsent() bool { return r.Err == ErrorUnauthorized || r.Err == ErrorArgument }

// blamesEndpoint reports whether an outcome is a failure of the endpoint's.
func (o Outcome) blamesEndpoint() bool {
	switch o {
	case OutcomeDelivered, OutcomeCanceled, OutcomeProbation, OutcomeAborted:
		return false
	default:
		return true
	}
}
