package delivery_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/endpointconf"
	"postrider/internal/node"
	"postrider/internal/testdb"
	"postrider/internal/testnode"
	"postrider/jobs/delivery"
)

// heldDeliveries inserts n deliveries that wait for the rate limit of an event subscription.
func heldDeliveries(t *testing.T, tn *testnode.Node, sub *catalog.Subscription, attempts, n int) {
	t.Helper()
	tn.Exec(t, `INSERT INTO postrider_internal.deliveries (subscription_id, topic_id, event_uuid, event_day, event_bytes,
		    hold, attempts, time_to_live_since, next_attempt_at)
		SELECT $1, $2, gen_random_uuid(), current_date, 100, 'rate_limited', $3, now(), now() FROM generate_series(1, $4)`,
		sub.ID, sub.TopicID, attempts, n)
}

// A release reads as many deliveries as it releases, whatever the backlog and the statistics of the tables.
func TestReleaseWithinARateLimitIsLinear(t *testing.T) {
	t.Parallel()
	for _, analyze := range []bool{false, true} {
		tn := testnode.Open(t, testdb.Clone(t), node.Options{Node: "node-1"})
		tn.Topic(t, "orders")
		for name, row := range map[string]struct {
			batch, attempts int
			count           endpointconf.RateCount
			reads           int // deliveries for each time
		}{
			"single":             {1, 0, endpointconf.RateOfRequests, 1},
			"requests":           {50, 0, endpointconf.RateOfRequests, 50},
			"events":             {50, 0, endpointconf.RateOfEvents, 1},
			"large batches":      {100, 0, endpointconf.RateOfEvents, 1},
			"retries":            {100, 1, endpointconf.RateOfEvents, 1},
			"retries of batches": {100, 1, endpointconf.RateOfRequests, 100},
		} {
			sub := tn.Subscribe(t, "orders", strings.ReplaceAll(name, " ", "-"), func(s *catalog.SubscriptionSpec) {
				s.DeliveryRate = &endpointconf.DeliveryRate{Limit: 1000, Count: row.count}
				s.MaxEventsPerBatch = &row.batch
			})
			heldDeliveries(t, tn, sub, row.attempts, 20_000)
			if analyze {
				tn.Exec(t, "ANALYZE")
			}
			for _, times := range []int{25, 100} {
				requireLinearRelease(t, tn, sub, times, times*row.reads+row.batch)
			}
		}
	}
}

// requireLinearRelease releases deliveries for so many permits of the limit, and rolls that back.
func requireLinearRelease(t *testing.T, tn *testnode.Node, sub *catalog.Subscription, times, most int) {
	t.Helper()
	rate, _ := tn.System.Cache.Snapshot().Rate(sub.ID)
	tx := tn.Begin(t)
	_, err := tx.Exec(t.Context(), "INSERT INTO postrider_internal.delivery_rates (key) VALUES ($1)", rate.Key)
	require.NoError(t, err)
	testnode.RequireLinear(t, tx, most, delivery.LimitedStatement(), pgx.NamedArgs{
		"subscription": sub.ID, "limit": times, "key": rate.Key, "step": rate.Step, "burst": rate.Burst,
		"per_event": rate.PerEvent, "per_request": rate.PerRequest,
		"batching": sub.Batching(), "batch_size": sub.Batch().MaxEvents,
		"ahead_of_time": delivery.AheadOfTime, "age": time.Duration(0), "max_age": 24 * time.Hour, "last": false,
		"probation": []byte{0},
	})
	require.NoError(t, tx.Rollback(t.Context()))
}

// A next time that lies far in the future was stored before the clock was set back: it does not stop the deliveries.
func TestRateLimitAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	for name, row := range map[string]struct {
		rate  endpointconf.DeliveryRate
		batch int
	}{
		"requests": {endpointconf.DeliveryRate{Limit: 10, Burst: new(1)}, 1},
		"burst":    {endpointconf.DeliveryRate{Limit: 10, Burst: new(20)}, 1},
		"events":   {endpointconf.DeliveryRate{Limit: 100, Burst: new(1), Count: endpointconf.RateOfEvents}, 50},
		"slow":     {endpointconf.DeliveryRate{Limit: 1, PeriodInSeconds: new(3600), Burst: new(1)}, 1},
	} {
		sub := tn.Subscribe(t, "orders", name, func(s *catalog.SubscriptionSpec) {
			s.DeliveryRate, s.MaxEventsPerBatch = &row.rate, &row.batch
		})
		heldDeliveries(t, tn, sub, 0, 1000)
		rate, _ := tn.System.Cache.Snapshot().Rate(sub.ID)
		tn.Exec(t, "INSERT INTO postrider_internal.delivery_rates (key, step) VALUES ($1, $2)", rate.Key, rate.Step)
		release := func() time.Duration {
			t.Helper()
			_, err := tn.System.Releaser.RefillLimited(t.Context(), sub, rate, 0, 1000)
			require.NoError(t, err)
			return testnode.Value[time.Duration](t, tn,
				"SELECT next_at - now() FROM postrider_internal.delivery_rates WHERE key = $1", rate.Key)
		}
		most := delivery.AheadOfTime + time.Duration(rate.Burst+rate.PerRequest)*rate.Step
		require.LessOrEqual(t, release(), most, name)
		tn.Exec(t, "UPDATE postrider_internal.delivery_rates SET next_at = next_at + interval '3 hours' WHERE key = $1",
			rate.Key)
		tn.System = tn.Beside(t, node.Options{Node: "node-" + name}).System // the other one waits for the time that it read
		require.LessOrEqual(t, release(), most, name)
	}
}
