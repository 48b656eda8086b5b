package delivery

import (
	"context"
	"errors"
	"fmt"
	"time"

	"postrider/catalog"
	"postrider/event"
	"postrider/jobs/queue"
	"postrider/postgres"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Batch is a batch whose turn has come. Of its Work all but DeliveryID, SystemID, OwedSince and Event is the batch's: members
// are attempted together and all have the same number of attempts.
type Batch struct {
	queue.Work
	ID int64
	// CreatedAt is when it was cut.
	CreatedAt time.Time
	// Job is the row that this attempt was loaded for.
	Job queue.JobToken
	// Members are the deliveries that are still in it, in the order in which every attempt sends them.
	Members []Member
}

// Member is a delivery in a batch.
type Member struct {
	DeliveryID   int64
	SystemID     uuid.UUID
	OwedSince    time.Time
	Event        event.Event
	EventMissing bool
}

// MessageID names the batch to its receiver, the same at each attempt. With the time, for a database that was restored counts on from
// where it was, and a receiver that knows an id already throws the message away.
func (b *Batch) MessageID() string { return fmt.Sprintf("batch-%d-%d", b.ID, b.CreatedAt.UnixMicro()) }

// Keep leaves out the members that the function does not want to keep, and answers those.
func (b *Batch) Keep(keep func(*Member) bool) (gone []Member) {
	kept := b.Members[:0:0]
	for i := range b.Members {
		if keep(&b.Members[i]) {
			kept = append(kept, b.Members[i])
		} else {
			gone = append(gone, b.Members[i])
		}
	}
	b.Members = kept
	return gone
}

const (
	batchStatement = `
SELECT id, attempts, skipped_marks, bytes, next_attempt_at, not_before, first_attempt_at, coalesce(last_hold, ''), created_at
  FROM postrider_internal.batches WHERE job_id = $1 AND state = 'pending'`

	// The order is that of their positions, see bindStatement.
	membersStatement = membersOf + "batch_id = $1" + eventsOfMembers

	membersOf = `
WITH members AS MATERIALIZED (
    SELECT id, event_uuid, event_day, owed_since FROM postrider_internal.deliveries WHERE `
	eventsOfMembers = `
), found AS NOT MATERIALIZED (
    SELECT * FROM postrider_internal.events
     WHERE id = ANY (ARRAY (SELECT event_uuid FROM members)) AND day >= (SELECT min(event_day) FROM members) AND day <= (SELECT max(event_day) FROM members) AND erased_at IS NULL
)
SELECT d.id, d.event_uuid, d.owed_since, e.id IS NULL, coalesce(e.schema, ''), coalesce(e.event_id, ''), coalesce(e.event_type, ''), coalesce(e.subject, ''),
       coalesce(e.source, ''), coalesce(e.data_version, ''), e.body,
       CASE WHEN e.schema = 'CustomEventSchema' THEN e.event_time END, coalesce(e.traceparent, ''), coalesce(e.tracestate, '')
  FROM members d
  LEFT JOIN found e ON e.id = d.event_uuid AND e.day = d.event_day
 ORDER BY d.event_uuid, d.id`

	turnStatement = `
SELECT clock_timestamp(), coalesce((SELECT hold FROM postrider_internal.event_subscription_states WHERE subscription_id = $1), ''),
       coalesce((SELECT stop_time_to_live FROM postrider_internal.event_subscription_states WHERE subscription_id = $1), false)`
)

// PointClaim is the failpoint after a batch was cut and before its request.
const PointClaim = "claim"

// LoadBatch reads the batch of a job, with its events. For a pump, a job whose arguments name no batch, it is cut first.
// ErrNotFound: there is nothing to send, and the job is done with.
func (l *Loader) LoadBatch(ctx context.Context, sub *catalog.Subscription, token queue.JobToken, pump bool) (*Batch, error) {
	if pump {
		if err := l.cutBatch(ctx, sub, token); err != nil {
			return nil, err
		}
		l.Reach(PointClaim)
	}
	b, bytes, err := l.findBatch(ctx, sub, token.JobID)
	if err != nil {
		return nil, err
	}
	b.Job = token
	if b.Free, err = l.Memory.Reserve(ctx, bytes); err != nil {
		return nil, err
	}
	if err := l.fillBatch(ctx, b, token.JobID); err != nil {
		b.Release()
		return nil, err
	}
	return b, nil
}

func (l *Loader) findBatch(ctx context.Context, sub *catalog.Subscription, jobID int64) (b *Batch, bytes int64, err error) {
	b = &Batch{Work: queue.Work{SubscriptionID: sub.ID, JobID: &jobID}}
	err = l.DB.ReadKept(ctx, func(batch *pgx.Batch) {
		batch.Queue(batchStatement, jobID).QueryRow(func(row pgx.Row) error {
			return row.Scan(&b.ID, &b.Attempts, &b.SkippedMarks, &bytes, &b.NextAttemptAt, &b.NotBefore, &b.FirstAttemptAt, &b.LastHold, &b.CreatedAt)
		})
	})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, 0, fmt.Errorf("batch of job %d: %w", jobID, postgres.ErrNotFound)
	case err != nil:
		return nil, 0, fmt.Errorf("%w: read the batch of job %d: %w", postgres.ErrUnavailable, jobID, err)
	}
	return b, bytes, nil
}

// fillBatch reads members, bodies, and whether an attempt may be made now, in one round trip. The latter first: members whose age a resume
// is about to correct must not be seen without the pause.
func (l *Loader) fillBatch(ctx context.Context, b *Batch, jobID int64) error {
	rests, rest := map[string]queue.RestRow{}, queue.RestOf(l.Cache.Catalogue(), b.SubscriptionID)
	b.AsOf = time.Now()
	err := l.DB.ReadKept(ctx, func(batch *pgx.Batch) {
		batch.Queue(turnStatement, b.SubscriptionID).QueryRow(func(row pgx.Row) error {
			err := row.Scan(&b.ReadAt, &b.Hold, &b.TimeToLiveStopped)
			b.LoadedAt = time.Now()
			return err
		})
		batch.Queue(membersStatement, b.ID).Query(b.readMembers)
		queueRests(batch, []*loadRequest{{rest: rest}}, rests)
	})
	if err != nil {
		return fmt.Errorf("%w: read the events of batch %d: %w", postgres.ErrUnavailable, b.ID, err)
	}
	b.SetRest(rest, rests, jobID)
	return nil
}

func (b *Batch) readMembers(rows pgx.Rows) error {
	return readMembers(rows, func(m Member) { b.Members = append(b.Members, m) })
}

// readMembers reads what membersOf and eventsOfMembers select.
func readMembers(rows pgx.Rows, read func(Member)) error {
	var m Member
	var at *time.Time
	_, err := pgx.ForEachRow(rows, []any{
		&m.DeliveryID, &m.SystemID, &m.OwedSince, &m.EventMissing, &m.Event.Schema, &m.Event.ID, &m.Event.Type, &m.Event.Subject,
		&m.Event.Source, &m.Event.DataVersion, &m.Event.Body,
		&at, &m.Event.Trace.Parent, &m.Event.Trace.State,
	}, func() error {
		m.Event.Time = postgres.TimeOrNone(at)
		read(m)
		m.Event.Body = nil // the next row must not write into it
		return nil
	})
	return err
}
