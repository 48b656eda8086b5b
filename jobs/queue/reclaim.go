package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/postgres"
)

// lockLostStatement finds the running jobs of the lost, and locks them. Rows that are being recorded at this moment are locked
// by others, and skipped.
const lockLostStatement = `
SELECT j.id FROM postrider_internal.river_job j
 WHERE j.queue = 'deliveries' AND j.kind IN ` + knownKinds + ` AND %s ORDER BY j.id FOR UPDATE %s`

// reclaimStatement replaces those jobs. The replacement is a new row, as a rule with one rerun more, and the token of the delivery or
// the batch follows in the same statement: whoever ran the old row can record nothing any more. A batch stays as it was cut. A
// pump that has not cut one yet has nothing that could follow.
//
// It is a statement of its own, for it must see the batch that a pump committed just before its row could be locked.
const reclaimStatement = `
WITH asked AS (
    SELECT * FROM unnest($1::bigint[], $2::int[], $3::float8[]) AS a(id, reruns, seconds)
), lost AS (
    DELETE FROM postrider_internal.river_job j WHERE j.id = ANY ($1::bigint[]) RETURNING j.id, j.kind, j.args
), again AS MATERIALIZED (
    SELECT id AS old_id, nextval('postrider_internal.river_job_id_seq') AS id, kind, (args ->> 'd')::bigint AS delivery_id, (args ->> 'b')::bigint AS batch_id,
           args || jsonb_build_object('r', coalesce((args ->> 'r')::int, 0) + reruns) AS args, reruns, now() + seconds * interval '1 second' AS due
      FROM lost JOIN asked USING (id)
), deliveries AS (
    UPDATE postrider_internal.deliveries d SET job_id = again.id, reruns = d.reruns + again.reruns
      FROM again WHERE again.kind = 'deliver' AND d.id = again.delivery_id AND d.job_id = again.old_id RETURNING again.id
), batches AS (
    UPDATE postrider_internal.batches b SET job_id = again.id, reruns = b.reruns + again.reruns
      FROM again WHERE again.kind = 'batch' AND b.id = again.batch_id AND b.job_id = again.old_id RETURNING again.id
), followed AS (
    SELECT id FROM deliveries UNION ALL SELECT id FROM batches UNION ALL SELECT id FROM again WHERE kind = 'batch' AND batch_id IS NULL
), probes AS (
    UPDATE postrider_internal.probations p SET probe_job_id = again.id FROM again JOIN followed ON followed.id = again.id WHERE p.probe_job_id = again.old_id
), inserted AS (
    INSERT INTO postrider_internal.river_job (id, state, args, kind, queue, priority, max_attempts, scheduled_at)
    SELECT again.id, CASE WHEN due` + ElseScheduled + `,
           again.args, again.kind, 'deliveries', 1, 1000, due FROM again JOIN followed ON followed.id = again.id
)
SELECT count(*) FROM followed`

// lostStatement comes before: the statements of five tables, twice a second, found nothing on an idle node.
const lostStatement = "SELECT EXISTS (SELECT FROM postrider_internal.river_job j WHERE %s)"

// ReclaimFromLost gives the running jobs of nodes that are not registered to whoever fetches them, and says how many.
func (q *JobRows) ReclaimFromLost(ctx context.Context) (int, error) {
	return q.reclaim(ctx, "j.state = 'running' AND NOT EXISTS (SELECT FROM postrider_internal.nodes n WHERE n.id = j.attempted_by[array_upper(j.attempted_by, 1)])")
}

// ReclaimOwn does the same for this node's running jobs that it does not know: their fetch was committed but its answer
// was lost. held are the jobs it does know; a job is given 15 s to arrive.
func (q *JobRows) ReclaimOwn(ctx context.Context, held []int64) (int, error) {
	const own = "j.state = 'running' AND j.attempted_by[array_upper(j.attempted_by, 1)] = $1 AND j.attempted_at < now() - interval '15 seconds' AND j.id <> ALL ($2::bigint[])"
	return q.reclaim(ctx, own, q.node, held)
}

// Reclaim does the same for the jobs given: attempts that a clean stop of this node has cut. One that another node has
// taken up meanwhile is left to it.
func (q *JobRows) Reclaim(ctx context.Context, jobs []int64) (int, error) {
	if len(jobs) == 0 {
		return 0, nil
	}
	const mine = "j.id = ANY ($1::bigint[]) AND (j.state <> 'running' OR j.attempted_by[array_upper(j.attempted_by, 1)] = $2)"
	return q.reclaim(ctx, mine, jobs, q.node)
}

