package operator_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"postrider/internal/access"
	"postrider/internal/node"
	"postrider/internal/operator"
	"postrider/internal/postgres"
	"postrider/internal/query"
	"postrider/internal/testnode"
)

const operationJobs = "SELECT count(*) FROM postrider_internal.river_job WHERE kind = 'operation'"

// reclaimOperation lets a node die with the job of the one operation before its step is committed. It returns the id of
// that job and the id of its successor.
func reclaimOperation(t *testing.T, tn *testnode.Node) (lost, successor int64) {
	t.Helper()
	lost = int64(tn.Count(t, testnode.OperationJob))
	tn.Exec(t, "UPDATE postrider_internal.river_job SET state = 'running', attempt = 1, attempted_at = now(), "+
		"attempted_by = '{dead}' WHERE kind = 'operation'")
	require.Equal(t, 1, tn.Reclaim(t))
	successor = int64(tn.Count(t, testnode.OperationJob))
	require.NotEqual(t, lost, successor)
	return lost, successor
}

// redeliverAll begins a redelivery and counts.
func redeliverAll(t *testing.T, tn *testnode.Node, filter *query.DeadLetterFilter, rate int) uuid.UUID {
	t.Helper()
	id := tn.BeginOperation(t, filter, operator.Action{Kind: operator.Redeliver, Rate: rate})
	tn.Operate(t)
	return id
}

func TestRedeliverAll(t *testing.T) {
	t.Parallel()
	tn, letters := testnode.ManyDeadLetters(t, 1203)
	tn.Exec(t, "SELECT postrider.redeliver($1)", letters[7])
	id := redeliverAll(t, tn, &query.DeadLetterFilter{Topic: new("orders")}, 0)
	tn.RequireOperation(t, id, "redeliver running: matched 1202 done 0 skipped 0 failed 0")
	tn.Publish(t, "orders", "later", 3)
	require.Len(t, tn.DeadLetterAll(t), 1206, "those are none of it")
	for _, done := range []int{500, 1000} {
		pause, more := tn.Operate(t)
		require.Zero(t, pause)
		require.True(t, more)
		tn.RequireOperation(t, id, fmt.Sprintf("redeliver running: matched 1202 done %d skipped 0 failed 0", done))
		require.Equal(t, 1, tn.Count(t, operationJobs))
	}
	_, more := tn.Operate(t)
	require.False(t, more)
	tn.RequireOperation(t, id, "redeliver done: matched 1202 done 1202 skipped 0 failed 0")
	require.Zero(t, tn.Count(t, operationJobs))

	require.Equal(t, 1203, tn.Pending(t, "hold = 'admission' AND attempts = 0"))
	require.Equal(t, 1203, tn.Count(t, "SELECT count(DISTINCT redelivered_from) FROM postrider_internal.deliveries"),
		"each once")
	require.Equal(t, 3, tn.Count(t, `SELECT postrider.count_dead_letters('{"state": "open"}')`))
	require.Equal(t, 1, tn.Rows(t, "audit",
		"action = 'operation_started' AND actor = 'postrider' AND details -> 'filter' ->> 'topic' = 'orders'"))
	require.Equal(t, 1, tn.Rows(t, "audit",
		"action = 'operation_finished' AND details ->> 'done' = '1202' AND details ->> 'operationId' = $1", id.String()))
	require.Equal(t, 1203+1206, tn.Count(t, "SELECT sum(count) FROM postrider.delivery_counts WHERE kind = 'matched'"))

	again := redeliverAll(t, tn, &query.DeadLetterFilter{State: new("redelivered"), EventID: new("e-7")}, 0)
	tn.Operate(t)
	tn.RequireOperation(t, again, "redeliver done: matched 1 done 1 skipped 0 failed 0")
}

