package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"postrider/jobs/queue"
)

// sweepStep is how many rows one statement of the sweeper reads, and how many delivery ids one range spans.
const sweepStep = 10_000

// Deliveries and jobs are compared by sums and not row by row: with 500,000 open deliveries whose retries are out of order,
// looking up each one's job takes the database 2.7 s, and two scans by id take 0.45 s. Every delivery adds what its own job
// takes away again, so each range of ids comes to zero; only a range that does not is looked into. A delivery's place in its
// range weighs its job's id, or two deliveries with each other's job would look well. A delivery that is open, with no job of
// its own, is mendBatches' to judge.
const (
	sumDeliveriesStatement = `
WITH step AS (
    SELECT id, coalesce(job_id, 0) AS job_id, job_id IS NOT NULL AND batch_id IS NULL AND hold IS NULL AS counts
      FROM postrider_internal.deliveries WHERE id > $1 ORDER BY id LIMIT $2
)
SELECT id / $2 AS range, count(*) FILTER (WHERE counts) AS rows,
       coalesce(sum((id % $2 + 1) * (job_id % 1000000007)) FILTER (WHERE counts), 0)::bigint AS weight, max(id) AS last
  FROM step GROUP BY 1`

	sumJobsStatement = `
WITH step AS (
    SELECT id, CASE WHEN kind = 'deliver' AND finalized_at IS NULL THEN (args ->> 'd')::bigint END AS delivery_id
      FROM postrider_internal.river_job WHERE id > $1 ORDER BY id LIMIT $2
)
SELECT coalesce(delivery_id / $2, 0) AS range, count(delivery_id) AS rows,
       coalesce(sum((delivery_id % $2 + 1) * (id % 1000000007)), 0)::bigint AS weight, max(id) AS last
  FROM step GROUP BY 1`
)

// mendStatement gives new jobs to the deliveries of one range that have no hold, no batch and no live job. A statement
// sees one moment of the database, and publishing, recording, reclaiming and holding each change delivery and job in one
// transaction: what is apart here is broken. A delivery that somebody changes meanwhile is left to the next pass.
//
// River may have finalized the job without an outcome. That row goes, or a late result could still be recorded with it,
// and its reruns are counted on: an attempt that ends so every time must come to an end. The new job keeps the time of
// the attempt that was lost.
//
// Scalar subqueries and arrays where joins would say the same: these are always lookups by id, while for a join the
// planner may read a whole table.
//
// Waiting without a job is right for deliveries of a batching event subscription (the next batch takes them) and for those
// of a deleted one that are being canceled. One that names a job of another kind belongs to a newer version during a rolling
// upgrade: a second job here would let two attempts run at once.
const mendStatement = `
WITH broken AS MATERIALIZED (
    SELECT d.id, d.job_id FROM postrider_internal.deliveries d
     WHERE d.id >= $1 AND d.id < $1 + $2 AND d.batch_id IS NULL AND d.hold IS NULL
       AND greatest(d.owed_since, d.last_attempt_at) < now() - interval '60 seconds'
       AND (SELECT true FROM postrider_internal.river_job j
             WHERE j.id = d.job_id AND (j.kind <> 'deliver' OR j.finalized_at IS NULL AND j.args ->> 'd' = d.id::text)) IS NULL
       AND (SELECT true FROM postrider_internal.event_subscriptions s
             WHERE s.id = d.subscription_id AND (s.deleted_at IS NOT NULL AND s.drained_at IS NULL
                OR d.job_id IS NULL AND (s.max_events_per_batch > 1 OR s.preferred_batch_size_in_kilobytes IS NOT NULL))) IS NULL
), ended AS (
    DELETE FROM postrider_internal.river_job j USING broken
     WHERE j.id = ANY (ARRAY (SELECT job_id FROM broken)) AND j.id = broken.job_id AND j.args ->> 'd' = broken.id::text AND j.finalized_at IS NOT NULL
    RETURNING j.id, j.args
), free AS MATERIALIZED (
    SELECT d.id, d.subscription_id, d.attempts, greatest(now(), d.next_attempt_at) AS due, coalesce((ended.args ->> 'r')::int, 0) + 1 AS reruns
      FROM postrider_internal.deliveries d
      JOIN broken ON broken.id = d.id
      LEFT JOIN ended ON ended.id = broken.job_id
     WHERE d.id = ANY (ARRAY (SELECT id FROM broken)) AND d.job_id IS NOT DISTINCT FROM broken.job_id AND d.batch_id IS NULL AND d.hold IS NULL
     ORDER BY d.id FOR UPDATE OF d SKIP LOCKED
), again AS MATERIALIZED (
    SELECT free.*, nextval('postrider_internal.river_job_id_seq') AS job_id FROM free
), followed AS (
    UPDATE postrider_internal.deliveries d SET job_id = again.job_id, reruns = d.reruns + 1 FROM again WHERE d.id = again.id
), inserted AS (
    INSERT INTO postrider_internal.river_job (id, state, args, kind, queue, priority, max_attempts, scheduled_at)
    SELECT job_id, CASE WHEN due` + queue.ElseScheduled + `,
           jsonb_build_object('d', id, 's', subscription_id, 'n', attempts + 1, 'r', reruns), 'deliver', 'deliveries', 1, 1000, due
      FROM again
)
SELECT count(*) FROM again`

