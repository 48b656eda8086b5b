package export_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/endpointconf"
	"postrider/internal/event"
	"postrider/internal/postgres"
	"postrider/internal/query"
	"postrider/internal/testnode"
	"postrider/jobs"
	"postrider/jobs/export"
	"postrider/jobs/queue"
	"postrider/policy"
)

const exportJobs = "SELECT count(*) FROM postrider_internal.river_job WHERE kind = 'export' AND queue = 'exports' " +
	"AND state = 'available'"

// exporting is a node with n dead letters of one event subscription, whose export has begun.
func exporting(t *testing.T, n int) *testnode.Node {
	t.Helper()
	tn := testnode.WithTopic(t)
	tn.Bury(t, tn.Subscribe(t, "orders", "all", testnode.Outside), n)
	tn.AfterExportDelay(t)
	tn.ClaimExports(t, 1)
	return tn
}

// When a dead letter is due, and until when it is tried, is the policy's. One that stays here has neither.
func TestDeadLetterIsMarkedForItsExport(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	for _, name := range []string{"ga-2018", "ga-2019", "ga-2021", "namespace-2023", "ga-2026"} {
		sub := tn.Subscribe(t, "orders", name,
			func(s *catalog.SubscriptionSpec) { testnode.Outside(s); s.RetryPolicy.Policy = name })
		tn.Bury(t, sub, 1)
		require.NoError(t, tn.System.Subscriptions.Delete(t.Context(), "orders", name))
	}
	sub := tn.Subscribe(t, "orders", "rows", func(s *catalog.SubscriptionSpec) {
		s.DeadLetterDestination = &catalog.DeadLetterDestination{EndpointType: catalog.DeadLetterRows}
	})
	tn.Bury(t, sub, 1)

	require.Equal(t,
		"ga-2018 00:00:00 00:00:00,ga-2019 00:05:00 04:00:00,ga-2021 00:05:00 04:00:00,ga-2026 00:05:00 04:00:00,"+
			"namespace-2023 00:05:00 04:00:00",
		tn.Text(t, `SELECT string_agg(format('%s %s %s', subscription, export_due_at - last_attempt_at,
			    export_abandon_at - export_due_at), ',' ORDER BY subscription)
			FROM postrider.dead_letters WHERE export_state = 'pending' AND export_attempts = 0`))
	require.Equal(t, 1, tn.Rows(t, "dead_letters",
		"subscription = 'rows' AND num_nonnulls(export_state, export_due_at, export_abandon_at, export_attempts) = 0"))
}

// What never was attempted counts from the moment it was dead-lettered.
func TestDeadLetterWithoutAnAttemptIsMarked(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	sub := tn.Subscribe(t, "orders", "all", testnode.Outside)
	tn.Publish(t, "orders", "e", 1)
	d, j := tn.Fetch(t, "node-1")
	r := testnode.Result(d[0], j[0], sub, policy.Verdict{
		Action: policy.DeadLetter,
		Reason: policy.ReasonTimeToLiveExceeded,
	})
	r.Number, r.StartedAt, r.Status, r.Outcome = 0, time.Time{}, 0, ""
	tn.Record(t, r)
	require.Equal(t, 1, tn.Rows(t, "dead_letters",
		"export_due_at - dead_lettered_at = interval '5 minutes' AND last_attempt_at IS NULL"))
}

func TestNothingIsExportedEarly(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	sub := tn.Subscribe(t, "orders", "all", testnode.Outside)
	tn.Bury(t, sub, 2)
	tn.ClaimExports(t, 0)
	tn.AfterExportDelay(t)
	tn.Exec(t,
		"UPDATE postrider_internal.dead_letters SET export_due_at = now() + interval '1 minute' WHERE event_id LIKE '%-1'")
	tn.ClaimExports(t, 1)
	x, _ := tn.LoadExport(t)
	require.Len(t, x.DeadLetters, 1)
	require.Equal(t, 1, tn.Count(t, exportJobs))
}

