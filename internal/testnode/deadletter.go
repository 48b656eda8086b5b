package testnode

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stretchr/testify/require"

	"postrider/internal/query"
	"postrider/jobs/delivery"
	"postrider/policy"
)

// DeadLetters publishes n events to a topic whose event subscriptions fail at once, and returns the dead letters, the
// oldest first.
func (tn *Node) DeadLetters(t testing.TB, topic, prefix string, n int) (letters []uuid.UUID) {
	t.Helper()
	tn.Publish(t, topic, prefix, n)
	return tn.DeadLetterAll(t)
}

// DeadLetterAll dead-letters all deliveries with a job, and returns all dead letters.
func (tn *Node) DeadLetterAll(t testing.TB) (letters []uuid.UUID) {
	t.Helper()
	rows, err := tn.Pool.Query(t.Context(), `WITH fetched AS (UPDATE postrider_internal.river_job
		    SET state = 'running', attempt = 1, attempted_at = now(), attempted_by = '{node-1}'
		    WHERE kind = 'deliver' RETURNING (args ->> 'd')::bigint AS d, id, (args ->> 's')::bigint, created_at)
		SELECT * FROM fetched ORDER BY d`)
	require.NoError(t, err)
	var results []delivery.Attempt
	for rows.Next() {
		r := delivery.Attempt{Request: delivery.Request{
			Number: 1, StartedAt: time.Now(), Status: 400, Outcome: policy.OutcomeBadRequest,
		}}
		r.RetryPolicy = policy.DefaultName
		r.Verdict = policy.Verdict{Action: policy.DeadLetter, Reason: policy.ReasonMaxDeliveryAttemptsExceeded}
		require.NoError(t, rows.Scan(&r.DeliveryID, &r.JobID, &r.SubscriptionID, &r.CreatedAt))
		results = append(results, r)
	}
	require.NoError(t, rows.Err())
	for _, r := range results {
		require.NoError(t, tn.System.Recorder.Record(t.Context(), r))
	}
	list, err := tn.System.Reader.ListDeadLetters(t.Context(), &query.DeadLetterFilter{}, query.DeadLetterPlace{}, 10_000)
	require.NoError(t, err)
	for _, l := range slices.Backward(list.Rows) {
		letters = append(letters, l.DeadLetterID)
	}
	return letters
}

// CopyDeadLetters inserts n copies of a dead letter l; changed is the SQL of the changes of copy i, from 1.
func (tn *Node) CopyDeadLetters(t testing.TB, changed string, n int, args ...any) {
	t.Helper()
	columns := tn.Text(t, `SELECT string_agg(attname, ', ') FROM pg_attribute WHERE attnum > 0 AND attgenerated = ''
		AND NOT attisdropped AND attrelid = 'postrider_internal.dead_letters'::regclass`)
	tn.Exec(t, fmt.Sprintf(`INSERT INTO postrider_internal.dead_letters (%[1]s)
		SELECT %[1]s FROM (SELECT (jsonb_populate_record(l, jsonb_build_object('id', gen_random_uuid()) || %[2]s)).*
		  FROM postrider_internal.dead_letters l, generate_series(1, %[3]d) i
		 WHERE l.id = (SELECT id FROM postrider_internal.dead_letters ORDER BY dead_lettered_at, id LIMIT 1)) c`,
		columns, changed, n), args...)
}
