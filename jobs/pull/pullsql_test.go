package pull_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/internal/postgres"
	"postrider/internal/query"
	"postrider/internal/testnode"
)

// consumer is a session of a program that may do nothing but receive.
type consumer struct{ *pgx.Conn }

func consumerOf(t *testing.T, tn *testnode.Node) consumer {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), tn.URL)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	_, err = conn.Exec(t.Context(), "SET ROLE postrider_consumer; SET application_name = 'worker'")
	require.NoError(t, err)
	return consumer{conn}
}

// sqlEvent is a row of postrider.receive.
type sqlEvent struct {
	LockToken     string
	DeliveryCount int
	Event         map[string]any
	EventText     string
	LockedUntil   time.Time
	EventID       string
	DeliveryID    int64
}

func (c consumer) receive(t *testing.T, most int) []sqlEvent {
	t.Helper()
	rows, _ := c.Query(t.Context(), "SELECT * FROM postrider.receive('orders', 'pull', $1)", most)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[sqlEvent])
	require.NoError(t, err)
	return list
}

func (c consumer) exec(t *testing.T, statement string, args ...any) {
	t.Helper()
	require.NoError(t, testnode.ErrorOf(c.Exec(t.Context(), statement, args...)))
}

// settles calls one of the functions that take tokens, and returns the lost ones.
func (c consumer) settles(t *testing.T, call string, args ...any) (lost []string) {
	t.Helper()
	require.NoError(t, c.QueryRow(t.Context(), "SELECT postrider."+call, args...).Scan(&lost))
	return lost
}

func tokensOf(received ...[]sqlEvent) (tokens []string) {
	for _, list := range received {
		for i := range list {
			tokens = append(tokens, list[i].LockToken)
		}
	}
	return tokens
}

// Processing and acknowledging commit together; what is rolled back never happened.
func TestReceiveInSQL(t *testing.T) {
	t.Parallel()
	tn, _ := pulled(t, 10, 3)
	tn.Exec(t, "CREATE TABLE public.ledger (event_id text); GRANT ALL ON public.ledger TO postrider_consumer")
	c := consumerOf(t, tn)

	c.exec(t, "BEGIN")
	before := tn.System.Clock.Now()
	received := c.receive(t, 2)
	require.Len(t, received, 2)
	require.Equal(t, "e-0", received[0].EventID)
	require.Equal(t, `{"specversion":"1.0","id":"e-0", "source":"/s","type":"test","x":1}`, received[0].EventText)
	require.Equal(t, "e-0", received[0].Event["id"])
	require.WithinRange(t, received[0].LockedUntil.Add(-time.Minute), before.Add(-time.Second), tn.System.Clock.Now())
	require.Empty(t, c.settles(t, "acknowledge($1)", tokensOf(received)))
	c.exec(t, "ROLLBACK")
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
	require.Zero(t, tn.Rows(t, "delivery_attempts", ""))

	c.exec(t, `WITH received AS (SELECT * FROM postrider.receive('orders', 'pull', 10)),
		stored AS (INSERT INTO public.ledger SELECT event_id FROM received)
		SELECT postrider.acknowledge(array_agg(lock_token)) FROM received`)
	require.Equal(t, 3, tn.Count(t, "SELECT count(DISTINCT event_id) FROM public.ledger"))
	require.Equal(t, 3, tn.Rows(t, "deliveries", "state = 'delivered' AND attempts = 1"))
	require.Equal(t, 3, tn.Rows(t, "delivery_attempts", "outcome = 'Acknowledged'"))
	require.Zero(t, tn.Jobs(t, "kind = 'lock'"))
	require.Empty(t, c.receive(t, 10))
	require.Empty(t, c.settles(t, "acknowledge(NULL)"))
	require.Empty(t, c.settles(t, "acknowledge('{}')"))
}