// removeStatement deletes one step's jobs that no delivery names, though they name a delivery of the ranges. A running one
// ends by itself: it finds that it is nobody's token.
const removeStatement = `
WITH step AS MATERIALIZED (
    SELECT id, state, created_at, CASE WHEN kind = 'deliver' AND finalized_at IS NULL THEN (args ->> 'd')::bigint END AS delivery_id
      FROM postrider_internal.river_job WHERE id > $1 ORDER BY id LIMIT $2
), stray AS (
    SELECT step.id FROM step
     WHERE step.delivery_id / $2 = ANY ($3::bigint[]) AND step.state <> 'running' AND step.created_at < now() - interval '60 seconds'
       AND (SELECT true FROM postrider_internal.deliveries d WHERE d.id = step.delivery_id AND d.job_id = step.id) IS NULL
), free AS (
    SELECT j.id FROM postrider_internal.river_job j
     WHERE j.id = ANY (ARRAY (SELECT id FROM stray)) AND j.state <> 'running' AND j.finalized_at IS NULL ORDER BY j.id FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM postrider_internal.river_job j USING free WHERE j.id = free.id RETURNING j.id
)
SELECT coalesce(max(id), 0), (SELECT count(*) FROM gone) FROM step`

// Swept is what one pass of the sweeper found and mended. It should be nothing: all else is a mistake of ours, or somebody
// changed the tables by hand.
type Swept struct {
	// Mended deliveries and batches had no live job and have one again, marked as a rerun; open deliveries, a pump.
	Mended int
	// Removed jobs belonged to a delivery that is finished, or has another job.
	Removed int
	// Routes had no live job and have one again.
	Routes int
	// Handshakes had no live job and have one again.
	Handshakes int
	// Exports had no live job and have one again; dead letters belonged to one that is not there.
	Exports int
	// Operations had no live job and have one again.
	Operations int
}

// SweeperFinds is how much Sweep has repaired since the process began.
func (m *Maintenance) SweeperFinds() int64 { return m.finds.Load() }

// errSweeping: another node is at it. There is nothing to wait for.
var errSweeping = errors.New("another node sweeps")

// Sweep passes once over all unfinished deliveries and all jobs and brings together what came apart. What was touched in
// the last 60 s is left alone. One node at a time: while another is at it, this is nothing.
func (m *Maintenance) Sweep(ctx context.Context) (found Swept, err error) {
	defer func() { m.finds.Add(int64(found.Total())) }()
	ranges, err := m.suspectRanges(ctx)
	if err == nil && len(ranges) > 0 {
		found.Mended, err = m.mend(ctx, ranges)
	}
	if err == nil && len(ranges) > 0 {
		found.Removed, err = m.removeStrays(ctx, ranges)
	}
	if err == nil {
		err = m.mendOthers(ctx, &found)
	}
	if found.Mended > 0 {
		m.notifier.Poke()
	}
	if errors.Is(err, errSweeping) {
		return found, nil
	}
	if err != nil {
		return found, fmt.Errorf("sweep: %w", err)
	}
	return found, nil
}

// Total is everything that was found.
func (f *Swept) Total() int {
	return f.Mended + f.Removed + f.Routes + f.Handshakes + f.Exports + f.Operations
}

