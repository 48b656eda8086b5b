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

	"github.com/jackc/pgx/v5"
)

const (
	// openStatement reads what the next batch may be cut from, and how long the body of each is.
	openStatement = `
SELECT id, event_bytes, false, owed_since FROM postrider_internal.deliveries WHERE subscription_id = $1 AND id > $2 AND id <= $3 AND open ORDER BY id LIMIT $4`

	// heldStatement reads what was on hold when its event subscription no longer was. What was attempted before goes alone, see
	// Refill.
	heldStatement = `
SELECT id, event_bytes, true, owed_since
  FROM (SELECT * FROM postrider_internal.deliveries WHERE subscription_id = $1 AND hold IS NOT NULL AND (owed_since, id) > ($2, $3)
         ORDER BY owed_since, id LIMIT $4) d WHERE attempts = 0`

	// lockJobStatement: whoever does not find its own job row is nobody any more.
	lockJobStatement = `SELECT id FROM postrider_internal.river_job WHERE id = $1 AND created_at = $2 FOR UPDATE`

	anyOpenStatement = `SELECT EXISTS (SELECT FROM postrider_internal.deliveries WHERE subscription_id = $1 AND open)`

	pumpStatement = `
INSERT INTO postrider_internal.river_job (state, args, kind, queue, priority, max_attempts, scheduled_at)
VALUES ('available', jsonb_build_object('s', $1::bigint), 'batch', 'deliveries', 1, 1000, now() + $2::interval)`

	// BindStatement makes batches of deliveries, and says whether the first one was made. The first one's job is the pump's; each
	// other one gets its own. Members have the order in which their events were accepted, which is that of their system ids.
	//
	// Nothing was locked when the deliveries were read: one that has an owner by now is left out.
	BindStatement = `
WITH cuts AS MATERIALIZED (
    SELECT c.n, c.bytes, nextval('postrider_internal.batches_id_seq') AS id, CASE c.n WHEN 1 THEN $2 ELSE nextval('postrider_internal.river_job_id_seq') END AS job_id
      FROM unnest($5::bigint[]) WITH ORDINALITY AS c(bytes, n)
), bound AS (
    UPDATE postrider_internal.deliveries d SET batch_id = cuts.id, last_hold = coalesce(d.hold, d.last_hold), hold = NULL
      FROM unnest($3::bigint[], $4::int[]) AS c(id, n) JOIN cuts ON cuts.n = c.n
     WHERE d.id = c.id AND d.id = ANY ($3::bigint[]) AND d.job_id IS NULL AND d.batch_id IS NULL AND d.attempts = 0
    RETURNING d.id, d.event_uuid, d.next_attempt_at, d.last_hold, d.batch_id
), batches AS (
    INSERT INTO postrider_internal.batches (id, subscription_id, job_id, bytes, members, next_attempt_at, last_hold)
    SELECT cuts.id, $1, cuts.job_id, cuts.bytes, m.members, m.due, m.last_hold
      FROM cuts JOIN (SELECT batch_id, count(*) AS members, min(next_attempt_at) AS due, (array_agg(last_hold ORDER BY id))[1] AS last_hold FROM bound GROUP BY 1) m ON m.batch_id = cuts.id
    RETURNING id, job_id
), members AS (
    INSERT INTO postrider_internal.batch_members (batch_id, position, delivery_id)
    SELECT batch_id, row_number() OVER (PARTITION BY batch_id ORDER BY event_uuid, id), id FROM bound
), jobs AS (
    INSERT INTO postrider_internal.river_job (id, state, args, kind, queue, priority, max_attempts, scheduled_at)
    SELECT job_id, 'available', jsonb_build_object('s', $1::bigint, 'b', id, 'n', 1), 'batch', 'deliveries', 1, 1000, now() FROM batches WHERE job_id <> $2
), first AS (
    UPDATE postrider_internal.river_job j SET args = j.args || jsonb_build_object('b', batches.id, 'n', 1) FROM batches WHERE batches.job_id = $2 AND j.id = $2
    RETURNING j.id
)
SELECT EXISTS (SELECT FROM first)`
)

// cutAhead is how many open deliveries one pump looks at, at least: whole batches that are there are cut together. With one
// batch for each pump, 1,600 events/s went out at 10 per batch (two cores).
const cutAhead = 1000

// openDelivery is one that no batch has yet.
type openDelivery struct {
	id    int64
	bytes int
	held  bool
	owed  time.Time
}

// cutting is one pump's turn.
type cutting struct {
	*cutter
	*pump
	loader *Loader
	tx     pgx.Tx
	sub    *catalog.Subscription

	later bool // a look back took long: a pump of its own makes the next one
	more  bool // further jobs were given out
	held  int  // deliveries that were on hold
}

