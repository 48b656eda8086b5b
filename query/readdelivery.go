package query

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/postgres"
)

// AttemptLine is one request made: of a delivery, or of the batch that it was in. Times are in milliseconds.
type AttemptLine struct {
	DeliveryID, BatchID                     *int64
	Number, Reruns                          int
	DueAt                                   *time.Time
	StartedAt                               time.Time
	DurationMs                              float64
	DNSMs, ConnectMs, TLSMs, FirstByteMs    *float64
	Status                                  *int
	Outcome                                 string
	Error                                   *string
	Verdict                                 string
	NextAttemptAt                           *time.Time
	Why                                     string
	StepMs, FloorMs, JitterMs, RetryAfterMs *int64
	Hold                                    *string
	SkippedMarks                            int
	Late                                    bool
	Node                                    string
	RequestHeaders                          *string
	ResponseHeaders, ResponseExcerpt        *string
}

// Membership is a batch that a delivery was in, and after how many of its attempts it left; nil = it did not.
type Membership struct {
	BatchID    int64
	LeftAfter  *int
	LeftReason *string
}

// DeliveryCourse is one delivery with all that became of it.
type DeliveryCourse struct {
	DeliveryLine
	FirstAttemptAt *time.Time
	// SubscriptionID is for Catalogue.Rules.
	SubscriptionID  int64
	EndpointBaseURL string
	JobID           *int64
	PublishedAt     *time.Time // nil once the event's day was dropped, as Schema and BodyText
	Schema          *string
	BodyText        *string
	// RedeliveredFromKind is what RedeliveredFrom is: "dead letter", "operation", or "" where it is none or no longer
	// kept.
	RedeliveredFromKind string
	// Course are its attempts, and those of the batches it was in while it was in them, the oldest first; of very many the
	// newest 200.
	Course      []AttemptLine `db:"-"`
	Memberships []Membership  `db:"-"`
	// Job is the token of the next attempt; nil where there is none: the delivery is finished, on hold, or waits for a
	// batch.
	Job *JobLine `db:"-"`
}

// redeliveredFromKind looks in both tables: ids of neither are the other's.
const redeliveredFromKind = `CASE WHEN EXISTS (SELECT FROM postrider_internal.dead_letters x
                WHERE x.id = redelivered_from) THEN 'dead letter'
            WHEN EXISTS (SELECT FROM postrider_internal.operations x WHERE x.id = redelivered_from) THEN 'operation'
            ELSE '' END AS redelivered_from_kind`

// courseLimit is how many attempts of one delivery a page shows.
const courseLimit = 200

const (
	// attemptColumns are those of an AttemptLine.
	attemptColumns = ` a.delivery_id, a.batch_id, a.number, a.reruns, a.due_at, a.started_at, a.duration_ms::float8,` +
		` a.dns_ms::float8, a.connect_ms::float8, a.tls_ms::float8, a.first_byte_ms::float8,
           a.status, a.outcome, a.error, a.verdict, a.next_attempt_at, a.why, a.step_ms, a.floor_ms, a.jitter_ms,` +
		` a.retry_after_ms, a.hold, a.skipped_marks, a.late, a.node,
           a.request_headers, a.response_headers, a.response_excerpt`

	courseStatement = `
SELECT * FROM (
    SELECT` + attemptColumns + `
      FROM postrider.delivery_attempts a WHERE %s ORDER BY a.started_at DESC, a.number DESC, a.late LIMIT @limit) newest
 ORDER BY started_at, number, late`

	deliveryStatement = `
SELECT d.delivery_id, d.topic, d.subscription, d.event_id, d.event_type, d.subject, d.system_id, d.state, d.hold,
       d.reason, d.attempts, d.reruns,
       d.next_attempt_at, d.hold_until, d.expires_at, d.last_attempt_at, d.last_outcome, d.last_status, d.owed_since,
       d.finished_at,
       d.batch_id, d.redelivered_from, d.operation_id, d.dead_letter_id,
       o.first_attempt_at, o.subscription_id, s.endpoint_base_url, coalesce(o.job_id, b.job_id) AS job_id,
       e.published_at, e.schema, convert_from(e.body, 'UTF8') AS body_text,
       ` + redeliveredFromKind + `
  FROM postrider.deliveries d
 CROSS JOIN LATERAL (SELECT first_attempt_at, subscription_id, job_id, event_uuid, event_day
     FROM postrider_internal.deliveries WHERE id = @id
                      UNION ALL SELECT first_attempt_at, subscription_id, NULL, event_uuid, event_day
                      FROM postrider_internal.delivery_history WHERE id = @id LIMIT 1) o
  JOIN postrider_internal.event_subscriptions s ON s.id = o.subscription_id
  LEFT JOIN postrider_internal.batches b ON b.id = d.batch_id
  LEFT JOIN postrider_internal.events e ON e.id = o.event_uuid AND e.day = o.event_day
 WHERE d.delivery_id = @id LIMIT 1`

	membershipStatement = `SELECT m.batch_id, m.left_after, m.left_reason FROM postrider_internal.batch_members m
		WHERE m.delivery_id = @id ORDER BY m.batch_id`
)

