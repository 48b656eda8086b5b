package web

import (
	"context"
	"errors"
	"fmt"
	"time"

	"postrider/catalog"
	"postrider/postgres"
	"postrider/query"
	"postrider/web/display"
)

// outlook is what happens next to a pending delivery or batch, as its page shows it.
type outlook struct {
	// Hold is why no attempt is made now: its own hold, or else that of its event subscription. "" = none. Since and
	// Until are its times if they are known: a probation ends with the next probe.
	Hold         string
	Since, Until *time.Time
	// Probe is the path that sends the next probe of a probation now; "" = no probation.
	Probe string
	// CanRetry: no hold rejects an attempt now.
	CanRetry bool
	// Next says what happens next in one or two sentences.
	Next string
}

// pendingWork is what the outlook of a delivery or batch depends on.
type pendingWork struct {
	topic, subscription string
	attempts            int
	hold                string
	limit               int        // of attempts; 0 = none
	job                 string     // the state of its job; "" = none
	unbatched           bool       // it waits for the next batch
	due                 *time.Time // nil = at once
	ends                *time.Time // when its time to live ends; nil = not known
}

// outlookOf reads the hold of the event subscription: it also stops attempts that are only scheduled yet.
func (p *pages) outlookOf(ctx context.Context, w *pendingWork) (*outlook, error) {
	o := &outlook{Hold: w.hold}
	sub, err := p.parts.Subscriptions.Get(ctx, w.topic, w.subscription)
	switch {
	case errors.Is(err, postgres.ErrNotFound): // deleted a moment ago
	case err != nil:
		return o, err
	case w.job != "running" && (o.Hold == "" || o.Hold == sub.Hold.Reason):
		o.Hold, o.Since, o.Until = sub.Hold.Reason, sub.Hold.Since, sub.Hold.Until
	}
	if o.Hold == catalog.HoldProbation {
		o.Probe = subscriptionPath(w.topic, w.subscription) + "/probe"
	}
	o.CanRetry = o.Hold == "" || o.Hold == catalog.HoldAdmission
	o.Next = nextText(w, o.Hold, p.Now())
	return o, nil
}

// jobState is "" where there is no job.
func jobState(job *query.JobLine) string {
	if job == nil {
		return ""
	}
	return job.State
}

// nextText promises a time only if no hold and no end of the time to live comes before it.
func nextText(w *pendingWork, hold string, now time.Time) string {
	attempt := fmt.Sprintf("Attempt %d", w.attempts+1)
	later := w.due != nil && w.due.After(now)
	switch {
	case w.job == "running":
		return "An attempt is in progress."
	case hold != "" && w.hold == "" && later:
		return holdText(hold) + " " + attempt + " is scheduled for " + display.MomentOf(*w.due, now).Absolute +
			" and waits if the hold still lasts then."
	case hold != "":
		return holdText(hold)
	case w.limit > 0 && w.attempts >= w.limit:
		return fmt.Sprintf("No further attempt: maxDeliveryAttempts is %d. The delivery ends at its turn.", w.limit)
	case w.unbatched:
		return "It waits for the next batch of its event subscription, which a node sends as soon as it has room."
	case later && w.ends != nil && !w.due.Before(*w.ends):
		return "No further attempt: its time to live ends first. The delivery ends " + display.Relative(now.Sub(*w.due)) + "."
	case later:
		return attempt + " is made " + display.Relative(now.Sub(*w.due)) + "."
	default:
		return attempt + " is due now and waits for a worker."
	}
}

// holdText says what ends a hold.
func holdText(hold string) string {
	switch hold {
	case catalog.HoldPaused:
		return "The event subscription is paused: no attempt is made until an operator resumes it."
	case catalog.HoldNotValidated:
		return "The endpoint is not validated: no attempt is made until the validation handshake succeeds."
	case catalog.HoldProbation:
		return "The endpoint is on probation: one delivery is sent as a probe. If it succeeds, the others follow."
	case catalog.HoldAdmission:
		return "Many deliveries of this event subscription are queued already: it joins the queue when there is room."
	default:
		return ""
	}
}
