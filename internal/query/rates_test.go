package query_test

import (
	"encoding/hex"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/endpointconf"
	"postrider/internal/operator"
	"postrider/internal/query"
	"postrider/internal/testnode"
	"postrider/policy"
)

// shownRate is a row of postrider.delivery_rates, with drains_at in whole seconds from now.
type shownRate struct {
	Drains  *int `db:"drains"`
	TooLate bool `db:"drains_too_late"`
}

func rateOf(t *testing.T, tn *testnode.Node, subscription string) shownRate {
	t.Helper()
	rows, _ := tn.Pool.Query(t.Context(), `SELECT drains_too_late,
		round(extract(epoch FROM drains_at - now()))::int AS drains
		FROM postrider.delivery_rates WHERE subscription = $1`, subscription)
	r, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[shownRate])
	require.NoError(t, err)
	return r
}

// closeFor stores that an event subscription's endpoint is closed.
func closeFor(t *testing.T, tn *testnode.Node, sub *catalog.Subscription, wait time.Duration) {
	t.Helper()
	tn.Exec(t, `INSERT INTO postrider_internal.delivery_rates (key, closed_until) VALUES ($1, now() + $2::interval)
		ON CONFLICT (key) DO UPDATE SET closed_until = excluded.closed_until`,
		"endpoint:"+hex.EncodeToString(sub.EndpointHash), wait)
}

// limited gives an event subscription a limit of requests a second.
func limited(limit int) func(*catalog.SubscriptionSpec) {
	return func(s *catalog.SubscriptionSpec) { s.DeliveryRate = &endpointconf.DeliveryRate{Limit: limit} }
}

// slow is one request a second within a time to live of one minute.
func slow(s *catalog.SubscriptionSpec) {
	limited(1)(s)
	s.RetryPolicy.EventTimeToLiveInMinutes = new(1)
}

// makeOlder adds to the age of all pending deliveries.
func makeOlder(t *testing.T, tn *testnode.Node, by time.Duration) {
	t.Helper()
	tn.Exec(t, "UPDATE postrider_internal.deliveries SET time_to_live_since = time_to_live_since - $1::interval", by)
}

func TestBacklogDrainsTooLate(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	tn.Subscribe(t, "orders", "slow", slow)
	require.Equal(t, shownRate{Drains: new(0)}, rateOf(t, tn, "slow"))
	tn.Publish(t, "orders", "old", 45)
	require.Equal(t, shownRate{Drains: new(45)}, rateOf(t, tn, "slow"))
	makeOlder(t, tn, 10*time.Second)
	require.False(t, rateOf(t, tn, "slow").TooLate)
	makeOlder(t, tn, 30*time.Second)
	require.True(t, rateOf(t, tn, "slow").TooLate)
	tn.Publish(t, "orders", "new", 1) // has the time
	require.True(t, rateOf(t, tn, "slow").TooLate)
	tn.Exec(t, "DELETE FROM postrider_internal.deliveries WHERE id % 3 > 0")
	tn.Exec(t, "DELETE FROM postrider_internal.backlog_counts")
	tn.Exec(t, "DELETE FROM postrider_internal.rollup_deltas")
	tn.Exec(t, "INSERT INTO postrider_internal.backlog_counts (subscription_id, deliveries) "+
		"SELECT subscription_id, count(*) FROM postrider_internal.deliveries GROUP BY 1")
	require.False(t, rateOf(t, tn, "slow").TooLate) // 16 within 20 s
}

// A pause can stop the time to live.
func TestBacklogDrainsAfterAPause(t *testing.T) {
	t.Parallel()
	for _, stop := range []bool{false, true} {
		tn := testnode.WithTopic(t)
		tn.Subscribe(t, "orders", "slow", slow)
		tn.Publish(t, "orders", "e", 45)
		require.NoError(t, testnode.ErrorOf(tn.System.Holds.Pause(t.Context(), "orders", "slow", &stop)))
		makeOlder(t, tn, time.Hour)
		tn.Exec(t, "UPDATE postrider_internal.event_subscription_states SET paused_since = now() - interval '1 hour'")
		require.Equal(t, !stop, rateOf(t, tn, "slow").TooLate)
	}
}

