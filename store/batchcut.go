package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"postrider/event"

	"github.com/jackc/pgx/v5"
)

// cutters keep this node's pumps of one event subscription from cutting at once: one that goes on where the last one ended
// is six times as fast as many that skip each other's rows (61,000 events/s at 100 per batch, 10,000).
type cutters struct {
	mu  sync.Mutex
	all map[int64]*cutter
	// slow: a look back that takes longer is not made for each batch.
	slow time.Duration
}

// cutter is one event subscription's.
type cutter struct {
	mu sync.Mutex
	// cursor is the last delivery that was cut. What lies before it is not looked at while enough lies behind: an index
	// scan would pass over the entries of all that was cut since the last vacuum.
	cursor int64
	// slow looks back are left to a pump that is on its way; until then nobody else looks.
	slow, lookedBack time.Duration
	covered          time.Time
}

const (
	// slowLook is more than 100,000 entries that no vacuum could remove yet, as while somebody's transaction stays open.
	slowLook = 20 * time.Millisecond
	// lookLater is when a pump looks back in the others' stead. They trust in it for a bit less: it cannot have run before.
	lookLater, lookTrust = 250 * time.Millisecond, 200 * time.Millisecond
)

func (c *cutters) of(subscription int64) *cutter {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = map[int64]*cutter{}
	}
	if c.all[subscription] == nil {
		c.all[subscription] = &cutter{slow: c.slow}
	}
	return c.all[subscription]
}

const (
	// openStatement reads what the next batch may be cut from, and what of each counts.
	openStatement = `
SELECT d.id, coalesce(octet_length(e.body), 0), coalesce(e.schema, '')
  FROM (SELECT id, event_uuid, event_day FROM postrider_internal.deliveries
         WHERE subscription_id = $1 AND id > $2 AND id <= $3 AND open
         ORDER BY id LIMIT $4 FOR UPDATE SKIP LOCKED) d
  LEFT JOIN LATERAL (SELECT * FROM postrider_internal.events e WHERE e.id = d.event_uuid AND e.day = d.event_day LIMIT 1) e ON true
 ORDER BY d.id`

	// lockJobStatement: whoever does not find its own job row is nobody any more.
	lockJobStatement = `SELECT id FROM postrider_internal.river_job WHERE id = $1 FOR UPDATE`

	anyOpenStatement = `SELECT EXISTS (SELECT FROM postrider_internal.deliveries WHERE subscription_id = $1 AND open)`

	endJobStatement = `DELETE FROM postrider_internal.river_job WHERE id = $1`

	pumpStatement = `
INSERT INTO postrider_internal.river_job (state, args, kind, queue, priority, max_attempts, scheduled_at)
VALUES ('available', jsonb_build_object('s', $1::bigint), 'batch', 'deliveries', 1, 1000, now() + $2::interval)`

	// bindStatement makes batches of deliveries. The first one's job is the pump's; each other one gets its own. Members have
	// the order in which their events were accepted, which is that of their system ids.
	bindStatement = `
WITH cuts AS MATERIALIZED (
    SELECT c.n, c.bytes, nextval('postrider_internal.batches_id_seq') AS id, CASE c.n WHEN 1 THEN $2 ELSE nextval('postrider_internal.river_job_id_seq') END AS job_id
      FROM unnest($5::bigint[]) WITH ORDINALITY AS c(bytes, n)
), chosen AS MATERIALIZED (
    SELECT d.id, d.event_uuid, d.next_attempt_at, d.last_hold, cuts.id AS batch_id
      FROM unnest($3::bigint[], $4::int[]) AS c(id, n) JOIN cuts ON cuts.n = c.n JOIN postrider_internal.deliveries d ON d.id = c.id AND d.id = ANY ($3::bigint[])
), batches AS (
    INSERT INTO postrider_internal.batches (id, subscription_id, job_id, bytes, members, next_attempt_at, last_hold)
    SELECT cuts.id, $1, cuts.job_id, cuts.bytes, m.members, m.due, m.last_hold
      FROM cuts JOIN (SELECT batch_id, count(*) AS members, min(next_attempt_at) AS due, (array_agg(last_hold ORDER BY id))[1] AS last_hold FROM chosen GROUP BY 1) m ON m.batch_id = cuts.id
), members AS (
    INSERT INTO postrider_internal.batch_members (batch_id, position, delivery_id)
    SELECT batch_id, row_number() OVER (PARTITION BY batch_id ORDER BY event_uuid, id), id FROM chosen
), bound AS (
    UPDATE postrider_internal.deliveries d SET batch_id = chosen.batch_id FROM chosen WHERE d.id = chosen.id
), jobs AS (
    INSERT INTO postrider_internal.river_job (id, state, args, kind, queue, priority, max_attempts, scheduled_at)
    SELECT job_id, 'available', jsonb_build_object('s', $1::bigint, 'b', id, 'n', 1), 'batch', 'deliveries', 1, 1000, now() FROM cuts WHERE n > 1
)
UPDATE postrider_internal.river_job j SET args = j.args || jsonb_build_object('b', cuts.id, 'n', 1) FROM cuts WHERE cuts.n = 1 AND j.id = $2`
)