func TestExportContainsDueDeadLetters(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	sub := tn.Subscribe(t, "orders", "Billing", testnode.Outside)
	tn.Bury(t, sub, 3)
	require.NoError(t, tn.System.Subscriptions.Delete(t.Context(), "orders", "Billing"))
	require.NoError(t, tn.System.Topics.Delete(t.Context(), "orders"))
	tn.AfterExportDelay(t)
	tn.ClaimExports(t, 1)
	tn.ClaimExports(t, 0)
	x, job := tn.LoadExport(t)
	require.Equal(t, &endpointconf.DeadLetterProperties{URL: "file:///nowhere"}, x.Destination)
	require.Len(t, x.DeadLetters, 3)
	require.Equal(t, event.EventGrid, x.DeadLetters[0].Delivery)
	require.Equal(t, "MaxDeliveryAttemptsExceeded", x.DeadLetters[0].Reason)
	at := x.CreatedAt.UTC()
	require.Equal(t,
		fmt.Sprintf("BILLING/%d/%d/%d/%d/%s.json", at.Year(), at.Month(), at.Day(), at.Hour(), x.File), x.Path())
	require.ErrorIs(t, testnode.ErrorOf(tn.System.Exports.LoadExport(t.Context(), x.ID, job+1)), postgres.ErrNotFound)

	require.Equal(t, export.Exported{},
		tn.RecordExport(t, export.Result{Job: job + 1, Export: x, Location: "file:///there"}), "a job of no export")
	lost := *x
	lost.CreatedAt = x.CreatedAt.Add(-time.Second)
	require.Equal(t, export.Exported{}, tn.RecordExport(t, export.Result{
		Job: job, Export: &lost,
		Location: "file:///there",
	}), "of an export that a failover lost, whose ids this one has")
	require.Equal(t, export.Exported{Written: 3},
		tn.RecordExport(t, export.Result{Job: job, Export: x, Location: "file:///there"}))
	require.Equal(t, export.Exported{},
		tn.RecordExport(t, export.Result{Job: job, Export: x, Location: "file:///again"}), "it is over")
	require.Equal(t, 3, tn.Rows(t, "dead_letters", "export_state = 'exported' AND exported_at IS NOT NULL "+
		"AND export_location = 'file:///there' AND export_attempts = 1 AND export_error IS NULL"))
	require.Zero(t, tn.Exports(t, ""))
	require.Zero(t, tn.Jobs(t, "kind = 'export'"))
	require.Zero(t, tn.Count(t, "SELECT count(*) FROM postrider_internal.dead_letters WHERE export_id IS NOT NULL"))
}

// One event subscription has one export at a time: the next is there as soon as it is over.
func TestExportsAreBoundedAndOneAtATime(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	sub, other := tn.Subscribe(t, "orders", "all", testnode.Outside), tn.Subscribe(t, "orders", "other", testnode.Outside)
	tn.Bury(t, sub, 1)
	const more = `jsonb_build_object('event_id', 'copy', 'subscription_id', $1::bigint, 'export_due_at',
		l.export_due_at - i * interval '1 second')`
	tn.CopyDeadLetters(t, more, 1100, sub.ID)
	tn.CopyDeadLetters(t, more, 3, other.ID)
	tn.Exec(t, "UPDATE postrider_internal.dead_letters SET body = convert_to(repeat('x', 3000000), 'UTF8') "+
		"WHERE subscription_id = $1", other.ID)
	tn.Exec(t, "UPDATE postrider_internal.dead_letters SET export_due_at = export_due_at - interval '1 hour'")
	tn.ClaimExports(t, 2)
	tn.ClaimExports(t, 0)
	require.Equal(t, "1000,2", tn.Text(t, "SELECT string_agg(n::text, ',' ORDER BY n DESC) FROM (SELECT count(*) AS n "+
		"FROM postrider_internal.dead_letters WHERE export_id IS NOT NULL GROUP BY export_id) l"))
	require.Zero(t, tn.Count(t, `SELECT count(*) FROM postrider_internal.dead_letters w, postrider_internal.dead_letters t
		WHERE w.export_id IS NULL AND t.export_id IS NOT NULL
		AND w.subscription_id = t.subscription_id AND w.export_due_at < t.export_due_at`), "the oldest first")
	tn.Exec(t, "DELETE FROM postrider_internal.river_job WHERE kind = 'export'")
	tn.Exec(t,
		"UPDATE postrider_internal.dead_letters SET export_state = 'exported', export_id = NULL WHERE export_id IS NOT NULL")
	tn.Exec(t, "DELETE FROM postrider_internal.exports")
	tn.Exec(t, "UPDATE postrider_internal.dead_letters SET body = convert_to(repeat('x', 9000000), 'UTF8') "+
		"WHERE subscription_id = $1", other.ID)
	tn.ClaimExports(t, 2)
	require.Equal(t, 1, tn.Count(t, "SELECT count(*) FROM postrider_internal.dead_letters WHERE export_id IS NOT NULL "+
		"AND subscription_id = $1", other.ID), "what is larger than a file goes alone")
}

