package operator_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"postrider/internal/access"
	"postrider/internal/operator"
	"postrider/internal/postgres"
	"postrider/internal/query"
	"postrider/internal/testnode"
	"postrider/jobs/export"
)

// smallSteps has searches scan 20 dead letters in a step instead of 20,000.
const smallSteps = `ALTER FUNCTION postrider_internal.dead_letter_edge RENAME TO full_dead_letter_edge;
	CREATE FUNCTION postrider_internal.dead_letter_edge(filter jsonb, after_at timestamptz, after_id uuid,
	    ascending boolean, until timestamptz, step integer, OUT at timestamptz, OUT id uuid) LANGUAGE sql STABLE AS
	$$ SELECT * FROM postrider_internal.full_dead_letter_edge(filter, after_at, after_id, ascending, until,
	    step / 1000) $$`

// Few of very many are found by short steps, each of which says how far it is.
func TestStepsCheckALimitedNumber(t *testing.T) {
	t.Parallel()
	tn, letters := testnode.ManyDeadLetters(t, 1)
	tn.CopyDeadLetters(t, `jsonb_build_object('subject', CASE i WHEN 45 THEN 'rare' ELSE 'common' END,
		'dead_lettered_at', l.dead_lettered_at + i * interval '1 s' - interval '1 hour', 'delivery_id', -i)`, 45)
	tn.Exec(t, smallSteps)
	id := tn.BeginOperation(t, &query.DeadLetterFilter{Subject: new("rare")}, operator.Action{Kind: operator.Purge})
	var reached []time.Time
	for more, steps := true, 0; more; steps++ {
		require.Less(t, steps, 7)
		_, more = tn.Operate(t)
		o, err := tn.System.Reader.Operation(t.Context(), id)
		require.NoError(t, err)
		if o.ReachedAt != nil {
			reached = append(reached, *o.ReachedAt)
		}
	}
	tn.RequireOperation(t, id, "purge done: matched 1 done 1 skipped 0 failed 0")
	require.Len(t, reached, 5, "20 and 40 counted, 20 and 40 purged, and the rare one")
	require.Equal(t, 20*time.Second, reached[1].Sub(reached[0]))
	require.Equal(t, reached[:2], reached[2:4])
	require.Equal(t, 45, tn.Rows(t, "dead_letters", ""))

	// What is named by its event or its event subscription is found at once: an index has it.
	id = tn.BeginOperation(t, &query.DeadLetterFilter{DeadLetterIDs: letters}, operator.Action{Kind: operator.Purge})
	_, more := tn.Operate(t)
	require.True(t, more)
	_, more = tn.Operate(t)
	require.False(t, more)
	tn.RequireOperation(t, id, "purge done: matched 1 done 1 skipped 0 failed 0")

	// Counting looks at the clock as often.
	require.Equal(t, "44 false",
		tn.Text(t, `SELECT format('%s %s', matched, at_least::text)
			FROM postrider_internal.measure_dead_letters('{"subject": "common"}', 'infinity', '0')`), "few are counted at once")
	tn.Exec(t, "CREATE OR REPLACE FUNCTION postrider_internal.few_dead_letters(filter jsonb) RETURNS boolean LANGUAGE "+
		"sql STABLE AS 'SELECT false'")
	require.Equal(t, "20 true", tn.Text(t, `SELECT format('%s %s', matched, at_least::text)
		FROM postrider_internal.measure_dead_letters('{"subject": "common"}', 'infinity', '0')`))
	require.Equal(t, "44 false", tn.Text(t, `SELECT format('%s %s', matched, at_least::text)
		FROM postrider_internal.measure_dead_letters('{"subject": "common"}', 'infinity', '1 hour')`))
	require.Equal(t, "25 false",
		tn.Text(t, `SELECT format('%s %s', matched, at_least::text) FROM postrider_internal.measure_dead_letters(
		jsonb_build_object('dead_lettered_from', (SELECT to_char(dead_lettered_at AT TIME ZONE 'UTC',
		    'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') FROM postrider_internal.dead_letters ORDER BY 1 OFFSET 19 LIMIT 1)),
		    'infinity', '1 hour')`))
	require.Contains(t, tn.RejectedBy(t, `SELECT postrider_internal.count_dead_letters('{"topic": "orders"}', '0')`),
		"counting was stopped after 0 seconds: there are at least 20 dead letters that match")
	found, err := tn.System.Reader.CountDeadLetters(t.Context(),
		&query.DeadLetterFilter{Topic: new("orders"), Subscription: new("all")})
	require.NoError(t, err)
	require.Equal(t, query.Matched{Matched: 44}, found)
}

