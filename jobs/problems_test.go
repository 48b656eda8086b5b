package jobs_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/query"
	"postrider/internal/testnode"
)

// problemState requires that there is one problem in such a state, and returns when its series of failures began.
func problemState(t *testing.T, tn *testnode.Node, want string) (since time.Time) {
	t.Helper()
	require.Equal(t, want, tn.Text(t, "SELECT string_agg(state, ', ') FROM postrider.problems"))
	return testnode.Value[time.Time](t, tn, "SELECT since FROM postrider.problems")
}

// problemNotices publishes the notices and returns those of problems that were not returned before.
func problemNotices(t *testing.T, tn *testnode.Node, before int) (found []testnode.Notice) {
	t.Helper()
	for _, n := range tn.PublishNotices(t) {
		if n.Type == "postrider.problem.started" || n.Type == "postrider.problem.ended" {
			found = append(found, n)
		}
	}
	return found[before:]
}

// A problem begins with the first failure, continues, recovers with a success and begins anew with the next failure.
// The beginning is notified after a minute, and the end after five minutes without a failure: the recovery and the
// failure between them are not.
func TestProblemIsASeriesOfFailures(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	tn.SubscribeToNotices(t)
	sub := tn.Subscribe(t, "orders", "billing", nil)
	require.Zero(t, tn.ObserveProblems(t, 0))
	tn.Succeed(t, sub)
	require.Zero(t, tn.ObserveProblems(t, 0))
	require.Zero(t, tn.Rows(t, "problems", ""))

	failed := tn.Fail(t, sub, 2)
	require.Zero(t, tn.ObserveProblems(t, 0), "a retry may succeed")
	require.Equal(t, 1, tn.ObserveProblems(t, 2*time.Minute))
	first := problemState(t, tn, "failing")
	require.Equal(t, first.UTC(), testnode.Value[time.Time](t, tn,
		"SELECT min(started_at) FROM postrider.delivery_attempts WHERE delivery_id = $1", failed[0]).UTC())
	require.Equal(t, 1, tn.Rows(t, "problems", "outcome = 'Busy' AND last_status = 503 AND last_error = 'it broke' "+
		"AND delivery_id = $1 AND last_failed_at > since", failed[1]))
	id := tn.Text(t, "SELECT problem_id::text FROM postrider.problems")
	started := problemNotices(t, tn, 0)
	require.Len(t, started, 1)
	require.Equal(t, "postrider.problem.started", started[0].Type)
	require.Equal(t, "/topics/orders/subscriptions/billing", started[0].Subject)
	require.Equal(t, fmt.Sprint(id, "/", started[0].Data["since"]), started[0].ID)
	require.NotEmpty(t, started[0].Data["lastFailedAt"])
	delete(started[0].Data, "since")
	delete(started[0].Data, "lastFailedAt")
	require.Equal(t, map[string]any{
		"problemId": id, "topic": "orders", "subscription": "billing", "outcome": "Busy", "status": 503.0,
		"error": "it broke", "response": "busy", "failures": 2.0, "pending": 2.0, "openDeadLetters": 0.0, "count": 1.0,
		"endpointBaseUrl": "https://example.com/hook", "command": "postrider problem show " + id,
	}, started[0].Data)

	tn.Fail(t, sub, 1)
	require.Zero(t, tn.ObserveProblems(t, 0))
	require.Equal(t, first.UTC(), problemState(t, tn, "failing").UTC(), "the series continues")
	require.Zero(t, tn.ObserveProblems(t, 2*time.Minute), "nothing has succeeded")
	problemState(t, tn, "failing")
	tn.Succeed(t, sub)
	require.Zero(t, tn.ObserveProblems(t, 0))
	problemState(t, tn, "recovered")
	tn.Fail(t, sub, 1)
	require.Zero(t, tn.ObserveProblems(t, 2*time.Minute), "it fails again within five minutes")
	problemState(t, tn, "failing")
	tn.Succeed(t, sub)
	require.Zero(t, tn.ObserveProblems(t, 2*time.Minute))
	problemState(t, tn, "recovered")
	require.Equal(t, 1, tn.ObserveProblems(t, 2*time.Minute))
	ended := problemNotices(t, tn, 1)
	require.Len(t, ended, 1)
	require.Equal(t, "postrider.problem.ended", ended[0].Type)
	require.Equal(t, []any{id, "recovered", 4.0}, []any{
		ended[0].Data["problemId"], ended[0].Data["reason"], ended[0].Data["failures"],
	})
	require.NotEmpty(t, ended[0].Data["recoveredAt"])
	require.Equal(t, fmt.Sprint(id, "/", ended[0].Data["since"], "/ended"), ended[0].ID)
	require.Zero(t, tn.ObserveProblems(t, 0))

	tn.Fail(t, sub, 1)
	require.Zero(t, tn.ObserveProblems(t, 0))
	require.True(t, problemState(t, tn, "failing").After(first), "a new series")
	require.Equal(t, 1, tn.ObserveProblems(t, 2*time.Minute))
	again := problemNotices(t, tn, 2)
	require.Len(t, again, 1)
	require.Equal(t, []any{"postrider.problem.started", id}, []any{again[0].Type, again[0].Data["problemId"]})
	require.NotEqual(t, started[0].ID, again[0].ID)
}

