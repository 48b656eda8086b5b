package delivery_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/testnode"
	"postrider/jobs/delivery"
	"postrider/jobs/queue"
	"postrider/policy"
)

func TestLateSuccessDeletesTheQueuedRetry(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	r := tn.TimeOut(t, sub, 2)
	require.True(t, tn.LateSuccess(t, r[0]))
	tn.RequireLate(t, "deliver", "200; the queued retry was canceled")
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
	require.Equal(t, 1, tn.Rows(t, "deliveries", "delivery_id = $1 AND state = 'delivered' AND attempts = 1 AND "+
		"last_status = 200 AND last_outcome = 'Delivered' AND reason IS NULL AND finished_at IS NOT NULL", r[0].DeliveryID))
	require.Equal(t, 1, tn.Rows(t, "deliveries", "delivery_id = $1 AND state = 'pending'", r[1].DeliveryID),
		"the other one waits on")

	require.False(t, tn.LateSuccess(t, r[0]))
	tn.RequireLate(t, "deliver", "200; the queued retry was canceled")
	require.Zero(t, tn.Count(t, testnode.MiscountedRollups), "it is counted once")
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
}

// The event arrived: a success deletes whichever retry waits, also that of a later attempt.
func TestLateSuccessAfterAnotherAttemptFailed(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	r := tn.TimeOut(t, sub, 1)
	d, j := tn.Fetch(t, "node-1")
	second := testnode.Result(d[0], j[0], sub, policy.Verdict{Action: policy.Retry, At: time.Now().Add(time.Hour)})
	second.Number = 2
	tn.Record(t, second)
	require.True(t, tn.LateSuccess(t, r[0]))
	require.Equal(t, 1, tn.Rows(t, "delivery_attempts", "late AND number = 1 AND verdict = 'deliver'"))
	require.Equal(t, 1, tn.Rows(t, "deliveries", "state = 'delivered' AND attempts = 2 AND last_status = 200"))
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
}

func TestLateSuccessLeavesARunningRetryAlone(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	r := tn.TimeOut(t, sub, 1)
	d, j := tn.Fetch(t, "node-2")
	require.False(t, tn.LateSuccess(t, r[0]))
	tn.RequireLate(t, "note", "200; only noted: no retry was waiting in the queue")
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))

	second := testnode.Result(d[0], j[0], sub, policy.Verdict{Action: policy.Delivered})
	second.Number = 2
	tn.Record(t, second)
	require.Equal(t, 1, tn.Rows(t, "deliveries", "state = 'delivered' AND attempts = 2"))
	require.Zero(t, tn.Pending(t, ""))
}

func TestLateSuccessSkipsARetryThatIsBeingFetched(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	r := tn.TimeOut(t, sub, 1)
	end := tn.OpenTransaction(t, "SELECT FROM postrider_internal.river_job FOR UPDATE")
	require.False(t, tn.LateSuccess(t, r[0]), "it waits for no lock")
	end(false)
	tn.RequireLate(t, "note", "200; only noted: no retry was waiting in the queue")
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
}

func TestLateSuccessOfADeliveryOnHold(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	r := tn.TimeOut(t, sub, 1)
	d, j := tn.Fetch(t, "node-1")
	parked := testnode.Result(d[0], j[0], sub, policy.Verdict{Action: delivery.Hold, Reason: catalog.HoldPaused})
	parked.Number = 0
	tn.Record(t, parked)
	require.True(t, tn.LateSuccess(t, r[0]))
	tn.RequireLate(t, "deliver", "200; the queued retry was canceled")
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
	require.Zero(t, tn.Pending(t, ""))
}

func TestLateSuccessAfterTheEnd(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	r := tn.TimeOut(t, sub, 1)
	require.NoError(t, tn.System.Subscriptions.Delete(t.Context(), "orders", "all"))
	require.False(t, tn.LateSuccess(t, r[0]))
	require.Equal(t, 1, tn.Rows(t, "delivery_attempts",
		"late AND verdict = 'note' AND why = '200; only noted: the delivery had ended'"))
	require.Equal(t, 1, tn.Rows(t, "deliveries", "state = 'canceled'"))
}

