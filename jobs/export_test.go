package jobs

import "postrider/policy"

// Met makes an engine remember that an event subscription's endpoint has failed.
func (e *Engine) Met(subscription int64) {
	e.parts.Gate.Learn(subscription, policy.OutcomeTimedOut, policy.Result{Err: policy.ErrorTimeout})
}

// Remembers reports whether an engine remembers anything of an event subscription's endpoint.
func (e *Engine) Remembers(subscription int64) bool { return e.parts.Gate.Knows(subscription) }
