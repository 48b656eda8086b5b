package publish_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/internal/node"
	"postrider/internal/postgres"
	"postrider/internal/testnode"
	"postrider/jobs/publish"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// window makes a topic detect duplicates for so long; 0 ends it.
func setWindow(t *testing.T, tn *testnode.Node, name string, window time.Duration) {
	t.Helper()
	topic, _, err := tn.System.Topics.Put(t.Context(), name,
		catalog.TopicSpec{Kind: catalog.TopicBasic, InputSchema: event.EventGrid, DuplicateWindow: window})
	require.NoError(t, err)
	require.Equal(t, window, topic.DuplicateWindow)
}

// named makes an Event Grid event for each id.
func named(topic string, ids ...string) publish.Publication {
	events := make([]event.Event, len(ids))
	for i, id := range ids {
		body := fmt.Appendf(nil, `{"id":%q,"data":{}}`, id)
		events[i] = event.Event{Schema: event.EventGrid, ID: id, Type: "test", Body: body}
	}
	return testnode.Of(topic, events...)
}

// byREST publishes an event for each id, and returns their system ids.
func byREST(ctx context.Context, s *node.System, topic string, ids ...string) ([]uuid.UUID, error) {
	receipt, err := s.Publisher.Publish(ctx, named(topic, ids...))
	if err != nil {
		return nil, err
	}
	return receipt.SystemIDs, nil
}

// publishUntilAvailable publishes again while the service is unavailable: on a busy machine, a publish of the same
// event can take more than a second.
func publishUntilAvailable(
	ctx context.Context, s *node.System, topic string, ids ...string,
) (systemIDs []uuid.UUID, err error) {
	for range 10 {
		if systemIDs, err = byREST(ctx, s, topic, ids...); !errors.Is(err, postgres.ErrUnavailable) {
			break
		}
	}
	return systemIDs, err
}

// bySQL does the same as byREST in one call of a function.
func bySQL(ctx context.Context, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, topic string, ids ...string,
) (systemIDs []uuid.UUID, err error) {
	events := make([]map[string]string, len(ids))
	for i, id := range ids {
		events[i] = map[string]string{"id": id, "eventType": "test", "subject": ""}
	}
	text, _ := json.Marshal(events)
	err = db.QueryRow(ctx, "SELECT postrider.publish_batch($1, $2)", topic, string(text)).Scan(&systemIDs)
	return systemIDs, err
}

// requireStoredOnce: each event is stored once, its key names it, and the counts agree.
func requireStoredOnce(t *testing.T, tn *testnode.Node, events, duplicates int) {
	t.Helper()
	require.Equal(t, events, eventCount(t, tn))
	require.Equal(t, events,
		tn.Count(t, "SELECT count(*) FROM postrider_internal.event_keys k JOIN postrider_internal.events e "+
			"ON e.id = k.event_uuid AND k.key_hash = postrider_internal.event_key(e.source, e.event_id)"))
	require.Equal(t, events, tn.EventKeys(t, ""))
	require.Equal(t, duplicates,
		tn.Count(t, "SELECT coalesce(sum(count), 0) FROM postrider.delivery_counts WHERE kind = 'duplicate'"))
}

func TestDuplicatesAreStoredOnce(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	setWindow(t, tn, "orders", time.Hour)
	tn.Topic(t, "others")
	tn.Subscribe(t, "orders", "all", nil)
	interfaces := map[string]func(topic string, ids ...string) []uuid.UUID{
		"REST": func(topic string, ids ...string) []uuid.UUID {
			systemIDs, err := byREST(t.Context(), tn.System, topic, ids...)
			require.NoError(t, err)
			return systemIDs
		},
		"SQL": func(topic string, ids ...string) []uuid.UUID {
			systemIDs, err := bySQL(t.Context(), tn.Pool, topic, ids...)
			require.NoError(t, err)
			return systemIDs
		},
	}
	events, duplicates := 0, 0
	for first, publish := range interfaces {
		id := func(n int) string { return fmt.Sprint(first, n) }
		stored := publish("orders", id(1), id(2), id(1))
		require.Equal(t, stored[0], stored[2], "within a request the first one is stored")
		require.NotEqual(t, stored[0], stored[1])
		events, duplicates = events+2, duplicates+1
		for _, again := range interfaces {
			require.Equal(t, stored[:2], again("orders", id(1), id(2)), "all of them")
			mixed := again("orders", id(3+events), id(2), id(4+events))
			require.Equal(t, stored[1], mixed[1], "some of them")
			require.NotContains(t, stored, mixed[0])
			events, duplicates = events+2, duplicates+3
		}
	}
	requireStoredOnce(t, tn, events, duplicates)
	tn.RouteAll(t, tn.System)
	require.Equal(t, events, tn.Rows(t, "deliveries", ""))
	require.Equal(t, events, tn.Count(t, "SELECT sum(count) FROM postrider.delivery_counts WHERE kind = 'published'"))
	for _, publish := range interfaces {
		publish("others", "REST1", "REST1")
	}
	require.Equal(t, events+4, eventCount(t, tn), "another topic's setting")
}

