package query_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/access"
	"postrider/internal/catalog"
	"postrider/internal/postgres"
	"postrider/internal/query"
	"postrider/internal/testnode"
)

// walk turns the pages of a list from the newest on and returns the keys of its rows.
func walk[T, K any](
	t *testing.T, limit int, key func(T) K, read func(query.Turn[K]) (query.Page[T], *K),
) (keys []K, pages int) {
	t.Helper()
	turn := query.Turn[K]{Limit: limit}
	for {
		page, lookedTo := read(turn)
		for _, row := range page.Rows {
			keys = append(keys, key(row))
		}
		pages++
		switch {
		case lookedTo != nil:
			require.False(t, page.Older)
			turn.Before = lookedTo
		case page.Older:
			turn.Before = new(keys[len(keys)-1])
		default:
			return keys, pages
		}
	}
}

// A list of a time has all of that time and nothing else, each row once, and does not look through what is newer.
func testDeliveriesOfATime(t *testing.T, tn *testnode.Node) {
	from := testnode.Value[time.Time](t, tn,
		"SELECT min(published_at) + interval '26 hours' FROM postrider_internal.events")
	to := from.Add(time.Hour)
	read := func(f query.DeliveryFilter) (ids []int64, pages int) {
		places, pages := walkDeliveries(t, tn, 100, f)
		for _, place := range places {
			ids = append(ids, place.DeliveryID)
		}
		return ids, pages
	}
	const all = `SELECT d.delivery_id FROM postrider.deliveries d JOIN postrider_internal.events e ON e.id = d.system_id
		WHERE e.published_at >= $1 AND e.published_at < $2`
	for name, row := range map[string]struct {
		filter query.DeliveryFilter
		and    string
	}{
		"all":        {query.DeliveryFilter{}, ""},
		"of a state": {query.DeliveryFilter{State: "dead_lettered"}, " AND d.state = 'dead_lettered'"},
		"of one": {query.DeliveryFilter{Topic: "orders", Subscription: "billing"}, " AND d.topic = 'orders' " +
			"AND d.subscription = 'billing'"},
		"of a topic":       {query.DeliveryFilter{Topic: "orders"}, " AND d.topic = 'orders'"},
		"of none":          {query.DeliveryFilter{Topic: "orders", Subscription: "missing"}, " AND false"},
		"of an outcome":    {query.DeliveryFilter{Outcome: "Busy"}, " AND d.last_outcome = 'Busy'"},
		"that are on hold": {query.DeliveryFilter{Hold: "paused"}, " AND d.hold = 'paused'"},
	} {
		row.filter.From, row.filter.To = &from, &to
		want := testnode.Value[[]int64](t, tn, "SELECT coalesce(array_agg(delivery_id ORDER BY system_id DESC, "+
			"delivery_id DESC), '{}') FROM ("+all+row.and+") x JOIN postrider.deliveries d USING (delivery_id)", from,
			to)
		got, pages := read(row.filter)
		require.Equal(t, want, append([]int64{}, got...), name)
		require.LessOrEqual(t, pages, len(want)/100+2, "%s: the list begins at the time", name)
		if name == "all" {
			require.NotEmpty(t, want)
		}
	}
	later := query.DeliveryFilter{From: new(time.Now().Add(24 * time.Hour))}
	got, _ := read(later)
	require.Empty(t, got)
	onlyFrom, _ := read(query.DeliveryFilter{From: &from, State: "dropped"})
	require.Len(t, onlyFrom, tn.Count(t, "SELECT count(*) FROM postrider.deliveries d "+
		"JOIN postrider_internal.events e ON e.id = d.system_id WHERE e.published_at >= $1 AND d.state = 'dropped'", from))

	turn := func(before, after *query.DeliveryLine) query.SearchedPage[query.DeliveryLine, query.DeliveryPlace] {
		t.Helper()
		turn := query.Turn[query.DeliveryPlace]{Limit: 10}
		if before != nil {
			turn.Before = new(before.Place())
		}
		if after != nil {
			turn.After = new(after.Place())
		}
		page, err := tn.System.Reader.ReadDeliveries(t.Context(), query.DeliveryFilter{From: &from, To: &to}, turn)
		require.NoError(t, err)
		return page
	}
	first := turn(nil, nil)
	next := turn(&first.Rows[9], nil)
	require.Equal(t, first.Rows, turn(nil, &next.Rows[0]).Rows, "backwards as forwards")
	require.NotEqual(t, "pending", first.Rows[9].State)
	tn.Exec(t, "DELETE FROM postrider_internal.delivery_history WHERE id = $1", first.Rows[9].DeliveryID)
	require.Equal(t, next.Rows, turn(&first.Rows[9], nil).Rows, "the delivery that it goes on from is not kept any more")
}

