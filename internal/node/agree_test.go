package node_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/event"
	"postrider/internal/query"
	"postrider/internal/testdb"
	"postrider/jobs/queue"
)

// Go and SQL each need some values for themselves, because REST and SQL have the same limits, and the engine and its
// functions the same queues and buckets.
func TestGoAndSQLHaveTheSameValues(t *testing.T) {
	t.Parallel()
	pool := testdb.Pool(t, testdb.New(t))
	const (
		queueOf = "SELECT queue FROM postrider_internal.new_job(1, '%s', '{}', now())"
		limitIn = `SELECT (regexp_match(prosrc, '%s'))[1] FROM pg_proc WHERE proname = '%s'`
	)
	type pair struct{ statement, value string }
	limits := event.DefaultLimits()
	pairs := []pair{
		{fmt.Sprintf(limitIn, `jsonb_array_length\(events\) > (\d+)`, "publish_batch"), fmt.Sprint(limits.MaxEvents)},
		{fmt.Sprintf(limitIn, `octet_length\(e\.body\) > (\d+)`, "read_event"), fmt.Sprint(limits.MaxEventBytes)},
		{fmt.Sprintf(limitIn, `nests_deeper\([^,]*, (\d+)`, "read_event"), fmt.Sprint(limits.MaxDepth)},
		{fmt.Sprintf(limitIn, `jsonb_array_length\(value\) > (\d+)`, "filter_ids"), fmt.Sprint(query.MaxFilterIDs)},
		{fmt.Sprintf(queueOf, "lock"), queue.LockQueue},
	}
	for kind, name := range map[string]string{
		queue.DeliverKind: queue.DeliverQueue, queue.BatchKind: queue.DeliverQueue, queue.RouteKind: queue.RouteQueue,
		queue.HandshakeKind: queue.HandshakeQueue, queue.ExportKind: queue.ExportQueue,
		queue.OperationKind: queue.OperationQueue,
	} {
		pairs = append(pairs, pair{fmt.Sprintf(queueOf, kind), name})
	}
	for i, bound := range (&query.Latency{}).Distribution().Bounds {
		microseconds := bound / 1000
		pairs = append(pairs, pair{
			fmt.Sprintf("SELECT concat_ws(' ', postrider_internal.latency_bucket(%d), postrider_internal.latency_bucket(%d))",
				microseconds-1, microseconds), fmt.Sprint(i, i+1),
		})
	}
	for _, p := range pairs {
		var got string
		require.NoError(t, pool.QueryRow(t.Context(), p.statement).Scan(&got), p.statement)
		require.Equal(t, p.value, got, p.statement)
	}
}