// A retry that succeeds within the minute of the failure ends the problem, a minute after it. Nothing is notified.
func TestProblemRecoversWithTheRetry(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	tn.SubscribeToNotices(t)
	sub := tn.Subscribe(t, "orders", "billing", nil)
	tn.Fail(t, sub, 1)
	tn.Exec(t, "UPDATE postrider_internal.delivery_attempts SET started_at = started_at - interval '1 ms'")
	tn.Succeed(t, sub)
	require.Zero(t, tn.ObserveProblems(t, 40*time.Second))
	problemState(t, tn, "failing")
	require.Zero(t, tn.ObserveProblems(t, 30*time.Second))
	problemState(t, tn, "recovered")
	require.Zero(t, tn.ObserveProblems(t, 10*time.Minute))
}

// A retry that fails within the minute of the first failure is followed by another one, which may succeed. A problem
// that has failed for more than a minute is notified while it fails.
func TestProblemStartsAfterItsRetries(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	tn.SubscribeToNotices(t)
	sub := tn.Subscribe(t, "orders", "billing", nil)
	failTwice := func() {
		tn.Fail(t, sub, 1)
		require.Zero(t, tn.ObserveProblems(t, 30*time.Second))
		tn.Fail(t, sub, 1)
		require.Zero(t, tn.ObserveProblems(t, 0))
	}
	failTwice()
	tn.Succeed(t, sub)
	require.Zero(t, tn.ObserveProblems(t, 32*time.Second), "a minute after the first failure")
	require.Zero(t, tn.ObserveProblems(t, 30*time.Second))
	problemState(t, tn, "recovered")
	failTwice()
	require.Zero(t, tn.ObserveProblems(t, 32*time.Second))
	tn.Fail(t, sub, 1)
	require.Equal(t, 1, tn.ObserveProblems(t, 0))
	require.Len(t, problemNotices(t, tn, 0), 1)
}

// A problem that no attempt follows recovers after 24 hours, when no pending delivery has its outcome. Then it ends its
// alert, too.
func TestProblemOfEndedDeliveriesRecovers(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	sub := tn.Subscribe(t, "orders", "billing", nil)
	failing := func(want int64) {
		t.Helper()
		r, err := query.NewMeter(tn.System.DB).Read(t.Context())
		require.NoError(t, err)
		require.Equal(t, []query.MeteredProblems{{Topic: "orders", Subscription: "billing", Failing: want}}, r.Problems)
	}
	cancel := func(deliveries []int64) { tn.Exec(t, "SELECT postrider.cancel($1)", deliveries[0]) }
	failed := tn.Fail(t, sub, 1)
	tn.ObserveProblems(t, 0)
	tn.ObserveProblems(t, 25*time.Hour)
	problemState(t, tn, "failing")
	cancel(failed)
	tn.ObserveProblems(t, time.Hour)
	problemState(t, tn, "recovered")
	failing(0)

	failed = tn.Fail(t, sub, 1)
	tn.ObserveProblems(t, 0)
	cancel(failed)
	tn.ObserveProblems(t, 23*time.Hour)
	problemState(t, tn, "failing")
	failing(1)
	tn.ObserveProblems(t, 2*time.Hour)
	problemState(t, tn, "recovered")
}

// An erasure removes the error of the event's attempts from its problem, and no other.
func TestErasureClearsTheErrorOfAProblem(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	sub := tn.Subscribe(t, "orders", "billing", nil)
	failed := tn.Fail(t, sub, 2)
	tn.ObserveProblems(t, 0)
	erase := func(delivery int64) {
		tn.Exec(t, "SELECT postrider.erase_event(system_id) FROM postrider.deliveries WHERE delivery_id = $1", delivery)
	}
	erase(failed[0])
	require.Equal(t, 1, tn.Rows(t, "problems", "last_error = 'it broke' AND delivery_id = $1", failed[1]))
	erase(failed[1])
	require.Equal(t, 1, tn.Rows(t, "problems", "last_error IS NULL AND delivery_id = $1", failed[1]))
}