func TestDuplicatesAreFoundBySourceAndID(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	tn.PutTopic(t, "orders",
		catalog.TopicSpec{Kind: catalog.TopicBasic, InputSchema: event.CloudEvents, DuplicateWindow: time.Hour})
	publish := func(source, id string) {
		tn.Send(t, testnode.Of("orders",
			event.Event{Schema: event.CloudEvents, ID: id, Source: source, Type: "test", Body: []byte(`{}`)}))
		tn.Exec(t,
			`SELECT postrider.publish('orders', jsonb_build_object('type', 'test', 'source', $1::text, 'id', $2::text))`,
			source, id)
	}
	publish("a", "1")
	publish("b", "1")
	publish("a", "2")
	publish("a1", "1")
	publish("a", "1é")
	requireStoredOnce(t, tn, 5, 5)
	for range 2 {
		tn.Exec(t, `SELECT postrider.publish('orders', '{"type": "test", "source": "a"}')`)
		tn.Exec(t, `SELECT postrider.publish_data('orders', 'test', '', '{}')`)
	}
	require.Equal(t, 9, eventCount(t, tn), "an id that is made is new")
	require.Equal(t, 5, tn.EventKeys(t, ""))
}

// TestEventKeysAreFoundByTheirIndex: also by a session that has planned for an empty table.
func TestEventKeysAreFoundByTheirIndex(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	setWindow(t, tn, "orders", time.Hour)
	session, err := pgx.Connect(t.Context(), tn.URL)
	require.NoError(t, err)
	defer func() { _ = session.Close(context.Background()) }()
	require.NoError(t, testnode.ErrorOf(session.Exec(t.Context(), "VACUUM ANALYZE postrider_internal.event_keys")))
	seen := func() (scans, lookups int) {
		_, err := session.Exec(t.Context(), "SELECT pg_stat_force_next_flush()")
		require.NoError(t, err)
		require.NoError(t, session.QueryRow(t.Context(),
			"SELECT seq_scan, idx_scan FROM pg_stat_user_tables WHERE relname = 'event_keys'").Scan(&scans, &lookups))
		return scans, lookups
	}
	scans, lookups := seen()
	for i := range 20 {
		require.NoError(t, testnode.ErrorOf(bySQL(t.Context(), session, "orders", fmt.Sprint(i), "0")))
	}
	scansAfter, lookupsAfter := seen()
	require.Equal(t, scans, scansAfter)
	require.GreaterOrEqual(t, lookupsAfter, lookups+80)
}

func TestWindowOfDuplicates(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	setWindow(t, tn, "orders", 2*time.Minute)
	publish := func(ids ...string) {
		_, err := byREST(t.Context(), tn.System, "orders", ids...)
		require.NoError(t, err)
	}
	publish("a", "b")
	require.Equal(t, 2, tn.EventKeys(t, "expires_at BETWEEN now() + interval '1 minute' AND now() + interval '2 minutes'"))
	tn.Exec(t, "UPDATE postrider_internal.event_keys SET expires_at = now() - interval '1 second'")
	publish("a")
	require.Equal(t, 3, eventCount(t, tn), "its window is over")
	_, err := bySQL(t.Context(), tn.Pool, "orders", "a", "b")
	require.NoError(t, err)
	require.Equal(t, 4, eventCount(t, tn))

	tn.Exec(t, "UPDATE postrider_internal.event_keys SET expires_at = now() - interval '1 second' "+
		"WHERE key_hash = postrider_internal.event_key('', 'b')")
	require.NoError(t, tn.System.Maintenance.Clean(t.Context()))
	require.Equal(t, 1, tn.EventKeys(t, ""))

	// A change counts for the next publish on every node, and for what is published from then on.
	other := tn.Beside(t, node.Options{Node: "node-2"}).System
	for i := range 5 {
		id := fmt.Sprint(i)
		setWindow(t, tn, "orders", 0)
		for range 2 {
			_, err = byREST(t.Context(), other, "orders", id)
			require.NoError(t, err)
		}
		require.Equal(t, 2, tn.Rows(t, "events", "event_id = $1", id))
		setWindow(t, tn, "orders", time.Hour)
		for range 2 {
			require.NoError(t, testnode.ErrorOf(byREST(t.Context(), other, "orders", id)))
		}
		require.Equal(t, 3, tn.Rows(t, "events", "event_id = $1", id))
	}
	require.Equal(t, 10, tn.Rows(t, "audit",
		`action = 'topic_replaced' AND details = '{"settings": ["duplicateDetectionWindowInMinutes"]}'`))
}