// All deliveries that share a limit take its permits, unless they are on hold. A default port makes no other host.
func TestBacklogsOfASharedLimit(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	for i, endpoint := range []string{"http://Host.example/a", "http://host.example:80/b", "http://host.example/c"} {
		sub := tn.Subscribe(t, "orders", fmt.Sprint("sub-", i), func(s *catalog.SubscriptionSpec) {
			s.EndpointURL = endpoint
			s.DeliveryRate = &endpointconf.DeliveryRate{Limit: 10 + i, Scope: endpointconf.RatePerEndpoint}
		})
		rate, _ := tn.System.Cache.Snapshot().Rate(sub.ID)
		require.Equal(t, "host:host.example", rate.Key)
	}
	tn.Publish(t, "orders", "e", 357)
	for i := range 3 {
		require.Equal(t, shownRate{Drains: new(107)}, rateOf(t, tn, fmt.Sprint("sub-", i)))
	}
	tn.Pause(t, "orders", "sub-0")
	require.Equal(t, 71, *rateOf(t, tn, "sub-1").Drains)
	require.Equal(t, shownRate{}, rateOf(t, tn, "sub-0"), "it is not known when the pause ends")
	tn.Resume(t, "orders", "sub-0")
	tn.Rest(t, "sub-2")
	require.Equal(t, 71, *rateOf(t, tn, "sub-0").Drains)
	require.InDelta(t, 3600+107, *rateOf(t, tn, "sub-2").Drains, 60)
}

// A closed endpoint delays the backlog of a limit. Without a limit, when the backlog drains is unknown.
func TestBacklogsOfAClosedEndpoint(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	sub := tn.Subscribe(t, "orders", "one", nil)
	tn.Subscribe(t, "orders", "limited", limited(10))
	tn.Subscribe(t, "orders", "literal", func(s *catalog.SubscriptionSpec) { s.Behavior = policy.BehaviorDocumented })
	tn.Publish(t, "orders", "e", 100)
	closeFor(t, tn, sub, 30*time.Second)
	require.Equal(t, shownRate{}, rateOf(t, tn, "one"))
	waiting := rateOf(t, tn, "limited")
	require.Greater(t, *waiting.Drains, 10)
	require.LessOrEqual(t, *waiting.Drains, 40)
	require.False(t, waiting.TooLate)
	require.Equal(t, 2, tn.Rows(t, "delivery_rates", "closed_until > now()"))
	closeFor(t, tn, sub, -time.Second)
	require.Equal(t, shownRate{Drains: new(10)}, rateOf(t, tn, "limited"))
	require.Equal(t, 1, tn.Rows(t, "delivery_rates", ""))
}

// A redelivery and a sample event wait for the limit, which is no hold that prevents an operator's retry.
func TestLimitIsTheHoldOfRedeliveries(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	tn.Subscribe(t, "orders", "slow", nil)
	letter := tn.DeadLetters(t, "orders", "e", 1)[0]
	tn.Subscribe(t, "orders", "slow", limited(1))
	id, err := tn.System.Operator.Redeliver(t.Context(), letter, operator.Target{}, false)
	require.NoError(t, err)
	_, err = tn.System.Operator.TestDelivery(t.Context(), "orders", "slow")
	require.NoError(t, err)
	require.Equal(t, 2, tn.Rows(t, "deliveries", "hold = 'rate_limited'"))
	require.NoError(t, tn.System.Operator.RetryNow(t.Context(), id))
	require.NoError(t, testnode.ErrorOf(tn.System.Holds.Release(t.Context(), "orders", "slow")))
}