// cutBatch makes the next batch of an event subscription, with the pump's job as its token, and the next pump if something is
// left. Where more is open than fits, further batches are cut with jobs of their own. It is committed before anything is sent. ErrNotFound: nothing is open, the event subscription is on hold (what is open
// is then on hold as well), or the job is gone.
func (l *Loader) cutBatch(ctx context.Context, sub *catalog.Subscription, token queue.JobToken) error {
	c := l.cutters.of(sub.ID)
	p := c.enter(token)
	if p == nil {
		return token.Gone()
	}
	cut := &cutting{cutter: c, pump: p, loader: l, sub: sub}
	began := time.Now()
	hold, err := cut.run(ctx)
	c.leave(p, hold == "" && (err == nil || errors.Is(err, errNothingCut)))
	l.Traffic.AddOne(sub.ID, cut.held)
	if cut.more {
		l.Notifier.Poke()
	}
	switch {
	case errors.Is(err, errNothingCut):
		return token.Gone()
	case errors.Is(err, postgres.ErrNotFound):
		return err
	case err != nil:
		return fmt.Errorf("%w: cut a batch: %w", postgres.ErrUnavailable, err)
	case hold != "":
		return l.HoldOpen(ctx, sub.ID, token, hold)
	}
	if cut.later {
		c.trust(began)
	}
	return nil
}

// errNothingCut: the pump and those that it took along are gone.
var errNothingCut = errors.New("nothing was open")

// run cuts in one transaction. A hold is what stands in the way: then nothing was done.
func (c *cutting) run(ctx context.Context) (hold string, err error) {
	nothing := false
	err = pgx.BeginFunc(ctx, c.loader.DB, func(tx pgx.Tx) (err error) {
		c.tx = tx
		if hold, err = c.lock(ctx); err != nil || hold != "" {
			return err
		}
		open, err := c.open(ctx)
		if err != nil {
			return err
		}
		if nothing = len(open) == 0; nothing {
			return c.end(ctx)
		}
		nothing, err = c.bind(ctx, open)
		return err
	})
	if err == nil && nothing {
		err = errNothingCut
	}
	return hold, err
}

// lock takes the token, keeps other nodes' pumps of the event subscription waiting, and reads what stands in the way.
func (c *cutting) lock(ctx context.Context) (hold string, err error) {
	w, rests, rest, jobID := queue.Work{}, map[string]queue.RestRow{}, queue.RestOf(c.loader.Cache.Catalogue(), c.sub.ID), c.token.JobID
	batch := &pgx.Batch{}
	batch.Queue(queue.TakeLock, queue.LockBatching, c.sub.ID)
	batch.Queue(lockJobStatement, jobID, c.token.JobMade).QueryRow(func(row pgx.Row) error { return row.Scan(&jobID) })
	batch.Queue(turnStatement, c.sub.ID).QueryRow(func(row pgx.Row) error { return row.Scan(&w.ReadAt, &w.Hold, &w.TimeToLiveStopped) })
	queueRests(batch, []*loadRequest{{rest: rest}}, rests)
	if err := c.tx.SendBatch(ctx, batch).Close(); err != nil {
		if errors.Is(err, pgx.ErrNoRows) {
			return "", c.token.Gone()
		}
		return "", err
	}
	w.SetRest(rest, rests, jobID)
	return w.Hold, nil
}

// open reads one more than are looked at, to know whether anything is left: first what was on hold, as far as there is room,
// for it is older. What lies before the cursor was left behind, held and released, or published by a slower transaction: whoever finds less
// than it may take looks there, too.
func (c *cutting) open(ctx context.Context) (found []openDelivery, err error) {
	const last = int64(1<<63 - 1)
	c.lookedBack = 0
	limit := max(c.sub.Batch().MaxEvents, cutAhead) + 1
	if room := min(c.loader.Traffic.Room(c.sub.ID), limit); c.sub.Batching() && room > 0 {
		if found, err = c.readHeld(ctx, room); err != nil {
			return nil, err
		}
	}
	open, err := c.read(ctx, openStatement, c.sub.ID, c.cursor, last, limit-len(found))
	if err != nil {
		return nil, err
	}
	got, began := len(found)+len(open), time.Now()
	if c.cursor != 0 && (got == 0 || got < limit && !began.Before(c.covered) || began.Sub(c.openLooked) >= lookAnew) {
		c.openLooked = began
		before, err := c.read(ctx, openStatement, c.sub.ID, 0, c.cursor, max(limit-got, cutAhead))
		if err != nil {
			return nil, err
		}
		c.lookedBack = time.Since(began)
		found = append(found, before...)
	}
	c.later = c.lookedBack > c.slow
	return append(found, open...), nil
}

// readHeld goes on from the cursor. Whoever finds less than it may take there begins anew.
func (c *cutting) readHeld(ctx context.Context, limit int) ([]openDelivery, error) {
	if time.Since(c.heldLooked) < lookAnew {
		found, err := c.read(ctx, heldStatement, c.sub.ID, c.heldCursor.owedSince, c.heldCursor.id, limit)
		if err != nil || len(found) == limit {
			return found, err
		}
	}
	c.heldLooked = time.Now()
	return c.read(ctx, heldStatement, c.sub.ID, time.Time{}, 0, limit)
}

