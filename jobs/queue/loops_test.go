package queue_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/internal/node"
	"postrider/internal/postgres"
	"postrider/internal/testnode"
	"postrider/jobs"
	"postrider/jobs/queue"
	"postrider/policy"
)

func TestPromoteMovesOnlyDueJobs(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	tn.Exec(t, `INSERT INTO postrider_internal.river_job (state, args, kind, queue, priority,
		    max_attempts, scheduled_at, attempted_at)
		SELECT j.state::postrider_internal.river_job_state, '{"s": 1}', 'deliver', 'deliveries', 1, 1000, j.due, j.attempted
		FROM (
		SELECT 'scheduled' AS state, now() - interval '1 second' AS due, NULL::timestamptz AS attempted
		FROM generate_series(1, 12000)
		UNION ALL SELECT 'scheduled', now() + interval '1 hour', NULL FROM generate_series(1, 10)
		UNION ALL SELECT 'available', now() + interval '4 seconds', now()) j`)
	other := tn.Beside(t, node.Options{Node: "node-2"}).System

	var moved [2]int
	testnode.AtOnce(2, func(i int) {
		var err error
		moved[i], err = []*node.System{tn.System, other}[i].JobRows.Promote(t.Context(),
			queue.Capacity{SubscriptionID: 1, Jobs: 100_000})
		require.NoError(t, err)
	})

	require.Equal(t, 12000, moved[0]+moved[1], "two nodes share the work and neither does it twice")
	require.Equal(t, 10, tn.Jobs(t, "state = 'scheduled'"))
	require.Equal(t, 1, tn.Jobs(t, "state = 'available' AND scheduled_at = created_at + interval '4 seconds'"))
}

// Retries of batches that are due at once are put on hold at a linear cost, without statistics.
func TestPromoteIsLinear(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	const n = 1000
	tn.Exec(t, `WITH job AS (
		    INSERT INTO postrider_internal.river_job (state, args, kind, queue, priority, max_attempts, scheduled_at)
		    SELECT 'scheduled', jsonb_build_object('s', 1, 'b', b), 'batch', 'deliveries', 1, 1000, now()
		      FROM generate_series(1, $1::int) b RETURNING id, (args ->> 'b')::bigint AS b)
		INSERT INTO postrider_internal.batches (id, subscription_id, job_id, members, bytes, next_attempt_at)
		SELECT b, 1, id, 1, 100, now() FROM job`, n)
	testnode.RequireLinear(t, tn.Begin(t), n, queue.PromoteStatement(),
		n, 0, []int64{}, []int{}, []string{}, []string{}, n)
}

// A retry whose delivery a user has locked waits for it, and those of other event subscriptions do not.
func TestPromoteLeavesLockedDeliveries(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	ids := tn.Fail(t, sub, 3)
	tn.Exec(t, "UPDATE postrider_internal.river_job SET scheduled_at = now()")
	end := tn.OpenTransaction(t, "SELECT FROM postrider_internal.deliveries WHERE id = $1 FOR UPDATE", ids[0])
	none := queue.Capacity{SubscriptionID: sub.ID, Hold: catalog.HoldPaused}
	tn.Promote(t, none)
	require.Equal(t, 2, tn.Pending(t, "hold = 'paused'"))
	require.Equal(t, 1, tn.Pending(t, "id = $1 AND hold IS NULL AND job_id IS NOT NULL", ids[0]))
	end(false)
	tn.Promote(t, none)
	require.Equal(t, 3, tn.Pending(t, "hold = 'paused'"))
}

func TestPromoteUsesItsIndex(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	tn.Exec(t, `INSERT INTO postrider_internal.river_job (state, args, kind, queue, priority, max_attempts, scheduled_at)
		SELECT 'scheduled', '{}', 'deliver', 'deliveries', 1, 1000, now() + interval '1 hour' FROM generate_series(1, 50000)`)
	tn.Exec(t, "ANALYZE postrider_internal.river_job")
	plan, err := postgres.Values[string](t.Context(), tn.Pool, `EXPLAIN SELECT id FROM postrider_internal.river_job
		WHERE state = 'scheduled' AND queue = 'deliveries' AND priority = 1 AND scheduled_at <= now() ORDER BY scheduled_at,
		    id LIMIT 5000 FOR UPDATE SKIP LOCKED`)
	require.NoError(t, err)
	require.Contains(t, strings.Join(plan, "\n"), "river_job_scheduled_idx")
}