// While a problem is acknowledged, no beginning of it is notified; afterwards it is, if the problem continues.
func TestAcknowledgedProblemIsNotNotified(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	tn.SubscribeToNotices(t)
	sub := tn.Subscribe(t, "orders", "billing", nil)
	tn.Fail(t, sub, 1)
	tn.ObserveProblems(t, 0)
	require.Equal(t, 1, tn.ObserveProblems(t, 2*time.Minute))
	acknowledge := func(until string) string {
		return tn.Text(t, "SELECT postrider.acknowledge_problem(problem_id, now() + $1::interval, 'known') "+
			"FROM postrider.problems", until)
	}
	require.Equal(t, "acknowledged", acknowledge("1 hour"))
	require.Equal(t, 1, tn.Rows(t, "audit", "action = 'problem_acknowledged' AND topic = 'orders' "+
		"AND details ->> 'note' = 'known' AND details ->> 'until' > ''"))
	tn.Succeed(t, sub)
	require.Equal(t, 1, tn.ObserveProblems(t, 4*time.Minute), "the end of a beginning that was notified")
	tn.Fail(t, sub, 1)
	require.Zero(t, tn.ObserveProblems(t, 2*time.Minute))
	problemState(t, tn, "acknowledged")
	require.Equal(t, 1, tn.ObserveProblems(t, 58*time.Minute))
	problemState(t, tn, "failing")
	require.Len(t, problemNotices(t, tn, 0), 3)
	for _, until := range []string{"-1 minute", "31 days"} {
		require.Contains(t, tn.RejectedBy(t, "SELECT postrider.acknowledge_problem(problem_id, now() + $1::interval) "+
			"FROM postrider.problems", until), "until must be in the next 30 days")
	}
}

// A resolved problem stays so, also if the result of an earlier attempt arrives, until an attempt fails.
func TestResolvedProblemFailsAgain(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	tn.SubscribeToNotices(t)
	sub := tn.Subscribe(t, "orders", "billing", nil)
	tn.Fail(t, sub, 1)
	require.Equal(t, 1, tn.ObserveProblems(t, 2*time.Minute))
	first := problemState(t, tn, "failing")
	require.Equal(t, "resolved",
		tn.Text(t, "SELECT postrider.resolve_problem(problem_id, 'fixed') FROM postrider.problems"))
	require.Equal(t, 1, tn.Rows(t, "audit", "action = 'problem_resolved' AND details ->> 'note' = 'fixed'"))
	require.Zero(t, tn.ObserveProblems(t, 0))
	tn.Fail(t, sub, 1)
	tn.Exec(t, "UPDATE postrider_internal.delivery_attempts SET started_at = $1::timestamptz + interval '1 us' "+
		"WHERE started_at > (SELECT resolved_at FROM postrider.problems)", first)
	require.Zero(t, tn.ObserveProblems(t, 0), "the attempt began before the resolution")
	problemState(t, tn, "resolved")
	ended := problemNotices(t, tn, 1)
	require.Len(t, ended, 1)
	require.Equal(t, []any{"postrider.problem.ended", "resolved", nil}, []any{
		ended[0].Type, ended[0].Data["reason"], ended[0].Data["recoveredAt"],
	})
	tn.Fail(t, sub, 1)
	tn.ObserveProblems(t, 0)
	require.True(t, problemState(t, tn, "failing").After(first))
	require.Equal(t, 1, tn.ObserveProblems(t, 2*time.Minute))
	require.Equal(t, 1, tn.Rows(t, "problems", "note IS NULL AND resolved_by IS NULL"))
	require.Contains(t, tn.RejectedBy(t, "SELECT postrider.resolve_problem(gen_random_uuid())"), "does not exist")
}

// Problems of postrider.system are stored and not notified. Ended ones are removed after 7 days, those of a deleted
// event subscription at once.
func TestProblemsAreRemoved(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	system := tn.SubscribeToNotices(t)
	sub := tn.Subscribe(t, "orders", "billing", nil)
	tn.Fail(t, system, 1)
	require.Zero(t, tn.ObserveProblems(t, 2*time.Minute))
	require.Equal(t, 1, tn.Rows(t, "problems", "topic = 'postrider.system'"))
	tn.Exec(t, "SELECT postrider.resolve_problem(problem_id) FROM postrider.problems")
	tn.Exec(t, "UPDATE postrider_internal.problems SET resolved_at = now() - interval '167 hours'")
	tn.Fail(t, sub, 1)
	require.Equal(t, 1, tn.ObserveProblems(t, 2*time.Minute))
	clean := func(left int) {
		require.NoError(t, tn.System.Maintenance.Clean(t.Context()))
		require.Equal(t, left, tn.Count(t, "SELECT count(*) FROM postrider_internal.problems"))
	}
	clean(2)
	tn.Exec(t, "UPDATE postrider_internal.problems SET resolved_at = resolved_at - interval '2 hours'")
	clean(1)
	require.NoError(t, tn.System.Subscriptions.Delete(t.Context(), "orders", "billing"))
	clean(1)
	tn.MergeRollups(t)
	tn.Exec(t, "DELETE FROM postrider_internal.rollups")
	require.Equal(t, 1, tn.ObserveProblems(t, 0), "its end is notified")
	clean(0)
}
