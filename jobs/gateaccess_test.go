package jobs

import "postrider/policy"

// NoteFailure notes a failed request to an event subscription's endpoint.
func (e *Engine) NoteFailure(subscription int64) {
	e.parts.Gate.Observe(subscription, policy.OutcomeTimedOut, policy.Result{Err: policy.ErrorTimeout}, 0)
}

// Remembers reports whether the engine knows an event subscription's endpoint.
func (e *Engine) Remembers(subscription int64) bool { return e.parts.Gate.Knows(subscription) }
