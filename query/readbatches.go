package query

import (
	"context"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/postgres"
)

// BatchFilter selects batches; "" = all.
type BatchFilter struct {
	Topic        string `query:"topic"`
	Subscription string `query:"subscription"`
	State        string `query:"state" enum:"pending,delivered,dead_lettered,dropped,canceled"`
	Hold         string `query:"hold" enum:"paused,not_validated,probation,admission"`
}

// BatchLine is one batch in a list.
type BatchLine struct {
	BatchID        int64      `json:"batchId"`
	Topic          string     `json:"topic"`
	Subscription   string     `json:"subscription"`
	State          string     `json:"state"`
	Hold           *string    `json:"hold"`
	Members        int        `json:"members"`
	Bytes          int64      `json:"bytes"`
	Attempts       int        `json:"attempts"`
	Reruns         int        `json:"reruns"`
	NextAttemptAt  *time.Time `json:"nextAttemptAt"`
	HoldUntil      *time.Time `json:"holdUntil"`
	FirstAttemptAt *time.Time `json:"firstAttemptAt"`
	LastAttemptAt  *time.Time `json:"lastAttemptAt"`
	LastOutcome    *string    `json:"lastOutcome"`
	LastStatus     *int       `json:"lastStatus"`
	CreatedAt      time.Time  `json:"createdAt"`
	FinishedAt     *time.Time `json:"finishedAt"`
}

// MemberLine is a delivery that was put into a batch.
type MemberLine struct {
	Position   int        `json:"position"`
	DeliveryID int64      `json:"deliveryId"`
	EventID    *string    `json:"eventId"`
	LeftAt     *time.Time `json:"leftAt"`
	LeftAfter  *int       `json:"leftAfter"`
	LeftReason *string    `json:"leftReason"`
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

// BatchPage is a page of batches.
type BatchPage = SearchedPage[BatchLine, int64]

var (
	batchList      = list[int64]{sqlFile("batches.sql"), sqlFile("batches_end.sql"), pgx.RowTo[int64]}
	batchStatement = sqlFile("batch.sql")
	batchMembers   = sqlFile("batch_members.sql")
)

// ReadBatches reads a page of batches, the newest first. ErrTooSlow, ErrUnavailable.
func (r *Reader) ReadBatches(ctx context.Context, f BatchFilter, t Turn[int64]) (BatchPage, error) {
	return read(ctx, r, "batches", func(tx pgx.Tx) (page BatchPage, err error) {
		names, err := readNames(ctx, tx, f.Topic, f.Subscription, "", math.MaxInt32)
		if err != nil {
			return page, err
		}
		args := pgx.NamedArgs{"state": given(f.State), "hold": given(f.Hold)}
		bySubscription := names.few(f.Topic, f.Subscription)
		names.bind(args, bySubscription)
		search := f.State != "" && f.State != "pending" || !bySubscription && f.Hold+f.Topic != ""
		return readPage[BatchLine](ctx, tx, &batchList, t, search, args)
	})
}

// ReadBatch reads one batch with its attempts, and its members after a position; ErrNotFound.
func (r *Reader) ReadBatch(ctx context.Context, id int64, after, limit int) (b *BatchDetails, err error) {
	err = r.db.Read(ctx, "a batch", func(tx pgx.Tx) error {
		if b, err = postgres.Row[BatchDetails](ctx, tx, batchStatement, pgx.NamedArgs{"id": id}); err != nil {
			return err
		}
		attempts := pgx.NamedArgs{"batches": []int64{id}, "limit": historyLimit}
		if b.History, err = postgres.Rows[AttemptLine](ctx, tx, newestAttempts, attempts); err != nil {
			return err
		}
		if b.JobID != nil {
			if b.Job, err = readJob(ctx, tx, *b.JobID); err != nil {
				return err
			}
		}
		members := pgx.NamedArgs{"id": id, "after": after, "limit": limit}
		b.Listed, err = postgres.Rows[MemberLine](ctx, tx, batchMembers, members)
		return err
	})
	return b, err
}
