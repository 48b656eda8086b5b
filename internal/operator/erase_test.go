package operator_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"postrider/internal/access"
	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/internal/postgres"
	"postrider/internal/query"
	"postrider/internal/testnode"
	"postrider/jobs/export"
	"postrider/jobs/queue"
	"postrider/policy"
)

// secretOf is a text that only the body of an event holds; its endpoint repeats it.
const secretOf = "anna@example.com"

// personal publishes an event about a person to each of the event subscriptions there are.
func personal(t *testing.T, tn *testnode.Node, id, subject string) uuid.UUID {
	t.Helper()
	body := fmt.Appendf(nil, `{"id":%q,"subject":%q,"eventType":"test","data":{"mail":%q}}`, id, subject, secretOf)
	return tn.Send(t, testnode.Of("orders",
		event.Event{Schema: event.EventGrid, ID: id, Type: "test", Subject: subject, Body: body})).SystemIDs[0]
}

// attempted records the deliveries' attempts, by what becomes of each event subscription's; what is not named is left
// running.
func attempted(t *testing.T, tn *testnode.Node, verdicts map[int64]policy.Verdict) {
	t.Helper()
	d, j := tn.Fetch(t, "node-1")
	for i := range d {
		sub := int64(tn.Count(t, "SELECT subscription_id FROM postrider_internal.deliveries WHERE id = $1", d[i]))
		verdict, ends := verdicts[sub]
		if !ends {
			continue
		}
		r := testnode.Result(d[i], j[i],
			&catalog.Subscription{ID: sub, SubscriptionSpec: catalog.SubscriptionSpec{
				RetryPolicy: catalog.RetryPolicySpec{Policy: policy.DefaultName},
			}}, verdict)
		r.Error, r.ResponseHeaders, r.ResponseExcerpt = "malformed: "+secretOf, []byte("X-Echo: "+secretOf),
			[]byte("echo "+secretOf)
		tn.Record(t, r)
	}
}

// personalDeadLetter publishes an event about anna, whose delivery is dead-lettered.
func personalDeadLetter(t *testing.T, tn *testnode.Node, sub *catalog.Subscription) uuid.UUID {
	t.Helper()
	id := personal(t, tn, "e", "people/anna")
	attempted(t, tn, map[int64]policy.Verdict{sub.ID: {Action: policy.DeadLetter, Reason: policy.ReasonClientError}})
	return id
}

// personalEvents are a dead letter of anna that outlives its event, an event of hers and one of bert.
func personalEvents(t *testing.T) *testnode.Node {
	t.Helper()
	tn, sub := testnode.Orders(t)
	personalDeadLetter(t, tn, sub)
	tn.Exec(t, "DELETE FROM postrider_internal.events")
	personal(t, tn, "b", "people/anna")
	personal(t, tn, "c", "people/bert")
	return tn
}

// erase erases an event, and returns how many rows had it.
func erase(t *testing.T, tn *testnode.Node, id uuid.UUID) int {
	t.Helper()
	n, err := tn.System.Operator.EraseEvent(t.Context(), id)
	require.NoError(t, err)
	return n
}

// requireInNoTable looks for a text in every row of every table.
func requireInNoTable(t *testing.T, tn *testnode.Node, text string) {
	t.Helper()
	tables := testnode.Value[[]string](t, tn, "SELECT array_agg(oid::regclass::text) FROM pg_class "+
		"WHERE relnamespace = 'postrider_internal'::regnamespace AND relkind IN ('r', 'p')")
	require.Greater(t, len(tables), 20)
	for _, table := range tables {
		require.Zero(t, tn.Count(t, "SELECT count(*) FROM "+table+" x WHERE strpos(x::text, $1) > 0 OR strpos(x::text, "+
			"encode(convert_to($1, 'UTF8'), 'hex')) > 0", text), "%s in %s", text, table)
	}
}