// thirtyHeldBatches pauses an event subscription, for whose end 30 batches wait.
func thirtyHeldBatches(t *testing.T, tn *testnode.Node, sub *catalog.Subscription) {
	t.Helper()
	tn.Exec(t,
		`INSERT INTO postrider_internal.batches (subscription_id, state, members, bytes, hold) SELECT $1, 'pending', 2, 10,
			    'paused' FROM generate_series(1, 30)`, sub.ID)
	tn.Exec(t, `INSERT INTO postrider_internal.event_subscription_states (subscription_id, paused_since)
		VALUES ($1, now())`, sub.ID)
}

// Batches are found by the index of whatever the filter names; where none knows them, in steps of 20,000.
func TestListOfBatches(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	one, other := tn.Subscribe(t, "orders", "one", nil), tn.Subscribe(t, "orders", "other", nil)
	tn.Exec(t, `INSERT INTO postrider_internal.batches (subscription_id, state, members, bytes, finished_at)
		SELECT CASE WHEN i % 100 = 0 THEN $2::bigint ELSE $1 END, CASE WHEN i = 7 THEN 'dead_lettered' ELSE 'delivered' END,
		       2, 10, now() FROM generate_series(1, 45000) i`, one.ID, other.ID)
	thirtyHeldBatches(t, tn, one)
	for name, row := range map[string]struct {
		filter query.BatchFilter
		rows   int
		pages  int
	}{
		"all":                   {query.BatchFilter{}, 45030, 46},
		"of one":                {query.BatchFilter{Topic: "orders", Subscription: "other"}, 450, 1},
		"pending":               {query.BatchFilter{State: "pending"}, 30, 1},
		"dead-lettered":         {query.BatchFilter{State: "dead_lettered"}, 1, 3},
		"dead-lettered, of one": {query.BatchFilter{Subscription: "one", State: "dead_lettered"}, 1, 3},
		"on hold":               {query.BatchFilter{Topic: "orders", Hold: "paused"}, 30, 1},
		"on hold, of all":       {query.BatchFilter{Hold: "paused"}, 30, 3},
		"of no subscription":    {query.BatchFilter{Topic: "bills"}, 0, 1},
	} {
		got, pages := walkBatches(t, tn, row.filter)
		require.Len(t, got, row.rows, name)
		require.Equal(t, row.pages, pages, name)
	}
}

// A topic has had so many event subscriptions that their batches are read along the ids of all: a look sees 20,000,
// whosever they are.
func TestListOfBatchesOfVeryMany(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	tn.Topic(t, "bills")
	one, other := tn.Subscribe(t, "orders", "one", nil), tn.Subscribe(t, "bills", "other", nil)
	tn.CopySubscription(t, one.ID,
		`jsonb_build_object('id', 1000 + i, 'name', 'gone', 'deleted_at', now(), 'drained_at', now())`, 60)
	tn.Exec(t, `INSERT INTO postrider_internal.batches (subscription_id, state, members, bytes, finished_at)
		SELECT CASE WHEN i % 10 = 0 THEN 1001 + i % 60 WHEN i % 10 = 1 THEN $2 ELSE $1::bigint END, CASE WHEN i % 10000 = 0
		    THEN 'dead_lettered' ELSE 'delivered' END, 2, 10, now() FROM generate_series(1, 20000) i`, one.ID, other.ID)
	thirtyHeldBatches(t, tn, one)
	for name, row := range map[string]struct {
		filter      query.BatchFilter
		rows, pages int
	}{
		"dead-lettered":          {query.BatchFilter{Topic: "orders", State: "dead_lettered"}, 2, 2},
		"all":                    {query.BatchFilter{Topic: "orders"}, 18030, 20},
		"pending":                {query.BatchFilter{Topic: "orders", State: "pending"}, 30, 2},
		"on hold":                {query.BatchFilter{Topic: "orders", Hold: "paused"}, 30, 2},
		"dead-lettered, of some": {query.BatchFilter{Topic: "orders", Subscription: "gone", State: "dead_lettered"}, 2, 2},
	} {
		got, pages := walkBatches(t, tn, row.filter)
		require.Len(t, got, row.rows, name)
		require.LessOrEqual(t, pages, row.pages, name)
	}
}