// TestRandomDuplicates: batches by REST, by SQL and from two nodes, with the same events in any order, while the
// catalog changes. Each event is stored once, and every response has its id.
func TestRandomDuplicates(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	setWindow(t, tn, "orders", time.Hour)
	other := tn.Beside(t, node.Options{Node: "node-2"}).System
	var mu sync.Mutex
	responses := map[string]uuid.UUID{}
	published := 0
	agree := func(ids []string, systemIDs []uuid.UUID) {
		mu.Lock()
		defer mu.Unlock()
		published += len(ids)
		for i, id := range ids {
			if known, there := responses[id]; there && known != systemIDs[i] {
				t.Errorf("event %s is %s and %s", id, known, systemIDs[i])
			}
			responses[id] = systemIDs[i]
		}
	}
	var group sync.WaitGroup
	for worker := range 9 {
		random := rand.New(rand.NewPCG(uint64(worker), 1))
		group.Go(func() {
			for range 20 {
				ids := make([]string, 1+random.IntN(20))
				for i := range ids {
					ids[i] = fmt.Sprint(random.IntN(600))
				}
				var systemIDs []uuid.UUID
				var err error
				switch worker % 3 {
				case 0:
					systemIDs, err = bySQL(t.Context(), tn.Pool, "orders", ids...)
				case 1:
					systemIDs, err = publishUntilAvailable(t.Context(), tn.System, "orders", ids...)
				default:
					systemIDs, err = publishUntilAvailable(t.Context(), other, "orders", ids...)
				}
				if assert.NoError(t, err) {
					agree(ids, systemIDs)
				}
			}
		})
	}
	group.Go(func() {
		for i := range 10 {
			tn.Subscribe(t, "orders", fmt.Sprint("sub-", i), nil)
		}
	})
	group.Wait()
	requireStoredOnce(t, tn, len(responses), published-len(responses))
}

// TestOpenTransactionHoldsItsEventsAlone: a transaction that stays open keeps the publishers of its own events waiting,
// and no other request.
func TestOpenTransactionHoldsItsEventsAlone(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(pgx.Tx) error{
		"committed":   func(tx pgx.Tx) error { return tx.Commit(context.Background()) },
		"rolled back": func(tx pgx.Tx) error { return tx.Rollback(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tn := testnode.Unchecked(t)
			setWindow(t, tn, "orders", time.Hour)
			tx := tn.Begin(t)
			first, err := bySQL(t.Context(), tx, "orders", "held-0", "held-1", "held-2")
			require.NoError(t, err)

			const others = 200
			var group, holding sync.WaitGroup
			for i := range 3 {
				group.Go(func() {
					_, err := byREST(t.Context(), tn.System, "orders", fmt.Sprintf("new-%d", i), fmt.Sprintf("held-%d", i))
					if err == nil {
						t.Error("published although it is unknown whether the first one was")
						return
					}
					require.ErrorIs(t, err, postgres.ErrUnavailable)
				})
			}
			for i := range others {
				group.Go(func() {
					_, err := byREST(t.Context(), tn.System, "orders", fmt.Sprint(i))
					assert.NoError(t, err)
				})
			}
			waits := make(chan []uuid.UUID, 1)
			user, err := pgx.Connect(t.Context(), tn.URL) // whose sessions wait for as long as it takes
			require.NoError(t, err)
			defer func() { _ = user.Close(context.Background()) }()
			holding.Go(func() {
				ids, err := bySQL(t.Context(), user, "orders", "held-1", "later")
				assert.NoError(t, err)
				waits <- ids
			})
			group.Wait() // others do not wait
			require.Equal(t, others, eventCount(t, tn))
			require.Empty(t, waits, "a repeat by SQL waits for the end")

			require.NoError(t, end(tx))
			holding.Wait()
			second := <-waits
			again, err := byREST(t.Context(), tn.System, "orders", "held-1", "later", "new-1")
			require.NoError(t, err)
			require.Equal(t, second, again[:2])
			if name == "committed" {
				require.Equal(t, first[1], second[0])
				requireStoredOnce(t, tn, others+5, 3)
			} else {
				require.NotEqual(t, first[1], second[0])
				requireStoredOnce(t, tn, others+3, 2)
			}
		})
	}
}