func TestErasedEventIsInNoTable(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	dead := tn.Subscribe(t, "orders", "dead", nil)
	waits := tn.Subscribe(t, "orders", "waits", nil)
	tn.Subscribe(t, "orders", "runs", nil)
	id := personal(t, tn, "e", "people/anna")
	attempted(t, tn,
		map[int64]policy.Verdict{
			dead.ID:  {Action: policy.DeadLetter, Reason: policy.ReasonClientError},
			waits.ID: {Action: policy.Retry, At: time.Now().Add(time.Hour)},
		})
	require.Equal(t, 1, tn.Rows(t, "dead_letters", "body ->> 'id' = 'e' AND erased_at IS NULL"))

	erased, err := tn.System.Operator.EraseEvent(access.WithActor(t.Context(), access.Actor{Name: "anna"}), id)
	require.NoError(t, err)
	require.Equal(t, 1, erased)

	requireInNoTable(t, tn, secretOf)
	requireInNoTable(t, tn, "people/anna")
	require.Equal(t, 1, tn.Rows(t, "events", "system_id = $1 AND event_id = 'e' AND event_type = 'test' "+
		"AND body IS NULL AND body_text IS NULL AND body_error = 'erased at ' || erased_at", id))
	require.Equal(t, 1, tn.Rows(t, "dead_letters", "system_id = $1 AND body IS NULL AND body_text IS NULL "+
		"AND last_response IS NULL AND attempts = 1 AND body_error = 'erased at ' || erased_at", id))
	require.Equal(t, 2, tn.Rows(t, "deliveries", "state = 'canceled' AND reason = 'EventErased'"),
		"what was pending, and what was running")
	require.Equal(t, 2, tn.Rows(t, "delivery_attempts",
		"status = 503 AND response_excerpt IS NULL AND response_headers IS NULL"), "the trace stays")
	require.Equal(t, 1, tn.Rows(t, "audit", "actor = 'anna' AND action = 'event_erased' AND topic = 'orders' "+
		"AND details = jsonb_build_object('systemId', $1::uuid, 'events', 1)", id))
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))

	require.Zero(t, erase(t, tn, id))
	_, err = tn.System.Operator.EraseEvent(t.Context(), uuid.New())
	require.ErrorIs(t, err, postgres.ErrNotFound)
}

func TestErasedSubjectIsInNoTable(t *testing.T) {
	t.Parallel()
	tn := personalEvents(t)
	tn.Topic(t, "others")

	for topic, want := range map[string]int{"others": 0, "orders": 2} {
		erased, _, err := tn.System.Operator.EraseSubject(t.Context(), topic, "people/anna")
		require.NoError(t, err)
		require.Equal(t, want, erased)
	}
	requireInNoTable(t, tn, "people/anna")
	require.Equal(t, 1, tn.Rows(t, "events", "erased_at IS NULL AND event_id = 'c' AND body_text LIKE '%bert%'"))
	require.Equal(t, 1, tn.Rows(t, "deliveries", "state = 'pending' AND event_id = 'c'"))
	require.Equal(t, 1, tn.Rows(t, "audit",
		"action = 'subject_erased' AND topic = 'orders' AND details = '{\"events\": 2}'"))
	_, _, err := tn.System.Operator.EraseSubject(t.Context(), "none", "people/anna")
	require.ErrorIs(t, err, postgres.ErrNotFound)
	_, err = tn.Pool.Exec(t.Context(), "SELECT postrider.erase_subject('orders', '')")
	require.ErrorContains(t, err, "subject is required")
}