func (c *cutting) read(ctx context.Context, statement string, args ...any) ([]openDelivery, error) {
	rows, err := c.tx.Query(ctx, statement, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (o openDelivery, err error) {
		return o, row.Scan(&o.id, &o.bytes, &o.held, &o.owed)
	})
}

// end lets the pump go that found nothing. What others hold locked at this moment is perhaps left by them: it keeps a pump.
func (c *cutting) end(ctx context.Context) error {
	var more bool
	if err := c.tx.QueryRow(ctx, anyOpenStatement, c.sub.ID).Scan(&more); err != nil {
		return err
	}
	batch := &pgx.Batch{}
	queue.QueueEnd(batch, c.jobs())
	if more {
		batch.Queue(pumpStatement, c.sub.ID, lookLater)
	}
	return c.tx.SendBatch(ctx, batch).Close()
}

// bind writes down what was cut. Nothing: all of the first batch has another owner by now.
func (c *cutting) bind(ctx context.Context, open []openDelivery) (nothing bool, err error) {
	cuts, err := c.cuts(ctx, open)
	if err != nil {
		return false, err
	}
	ids, of, bytes := make([]int64, 0, len(open)), make([]int32, 0, len(open)), make([]int64, len(cuts))
	for i, cut := range cuts {
		for _, o := range cut {
			ids, of = append(ids, o.id), append(of, int32(i+1))
			bytes[i] += int64(o.bytes) + 1
		}
		bytes[i]++
	}
	left := len(ids) < len(open)
	first := false
	batch := &pgx.Batch{}
	batch.Queue(c.loader.DB.Keeping(postgres.KeepPlan))
	batch.Queue(BindStatement, c.sub.ID, c.token.JobID, ids, of, bytes).QueryRow(func(row pgx.Row) error { return row.Scan(&first) })
	if others := c.taking(); len(others) > 0 {
		queue.QueueEnd(batch, others)
	}
	if left {
		batch.Queue(pumpStatement, c.sub.ID, time.Duration(0))
	}
	if c.later {
		batch.Queue(pumpStatement, c.sub.ID, lookLater)
	}
	if err := c.tx.SendBatch(ctx, batch).Close(); err != nil {
		return false, err
	}
	c.more = left || c.later || len(cuts) > 1
	c.move(open, len(ids))
	if first {
		return false, nil
	}
	return true, c.end(ctx)
}

// move puts the cursor behind the open deliveries that were cut: back, if some are left that lie before it.
func (c *cutting) move(open []openDelivery, cut int) {
	last := int64(0)
	for _, o := range open[:cut] {
		if o.held {
			c.held++
			c.heldCursor = heldPlace{o.owed, o.id}
		} else {
			last = o.id
		}
	}
	switch {
	case last == 0:
	case cut < len(open):
		c.cursor = last
	default:
		c.cursor = max(c.cursor, last)
	}
}

// cuts cuts batches from a beginning of what is open. bytes are counted as they are sent from here on.
func (c *cutting) cuts(ctx context.Context, open []openDelivery) (cuts [][]openDelivery, err error) {
	var schema event.Schema
	if topic, ok := c.loader.Cache.Catalogue().Topic(c.sub.Topic); ok {
		schema = topic.InputSchema
	}
	added := event.Overhead(schema, c.sub.EventDeliverySchema, c.sub.Topic)
	for i := range open {
		open[i].bytes += added
	}
	if !c.sub.Headers.HasDynamic() {
		return c.cutUp(open, false), nil
	}
	groups, err := c.sameHeaders(ctx, open)
	for _, group := range groups {
		cuts = append(cuts, c.cutUp(group, true)...)
	}
	return cuts, err
}

// cutUp cuts one batch, and after it those that are full: what is left may grow until its own pump comes, unless all is
// to be cut.
func (c *cutting) cutUp(open []openDelivery, all bool) (cuts [][]openDelivery) {
	sizes := postgres.Column(open, func(o openDelivery) int { return o.bytes })
	for len(open) > 0 {
		n := c.sub.Batch().Cut(sizes, 0)
		if n == len(open) && len(cuts) > 0 && !all {
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
    SELECT id FROM postrider_internal.river_job WHERE id = $2 AND created_at = $5 FOR UPDATE
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
func (l *Loader) HoldOpen(ctx context.Context, subscription int64, token queue.JobToken, hold string) error {
	for n := holdStep; n > 0; {
		if err := l.DB.QueryRow(ctx, holdOpenStatement, subscription, token.JobID, hold, holdStep, token.JobMade).Scan(&n); err != nil {
			return fmt.Errorf("%w: hold what is open: %w", postgres.ErrUnavailable, err)
		}
	}
	return l.Jobs.EndJob(ctx, token)
}