// TestKeyOfARepeatedEvent: what has a key of its own and events that are known keeps both, or neither.
func TestKeyOfARepeatedEvent(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	setWindow(t, tn, "orders", time.Hour)
	first, err := byREST(t.Context(), tn.System, "orders", "a")
	require.NoError(t, err)
	keyedBoth := func(key string, ids ...string) *publish.Receipt {
		p := named("orders", ids...)
		p.IdempotencyKey = key
		receipt := tn.Send(t, p)
		return receipt
	}
	require.True(t, keyedBoth("k", "a").Repeated)
	some := keyedBoth("l", "a", "b", "b")
	require.Equal(t, []bool{true, false, true}, some.Duplicates)
	require.Positive(t, some.Commit)
	require.False(t, some.Repeated)
	require.True(t, keyedBoth("l", "c").Repeated, "the key was taken")
	requireStoredOnce(t, tn, 2, 3)
	for _, row := range []struct{ key, id string }{{"k", "x"}, {"m", "a"}, {"m", "y"}} {
		var id uuid.UUID
		const publish = "SELECT postrider.publish('orders', jsonb_build_object('eventType', 'A', 'subject', '', 'id', " +
			"$1::text), idempotency_key => $2)"
		require.NoError(t, tn.Pool.QueryRow(t.Context(), publish, row.id, row.key).Scan(&id))
		require.Equal(t, first[0], id,
			"a repeated key returns the same id, and so does a key that is new with an event that is not")
	}
	requireStoredOnce(t, tn, 2, 4)
}

// TestPoisonLeavesNoEventKey: an event that PostgreSQL rejects is not published; the others of its group are.
func TestPoisonLeavesNoEventKey(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	setWindow(t, tn, "orders", time.Hour)
	tn.Exec(t, "ALTER TABLE postrider_internal.events ADD CONSTRAINT poison CHECK (event_id <> 'bad')")
	var group sync.WaitGroup
	for i := range 20 {
		group.Go(func() {
			_, err := byREST(t.Context(), tn.System, "orders", fmt.Sprint(i))
			assert.NoError(t, err)
		})
	}
	require.ErrorIs(t, testnode.ErrorOf(byREST(t.Context(), tn.System, "orders", "good", "bad")), postgres.ErrPoison)
	group.Wait()
	requireStoredOnce(t, tn, 20, 0)
}

// TestDuplicatesOfLargeRequests: as many events as a request may have, by REST and SQL, and with a route.
func TestDuplicatesOfLargeRequests(t *testing.T) {
	t.Parallel()
	tn := routed(t, 1)
	setWindow(t, tn, "orders", time.Hour)
	ids := make([]string, 5000)
	for i := range ids {
		ids[i] = fmt.Sprint(i)
	}
	stored, err := byREST(t.Context(), tn.System, "orders", ids...)
	require.NoError(t, err)
	again, err := bySQL(t.Context(), tn.Pool, "orders", ids...)
	require.NoError(t, err)
	require.Equal(t, stored, again)
	for i := range 2500 {
		ids[i*2] = "new-" + ids[i*2]
	}
	slices.Reverse(ids)
	stored, err = bySQL(t.Context(), tn.Pool, "orders", ids...)
	require.NoError(t, err)
	require.Equal(t, again[1], stored[4998])
	again, err = byREST(t.Context(), tn.System, "orders", ids...)
	require.NoError(t, err)
	require.Equal(t, stored, again)
	requireStoredOnce(t, tn, 7500, 12500)
	tn.RouteAll(t, tn.System)
	requireRoutedOnce(t, tn)
}