func TestRedeliverAllKeepsToItsRate(t *testing.T) {
	t.Parallel()
	tn, _ := testnode.ManyDeadLetters(t, 7)
	id := redeliverAll(t, tn, &query.DeadLetterFilter{}, 3)
	const due = "SELECT (extract(epoch FROM scheduled_at) * 1e6)::bigint FROM postrider_internal.river_job " +
		"WHERE kind = 'operation'"
	before := int(time.Now().UnixMicro())
	for _, taken := range []int{3, 3} {
		pause, more := tn.Operate(t)
		require.True(t, more)
		require.Positive(t, pause)
		next := tn.Count(t, due)
		require.GreaterOrEqual(t, next, before+taken*333_333)
		require.Less(t, next, before+taken*333_333+30_000_000)
		before = next
	}
	require.Equal(t, 1, tn.Count(t, "SELECT count(*) FROM postrider_internal.delivery_rates WHERE key = $1",
		"operation:"+id.String()))
	tn.Operate(t)
	tn.RequireOperation(t, id, "redeliver done: matched 7 done 7 skipped 0 failed 0")
	_, err := tn.System.Operator.OnDeadLetters(t.Context(), &query.DeadLetterFilter{},
		&operator.Action{Kind: operator.Redeliver, Rate: -1})
	require.ErrorIs(t, err, postgres.ErrInvalid)
	require.ErrorContains(t, err, "rate_per_second must be 1 or more, is -1")
}

// Redeliveries are due one after the other at the operation's rate, also after a step that took fewer: no second has
// more, whichever it is.
func TestRedeliveriesKeepToTheRate(t *testing.T) {
	t.Parallel()
	requireRate := func(tn *testnode.Node, id uuid.UUID, err error) {
		t.Helper()
		require.NoError(t, err)
		tn.OperateOn(t)
		require.Equal(t, 44, tn.Pending(t, "operation_id = $1", id))
		require.Equal(t, 10, tn.Count(t, `SELECT max(n) FROM (SELECT count(*) OVER (ORDER BY next_attempt_at
			RANGE BETWEEN CURRENT ROW AND interval '0.999999 seconds' FOLLOWING) AS n
			FROM postrider_internal.deliveries WHERE operation_id = $1) seconds`, id))
	}
	past := pastAndNew(t)
	past.Publish(t, "orders", "more", 20)
	past.Subscribe(t, "orders", "late", nil)
	id, err := past.System.Operator.RedeliverEvents(t.Context(), "orders", "late", time.Unix(0, 0), nil, 10)
	requireRate(past, id, err)
	dead, _ := testnode.ManyDeadLetters(t, 44)
	id, err = dead.System.Operator.OnDeadLetters(t.Context(), &query.DeadLetterFilter{},
		&operator.Action{Kind: operator.Redeliver, Rate: 10})
	requireRate(dead, id, err)
}

// Dead letters that are purged or redelivered meanwhile are skipped, and those without a target count as failed. The
// operation continues with the others.
func TestOperationsSkipChangedDeadLetters(t *testing.T) {
	t.Parallel()
	tn, letters := testnode.ManyDeadLetters(t, 6)
	tn.Subscribe(t, "orders", "gone", nil)
	tn.Publish(t, "orders", "g", 2)
	require.Len(t, tn.DeadLetterAll(t), 10)
	require.NoError(t, tn.System.Subscriptions.Delete(t.Context(), "orders", "gone"))
	id := redeliverAll(t, tn, &query.DeadLetterFilter{}, 0)
	tn.Exec(t, "SELECT postrider.purge($1)", letters[0])
	tn.Exec(t, "SELECT postrider.redeliver($1)", letters[1])
	tn.Operate(t)
	tn.RequireOperation(t, id, "redeliver done: matched 10 done 6 skipped 2 failed 2")
	o, err := tn.System.Reader.Operation(t.Context(), id)
	require.NoError(t, err)
	require.Regexp(t, "^dead letter [0-9a-f-]{36}: its event subscription was deleted: name another one$", *o.LastError)
	require.Equal(t, 7, tn.Count(t, "SELECT count(DISTINCT redelivered_from) FROM postrider_internal.deliveries"))
	require.Equal(t, 7, tn.Pending(t, ""))

	to := operator.Action{Kind: operator.Redeliver, To: operator.Target{Subscription: "all"}}
	id = tn.BeginOperation(t, &query.DeadLetterFilter{Topic: new("orders")}, to)
	tn.Operate(t)
	tn.Operate(t)
	tn.RequireOperation(t, id, "redeliver done: matched 2 done 2 skipped 0 failed 0")
	_, err = tn.System.Operator.OnDeadLetters(t.Context(), &query.DeadLetterFilter{}, &to)
	require.ErrorContains(t, err, "topic is required with subscription, unless filter has one")
	to.To = operator.Target{Subscription: "gone", Topic: "orders"}
	_, err = tn.System.Operator.OnDeadLetters(t.Context(), &query.DeadLetterFilter{}, &to)
	require.ErrorIs(t, err, postgres.ErrInvalid)
}