// A batch's response may repeat any of its events; the members of an erased one go on.
func TestErasedMemberLeavesItsBatch(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.BatchingOrders(t, 10, 64)
	batch := tn.WaitingBatch(t, sub, 2, policy.Verdict{Action: policy.Retry, At: time.Now().Add(time.Hour)})
	tn.Exec(t, "UPDATE postrider_internal.delivery_attempts SET response_excerpt = 'echo e-0'")
	erase(t, tn, batch.Members[0].SystemID)
	require.Equal(t, 1, tn.Count(t, leftQuery, batch.Members[0].DeliveryID, "EventErased", 1))
	require.Equal(t, 1, tn.Rows(t, "batches", "state = 'pending' AND members = 1"))
	require.Equal(t, 1, tn.Rows(t, "delivery_attempts", "response_excerpt IS NULL"))
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
}

// Attempts that are recorded as dead letters meanwhile leave nothing behind.
func TestEraseAndRecordAtTheSameTime(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	for i := range 30 {
		personal(t, tn, fmt.Sprint(i), "people/anna")
	}
	d, j := tn.Fetch(t, "node-1")
	var group sync.WaitGroup
	for i := range d {
		group.Go(func() {
			r := testnode.Result(d[i], j[i], sub, policy.Verdict{Action: policy.DeadLetter, Reason: policy.ReasonClientError})
			r.ResponseExcerpt = []byte(secretOf)
			tn.Record(t, r)
		})
	}
	group.Go(func() {
		erased, _, err := tn.System.Operator.EraseSubject(t.Context(), "orders", "people/anna")
		require.NoError(t, err)
		require.Equal(t, 30, erased)
	})
	group.Wait()
	requireInNoTable(t, tn, secretOf)
	require.Equal(t, 30, tn.Rows(t, "deliveries", "state IN ('canceled', 'dead_lettered')"))
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
}

// An event that was erased before its route made deliveries is not delivered, even if a delivery was created at that
// moment.
func TestErasedEventIsNotDelivered(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	id := personal(t, tn, "e", "people/anna")
	d, j := tn.Fetch(t, "node-1")
	tn.Exec(t, "UPDATE postrider_internal.events SET erased_at = now(), body = '', subject = '' WHERE id = $1", id)
	work, err := tn.System.Loader.Load(t.Context(), queue.AttemptArgs{Delivery: d[0], Subscription: sub.ID}, j[0])
	require.NoError(t, err)
	defer work.Release()
	require.True(t, work.Members[0].EventMissing)
}

// pastPersonal is an event about a person that was published three days ago, and an event subscription that was made
// since.
func pastPersonal(t *testing.T, tn *testnode.Node) (id uuid.UUID, redeliver string) {
	t.Helper()
	old := tn.Day(t, 3)
	tn.Topic(t, "orders")
	id = personal(t, tn, "e", "people/anna")
	tn.Exec(t, "UPDATE postrider_internal.events SET published_at = published_at - interval '3 days'")
	tn.MoveEvents(t, old)
	sub := tn.Subscribe(t, "orders", "late", nil)
	return id, fmt.Sprintf("SELECT postrider_internal.redeliver_past('{%s}', '{100}', '%s', %d, gen_random_uuid())", id,
		old, sub.ID)
}

// requireEraseWaits requires that an erasure waits for a transaction, and erases what that has stored.
func requireEraseWaits(t *testing.T, tn *testnode.Node, id uuid.UUID, end func(commit bool)) {
	t.Helper()
	erased := make(chan error, 1)
	go func() { erased <- testnode.ErrorOf(tn.System.Operator.EraseEvent(t.Context(), id)) }()
	tn.AwaitLock(t, "erase_event")
	end(true)
	require.NoError(t, <-erased)
	requireInNoTable(t, tn, secretOf)
}

// An erasure waits for the redelivery of a past event, which has stored it once more, and erases that as well.
func TestEraseWaitsForARedeliveredPastEvent(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	id, redeliver := pastPersonal(t, tn)
	end := tn.OpenTransaction(t, redeliver)
	requireEraseWaits(t, tn, id, end)
	require.Equal(t, 2, tn.Events(t, "erased_at IS NOT NULL"))
	require.Equal(t, 1, tn.Rows(t, "deliveries", "reason = 'EventErased'"))
}