func TestLease(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	other := tn.Beside(t, node.Options{Node: "node-2"}).System
	require.NoError(t, tn.System.Nodes.Register(t.Context(), "host"))
	require.NoError(t, tn.System.Nodes.Register(t.Context(), "host"), "registering twice is nothing")
	require.NoError(t, other.Nodes.Register(t.Context(), "host"))

	beats, err := other.Nodes.Beat(t.Context(), "host", 0)
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"node-1": 0}, beats)
	_, err = tn.System.Nodes.Beat(t.Context(), "host", 0)
	require.NoError(t, err)
	zero := int64(0)
	require.NoError(t, other.Nodes.Unregister(t.Context(), "node-1", &zero))
	require.Equal(t, 2, tn.Nodes(t, ""), "it beat again: it lives")
	one := int64(1)
	require.NoError(t, other.Nodes.Unregister(t.Context(), "node-1", &one))
	require.Equal(t, 1, tn.Nodes(t, ""))
	require.NoError(t, testnode.ErrorOf(tn.System.Nodes.Beat(t.Context(), "host", 0)))
	require.Equal(t, 2, tn.Nodes(t, ""), "a node that was thought dead announces itself again")
}

func TestPartitionsAreCreatedAWeekAheadWhilePublishing(t *testing.T) {
	t.Parallel()
	tn, _ := testnode.Orders(t)
	maintenance := tn.Beside(t, node.Options{Node: "node-2", PartitionsAhead: jobs.PartitionsAhead}).System.Maintenance
	require.NoError(t, maintenance.EnsurePartitions(t.Context()))
	require.NoError(t, maintenance.EnsurePartitions(t.Context()), "again is nothing")
	for _, table := range []string{"events", "delivery_history", "delivery_attempts"} {
		require.Equal(t, jobs.PartitionsAhead+1,
			tn.Count(t, "SELECT count(*) FROM pg_inherits WHERE inhparent = ('postrider_internal.' || $1)::regclass", table))
	}
	tn.Exec(t, "DROP TABLE postrider_internal.events_"+time.Now().UTC().AddDate(0, 0, 5).Format("20060102"))
	end := tn.OpenTransaction(t, `INSERT INTO postrider_internal.events (id, day, topic_id, published_at, event_id,
		    event_type, subject, source, data_version, schema, body)
		SELECT gen_random_uuid(), (now() AT TIME ZONE 'UTC')::date, 1, now(), '', '', '', '', '', '', ''`)
	require.NoError(t, maintenance.EnsurePartitions(t.Context()),
		"an open publish does not stop the making of a partition")
	end(false)
	require.Equal(t, jobs.PartitionsAhead+1,
		tn.Count(t, "SELECT count(*) FROM pg_inherits WHERE inhparent = 'postrider_internal.events'::regclass"))
}

func TestMissingPartitionIsAnOutage(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	today := time.Now().UTC().Format("20060102")
	tn.Exec(t, "DROP TABLE postrider_internal.events_"+today)
	_, err := tn.System.Publisher.Publish(t.Context(), testnode.Publication("orders", "e", 1))
	require.ErrorIs(t, err, postgres.ErrUnavailable)
}

func TestDrainCancelsPendingDeliveriesOfDeletedSubscriptions(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	tn.Publish(t, "orders", "e", 120)
	tn.Exec(t, "UPDATE postrider_internal.event_subscriptions SET deleted_at = now() - interval '2 minutes' WHERE id = $1",
		sub.ID)

	require.NoError(t, tn.System.Subscriptions.Drain(t.Context()))

	require.Equal(t, 120, tn.Rows(t, "deliveries", "state = 'canceled' AND reason = 'EventSubscriptionDeleted'"))
	require.Zero(t, tn.Jobs(t, ""))
	require.Equal(t, 1, tn.Subscriptions(t, "drained_at IS NOT NULL"))
}

