package queue_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/testnode"
	"postrider/jobs"
	"postrider/jobs/queue"
)

// PostgreSQL inserts jobs, and Go reads them: both know kinds, queues and arguments.
func TestNewJobsHaveTheQueuesAndArgumentsOfTheirKinds(t *testing.T) {
	t.Parallel()
	tn := testnode.New(t)
	for kind, queueOf := range map[string]string{
		queue.DeliverKind: queue.DeliverQueue, queue.BatchKind: queue.DeliverQueue, "lock": queue.LockQueue,
		queue.RouteKind: queue.RouteQueue, queue.HandshakeKind: queue.HandshakeQueue,
		queue.ExportKind: queue.ExportQueue, queue.OperationKind: queue.OperationQueue,
	} {
		require.Equal(t, queueOf, testnode.Value[string](t, tn,
			"SELECT queue FROM postrider_internal.new_job(1, $1, '{}', now())", kind))
	}

	const attempt = `SELECT array_agg(kind || ' ' || args ORDER BY position) FROM (VALUES
		(1, 7::bigint, NULL::bigint, 4, NULL::int, NULL::int, NULL::boolean), (2, 7, NULL, 4, 0, 0, false),
		(3, 7, NULL, 4, 2, 1, true), (4, NULL, 8, 1, NULL, 3, NULL), (5, NULL, NULL, NULL, NULL, NULL, NULL))
		AS a(position, delivery, batch, number, reruns, permits, exempt),
		postrider_internal.attempt_job(1, now(), 6, delivery, batch, number, reruns, permits, exempt)`
	found := testnode.Value[[]string](t, tn, attempt)
	require.Equal(t, `deliver {"d": 7, "n": 4, "s": 6}`, found[0])
	for i, args := range []queue.AttemptArgs{
		{Delivery: 7}, {Delivery: 7}, {Delivery: 7, Reruns: 2, Permits: 1, Exempt: true}, {Batch: 8, Permits: 3}, {},
	} {
		args.Subscription = 6
		kind, text, _ := strings.Cut(found[i], " ")
		require.Equal(t, args.Kind(), kind)
		var read queue.AttemptArgs
		require.NoError(t, json.Unmarshal([]byte(text), &read))
		require.Equal(t, args, read)
	}

	const states = `SELECT string_agg(concat_ws(' ', state, attempt, attempted_at = now(), attempted_by), ', ')
		FROM (VALUES ('deliver', 5, NULL), ('deliver', 6, NULL), ('deliver', 6, 'node-1'), ('lock', 0, NULL),
		    ('route', 6, NULL)) AS j(of, seconds, on_node),
		postrider_internal.new_job(1, of, '{}', now() + seconds * interval '1 second', on_node)`
	require.Equal(t, "available 0, scheduled 0, running 1 t {node-1}, scheduled 0, available 0",
		testnode.Value[string](t, tn, states))
}

// futureJobs are what a node of a newer version may have in the queue: in every state, with arguments that mean nothing
// here.
const futureJobs = `INSERT INTO postrider_internal.river_job (state, args, kind, queue, priority, max_attempts, attempt,
	    scheduled_at, attempted_at, attempted_by, created_at)
	SELECT j.state::postrider_internal.river_job_state, '{"d":"x","s":"y"}', 'future', j.queue, 1, 1000, 0,
	       now() - interval '1 second', CASE WHEN j.by IS NOT NULL THEN now() - interval '1 hour' END, j.by::text[],
	       now() - interval '1 hour' FROM (VALUES ('available', 'deliveries', NULL), ('scheduled', 'deliveries', NULL),
		('running', 'routes', '{dead}'), ('running', 'deliveries', '{node-1}'))
		AS j(state, queue, by)`

const futureStates = "SELECT coalesce(string_agg(state::text, ' ' ORDER BY id), '') " +
	"FROM postrider_internal.river_job WHERE kind = 'future'"

