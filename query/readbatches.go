package query

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/postgres"
)

// BatchFilter says which batches; "" = all.
type BatchFilter struct{ Topic, Subscription, State, Hold string }

// BatchLine is one batch as the view shows it.
type BatchLine struct {
	BatchID                                      int64
	Topic, Subscription, State                   string
	Hold                                         *string
	Members                                      int
	Bytes                                        int64
	Attempts, Reruns                             int
	NextAttemptAt, FirstAttemptAt, LastAttemptAt *time.Time
	HoldUntil                                    *time.Time
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
	JobID          *int64
	// ExpiresAt is the latest end of its pending members' time to live; nil where none is pending.
	ExpiresAt *time.Time
	// Job is the token of its next attempt; nil where there is none.
	Job *JobLine `db:"-"`
	// Course are its attempts, the oldest first; of very many the newest 200.
	Course []AttemptLine `db:"-"`
	// Listed are its members in the order of the request, at most 1,000 of those after the position asked for.
	Listed []MemberLine `db:"-"`
}

const batchReport = `SELECT v.batch_id, v.topic, v.subscription, v.state, v.hold, v.members, v.bytes, v.attempts,
	       v.reruns, v.next_attempt_at, v.hold_until, v.first_attempt_at, v.last_attempt_at, v.last_outcome, v.last_status,
	       v.created_at, v.finished_at`

// batchList reads as many rows as the page has, along the index of the batches' ids or of each event subscription's,
// before their names are joined.
const batchList = batchReport + ` FROM (%[1]s ORDER BY id %[2]s LIMIT @limit) b JOIN postrider.batches v
	    ON v.batch_id = b.id ORDER BY v.batch_id %[2]s`

// BatchPage is a page of batches.
type BatchPage struct {
	Page[BatchLine]
	// LookedTo is where a look ended that found no more than Rows; nil where it went on to the end of the list.
	LookedTo *int64
}

// named: the filter names event subscriptions.
func (f *BatchFilter) named() bool { return f.Topic+f.Subscription != "" }

// bySubscription: the batches are read along the index of each of so many event subscriptions, and not along that of
// their ids.
func (f *BatchFilter) bySubscription(many int) bool {
	return f.Subscription != "" || f.Topic != "" && many <= topicShare
}

// statements are the list's query, and the one that finds where a look of so many batches along each index ends.
func (f *BatchFilter) statements(bySubscription bool, order, compare string) (list, end string) {
	behind := fmt.Sprintf("(@cursor::bigint IS NULL OR b.id %s @cursor)", compare)
	where := []string{behind, fmt.Sprintf("(@end::bigint IS NULL OR NOT b.id %s @end)", compare)}
	add := func(set bool, condition string) {
		if set {
			where = append(where, condition)
		}
	}
	add(f.State == "pending", "b.state = 'pending'") // in these words an index knows them
	add(f.State != "" && f.State != "pending", "b.state = @state")
	add(f.Hold != "", "b.hold IS NOT NULL AND b.hold = @hold")
	// In no words that an index knows: read along those of thousands of event subscriptions, all of their batches would be
	// sorted.
	add(f.named() && !bySubscription, "b.subscription_id + 0 = ANY (@subscriptions)")
	along := func(what, where, from string) string {
		each := fmt.Sprintf("SELECT %s FROM postrider_internal.batches b WHERE %s", what, where)
		if !bySubscription {
			return fmt.Sprintf("(%s ORDER BY b.id %s %s)", each, order, from)
		}
		return fmt.Sprintf("(SELECT x.* FROM unnest(@subscriptions::bigint[]) AS one(id) CROSS JOIN LATERAL (%s "+
			"AND b.subscription_id = one.id ORDER BY b.id %s %s) x)", each, order, from)
	}
	list = fmt.Sprintf(batchList,
		"SELECT * FROM "+along("b.id", strings.Join(where, " AND "), "LIMIT @limit")+" found", order)
	end = "SELECT id FROM " + along("b.id", behind, "OFFSET @look LIMIT 1") + " ends ORDER BY id " + order + " LIMIT 1"
	return list, end
}

