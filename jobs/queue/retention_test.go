package queue_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/access"
	"postrider/internal/node"
	"postrider/internal/query"
	"postrider/internal/testnode"
	"postrider/jobs"
)

func TestRetention(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	day5, day3, day2 := tn.Day(t, 5), tn.Day(t, 3), tn.Day(t, 2)
	all := day5 + "," + day3 + "," + day2
	require.NoError(t, tn.System.Maintenance.Retain(t.Context(), query.Retention{}))
	require.Equal(t, all, tn.KeptDays(t, "events"), "zero keeps everything")
	require.NoError(t, tn.System.Maintenance.Retain(t.Context(), query.Retention{DeliveredDays: 3, AttemptsDays: 2}))
	require.Equal(t, day3+","+day2, tn.KeptDays(t, "events"), "three whole days")
	require.Equal(t, day3+","+day2, tn.KeptDays(t, "delivery_history"))
	require.Equal(t, day2, tn.KeptDays(t, "delivery_attempts"))
}

// TestRetentionKeepsPendingDeliveries: a day with unfinished deliveries, or with routes that have not created them yet,
// stays however old it is.
func TestRetentionKeepsPendingDeliveries(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	day := tn.Day(t, 9)
	tn.Topic(t, "orders")
	tn.Exec(t, `SELECT postrider.publish('orders', '{"eventType": "A", "subject": ""}')`)
	tn.Subscribe(t, "orders", "all", nil)
	tn.MoveEvents(t, day)
	one := query.Retention{DeliveredDays: 1}
	require.NoError(t, tn.System.Maintenance.Retain(t.Context(), one))
	require.Equal(t, day, tn.KeptDays(t, "events"), "a publish by SQL")
	_, _, err := tn.System.Publisher.CollectPublishes(t.Context())
	require.NoError(t, err)
	require.NoError(t, tn.System.Maintenance.Retain(t.Context(), one))
	require.Equal(t, day, tn.KeptDays(t, "events"), "a route")
	tn.Exec(t, "DELETE FROM postrider_internal.routes")
	tn.Publish(t, "orders", "e", 1)
	tn.MoveEvents(t, day)
	require.NoError(t, tn.System.Maintenance.Retain(t.Context(), one))
	require.Equal(t, day, tn.KeptDays(t, "events"), "a delivery")
	require.Empty(t, tn.KeptDays(t, "delivery_history"))
	tn.Exec(t, "DELETE FROM postrider_internal.deliveries")
	require.NoError(t, tn.System.Maintenance.Retain(t.Context(), one))
	require.Empty(t, tn.KeptDays(t, "events"))
}

// A removal that a node did not complete is completed, or undone if events of that day are pending again.
func TestRetentionContinuesAfterANodeStopped(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	detached, again, pending := tn.Day(t, 9), tn.Day(t, 8), tn.Day(t, 7)
	for _, day := range []string{detached, again} {
		tn.Exec(t, fmt.Sprintf("ALTER TABLE postrider_internal.events DETACH PARTITION postrider_internal.events_%s", day))
	}
	tn.Topic(t, "orders")
	tn.Subscribe(t, "orders", "all", nil)
	tn.Publish(t, "orders", "e", 1)
	tn.Exec(t, fmt.Sprintf("UPDATE postrider_internal.deliveries SET event_day = '%s'", again))

	// A transaction that has read the table delays the detaching until the detaching node's timeout is
	// over.
	end := tn.OpenTransaction(t, "SELECT count(*) FROM postrider_internal.events")
	short, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	require.Error(t, testnode.ErrorOf(tn.Pool.Exec(short, fmt.Sprintf("ALTER TABLE postrider_internal.events DETACH "+
		"PARTITION postrider_internal.events_%s CONCURRENTLY", pending))))
	require.Equal(t, detached+" detached,"+again+" detached,"+pending+" pending", tn.KeptDays(t, "events"))
	tn.Publish(t, "orders", "beside", 1)
	end(true)

	require.NoError(t, tn.System.Maintenance.Retain(t.Context(), query.Retention{DeliveredDays: 1}))
	require.Equal(t, again, tn.KeptDays(t, "events"))
}

