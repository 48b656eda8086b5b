package queue_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/filter"
	"postrider/internal/node"
	"postrider/internal/postgres"
	"postrider/internal/testnode"
	"postrider/jobs"
	"postrider/jobs/queue"
)

// age makes everything look untouched for an hour.
func age(t *testing.T, tn *testnode.Node) {
	t.Helper()
	tn.Exec(t, "UPDATE postrider_internal.deliveries SET time_to_live_since = time_to_live_since - interval '1 hour', "+
		"last_attempt_at = last_attempt_at - interval '1 hour'")
	tn.Exec(t, "UPDATE postrider_internal.river_job SET created_at = created_at - interval '1 hour'")
}

const (
	firstDelivery = "(SELECT min(id) FROM postrider_internal.deliveries)"
	firstJob      = "(SELECT job_id FROM postrider_internal.deliveries ORDER BY id LIMIT 1)"
)

func TestSweepRepairsInconsistencies(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		breaking string
		want     jobs.Swept
	}{
		"the job row is gone": {
			"DELETE FROM postrider_internal.river_job WHERE id = " + firstJob, jobs.Swept{Repaired: 1},
		},
		"all job rows are gone": {"DELETE FROM postrider_internal.river_job", jobs.Swept{Repaired: 5}},
		"the delivery names no job": {"UPDATE postrider_internal.deliveries SET job_id = NULL WHERE id = " +
			firstDelivery, jobs.Swept{Repaired: 1, Removed: 1}},
		"the delivery names a wrong job": {"UPDATE postrider_internal.deliveries SET job_id = 999999 WHERE id = " +
			firstDelivery, jobs.Swept{Repaired: 1, Removed: 1}},
		"two deliveries name one job": {
			"UPDATE postrider_internal.deliveries SET job_id = (SELECT max(job_id) FROM postrider_internal.deliveries) " +
				"WHERE id = " + firstDelivery,
			jobs.Swept{Repaired: 1, Removed: 1},
		},
		"two deliveries have each other's job": {
			`UPDATE postrider_internal.deliveries d SET job_id = o.job_id FROM postrider_internal.deliveries o
			  WHERE d.id IN (` + firstDelivery + `, ` + firstDelivery + ` + 1) AND o.id = 2 * ` + firstDelivery + ` + 1 - d.id`,
			jobs.Swept{Repaired: 2, Removed: 2},
		},
		"the delivery is gone": {
			"DELETE FROM postrider_internal.deliveries WHERE id = " + firstDelivery, jobs.Swept{Removed: 1},
		},
		"all deliveries are gone": {"DELETE FROM postrider_internal.deliveries", jobs.Swept{Removed: 5}},
		"River discarded the job": {
			"UPDATE postrider_internal.river_job SET state = 'discarded', finalized_at = now() WHERE id = " + firstJob,
			jobs.Swept{Repaired: 1},
		},
		"River completed the job": {
			"UPDATE postrider_internal.river_job SET state = 'completed', finalized_at = now() WHERE id = " + firstJob,
			jobs.Swept{Repaired: 1},
		},
		"a held delivery kept its job": {
			"UPDATE postrider_internal.deliveries SET job_id = NULL, hold = 'paused' WHERE id = " + firstDelivery,
			jobs.Swept{Removed: 1},
		},
		"a member of a batch kept its job": {
			`WITH b AS (INSERT INTO postrider_internal.batches (subscription_id, hold, members, bytes) SELECT id, 'paused', 1,
			      100 FROM postrider_internal.event_subscriptions RETURNING id)
			  UPDATE postrider_internal.deliveries d SET job_id = NULL, batch_id = b.id FROM b WHERE d.id = ` + firstDelivery,
			jobs.Swept{Removed: 1},
		},
		"two jobs for one delivery": {
			`INSERT INTO postrider_internal.river_job (state, args, kind, queue, priority, max_attempts)
			 SELECT 'scheduled', args, kind, queue, priority, max_attempts FROM postrider_internal.river_job WHERE id = ` +
				firstJob,
			jobs.Swept{Removed: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tn := testnode.Pending(t, 5)
			tn.Exec(t, row.breaking)
			require.Equal(t, jobs.Swept{}, tn.Sweep(t), "what was touched a moment ago is left alone")
			age(t, tn)

			require.Equal(t, row.want, tn.Sweep(t))

			require.EqualValues(t, row.want.Repaired+row.want.Removed, tn.System.Maintenance.Repairs())
			require.Equal(t, row.want.Repaired, tn.Pending(t, "reruns = 1"))
			require.Equal(t, row.want.Repaired, tn.Jobs(t, "args ->> 'r' = '1' AND state = 'available' AND args ->> 'n' = '1'"))
			require.Zero(t, tn.Count(t, brokenFree))
			require.Equal(t, jobs.Swept{}, tn.Sweep(t), "nothing is left to find")
		})
	}
}

