package queue

import (
	"fmt"
	"time"

	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/policy"

	"github.com/google/uuid"
)

// AttemptArgs are the arguments of the job of one delivery attempt, of a delivery or of a batch. A job that names
// neither is a batch cutter: it cuts the next batch of its event subscription, and then is that batch's job.
type AttemptArgs struct {
	Subscription int64 `json:"s"`
	Delivery     int64 `json:"d,omitempty"`
	Batch        int64 `json:"b,omitempty"`
	// Reruns is how often a crash interrupted the attempt before. The row also has its number, n, for operators.
	Reruns int `json:"r,omitempty"`
	// Permits is how many permits of a rate limit the job has. Without any it may not be sent under a limit.
	Permits int `json:"p,omitempty"`
	// Exempt: the job is sent though the endpoint is closed, and waits for no turn within a limit. It is a probe, a last
	// attempt, or will send nothing.
	Exempt bool `json:"e,omitempty"`
}

// Kind implements river.JobArgs.
func (a AttemptArgs) Kind() string {
	if a.Delivery == 0 {
		return BatchKind
	}
	return DeliverKind
}

// CutsBatch reports whether the job is a batch cutter's.
func (a AttemptArgs) CutsBatch() bool { return a.Delivery == 0 && a.Batch == 0 }

// Work is what one attempt sends: a delivery or the deliveries of a batch, with their events. The members of a batch
// have the same number of attempts.
type Work struct {
	// Job is the row that the work was loaded for.
	Job            JobToken
	SubscriptionID int64
	// BatchID is 0 for a delivery without a batch. BatchCreatedAt is when the batch was cut.
	BatchID        int64
	BatchCreatedAt time.Time
	// Members are the deliveries, in the order in which every attempt sends them.
	Members []Member

	Attempts       int
	SkippedOffsets int
	NextAttemptAt  time.Time
	// NotBefore is the time of the attempt, if NextAttemptAt is sooner and only checks whether the delivery ends; see
	// policy.Defer.
	NotBefore      *time.Time
	FirstAttemptAt *time.Time
	// Hold is the hold of the event subscription; "" for none. TimeToLiveStopped: the time to live does not pass.
	Hold              string
	TimeToLiveStopped bool
	// LastHold is the hold that this attempt waited for; "" for none.
	LastHold string
	// Probations are those that the policy provides for, and their states, in the order of policy.Probation.Scopes.
	Probations []Probation

	AsOf     time.Time // when reading the holds began, on the process's monotonic clock
	ReadAt   time.Time // database clock
	LoadedAt time.Time // the same moment on the process's monotonic clock
	// Free releases the memory of the bodies; nil = none was taken.
	Free func()

	single [1]Member // what Members refers to if there is one
}

// Member is a delivery of a Work.
type Member struct {
	DeliveryID      int64
	SystemID        uuid.UUID
	TimeToLiveSince time.Time
	Event           event.Event
	// EventMissing: the event was erased, or its row is gone, though no partition with unfinished deliveries is dropped.
	EventMissing bool
}

// SetMember makes the delivery the only member. Do not copy the Work afterward: Members refers to a part of it.
func (w *Work) SetMember(m *Member) {
	w.single[0] = *m
	w.Members = w.single[:]
}

// Keep removes the members for which keep is false, and returns them.
func (w *Work) Keep(keep func(*Member) bool) (gone []Member) {
	kept := w.Members[:0]
	for i := range w.Members {
		if m := &w.Members[i]; keep(m) {
			kept = append(kept, *m)
		} else {
			gone = append(gone, *m)
		}
	}
	clear(w.Members[len(kept):])
	w.Members = kept
	return gone
}

// Events are the members' events.
func (w *Work) Events() []*event.Event {
	list := make([]*event.Event, len(w.Members))
	for i := range w.Members {
		list[i] = &w.Members[i].Event
	}
	return list
}

// MessageID identifies the request's content for its receiver, the same at each attempt: an event by its system id, a
// batch by its id and time. A restored database assigns batch ids again, and receivers ignore messages they know.
func (w *Work) MessageID() string {
	if w.BatchID != 0 {
		return fmt.Sprintf("batch-%d-%d", w.BatchID, w.BatchCreatedAt.UnixMicro())
	}
	return w.Members[0].SystemID.String()
}

// Now is the database's time plus the time since, by the monotonic clock: the wall clock may be an hour off.
func (w *Work) Now() time.Time { return w.ReadAt.Add(time.Since(w.LoadedAt)) }

// Fresh reports whether the attempt may begin with this Work. Otherwise load it again.
func (w *Work) Fresh() bool { return time.Since(w.AsOf) < catalog.HoldVisibleAfter }

// Release releases the memory of the bodies; call it when the request is over.
func (w *Work) Release() {
	if w.Free != nil {
		w.Free()
	}
}

// Probation is a probation that applies to a delivery, and its state when the delivery was read.
type Probation struct {
	Rule            policy.Probation // of one scope
	EndpointBaseURL string
	// Failing: a failure since the last success. Held: deliveries wait. Probe: this delivery is the probe.
	Failing, Held, Probe bool
	// Result is what began the hold: the result of the last failure that counted.
	Result policy.Result

	Key string
}

// ProbationsOf are the probations that apply to an event subscription's deliveries, without their states.
func ProbationsOf(c *catalog.Snapshot, subscription int64) (list []Probation) {
	sub, ok := c.Subscription(subscription)
	rules, known := c.Rules(subscription)
	if !ok || !known {
		return nil
	}
	for i, key := range c.ProbationKeys(sub) {
		probation := &rules.Policy.Probation
		list = append(list, Probation{
			Rule: probation.Rule(probation.Scopes()[i]), EndpointBaseURL: sub.EndpointBaseURL, Key: string(key),
		})
	}
	return list
}

// ProbationRow is what an attempt needs to know of a probation.
type ProbationRow struct {
	Held      bool
	Probe     int64
	Condition string
}

// SetProbations sets the states of the work's probations from the rows found. Another hold precedes them.
func (w *Work) SetProbations(list []Probation, found map[string]ProbationRow) {
	for i := range list {
		p := &list[i]
		row, failing := found[p.Key]
		p.Failing, p.Held, p.Probe = failing, row.Held, row.Held && row.Probe == w.Job.JobID
		p.Result = policy.ParseResult(row.Condition)
	}
	w.Probations = list
	if p := w.InProbation(); w.Hold == "" && p.Held && !p.Probe {
		w.Hold = catalog.HoldProbation
	}
}

// InProbation returns the probation that decides whether the work is attempted: the first one that holds deliveries. It
// is the zero Probation if none does.
func (w *Work) InProbation() Probation {
	for i := range w.Probations {
		if w.Probations[i].Held {
			return w.Probations[i]
		}
	}
	return Probation{}
}