func TestLateFailureChangesNothing(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	r := tn.TimeOut(t, sub, 1)
	response := testnode.Late(r[0], 503)
	response.ResponseExcerpt, response.ResponseHeaders = []byte{0xff, 0x00}, []byte("Retry-After: 1\r\n")
	ended, err := tn.System.Recorder.RecordLate(t.Context(), response)
	require.NoError(t, err)
	require.False(t, ended)
	tn.RequireLate(t, "note", "503; only noted")
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
	require.Equal(t, 1, tn.Rows(t, "deliveries",
		"state = 'pending' AND attempts = 1 AND last_outcome = 'TimedOut' AND last_status IS NULL"))
	require.Equal(t, 1, tn.Rows(t, "delivery_attempts",
		"late AND response_headers LIKE 'Retry-After%' AND response_excerpt = '\\377\\000'"))
}

// Late responses and fetches race for the same rows: one of the two gets each delivery.
func TestLateResponsesRaceWithFetches(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	const n = 300
	results := tn.TimeOut(t, sub, n)
	var group sync.WaitGroup
	var canceled [3]int
	for w := range canceled {
		group.Go(func() {
			for i := w; i < n; i += len(canceled) {
				ended, err := tn.System.Recorder.RecordLate(context.Background(), testnode.Late(results[i], 200))
				require.NoError(t, err)
				if ended {
					canceled[w]++
				}
			}
		})
	}
	fetched := 0
	const fetch = `WITH free AS (SELECT id FROM postrider_internal.river_job WHERE state = 'available' ORDER BY id DESC
		    LIMIT 3 FOR UPDATE SKIP LOCKED),
		taken AS (UPDATE postrider_internal.river_job j SET state = 'running' FROM free WHERE j.id = free.id RETURNING j.id)
		SELECT count(*) FROM taken`
	for got := 1; got > 0; fetched += got {
		got = tn.Count(t, fetch)
	}
	group.Wait()
	ended := canceled[0] + canceled[1] + canceled[2]
	require.LessOrEqual(t, ended+fetched, n, "nothing is had by both")
	require.Equal(t, ended, tn.Rows(t, "deliveries", "state = 'delivered'"))
	require.Equal(t, n-ended, tn.Rows(t, "deliveries", "state = 'pending'"))
	require.Equal(t, n-ended, tn.Jobs(t, ""))
	require.Equal(t, n, tn.Rows(t, "delivery_attempts", "late"))
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
}

// A late success resets counted failures, and ends a hold that began before its request or whose probe is due.
func TestLateSuccessDuringAProbation(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	rows := []struct {
		since, until string // relative to the start of the request
		stays        bool
	}{
		{"NULL", "NULL", false},
		{"$2::timestamptz - interval '1 second'", "now() + interval '1 hour'", false},
		{"$2::timestamptz + interval '1 second'", "now() + interval '1 hour'", true},
		{"$2::timestamptz + interval '1 second'", "$2 - interval '1 hour'", false},
	}
	for i, result := range tn.TimeOut(t, sub, len(rows)) {
		row := rows[i]
		key := fmt.Sprint("key ", i)
		result.Probations = []queue.Probation{{Key: key}}
		tn.Exec(t, fmt.Sprintf(`INSERT INTO postrider_internal.probations (probation_key, endpoint_base_url, since, until)
			SELECT $1, 'http://x', %s, %s WHERE $2::timestamptz IS NOT NULL`, row.since, row.until),
			[]byte(key), result.StartedAt)
		require.True(t, tn.LateSuccess(t, result))
		require.Equal(t, row.stays, tn.Probations(t, "probation_key = $1", []byte(key)) == 1, "%+v", row)
	}
}
