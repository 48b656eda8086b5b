package node_test

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
	"postrider/policy"
)

// shownRate is a row of postrider.delivery_rates, with drains_at in whole seconds from now.
type shownRate struct {
	Drains  *int `db:"drains"`
	TooLate bool `db:"drains_too_late"`
}

func (b *bundle) rate(t *testing.T, subscription string) shownRate {
	t.Helper()
	rows, _ := b.pool.Query(t.Context(), `SELECT drains_too_late,
		round(extract(epoch FROM drains_at - now()))::int AS drains
		FROM postrider.delivery_rates WHERE subscription = $1`, subscription)
	r, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[shownRate])
	require.NoError(t, err)
	return r
}

// closeFor stores that an event subscription's endpoint is closed.
func (b *bundle) closeFor(t *testing.T, sub *catalog.Subscription, wait time.Duration) {
	t.Helper()
	b.exec(t, `INSERT INTO postrider_internal.delivery_rates (key, closed_until) VALUES ($1, now() + $2::interval)
		ON CONFLICT (key) DO UPDATE SET closed_until = excluded.closed_until`,
		"endpoint:"+hex.EncodeToString(sub.EndpointHash), wait)
}

// makeOlder adds to the age of all pending deliveries.
func (b *bundle) makeOlder(t *testing.T, by time.Duration) {
	t.Helper()
	b.exec(t, "UPDATE postrider_internal.deliveries SET time_to_live_since = time_to_live_since - $1::interval", by)
}

func TestBacklogDrainsTooLate(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.topic(t, "orders")
	b.subscription(t, "orders", "slow", func(s *catalog.SubscriptionSpec) {
		s.RetryPolicy.EventTimeToLiveInMinutes, s.DeliveryRate = new(1), &endpointconf.DeliveryRate{Limit: 1}
	})
	require.Equal(t, shownRate{Drains: new(0)}, b.rate(t, "slow"))
	b.publish(t, "orders", "old", 45)
	require.Equal(t, shownRate{Drains: new(45)}, b.rate(t, "slow"))
	b.makeOlder(t, 10*time.Second)
	require.False(t, b.rate(t, "slow").TooLate)
	b.makeOlder(t, 30*time.Second)
	require.True(t, b.rate(t, "slow").TooLate)
	b.publish(t, "orders", "new", 1) // has the time
	require.True(t, b.rate(t, "slow").TooLate)
	b.exec(t, "DELETE FROM postrider_internal.deliveries WHERE id % 3 > 0")
	b.exec(t, "DELETE FROM postrider_internal.backlog_counts")
	b.exec(t, "DELETE FROM postrider_internal.rollup_deltas")
	b.exec(t, "INSERT INTO postrider_internal.backlog_counts (subscription_id, deliveries) "+
		"SELECT subscription_id, count(*) FROM postrider_internal.deliveries GROUP BY 1")
	require.False(t, b.rate(t, "slow").TooLate) // 16 within 20 s
}

// A pause can stop the time to live.
func TestBacklogDrainsAfterAPause(t *testing.T) {
	t.Parallel()
	for _, stop := range []bool{false, true} {
		b := setup(t)
		b.topic(t, "orders")
		b.subscription(t, "orders", "slow", func(s *catalog.SubscriptionSpec) {
			s.RetryPolicy.EventTimeToLiveInMinutes, s.DeliveryRate = new(1), &endpointconf.DeliveryRate{Limit: 1}
		})
		b.publish(t, "orders", "e", 45)
		_, err := b.store.Holds.Pause(t.Context(), "orders", "slow", &stop)
		require.NoError(t, err)
		b.makeOlder(t, time.Hour)
		b.exec(t, "UPDATE postrider_internal.event_subscription_states SET paused_since = now() - interval '1 hour'")
		require.Equal(t, !stop, b.rate(t, "slow").TooLate)
	}
}

// All deliveries that share a limit take its times, unless they are on hold. A default port makes no other host.
func TestBacklogsOfASharedLimit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.topic(t, "orders")
	for i, endpoint := range []string{"http://Host.example/a", "http://host.example:80/b", "http://host.example/c"} {
		sub := b.subscription(t, "orders", fmt.Sprint("sub-", i), func(s *catalog.SubscriptionSpec) {
			s.EndpointURL = endpoint
			s.DeliveryRate = &endpointconf.DeliveryRate{Limit: 10 + i, Scope: endpointconf.RatePerEndpoint}
		})
		rate, _ := b.store.Cache.Snapshot().Rate(sub.ID)
		require.Equal(t, "host:host.example", rate.Key)
	}
	b.publish(t, "orders", "e", 357)
	for i := range 3 {
		require.Equal(t, shownRate{Drains: new(107)}, b.rate(t, fmt.Sprint("sub-", i)))
	}
	_, err := b.store.Holds.Pause(t.Context(), "orders", "sub-0", nil)
	require.NoError(t, err)
	require.Equal(t, 71, *b.rate(t, "sub-1").Drains)
	require.Equal(t, 107, *b.rate(t, "sub-0").Drains)
}

