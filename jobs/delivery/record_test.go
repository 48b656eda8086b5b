package delivery_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"postrider/internal/node"
	"postrider/internal/postgres"
	"postrider/internal/testdb"
	"postrider/internal/testnode"
	"postrider/jobs/delivery"
	"postrider/jobs/queue"
	"postrider/policy"

	"github.com/stretchr/testify/require"
)

func TestRecordDelivered(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	d, j := tn.Started(t, "orders", "e", 1)

	tn.Record(t, testnode.Result(d[0], j[0], sub, policy.Verdict{Action: policy.Delivered}))

	require.Equal(t, 1, tn.Rows(t, "deliveries", "state = 'delivered' AND attempts = 1 AND event_id = 'e-0'"))
	require.Equal(t, 1, tn.Rows(t, "delivery_attempts", "delivery_id = $1 AND verdict = 'deliver'", d[0]))
	require.Zero(t, tn.Jobs(t, ""))
	require.Zero(t, tn.Pending(t, ""))
}

func TestRecordRetryInsertsANewJob(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	d, j := tn.Started(t, "orders", "e", 2)
	soon, later := time.Now().Add(2*time.Second), time.Now().Add(time.Hour)

	tn.Record(t, testnode.Result(d[0], j[0], sub, policy.Verdict{Action: policy.Retry, At: soon}))
	tn.Record(t, testnode.Result(d[1], j[1], sub, policy.Verdict{Action: policy.Retry, At: later, SkippedOffsets: 2}))

	require.Zero(t, tn.Jobs(t, "id = ANY($1)", []int64{j[0].JobID, j[1].JobID}), "a job row never serves two attempts")
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
	require.Equal(t, 1, tn.Jobs(t, "state = 'available' AND scheduled_at = $1", soon.Truncate(time.Microsecond)))
	require.Equal(t, 1, tn.Jobs(t, "state = 'scheduled' AND scheduled_at = $1 AND args ->> 'n' = '2'",
		later.Truncate(time.Microsecond)))
	require.Equal(t, 1, tn.Pending(t, "next_attempt_at = $1 AND attempts = 1 AND skipped_offsets = 2 "+
		"AND last_outcome = 'Busy' AND last_status = 503", later.Truncate(time.Microsecond)))
}

func TestRecordDeadLetterIsSelfContained(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	d, j := tn.Started(t, "orders", "e", 1)
	r := testnode.Result(d[0], j[0], sub,
		policy.Verdict{Action: policy.DeadLetter, Reason: policy.ReasonMaxDeliveryAttemptsExceeded})
	r.ResponseExcerpt = []byte{0xff, 0x00, 'x'}
	tn.Record(t, r)
	require.NoError(t, tn.System.Subscriptions.Delete(t.Context(), "orders", "all"))
	require.NoError(t, tn.System.Topics.Delete(t.Context(), "orders"))
	tn.Exec(t, "DELETE FROM postrider_internal.events")

	require.Equal(t, 1, tn.Count(t,
		`SELECT count(*) FROM postrider.dead_letters WHERE topic = 'orders' AND subscription = 'all' AND event_id = 'e-0'
		AND reason = 'MaxDeliveryAttemptsExceeded' AND attempts = 1 AND last_outcome = 'Busy' AND last_status = 503
		    AND body ->> 'id' = 'e-0'
		AND body_text LIKE '%e-0%' AND body_error IS NULL AND last_response = '\377\000x'`))
}

func TestRecordAfterAReclaimChangesNothing(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	tn.Publish(t, "orders", "e", 1)
	d, j := tn.Fetch(t, "dead-node") // never registered: its jobs are anyone's

	require.Equal(t, 1, tn.Reclaim(t))
	late := testnode.Result(d[0], j[0], sub, policy.Verdict{Action: policy.Retry, At: time.Now().Add(time.Hour)})
	tn.Record(t, late)
	require.False(t, tn.LateSuccess(t, late), "nor does its late response")

	require.Zero(t, tn.Rows(t, "delivery_attempts", ""))
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
	require.Equal(t, 1, tn.Jobs(t, "state = 'available' AND args ->> 'r' = '1' AND id <> $1", j[0].JobID))
	require.Equal(t, 1, tn.Pending(t, "reruns = 1 AND attempts = 0"))
	_, err := tn.System.Loader.Load(t.Context(), queue.AttemptArgs{Delivery: d[0]}, j[0])
	require.ErrorIs(t, err, postgres.ErrNotFound, "the old token opens nothing")
}