// TestRetentionOfADayThatBecomesPending: a delivery that is created between the check of a day and its detach brings
// the day back.
func TestRetentionOfADayThatBecomesPending(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	day := tn.Day(t, 9)
	tn.Topic(t, "orders")
	tn.Subscribe(t, "orders", "all", nil)
	tn.Publish(t, "orders", "e", 1)
	other := tn.Beside(t, node.Options{Node: "node-2", Failpoint: func(point string) {
		if point == jobs.PointDetach && tn.KeptDays(t, "delivery_history") == "" { // the events come last
			tn.Exec(t, fmt.Sprintf("UPDATE postrider_internal.deliveries SET event_day = '%s'", day))
		}
	}}).System
	require.NoError(t, other.Maintenance.Retain(t.Context(), query.Retention{DeliveredDays: 1}))
	require.Equal(t, day, tn.KeptDays(t, "events"), "attached again")
}

// TestRetentionSeesOpenTransactions: what a transaction published on a day can become pending when it commits, however
// old the day is by then. One that began after the day has its locks for another reason.
func TestRetentionSeesOpenTransactions(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	today := testnode.Value[time.Time](t, tn, "SELECT (now() AT TIME ZONE 'UTC')::date")
	table := "events_" + today.Format("20060102")
	written := func(day time.Time) bool {
		return tn.Count(t, "SELECT postrider_internal.has_writer($1, $2)::int", table, day) == 1
	}
	require.False(t, written(today))
	end := tn.OpenTransaction(t, `SELECT postrider.publish('orders', '{"eventType": "A", "subject": ""}')`)
	require.True(t, written(today))
	require.False(t, written(today.AddDate(0, 0, -1)))
	end(true)
	require.False(t, written(today))
}

// TestRetentionWhilePublishing: publishes and records go on, and two nodes remove days at the same time.
func TestRetentionWhilePublishing(t *testing.T) {
	t.Parallel()
	tn, _ := testnode.Orders(t)
	other := tn.Beside(t, node.Options{Node: "node-2"}).System
	for ago := range 6 {
		tn.Day(t, ago+2)
	}
	done := make(chan struct{})
	var publishers, keepers sync.WaitGroup
	for p := range 4 {
		publishers.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-done:
					return
				default:
					tn.Publish(t, "orders", fmt.Sprintf("%d-%d", p, n), 1)
				}
			}
		})
	}
	for _, s := range []*node.System{tn.System, other} {
		keepers.Go(func() {
			require.NoError(t, s.Maintenance.Retain(t.Context(), query.Retention{DeliveredDays: 1, AttemptsDays: 1}))
		})
	}
	keepers.Wait()
	close(done)
	publishers.Wait()
	require.Empty(t, tn.KeptDays(t, "events")+tn.KeptDays(t, "delivery_history")+tn.KeptDays(t, "delivery_attempts"))
}