// A closed endpoint delays the backlog of a limit. Without a limit, when the backlog drains is unknown.
func TestBacklogsOfAClosedEndpoint(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.topic(t, "orders")
	sub := b.subscription(t, "orders", "one", nil)
	b.subscription(t, "orders", "limited", func(s *catalog.SubscriptionSpec) {
		s.DeliveryRate = &endpointconf.DeliveryRate{Limit: 10}
	})
	b.subscription(t, "orders", "literal", func(s *catalog.SubscriptionSpec) { s.Behavior = policy.BehaviorDocumented })
	b.publish(t, "orders", "e", 100)
	b.closeFor(t, sub, 30*time.Second)
	require.Equal(t, shownRate{}, b.rate(t, "one"))
	waiting := b.rate(t, "limited")
	require.Greater(t, *waiting.Drains, 10)
	require.LessOrEqual(t, *waiting.Drains, 40)
	require.False(t, waiting.TooLate)
	require.Equal(t, 2, b.count(t, "SELECT count(*) FROM postrider.delivery_rates WHERE closed_until > now()"))
	b.closeFor(t, sub, -time.Second)
	require.Equal(t, shownRate{Drains: new(10)}, b.rate(t, "limited"))
	require.Equal(t, 1, b.count(t, "SELECT count(*) FROM postrider.delivery_rates"))
}

// A redelivery and a sample event wait for the limit, which is no hold that prevents an operator's retry.
func TestLimitIsTheHoldOfRedeliveries(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.topic(t, "orders")
	b.subscription(t, "orders", "slow", nil)
	letter := b.dead(t, "orders", "e", 1)[0]
	b.subscription(t, "orders", "slow", func(s *catalog.SubscriptionSpec) {
		s.DeliveryRate = &endpointconf.DeliveryRate{Limit: 1}
	})
	id, err := b.store.Operator.Redeliver(t.Context(), letter, operator.Target{}, false)
	require.NoError(t, err)
	_, err = b.store.Operator.TestDelivery(t.Context(), "orders", "slow")
	require.NoError(t, err)
	require.Equal(t, 2, b.count(t, "SELECT count(*) FROM postrider.deliveries WHERE hold = 'rate_limited'"))
	require.NoError(t, b.store.Operator.RetryNow(t.Context(), id))
	_, err = b.store.Holds.Release(t.Context(), "orders", "slow")
	require.NoError(t, err)
}

// The row of a delivery keeps the hold that it had when it began to wait. What is shown is what it waits for now.
func TestHoldIsWhatADeliveryWaitsForNow(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.topic(t, "orders")
	b.subscription(t, "orders", "limited", func(s *catalog.SubscriptionSpec) {
		s.DeliveryRate = &endpointconf.DeliveryRate{Limit: 1}
	})
	b.subscription(t, "orders", "free", nil)
	closed := b.subscription(t, "orders", "closed", func(s *catalog.SubscriptionSpec) { s.EndpointURL += "/closed" })
	b.subscription(t, "orders", "documented", func(s *catalog.SubscriptionSpec) {
		s.EndpointURL, s.Behavior = s.EndpointURL+"/closed", policy.BehaviorDocumented
	})
	batches := b.subscription(t, "orders", "batches", func(s *catalog.SubscriptionSpec) {
		s.DeliveryRate = &endpointconf.DeliveryRate{Limit: 1}
	})
	want := map[string]string{}
	for _, name := range []string{"limited", "free", "closed", "documented", "batches"} {
		want[name] = "paused"
		_, err := b.store.Holds.Pause(t.Context(), "orders", name, nil)
		require.NoError(t, err)
	}
	b.publish(t, "orders", "e", 2)
	b.exec(t, `WITH b AS (INSERT INTO postrider_internal.batches (subscription_id, hold, members, bytes, delivery_ids)
		SELECT $1, 'paused', 2, 100, array_agg(id) FROM postrider_internal.deliveries WHERE subscription_id = $1 RETURNING id)
		UPDATE postrider_internal.deliveries d SET hold = NULL, batch_id = b.id FROM b WHERE d.subscription_id = $1`,
		batches.ID)
	b.closeFor(t, closed, time.Hour)
	b.requireHolds(t, want)
	for name := range want {
		want[name] = "admission"
		_, err := b.store.Holds.Resume(t.Context(), "orders", name)
		require.NoError(t, err)
	}
	want["limited"], want["closed"], want["batches"] = "rate_limited", "rate_limited", "rate_limited"
	b.requireHolds(t, want)
	b.exec(t, "UPDATE postrider_internal.delivery_rates SET closed_until = closed_until - interval '1 hour'")
	want["closed"] = "admission"
	b.requireHolds(t, want)
}

// requireHolds requires each event subscription's two deliveries on this hold, in SQL, lists and metrics.
func (b *bundle) requireHolds(t *testing.T, want map[string]string) {
	t.Helper()
	counts := map[string]int64{}
	for name, hold := range want {
		counts[hold] += 2
		require.Equal(t, 2, b.count(t, `SELECT count(*) FROM postrider.deliveries
			WHERE subscription = $1 AND hold = $2 AND waits_for = $2 AND next_attempt_at IS NULL`, name, hold), name)
		for _, f := range []query.DeliveryFilter{{Hold: hold}, {Hold: hold, Topic: "orders", Subscription: name}} {
			page, err := b.store.Reader.ReadDeliveries(t.Context(), f, query.Turn[query.DeliveryPlace]{Limit: 100})
			require.NoError(t, err)
			shown := map[string]int{}
			for _, line := range page.Rows {
				require.Equal(t, want[line.Subscription], *line.Hold)
				shown[line.Subscription]++
			}
			require.Equal(t, 2, shown[name], name)
		}
	}
	require.Equal(t, 1, b.count(t, "SELECT count(*) FROM postrider.batches WHERE hold = $1", want["batches"]))
	page, err := b.store.Reader.ReadBatches(t.Context(), query.BatchFilter{Hold: want["batches"]},
		query.Turn[int64]{Limit: 9})
	require.NoError(t, err)
	require.Len(t, page.Rows, 1)
	reading, err := query.NewMeter(b.store.DB).Read(t.Context())
	require.NoError(t, err)
	metered := map[string]int64{}
	for _, held := range reading.Held {
		metered[held.Name] = held.Count
	}
	require.Equal(t, counts, metered)
}