// blind: no index knows which batches the filter wants.
func (f *BatchFilter) blind(bySubscription bool) bool {
	return f.State != "" && f.State != "pending" || !bySubscription && (f.Hold != "" || f.named())
}

// ReadBatches reads a page of batches, the newest first. ErrTooSlow, ErrUnavailable.
func (r *Reader) ReadBatches(ctx context.Context, f BatchFilter, t Turn[int64]) (page BatchPage, err error) {
	err = r.db.Read(ctx, "batches", func(tx pgx.Tx) error {
		page, err = readBatches(ctx, tx, f, t)
		return err
	})
	return page, err
}

func readBatches(ctx context.Context, tx pgx.Tx, f BatchFilter, t Turn[int64]) (page BatchPage, err error) {
	args := t.args(pgx.NamedArgs{"state": f.State, "hold": f.Hold, "end": nil, "look": lookLimit})
	bySubscription := false
	if f.named() {
		var subscriptions []int64
		if err := tx.QueryRow(ctx, batchSubscriptions,
			pgx.NamedArgs{"topic": given(f.Topic), "subscription": given(f.Subscription)}).Scan(&subscriptions); err != nil {
			return page, err
		}
		args["subscriptions"] = subscriptions
		if bySubscription = f.bySubscription(len(subscriptions)); bySubscription {
			args["look"] = lookEach(len(subscriptions))
		}
	}
	order, compare := t.way()
	list, end := f.statements(bySubscription, order, compare)
	if f.blind(bySubscription) {
		if err := tx.QueryRow(ctx, end, args).Scan(&page.LookedTo); err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return page, err
		}
		args["end"] = page.LookedTo
	}
	rows, err := postgres.Rows[BatchLine](ctx, tx, list, args)
	page.Page = pageOf(rows, t)
	if len(rows) > t.Limit {
		page.LookedTo = nil
	}
	return page, err
}

// batchSubscriptions are the event subscriptions of a name or a topic, those that were deleted too.
const batchSubscriptions = `SELECT coalesce(array_agg(s.id), '{}') FROM postrider_internal.event_subscriptions s
 JOIN postrider_internal.topics t ON t.id = s.topic_id
 WHERE (@topic::text IS NULL OR t.name = @topic) AND (@subscription::text IS NULL OR s.name = @subscription)`

// ReadBatch reads one batch with its attempts, and its members after a position; ErrNotFound.
func (r *Reader) ReadBatch(ctx context.Context, id int64, after, limit int) (b *BatchCourse, err error) {
	const (
		query = batchReport + `, b.subscription_id, b.job_id,
			       (SELECT max(d.expires_at) FROM postrider.deliveries d WHERE d.batch_id = @id
			           AND d.state = 'pending') AS expires_at
			  FROM postrider.batches v JOIN postrider_internal.batches b ON b.id = v.batch_id WHERE v.batch_id = @id`
		members = `SELECT m.position, m.delivery_id, m.event_id, m.left_at, m.left_after, m.left_reason
		            FROM postrider.batch_members m
		            WHERE m.batch_id = @id AND m.position > @after ORDER BY m.position LIMIT @limit`
	)
	err = r.db.Read(ctx, "a batch", func(tx pgx.Tx) error {
		if b, err = postgres.Row[BatchCourse](ctx, tx, query, pgx.NamedArgs{"id": id}); err != nil {
			return err
		}
		if b.Course, err = postgres.Rows[AttemptLine](ctx, tx, fmt.Sprintf(courseStatement, "a.batch_id = @id"),
			pgx.NamedArgs{"id": id, "limit": courseLimit}); err != nil {
			return err
		}
		if b.JobID != nil {
			if b.Job, err = readJob(ctx, tx, *b.JobID); err != nil {
				return err
			}
		}
		b.Listed, err = postgres.Rows[MemberLine](ctx, tx, members, pgx.NamedArgs{"id": id, "after": after, "limit": limit})
		return err
	})
	return b, err
}
