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

// AttemptLine is one request, of a delivery or of a batch. Durations are in milliseconds.
type AttemptLine struct {
	Number          int        `json:"number"`
	Reruns          int        `json:"reruns"`
	DeliveryID      *int64     `json:"deliveryId"`
	BatchID         *int64     `json:"batchId"`
	DueAt           *time.Time `json:"dueAt"`
	StartedAt       time.Time  `json:"startedAt"`
	DurationMs      float64    `json:"durationMs"`
	DNSMs           *float64   `json:"dnsMs"`
	ConnectMs       *float64   `json:"connectMs"`
	TLSMs           *float64   `json:"tlsMs"`
	FirstByteMs     *float64   `json:"firstByteMs"`
	Status          *int       `json:"status"`
	Outcome         string     `json:"outcome"`
	Error           *string    `json:"error"`
	Verdict         string     `json:"verdict"`
	NextAttemptAt   *time.Time `json:"nextAttemptAt"`
	Why             string     `json:"why"`
	StepMs          *int64     `json:"stepMs"`
	FloorMs         *int64     `json:"floorMs"`
	JitterMs        *int64     `json:"jitterMs"`
	RetryAfterMs    *int64     `json:"retryAfterMs"`
	Hold            *string    `json:"hold"`
	SkippedOffsets  int        `json:"skippedOffsets"`
	Late            bool       `json:"late"`
	RequestHeaders  *string    `json:"requestHeaders"`
	ResponseHeaders *string    `json:"responseHeaders"`
	ResponseExcerpt *string    `json:"responseExcerpt"`
	Node            string     `json:"node"`
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
	// RedeliveredFromKind is what RedeliveredFrom is: "dead letter", "operation", or "" if it is nil or no longer kept.
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