func TestLoaderKeepsToItsMemory(t *testing.T) {
	t.Parallel()
	tn, _ := testnode.Orders(t)
	small := tn.Beside(t, node.Options{Node: "node-small", MaxBodyBytes: 1}).System // 1 MiB, the least there is
	const events = 40
	tn.Send(t, testnode.BigPublication("orders", events, 200<<10))
	d, j := tn.Fetch(t, "node-small")

	var group sync.WaitGroup
	held := make(chan *queue.Work, events)
	for i := range d {
		group.Go(func() {
			work, err := small.Loader.Load(t.Context(), queue.AttemptArgs{Delivery: d[i]}, j[i])
			require.NoError(t, err)
			held <- work
		})
	}
	// 1 MiB of memory holds five bodies of 200 KiB; the others come as these are released.
	for range events {
		work := <-held
		require.Len(t, work.Members[0].Event.Body, 200<<10)
		require.LessOrEqual(t, len(held), 5)
		work.Release()
		work.Release() // twice is nothing
	}
	group.Wait()
}

// A relayed event may be larger than the memory that the loader waits for.
func TestLoaderReadsALargeBodyAlone(t *testing.T) {
	t.Parallel()
	tn, _ := testnode.Orders(t)
	small := tn.Beside(t, node.Options{Node: "node-small", MaxBodyBytes: 1}).System
	tn.Send(t, testnode.BigPublication("orders", 2, event.MaxRelayedBytes))
	d, j := tn.Fetch(t, "node-small")
	for i := range d {
		work, err := small.Loader.Load(t.Context(), queue.AttemptArgs{Delivery: d[i]}, j[i])
		require.NoError(t, err)
		require.Len(t, work.Members[0].Event.Body, event.MaxRelayedBytes)
		work.Release()
	}
}

func TestDeletingADeliveryWithoutItsJobEnds(t *testing.T) {
	t.Parallel()
	tn, _ := testnode.Orders(t)
	tn.Publish(t, "orders", "e", 3)
	tn.Exec(t, "DELETE FROM postrider_internal.river_job "+
		"WHERE args ->> 'd' = (SELECT min(id)::text FROM postrider_internal.deliveries)")
	require.NoError(t, tn.System.Subscriptions.Delete(t.Context(), "orders", "all"))
	require.Equal(t, 3, tn.Rows(t, "deliveries", "state = 'canceled'"))
	require.Zero(t, tn.Pending(t, ""))
}

func TestLoadReportsARemovedEvent(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	tn.Publish(t, "orders", "e", 1)
	tn.Exec(t, "DELETE FROM postrider_internal.events")
	d, j := tn.Fetch(t, "node-1")
	work, err := tn.System.Loader.Load(t.Context(), queue.AttemptArgs{Delivery: d[0]}, j[0])
	require.NoError(t, err)
	require.True(t, work.Members[0].EventMissing)
	work.Release()
	r := testnode.Result(d[0], j[0], sub, policy.Verdict{Action: policy.Drop, Reason: policy.ReasonEventMissing})
	r.Number = 0
	tn.Record(t, r)
	require.Equal(t, 1, tn.Rows(t, "deliveries", "state = 'dropped' AND reason = 'EventMissing' AND attempts = 0"))
}

// A left-over job row of a dead node inserts no second job for a delivery that has one.
func TestReclaimingALeftOverJobInsertsNone(t *testing.T) {
	t.Parallel()
	tn, _ := testnode.Orders(t)
	tn.Publish(t, "orders", "e", 1)
	tn.Exec(t, `INSERT INTO postrider_internal.river_job (state, args, kind, queue, priority, max_attempts, attempt,
		    attempted_at, attempted_by)
		SELECT 'running', args, kind, queue, priority, max_attempts, 1, now(), '{dead}' FROM postrider_internal.river_job`)
	require.Zero(t, tn.Reclaim(t))
	require.Equal(t, 1, tn.Jobs(t, ""))
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
}

func TestReclaimingSkipsLockedRows(t *testing.T) {
	t.Parallel()
	tn, _ := testnode.Orders(t)
	tn.Publish(t, "orders", "e", 2)
	_, j := tn.Fetch(t, "dead-node")
	end := tn.OpenTransaction(t, "SELECT FROM postrider_internal.river_job WHERE id = $1 FOR UPDATE", j[0].JobID)
	require.Equal(t, 1, tn.Reclaim(t))
	end(false)
	require.Equal(t, 1, tn.Reclaim(t))
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
}
