package query

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/internal/postgres"
)

// AttemptLine is one request to the endpoint, and the decision about the next one.
type AttemptLine struct {
	// Number of the attempt, from 1.
	Number int `json:"number" column:"Attempt"`
	// How often it was repeated after a crash.
	Reruns int `json:"reruns"`
	// Delivery of the request; null for a batch.
	DeliveryID *int64 `json:"deliveryId"`
	// Batch of the request; null for a single event.
	BatchID *int64 `json:"batchId"`
	// When it was due.
	DueAt *time.Time `json:"dueAt"`
	// When the request began.
	StartedAt time.Time `json:"startedAt" column:"Started"`
	// Milliseconds from the start to the response or failure, at least the sum of dnsMs, connectMs, tlsMs and firstByteMs.
	DurationMs float64 `json:"durationMs"`
	// Milliseconds of the name resolution; null on a reused connection.
	DNSMs *float64 `json:"dnsMs"`
	// Milliseconds of the TCP connect; null on a reused connection.
	ConnectMs *float64 `json:"connectMs"`
	// Milliseconds of the TLS handshake; null on a reused connection or with http.
	TLSMs *float64 `json:"tlsMs"`
	// Milliseconds from the ready connection to the first byte of the response; null without one.
	FirstByteMs *float64 `json:"firstByteMs"`
	// HTTP status; null without a response.
	Status *int `json:"status" column:"Status"`
	// Outcome, such as Delivered, Busy or TimedOut.
	Outcome string `json:"outcome" column:"Outcome"`
	// Error below HTTP; null without one.
	Error *string `json:"error"`
	// deliver, retry, dead_letter or drop; note for a late response that changed nothing.
	Verdict string `json:"verdict" column:"Verdict"`
	// When the next attempt was planned; null without one.
	NextAttemptAt *time.Time `json:"nextAttemptAt"`
	// Reason of the decision: the entry of the status table, the backoff step and the jitter.
	Why string `json:"why" column:"Why"`
	// Backoff step in milliseconds.
	StepMs *int64 `json:"stepMs"`
	// Shortest delay of the status table in milliseconds.
	FloorMs *int64 `json:"floorMs"`
	// Jitter in milliseconds.
	JitterMs *int64 `json:"jitterMs"`
	// Retry-After of the endpoint in milliseconds.
	RetryAfterMs *int64 `json:"retryAfterMs"`
	// Last hold that delayed the attempt, as it was when that wait began.
	Hold *string `json:"hold"`
	// Number of offsets that passed during holds or slow responses so far.
	SkippedOffsets int `json:"skippedOffsets"`
	// true for a response after the ack timeout, which is a second entry of the same number.
	Late bool `json:"late"`
	// First 2 KiB of the request headers, with *** for secrets and signatures. Null without a request, for a late
	// response, and after an erasure.
	RequestHeaders *string `json:"requestHeaders"`
	// Headers of the response; null without any, and after an erasure.
	ResponseHeaders *string `json:"responseHeaders"`
	// First 4 KiB of the response body; null if it was empty, and after an erasure.
	ResponseExcerpt *string `json:"responseExcerpt"`
	// Node that made the attempt.
	Node string `json:"node"`
}

// Membership is a batch that a delivery was in. LeftAfter is the number of attempts before it left it, or nil.
type Membership struct {
	BatchID    int64
	LeftAfter  *int
	LeftReason *string
}

// DeliveryDetails is one delivery with its event and its attempts.
type DeliveryDetails struct {
	DeliveryLine
	FirstAttemptAt  *time.Time
	SubscriptionID  int64
	EndpointBaseURL string
	JobID           *int64
	Schema          *string // nil after the event's day was dropped, like BodyText
	BodyText        *string
	// RedeliveredFromKind is what RedeliveredFrom is: "dead letter", "operation", "event", or "" if it is nil or no longer
	// kept.
	RedeliveredFromKind string
	// History are its newest 200 attempts, and those of the batches while it was in them, the oldest first.
	History     []AttemptLine `db:"-"`
	Memberships []Membership  `db:"-"`
	// Job is the token of the next attempt; nil if the delivery is finished, on hold, or waits for a batch.
	Job *JobLine `db:"-"`
}

// historyLimit is the number of attempts of one delivery on a page.
const historyLimit = 200

// ReadDelivery reads one delivery with its attempts; ErrNotFound.
func (r *Reader) ReadDelivery(ctx context.Context, id int64) (*DeliveryDetails, error) {
	var d DeliveryDetails
	args := pgx.NamedArgs{"id": id, "delivery": id, "limit": historyLimit}
	err := read(ctx, r.db, "a delivery", func(r *reading) {
		d = row[DeliveryDetails](r, "delivery", args)
		d.Memberships = rows[Membership](r, "memberships", args)
		d.History = rows[AttemptLine](r, "attempts_newest", args)
		d.readBatchAttempts(r)
		d.Job = readJob(r, d.JobID)
	})
	return &d, err
}

// readBatchAttempts adds the attempts of the batches that the delivery was in, while it was in them.
func (d *DeliveryDetails) readBatchAttempts(r *reading) {
	if len(d.Memberships) == 0 {
		return
	}
	leftAfter := map[int64]*int{}
	for _, m := range d.Memberships {
		leftAfter[m.BatchID] = m.LeftAfter
	}
	args := pgx.NamedArgs{"batches": slices.Collect(maps.Keys(leftAfter)), "limit": historyLimit}
	for _, a := range rows[AttemptLine](r, "attempts_newest", args) {
		if left := leftAfter[*a.BatchID]; left == nil || a.Number <= *left {
			d.History = append(d.History, a)
		}
	}
	slices.SortStableFunc(d.History, func(a, b AttemptLine) int { return a.StartedAt.Compare(b.StartedAt) })
}

// Delivery reads a delivery. ErrNotFound.
func (r *Reader) Delivery(ctx context.Context, id int64) (*DeliveryLine, error) {
	found, err := postgres.Collect[DeliveryLine](ctx, r.db, sql("delivery_line"), id)
	switch {
	case err != nil:
		return nil, fmt.Errorf("delivery %d: %w", id, err)
	case len(found) == 0:
		return nil, fmt.Errorf("delivery %d: %w", id, postgres.ErrNotFound)
	}
	return &found[0], nil
}

// Attempts reads the first attempts of a delivery, up to limit, including those of the batches that it was in.
func (r *Reader) Attempts(ctx context.Context, id int64, limit int) ([]AttemptLine, error) {
	attempts, err := postgres.Collect[AttemptLine](ctx, r.db, sql("attempts"), id, limit)
	if err != nil {
		return nil, fmt.Errorf("the attempts of delivery %d: %w", id, err)
	}
	return attempts, nil
}