// PointReclaim is the failpoint after the jobs of a dead node were locked and before they are replaced.
const PointReclaim = "reclaim"

func (q *JobRows) reclaim(ctx context.Context, whose string, args ...any) (n int, err error) {
	var lost bool
	if err := q.db.QueryRow(ctx, fmt.Sprintf(lostStatement, whose), args...).Scan(&lost); err != nil {
		return 0, fmt.Errorf("look for lost jobs: %w", err)
	}
	if !lost {
		return 0, nil
	}
	n, err = q.replace(ctx, func(int64) again { q.Reach(PointReclaim); return again{reruns: 1} }, "SKIP LOCKED", whose, args...)
	if err != nil {
		return 0, fmt.Errorf("reclaim jobs: %w", err)
	}
	for _, o := range []*Owner{Routes, Handshakes, Exports, Operations} {
		gone, err := q.reclaimOwned(ctx, o, 0, whose, args...)
		if err != nil {
			return n, err
		}
		n += gone
	}
	if n > 0 {
		q.reclaimed.Add(int64(n))
		q.notifier.Poke()
	}
	return n, nil
}

// again is how a replaced job runs again.
type again struct {
	reruns int // more
	after  time.Duration
}

// replace gives the jobs new rows. locking says what becomes of rows that somebody else has locked: they are skipped, or waited for.
func (q *JobRows) replace(ctx context.Context, how func(id int64) again, locking, whose string, args ...any) (n int, err error) {
	err = pgx.BeginFunc(ctx, q.db, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, fmt.Sprintf(lockLostStatement, whose, locking), args...)
		if err != nil {
			return err
		}
		lost, err := postgres.CollectIDs(rows)
		if err != nil || len(lost) == 0 {
			return err
		}
		reruns, seconds := make([]int, len(lost)), make([]float64, len(lost))
		for i, id := range lost {
			a := how(id)
			reruns[i], seconds[i] = a.reruns, a.after.Seconds()
		}
		return tx.QueryRow(ctx, reclaimStatement, lost, reruns, seconds).Scan(&n)
	})
	return n, err
}

// ownedOff is how long a request of a handshake, an export or an operation's step is put off that could not begin.
const ownedOff = 2 * time.Second

// runningHere are the jobs $1 that are running on the node $2.
const runningHere = "j.id = ANY ($1::bigint[]) AND j.state = 'running' AND j.attempted_by[array_upper(j.attempted_by, 1)] = $2"

// PutOff is a job of this node whose run has ended without an outcome.
type PutOff struct {
	Job   int64
	After time.Duration // until it may run again
	Begun bool          // its attempt had begun: the next run is a rerun
}

// PutOff gives the jobs new rows, which are due later, and says how many. Doing so twice does nothing the second time: what runs
// by then runs under another row. A row that is locked is waited for: River would move one that is left out.
func (q *JobRows) PutOff(ctx context.Context, jobs []PutOff) (int, error) {
	if len(jobs) == 0 {
		return 0, nil
	}
	ids, how := make([]int64, len(jobs)), make(map[int64]again, len(jobs))
	for i, job := range jobs {
		ids[i], how[job.Job] = job.Job, again{after: job.After}
		if job.Begun {
			how[job.Job] = again{after: job.After, reruns: 1}
		}
	}
	n, err := q.replace(ctx, func(id int64) again { return how[id] }, "", runningHere, ids, q.node)
	if err != nil {
		return 0, fmt.Errorf("put jobs off: %w", err)
	}
	for _, o := range []*Owner{Handshakes, Exports, Operations} { // a route's step may run again under its row: only one of its runs makes it
		if n == len(jobs) {
			break
		}
		gone, err := q.reclaimOwned(ctx, o, ownedOff, runningHere, ids, q.node)
		if err != nil {
			return n, err
		}
		n += gone
	}
	return n, nil
}

// GiveBack gives deliveries' jobs of this node new rows that are due at once and no reruns, because nothing was sent for them, and says how many. It is for a stop: what
// somebody has locked is left as it is, to the node that finds this one gone.
func (q *JobRows) GiveBack(ctx context.Context, jobs []int64) (int, error) {
	if len(jobs) == 0 {
		return 0, nil
	}
	n, err := q.replace(ctx, func(int64) again { return again{} }, "SKIP LOCKED", runningHere, jobs, q.node)
	if err != nil {
		return 0, fmt.Errorf("give jobs back: %w", err)
	}
	return n, nil
}
