package query_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/endpointconf"
	"postrider/internal/node"
	"postrider/internal/postgres"
	"postrider/internal/query"
	"postrider/internal/testnode"
	"postrider/jobs/export"
	"postrider/policy"
)

// totals are what a meter has counted, by topic, event subscription, kind and detail.
func totals(t *testing.T, m *query.Meter) (map[[4]string]int64, *query.Reading) {
	t.Helper()
	r, err := m.Read(t.Context())
	require.NoError(t, err)
	counts := map[[4]string]int64{}
	for _, total := range r.Totals {
		key := [4]string{total.Topic, total.Subscription, total.Kind, total.Detail}
		require.NotContains(t, counts, key, "one of each")
		counts[key] = total.Count
	}
	return counts, r
}

// Each minute is counted once, whether it is over, may still be added to, or was over before the first read; merged or
// not.
func TestMeterCountsEachMinuteOnce(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	sub := tn.Subscribe(t, "orders", "billing", nil)
	tn.Publish(t, "orders", "before", 3)
	tn.Exec(t,
		`UPDATE postrider_internal.rollup_deltas SET entries = ARRAY (SELECT ROW (minute - interval '1 hour', topic_id,
			    subscription_id, kind, detail, bucket, count, NULL)::postrider_internal.rollup_entry FROM unnest(entries))`)
	tn.MergeRollups(t)

	meter := query.NewMeter(tn.System.DB)
	meter.ForgetReading()
	counts, _ := totals(t, meter)
	require.Empty(t, counts, "what was before the process began is not its own to count")

	want := map[[4]string]int64{}
	for range 3 {
		tn.Publish(t, "orders", "e", 2)
		want[[4]string{"orders", "", "published", ""}] += 2
		want[[4]string{"orders", "billing", "matched", ""}] += 2
		for range 2 { // appended, then merged
			meter.ForgetReading()
			counts, _ = totals(t, meter)
			require.Equal(t, want, counts)
			tn.MergeRollups(t)
		}
		meter.Elapse(3 * time.Minute) // as if all that was three minutes ago
		// In one step, a row could meet another one that moves later.
		for _, shift := range []string{"-8760 hours -3 minutes", "8760 hours"} {
			tn.Exec(t, "UPDATE postrider_internal.rollups SET minute = minute + interval '"+shift+"'")
		}
	}

	d, j := tn.Fetch(t, "node-1")
	r := testnode.Result(d[0], j[0], sub, policy.Verdict{Action: policy.Delivered})
	tn.Record(t, r)
	meter.ForgetReading()
	counts, reading := totals(t, meter)
	want[[4]string{"orders", "billing", "delivered", "FirstAttempt"}] = 1
	want[[4]string{"orders", "billing", "attempt", string(r.Outcome)}] = 1
	require.Equal(t, want, counts)
	require.Len(t, reading.Backlogs, 1)
	require.Equal(t, int64(8), reading.Backlogs[0].Pending, "also what was before")
	require.Equal(t, int64(8), reading.Vitals.PendingDeliveries)
	require.Positive(t, reading.Vitals.OldestPendingSeconds)
	require.Contains(t, []int{1, 2}, reading.Vitals.PartitionDays, "1 right after midnight")
	require.Positive(t, reading.Vitals.DatabaseBytes)
}

// However many readers there are, the database is queried once per interval; an error is kept as long.
func TestMeterLimitsItsQueries(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	meter := query.NewMeter(tn.System.DB)
	first, err := meter.Read(t.Context())
	require.NoError(t, err)
	tn.Publish(t, "orders", "e", 1)
	second, err := meter.Read(t.Context())
	require.NoError(t, err)
	require.Same(t, first, second)
	meter.ForgetReading()
	third, err := meter.Read(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, first.Totals, third.Totals)
}

