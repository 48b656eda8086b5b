package delivery

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/internal/postgres"
	"postrider/jobs/queue"
)

var (
	bindStatement     = sqlFile("bind", "subscription", "job", "deliveries", "numbers", "bytes", "permits", "per_event")
	heldStatement     = sqlFile("held", "subscription", "since", "id", "limit", "max_age")
	holdOpenStatement = sqlFile("hold_open")
	valuesStatement   = sqlFile("open_members", "deliveries")
)

const (
	// openStatement reads what the next batch may be cut from, and how long the body of each is.
	openStatement = `
SELECT id, event_bytes, false AS held, time_to_live_since FROM postrider_internal.deliveries
 WHERE subscription_id = $1 AND id > $2 AND id <= $3 AND open ORDER BY id LIMIT $4`

	// lockJobStatement finds nothing if the cutter is obsolete.
	lockJobStatement = `SELECT id FROM postrider_internal.river_job WHERE id = $1 AND created_at = $2 FOR UPDATE`

	anyOpenStatement = `
SELECT EXISTS (SELECT FROM postrider_internal.deliveries WHERE subscription_id = $1 AND open)`

	cutterStatement = `
INSERT INTO postrider_internal.new_jobs
SELECT j.* FROM nextval('postrider_internal.river_job_id_seq') AS job_id,
       postrider_internal.attempt_job(job_id, now() + $2::interval, $1) j`

	// takePermitsStatement takes further permits of a rate limit; less than 0 returns some.
	takePermitsStatement = `
UPDATE postrider_internal.delivery_rates SET next_at = next_at + $2::interval WHERE key = $1`

	// holdStep is how many deliveries one statement puts on hold.
	holdStep = 5000
)

// PointClaim is the failpoint after a batch was cut and before its request.
const PointClaim = "claim"

// cutAhead is how many open deliveries one cut reads, at least: it cuts all full batches together. With one batch for
// each cut, 1,600 events/s were sent at 10 per batch (two cores).
const cutAhead = 1000

// openDelivery is one that belongs to no batch yet.
type openDelivery struct {
	id           int64
	bytes        int
	held         bool
	pendingSince time.Time
}

// cutting is one run of a batch cutter.
type cutting struct {
	*cutState
	*cutter
	loader *Loader
	tx     pgx.Tx
	sub    *catalog.Subscription

	later bool // a search before the cursor was slow: a later cutter makes the next one
	more  bool // further jobs were inserted
	held  int  // deliveries that were on hold
}

// Cut cuts the next batch of an event subscription, with the batch cutter's job as its token. If more is open than one
// batch takes, it cuts further batches with new jobs; if open deliveries remain, it inserts the next cutter. The
// batches are committed before anything is sent. It returns false, and the job is gone, if nothing is open, or the
// event subscription is on hold (and its open deliveries now too), or another cutter has replaced this one. permits is
// how many permits of a rate limit the job has.
func (l *Loader) Cut(
	ctx context.Context, sub *catalog.Subscription, token queue.JobToken, permits int,
) (cut bool, err error) {
	state := l.cuts.of(sub.ID)
	job := state.enter(token, permits)
	if job == nil {
		return false, nil
	}
	c := &cutting{cutState: state, cutter: job, loader: l, sub: sub}
	began, hold := time.Now(), ""
	err = pgx.BeginFunc(ctx, l.DB, func(tx pgx.Tx) error {
		var err error
		c.tx = tx
		if hold, err = c.lock(ctx); err != nil || hold != "" {
			return err
		}
		open, err := c.open(ctx)
		if err != nil {
			return err
		}
		if len(open) == 0 {
			return c.end(ctx, c.allPermits())
		}
		cut, err = c.bind(ctx, open)
		return err
	})
	state.leave(job, err == nil && hold == "")
	l.Traffic.AddOne(sub.ID, c.held)
	if c.more {
		l.Notifier.RequestDeliveries()
	}
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return false, nil // see lock
	case err != nil:
		return false, fmt.Errorf("%w: cut a batch: %w", postgres.ErrUnavailable, err)
	case hold != "":
		return false, l.HoldOpen(ctx, sub.ID, token, hold, c.permits)
	case !cut:
		return false, nil
	}
	if c.later {
		state.trust(began)
	}
	l.Reach(PointClaim)
	return true, nil
}