// brokenFree is brokenTokens for databases that hold, batch and keep rows of other kinds.
const brokenFree = `
SELECT (SELECT count(*) FROM postrider_internal.deliveries d
         WHERE hold IS NULL AND batch_id IS NULL AND 1 <> (SELECT count(*) FROM postrider_internal.river_job j
               WHERE kind = 'deliver' AND finalized_at IS NULL AND (j.args ->> 'd')::bigint = d.id
                 AND (j.id = d.job_id OR j.state <> 'running')))
     + (SELECT count(*) FROM postrider_internal.river_job j
         WHERE j.kind = 'deliver' AND finalized_at IS NULL AND NOT EXISTS (SELECT FROM postrider_internal.deliveries d
             WHERE d.job_id = j.id))`

func TestSweepKeepsTheTimeOfTheLostAttempt(t *testing.T) {
	t.Parallel()
	tn := testnode.Pending(t, 2)
	tn.Exec(t, "UPDATE postrider_internal.deliveries SET attempts = 3, last_attempt_at = now(), next_attempt_at = now() "+
		"+ interval '4 hours' WHERE id = "+firstDelivery)
	tn.Exec(t, "DELETE FROM postrider_internal.river_job WHERE id = "+firstJob)
	tn.Exec(t, "UPDATE postrider_internal.deliveries SET time_to_live_since = now() - interval '1 hour'")
	require.Equal(t, jobs.Swept{}, tn.Sweep(t), "its last attempt began a moment ago")
	age(t, tn)

	require.Equal(t, jobs.Swept{Repaired: 1}, tn.Sweep(t))

	require.Equal(t, 1, tn.Count(t,
		`SELECT count(*) FROM postrider_internal.river_job j JOIN postrider_internal.deliveries d ON d.job_id = j.id
		WHERE j.state = 'scheduled' AND j.scheduled_at = d.next_attempt_at AND j.args ->> 'n' = '4'
		  AND j.args ->> 'r' = '1'`))
}

func TestSweepCountsTheRerunsOfAnAttemptThatNeverEnds(t *testing.T) {
	t.Parallel()
	tn := testnode.Pending(t, 1)
	tn.Exec(t,
		`UPDATE postrider_internal.river_job SET state = 'discarded', finalized_at = now(), args = args || '{"r": 19}'`)
	d, j := tn.Count(t, "SELECT id FROM postrider_internal.deliveries"), tn.Count(t,
		"SELECT id FROM postrider_internal.river_job")
	age(t, tn)

	require.Equal(t, jobs.Swept{Repaired: 1}, tn.Sweep(t))

	require.Equal(t, 1, tn.Jobs(t, "args ->> 'r' = '20'"))
	_, err := tn.System.Loader.Load(t.Context(), queue.AttemptArgs{Delivery: int64(d)}, queue.JobToken{JobID: int64(j)})
	require.ErrorIs(t, err, postgres.ErrNotFound, "the old token opens nothing")
	require.Zero(t, tn.Jobs(t, "id = $1", j), "nor can a late result be recorded with it")
}

func TestSweepSkipsRunningJobs(t *testing.T) {
	t.Parallel()
	for name, breaking := range map[string]string{
		"a running job of no node ends by itself": "UPDATE postrider_internal.river_job SET state = 'running'; " +
			"DELETE FROM postrider_internal.deliveries",
		"a finalized job is River's to clean up": "UPDATE postrider_internal.river_job " +
			"SET state = 'completed', finalized_at = now(); DELETE FROM postrider_internal.deliveries",
		"jobs of other kinds are not deliveries": "UPDATE postrider_internal.river_job SET kind = 'other'; DELETE " +
			"FROM postrider_internal.deliveries",
		"a deletion cancels its deliveries itself": "DELETE FROM postrider_internal.river_job; " +
			"UPDATE postrider_internal.event_subscriptions SET deleted_at = now()",
		"the next batch takes them": `DELETE FROM postrider_internal.river_job; UPDATE postrider_internal.deliveries
			SET job_id = NULL; UPDATE postrider_internal.event_subscriptions
				SET settings = (settings::jsonb || '{"maxEventsPerBatch":10}')::json;
			INSERT INTO postrider_internal.river_job (args, kind, queue, priority, max_attempts)
			SELECT jsonb_build_object('s', id), 'batch', 'deliveries', 1, 1000 FROM postrider_internal.event_subscriptions`,
		"a hold is an owner": "DELETE FROM postrider_internal.river_job; UPDATE postrider_internal.deliveries " +
			"SET job_id = NULL, hold = 'probation'",
		"a batch is an owner": `DELETE FROM postrider_internal.river_job; UPDATE postrider_internal.deliveries
			SET job_id = NULL, batch_id = 1;
			INSERT INTO postrider_internal.batches (id, subscription_id, hold, members, bytes) SELECT 1, id, 'paused', 3, 100
			FROM postrider_internal.event_subscriptions`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tn := testnode.Pending(t, 3)
			for statement := range strings.SplitSeq(breaking, ";") {
				tn.Exec(t, statement)
			}
			age(t, tn)
			rows := "SELECT (SELECT count(*) FROM postrider_internal.river_job) * 100 + (SELECT count(*) " +
				"FROM postrider_internal.deliveries)"
			before := tn.Count(t, rows)
			require.Equal(t, jobs.Swept{}, tn.Sweep(t))
			require.Equal(t, before, tn.Count(t, rows))
			require.Zero(t, tn.System.Maintenance.Repairs())
		})
	}
}

