package query_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/node"
	"postrider/internal/query"
	"postrider/internal/testnode"
	"postrider/policy"
)

// outlook is what the view and the lists promise of one pending delivery.
func outlookOf(t *testing.T, tn *testnode.Node, id int64) query.DeliveryLine {
	t.Helper()
	shown, err := tn.System.Reader.Delivery(t.Context(), id)
	require.NoError(t, err)
	page, err := tn.System.Reader.ReadDeliveries(t.Context(), query.DeliveryFilter{State: "pending"},
		query.Turn[query.DeliveryPlace]{Limit: 50})
	require.NoError(t, err)
	for _, listed := range page.Rows {
		if listed.DeliveryID != id {
			continue
		}
		require.Equal(t, shown.Hold, listed.Hold)
		require.Equal(t, shown.NextAttemptAt == nil, listed.NextAttemptAt == nil)
		require.Equal(t, shown.HoldUntil, listed.HoldUntil)
		require.Equal(t, shown.OperationID, listed.OperationID)
		require.Equal(t, shown.ExpiresAt, listed.ExpiresAt)
		return *shown
	}
	t.Fatalf("delivery %d is not listed", id)
	return *shown
}

// No time that is shown of a waiting delivery is past, and on hold there is none but the end of a probation.
func TestTheNextAttemptIsNeverPast(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	id := tn.Fail(t, sub, 1)[0]
	later := outlookOf(t, tn, id)
	require.True(t, later.NextAttemptAt.After(time.Now()), "the retry is scheduled")
	require.Nil(t, later.HoldUntil)
	require.Zero(t, tn.Rows(t, "event_subscriptions", "hold_until IS NOT NULL"))

	tn.Exec(t, "UPDATE postrider_internal.deliveries SET next_attempt_at = now() - interval '1 minute'")
	const dueNow = "SELECT count(*) FROM postrider.deliveries WHERE state = 'pending' AND next_attempt_at = now() " +
		"AND waits_for = 'worker'"
	require.Equal(t, 1, tn.Count(t, dueNow))
	require.WithinDuration(t, time.Now(), *outlookOf(t, tn, id).NextAttemptAt, time.Minute)

	tn.Exec(t, "UPDATE postrider_internal.deliveries SET job_id = NULL, hold = 'paused'")
	held := outlookOf(t, tn, id)
	require.Nil(t, held.NextAttemptAt)
	require.Nil(t, held.HoldUntil, "it is not known when the pause ends")
	require.Equal(t, 1, tn.Pending(t, "next_attempt_at < now()"), "the due time is kept")

	tn.Rest(t, sub.Name)
	tn.Exec(t, "UPDATE postrider_internal.deliveries SET hold = 'probation'")
	held = outlookOf(t, tn, id)
	require.Nil(t, held.NextAttemptAt)
	require.WithinDuration(t, time.Now().Add(time.Hour), *held.HoldUntil, time.Minute)
	tn.Exec(t, "UPDATE postrider_internal.probations SET until = now() - interval '1 hour'")
	resting, err := tn.System.Subscriptions.Get(t.Context(), sub.Topic, sub.Name)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), *resting.Hold.Until, time.Minute)
	const untilNow = "SELECT count(*) FROM postrider.deliveries JOIN postrider.event_subscriptions s " +
		"USING (subscription_id, hold_until) WHERE hold_until = now()"
	require.Equal(t, 1, tn.Count(t, untilNow), "the probe is due")

	tn.Pause(t, sub.Topic, sub.Name)
	require.Nil(t, outlookOf(t, tn, id).HoldUntil, "the pause outlasts the probation")
}