// lock locks the token, makes other nodes' cutters of the event subscription wait, and returns its hold. ErrNoRows: the
// job is gone.
func (c *cutting) lock(ctx context.Context) (hold string, err error) {
	w := queue.Work{SubscriptionID: c.sub.ID, Job: c.token}
	probations, rows := queue.ProbationsOf(c.loader.Cache.Snapshot(), c.sub.ID), map[string]queue.ProbationRow{}
	batch := &pgx.Batch{}
	batch.Queue(queue.TakeLock, queue.LockBatching, c.sub.ID)
	batch.Queue(lockJobStatement, c.token.JobID, c.token.CreatedAt).
		QueryRow(func(row pgx.Row) error { return row.Scan(nil) })
	queueHold(batch, &w)
	queueProbations(batch, rows, probations)
	if err := c.tx.SendBatch(ctx, batch).Close(); err != nil {
		return "", err
	}
	w.SetProbations(probations, rows)
	return w.Hold, nil
}

// open reads one delivery more than it may cut, to know whether any remains: first held deliveries, within the
// capacity, because they are older. Deliveries before the cursor were left, held and released, or published by a slower
// transaction. A cut that finds less than it may take reads these, too.
func (c *cutting) open(ctx context.Context) (found []openDelivery, err error) {
	const last = int64(1<<63 - 1)
	c.searched = 0
	limit := max(c.sub.Batch().MaxEvents, cutAhead) + 1
	if held := min(c.loader.Traffic.Capacity(c.sub.ID), limit); c.sub.Batching() && held > 0 {
		if found, err = c.readHeld(ctx, held); err != nil {
			return nil, err
		}
	}
	open, err := c.read(ctx, openStatement, c.sub.ID, c.cursor, last, limit-len(found))
	if err != nil {
		return nil, err
	}
	got, began := len(found)+len(open), time.Now()
	if c.cursor != 0 &&
		(got == 0 || got < limit && !began.Before(c.covered) || began.Sub(c.openSearchedAt) >= searchInterval) {
		c.openSearchedAt = began
		before, err := c.read(ctx, openStatement, c.sub.ID, 0, c.cursor, max(limit-got, cutAhead))
		if err != nil {
			return nil, err
		}
		c.searched = time.Since(began)
		found = append(found, before...)
	}
	c.later = c.searched > c.slow
	return append(found, open...), nil
}

// readHeld continues at the cursor, or begins again if it finds less there than may be taken.
func (c *cutting) readHeld(ctx context.Context, limit int) ([]openDelivery, error) {
	var maxAge *time.Duration
	if rules, known := c.loader.Cache.Snapshot().Rules(c.sub.ID); known && c.loader.Traffic.Limited(c.sub.ID) {
		maxAge = new(rules.MaxAge())
	}
	if time.Since(c.heldSearchedAt) < searchInterval {
		found, err := c.read(ctx, heldStatement, c.sub.ID, c.heldCursor.timeToLiveSince, c.heldCursor.id, limit,
			maxAge)
		if err != nil || len(found) == limit {
			return found, err
		}
	}
	c.heldSearchedAt = time.Now()
	return c.read(ctx, heldStatement, c.sub.ID, time.Time{}, 0, limit, maxAge)
}

func (c *cutting) read(ctx context.Context, statement string, args ...any) ([]openDelivery, error) {
	rows, err := c.tx.Query(ctx, statement, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (o openDelivery, err error) {
		return o, row.Scan(&o.id, &o.bytes, &o.held, &o.pendingSince)
	})
}

// allPermits is how many permits of a rate limit the cutter and those that it replaces have.
func (c *cutting) allPermits() int {
	n := 0
	for _, cutter := range append(c.others, c.cutter) {
		n += cutter.permits
	}
	return n
}