func TestPurgeAll(t *testing.T) {
	t.Parallel()
	tn, letters := testnode.ManyDeadLetters(t, 503)
	id := tn.BeginOperation(t, &query.DeadLetterFilter{SubjectPrefix: new("subject/e-1")},
		operator.Action{Kind: operator.Purge})
	matched := tn.Count(t, "SELECT count(*) FROM postrider.dead_letters WHERE subject LIKE 'subject/e-1%'")
	tn.Operate(t)
	tn.Operate(t)
	tn.RequireOperation(t, id, fmt.Sprintf("purge done: matched %d done %[1]d skipped 0 failed 0", matched))
	require.Equal(t, 503-matched, tn.Rows(t, "dead_letters", ""))
	require.Contains(t, tn.RejectedBy(t, "SELECT postrider.purge_all(NULL)"), "filter is required")

	tn.Exec(t, "SELECT postrider.redeliver($1)", letters[0])
	tn.BeginOperation(t, &query.DeadLetterFilter{}, operator.Action{Kind: operator.Purge})
	tn.OperateOn(t)
	require.Zero(t, tn.Rows(t, "dead_letters", ""), "redelivered or not")
}

func TestCancelOperation(t *testing.T) {
	t.Parallel()
	tn, _ := testnode.ManyDeadLetters(t, 4)
	id := redeliverAll(t, tn, &query.DeadLetterFilter{}, 2)
	tn.Operate(t)
	canceled, err := tn.System.Operator.CancelOperation(access.WithActor(t.Context(), access.Actor{Name: "ann"}), id)
	require.NoError(t, err)
	require.True(t, canceled)
	_, more := tn.Operate(t)
	require.False(t, more)
	tn.RequireOperation(t, id, "redeliver canceled: matched 4 done 2 skipped 0 failed 0")
	require.Equal(t, 2, tn.Pending(t, ""))
	require.Zero(t, tn.Count(t, operationJobs))
	canceled, err = tn.System.Operator.CancelOperation(t.Context(), id)
	require.NoError(t, err)
	require.False(t, canceled)
	require.Equal(t, 1, tn.Rows(t, "audit", "action = 'operation_canceled' AND actor = 'ann'"))
	require.ErrorIs(t, testnode.ErrorOf(tn.System.Operator.CancelOperation(t.Context(), uuid.Nil)), postgres.ErrNotFound)
}

// A step runs once, however many nodes have its job, and wherever a node ended.
func TestOperationStepsRunOnce(t *testing.T) {
	t.Parallel()
	tn, _ := testnode.ManyDeadLetters(t, 30)
	other := tn.Beside(t, node.Options{Node: "node-2"}).System
	id := redeliverAll(t, tn, &query.DeadLetterFilter{}, 10)
	for range 4 {
		lost, job := reclaimOperation(t, tn)
		var group sync.WaitGroup
		for _, s := range []*node.System{tn.System, other, tn.System} {
			for _, id := range []int64{lost, job} { // one that was thought dead comes back meanwhile
				group.Go(func() {
					_, _, err := s.Operator.Operate(t.Context(), id)
					require.NoError(t, err)
				})
			}
		}
		group.Wait()
	}
	tn.RequireOperation(t, id, "redeliver done: matched 30 done 30 skipped 0 failed 0")
	require.Equal(t, 30, tn.Count(t, "SELECT count(DISTINCT redelivered_from) FROM postrider_internal.deliveries"))
	require.Equal(t, 30, tn.Pending(t, ""))
}