// One that was erased after a step had read it is left out.
func TestErasedPastEventIsNotRedelivered(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	id, redeliver := pastPersonal(t, tn)
	erase(t, tn, id)
	require.Zero(t, tn.Count(t, redeliver))
	require.Zero(t, tn.Rows(t, "deliveries", ""))
	require.Equal(t, 1, tn.Events(t, ""))
}

// What a node may be writing to a file is not erased behind its back; what waits for that is.
func TestEraseIsRejectedDuringAnExport(t *testing.T) {
	t.Parallel()
	for state, want := range map[string]string{"available": "", "running": "exported"} {
		tn := testnode.WithTopic(t)
		sub := tn.Subscribe(t, "orders", "all", testnode.Outside)
		id := personalDeadLetter(t, tn, sub)
		tn.AfterExportDelay(t)
		tn.ClaimExports(t, 1)
		tn.Exec(t, "UPDATE postrider_internal.river_job SET state = $1 WHERE kind = 'export'", state)
		x, job := tn.LoadExport(t)
		if state == "running" {
			_, err := tn.System.Operator.EraseEvent(t.Context(), id)
			require.ErrorIs(t, err, postgres.ErrConflict)
			require.ErrorContains(t, err, x.DeadLetters[0].ID.String()+" is being exported; try again in a minute")
			tn.RecordExport(t, export.Result{Job: job, Export: x, Location: "file:///nowhere/x"})
		}
		erase(t, tn, id)
		requireInNoTable(t, tn, secretOf)
		require.Equal(t, want, tn.Text(t, "SELECT coalesce(export_state, '') FROM postrider.dead_letters"), state)
	}
}

// Attempts may be kept longer than the deliveries that they were made for.
func TestEraseFindsTheAttemptsOfDeadLetters(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	id := personalDeadLetter(t, tn, sub)
	tn.Exec(t, "DELETE FROM postrider_internal.delivery_history")
	erase(t, tn, id)
	requireInNoTable(t, tn, secretOf)
}

// A subject is in the filters that went by it, and not in what the audit has of them.
func TestErasedSubjectIsInNoFilter(t *testing.T) {
	t.Parallel()
	for member, filter := range map[string]*query.DeadLetterFilter{
		"subject": {Subject: new("people/anna")}, "subject_prefix": {SubjectPrefix: new("people/anna"), Topic: new("orders")},
	} {
		tn, sub := testnode.Orders(t)
		personalDeadLetter(t, tn, sub)
		id := redeliverAll(t, tn, filter, 0)
		require.Equal(t, "true",
			tn.Text(t, "SELECT details -> 'filter' ->> '"+member+"' FROM postrider.audit WHERE action = 'operation_started'"))
		_, _, err := tn.System.Operator.EraseSubject(t.Context(), "orders", "people/anna")
		require.ErrorIs(t, err, postgres.ErrConflict)
		require.ErrorContains(t, err, id.String()+" of this subject is running: cancel it, or wait until it has ended")
		require.NoError(t, testnode.ErrorOf(tn.System.Operator.CancelOperation(t.Context(), id)))
		_, _, err = tn.System.Operator.EraseSubject(t.Context(), "orders", "people/anna")
		require.NoError(t, err)
		requireInNoTable(t, tn, "people/anna")
		require.Equal(t, 1, tn.Rows(t, "operations", "filter - 'topic' = '{\"erased\": true, \"state\": \"open\"}'"))
	}
}

// A snapshot that is older than what is waited for would not show it.
func TestEraseRequiresReadCommitted(t *testing.T) {
	t.Parallel()
	tn, _ := testnode.Orders(t)
	id := personal(t, tn, "e", "people/anna")
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		err := pgx.BeginTxFunc(t.Context(), tn.Pool, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), "SELECT postrider.erase_event($1)", id)
			return err
		})
		require.ErrorContains(t, err, "would not see what it waits for", level)
	}
}