// TestCountEvents: a dry run finds what a redelivery would, and begins nothing.
func TestCountEvents(t *testing.T) {
	t.Parallel()
	tn := pastAndNew(t)
	for name, filter := range endingWith1 {
		tn.Subscribe(t, "orders", name, testnode.Filtered(t, filter))
	}
	from := time.Now().AddDate(0, 0, -10)
	for _, name := range []string{"basic", "advanced"} {
		found, err := tn.System.Reader.CountEvents(t.Context(), "orders", name, from, nil)
		require.NoError(t, err)
		require.Equal(t, query.Matched{Matched: 4}, found, name)
		found, err = tn.System.Reader.CountEvents(t.Context(), "orders", name, time.Now().AddDate(0, 0, -1), nil)
		require.NoError(t, err)
		require.Equal(t, query.Matched{Matched: 2}, found, name)
	}
	require.Zero(t, tn.Count(t, operationJobs))
	require.Zero(t, tn.Rows(t, "operations", ""))
	require.Equal(t, 24, tn.Count(t, "SELECT postrider.count_events('orders', now() - interval '10 days')"))
	require.Equal(t, 12,
		tn.Count(t, "SELECT postrider.count_events('orders', now() - interval '10 days', now() - interval '1 day')"))
	require.Contains(t, tn.RejectedBy(t, "SELECT postrider_internal.count_events('orders', '2020-01-01', NULL, '-1 "+
		"second')"), "there are at least 12 such events")
	require.Contains(t, tn.RejectedBy(t, "SELECT postrider.count_events('none', '2020-01-01')"), "does not exist")
	require.Contains(t, tn.RejectedBy(t, "SELECT postrider.count_events('orders', '-infinity')"),
		"published_from is required")
	_, err := tn.System.Reader.CountEvents(t.Context(), "orders", "none", from, nil)
	require.ErrorIs(t, err, postgres.ErrInvalid)
	_, err = tn.System.Reader.CountEvents(t.Context(), "orders", "basic", time.Now().Add(time.Hour), nil)
	require.ErrorContains(t, err, "published_from must be before")
}

const manyPersonal = `SELECT postrider.publish_batch('orders',
	    (SELECT jsonb_agg(jsonb_build_object('id', n::text, 'eventType', 'test', 'subject', 'people/anna', 'data',
	    'anna@example.com')) FROM generate_series(1, $1::int) n))`

// TestEraseSubjectOfMany: more than a thousand are erased in steps, and then nothing is left of them either.
func TestEraseSubjectOfMany(t *testing.T) {
	t.Parallel()
	tn := personalEvents(t)
	tn.Exec(t, manyPersonal, 1203)
	tn.RouteAll(t, tn.System)

	erased, id, err := tn.System.Operator.EraseSubject(access.WithActor(t.Context(), access.Actor{Name: "ann"}), "orders",
		"people/anna")
	require.NoError(t, err)
	require.Zero(t, erased)
	require.NotNil(t, id)
	_, _, err = tn.System.Operator.EraseSubject(t.Context(), "orders", "people/anna")
	require.ErrorIs(t, err, postgres.ErrConflict, "it is at it")
	tn.Operate(t)
	tn.RequireOperation(t, *id, "erase_subject running: matched - done 200 skipped 0 failed 0")
	tn.OperateOn(t)
	tn.RequireOperation(t, *id, "erase_subject done: matched - done 1205 skipped 0 failed 0")
	requireInNoTable(t, tn, "people/anna")
	require.Equal(t, 1, tn.Rows(t, "events", "erased_at IS NULL AND event_id = 'c'"))
	require.Equal(t, 1, tn.Rows(t, "deliveries", "state = 'pending'"))
	require.Equal(t, 1, tn.Rows(t, "audit",
		"action = 'operation_started' AND actor = 'ann' AND topic = 'orders' AND details ->> 'kind' = 'erase_subject'"))
	require.Equal(t, 1, tn.Rows(t, "audit", "action = 'operation_finished' AND details ->> 'done' = '1205'"))
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
}