// Two operations over the same dead letters at once redeliver each once.
func TestTwoOperationsAtOnce(t *testing.T) {
	t.Parallel()
	tn, _ := testnode.ManyDeadLetters(t, 700)
	var ids [2]uuid.UUID
	for i := range ids {
		ids[i] = tn.BeginOperation(t, &query.DeadLetterFilter{}, operator.Action{Kind: operator.Redeliver})
	}
	step := func(id uuid.UUID) (more bool) {
		job := testnode.Value[int64](t, tn, "SELECT job_id FROM postrider_internal.operations WHERE id = $1", id)
		_, more, err := tn.System.Operator.Operate(t.Context(), job)
		require.NoError(t, err)
		return more
	}
	for _, id := range ids { // both count all of them
		require.True(t, step(id))
	}
	testnode.AtOnce(len(ids), func(i int) {
		for step(ids[i]) {
			continue
		}
	})
	require.Equal(t, 700, tn.Pending(t, ""))
	require.Equal(t, 700, tn.Count(t, "SELECT sum(done) FROM postrider.operations"))
	require.Equal(t, 700, tn.Count(t, "SELECT sum(skipped) FROM postrider.operations"))
}

func TestOperationsAreRepaired(t *testing.T) {
	t.Parallel()
	tn, _ := testnode.ManyDeadLetters(t, 1)
	id := redeliverAll(t, tn, &query.DeadLetterFilter{}, 0)
	require.Zero(t, tn.Sweep(t).Repaired)
	tn.Exec(t, "DELETE FROM postrider_internal.river_job; UPDATE postrider_internal.operations "+
		"SET created_at = now() - interval '2 minutes'")
	tn.Exec(t, "UPDATE postrider_internal.dead_letters SET dead_lettered_at = now() - interval '1 hour'")
	require.Equal(t, 1, tn.Sweep(t).Repaired)
	tn.Operate(t)
	tn.RequireOperation(t, id, "redeliver done: matched 1 done 1 skipped 0 failed 0")
	require.Zero(t, tn.Sweep(t).Repaired)
	require.NoError(t, tn.System.Operator.CleanOperations(t.Context()))
	tn.RequireOperation(t, id, "redeliver done: matched 1 done 1 skipped 0 failed 0")
	tn.Exec(t, "UPDATE postrider_internal.operations SET finished_at = now() - interval '31 days'")
	require.NoError(t, tn.System.Operator.CleanOperations(t.Context()))
	_, err := tn.System.Reader.Operation(t.Context(), id)
	require.ErrorIs(t, err, postgres.ErrNotFound)
}

// A step that PostgreSQL rejects ends the operation and says why. PostgreSQL's own text is in the log alone.
func TestOperationFails(t *testing.T) {
	t.Parallel()
	tn, _ := testnode.ManyDeadLetters(t, 1)
	id := redeliverAll(t, tn, &query.DeadLetterFilter{}, 0)
	tn.Exec(t, "ALTER TABLE postrider_internal.deliveries ADD CONSTRAINT nothing CHECK (redelivered_from IS NULL)")
	var log bytes.Buffer
	s := tn.Beside(t, node.Options{Node: "node-2", Logger: slog.New(slog.NewJSONHandler(&log, nil))}).System
	_, more, err := s.Operator.Operate(t.Context(), int64(tn.Count(t, testnode.OperationJob)))
	require.NoError(t, err)
	require.False(t, more)
	tn.RequireOperation(t, id, "redeliver failed: matched 1 done 0 skipped 0 failed 0")
	o, err := tn.System.Reader.Operation(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, "a step failed: the database rejected a change because it contradicts other stored data; "+
		"the log of the node has the cause", *o.LastError)
	require.Contains(t, log.String(), `violates check constraint`)
	require.Contains(t, log.String(), `"sqlstate":"23514"`)
}

func TestOperationsAreListed(t *testing.T) {
	t.Parallel()
	tn, _ := testnode.ManyDeadLetters(t, 1)
	first := tn.BeginOperation(t, &query.DeadLetterFilter{}, operator.Action{Kind: operator.Redeliver})
	second := tn.BeginOperation(t, &query.DeadLetterFilter{LastStatus: new(400)},
		operator.Action{Kind: operator.Redeliver, Rate: 5})
	list, err := tn.System.Reader.Operations(t.Context(), nil, 1)
	require.NoError(t, err)
	require.Equal(t, second, list[0].OperationID)
	require.Equal(t, query.DeadLetterFilter{LastStatus: new(400), State: new("open")}, list[0].Filter)
	require.Equal(t, 5, *list[0].RatePerSecond)
	list, err = tn.System.Reader.Operations(t.Context(), &list[0], 5)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, first, list[0].OperationID)
}

