package testnode

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/policy"
)

// ObserveProblems merges the counts, moves what happened into the past and observes the problems.
func (tn *Node) ObserveProblems(t testing.TB, later time.Duration) (changed int) {
	t.Helper()
	tn.MergeRollups(t)
	tn.Exec(t, `WITH attempts AS (UPDATE postrider_internal.delivery_attempts SET started_at = started_at - $1::interval),
		ended AS (UPDATE postrider_internal.delivery_history SET last_attempt_at = last_attempt_at - $1::interval),
		problems AS (UPDATE postrider_internal.problems SET since = since - $1::interval,
		    notified_since = notified_since - $1::interval,
		    last_failed_at = last_failed_at - $1::interval, recovered_at = recovered_at - $1::interval,
		    acknowledged_until = acknowledged_until - $1::interval, resolved_at = resolved_at - $1::interval),
		minutes AS (DELETE FROM postrider_internal.rollups RETURNING *),
		moved AS (INSERT INTO postrider_internal.rollups (minute, topic_id, subscription_id, kind, detail, count)
		    SELECT date_trunc('minute', minute - $1::interval), topic_id, subscription_id, kind, detail, sum(count)
		      FROM minutes GROUP BY 1, 2, 3, 4, 5)
		UPDATE postrider_internal.problem_pass SET observed_at = observed_at - $1::interval - interval '10 seconds'`, later)
	changed, err := tn.System.Maintenance.ObserveProblems(t.Context())
	require.NoError(t, err)
	return changed
}

// Succeed publishes an event and delivers it to an event subscription.
func (tn *Node) Succeed(t testing.TB, sub *catalog.Subscription) {
	t.Helper()
	deliveries, jobs := tn.Started(t, sub.Topic, "succeeded", 1)
	require.Len(t, deliveries, 1)
	r := Result(deliveries[0], jobs[0], sub, policy.Verdict{Action: policy.Delivered})
	r.Status, r.Outcome = 200, policy.OutcomeDelivered
	tn.Record(t, r)
}