// end deletes the jobs of a cutter that found nothing, and returns their permits of a rate limit. Rows that other
// transactions have locked may remain open: they keep a cutter.
func (c *cutting) end(ctx context.Context, permits int) error {
	var more bool
	if err := c.tx.QueryRow(ctx, anyOpenStatement, c.sub.ID).Scan(&more); err != nil {
		return err
	}
	batch := &pgx.Batch{}
	queue.QueueEnd(batch, append(c.replaced(), c.token))
	c.loader.queuePermits(batch, c.sub.ID, -permits, 0)
	if more {
		batch.Queue(cutterStatement, c.sub.ID, searchLater)
	}
	return c.tx.SendBatch(ctx, batch).Close()
}

// bind stores the batches. It returns false, and ends the cutter's job, if all deliveries of the first batch have
// another job or batch by now.
func (c *cutting) bind(ctx context.Context, open []openDelivery) (cut bool, err error) {
	batches, err := c.batches(ctx, open)
	if err != nil {
		return false, err
	}
	rate, limited := c.loader.Cache.Snapshot().Rate(c.sub.ID)
	if limited { // each cutter has one permit
		batches = batches[:min(len(batches), 1+len(c.others))]
	}
	ids, of, bytes := make([]int64, 0, len(open)), make([]int32, 0, len(open)), make([]int64, len(batches))
	for i, members := range batches {
		for _, o := range members {
			ids, of = append(ids, o.id), append(of, int32(i+1))
			bytes[i] += int64(o.bytes) + 1
		}
		bytes[i]++
	}
	remains := len(ids) < len(open)
	if limited { // the next release inserts the cutters of held deliveries
		remains = slices.ContainsFunc(open[len(ids):], func(o openDelivery) bool { return !o.held })
	}
	batch := &pgx.Batch{}
	batch.Queue(c.loader.DB.Keeping(postgres.KeepPlan))
	perRequest, permits, ofFirst := 0, len(batches), 1
	if limited {
		perRequest = 1
		if rate.PerEvent {
			permits, ofFirst = len(ids), len(batches[0])
		}
		c.loader.queuePermits(batch, c.sub.ID, permits-c.allPermits(), 0)
	}
	batch.Queue(bindStatement, c.sub.ID, c.token.JobID, ids, of, bytes, perRequest, rate.PerEvent).
		QueryRow(func(row pgx.Row) error { return row.Scan(&cut) })
	if replaced := c.replaced(); len(replaced) > 0 {
		queue.QueueEnd(batch, replaced)
	}
	if remains {
		batch.Queue(cutterStatement, c.sub.ID, time.Duration(0))
	}
	if c.later {
		batch.Queue(cutterStatement, c.sub.ID, searchLater)
	}
	if err := c.tx.SendBatch(ctx, batch).Close(); err != nil {
		return false, err
	}
	c.more = remains || c.later || len(batches) > 1
	// The cursor moves behind the open deliveries that were cut, or back if some remain before it.
	last := int64(0)
	for _, o := range open[:len(ids)] {
		if o.held {
			c.held++
			c.heldCursor = heldPosition{o.pendingSince, o.id}
		} else {
			last = o.id
		}
	}
	switch {
	case last == 0:
	case len(ids) < len(open):
		c.cursor = last
	default:
		c.cursor = max(c.cursor, last)
	}
	if cut {
		return true, nil
	}
	return false, c.end(ctx, ofFirst)
}

// batches divides the first open deliveries into batches. From here on, bytes include what a request adds.
func (c *cutting) batches(ctx context.Context, open []openDelivery) (batches [][]openDelivery, err error) {
	var schema event.Schema
	if topic, ok := c.loader.Cache.Snapshot().Topic(c.sub.Topic); ok {
		schema = topic.InputSchema
	}
	added := event.Overhead(schema, c.sub.EventDeliverySchema, c.sub.Topic)
	for i := range open {
		open[i].bytes += added
	}
	if !c.sub.BatchHeaders.HasDynamic() {
		return c.divide(open, false), nil
	}
	groups, err := c.sameHeaders(ctx, open)
	for _, group := range groups {
		batches = append(batches, c.divide(group, true)...)
	}
	return batches, err
}

// divide returns one batch and the full batches after it. The rest may grow until its own cutter runs, unless all is to
// be cut.
func (c *cutting) divide(open []openDelivery, all bool) (batches [][]openDelivery) {
	sizes := postgres.Column(open, func(o openDelivery) int { return o.bytes })
	for len(open) > 0 {
		n := c.sub.Batch().Cut(sizes)
		if n == len(open) && len(batches) > 0 && !all {
			break
		}
		batches = append(batches, open[:n])
		open, sizes = open[n:], sizes[n:]
	}
	return batches
}