// cutAhead is how many open deliveries one pump looks at, at least: whole batches that are there are cut together. With one
// batch for each pump, 1,600 events/s went out at 10 per batch (two cores).
const cutAhead = 1000

// openDelivery is one that no batch has yet.
type openDelivery struct {
	id     int64
	bytes  int
	schema event.Schema
}

// cutBatch makes the next batch of an event subscription, with the pump's job as its token, and the next pump if something is
// left. Where more is open than fits, further batches are cut with jobs of their own. It is committed before anything is sent. ErrNotFound: nothing is open, the event subscription is on hold (what is open
// is then on hold as well), or the job is gone.
func (s *Store) cutBatch(ctx context.Context, sub *Subscription, jobID int64) error {
	c := s.cutters.of(sub.ID)
	c.mu.Lock()
	defer c.mu.Unlock()
	began := time.Now()
	var hold string
	var more, later bool
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) (err error) {
		if hold, err = s.lockPump(ctx, tx, sub, jobID); err != nil || hold != "" {
			return err
		}
		open, err := c.open(ctx, tx, sub)
		if err != nil {
			return err
		}
		if len(open) == 0 {
			return s.endPump(ctx, tx, sub, jobID)
		}
		later = c.lookedBack > c.slow
		more, err = c.bind(ctx, tx, sub, jobID, open, later)
		return err
	})
	switch {
	case errors.Is(err, ErrNotFound):
		return err
	case err != nil:
		return fmt.Errorf("%w: cut a batch: %w", ErrUnavailable, err)
	case hold != "":
		return s.HoldOpen(ctx, sub.ID, jobID, hold)
	case more:
		s.notifier.poke()
	}
	if later {
		c.covered = began.Add(lookTrust)
	}
	return nil
}

// lockPump takes the token, and reads what stands in the way.
func (s *Store) lockPump(ctx context.Context, tx pgx.Tx, sub *Subscription, jobID int64) (hold string, err error) {
	w, rests, rest := Work{}, map[string]restRow{}, s.restOf(sub.ID)
	batch := &pgx.Batch{}
	batch.Queue(lockJobStatement, jobID).QueryRow(func(row pgx.Row) error { return row.Scan(&jobID) })
	batch.Queue(turnStatement, sub.ID).QueryRow(func(row pgx.Row) error { return row.Scan(&w.readAt, &w.Hold, &w.TimeToLiveStopped) })
	queueRests(batch, []*loadRequest{{rest: rest}}, rests)
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		if errors.Is(err, pgx.ErrNoRows) {
			return "", fmt.Errorf("job %d: %w", jobID, ErrNotFound)
		}
		return "", err
	}
	w.rests(rest, rests, jobID)
	return w.Hold, nil
}

// open locks one more than are looked at, to know whether anything is left. What lies before the cursor was left behind, held
// and released, or published by a slower transaction: whoever finds less than it may take looks there, too.
func (c *cutter) open(ctx context.Context, tx pgx.Tx, sub *Subscription) ([]openDelivery, error) {
	const last = int64(1<<63 - 1)
	c.lookedBack = 0
	limit := max(sub.Batch().MaxEvents, cutAhead) + 1
	found, err := lockOpen(ctx, tx, sub.ID, c.cursor, last, limit)
	if err != nil || len(found) >= limit || c.cursor == 0 || len(found) > 0 && time.Now().Before(c.covered) {
		return found, err
	}
	began := time.Now()
	before, err := lockOpen(ctx, tx, sub.ID, 0, c.cursor, limit-len(found))
	if err != nil {
		return nil, err
	}
	c.lookedBack = time.Since(began)
	return append(before, found...), nil
}