// A retry whose event subscription is on hold waits for the end of the hold, also before its time. An attempt in
// progress and the probe wait for nothing.
func TestAHoldAppliesBeforeTheNextAttempt(t *testing.T) {
	t.Parallel()
	const later = "UPDATE postrider_internal.river_job SET state = 'scheduled'"
	single, sub := testnode.Orders(t)
	one := single.Fail(t, sub, 1)[0]
	batching, batched := testnode.BatchingOrders(t, 10, 64)
	batching.WaitingBatch(t, batched, 3, policy.Verdict{Action: policy.Retry, At: time.Now().Add(time.Hour)})
	member := int64(batching.Count(t, "SELECT min(id) FROM postrider_internal.deliveries"))
	for tn, id := range map[*testnode.Node]int64{single: one, batching: member} {
		held := func(hold string) *time.Time {
			t.Helper()
			shown := outlookOf(t, tn, id)
			require.Nil(t, shown.NextAttemptAt)
			require.Equal(t, hold, *shown.Hold)
			require.Equal(t, 1, tn.Rows(t, "deliveries", "delivery_id = $1 AND hold = $2 AND waits_for = $2", id, hold))
			page, err := tn.System.Reader.ReadDeliveries(t.Context(), query.DeliveryFilter{Hold: hold},
				query.Turn[query.DeliveryPlace]{Limit: 9})
			require.NoError(t, err)
			require.NotEmpty(t, page.Rows)
			batches, err := tn.System.Reader.ReadBatches(t.Context(), query.BatchFilter{Hold: hold}, query.Turn[int64]{Limit: 9})
			require.NoError(t, err)
			require.Len(t, batches.Rows, tn.Rows(t, "batches", "hold = $1 AND next_attempt_at IS NULL", hold))
			require.Len(t, batches.Rows, tn.Batches(t, ""))
			return shown.HoldUntil
		}
		free := func() {
			t.Helper()
			shown := outlookOf(t, tn, id)
			require.Nil(t, shown.Hold)
			require.NotNil(t, shown.NextAttemptAt)
			require.Nil(t, shown.HoldUntil)
			require.Zero(t, tn.Rows(t, "batches", "hold IS NOT NULL OR next_attempt_at IS NULL"))
		}
		tn.Exec(t, later)
		free()
		tn.Pause(t, "orders", sub.Name)
		require.Nil(t, held("paused"))
		tn.Exec(t, "UPDATE postrider_internal.river_job SET state = 'running'")
		free()
		tn.Exec(t, later)
		tn.Resume(t, "orders", sub.Name)
		tn.Rest(t, sub.Name)
		require.WithinDuration(t, time.Now().Add(time.Hour), *held("probation"), time.Minute)
		tn.Exec(t, "UPDATE postrider_internal.probations SET probe_job_id = "+
			"(SELECT max(id) FROM postrider_internal.river_job)")
		free()
	}
}

func TestTheNextAttemptOfABatchIsNeverPast(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.BatchingOrders(t, 10, 64)
	batch := tn.WaitingBatch(t, sub, 3, policy.Verdict{Action: policy.Retry, At: time.Now().Add(time.Hour)})
	shown := func() query.BatchLine {
		t.Helper()
		one, err := tn.System.Reader.ReadBatch(t.Context(), batch.BatchID, 0, 10)
		require.NoError(t, err)
		return one.BatchLine
	}
	require.True(t, shown().NextAttemptAt.After(time.Now()))
	tn.Exec(t, "UPDATE postrider_internal.batches SET next_attempt_at = now() - interval '1 minute'")
	require.Equal(t, 1, tn.Rows(t, "batches", "next_attempt_at = now()"))
	require.Equal(t, 3, tn.Rows(t, "deliveries", "next_attempt_at = now()"))

	tn.Exec(t, "UPDATE postrider_internal.batches SET job_id = NULL, hold = 'probation'")
	tn.Rest(t, sub.Name)
	held := shown()
	require.Nil(t, held.NextAttemptAt)
	require.WithinDuration(t, time.Now().Add(time.Hour), *held.HoldUntil, time.Minute)
	require.Equal(t, 3, tn.Rows(t, "deliveries", "hold = 'probation' AND next_attempt_at IS NULL AND hold_until > now()"))
	require.Equal(t, 1, tn.Batches(t, "next_attempt_at < now()"), "the due time is kept")
}

