package queue

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/internal/postgres"
)

// The find statements lock jobs that are to be replaced, and return their ids.
var (
	findLostStatement      = sqlFile("findlost", "kinds")
	findUnarrivedStatement = sqlFile("findunarrived", "kinds", "node", "jobs")
	findStoppedStatement   = sqlFile("findstopped", "kinds", "node", "jobs")
	findDeferredStatement  = sqlFile("finddeferred", "kinds", "node", "jobs")
	replaceStatement       = sqlFile("replace", "jobs", "reruns", "seconds")
)

// ReclaimFromLost replaces the running jobs of nodes that are not registered, and returns how many.
func (q *JobRows) ReclaimFromLost(ctx context.Context) (int, error) {
	return q.reclaim(ctx, findLostStatement)
}

// ReclaimOwn replaces the running jobs of this node other than those that it has: their fetch was committed, but its
// response was lost.
func (q *JobRows) ReclaimOwn(ctx context.Context, has []int64) (int, error) {
	return q.reclaim(ctx, findUnarrivedStatement, q.node, has)
}

// Reclaim replaces jobs of this node that a clean stop has interrupted. It leaves jobs that another node has reclaimed.
func (q *JobRows) Reclaim(ctx context.Context, jobs []int64) (int, error) {
	if len(jobs) == 0 {
		return 0, nil
	}
	return q.reclaim(ctx, findStoppedStatement, q.node, jobs)
}

// PointReclaim is the failpoint after the jobs of a dead node were locked and before they are replaced.
const PointReclaim = "reclaim"

func (q *JobRows) reclaim(ctx context.Context, find string, args ...any) (n int, err error) {
	lost, err := findJobs(ctx, q.db, find, slices.Concat(deliveryKinds, ownedKinds), args)
	if err != nil {
		return 0, fmt.Errorf("find lost jobs: %w", err)
	}
	if len(lost) == 0 { // nearly always
		return 0, nil
	}
	// Owned jobs come later: a user's lock on the row that owns one delays no delivery.
	how := func(int64) again { q.Reach(PointReclaim); return again{reruns: 1} }
	for _, kinds := range [][]string{deliveryKinds, ownedKinds} {
		replaced, err := q.replace(ctx, how, find, kinds, args...)
		if err != nil {
			return n, fmt.Errorf("reclaim jobs: %w", err)
		}
		if replaced > 0 {
			q.reclaimed.Add(int64(replaced))
			q.notifier.RequestDeliveries()
		}
		n += replaced
	}
	return n, nil
}

// findJobs locks the jobs that a statement finds.
func findJobs(ctx context.Context, db postgres.Querier, find string, kinds []string, args []any) ([]int64, error) {
	rows, err := db.Query(ctx, find, append([]any{kinds}, args...)...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

// again is how a replaced job runs again.
type again struct {
	reruns int // more
	after  time.Duration
}

// replace gives the jobs of these kinds that a statement finds new rows, and returns how many.
func (q *JobRows) replace(
	ctx context.Context, how func(id int64) again, find string, kinds []string, args ...any,
) (n int, err error) {
	var queues []string
	err = pgx.BeginFunc(ctx, q.db, func(tx pgx.Tx) error {
		found, err := findJobs(ctx, tx, find, kinds, args)
		if err != nil || len(found) == 0 {
			return err
		}
		reruns, seconds := make([]int, len(found)), make([]float64, len(found))
		for i, id := range found {
			a := how(id)
			reruns[i], seconds[i] = a.reruns, a.after.Seconds()
		}
		return tx.QueryRow(ctx, replaceStatement, found, reruns, seconds).Scan(&n, &queues)
	})
	if err != nil {
		return 0, err
	}
	for _, queue := range queues {
		q.notifier.RequestFetch(queue)
	}
	return n, nil
}

// Deferred is a job of this node whose run has ended without an outcome.
type Deferred struct {
	Job   int64
	After time.Duration // until it may run again
	Begun bool          // its attempt had begun: the next run is a rerun
}

// Defer gives the jobs new rows, which are due later, and returns how many. A second call for the same rows does
// nothing. If a user keeps a row locked, the jobs stay as they are until ReclaimOwn: River reports the ends of all
// other jobs by the same goroutine.
func (q *JobRows) Defer(ctx context.Context, jobs []Deferred) (n int, err error) {
	ids, all := make([]int64, len(jobs)), make(map[int64]again, len(jobs))
	for i, job := range jobs {
		ids[i], all[job.Job] = job.Job, again{after: job.After}
		if job.Begun {
			all[job.Job] = again{after: job.After, reruns: 1}
		}
	}
	how := func(id int64) again { return all[id] }
	for _, kinds := range [][]string{deliveryKinds, ownedKinds} {
		replaced, err := q.replace(ctx, how, findDeferredStatement, kinds, q.node, ids)
		if err != nil && !postgres.IsLocked(err) {
			return n, fmt.Errorf("defer jobs: %w", err)
		}
		n += replaced
	}
	return n, nil
}

// GiveBack gives deliveries' jobs of this node new rows that are due at once and are no reruns, because nothing was
// sent for them, and returns how many. It is for a stop, and leaves locked jobs to the nodes that reclaim them.
func (q *JobRows) GiveBack(ctx context.Context, jobs []int64) (int, error) {
	if len(jobs) == 0 {
		return 0, nil
	}
	n, err := q.replace(ctx, func(int64) again { return again{} }, findStoppedStatement, deliveryKinds, q.node, jobs)
	if err != nil {
		return 0, fmt.Errorf("give jobs back: %w", err)
	}
	return n, nil
}