func TestSweepSkipsLockedDeliveries(t *testing.T) {
	t.Parallel()
	tn := testnode.Pending(t, 3)
	tn.Exec(t, "DELETE FROM postrider_internal.river_job")
	age(t, tn)
	end := tn.OpenTransaction(t,
		"UPDATE postrider_internal.deliveries SET job_id = NULL, hold = 'paused' WHERE id = "+firstDelivery)

	require.Equal(t, jobs.Swept{Repaired: 2}, tn.Sweep(t), "it neither waits nor gives a job to what gets a hold")
	end(true)
	require.Equal(t, jobs.Swept{}, tn.Sweep(t))
	require.Zero(t, tn.Count(t, brokenFree))
}

func TestSweepIsDoneByOneNodeAtATime(t *testing.T) {
	t.Parallel()
	tn := testnode.Pending(t, 3)
	tn.Exec(t, "DELETE FROM postrider_internal.river_job")
	age(t, tn)
	end := tn.OpenTransaction(t, "SELECT postrider_internal.lock('sweeper', 0)")
	require.Equal(t, jobs.Swept{}, tn.Sweep(t))
	end(false)

	other := tn.Beside(t, node.Options{Node: "node-2"}).System
	testnode.AtOnce(2, func(i int) {
		_, err := []*node.System{tn.System, other}[i].Maintenance.Sweep(t.Context())
		require.NoError(t, err)
	})
	tn.Sweep(t) // each may have skipped for the other
	require.Zero(t, tn.Count(t, brokenFree))
	require.EqualValues(t, 3, tn.System.Maintenance.Repairs()+other.Maintenance.Repairs(), "nothing is repaired twice")
}

// manyDeliveries fills the tables with n deliveries whose jobs' ids are in another order than theirs, as after retries.
func manyDeliveries(t *testing.T, tn *testnode.Node, n int) {
	t.Helper()
	tn.Exec(t, `WITH x AS (SELECT i AS id, i * 7919 % $1 + 1 AS job FROM generate_series(1, $1::bigint) i), jobs AS (
			INSERT INTO postrider_internal.river_job (id, state, args, kind, queue, priority, max_attempts, scheduled_at,
			    created_at)
			SELECT job, 'scheduled', jsonb_build_object('d', id, 's', 1, 'n', 1), 'deliver', 'deliveries', 1, 1000,
			       now() + interval '1 hour', now() - interval '1 hour' FROM x ORDER BY job)
		INSERT INTO postrider_internal.deliveries (id, subscription_id, topic_id, event_uuid, event_day, event_bytes, job_id,
		    time_to_live_since, next_attempt_at)
		SELECT id, 1, 1, gen_random_uuid(), current_date, 1, job, now() - interval '1 hour', now() + interval '1 hour'
		FROM x`, n)
	tn.Exec(t, "ANALYZE postrider_internal.river_job, postrider_internal.deliveries")
	tn.Exec(t,
		"SELECT setval('postrider_internal.river_job_id_seq', $1), setval('postrider_internal.deliveries_id_seq', $1)", n)
}

