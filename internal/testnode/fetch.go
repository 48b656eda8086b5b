package testnode

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/jobs/delivery"
	"postrider/jobs/queue"
	"postrider/policy"
)

// TimeOut publishes n events whose first attempts time out. Their retries are queued and due.
func (tn *Node) TimeOut(t testing.TB, sub *catalog.Subscription, n int) []delivery.Attempt {
	t.Helper()
	tn.Publish(t, sub.Topic, "e", n)
	d, j := tn.Fetch(t, "node-1")
	require.Len(t, d, n)
	results := make([]delivery.Attempt, n)
	for i := range results {
		results[i] = Result(d[i], j[i], sub, policy.Verdict{Action: policy.Retry, At: time.Now()})
		results[i].Status, results[i].Outcome = 0, policy.OutcomeTimedOut
		require.NoError(t, tn.Pool.QueryRow(t.Context(), "SELECT event_uuid FROM postrider_internal.deliveries WHERE id = $1",
			d[i]).Scan(&results[i].FirstEvent))
		require.NoError(t, tn.System.Recorder.Record(t.Context(), results[i]))
	}
	return results
}

// Late is the late response to such an attempt.
func Late(timedOut delivery.Attempt, status int) delivery.Late {
	late := delivery.Late{Attempt: timedOut, Success: status < 300, Why: strconv.Itoa(status)}
	if late.Status, late.Outcome = status, policy.OutcomeDelivered; !late.Success {
		late.Outcome = policy.OutcomeBusy
	}
	return late
}

// RequireLate requires that the one late response was noted, with its verdict and reason.
func (tn *Node) RequireLate(t testing.TB, verdict, why string) {
	t.Helper()
	require.Equal(t, 1, tn.Count(t, "SELECT count(*) FROM postrider.delivery_attempts WHERE late"))
	require.Equal(t, 1,
		tn.Count(t,
			"SELECT count(*) FROM postrider.delivery_attempts WHERE late AND number = 1 AND verdict = $1 AND why = $2 "+
				"AND next_attempt_at IS NULL", verdict, why))
}

// Fail publishes n events whose first attempts fail; their retries wait for an hour.
func (tn *Node) Fail(t testing.TB, sub *catalog.Subscription, n int) (deliveries []int64) {
	t.Helper()
	tn.Publish(t, sub.Topic, "failed", n)
	deliveries, jobs := tn.Fetch(t, "node-1")
	require.Len(t, deliveries, n)
	for i := range deliveries {
		r := Result(deliveries[i], jobs[i], sub, policy.Verdict{Action: policy.Retry, At: time.Now().Add(time.Hour)})
		r.Error, r.ResponseExcerpt = "it broke", []byte("busy")
		require.NoError(t, tn.System.Recorder.Record(t.Context(), r))
	}
	return deliveries
}

// Fetch marks jobs as River's fetch does and returns delivery and job of each, the oldest first.
func (tn *Node) Fetch(t testing.TB, node string) (deliveries []int64, jobs []queue.JobToken) {
	t.Helper()
	rows, err := tn.Pool.Query(t.Context(),
		`WITH fetched AS (UPDATE postrider_internal.river_job SET state = 'running', attempt = attempt + 1,
		    attempted_at = now(), attempted_by = array_append(attempted_by, $1)
		    WHERE state = 'available' AND kind = 'deliver' RETURNING (args ->> 'd')::bigint AS d, id, created_at)
		SELECT * FROM fetched ORDER BY d`, node)
	require.NoError(t, err)
	for rows.Next() {
		var d int64
		var j queue.JobToken
		require.NoError(t, rows.Scan(&d, &j.JobID, &j.CreatedAt))
		deliveries, jobs = append(deliveries, d), append(jobs, j)
	}
	require.NoError(t, rows.Err())
	return deliveries, jobs
}

// Result is a failed first attempt of a delivery.
func Result(id int64, job queue.JobToken, sub *catalog.Subscription, verdict policy.Verdict) delivery.Attempt {
	return delivery.Attempt{
		Decision: delivery.Decision{
			JobToken: job, DeliveryID: id, SubscriptionID: sub.ID, RetryPolicy: sub.RetryPolicy.Policy, Verdict: verdict,
		},
		Request: delivery.Request{
			Number: 1, StartedAt: time.Now(), Duration: time.Millisecond, Status: 503, Outcome: policy.OutcomeBusy,
		},
	}
}

// Started publishes events whose attempts have begun on node-1, see Fetch.
func (tn *Node) Started(t testing.TB, topic, prefix string, n int) (deliveries []int64, jobs []queue.JobToken) {
	t.Helper()
	tn.Publish(t, topic, prefix, n)
	return tn.Fetch(t, "node-1")
}

// LateSuccess records the late success of an attempt that has timed out, and says whether it ended the delivery.
func (tn *Node) LateSuccess(t testing.TB, timedOut delivery.Attempt) (ended bool) {
	t.Helper()
	ended, err := tn.System.Recorder.RecordLate(t.Context(), Late(timedOut, 200))
	require.NoError(t, err)
	return ended
}
