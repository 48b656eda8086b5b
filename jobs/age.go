package jobs

import (
	"context"
	"time"

	"postrider/policy"
)

// judgeAges gives the verdicts that end a delivery for its age once more, by the age that it has now: a pause that stops the clock may have
// begun, or ended, since it was loaded, and a call may take minutes. Most attempts never come here. A pause that is made at this
// very moment comes after the end: nobody was told before that it holds.
func (a *attempt) judgeAges(judged policy.Attempt, deliveries []int64, verdicts []policy.Verdict) []policy.Verdict {
	owed, err := a.engine.store.Loader.OwedSince(context.Background(), deliveries, judged.FinishedAt)
	if err != nil {
		a.engine.log.Warn("whether a delivery has expired could not be looked up, and is at its next turn", "subscription", a.sub.ID, "error", err)
	}
	for i, v := range verdicts {
		since, found := owed[deliveries[i]]
		switch {
		case v.Why.Rule != policy.RuleExpired:
		case err != nil:
			verdicts[i] = a.lookAgain(judged)
		case found:
			judged.OwedSince = since
			verdicts[i] = policy.Decide(a.policy, judged)
		}
	}
	return verdicts
}

// lookAgain leaves it to the next turn, due at once, to end what has expired. What has not is put off to the time that it would have now.
func (a *attempt) lookAgain(judged policy.Attempt) policy.Verdict {
	judged.OwedSince = judged.FinishedAt
	v := policy.Decide(a.policy, judged)
	v.NotBefore = latest(v.At, v.NotBefore)
	v.At = judged.FinishedAt
	return v
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