func TestReclaimSkipsLiveNodes(t *testing.T) {
	t.Parallel()
	tn, _ := testnode.Orders(t)
	require.NoError(t, tn.System.Nodes.Register(t.Context(), "host"))
	_, j := tn.Started(t, "orders", "e", 2)
	require.Zero(t, tn.Reclaim(t))
	tn.Exec(t, "UPDATE postrider_internal.river_job SET attempted_at = now() - interval '16 seconds'")
	n, err := tn.System.JobRows.ReclaimOwn(t.Context(), []int64{j[0].JobID})
	require.NoError(t, err)
	require.Equal(t, 1, n, "the one in memory stays, the one whose fetch had no response is inserted again")
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
}

// A deferred job gets a new row. If the response is lost and River tries again, it leaves the run of that row alone.
func TestDeferredJobIsReplacedOnce(t *testing.T) {
	t.Parallel()
	tn, _ := testnode.Orders(t)
	_, j := tn.Started(t, "orders", "e", 1)
	for _, want := range []int{1, 0} {
		n, err := tn.System.JobRows.Defer(t.Context(), []queue.Deferred{{Job: j[0].JobID}})
		require.NoError(t, err)
		require.Equal(t, want, n)
		tn.Exec(t, "UPDATE postrider_internal.river_job SET state = 'running', attempted_at = now(), attempted_by = "+
			"'{node-1}'")
	}
	require.Equal(t, 1, tn.Jobs(t, "state = 'running' AND id <> $1", j[0].JobID))
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
}

func TestRecordWaitsForTheDatabase(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	d, j := tn.Started(t, "orders", "e", 1)
	tn.Exec(t, "ALTER TABLE postrider_internal.delivery_attempts RENAME TO hidden")

	recorded := make(chan error, 1)
	go func() {
		recorded <- tn.System.Recorder.Record(context.Background(),
			testnode.Result(d[0], j[0], sub, policy.Verdict{Action: policy.Delivered}))
	}()
	testnode.Within(t, "no new requests while results cannot be written down", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		return tn.System.Recorder.WaitRecording(ctx) != nil
	})
	require.Empty(t, recorded)
	tn.Exec(t, "ALTER TABLE postrider_internal.hidden RENAME TO delivery_attempts")

	require.NoError(t, <-recorded)
	require.NoError(t, tn.System.Recorder.WaitRecording(t.Context()))
	require.Equal(t, 1, tn.Rows(t, "deliveries", "state = 'delivered'"))
}

// The members of a batch are sent in the order of acceptance, which is that of their ids, whatever the ids of their
// events.
func TestMembersAreReadInTheOrderOfAcceptance(t *testing.T) {
	t.Parallel()
	// Other joins may sort them by chance, whatever the statement says.
	url := testdb.Clone(t) + "&enable_mergejoin=off&enable_hashjoin=off"
	tn := testnode.Open(t, url, node.Options{Node: "node-1"})
	tn.Topic(t, "orders")
	sub := tn.Subscribe(t, "orders", "all", testnode.Batching(10, 64))
	tn.Publish(t, "orders", "e", 3)
	cut := tn.CutOne(t, sub)
	for i, member := range cut.Members { // in the order of the rows
		tn.Exec(t, "UPDATE postrider_internal.deliveries SET event_uuid = $2 WHERE id = $1", member.DeliveryID,
			cut.Members[2-i].SystemID)
	}
	read, err := testnode.LoadBatch(t, tn.System, sub, cut.Job, false)
	require.NoError(t, err)
	defer read.Release()
	require.Len(t, read.Members, 3)
	for i, member := range read.Members {
		require.Equal(t, cut.Members[2-i].Event.ID, member.Event.ID)
		require.Equal(t, cut.Members[i].DeliveryID, member.DeliveryID)
	}
}

// lines is a log that reports each line.
type lines chan string

// Write implements io.Writer.
func (l lines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

// A recorder that stops fails the results that another transaction blocks: no worker waits for ever.
func TestStopOfTheRecorderWhileAResultIsBlocked(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	d, j := tn.Started(t, "orders", "e", 1)
	end := tn.OpenTransaction(t, "SELECT FROM postrider_internal.deliveries WHERE id = $1 FOR UPDATE", d[0])
	defer end(false)
	parts, log := tn.System.Recorder.RecorderParts, make(lines, 1)
	parts.Log = slog.New(slog.NewTextHandler(log, nil))
	r := delivery.NewRecorder(parts)
	ctx, stop := context.WithCancel(t.Context())
	stopped, recorded := make(chan struct{}), make(chan error, 1)
	go func() { defer close(stopped); r.Run(ctx) }()
	go func() {
		recorded <- r.Record(context.Background(),
			testnode.Result(d[0], j[0], sub, policy.Verdict{Action: policy.Delivered}))
	}()
	require.Contains(t, <-log, "an open transaction holds rows")
	stop()
	<-stopped
	testnode.Within(t, "the caller gets an error", func() bool { return len(recorded) == 1 })
	require.ErrorIs(t, <-recorded, context.Canceled)
}