// pastAndNew is a node with 12 events of three days ago, 12 of now, and 12 of
// another topic.
func pastAndNew(t *testing.T) *testnode.Node {
	t.Helper()
	tn := testnode.Unchecked(t)
	old := tn.Day(t, 3)
	tn.Topic(t, "orders")
	tn.Topic(t, "other")
	tn.Publish(t, "orders", "old", 12)
	tn.Exec(t, "UPDATE postrider_internal.events SET published_at = published_at - interval '3 days'")
	tn.MoveEvents(t, old)
	tn.Publish(t, "orders", "new", 12)
	tn.Publish(t, "other", "other", 12)
	return tn
}

// endingWith1 are filters of each kind for the same events.
var endingWith1 = map[string]string{
	"basic":    `{"subjectEndsWith":"1"}`,
	"advanced": `{"advancedFilters":[{"operatorType":"StringEndsWith","key":"subject","values":["1"]}]}`,
}

// TestRedeliverEvents: past events of one topic and time, if the filter matches them, whatever their day.
func TestRedeliverEvents(t *testing.T) {
	t.Parallel()
	for name, filter := range endingWith1 {
		tn := pastAndNew(t)
		sub := tn.Subscribe(t, "orders", "late", testnode.Filtered(t, filter))
		from := time.Now().AddDate(0, 0, -10)

		id, err := tn.System.Operator.RedeliverEvents(t.Context(), "orders", "late", from, nil, 0)
		require.NoError(t, err)
		tn.Publish(t, "orders", "after", 12) // has its own publish's deliveries
		steps := 1
		for _, more := tn.Operate(t); more; steps++ {
			_, more = tn.Operate(t)
		}
		require.LessOrEqual(t, steps, 6, "no step for days that there are none of")
		tn.RequireOperation(t, id, "redeliver_events done: matched - done 4 skipped 20 failed 0")
		require.Equal(t, "new-1,new-11,old-1,old-11", tn.Text(t, `SELECT string_agg(event_id, ',' ORDER BY event_id)
			FROM postrider.deliveries WHERE subscription = 'late' AND redelivered_from = $1`, id), name)
		require.Equal(t, 2, tn.Pending(t, "event_day = (now() AT TIME ZONE 'UTC')::date "+
			"AND event_uuid IN (SELECT id FROM postrider_internal.events WHERE event_id LIKE 'old-%')"))
		require.Equal(t, 2, tn.Rows(t, "events", "event_id LIKE 'old-%1'"), "the view has each once")
		require.Equal(t, 4, tn.Refill(t, sub.ID, false, 10))

		// A second time it finds what the first one has stored again on its own day alone.
		id, err = tn.System.Operator.RedeliverEvents(t.Context(), "orders", "late", from, nil, 0)
		require.NoError(t, err)
		tn.OperateOn(t)
		tn.RequireOperation(t, id, "redeliver_events done: matched - done 6 skipped 30 failed 0")
	}
}

func TestRedeliverEventsRejects(t *testing.T) {
	t.Parallel()
	tn, _ := testnode.Orders(t)
	for arguments, problem := range map[string]string{
		"NULL, 'all', now()":                    "topic is required",
		"'orders', NULL, now()":                 "subscription is required",
		"'orders', 'all', NULL":                 "published_from is required",
		"'orders', 'none', 'yesterday'":         `topic "orders" has no event subscription "none"`,
		"'orders', 'all', 'tomorrow'":           "published_from must be before published_until and before now",
		"'orders', 'all', '-infinity'":          "published_from must be before",
		"'orders', 'all', 'today', 'yesterday'": "published_from must be before",
		"'orders', 'all', 'yesterday', NULL, 0": "rate_per_second must be 1 or more, is 0",
	} {
		require.Contains(t, tn.RejectedBy(t, "SELECT postrider.redeliver_events("+arguments+")"), problem, arguments)
	}
	require.Zero(t, tn.Rows(t, "operations", ""))

	tn.Publish(t, "orders", "e", 1)
	id, err := tn.System.Operator.RedeliverEvents(t.Context(), "orders", "all", time.Unix(0, 0), nil, 0)
	require.NoError(t, err)
	require.NoError(t, tn.System.Subscriptions.Delete(context.WithoutCancel(t.Context()), "orders", "all"))
	_, more := tn.Operate(t)
	require.False(t, more)
	tn.RequireOperation(t, id, "redeliver_events failed: matched - done 0 skipped 0 failed 0")
	o, err := tn.System.Reader.Operation(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, "the event subscription was deleted", *o.LastError)
}