// Two erasures of one subject that were begun at the same moment, neither of which could see the other, both end.
func TestTwoErasuresOfASubject(t *testing.T) {
	t.Parallel()
	tn, _ := testnode.Orders(t)
	tn.Exec(t, manyPersonal, 1203)
	var ids [2]uuid.UUID
	var transactions [2]pgx.Tx
	for i := range transactions {
		tx := tn.Begin(t)
		require.NoError(t,
			tx.QueryRow(t.Context(), "SELECT operation_id FROM postrider.erase_subject('orders', 'people/anna')").Scan(&ids[i]))
		transactions[i] = tx
	}
	for _, tx := range transactions {
		require.NoError(t, tx.Commit(t.Context()))
	}
	const running = "SELECT count(*) FROM postrider.operations WHERE state = 'running'"
	for steps := 0; tn.Count(t, running) > 0; steps++ {
		require.Less(t, steps, 50, "they wait for each other")
		_, _, err := tn.System.Operator.Operate(t.Context(),
			int64(tn.Count(t, "SELECT job_id FROM postrider_internal.operations WHERE state = 'running' ORDER BY steps "+
				"LIMIT 1")))
		require.NoError(t, err)
	}
	require.Equal(t, 1203, tn.Count(t,
		"SELECT sum(done)::int FROM postrider.operations WHERE state = 'done' AND operation_id = ANY ($1)", ids[:]))
	requireInNoTable(t, tn, "people/anna")
}

// An erasure that is stopped keeps no subject; what is done stays done.
func TestCancelErasure(t *testing.T) {
	t.Parallel()
	tn, _ := testnode.Orders(t)
	tn.Exec(t, manyPersonal, 1203)
	_, id, err := tn.System.Operator.EraseSubject(t.Context(), "orders", "people/anna")
	require.NoError(t, err)
	tn.Operate(t)
	require.NoError(t, testnode.ErrorOf(tn.System.Operator.CancelOperation(t.Context(), *id)))
	require.Equal(t, `{"erased": true}`, tn.Text(t, "SELECT filter::text FROM postrider.operations"))
	require.Equal(t, 1003, tn.Rows(t, "events", "subject = 'people/anna'"))
}

// What is being exported is waited for: the step is made later.
func TestErasureWaitsForAnExport(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	sub := tn.Subscribe(t, "orders", "all", testnode.Outside)
	personalDeadLetter(t, tn, sub)
	tn.Exec(t, manyPersonal, 1203)
	tn.AfterExportDelay(t)
	tn.ClaimExports(t, 1)
	tn.Exec(t, "UPDATE postrider_internal.river_job SET state = 'running' WHERE kind = 'export'")
	x, job := tn.LoadExport(t)
	_, id, err := tn.System.Operator.EraseSubject(t.Context(), "orders", "people/anna")
	require.NoError(t, err)
	pause, more := tn.Operate(t)
	require.True(t, more)
	require.Equal(t, 10*time.Second, pause)
	o, err := tn.System.Reader.Operation(t.Context(), *id)
	require.NoError(t, err)
	require.Contains(t, *o.LastError, "is being exported")
	require.NotContains(t, *o.LastError, "SQLSTATE", "people read it")
	tn.RequireOperation(t, *id, "erase_subject running: matched - done 0 skipped 0 failed 0")
	tn.RecordExport(t, export.Result{Job: job, Export: x, Location: "file:///nowhere/x"})
	tn.OperateOn(t)
	tn.RequireOperation(t, *id, "erase_subject done: matched - done 1204 skipped 0 failed 0")
	requireInNoTable(t, tn, "people/anna")
}