func TestFailedExportIsRetriedUntilItsWindowEnds(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	sub := tn.Subscribe(t, "orders", "all", testnode.Outside)
	tn.Bury(t, sub, 2)
	tn.AfterExportDelay(t)
	tn.Exec(t, "UPDATE postrider_internal.dead_letters SET export_abandon_at = now() + interval '3 seconds' "+
		"WHERE event_id LIKE '%-0'")
	tn.ClaimExports(t, 1)
	for tries, pause := range []string{"00:00:01", "00:00:02"} {
		x, job := tn.LoadExport(t)
		require.Equal(t, tries, x.Tries)
		require.Equal(t, export.Exported{Pending: 2},
			tn.RecordExport(t, export.Result{Job: job, Export: x, Error: "no\x00 space"}))
		require.Equal(t, 1, tn.Count(t, exportJobs))
		require.Equal(t, 2, tn.Rows(t, "dead_letters",
			"export_state = 'pending' AND export_error = 'no space' AND export_attempts = $1", tries+1))
		require.Equal(t, 1, tn.Jobs(t, "id = (SELECT job_id FROM postrider_internal.exports) "+
			"AND scheduled_at BETWEEN now() + $1::interval - interval '1 second' AND now() + $1::interval", pause))
	}
	x, job := tn.LoadExport(t)
	tn.RecordExport(t, export.Result{Job: job, Export: x, Error: "no space"})
	require.Equal(t, 1,
		tn.Count(t, "SELECT count(*) FROM postrider_internal.river_job j JOIN postrider_internal.dead_letters l "+
			"ON j.scheduled_at = l.export_abandon_at WHERE j.kind = 'export'"), "once more at the end of that time")

	tn.Bury(t, sub, 1)
	tn.AfterExportDelay(t)
	tn.ClaimExports(t, 0) // what comes later waits
	tn.Exec(t, "UPDATE postrider_internal.dead_letters SET export_abandon_at = now() - interval '1 second' "+
		"WHERE export_abandon_at < now() + interval '1 hour'")
	x, job = tn.LoadExport(t)
	require.Equal(t, export.Exported{Abandoned: 1, Pending: 1},
		tn.RecordExport(t, export.Result{Job: job, Export: x, Error: "no space"}))
	require.Equal(t, 1, tn.Rows(t, "dead_letters", "export_state = 'abandoned' AND export_attempts = 4 "+
		"AND exported_at IS NULL AND body IS NOT NULL AND export_error = 'no space'"))
	require.Equal(t, 3, tn.Rows(t, "deliveries", "state = 'dead_lettered'"), "a delivery ends once")
	x, job = tn.LoadExport(t)
	require.Len(t, x.DeadLetters, 1)
	tn.SubscribeToNotices(t)
	require.Equal(t, export.Exported{Abandoned: 1},
		tn.RecordExport(t, export.Result{Job: job, Export: x, Error: "never", Final: true}))
	require.Equal(t, 1, tn.Notices(t, "type = 'postrider.deadLetter.exportAbandoned' AND reason = 'never'"))
	require.Zero(t, tn.Exports(t, ""))
	tn.ClaimExports(t, 1)
}

