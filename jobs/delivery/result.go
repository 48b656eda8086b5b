package delivery

import (
	"time"

	"github.com/google/uuid"

	"postrider/jobs/queue"
	"postrider/policy"
)

// Verdicts that no policy returns.
const (
	// Cancel ends a delivery whose event subscription was deleted.
	Cancel policy.VerdictAction = "cancel"
	// Hold deletes the job; the delivery waits. Verdict.Reason is the hold. Verdict.At is the time of its next attempt, if
	// that changes.
	Hold policy.VerdictAction = "hold"
	// Leave keeps the job of a batch: the deliveries in Decision.Fates leave the batch before its request.
	Leave policy.VerdictAction = "leave"
)

// Reasons why a delivery leaves its batch to be attempted alone.
const (
	// reasonOwnTime: its time to live ends before the batch's next attempt.
	reasonOwnTime policy.Reason = "OwnTime"
	// ReasonUnsendable: its event cannot be written into the batch's body, and must not delay the others.
	ReasonUnsendable policy.Reason = "Unsendable"
	// ReasonHeaderValue: its values of Dynamic headers are not those of the batch's first delivery. The headers were
	// changed after the batch was cut.
	ReasonHeaderValue policy.Reason = "HeaderValue"
)

// Decision is what becomes of the deliveries of a run, of a single delivery (DeliveryID) or of a batch (BatchID). By
// itself it is the result of a run that ended without a request.
type Decision struct {
	queue.JobToken // nothing is recorded unless this row exists
	DeliveryID     int64
	BatchID        int64
	SubscriptionID int64
	RetryPolicy    string
	Events         int // how many deliveries the work had, or still has
	Reruns         int // how often a crash interrupted this attempt before
	Error          string

	// Verdict is that of all deliveries without a fate.
	Verdict policy.Verdict
	// Fates are the deliveries of a batch with their own verdicts. They leave the batch, unless it ends. A delivery of a
	// batch that becomes a dead letter always has a fate.
	Fates []Fate
}

// Request describes a request and its response.
type Request struct {
	Number    int // of this attempt, 1 = first
	StartedAt time.Time
	Duration  time.Duration
	Timings   Timings

	Status          int              // 0 = no response
	Err             policy.ErrorKind // why there is no response, or a broker's response
	Outcome         policy.Outcome
	RequestHeaders  []byte // without secrets; nil = not kept
	ResponseHeaders []byte
	ResponseExcerpt []byte

	// FirstEvent is the system id of the first event of the request. A failed request counts as one failure, of this
	// event; see policy.AfterFailure.
	FirstEvent uuid.UUID
}

// Attempt is the result of a delivery attempt. Without a request, only its Decision is set.
type Attempt struct {
	Decision
	Request
	Bytes     int // size of the request's body; 0 = no body was written
	DueAt     time.Time
	LastHold  string // the hold since then; "" = none
	Throttled bool   // the response requests a lower rate: it is no failure of the endpoint
	// Probations are the Work's.
	Probations []queue.Probation
}

// Late is a response to an attempt that was recorded before as timed out.
type Late struct {
	Attempt
	BatchCreatedAt time.Time // when the batch was cut
	Success        bool
	Why            string // the beginning of the line that explains the row
}

// Fate is the verdict on one delivery of a batch.
type Fate struct {
	DeliveryID int64
	Verdict    policy.Verdict
	deadLetter uuid.UUID // its id, set by Record
}

// Timings are the durations of a request's phases; zero where there was none, as on a reused connection. FirstByte
// counts from the moment when the connection was ready.
type Timings struct{ DNS, Connect, TLS, FirstByte time.Duration }

// deliveries is how many queued deliveries the decision ends; a batch that deliveries leave goes on.
func (d *Decision) deliveries() int {
	if d.BatchID == 0 {
		return 1
	}
	if d.Verdict.Action == Leave {
		return 0
	}
	return d.Events
}
