package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"postrider/internal/catalog"
	"postrider/jobs/delivery"
	"postrider/jobs/queue"
	"postrider/policy"
)

// errNoPolicy is not ErrNotFound, which would end the job and leave the delivery without one.
var errNoPolicy = errors.New("its retry policy does not exist")

// configure finds the event subscription and its rules; false if it was deleted.
func (a *attempt) configure(ctx context.Context) (bool, error) {
	snapshot := a.cache.Snapshot()
	sub, ok := snapshot.Subscription(a.args.Subscription)
	// Deleted; or created or validated on another node within the last second.
	if !ok || sub.NotValidated() && (a.work == nil || a.work.Hold == "") {
		if err := a.cache.Reload(ctx); err != nil {
			return false, err
		}
		snapshot = a.cache.Snapshot()
		if sub, ok = snapshot.Subscription(a.args.Subscription); !ok {
			return false, nil
		}
	}
	a.sub = sub
	if a.rules, ok = snapshot.Rules(sub.ID); !ok {
		return false, fmt.Errorf("event subscription %q of topic %q: %w", sub.Name, sub.Topic, errNoPolicy)
	}
	return true, nil
}

// checkDue decides whether an attempt may be made now, and otherwise what happens to the work: a hold may have begun
// since the job was inserted. Members that end or are sent alone have their own fates and leave the work.
func (a *attempt) checkDue(now time.Time) (verdict policy.Verdict, fates []delivery.Fate, ready bool) {
	hold := policy.Verdict{Action: delivery.Hold, Reason: policy.Reason(a.work.Hold)}
	if a.work.Hold != "" && a.work.TimeToLiveStopped {
		return hold, nil, false
	}
	single := len(a.work.Members) == 1
	a.work.Keep(func(m *queue.Member) bool {
		verdict, stays := a.checkMember(m, single, now)
		if !stays {
			fates = append(fates, delivery.Fate{DeliveryID: m.DeliveryID, Verdict: verdict})
		}
		return stays
	})
	if len(a.work.Members) == 0 {
		return ended(fates), fates, false
	}
	if a.work.Hold != "" {
		return hold, fates, false
	}
	if at, early := a.deferUntil(now); early {
		return policy.Verdict{Action: delivery.Hold, Reason: catalog.HoldAdmission, At: at}, fates, false
	}
	return policy.Verdict{Action: delivery.Leave}, fates, true
}

// checkMember reports whether a member may be sent with the others, and otherwise what happens to it. After too many
// reruns of a batch each member is sent alone with its own reruns: one event whose delivery crashes the process must
// not end the others.
func (a *attempt) checkMember(m *queue.Member, single bool, now time.Time) (verdict policy.Verdict, stays bool) {
	switch {
	case m.EventMissing:
		return policy.Verdict{Action: policy.Drop, Reason: policy.ReasonEventMissing}, false
	case a.reruns >= maxReruns && single:
		return a.abandon(policy.ReasonTooManyReruns), false
	case a.reruns >= maxReruns:
		return policy.Verdict{Action: policy.Retry, At: now, Reason: policy.ReasonTooManyReruns}, false
	}
	verdict, due := policy.Due(a.rules.Policy, policy.DueCheck{
		Attempts: a.work.Attempts, TimeToLiveSince: m.TimeToLiveSince, Now: now, Limits: a.rules.Limits,
		DeadLetter: a.rules.DeadLetter,
	})
	if !due {
		return verdict, false
	}
	if p := a.work.InProbation(); a.work.Hold == catalog.HoldProbation &&
		a.rules.Policy.EndsInProbation(p.Rule.Scope, a.sub.EndpointKind, p.Result, a.rules.DeadLetter) {
		return a.abandon(policy.ReasonProbation), false
	}
	return policy.Verdict{}, true
}

// abandon ends a delivery without success.
func (a *attempt) abandon(reason policy.Reason) policy.Verdict {
	if a.rules.DeadLetter {
		return policy.Verdict{Action: policy.DeadLetter, Reason: reason}
	}
	return policy.Verdict{Action: policy.Drop, Reason: reason}
}

// ended is the verdict on a work without members.
func ended(fates []delivery.Fate) policy.Verdict {
	if len(fates) > 0 && fates[len(fates)-1].Verdict.Action != policy.Retry {
		return fates[len(fates)-1].Verdict
	}
	return policy.Verdict{Action: delivery.Cancel}
}

// deferUntil reports whether it is too early for an attempt, and when the next due check is: at NotBefore, or at the
// end of the first member's time to live. Until then no job is needed: the refill of that time inserts one.
func (a *attempt) deferUntil(now time.Time) (first time.Time, early bool) {
	if a.work.NotBefore == nil {
		return time.Time{}, false
	}
	for i := range a.work.Members {
		at, tooEarly := a.rules.Policy.Defer(*a.work.NotBefore, a.work.Members[i].TimeToLiveSince, now, a.rules.Limits)
		if tooEarly && (!early || at.Before(first)) {
			first, early = at, true
		}
	}
	return first, early
}