func TestSettleInSQL(t *testing.T) {
	t.Parallel()
	tn, _ := pulled(t, 2, 4)
	c := consumerOf(t, tn)
	acknowledged, released, rejected, renewed := c.receive(t, 1), c.receive(t, 1), c.receive(t, 1), c.receive(t, 1)
	require.Equal(t, 4, tn.Rows(t, "locks", "topic = 'orders' AND subscription = 'pull' AND consumer = session_user "+
		"AND delivery_count = 1 AND locked_until > received_at + interval '59 s' AND event_id LIKE 'e-_'"))
	require.Empty(t, c.settles(t, "acknowledge($1)", tokensOf(acknowledged)))
	require.Empty(t, c.settles(t, "release_locks($1, 3600)", tokensOf(released)))
	require.Empty(t, c.settles(t, "reject($1)", tokensOf(rejected)))
	require.Empty(t, c.settles(t, "renew($1, 300)", tokensOf(renewed)))
	require.Equal(t, 1, tn.Rows(t, "locks", "locked_until > now() + interval '250 s'"))
	require.Equal(t, 1, tn.Rows(t, "dead_letters", "reason = 'RejectedByConsumer'"))
	require.Equal(t, 1, tn.Rows(t, "deliveries",
		"waits_for = 'next_attempt_at' AND next_attempt_at > now() + interval '50 minutes'"))

	// The other locks have ended. strict keeps those of the same call.
	all := tokensOf(acknowledged, released, rejected, renewed)
	_, err := c.Exec(t.Context(), "SELECT postrider.acknowledge($1)", all)
	requireRaised(t, err, "55000", fmt.Sprintf("3 of 4 lock tokens are lost, first %q", all[0]), "tokens")
	_, err = c.Exec(t.Context(), "SELECT postrider.acknowledge($1)", []string{"not base64", all[3]})
	requireRaised(t, err, "22023", `"not base64" is not a lock token`, "tokens")
	require.Equal(t, 1, tn.Rows(t, "locks", ""))
	require.Equal(t, []string{"x", all[0], all[1], all[2]},
		c.settles(t, "acknowledge($1, strict => false)", append([]string{"x"}, all...)))
	require.Zero(t, tn.Rows(t, "locks", ""))
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
}

func requireRaised(t *testing.T, err error, code, message, column string) {
	t.Helper()
	var pgErr *pgconn.PgError
	require.ErrorAs(t, err, &pgErr)
	require.Equal(t, []string{code, message, column}, []string{pgErr.Code, pgErr.Message, pgErr.ColumnName})
}

func TestConsumersGetClearErrorsInSQL(t *testing.T) {
	t.Parallel()
	tn, _ := pulled(t, 10, 0)
	tn.Subscribe(t, "orders", "push", func(s *catalog.SubscriptionSpec) { s.EventDeliverySchema = event.CloudEvents })
	c := consumerOf(t, tn)
	for call, want := range map[string][3]string{
		"receive('nothing', 'pull')": {"P0002", `topic "nothing" has no event subscription "pull"`, "subscription"},
		"receive('orders', 'push')": {
			"55000", `event subscription "push" of topic "orders" has delivery mode Push`, "subscription",
		},
		"receive('orders', 'pull', 0)":     {"22023", "max_events must be 1 to 1000, is 0", "max_events"},
		"receive('orders', 'pull', 1001)":  {"22023", "max_events must be 1 to 1000, is 1001", "max_events"},
		"receive('orders', 'pull', 1, 59)": {"22023", "lock_seconds must be 60 to 300, is 59", "lock_seconds"},
		"renew('{}', 301)":                 {"22023", "lock_seconds must be 60 to 300, is 301", "lock_seconds"},
		"release_locks('{}', -1)":          {"22023", "delay_seconds must be 0 to 3600, is -1", "delay_seconds"},
	} {
		_, err := c.Exec(t.Context(), "SELECT postrider."+call)
		requireRaised(t, err, want[0], want[1], want[2])
	}
	publishCloudEvents(t, tn, "e", 1)
	tn.Exec(t, "SELECT postrider.pause('orders', 'pull')")
	require.Empty(t, c.receive(t, 1), "paused")
}

