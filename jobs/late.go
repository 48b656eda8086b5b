package jobs

import (
	"context"
	"time"

	"postrider/jobs/delivery"
	"postrider/jobs/endpoint"
	"postrider/policy"
)

// follow waits, beside the worker, for the response to a call that stayed open. recorded is the error of recording the
// attempt as timed out: with one, the attempt is repeated, and no retry exists that a response could cancel.
func (a *attempt) follow(k *endpoint.Call, recorded error, started time.Time) {
	go a.engine.endpoint.Finish(k, recorded, func(met endpoint.Answer) {
		if verdict, why, counts := lateVerdict(a.rules.Policy, a.sub.EndpointKind, met.Result); counts {
			a.concludeLate(a.attempted(verdict, started, met), met, why)
		}
	})
}

// concludeLate records the response that came after the ack timeout.
func (a *attempt) concludeLate(result delivery.Result, met endpoint.Answer, why string) {
	a.engine.parts.Gate.Learn(a.sub.ID, result.Outcome, met.Result)
	switch ended, err := a.engine.parts.Recorder.RecordLate(context.Background(), result, why); {
	case err != nil:
		a.engine.log.Warn("a late response could not be recorded; the retry is made", "delivery", result.DeliveryID,
			"batch", result.BatchID, "result", met.Result.String(), "error", err)
	case ended:
		a.report(&result, met, a.work.Now(), true)
	}
}

// lateVerdict decides about what a call met after its ack timeout. A success asks for the queued retry to be canceled;
// an answer that the policy calls a failure is only noted: the retry on the schedule of the timeout is the better
// chance, and an answer that is never retried must not end a delivery whose retry is already promised. Without an
// answer (the connection broke, the window is over) there is nothing to tell.
func lateVerdict(
	p *policy.Policy, kind policy.EndpointKind, met policy.Result,
) (verdict policy.Verdict, why string, ok bool) {
	const late = "answered after the ack timeout: "
	switch {
	case met.Err != policy.ErrorNone || met.Status == 0:
		return policy.Verdict{}, "", false
	case p.Cell(kind, met).Action == policy.ActionSuccess:
		return policy.Verdict{Action: policy.Delivered}, late + met.String() + ": success", true
	default:
		return policy.Verdict{Action: delivery.Note}, late + met.String(), true
	}
}