// A dead letter that cannot be written does not block the others.
func TestExportLeavesOutInvalidDeadLetters(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	tn.SubscribeToNotices(t)
	sub := tn.Subscribe(t, "orders", "all", testnode.Outside)
	tn.Bury(t, sub, 2)
	tn.AfterExportDelay(t)
	tn.ClaimExports(t, 1)
	x, job := tn.LoadExport(t)
	done := tn.RecordExport(t, export.Result{
		Job: job, Export: x, Location: "file:///there", Unfit: map[uuid.UUID]string{x.DeadLetters[0].ID: "no object"},
	})
	require.Equal(t, export.Exported{Written: 1, Abandoned: 1}, done)
	require.Equal(t, 1, tn.Rows(t, "dead_letters", "dead_letter_id = $1 AND export_state = 'abandoned' "+
		"AND export_error = 'no object' AND export_location IS NULL", [16]byte(x.DeadLetters[0].ID)))
	require.Equal(t, 1, tn.Notices(t, "type = 'postrider.deadLetter.exportAbandoned' AND dead_letters = ARRAY "+
		"[$1::uuid] AND reason = 'no object'", [16]byte(x.DeadLetters[0].ID)), "operators are notified")
}

// The setting counts as it is when a file is written; a dead letter that was purged is in none.
func TestExportFollowsTheSetting(t *testing.T) {
	t.Parallel()
	tn := exporting(t, 2)
	tn.Exec(t, "DELETE FROM postrider_internal.dead_letters WHERE event_id LIKE '%-0'")
	azure := &endpointconf.DeadLetterProperties{ResourceID: "/subscriptions/x", BlobContainerName: "dead"}
	tn.Subscribe(t, "orders", "all", func(s *catalog.SubscriptionSpec) {
		s.DeadLetterDestination = &catalog.DeadLetterDestination{
			EndpointType: catalog.DeadLetterStorageBlob, Properties: azure,
		}
	})
	x, _ := tn.LoadExport(t)
	require.Equal(t, azure, x.Destination)
	require.Len(t, x.DeadLetters, 1)
	tn.Subscribe(t, "orders", "all", func(s *catalog.SubscriptionSpec) {
		s.DeadLetterDestination = &catalog.DeadLetterDestination{EndpointType: catalog.DeadLetterRows}
	})
	x, _ = tn.LoadExport(t)
	require.Nil(t, x.Destination)
	tn.Exec(t, "DELETE FROM postrider_internal.dead_letters")
	x, job := tn.LoadExport(t)
	require.Empty(t, x.DeadLetters)
	require.Equal(t, export.Exported{}, tn.RecordExport(t, export.Result{Job: job, Export: x}))
	require.Zero(t, tn.Exports(t, ""))
}

func TestExportOfALostNodeIsRepeated(t *testing.T) {
	t.Parallel()
	tn := exporting(t, 1)
	before, job := tn.LoadExport(t)
	tn.Exec(t, "UPDATE postrider_internal.river_job SET state = 'running', attempted_at = now(), attempted_by = '{dead}'")
	require.Equal(t, 1, tn.Reclaim(t))
	after, again := tn.LoadExport(t)
	require.NotEqual(t, job, again, "a new row")
	require.Equal(t, before.Path(), after.Path(), "and the same file")
	require.Equal(t, export.Exported{}, tn.RecordExport(t, export.Result{
		Job: job, Export: before,
		Location: "file:///there",
	}), "the dead node comes back")

	tn.Exec(t, "UPDATE postrider_internal.river_job SET state = 'running', attempted_at = now(), attempted_by = "+
		"'{node-1}'")
	n, err := tn.System.JobRows.Defer(t.Context(), []queue.Deferred{{Job: again, After: 2 * time.Second}})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, 1, tn.Count(t, exportJobs+" AND scheduled_at > now()"))
}