// A catalog that grows without end must not: what comes too late is counted for all others together, and nothing
// twice.
func TestMeterLimitsItsLabels(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	meter := query.NewMeter(tn.System.DB)
	meter.LimitKeys(3)
	for i := range 5 {
		tn.Subscribe(t, "orders", fmt.Sprint("billing-", i), nil)
	}
	for i := range 2 {
		tn.Publish(t, "orders", "e", 1)
		meter.ForgetReading()
		counts, _ := totals(t, meter)
		require.LessOrEqual(t, len(counts), 5,
			"three of their own, published or matched, and the others of either kind at most")
		var matched int64
		for key, n := range counts {
			if key[2] == "matched" {
				matched += n
			}
		}
		require.Equal(t, int64(5*(i+1)), matched)
		require.GreaterOrEqual(t, counts[[4]string{query.Others, query.Others, "matched", ""}], int64(2*(i+1)))
	}
}

// Stats count what the transactions of this node hold.
func TestStatsCountTransactions(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	sub := tn.Subscribe(t, "orders", "billing", nil)
	d, j := tn.Started(t, "orders", "e", 7)
	tn.Record(t, testnode.Result(d[0], j[0], sub, policy.Verdict{Action: policy.Delivered}))
	publishes, records := tn.System.Publisher.PublishCounters(), tn.System.Recorder.RecorderCounters()
	require.Equal(t, int64(7), publishes.Groups.Sum)
	require.Equal(t, int64(1), records.Flushes.Sum)
	require.Positive(t, publishes.Time.Sum)
	require.Positive(t, records.Time.Sum)
	require.Zero(t, records.Failures+tn.System.Maintenance.Repairs()+publishes.Waiting+publishes.WaitingBytes+
		records.Waiting)
	n, err := tn.System.JobRows.Reclaim(t.Context(), []int64{j[1].JobID, j[2].JobID})
	require.NoError(t, err)
	require.Equal(t, int64(n), tn.System.JobRows.JobCounters().Reclaimed)
}

// The row of the last node stays when it is killed: it must not count as a node that delivers.
func TestMeterCountsNodesThatLive(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	for _, name := range []string{"a", "b"} {
		s := tn.Beside(t, node.Options{Node: name}).System
		require.NoError(t, s.Nodes.Register(t.Context(), "host"))
	}
	meter := query.NewMeter(tn.System.DB)
	_, r := totals(t, meter)
	require.Equal(t, 2, r.Vitals.Nodes)
	require.Less(t, r.Vitals.OldestBeatSeconds, 3600.0)
	for left := 1; left >= 0; left-- {
		tn.Exec(t, "UPDATE postrider_internal.nodes SET beat_at = beat_at - interval '1 hour' WHERE id = $1",
			[]string{"a", "b"}[left])
		meter.ForgetReading()
		_, r = totals(t, meter)
		require.Equal(t, left, r.Vitals.Nodes)
		require.GreaterOrEqual(t, r.Vitals.OldestBeatSeconds, 3600.0,
			"the age of its heartbeat is reported as long as its row exists")
	}
}

// That everybody waits for a connection does not look like a database that is away.
func TestMeterReadsWhileThePoolIsBusy(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(context.Context, string, int) (*pgxpool.Pool, error){
		"PostgreSQL itself": postgres.OpenPool, "the way through PgBouncer": postgres.OpenPoolThroughPgBouncer,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, s, pool, _ := testnode.Leasing(t, open)
			busy, err := pool.Acquire(t.Context())
			require.NoError(t, err)
			defer busy.Release()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			r, err := query.NewMeter(s.DB).Read(ctx)
			require.NoError(t, err)
			require.Positive(t, r.Vitals.DatabaseBytes)

			gone, cancel := context.WithCancel(t.Context())
			cancel()
			_, err = query.NewMeter(s.DB).Read(gone)
			require.ErrorIs(t, err, context.Canceled)
		})
	}
}