func TestRetentionOfRows(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	const old, young = "now() - interval '5 days'", "now()"
	for i, when := range []string{old, young} {
		tn.Exec(t,
			fmt.Sprintf(`INSERT INTO postrider_internal.batches (id, subscription_id, state, members, bytes, finished_at)
				VALUES (%d, 1, 'delivered', 1, 1, %s)`, i+1, when))
		tn.Exec(t,
			fmt.Sprintf(`INSERT INTO postrider_internal.left_members (batch_id, delivery_id, left_at, left_after, left_reason)
				VALUES (%d, 1, %s, 1, 'OwnTime')`, i+1, when))
		tn.Exec(t,
			fmt.Sprintf(`INSERT INTO postrider_internal.rollups (minute, topic_id, kind, count) VALUES (%s, 1, 'published', 1)`,
				when))
		tn.Exec(t, "INSERT INTO postrider_internal.audit (at, actor, action) SELECT "+when+
			", 'anna', 'topic_created' FROM generate_series(1, 1500)")
		tn.Exec(t, fmt.Sprintf(`INSERT INTO postrider_internal.dead_letters (id, dead_lettered_at, delivery_id,
			    subscription_id, topic_id, topic, subscription, endpoint_base_url, reason, attempts,
			    time_to_live_since, published_at,
			event_uuid, event_id, event_type, subject, source, data_version, schema, retry_policy, body)
			SELECT gen_random_uuid(), %s, 1, 1, 1, '', '', '', '', 1, now(), now(), gen_random_uuid(), '', '', '', '', '', '',
			       '', '' FROM generate_series(1, 1500)`, when))
	}
	tn.Exec(t, "INSERT INTO postrider_internal.batches (id, subscription_id, state, members, bytes, created_at) "+
		"VALUES (3, 1, 'pending', 1, 1, "+old+")")
	counts := func() string {
		return tn.Text(t,
			`SELECT format('%s %s %s %s', (SELECT string_agg(id::text, ',' ORDER BY id) FROM postrider_internal.batches),
			    (SELECT string_agg(batch_id::text, ',' ORDER BY 1) FROM postrider_internal.left_members),
			(SELECT count(*) FROM postrider_internal.dead_letters), (SELECT count(*) FROM postrider_internal.rollups))`)
	}
	require.NoError(t,
		tn.System.Maintenance.Retain(t.Context(), query.Retention{DeliveredDays: 30, AttemptsDays: 30, CountsDays: 400}))
	require.Equal(t, "1,2,3 1,2 3000 2", counts())
	require.NoError(t, tn.System.Maintenance.Retain(t.Context(), query.Retention{DeliveredDays: 3, CountsDays: 3}))
	require.Equal(t, "2,3 2 3000 1", counts())
	require.NoError(t, tn.System.Maintenance.Retain(t.Context(), query.Retention{DeadLettersDays: 3}))
	require.Equal(t, "2,3 2 1500 1", counts())
	audited := "SELECT count(*) FROM postrider.audit"
	require.Equal(t, 3000, tn.Count(t, audited))
	require.NoError(t, tn.System.Maintenance.Retain(t.Context(), query.Retention{AuditDays: 3}))
	require.Equal(t, 1500, tn.Count(t, audited))
	require.Equal(t, "2,3 2 1500 1", counts())
}

// An API key that works no more is forgotten when its time is over; the audit is not, and its name is free again.
func TestRetentionOfKeys(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	users := tn.System.Access
	const old = "now() - interval '5 days'"
	for name, ended := range map[string]string{
		"works": "expires_at = now() + interval '1 day'", "for-ever": "created_at = " + old, "revoked": "revoked_at = " + old,
		"just-revoked": "revoked_at = now()",
		"expired":      "expires_at = " + old, "just-expired": "expires_at = now()",
		"expired-then-revoked": "revoked_at = now(), expires_at = " + old,
	} {
		_, _, err := users.CreateAPIKey(t.Context(), access.APIKeySpec{Name: name, Scope: access.ScopeRead})
		require.NoError(t, err)
		tn.Exec(t, "UPDATE postrider_internal.api_keys SET "+ended+" WHERE name = $1", name)
	}
	kept := func(days int) string {
		require.NoError(t, tn.System.Maintenance.Retain(t.Context(), query.Retention{KeysDays: days}))
		return tn.Text(t, "SELECT string_agg(name, ' ' ORDER BY name) FROM postrider.api_keys")
	}
	const all = "expired expired-then-revoked for-ever just-expired just-revoked revoked works"
	require.Equal(t, all, kept(0))
	require.Equal(t, all, kept(30))
	require.Equal(t, "for-ever just-expired just-revoked works", kept(3))
	require.Equal(t, 7, tn.Rows(t, "audit", "action = 'api_key_created'"))
	_, _, err := users.CreateAPIKey(t.Context(), access.APIKeySpec{Name: "revoked", Scope: access.ScopeRead})
	require.NoError(t, err)
}