func TestSweeperRepairsExports(t *testing.T) {
	t.Parallel()
	tn := exporting(t, 2)
	require.Equal(t, jobs.Swept{}, tn.Sweep(t))
	tn.Exec(t, "DELETE FROM postrider_internal.river_job")
	require.Equal(t, jobs.Swept{}, tn.Sweep(t), "what was touched a moment ago is left alone")
	tn.Exec(t, "UPDATE postrider_internal.exports SET created_at = now() - interval '2 minutes'")
	require.Equal(t, jobs.Swept{Repaired: 1}, tn.Sweep(t))
	require.Equal(t, 1, tn.Count(t, exportJobs))
	tn.Exec(t, "DELETE FROM postrider_internal.exports")
	require.Equal(t, jobs.Swept{Repaired: 2}, tn.Sweep(t))
	tn.ClaimExports(t, 1)
}

func TestRetentionKeepsDeadLettersBeforeTheirExport(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	tn.Bury(t, tn.Subscribe(t, "orders", "all", testnode.Outside), 2)
	tn.Exec(t, "UPDATE postrider_internal.dead_letters SET dead_lettered_at = now() - interval '9 days'")
	tn.Exec(t, "UPDATE postrider_internal.dead_letters SET export_state = 'abandoned' WHERE event_id LIKE '%-1'")
	require.NoError(t, tn.System.Maintenance.Retain(t.Context(), query.Retention{DeadLettersDays: 3}))
	require.Equal(t, 1, tn.Rows(t, "dead_letters", ""))
}

func TestEachDeadLetter(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	tn.Bury(t, sub, 3)
	tn.CopyDeadLetters(t, `jsonb_build_object('event_id', 'many', 'dead_lettered_at',
		l.dead_lettered_at - (i % 7) * interval '1 second', 'reason', CASE i % 2 WHEN 0 THEN 'A' ELSE 'B' END)`, 1200)
	read := func(f query.StoredDeadLetterFilter) (n int) {
		if f.Until.IsZero() {
			f.Until = tn.System.Clock.Now().Add(time.Hour)
		}
		var last query.StoredDeadLetter
		for more := true; more; { // in steps of 500
			before := n
			require.NoError(t, query.EachDeadLetter(t.Context(), tn.Pool, f, 500, func(l *query.StoredDeadLetter) error {
				require.False(t, l.DeadLetteredAt.Before(last.DeadLetteredAt), "the oldest first")
				require.True(t, strings.HasPrefix(string(l.Body), `{"id":`))
				n, last = n+1, *l
				f.After = query.DeadLetterPlace{DeadLetteredAt: l.DeadLetteredAt, DeadLetterID: l.ID}
				return nil
			}))
			more = n == before+500
		}
		return n
	}
	require.Equal(t, 1203, read(query.StoredDeadLetterFilter{}))
	require.Equal(t, 600, read(query.StoredDeadLetterFilter{Reason: "A", Topic: "orders", Subscription: "all"}))
	require.Zero(t, read(query.StoredDeadLetterFilter{Topic: "other"}))
	require.Zero(t, read(query.StoredDeadLetterFilter{Subscription: "other"}))
	newest := testnode.Value[time.Time](t, tn, "SELECT max(dead_lettered_at) FROM postrider.dead_letters")
	require.Equal(t, 1, read(query.StoredDeadLetterFilter{From: newest}))
	require.Equal(t, 1202, read(query.StoredDeadLetterFilter{Until: newest}))
	require.ErrorIs(t,
		query.EachDeadLetter(t.Context(), tn.Pool, query.StoredDeadLetterFilter{Until: tn.System.Clock.Now().Add(time.Hour)},
			1,
			func(*query.StoredDeadLetter) error { return context.Canceled }), context.Canceled)
}