func TestMeterCountsExports(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	sub := tn.Subscribe(t, "orders", "all", testnode.Outside)
	tn.Bury(t, sub, 2)
	meter := query.NewMeter(tn.System.DB)
	unexported := func(count int64, oldest float64) {
		t.Helper()
		meter.ForgetReading()
		_, r := totals(t, meter)
		require.Equal(t, count, r.Vitals.UnexportedDeadLetters)
		require.InDelta(t, oldest, r.Vitals.OldestExportSeconds, 60)
	}
	unexported(2, 0)
	tn.AfterExportDelay(t)
	tn.ClaimExports(t, 1)
	tn.Exec(t, "UPDATE postrider_internal.exports SET created_at = now() - interval '1 hour'")
	unexported(2, 3600)
	x, job := tn.LoadExport(t)
	tn.RecordExport(t, export.Result{Job: job, Export: x, Error: "no space"})
	unexported(2, 3600)
	require.Zero(t, tn.System.Exports.ExportCounters().Abandoned)
	x, job = tn.LoadExport(t)
	tn.RecordExport(t, export.Result{
		Job: job, Export: x, Location: "file:///there", Unfit: map[uuid.UUID]string{x.DeadLetters[0].ID: "no object"},
	})
	unexported(0, 0)
	require.Equal(t, export.ExportCounters{Written: 1, Abandoned: 1}, tn.System.Exports.ExportCounters())
}

func TestMeterReadsRates(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	tn.Subscribe(t, "orders", "billing", func(s *catalog.SubscriptionSpec) {
		s.DeliveryRate = &endpointconf.DeliveryRate{Limit: 1, PeriodInSeconds: new(86_400)}
	})
	tn.Publish(t, "orders", "e", 3)
	r, err := query.NewMeter(tn.System.DB).Read(t.Context())
	require.NoError(t, err)
	require.Len(t, r.Rates, 1)
	require.Equal(t, "billing", r.Rates[0].Subscription)
	require.InEpsilon(t, 1.0/86_400, *r.Rates[0].Own, 0.001)
	require.True(t, r.Rates[0].TooLate)
	require.Greater(t, *r.Rates[0].DrainSeconds, 86_400.0)
}

// Failing problems count until they are acknowledged, and open dead letters until they are resolved.
func TestMeterCountsProblemsAndOpenDeadLetters(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	sub := tn.Subscribe(t, "orders", "billing", nil)
	mail := tn.Subscribe(t, "orders", "mail", nil)
	read := func() *query.Reading {
		r, err := query.NewMeter(tn.System.DB).Read(t.Context())
		require.NoError(t, err)
		return r
	}
	require.Empty(t, read().Problems)
	require.Empty(t, read().DeadLetters)
	tn.DeadLetters(t, "orders", "e", 3)
	tn.Exec(t, "DELETE FROM postrider_internal.rollup_deltas")
	require.Equal(t, []query.MeteredDeadLetters{{"orders", sub.Name, 3}, {"orders", mail.Name, 3}}, read().DeadLetters)
	tn.Exec(t, "SELECT postrider.resolve(dead_letter_id) FROM postrider.dead_letters WHERE subscription = 'billing'")
	require.Equal(t, []query.MeteredDeadLetters{{"orders", mail.Name, 3}}, read().DeadLetters)
	tn.Exec(t, `INSERT INTO postrider_internal.problems (id, subscription_id, outcome, since, last_failed_at)
		SELECT postrider_internal.problem_id($1, o), $1, o, now(), now() FROM unnest('{Busy,TimedOut}'::text[]) o`, sub.ID)
	require.Equal(t, []query.MeteredProblems{{"orders", "billing", 2}}, read().Problems)
	tn.Exec(t, "SELECT postrider.acknowledge_problem(problem_id, now() + interval '1 hour') FROM postrider.problems "+
		"WHERE outcome = 'Busy'")
	require.Equal(t, []query.MeteredProblems{{"orders", "billing", 1}}, read().Problems)
	tn.Exec(t, "SELECT postrider.resolve_problem(problem_id) FROM postrider.problems")
	require.Equal(t, []query.MeteredProblems{{"orders", "billing", 0}}, read().Problems)
}
