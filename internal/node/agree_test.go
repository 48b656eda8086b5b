package node_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/endpointconf"
	"postrider/internal/event"
	"postrider/internal/query"
	"postrider/internal/testdb"
	"postrider/internal/testnode"
	"postrider/jobs/queue"
	"postrider/policy"
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
		{fmt.Sprintf(limitIn, `''none'' THEN (\d+)`, "read_event"), fmt.Sprint(limits.MaxEventBytes)},
		{fmt.Sprintf(limitIn, `''none'' THEN \d+ ELSE (\d+)`, "read_event"), fmt.Sprint(event.MaxRelayedBytes)},
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

// REST computes the size of an event, and SQL that of an event that it publishes or redelivers.
func TestGoAndSQLCountTheSameBytes(t *testing.T) {
	t.Parallel()
	pool := testdb.Pool(t, testdb.New(t))
	for _, e := range []event.Event{
		{Schema: event.EventGrid, ID: "a", Type: "b", Subject: "c", DataVersion: "1", Body: []byte(`{"id":"a"}`)},
		{Schema: event.CloudEvents, ID: "ä", Type: "b", Source: "/s", Body: []byte(`{"id":"ä"}`)},
		{Schema: event.CloudEvents},
		{Schema: event.EventGrid, ID: "a", Source: "/a/foreign/topic", Body: []byte(`{"id":"a","topic":"/a/foreign/topic"}`)},
		{Schema: event.Custom, Body: []byte(`{}`)},
		{Schema: event.Custom, ID: "id", Type: "type", Subject: "subject", DataVersion: "1.0", Body: []byte(`[1]`)},
		{Schema: event.Custom, ID: "id", Source: "/a\tforeign/topic", Body: []byte(`0`)},
		{Schema: event.Custom, ID: "Zoë 🚀", Type: "\u2028\u00a0", Body: []byte(`"ü"`)},
		{Schema: event.Custom, ID: `"quoted"`, Type: `back\slash`, Subject: `\"`},
		{Schema: event.Custom, ID: "\n", Type: "\t\r", Subject: "\x01\x1f", DataVersion: "\x7f"},
		{Schema: event.Custom, Subject: "</script>&'"},
	} {
		var got int
		require.NoError(t, pool.QueryRow(t.Context(), "SELECT postrider_internal.event_bytes($1, $2, $3, $4, $5, $6, $7)",
			string(e.Schema), len(e.Body), e.ID, e.Type, e.Subject, e.Source, e.DataVersion).Scan(&got))
		require.Equal(t, e.Size(), got, "%+v", e)
	}
}

// The engine and SQL find the limits, probations and closings of an event subscription by the same keys, and have the
// same batches.
func TestGoAndSQLHaveTheSameKeysAndBatches(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	tn.Topic(t, "orders")
	s := tn.System
	for i, row := range []struct {
		url, policy string
		behavior    policy.Behavior
		max, size   *int
	}{
		{"https://example.com/a?code=1", "ga-2021", "", nil, nil},
		{"https://example.com/a?code=1", "ga-2021", policy.BehaviorDocumented, new(1), nil},
		{"https://EXAMPLE.com:443/b", "ga-2021", "", new(7), nil},
		{"https://example.com:8443", "ga-2019", "", nil, new(3)},
		{"https://example.com:80/c", "namespace-2023", "", new(1), new(100)},
		{"https://example.com:4430/", "namespace-2023", policy.BehaviorDocumented, new(5000), new(1024)},
		{"http://127.0.0.1:80/d", "ga-2018", "", nil, nil},
		{"http://127.0.0.1:443/d", "preview-2017", "", nil, nil},
		{"https://[2001:DB8::1]:443/?x=/y", "ga-2021", "", nil, new(1)},
		{"https://[2001:db8::1]", "ga-2021", "", new(2), new(64)},
		{"https://example.com/a?code=1", "ga-2026", "", nil, nil},
		{"https://xn--bcher-kva.example?z", "ga-2019", policy.BehaviorDocumented, nil, nil},
	} {
		sub := tn.Subscribe(t, "orders", fmt.Sprint("s", i), func(spec *catalog.SubscriptionSpec) {
			spec.EndpointURL, spec.RetryPolicy.Policy, spec.Behavior = row.url, row.policy, row.behavior
			spec.MaxEventsPerBatch, spec.PreferredBatchSizeInKilobytes = row.max, row.size
			spec.DeliveryRate = &endpointconf.DeliveryRate{Limit: 1, Scope: endpointconf.RatePerEndpoint}
		})
		snapshot := s.Cache.Snapshot()
		rate, limited := snapshot.Rate(sub.ID)
		require.True(t, limited)
		s.Closed.Close(sub, time.Hour)
		require.NoError(t, s.Closed.Store(t.Context()))
		type keys struct {
			Host       string
			Probations [][]byte
			Closed     *bool // whether its row of delivery_rates is closed; nil = it has no key
			MaxEvents  int
			Kilobytes  int
		}
		rows, err := tn.Pool.Query(t.Context(), `
SELECT 'host:' || postrider_internal.endpoint_host(s.endpoint_base_url),
       postrider_internal.probation_keys(p.settings #>> '{probation,scope}', s.endpoint_hash, s.id),
       CASE WHEN postrider_internal.closed_key(s) IS NOT NULL
            THEN EXISTS (SELECT FROM postrider_internal.delivery_rates r
                          WHERE r.key = postrider_internal.closed_key(s) AND r.closed_until > now()) END,
       v.max_events_per_batch, v.preferred_batch_size_in_kilobytes
  FROM postrider_internal.event_subscriptions s
  JOIN postrider_internal.retry_policies p ON p.name = s.retry_policy
  JOIN postrider.event_subscriptions v ON v.subscription_id = s.id
 WHERE s.id = $1`, sub.ID)
		require.NoError(t, err)
		got, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[keys])
		require.NoError(t, err)
		want := keys{rate.Key, snapshot.ProbationKeys(sub), nil, sub.Batch().MaxEvents, sub.Batch().PreferredKilobytes}
		if s.Closed.State(sub.ID) != queue.EndpointOpen {
			want.Closed = new(true)
		}
		require.Equal(t, want, got, row.url)
		tn.Exec(t, "DELETE FROM postrider_internal.delivery_rates")
	}
}