// HoldOpen puts the open deliveries of an event subscription on hold, ends the job of the batch cutter that met the
// hold, and returns the job's permits of a rate limit, see ReturnPermits.
func (l *Loader) HoldOpen(
	ctx context.Context, subscription int64, token queue.JobToken, hold string, permits int,
) error {
	args := pgx.NamedArgs{
		"subscription": subscription, "job": token.JobID, "job_created_at": token.CreatedAt, "hold": hold, "step": holdStep,
	}
	for n := holdStep; n > 0; {
		if err := l.DB.QueryRow(ctx, holdOpenStatement, args).Scan(&n); err != nil {
			return fmt.Errorf("%w: hold what is open: %w", postgres.ErrUnavailable, err)
		}
	}
	err := pgx.BeginFunc(ctx, l.DB, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, lockJobStatement, token.JobID, token.CreatedAt).Scan(nil); err != nil {
			return err // ErrNoRows: another job has its permits now
		}
		batch := &pgx.Batch{}
		queue.QueueEnd(batch, []queue.JobToken{token})
		l.queuePermits(batch, subscription, -permits, longStep)
		return tx.SendBatch(ctx, batch).Close()
	})
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("%w: end job %d: %w", postgres.ErrUnavailable, token.JobID, err)
	}
	return nil
}

// longStep is the step of a limit whose unused permits are returned. The next permit of a faster one comes soon. If
// they were returned, a busy endpoint would get more jobs than it can have requests.
const longStep = time.Second

// ReturnPermits returns the permits of an event subscription's own limit that no request has used, because its endpoint
// was busy or closed, or because this node was too late.
func (l *Loader) ReturnPermits(ctx context.Context, subscription int64, permits int) error {
	batch := &pgx.Batch{}
	l.queuePermits(batch, subscription, -permits, longStep)
	if err := l.DB.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("return the unused permits of a rate limit: %w", err)
	}
	return nil
}

// queuePermits takes so many further permits of an event subscription's rate limit, if it has one with at least this
// step; less than 0 returns some.
func (l *Loader) queuePermits(batch *pgx.Batch, subscription int64, n int, least time.Duration) {
	if rate, limited := l.Cache.Snapshot().Rate(subscription); limited && n != 0 && rate.Step >= least {
		batch.Queue(takePermitsStatement, rate.Key, time.Duration(n)*rate.Step)
	}
}

// valuesAhead bounds the bodies that one cut reads to compare their Dynamic header values.
const valuesAhead = 8 << 20

// sameHeaders groups open deliveries by the values of their Dynamic headers, in the order of each group's first one:
// a request has one value of each header. It takes as many deliveries as valuesAhead allows, and leaves the others to
// the next cutter; also the last one if more may be open than was read.
func (c *cutting) sameHeaders(ctx context.Context, open []openDelivery) (groups [][]openDelivery, err error) {
	n, bytes := 0, 0
	for n < len(open) && (n == 0 || bytes+open[n].bytes <= valuesAhead) {
		bytes += open[n].bytes
		n++
	}
	if n == len(open) && n >= cutAhead {
		n--
	}
	// Bodies are read one at a time. A delivery without an event has no values. Values that are too long to be sent differ
	// here, which only separates events that could be sent together.
	rows, err := c.tx.Query(ctx, valuesStatement, postgres.Column(open[:n], func(o openDelivery) int64 { return o.id }))
	if err != nil {
		return nil, err
	}
	values := make(map[int64]string, n)
	if err := eachMember(rows, func(m *queue.Member) {
		view := catalog.EventView(c.sub.Topic, &m.Event)
		values[m.DeliveryID] = c.sub.BatchHeaders.DynamicValues(&view, math.MaxInt)
	}); err != nil {
		return nil, err
	}
	of := map[string]int{}
	for _, o := range open[:n] {
		i, found := of[values[o.id]]
		if !found {
			i = len(groups)
			of[values[o.id]] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], o)
	}
	return groups, nil
}