func statesOfFutureKinds(t *testing.T, tn *testnode.Node) (states string) {
	t.Helper()
	require.NoError(t, tn.Pool.QueryRow(t.Context(), futureStates).Scan(&states))
	return states
}

// During a rolling upgrade this version meets jobs of a kind that only the next one knows.
func TestJobsOfAnUnknownKindAreOnlyPromoted(t *testing.T) {
	t.Parallel()
	tn := testnode.Pending(t, 4)
	_, j := tn.Fetch(t, "dead")
	require.Len(t, j, 4)
	tn.Exec(t, futureJobs)

	require.Equal(t, 4, tn.Reclaim(t), "the others are replaced")
	n, err := tn.System.JobRows.ReclaimOwn(t.Context(), nil)
	require.NoError(t, err)
	require.Zero(t, n)
	ids := testnode.Value[[]int64](t, tn, "SELECT array_agg(id) FROM postrider_internal.river_job WHERE kind = 'future'")
	n, err = tn.System.JobRows.Reclaim(t.Context(), ids)
	require.NoError(t, err)
	require.Zero(t, n)
	require.NoError(t, testnode.ErrorOf(tn.System.Maintenance.Sweep(t.Context())))
	traffic := tn.Traffic(t)
	require.Equal(t, 4, traffic.QueuedInAll)
	require.Equal(t, "available scheduled running running", statesOfFutureKinds(t, tn))

	tn.Promote(t)
	require.Equal(t, "available available running running", statesOfFutureKinds(t, tn))
	require.Equal(t, 4, tn.Jobs(t, "kind = 'future' AND id = ANY ($1)", ids), "the same rows")
	require.Zero(t, tn.Count(t, brokenFree))
}

// A job of an unknown kind belongs to a newer version: this version changes neither it nor its delivery.
func TestDeliveryWithAJobOfAnUnknownKindIsUnchanged(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		state string
		do    func(*testing.T, *testnode.Node)
	}{
		"the sweeper": {"scheduled", func(t *testing.T, tn *testnode.Node) {
			require.Equal(t, jobs.Swept{}, tn.Sweep(t))
		}},
		"the lease": {"running", func(t *testing.T, tn *testnode.Node) {
			require.Zero(t, tn.Reclaim(t))
		}},
		"the drain": {"scheduled", func(t *testing.T, tn *testnode.Node) {
			require.NoError(t, tn.System.Subscriptions.Delete(t.Context(), "orders", "all"))
			require.NoError(t, tn.System.Subscriptions.Drain(t.Context()))
			require.Zero(t, tn.Subscriptions(t, "drained_at IS NOT NULL"), "there is something left to do")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tn := testnode.Pending(t, 1)
			tn.Exec(t, "UPDATE postrider_internal.river_job SET kind = 'future', attempted_by = '{dead}', state = "+
				"$1::postrider_internal.river_job_state", row.state)
			age(t, tn)
			row.do(t, tn)
			require.Equal(t, row.state, statesOfFutureKinds(t, tn))
			require.Equal(t, 1, tn.Jobs(t, "queue = 'deliveries'"))
			require.Equal(t, 1, tn.Count(t, "SELECT count(*) FROM postrider_internal.deliveries d "+
				"JOIN postrider_internal.river_job j ON j.id = d.job_id WHERE d.reruns = 0"))
		})
	}
}

// A late success ends the delivery by deleting the job of its next attempt, when it knows what that job is.
func TestLateSuccessLeavesAJobOfAnUnknownKind(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	r := tn.TimeOut(t, sub, 1)
	tn.Exec(t, "UPDATE postrider_internal.river_job SET kind = 'future'")
	require.False(t, tn.LateSuccess(t, r[0]))
	tn.RequireLate(t, "note", "200; only noted: no retry was waiting in the queue")
	require.Equal(t, "available", statesOfFutureKinds(t, tn))
}
