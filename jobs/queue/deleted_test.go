package queue_test

import (
	"maps"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/endpointconf"
	"postrider/internal/event"
	"postrider/internal/testnode"
)

// rowsOfTables counts the rows of each internal table.
func rowsOfTables(t *testing.T, tn *testnode.Node) map[string]int {
	t.Helper()
	rows, _ := tn.Pool.Query(t.Context(), `SELECT relname, (xpath('/row/n/text()', query_to_xml(
		    format('SELECT count(*) AS n FROM %s', c.oid::regclass), false, true, '')))[1]::text::int
		  FROM pg_class c WHERE relnamespace = 'postrider_internal'::regnamespace AND relkind IN ('r', 'p')
		   AND NOT relispartition`) // see ForEachRow
	var name string
	var n int
	counts := map[string]int{}
	_, err := pgx.ForEachRow(rows, []any{&name, &n}, func() error { counts[name] = n; return nil })
	require.NoError(t, err)
	return counts
}

// Of a deleted event subscription and its topic nothing remains but their own rows, and what retention keeps for days.
func TestNothingRemainsOfDeletedSubscriptions(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	tn.PutTopic(t, "orders", testnode.CloudEvents)
	kept := tn.Subscribe(t, "orders", "kept", testnode.Batching(10, 64))
	tn.Exec(t, "SELECT postrider_internal.lock('batching', $1)", kept.ID)
	tn.Pause(t, "orders", "kept")
	before := rowsOfTables(t, tn)

	tn.PutTopic(t, "gone", testnode.CloudEvents)
	batching := tn.Subscribe(t, "gone", "batching", func(s *catalog.SubscriptionSpec) {
		testnode.Batching(10, 64)(s)
		s.DeliveryRate = &endpointconf.DeliveryRate{Limit: 1}
	})
	queue := tn.Subscribe(t, "gone", "queue", func(s *catalog.SubscriptionSpec) {
		*s = catalog.SubscriptionSpec{
			DeliveryConfiguration: &catalog.DeliveryConfiguration{DeliveryMode: catalog.ModeQueue},
			EventDeliverySchema:   event.CloudEvents,
		}
	})
	tn.Pause(t, "gone", "batching")
	tn.Send(t, testnode.Of("gone", event.Event{
		Schema: event.CloudEvents, ID: "1", Type: "t", Source: "/s",
		Body: []byte(`{"specversion":"1.0","id":"1","source":"/s","type":"t"}`),
	}))
	received, err := tn.System.Receiver.Receive(t.Context(), queue, 1, time.Minute, "test")
	require.NoError(t, err)
	require.Len(t, received, 1)
	tn.Exec(t, "SELECT postrider_internal.lock('batching', $1)", batching.ID)
	tn.Exec(t, `INSERT INTO postrider_internal.probations (probation_key, endpoint_base_url)
		SELECT endpoint_hash || '\x00', endpoint_base_url FROM postrider_internal.event_subscriptions WHERE id = $1`,
		batching.ID)
	tn.Exec(t, "INSERT INTO postrider_internal.delivery_rates (key) VALUES ('subscription:' || $1::bigint)", batching.ID)
	tn.MergeRollups(t)

	for _, name := range []string{"batching", "queue"} {
		require.NoError(t, tn.System.Subscriptions.Delete(t.Context(), "gone", name))
	}
	require.NoError(t, tn.System.Topics.Delete(t.Context(), "gone"))
	require.NoError(t, tn.System.Maintenance.Clean(t.Context()))
	require.Equal(t, 1, tn.Count(t, "SELECT count(*) FROM postrider_internal.locks WHERE key = $1", batching.ID),
		"until it is drained")
	tn.Exec(t, "UPDATE postrider_internal.event_subscriptions SET deleted_at = deleted_at - interval '2 minutes'")
	tn.Exec(t, "UPDATE postrider_internal.probations SET updated_at = updated_at - interval '2 hours'")
	require.NoError(t, tn.System.Subscriptions.Drain(t.Context()))
	tn.MergeRollups(t)
	require.NoError(t, tn.System.Maintenance.Clean(t.Context()))

	after := rowsOfTables(t, tn)
	for _, table := range []string{
		"audit", "event_subscriptions", "events", "delivery_history", "handshakes", "rollups", "rollup_sums", "topics",
	} {
		delete(before, table)
		delete(after, table)
	}
	after["river_job"] -= tn.Jobs(t, "kind = 'handshake'") // notifies the endpoint
	require.True(t, maps.Equal(before, after), "%v\n%v", before, after)
}
