package query

import (
	"context"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
)

// BatchFilter selects batches; "" = all.
type BatchFilter struct {
	Topic        string `query:"topic" label:"Topic"`
	Subscription string `query:"subscription" label:"Event subscription"`
	// In this state: pending, delivered, dead_lettered, dropped or canceled.
	State string `query:"state" label:"State" choices:"states"`
	// On this hold: paused, not_validated, probation, admission or rate_limited.
	Hold string `query:"hold" label:"Hold" choices:"holds"`
}

// BatchLine are deliveries that are sent in one request. All succeed or all fail.
type BatchLine struct {
	// Id of the batch.
	BatchID      int64     `json:"batchId" column:"Batch" list:"/v1/batches"`
	CreatedAt    time.Time `json:"createdAt" column:"Created"`
	State        string    `json:"state" column:"State"`
	Hold         *string   `json:"hold" column:"Hold" in:"state"`
	Topic        string    `json:"topic" column:"Topic" in:"subscription"`
	Subscription string    `json:"subscription" column:"Event subscription" title:"SUBSCRIPTION" class:"long"`
	// Number of events, without those that left.
	Members int `json:"members" column:"Events"`
	// Size of the last request's body in bytes; before the first request, its limit.
	Bytes       int64   `json:"bytes" column:"Size" title:"BYTES"`
	Attempts    int     `json:"attempts" column:"Attempts"`
	Reruns      int     `json:"reruns" column:"Re-runs" in:"attempts" off:""`
	LastOutcome *string `json:"lastOutcome" column:"Last outcome" class:"long"`
	// HTTP status of the last attempt; null without a response.
	LastStatus     *int       `json:"lastStatus" column:"Last status" in:"last_outcome"`
	NextAttemptAt  *time.Time `json:"nextAttemptAt" column:"Next or ended" title:"NEXT ATTEMPT"`
	FinishedAt     *time.Time `json:"finishedAt" column:"Ended" in:"next_attempt_at"`
	HoldUntil      *time.Time `json:"holdUntil" line:"Hold until"`
	FirstAttemptAt *time.Time `json:"firstAttemptAt" column:"First attempt" off:""`
	LastAttemptAt  *time.Time `json:"lastAttemptAt" column:"Last attempt" off:""`
}

// MemberLine is a delivery of a batch.
type MemberLine struct {
	// Position in the request, from 1.
	Position   int   `json:"position" column:"Position"`
	DeliveryID int64 `json:"deliveryId" column:"Delivery"`
	// Id of the event from the publisher; null after the event's retention.
	EventID *string `json:"eventId" column:"Event id" none:"partition dropped"`
	// When it left the batch; null if it did not.
	LeftAt *time.Time `json:"leftAt" column:"Left" in:"left_reason"`
	// Number of the batch's attempts before it left.
	LeftAfter *int `json:"leftAfter"`
	// Why it left.
	LeftReason *string `json:"leftReason" column:"Left batch" title:"WHY"`
}

// BatchDetails is one batch with its members and its attempts.
type BatchDetails struct {
	BatchLine
	SubscriptionID int64
	JobID          *int64
	// ExpiresAt is the latest end of its pending members' time to live; nil if none is pending.
	ExpiresAt *time.Time
	// Job is the token of its next attempt; nil if there is none.
	Job *JobLine `db:"-"`
	// History are its newest 200 attempts, the oldest first.
	History []AttemptLine `db:"-"`
	// Listed are its members in the order of the request, at most 1,000 of those after the requested position.
	Listed []MemberLine `db:"-"`
}

// ReadBatches reads a page of batches, the newest first. ErrTooSlow, ErrUnavailable.
func (r *Reader) ReadBatches(
	ctx context.Context, f BatchFilter, t Turn[int64],
) (page SearchedPage[BatchLine, int64], err error) {
	err = read(ctx, r.db, "batches", func(r *reading) {
		names := readNames(r, f.Topic, f.Subscription, "", math.MaxInt32)
		args := pgx.NamedArgs{"state": given(f.State), "hold": given(f.Hold)}
		bySubscription := names.bind(args, f.Topic, f.Subscription, false)
		search := f.State != "" && f.State != "pending" || !bySubscription && f.Hold+f.Topic != ""
		page = readPage[BatchLine](r, "batches", t, search, args)
	})
	return page, err
}

// ReadBatch reads one batch with its attempts, and its members after a position; ErrNotFound.
func (r *Reader) ReadBatch(ctx context.Context, id int64, after, limit int) (*BatchDetails, error) {
	var b BatchDetails
	err := read(ctx, r.db, "a batch", func(r *reading) {
		b = row[BatchDetails](r, "batch", pgx.NamedArgs{"id": id})
		b.History = rows[AttemptLine](r, "attempts_newest", pgx.NamedArgs{"batches": []int64{id}, "limit": historyLimit})
		b.Job = readJob(r, b.JobID)
		b.Listed = rows[MemberLine](r, "batch_members", pgx.NamedArgs{"id": id, "after": after, "limit": limit})
	})
	return &b, err
}