// A step reads no more bodies than fit into memory, and one at least.
func TestOperationStepsAreBoundedByBytes(t *testing.T) {
	t.Parallel()
	tn, _ := testnode.ManyDeadLetters(t, 5)
	id := redeliverAll(t, tn, &query.DeadLetterFilter{}, 0)
	size := tn.Count(t, "SELECT max(octet_length(body)) FROM postrider_internal.dead_letters")
	for bytes, taken := range map[int]int{1: 1, size: 1, size + 1: 2, 1 << 20: 5} {
		tx := tn.Begin(t)
		var n, done int
		require.NoError(t, tx.QueryRow(t.Context(),
			"SELECT taken, done FROM postrider_internal.step_dead_letters($1, 500, $2, 20000)", id, bytes).Scan(&n, &done))
		require.Equal(t, []int{taken, taken}, []int{n, done}, "%d bytes", bytes)
		require.NoError(t, tx.Rollback(t.Context()))
	}
}

// The clock of the node that made an event's id may be an hour off: what counts is the time of publishing, to the
// microsecond.
func TestRedeliverEventsUsesTheTimeOfPublishing(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	tn.Publish(t, "orders", "e", 5)
	tn.Subscribe(t, "orders", "late", nil)
	base := testnode.Value[time.Time](t, tn,
		"SELECT date_trunc('milliseconds', min(published_at)) FROM postrider_internal.events")
	for event, at := range map[string]struct{ published, id time.Duration }{
		"e-0": {0, -time.Hour}, "e-1": {300 * time.Microsecond, time.Hour}, "e-2": {499 * time.Microsecond, 0},
		"e-3": {500 * time.Microsecond, 0}, "e-4": {-time.Microsecond, 0},
	} {
		id := uuid.MustParse(fmt.Sprintf("%012x7%03x%016x", base.Add(at.id).UnixMilli(), event[2], uint64(1)<<63))
		tn.Exec(t, "UPDATE postrider_internal.events SET id = $1, published_at = $2 WHERE event_id = $3", id,
			base.Add(at.published), event)
	}
	require.NoError(t, testnode.ErrorOf(tn.System.Operator.RedeliverEvents(t.Context(), "orders", "late", base,
		new(base.Add(500*time.Microsecond)), 0)))
	tn.OperateOn(t)
	require.Equal(t, "e-0,e-1,e-2",
		tn.Text(t, "SELECT string_agg(event_id, ',' ORDER BY event_id) FROM postrider.deliveries"))
}

// An open transaction that redelivers, purges, cancels or resumes delays no other request for long.
func TestDeadLettersAreActedOnInShortTransactions(t *testing.T) {
	t.Parallel()
	tn, letters := testnode.ManyDeadLetters(t, 1)
	id := redeliverAll(t, tn, &query.DeadLetterFilter{}, 0)
	for _, call := range []string{
		fmt.Sprintf("redeliver('%s')", letters[0]), fmt.Sprintf("purge('%s')", letters[0]),
		fmt.Sprintf("cancel_operation('%s')", id), "resume('orders', 'all')",
	} {
		var within string
		require.NoError(t, pgx.BeginFunc(t.Context(), tn.Pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), "SELECT postrider."+call); err != nil {
				return err
			}
			return tx.QueryRow(t.Context(), "SHOW idle_in_transaction_session_timeout").Scan(&within)
		}))
		require.Equal(t, "5s", within, call)
	}
}

func TestCountsOfDeadLettersAreBounded(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	tn.Exec(t, `CREATE OR REPLACE FUNCTION postrider_internal.measure_dead_letters(filter jsonb, until timestamptz,
		    timeout interval, OUT matched bigint, OUT at_least boolean) LANGUAGE sql STABLE
		AS $$ SELECT setting::bigint, timeout = interval '5 seconds' FROM pg_settings
		WHERE name = 'statement_timeout' $$`)
	found, err := tn.System.Reader.CountDeadLetters(t.Context(), &query.DeadLetterFilter{})
	require.NoError(t, err)
	require.Equal(t, query.Matched{Matched: 10_000, AtLeast: true}, found)
}