func TestSweepRunsInSteps(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	const n = 35_000
	manyDeliveries(t, tn, n)
	requireSweepReadsRanges(t, tn)
	require.Equal(t, jobs.Swept{}, tn.Sweep(t))
	tn.Exec(t, "DELETE FROM postrider_internal.river_job WHERE args ->> 'd' IN ('1', '9999', '10000', '20000', '35000')")
	tn.Exec(t, "DELETE FROM postrider_internal.deliveries WHERE id IN (10001, 34999)")

	require.Equal(t, jobs.Swept{Repaired: 5, Removed: 2}, tn.Sweep(t))

	require.Equal(t, 5, tn.Pending(t, "reruns > 0"))
	require.Equal(t, n-2, tn.Count(t, "SELECT count(*) FROM postrider_internal.river_job j "+
		"JOIN postrider_internal.deliveries d ON d.job_id = j.id AND j.args ->> 'd' = d.id::text"))
	require.Equal(t, jobs.Swept{}, tn.Sweep(t))
}

// requireSweepReadsRanges checks that a step of the sweep reads a range of ids by an index.
func requireSweepReadsRanges(t *testing.T, tn *testnode.Node) {
	t.Helper()
	tx := tn.Begin(t)
	for _, name := range []string{"repairdeliveries", "removestrays", "repairbatches"} {
		statement := postgres.SQLFiles(os.DirFS("../../jobs"))(name, "limit", "after")
		rows, err := tx.Query(t.Context(), "EXPLAIN (ANALYZE, TIMING OFF) "+statement, 10_000, 20_000)
		require.NoError(t, err, name)
		plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err, name)
		require.Regexp(t, "Index (Only )?Scan using (deliveries_pkey|river_job_pkey|batches_pending_idx)",
			strings.Join(plan, "\n"), name)
		for _, node := range plan {
			if strings.Contains(node, "Seq Scan on deliveries ") || strings.Contains(node, "Seq Scan on river_job ") {
				require.Contains(t, node, "never executed", "%s\n%s", name, strings.Join(plan, "\n"))
			}
		}
	}
}

// One snapshot of the database distinguishes consistent rows from inconsistent ones: here everything that publishing,
// fetching, recording, reclaiming and deleting do goes on at once, with rows that look old to the sweeper.
func TestSweepFindsNothingUnderLoad(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	tn.Exec(t, `CREATE FUNCTION look_old() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		NEW.time_to_live_since := NEW.time_to_live_since - interval '1 hour';
		    NEW.last_attempt_at := NEW.last_attempt_at - interval '1 hour';
		    RETURN NEW; END $$`)
	tn.Exec(t, "CREATE TRIGGER age BEFORE INSERT OR UPDATE ON postrider_internal.deliveries FOR EACH ROW EXECUTE "+
		"FUNCTION look_old()")
	tn.Exec(t, "ALTER TABLE postrider_internal.river_job ALTER created_at SET DEFAULT now() - interval '1 hour'")
	require.NoError(t, tn.System.Nodes.Register(t.Context(), "host"))
	// One that is being canceled makes the whole range suspect, so that all its rows are looked into.
	gone := tn.Subscribe(t, "orders", "gone",
		func(s *catalog.SubscriptionSpec) { s.Filter = filter.Filter{IncludedEventTypes: []string{"other"}} })
	tn.Exec(t, "UPDATE postrider_internal.event_subscriptions SET deleted_at = now() WHERE id = $1", gone.ID)
	tn.Exec(t, `INSERT INTO postrider_internal.deliveries (subscription_id, topic_id, event_uuid, event_day, event_bytes,
		    time_to_live_since, next_attempt_at)
		VALUES ($1, 1, gen_random_uuid(), current_date, 1, now(), now())`, gone.ID)

	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	var group sync.WaitGroup
	loop := func(do func(i int)) {
		group.Go(func() {
			defer stop() // a failed check ends all
			for i := 0; ctx.Err() == nil; i++ {
				do(i)
			}
		})
	}
	for worker := range 2 {
		loop(func(i int) { tn.Publish(t, "orders", fmt.Sprintf("w%d-%d", worker, i), 1+i%120) })
	}
	loop(func(int) { tn.RecordSome(t, sub, "node-1") })
	loop(func(int) {
		tn.Take(t, "dead-node", 20) // never registered
		require.NoError(t, testnode.ErrorOf(tn.System.JobRows.ReclaimFromLost(t.Context())))
	})
	loop(func(sweeps int) {
		require.Equal(t, jobs.Swept{}, tn.Sweep(t))
		if sweeps >= 10 && tn.Ended(t, "") > 100 {
			stop()
		}
	})
	group.Wait()

	require.Greater(t, tn.Ended(t, ""), 100)
	require.Zero(t, tn.System.Maintenance.Repairs())
	tn.Exec(t, "DELETE FROM postrider_internal.deliveries WHERE subscription_id = $1", gone.ID)
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
}