// mendOthers mends whatever has a job and is no delivery.
func (m *Maintenance) mendOthers(ctx context.Context, found *Swept) error {
	owned := func(o *queue.Owner) func(context.Context) (int, error) {
		return func(ctx context.Context) (int, error) { return m.mendOwned(ctx, o) }
	}
	for _, pass := range []struct {
		found *int
		mend  func(context.Context) (int, error)
	}{
		{&found.Routes, owned(queue.Routes)},
		{&found.Handshakes, owned(queue.Handshakes)},
		{&found.Exports, owned(queue.Exports)},
		{&found.Exports, m.freeLetters},
		{&found.Operations, owned(queue.Operations)},
		{&found.Mended, m.mendBatches},
	} {
		n, err := pass.mend(ctx)
		*pass.found += n
		if err != nil {
			return err
		}
	}
	return nil
}

// sweepSum is what a range comes to: deliveries added, jobs taken away.
type sweepSum struct{ rows, weight int64 }

// suspectRanges names the ranges of delivery ids whose deliveries and jobs do not come out even. All steps see the
// database at one moment: a delivery that is recorded meanwhile is not seen on one side only.
func (m *Maintenance) suspectRanges(ctx context.Context) (ranges []int64, err error) {
	sums := map[int64]sweepSum{}
	moment := pgx.TxOptions{IsoLevel: pgx.RepeatableRead} // not read-only, for it locks a row
	err = m.sweepAlone(ctx, moment, func(tx pgx.Tx) error {
		if err := addUp(ctx, tx, sumDeliveriesStatement, 1, sums); err != nil {
			return fmt.Errorf("add up the deliveries: %w", err)
		}
		if err := addUp(ctx, tx, sumJobsStatement, -1, sums); err != nil {
			return fmt.Errorf("add up the jobs: %w", err)
		}
		return nil
	})
	for number, sum := range sums {
		if sum != (sweepSum{}) {
			ranges = append(ranges, number)
		}
	}
	slices.Sort(ranges)
	return ranges, err
}

// addUp goes over a table by its id.
func addUp(ctx context.Context, tx pgx.Tx, statement string, sign int64, sums map[int64]sweepSum) error {
	for cursor, more := int64(0), true; more; {
		rows, err := tx.Query(ctx, statement, cursor, int64(sweepStep))
		if err != nil {
			return err
		}
		more = false
		var number, count, weight, last int64
		_, err = pgx.ForEachRow(rows, []any{&number, &count, &weight, &last}, func() error {
			sum := sums[number]
			sums[number] = sweepSum{rows: sum.rows + sign*count, weight: sum.weight + sign*weight}
			cursor, more = max(cursor, last), true
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (m *Maintenance) mend(ctx context.Context, ranges []int64) (mended int, err error) {
	for _, number := range ranges {
		var n int
		err := m.sweepAlone(ctx, pgx.TxOptions{}, func(tx pgx.Tx) error {
			return tx.QueryRow(ctx, mendStatement, number*sweepStep, int64(sweepStep)).Scan(&n)
		})
		if err != nil {
			return mended, fmt.Errorf("give deliveries their job again: %w", err)
		}
		mended += n
	}
	return mended, nil
}

func (m *Maintenance) removeStrays(ctx context.Context, ranges []int64) (removed int, err error) {
	for cursor := int64(0); ; {
		var last int64
		var n int
		err := m.sweepAlone(ctx, pgx.TxOptions{}, func(tx pgx.Tx) error {
			return tx.QueryRow(ctx, removeStatement, cursor, int64(sweepStep), ranges).Scan(&last, &n)
		})
		if err != nil {
			return removed, fmt.Errorf("remove jobs without a delivery: %w", err)
		}
		if last == 0 {
			return removed, nil
		}
		cursor, removed = last, removed+n
	}
}

// sweepAlone runs a transaction that no two nodes are in at once.
func (m *Maintenance) sweepAlone(ctx context.Context, options pgx.TxOptions, do func(pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, m.db, options, func(tx pgx.Tx) error {
		var alone bool
		if err := tx.QueryRow(ctx, queue.TryLock, queue.LockSweeper, 0).Scan(&alone); err != nil {
			return err
		}
		if !alone {
			return errSweeping
		}
		return do(tx)
	})
}