// expires_at is the moment that the engine ends a delivery by, under each policy and time to live, while a pause stops
// the time to live, and after it.
func TestExpiresAtIsTheEnginesDeadline(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	subs := map[string]*catalog.Subscription{}
	for _, p := range tn.System.Cache.Snapshot().Policies() {
		subs[p.Name] = tn.Subscribe(t, "orders", p.Name,
			func(s *catalog.SubscriptionSpec) { s.RetryPolicy.Policy = p.Name })
		least := p.TTL.Least.Whole()
		subs[p.Name+"-least"] = tn.Subscribe(t, "orders", p.Name+"-least", func(s *catalog.SubscriptionSpec) {
			s.RetryPolicy.Policy, s.RetryPolicy.EventTimeToLiveInMinutes = p.Name, &least
		})
	}
	tn.Publish(t, "orders", "e", 1)
	requireDeadlines := func() {
		t.Helper()
		tx, err := tn.Pool.Begin(t.Context())
		require.NoError(t, err)
		defer func() { require.NoError(t, tx.Rollback(t.Context())) }()
		_, err = tx.Exec(t.Context(), "SET LOCAL timezone = 'Europe/Berlin'") // whose days have 23 and 25 hours
		require.NoError(t, err)
		rows, err := tx.Query(t.Context(),
			"SELECT subscription_id, time_to_live_since, expires_at FROM postrider.deliveries WHERE state = 'pending'")
		require.NoError(t, err)
		seen := 0
		for ; rows.Next(); seen++ {
			var id int64
			var timeToLiveSince, expiresAt time.Time
			require.NoError(t, rows.Scan(&id, &timeToLiveSince, &expiresAt))
			rules, ok := tn.System.Cache.Snapshot().Rules(id)
			require.True(t, ok)
			require.Equal(t, rules.Policy.Deadline(timeToLiveSince, rules.Limits.TTL), expiresAt, rules.Policy.Name)
		}
		require.NoError(t, rows.Err())
		require.Equal(t, len(subs), seen)
	}
	requireDeadlines()
	tn.Exec(t, "UPDATE postrider_internal.deliveries SET time_to_live_since = '2026-10-24 12:00:00+00'")
	requireDeadlines()
	tn.Exec(t, "UPDATE postrider_internal.deliveries SET time_to_live_since = now()")

	one := subs["ga-2021"]
	require.NoError(t, testnode.ErrorOf(tn.System.Holds.Pause(t.Context(), "orders", one.Name, new(true))))
	tn.Exec(t, "UPDATE postrider_internal.event_subscription_states SET paused_since = now() - interval '1 hour'")
	const older = "UPDATE postrider_internal.deliveries SET time_to_live_since = time_to_live_since - interval '2 " +
		"hours' " +
		"WHERE subscription_id = $1"
	tn.Exec(t, older, one.ID)
	const left = "SELECT round(extract(epoch FROM expires_at - now())) FROM postrider.deliveries " +
		"WHERE subscription_id = $1"
	require.InDelta(t, 23*3600, tn.Count(t, left, one.ID), 2, "an hour of its day was over when the pause began")
	var before, after time.Time
	const expires = "SELECT expires_at FROM postrider.deliveries WHERE subscription_id = $1"
	// the nodes have not moved it yet
	tn.Exec(t, "UPDATE postrider_internal.event_subscription_states SET resumed_at = now()")
	require.NoError(t, tn.Pool.QueryRow(t.Context(), expires, one.ID).Scan(&before))
	require.NoError(t, tn.System.Holds.MoveTimeToLive(t.Context(), one.ID))
	require.NoError(t, tn.Pool.QueryRow(t.Context(), expires, one.ID).Scan(&after))
	require.Equal(t, before, after)
	requireDeadlines()

	tn.DeadLetterAll(t)
	require.Zero(t, tn.Rows(t, "deliveries", "expires_at IS NOT NULL OR next_attempt_at IS NOT NULL"),
		"what has ended expires no more")
}

// A node that shortens every wait says so: what it will do is what the view shows.
func TestExpiresAtUnderATimeScale(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	id := tn.Fail(t, sub, 1)[0]
	scaled := tn.Beside(t, node.Options{Node: "node-scaled", TimeScale: 60}).System
	require.NoError(t, scaled.Nodes.Register(t.Context(), "host"))
	require.Equal(t, 24*60, tn.Count(t, "SELECT extract(epoch FROM expires_at - time_to_live_since)::int "+
		"FROM postrider.deliveries WHERE delivery_id = $1", id))
}
