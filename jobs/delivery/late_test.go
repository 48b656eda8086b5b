package delivery_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/testnode"
	"postrider/jobs/delivery"
	"postrider/policy"
)

func TestLateSuccessDeletesTheQueuedRetry(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	r := tn.TimeOut(t, sub, 2)
	ended, err := tn.System.Recorder.RecordLate(t.Context(), testnode.Late(r[0], 200), "200")
	require.NoError(t, err)
	require.True(t, ended)
	tn.RequireLate(t, "deliver", "200; the queued retry was canceled")
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
	require.Equal(t, 1, tn.Count(t,
		"SELECT count(*) FROM postrider.deliveries WHERE delivery_id = $1 AND state = 'delivered' AND attempts = 1 "+
			"AND last_status = 200 AND last_outcome = 'Delivered' AND reason IS NULL AND finished_at IS NOT NULL",
		r[0].DeliveryID))
	require.Equal(t, 1,
		tn.Count(t, "SELECT count(*) FROM postrider.deliveries WHERE delivery_id = $1 AND state = 'pending'",
			r[1].DeliveryID),
		"the other one waits on")

	ended, err = tn.System.Recorder.RecordLate(t.Context(), testnode.Late(r[0], 200), "again")
	require.NoError(t, err)
	require.False(t, ended)
	tn.RequireLate(t, "deliver", "200; the queued retry was canceled")
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
	require.NoError(t, tn.System.Recorder.Record(t.Context(), second))
	ended, err := tn.System.Recorder.RecordLate(t.Context(), testnode.Late(r[0], 200), "200")
	require.NoError(t, err)
	require.True(t, ended)
	require.Equal(t, 1, tn.Count(t, "SELECT count(*) FROM postrider.delivery_attempts WHERE late AND number = 1 "+
		"AND verdict = 'deliver'"))
	require.Equal(t, 1, tn.Count(t, "SELECT count(*) FROM postrider.deliveries WHERE state = 'delivered' "+
		"AND attempts = 2 AND last_status = 200"))
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
}

func TestLateSuccessLeavesARunningRetryAlone(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	r := tn.TimeOut(t, sub, 1)
	d, j := tn.Fetch(t, "node-2")
	ended, err := tn.System.Recorder.RecordLate(t.Context(), testnode.Late(r[0], 200), "200")
	require.NoError(t, err)
	require.False(t, ended)
	tn.RequireLate(t, "note", "200; only noted: no retry was waiting in the queue")
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))

	second := testnode.Result(d[0], j[0], sub, policy.Verdict{Action: policy.Delivered})
	second.Number = 2
	require.NoError(t, tn.System.Recorder.Record(t.Context(), second))
	require.Equal(t, 1, tn.Count(t,
		"SELECT count(*) FROM postrider.deliveries WHERE state = 'delivered' AND attempts = 2"))
	require.Zero(t, tn.Pending(t, ""))
}

func TestLateSuccessSkipsARetryThatIsBeingFetched(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	r := tn.TimeOut(t, sub, 1)
	tx, err := tn.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), "SELECT FROM postrider_internal.river_job FOR UPDATE")
	require.NoError(t, err)
	ended, err := tn.System.Recorder.RecordLate(t.Context(), testnode.Late(r[0], 200), "200")
	require.NoError(t, err)
	require.False(t, ended, "it waits for no lock")
	require.NoError(t, tx.Rollback(t.Context()))
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
	require.NoError(t, tn.System.Recorder.Record(t.Context(), parked))
	ended, err := tn.System.Recorder.RecordLate(t.Context(), testnode.Late(r[0], 200), "200")
	require.NoError(t, err)
	require.True(t, ended)
	tn.RequireLate(t, "deliver", "200; the queued retry was canceled")
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
	require.Zero(t, tn.Pending(t, ""))
}

func TestLateSuccessAfterTheEnd(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	r := tn.TimeOut(t, sub, 1)
	require.NoError(t, tn.System.Subscriptions.Delete(t.Context(), "orders", "all"))
	ended, err := tn.System.Recorder.RecordLate(t.Context(), testnode.Late(r[0], 200), "200")
	require.NoError(t, err)
	require.False(t, ended)
	require.Equal(t, 1, tn.Count(t, "SELECT count(*) FROM postrider.delivery_attempts WHERE late AND verdict = 'note' "+
		"AND why = '200; only noted: the delivery had ended'"))
	require.Equal(t, 1, tn.Count(t, "SELECT count(*) FROM postrider.deliveries WHERE state = 'canceled'"))
}

func TestLateFailureChangesNothing(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	r := tn.TimeOut(t, sub, 1)
	response := testnode.Late(r[0], 503)
	response.ResponseExcerpt, response.ResponseHeaders = []byte{0xff, 0x00}, []byte("Retry-After: 1\r\n")
	ended, err := tn.System.Recorder.RecordLate(t.Context(), response, "503")
	require.NoError(t, err)
	require.False(t, ended)
	tn.RequireLate(t, "note", "503; only noted")
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
	require.Equal(t, 1, tn.Count(t, "SELECT count(*) FROM postrider.deliveries WHERE state = 'pending' AND attempts = 1 "+
		"AND last_outcome = 'TimedOut' AND last_status IS NULL"))
	require.Equal(t, 1, tn.Count(t, "SELECT count(*) FROM postrider.delivery_attempts "+
		"WHERE late AND response_headers LIKE 'Retry-After%' AND response_excerpt = '\\377\\000'"))
}

// A node that was found dead continues with an attempt that another node has reclaimed: it records no late response.
func TestLateSuccessOfAZombieChangesNothing(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	tn.Publish(t, "orders", "e", 1)
	d, j := tn.Fetch(t, "dead-node")
	n, err := tn.System.JobRows.ReclaimFromLost(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, n)
	zombie := testnode.Result(d[0], j[0], sub, policy.Verdict{Action: policy.Retry, At: time.Now()})
	require.NoError(t, tn.System.Recorder.Record(t.Context(), zombie))
	ended, err := tn.System.Recorder.RecordLate(t.Context(), testnode.Late(zombie, 200), "200")
	require.NoError(t, err)
	require.False(t, ended)
	require.Zero(t, tn.Count(t, "SELECT count(*) FROM postrider.delivery_attempts"))
	require.Equal(t, 1, tn.Count(t, "SELECT count(*) FROM postrider.deliveries WHERE state = 'pending' AND attempts = 0"))
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
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
				ended, err := tn.System.Recorder.RecordLate(context.Background(), testnode.Late(results[i], 200), "200")
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
	require.Equal(t, ended, tn.Count(t, "SELECT count(*) FROM postrider.deliveries WHERE state = 'delivered'"))
	require.Equal(t, n-ended, tn.Count(t, "SELECT count(*) FROM postrider.deliveries WHERE state = 'pending'"))
	require.Equal(t, n-ended, tn.Jobs(t, ""))
	require.Equal(t, n, tn.Count(t, "SELECT count(*) FROM postrider.delivery_attempts WHERE late"))
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
}
