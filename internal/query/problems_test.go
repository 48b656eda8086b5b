package query_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/query"
	"postrider/internal/testnode"
)

// The last failure is the newest one of the span and the first one the oldest, before and after the counts are merged,
// also of an event subscription that was created anew. The example is the newest failed attempt, also if its delivery
// has ended.
func TestProblems(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	now := testnode.Value[time.Time](t, tn, "SELECT date_trunc('minute', now())")
	oldest := now.Add(-5 * time.Hour)
	failures := func(from, to time.Time) {
		tn.Exec(t, `WITH minutes AS (INSERT INTO postrider_internal.rollups (minute, topic_id, subscription_id, kind, detail,
			    count)
			SELECT m, topic_id, id, 'attempt', 'Busy', 1
			  FROM postrider_internal.event_subscriptions, generate_series($1::timestamptz, $2, '7 minutes') m
			 WHERE deleted_at IS NULL RETURNING *)
			INSERT INTO postrider_internal.rollup_sums (span, begins, topic_id, subscription_id, kind, detail, count)
			SELECT 60, date_trunc('hour', minute), topic_id, subscription_id, kind, detail, count(*) FROM minutes
			 GROUP BY 2, 3, 4, 5, 6`, from, to)
	}
	tn.Subscribe(t, "orders", "billing", nil)
	failures(oldest, now.Add(-4*time.Hour))
	require.NoError(t, tn.System.Subscriptions.Delete(t.Context(), "orders", "billing"))
	for _, span := range []time.Duration{24 * time.Hour, 5*time.Hour + 30*time.Minute} {
		found, err := tn.System.Reader.ReadProblems(t.Context(), query.ProblemFilter{}, span)
		require.NoError(t, err)
		require.Empty(t, found, "a deleted event subscription has no problems")
	}
	sub := tn.Subscribe(t, "orders", "billing", nil)
	failures(now.Add(-3*time.Hour), now.Add(-time.Hour))
	read := func() (p query.Problem) {
		for _, span := range []time.Duration{24 * time.Hour, 5*time.Hour + 30*time.Minute} {
			found, err := tn.System.Reader.ReadProblems(t.Context(), query.ProblemFilter{Topic: "orders"}, span)
			require.NoError(t, err)
			require.Len(t, found, 1)
			p = found[0]
			require.Equal(t, oldest.UTC(), p.First.UTC(), span)
		}
		return p
	}
	require.Equal(t, now.Add(-time.Hour-time.Minute).UTC(), read().Last.UTC())
	deliveries := tn.Fail(t, sub, 2)
	require.False(t, read().Last.Before(now))
	tn.MergeRollups(t)
	require.False(t, read().Last.Before(now))
	pending := read()
	require.NotNil(t, pending.NextAttempt)
	require.Equal(t, []int64{0, 2}, pending.RecentFailures[10:])
	tn.ObserveProblems(t, 0)
	require.Equal(t, pending.RecentFailures, read().RecentFailures, "once observed")
	tn.Pause(t, "orders", "billing")
	paused := read()
	require.Equal(t, "paused", *paused.Hold)
	require.Nil(t, paused.NextAttempt, "its deliveries wait for the event subscription")
	for range 2 {
		problem := read()
		require.Equal(t, deliveries[1], *problem.DeliveryID)
		require.Equal(t, "it broke", *problem.Error)
		require.Equal(t, "busy", *problem.Response)
		require.Equal(t, 503, *problem.Status)
		tn.Exec(t, "SELECT postrider.cancel(delivery_id) FROM postrider.deliveries WHERE state = 'pending'")
	}
	ended := read()
	require.Zero(t, ended.Waiting)
	require.Nil(t, ended.NextAttempt, "none is pending")
}

// Open dead letters are counted up to 1,000: each of the 100 problems of a list has its own.
func TestProblemsCountFewDeadLetters(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	sub := tn.Subscribe(t, "orders", "billing", nil)
	tn.Fail(t, sub, 1)
	tn.DeadLetters(t, "orders", "e", 1)
	open := func() int {
		found, err := tn.System.Reader.ReadProblems(t.Context(), query.ProblemFilter{Topic: "orders"}, time.Hour)
		require.NoError(t, err)
		require.NotEmpty(t, found)
		return found[0].OpenDeadLetters
	}
	require.Less(t, open(), 3)
	columns := tn.Text(t, `SELECT string_agg(column_name, ', ') FROM information_schema.columns
		WHERE table_schema = 'postrider_internal' AND table_name = 'dead_letters' AND is_generated = 'NEVER'
		  AND column_name <> 'id'`)
	tn.Exec(t, "INSERT INTO postrider_internal.dead_letters (id, "+columns+") SELECT gen_random_uuid(), "+columns+
		" FROM postrider_internal.dead_letters, generate_series(1, 1100)")
	require.Equal(t, 1000, open())
}
