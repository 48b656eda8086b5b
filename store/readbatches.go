package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// BatchFilter says which batches; "" = all.
type BatchFilter struct{ Topic, Subscription, State string }

// BatchLine is one batch as the view shows it.
type BatchLine struct {
	BatchID                                      int64
	Topic, Subscription, State                   string
	Hold                                         *string
	Members                                      int
	Bytes                                        int64
	Attempts, Reruns                             int
	NextAttemptAt, FirstAttemptAt, LastAttemptAt *time.Time
	LastOutcome                                  *string
	LastStatus                                   *int
	CreatedAt                                    time.Time
	FinishedAt                                   *time.Time
}

// MemberLine is a delivery that a batch was cut of.
type MemberLine struct {
	Position   int
	DeliveryID int64
	EventID    *string
	LeftAt     *time.Time
	LeftAfter  *int
	LeftReason *string
}

// BatchCourse is one batch with what it was cut of and what became of it.
type BatchCourse struct {
	BatchLine
	SubscriptionID int64
	// Course are its attempts, the oldest first; of very many the newest 200.
	Course []AttemptLine `db:"-"`
	// Listed are its members in the order of the request, at most 1,000 of those after the position asked for.
	Listed []MemberLine `db:"-"`
}

const batchReport = `SELECT v.batch_id, v.topic, v.subscription, v.state, v.hold, v.members, v.bytes, v.attempts, v.reruns, v.next_attempt_at, v.first_attempt_at, v.last_attempt_at, v.last_outcome, v.last_status, v.created_at, v.finished_at`

const batchList = batchReport + ` FROM postrider.batches v
 WHERE (@cursor::bigint IS NULL OR v.batch_id %[2]s @cursor) AND (@topic::text IS NULL OR v.topic = @topic) AND (@subscription::text IS NULL OR v.subscription = @subscription) AND (@state::text IS NULL OR v.state = @state)
 ORDER BY v.batch_id %[1]s LIMIT @limit`

// ReadBatches reads a page of batches, the newest first. ErrTooSlow, ErrUnavailable.
func (s *Store) ReadBatches(ctx context.Context, f BatchFilter, t Turn[int64]) (page Page[BatchLine], err error) {
	err = s.reading(ctx, "batches", func(tx pgx.Tx) error {
		page, err = pageBy[BatchLine](ctx, tx, batchList, t, pgx.NamedArgs{"topic": given(f.Topic), "subscription": given(f.Subscription), "state": given(f.State)})
		return err
	})
	return page, err
}

// ReadBatch reads one batch with its attempts, and its members after a position; ErrNotFound.
func (s *Store) ReadBatch(ctx context.Context, id int64, after, limit int) (b *BatchCourse, err error) {
	const (
		query   = batchReport + `, b.subscription_id FROM postrider.batches v JOIN postrider_internal.batches b ON b.id = v.batch_id WHERE v.batch_id = @id`
		members = `SELECT m.position, m.delivery_id, m.event_id, m.left_at, m.left_after, m.left_reason FROM postrider.batch_members m
		            WHERE m.batch_id = @id AND m.position > @after ORDER BY m.position LIMIT @limit`
	)
	err = s.reading(ctx, "a batch", func(tx pgx.Tx) error {
		if b, err = rowOf[BatchCourse](ctx, tx, query, pgx.NamedArgs{"id": id}); err != nil {
			return err
		}
		if b.Course, err = rowsOf[AttemptLine](ctx, tx, fmt.Sprintf(courseStatement, "a.batch_id = @id"), pgx.NamedArgs{"id": id, "limit": courseLimit}); err != nil {
			return err
		}
		b.Listed, err = rowsOf[MemberLine](ctx, tx, members, pgx.NamedArgs{"id": id, "after": after, "limit": limit})
		return err
	})
	return b, err
}