// The audit is found by who, what, where and when.
func TestListOfTheAudit(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	ctx := access.WithActor(t.Context(), access.Actor{Name: "user:anna", Address: "192.0.2.1"})
	tn.Exec(t, `INSERT INTO postrider_internal.audit (at, actor, action, topic, subscription, details)
		SELECT '2026-01-01'::timestamptz + i * interval '1 minute', 'key:ci', CASE WHEN i % 2 = 0 THEN 'subscription_paused'
		    ELSE 'subscription_resumed' END, 'orders', 'billing', jsonb_build_object('i', i)
		  FROM generate_series(1, 41000) i`)
	tn.Exec(t, "SELECT postrider_internal.note_audit('user:anna', NULL, 'topic_created', 'bills', NULL, '{}')")
	read := func(ctx context.Context, f query.AuditFilter) (list []query.AuditLine, pages int) {
		_, pages = walk(t, 500, func(l query.AuditLine) int64 { list = append(list, l); return l.AuditID },
			func(turn query.Turn[int64]) (query.Page[query.AuditLine], *int64) {
				page, err := query.NewReader(postgres.NewDB(tn.Pool), postgres.NewClock()).ReadAudit(ctx, f, turn)
				require.NoError(t, err)
				return page.Page, page.SearchedTo
			})
		return list, pages
	}
	list, pages := read(ctx, query.AuditFilter{Actor: "user:anna"})
	require.Len(t, list, 1)
	require.Equal(t, 3, pages)
	require.Equal(t, "topic_created bills", list[0].Action+" "+*list[0].Topic)
	from := time.Date(2026, 1, 1, 1, 0, 0, 0, time.UTC)
	list, _ = read(ctx,
		query.AuditFilter{Action: "subscription_paused", Topic: "orders", Subscription: "billing", From: &from, To: new(
			from.Add(6 * time.Minute))})
	require.Len(t, list, 3)
	require.Equal(t, `{"i": 64} {"i": 60}`, fmt.Sprintf("%s %s", list[0].Details, list[2].Details))
}

// walkDeliveries turns the pages of a list of deliveries.
func walkDeliveries(t *testing.T, tn *testnode.Node, limit int, f query.DeliveryFilter) ([]query.DeliveryPlace, int) {
	t.Helper()
	return walk(t, limit, func(d query.DeliveryLine) query.DeliveryPlace { return d.Place() },
		func(turn query.Turn[query.DeliveryPlace]) (query.Page[query.DeliveryLine], *query.DeliveryPlace) {
			page, err := tn.System.Reader.ReadDeliveries(t.Context(), f, turn)
			require.NoError(t, err)
			return page.Page, page.SearchedTo
		})
}

// walkBatches turns the pages of a list of batches, the last one first.
func walkBatches(t *testing.T, tn *testnode.Node, f query.BatchFilter) (ids []int64, pages int) {
	t.Helper()
	ids, pages = walk(t, 1000, func(l query.BatchLine) int64 { return l.BatchID },
		func(turn query.Turn[int64]) (query.Page[query.BatchLine], *int64) {
			page, err := tn.System.Reader.ReadBatches(t.Context(), f, turn)
			require.NoError(t, err)
			return page.Page, page.SearchedTo
		})
	require.IsDecreasing(t, append(ids, 0))
	return ids, pages
}