// An event that jsonb cannot hold is received as text.
func TestReceiveUnstorableJSONInSQL(t *testing.T) {
	t.Parallel()
	tn, _ := pulled(t, 10, 0)
	body := `{"specversion":"1.0","id":"1","source":"/s","type":"test","data":"\u0000"}`
	tn.Send(t, testnode.Of("orders",
		event.Event{Schema: event.CloudEvents, ID: "1", Type: "test", Source: "/s", Body: []byte(body)}))
	received := consumerOf(t, tn).receive(t, 1)
	require.Nil(t, received[0].Event)
	require.Equal(t, body, received[0].EventText)
}

// A dead letter of another schema that is redelivered to a queue is received as a CloudEvent.
func TestReceiveConvertedEventsInSQL(t *testing.T) {
	t.Parallel()
	tn, _ := pulled(t, 10, 0)
	tn.Topic(t, "grid")
	tn.Subscribe(t, "grid", "push", nil)
	tn.Publish(t, "grid", "g", 2)
	tn.Exec(t, "UPDATE postrider_internal.events SET source = '/of/another/topic' WHERE event_id = 'g-1'") // as of a relay
	tn.Exec(t, "SELECT postrider.dead_letter_now(delivery_id) FROM postrider.deliveries")
	tn.Exec(t, "SELECT postrider.redeliver(dead_letter_id, 'pull', 'orders') FROM postrider.dead_letters")
	tn.Exec(t, "UPDATE postrider_internal.deliveries SET hold = NULL, pulled = true")
	got := map[string]map[string]any{}
	for _, e := range consumerOf(t, tn).receive(t, 2) {
		got[e.EventID] = e.Event
	}
	require.Equal(t, map[string]any{
		"specversion": "1.0", "id": "g-0", "source": "/topics/orders", "type": "test", "subject": "subject/g-0",
		"datacontenttype": "application/json", "data": map[string]any{},
	}, got["g-0"])
	require.Equal(t, "/of/another/topic", got["g-1"]["source"])
}

// While a consumer's transaction is open, nothing else waits for it: neither nodes nor other consumers. What an
// operator does to its deliveries is rejected within 2 s.
func TestOpenTransactionsOfConsumersDelayNothing(t *testing.T) {
	t.Parallel()
	tn, sub := pulled(t, 10, 4)
	tn.Exec(t, "UPDATE postrider_internal.deliveries SET time_to_live_since = now() - interval '2 min'") // for the sweeper
	settling, receiving := consumerOf(t, tn), consumerOf(t, tn)
	received := settling.receive(t, 1)
	tn.Exec(t, "UPDATE postrider_internal.river_job SET scheduled_at = now() - interval '1 s'") // its time has ended
	settling.exec(t, "BEGIN")
	require.Empty(t, settling.settles(t, "acknowledge($1)", tokensOf(received)))
	receiving.exec(t, "BEGIN")
	locked := receiving.receive(t, 1)

	require.NoError(t, tn.System.Receiver.ExpireLocks(t.Context()))
	require.NoError(t, tn.System.Receiver.Tend(t.Context()))
	tn.MergeRollups(t)
	_, err := tn.System.Maintenance.Sweep(t.Context())
	require.NoError(t, err)
	require.Zero(t, tn.System.Maintenance.Repairs())
	publishCloudEvents(t, tn, "later", 1)
	require.Len(t, receive(t, tn, sub, 10), 3, "other consumers receive the rest")

	ctx := t.Context()
	system := tn.Text(t, "SELECT system_id::text FROM postrider.deliveries WHERE delivery_id = $1", locked[0].DeliveryID)
	for what, do := range map[string]func() error{
		"cancel a received one": func() error { return tn.System.Operator.Cancel(ctx, locked[0].DeliveryID) },
		"cancel a settled one":  func() error { return tn.System.Operator.Cancel(ctx, received[0].DeliveryID) },
		"retry":                 func() error { return tn.System.Operator.RetryNow(ctx, locked[0].DeliveryID) },
		"erase": func() error {
			_, err := tn.Pool.Exec(ctx, "SELECT postrider.erase_event($1)", system)
			return postgres.AsFunctionError(err)
		},
	} {
		err := do() // the transaction stays open
		require.ErrorIs(t, err, postgres.ErrConflict, what)
		require.Regexp(t, `^delivery \d+ is locked by process \d+ \(worker, role .+\)$`, err.Error(), what)
	}
	require.NoError(t, tn.System.Subscriptions.Delete(ctx, "orders", "pull"))
	require.Equal(t, 2, tn.Rows(t, "deliveries", "state = 'pending'"))

	settling.exec(t, "COMMIT")
	receiving.exec(t, "ROLLBACK")
	require.NoError(t, tn.System.Subscriptions.Drain(ctx))
	require.Equal(t, 1, tn.Rows(t, "deliveries", "state = 'delivered'"))
	require.Zero(t, tn.Rows(t, "deliveries", "state = 'pending'"))
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
}