func lockOpen(ctx context.Context, tx pgx.Tx, subscription, after, until int64, limit int) ([]openDelivery, error) {
	rows, err := tx.Query(ctx, openStatement, subscription, after, until, limit)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (o openDelivery, err error) {
		return o, row.Scan(&o.id, &o.bytes, &o.schema)
	})
}

// endPump lets a pump go that found nothing. What others hold locked at this moment is perhaps left by them: it keeps a pump.
func (s *Store) endPump(ctx context.Context, tx pgx.Tx, sub *Subscription, jobID int64) error {
	var more bool
	if err := tx.QueryRow(ctx, anyOpenStatement, sub.ID).Scan(&more); err != nil {
		return err
	}
	batch := &pgx.Batch{}
	batch.Queue(endJobStatement, jobID)
	if more {
		batch.Queue(pumpStatement, sub.ID, lookLater)
	}
	return tx.SendBatch(ctx, batch).Close()
}

// bind writes down what was cut; more says that it gave out further jobs. later adds the pump that looks back in the others'
// stead.
func (c *cutter) bind(ctx context.Context, tx pgx.Tx, sub *Subscription, jobID int64, open []openDelivery, later bool) (more bool, err error) {
	cuts := cutUp(sub, open)
	ids, of, bytes := make([]int64, 0, len(open)), make([]int32, 0, len(open)), make([]int64, len(cuts))
	for i, cut := range cuts {
		for _, o := range cut {
			ids, of = append(ids, o.id), append(of, int32(i+1))
			bytes[i] += int64(o.bytes) + 1
		}
		bytes[i]++
	}
	batch := &pgx.Batch{}
	batch.Queue(bindStatement, sub.ID, jobID, ids, of, bytes)
	if len(ids) < len(open) {
		batch.Queue(pumpStatement, sub.ID, time.Duration(0))
	}
	if later {
		batch.Queue(pumpStatement, sub.ID, lookLater)
	}
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return false, err
	}
	c.cursor = max(c.cursor, ids[len(ids)-1])
	if len(ids) < len(open) {
		c.cursor = ids[len(ids)-1]
	}
	return batch.Len() > 1 || len(cuts) > 1, nil
}

// cutUp cuts one batch, and after it those that are full: what is left may grow until its own pump comes. bytes are
// counted as they are sent from here on.
func cutUp(sub *Subscription, open []openDelivery) (cuts [][]openDelivery) {
	sizes := make([]int, len(open))
	for i := range open {
		open[i].bytes += event.Overhead(open[i].schema, sub.EventDeliverySchema, sub.Topic)
		sizes[i] = open[i].bytes
	}
	for len(open) > 0 {
		n := sub.Batch().Cut(sizes, 0)
		if n == len(open) && len(cuts) > 0 {
			break
		}
		cuts = append(cuts, open[:n])
		open, sizes = open[n:], sizes[n:]
	}
	return cuts
}

const holdStep = 5000

// holdOpenStatement is one step: what is open goes on hold, as long as the pump's job is there.
const holdOpenStatement = `
WITH token AS MATERIALIZED (
    SELECT id FROM postrider_internal.river_job WHERE id = $2 FOR UPDATE
), step AS MATERIALIZED (
    SELECT d.id FROM postrider_internal.deliveries d
     WHERE EXISTS (SELECT FROM token) AND d.subscription_id = $1 AND d.open
     ORDER BY d.id LIMIT $4 FOR UPDATE
), held AS (
    UPDATE postrider_internal.deliveries d SET hold = $3 FROM step WHERE d.id = step.id
)
SELECT count(*) FROM step`

// HoldOpen puts on hold what the next batches would have been cut from, and ends the pump that met the hold. It answers
// ErrNotFound: there is nothing to send.
func (s *Store) HoldOpen(ctx context.Context, subscription, jobID int64, hold string) error {
	for n := holdStep; n > 0; {
		if err := s.pool.QueryRow(ctx, holdOpenStatement, subscription, jobID, hold, holdStep).Scan(&n); err != nil {
			return fmt.Errorf("%w: hold what is open: %w", ErrUnavailable, err)
		}
	}
	return s.EndJob(ctx, jobID)
}

// EndJob deletes a job that has nothing to do, and answers ErrNotFound, which says so.
func (s *Store) EndJob(ctx context.Context, jobID int64) error {
	if _, err := s.pool.Exec(ctx, endJobStatement, jobID); err != nil {
		return fmt.Errorf("%w: end job %d: %w", ErrUnavailable, jobID, err)
	}
	return fmt.Errorf("job %d: %w", jobID, ErrNotFound)
}