// ReadDelivery reads one delivery with all that became of it; ErrNotFound.
func (r *Reader) ReadDelivery(ctx context.Context, id int64) (d *DeliveryCourse, err error) {
	args := pgx.NamedArgs{"id": id, "limit": courseLimit}
	err = r.db.Read(ctx, "a delivery", func(tx pgx.Tx) error {
		if d, err = postgres.Row[DeliveryCourse](ctx, tx, deliveryStatement, args); err != nil {
			return err
		}
		if d.Memberships, err = postgres.Rows[Membership](ctx, tx, membershipStatement, args); err != nil {
			return err
		}
		if d.Course, err = postgres.Rows[AttemptLine](ctx, tx, fmt.Sprintf(courseStatement, "a.delivery_id = @id"),
			args); err != nil {
			return err
		}
		if err := d.readBatchAttempts(ctx, tx); err != nil || d.JobID == nil {
			return err
		}
		d.Job, err = readJob(ctx, tx, *d.JobID)
		return err
	})
	return d, err
}

// readBatchAttempts adds the attempts of the batches that the delivery was in, while it was in them.
func (d *DeliveryCourse) readBatchAttempts(ctx context.Context, tx pgx.Tx) error {
	leftAfter := map[int64]*int{}
	ids := []int64{}
	for _, m := range d.Memberships {
		ids, leftAfter[m.BatchID] = append(ids, m.BatchID), m.LeftAfter
	}
	if len(ids) == 0 {
		return nil
	}
	attempts, err := postgres.Rows[AttemptLine](ctx, tx, fmt.Sprintf(courseStatement, "a.batch_id = ANY (@batches)"),
		pgx.NamedArgs{"batches": ids, "limit": courseLimit})
	for _, a := range attempts {
		if left := leftAfter[*a.BatchID]; left == nil || a.Number <= *left {
			d.Course = append(d.Course, a)
		}
	}
	slices.SortStableFunc(d.Course, func(a, b AttemptLine) int { return a.StartedAt.Compare(b.StartedAt) })
	return err
}

const (
	deliveryQuery = `SELECT delivery_id, topic, subscription, system_id, event_id, event_type, subject, state, hold,
         reason, attempts, reruns, next_attempt_at,
       hold_until, expires_at, last_attempt_at, last_outcome, last_status, owed_since, finished_at, batch_id,
       redelivered_from,
       operation_id, dead_letter_id
  FROM postrider.deliveries WHERE delivery_id = $1`

	// attemptsQuery finds the attempts of a delivery, alone and in the batches that it was in.
	attemptsQuery = `SELECT` + attemptColumns + `
  FROM (SELECT * FROM postrider.delivery_attempts WHERE delivery_id = $1
        UNION ALL
        SELECT a.* FROM postrider_internal.batch_members m JOIN postrider.delivery_attempts a ON a.batch_id = m.batch_id
         WHERE m.delivery_id = $1 AND a.number <= coalesce(m.left_after, a.number)) a
 ORDER BY number, late, started_at LIMIT $2`
)

// Delivery reads a delivery. ErrNotFound.
func (r *Reader) Delivery(ctx context.Context, id int64) (*DeliveryLine, error) {
	found, err := postgres.Collect[DeliveryLine](ctx, r.db, deliveryQuery, id)
	switch {
	case err != nil:
		return nil, fmt.Errorf("delivery %d: %w", id, err)
	case len(found) == 0:
		return nil, fmt.Errorf("delivery %d: %w", id, postgres.ErrNotFound)
	}
	return &found[0], nil
}

// Attempts reads the first attempts of a delivery, up to limit, those of the batches that it was in among them.
func (r *Reader) Attempts(ctx context.Context, id int64, limit int) ([]AttemptLine, error) {
	attempts, err := postgres.Collect[AttemptLine](ctx, r.db, attemptsQuery, id, limit)
	if err != nil {
		return nil, fmt.Errorf("the attempts of delivery %d: %w", id, err)
	}
	return attempts, nil
}