// The row of a delivery keeps the hold that it had when it began to wait. What is shown is what it waits for now.
func TestHoldIsWhatADeliveryWaitsForNow(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	tn.Subscribe(t, "orders", "limited", limited(1))
	tn.Subscribe(t, "orders", "free", nil)
	closed := tn.Subscribe(t, "orders", "closed", func(s *catalog.SubscriptionSpec) { s.EndpointURL += "/closed" })
	tn.Subscribe(t, "orders", "documented", func(s *catalog.SubscriptionSpec) {
		s.EndpointURL, s.Behavior = s.EndpointURL+"/closed", policy.BehaviorDocumented
	})
	batches := tn.Subscribe(t, "orders", "batches", limited(1))
	want := map[string]string{}
	for _, name := range []string{"limited", "free", "closed", "documented", "batches"} {
		want[name] = "paused"
		tn.Pause(t, "orders", name)
	}
	tn.Publish(t, "orders", "e", 2)
	tn.Exec(t, `WITH b AS (INSERT INTO postrider_internal.batches (subscription_id, hold, members, bytes, delivery_ids)
		SELECT $1, 'paused', 2, 100, array_agg(id) FROM postrider_internal.deliveries WHERE subscription_id = $1 RETURNING id)
		UPDATE postrider_internal.deliveries d SET hold = NULL, batch_id = b.id FROM b WHERE d.subscription_id = $1`,
		batches.ID)
	closeFor(t, tn, closed, time.Hour)
	requireHolds(t, tn, want)
	for name := range want {
		want[name] = "admission"
		tn.Resume(t, "orders", name)
	}
	want["limited"], want["closed"], want["batches"] = "rate_limited", "rate_limited", "rate_limited"
	requireHolds(t, tn, want)
	tn.Exec(t, "UPDATE postrider_internal.delivery_rates SET closed_until = closed_until - interval '1 hour'")
	want["closed"] = "admission"
	requireHolds(t, tn, want)
}

// requireHolds requires each event subscription's two deliveries on this hold, in SQL, lists and metrics.
func requireHolds(t *testing.T, tn *testnode.Node, want map[string]string) {
	t.Helper()
	counts := map[string]int64{}
	for name, hold := range want {
		counts[hold] += 2
		require.Equal(t, 2, tn.Rows(t, "deliveries",
			"subscription = $1 AND hold = $2 AND waits_for = $2 AND next_attempt_at IS NULL", name, hold), name)
		for _, f := range []query.DeliveryFilter{{Hold: hold}, {Hold: hold, Topic: "orders", Subscription: name}} {
			page, err := tn.System.Reader.ReadDeliveries(t.Context(), f, query.Turn[query.DeliveryPlace]{Limit: 100})
			require.NoError(t, err)
			shown := map[string]int{}
			for _, line := range page.Rows {
				require.Equal(t, want[line.Subscription], *line.Hold)
				shown[line.Subscription]++
			}
			require.Equal(t, 2, shown[name], name)
		}
	}
	require.Equal(t, 1, tn.Rows(t, "batches", "hold = $1", want["batches"]))
	page, err := tn.System.Reader.ReadBatches(t.Context(), query.BatchFilter{Hold: want["batches"]},
		query.Turn[int64]{Limit: 9})
	require.NoError(t, err)
	require.Len(t, page.Rows, 1)
	reading, err := query.NewMeter(tn.System.DB).Read(t.Context())
	require.NoError(t, err)
	metered := map[string]int64{}
	for _, held := range reading.Held {
		metered[held.Name] = held.Count
	}
	require.Equal(t, counts, metered)
}

// Event subscriptions whose deliveries are within their limits take no place in the overview's list of those that need
// attention.
func TestAttentionOmitsDeliveriesWithinTheLimit(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	for i := range 50 { // as many as the list has
		tn.Subscribe(t, "orders", fmt.Sprint("limited-", i), limited(1))
	}
	tn.Publish(t, "orders", "e", 1)
	tn.Exec(t, `UPDATE postrider_internal.deliveries
		SET hold = NULL, job_id = nextval('postrider_internal.river_job_id_seq')`) // in flight
	require.Equal(t, 50, tn.Rows(t, "deliveries", "state = 'pending' AND hold IS NULL"))
	tn.Subscribe(t, "orders", "paused", nil)
	tn.Pause(t, "orders", "paused")
	listed := func() (names []string) {
		overview, err := tn.System.Reader.ReadOverview(t.Context(), time.Hour, time.Minute)
		require.NoError(t, err)
		for _, a := range overview.Attention {
			names = append(names, a.Subscription)
		}
		return names
	}
	require.Equal(t, []string{"paused"}, listed())
	tn.Exec(t, `UPDATE postrider_internal.deliveries SET job_id = NULL, hold = 'rate_limited' WHERE subscription_id = (
		SELECT subscription_id FROM postrider.event_subscriptions WHERE subscription = 'limited-7')`)
	require.Equal(t, []string{"limited-7", "paused"}, listed())
}