// An operator cancels a delivery that a consumer has locked, and retries one that was released with a delay.
func TestOperateOnPulledDeliveries(t *testing.T) {
	t.Parallel()
	tn, _ := pulled(t, 10, 2)
	c := consumerOf(t, tn)
	locked, released := c.receive(t, 1), c.receive(t, 1)
	err := tn.System.Operator.RetryNow(t.Context(), locked[0].DeliveryID)
	require.ErrorContains(t, err, "is in progress")
	require.NoError(t, tn.System.Operator.Cancel(t.Context(), locked[0].DeliveryID))
	require.Equal(t, tokensOf(locked), c.settles(t, "acknowledge($1, false)", tokensOf(locked)))

	require.Empty(t, c.settles(t, "release_locks($1, 600)", tokensOf(released)))
	require.Empty(t, c.receive(t, 1))
	require.NoError(t, tn.System.Operator.RetryNow(t.Context(), released[0].DeliveryID))
	require.Len(t, c.receive(t, 1), 1)
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
}

// Exported dead letters say in Event Grid's sentences what consumers did.
func TestDeadLettersOfConsumers(t *testing.T) {
	t.Parallel()
	tn, _ := pulled(t, 1, 3)
	c := consumerOf(t, tn)
	received := c.receive(t, 3)
	require.Empty(t, c.settles(t, "reject($1)", tokensOf(received[:1])))
	require.Empty(t, c.settles(t, "release_locks($1)", tokensOf(received[1:2])))
	endLocks(t, tn)
	sentences := map[string]string{}
	require.NoError(t, query.WalkDeadLetters(t.Context(), tn.Pool, "", nil, func(l *query.StoredDeadLetter) error {
		d := l.EventGrid(event.DeadLetterNested)
		sentences[l.EventID] = d.Reason + " " + d.Outcome
		require.Equal(t, d.Outcome, *l.LastError)
		return nil
	}))
	const limit = "Maximum delivery attempts was exceeded. "
	require.Equal(t, map[string]string{
		"e-0": "Event was rejected by the consumer. Event was rejected.", "e-1": limit + "Event was released.",
		"e-2": limit + "Event was not acknowledged nor rejected.",
	}, sentences)
}

// The end of a pause waits for a consumer's open transaction, and delays neither publishes nor the operator.
func TestResumeDuringOpenTransactionOfConsumer(t *testing.T) {
	t.Parallel()
	tn, _ := pulled(t, 10, 2)
	c := consumerOf(t, tn)
	c.exec(t, "BEGIN")
	require.Len(t, c.receive(t, 1), 1)
	holds, stop := tn.System.Holds, true
	require.NoError(t, testnode.ErrorOf(holds.Pause(t.Context(), "orders", "pull", &stop)))
	resumed, err := holds.Resume(t.Context(), "orders", "pull")
	require.NoError(t, err)
	require.True(t, resumed.Hold.Resuming)
	require.NoError(t, holds.MoveTimeToLive(t.Context(), resumed.ID))
	publishCloudEvents(t, tn, "meanwhile", 1)
	c.exec(t, "COMMIT")
	require.NoError(t, holds.MoveTimeToLive(t.Context(), resumed.ID))
	require.Zero(t, tn.Rows(t, "event_subscriptions", "hold IS NOT NULL"))
}
