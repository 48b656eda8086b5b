package jobs_test

import (
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/testnode"
	"postrider/jobs"
	"postrider/policy"
)

// manualEndpoint is an endpoint whose requests wait until the test responds to them.
type manualEndpoint struct {
	*endpoint
	begun chan *manualRequest
}

type manualRequest struct{ status chan int }

func (r *manualRequest) respond(status int) { r.status <- status }

func newManualEndpoint(t *testing.T) *manualEndpoint {
	t.Helper()
	x := &manualEndpoint{begun: make(chan *manualRequest, 100)}
	end := make(chan struct{})
	x.endpoint = newEndpoint(t, func(w http.ResponseWriter, _ request) {
		r := &manualRequest{status: make(chan int, 1)}
		x.begun <- r
		select {
		case status := <-r.status:
			w.WriteHeader(status)
		case <-end:
		}
	})
	t.Cleanup(func() { close(end) }) // before the server closes, which waits for its handlers
	return x
}

func (x *manualEndpoint) next(t *testing.T) *manualRequest {
	t.Helper()
	return await(t, x.begun)
}

// lateSetup has an event subscription under a policy with an ack timeout of a second and late responses.
func lateSetup(t *testing.T) (*testnode.Node, *manualEndpoint) {
	t.Helper()
	tn := setup(t)
	copyPolicy(t, tn, "ga-2019", "one-second", `{"ackTimeoutInSeconds": 1, "lateResponseWindowInSeconds": 180}`)
	x := newManualEndpoint(t)
	subscribe(t, tn, "all", x.URL, under("one-second"))
	return tn, x
}

// timedOut publishes an event and waits until its first attempt has timed out.
func timedOut(t *testing.T, tn *testnode.Node, x *manualEndpoint, id string) *manualRequest {
	t.Helper()
	publishOne(t, tn, id)
	r := x.next(t)
	require.Equal(t, policy.Result{Err: policy.ErrorTimeout}, tn.Attempt(t).Result)
	return r
}

const lateRows = "SELECT count(*) FROM postrider.delivery_attempts WHERE late AND number = $1 AND outcome = $2 " +
	"AND verdict = $3 AND why = $4"

func TestLateSuccessCancelsTheQueuedRetry(t *testing.T) {
	t.Parallel()
	tn, x := lateSetup(t)
	subscribe(t, tn, "batched", x.URL, both(batching(3, 64), under("one-second")))
	publishAtOnce(t, tn, "e", 3)
	tn.Start(t)
	requests := make([]*manualRequest, 3+1)
	for i := range requests {
		requests[i] = x.next(t)
	}
	for range requests {
		require.Equal(t, policy.Result{Err: policy.ErrorTimeout}, tn.Attempt(t).Result)
	}
	require.Equal(t, 6, tn.Rows(t, "deliveries", "state = 'pending' AND last_outcome = 'TimedOut' AND attempts = 1 "+
		"AND next_attempt_at > now()"))
	for _, r := range requests {
		r.respond(http.StatusOK)
		report := tn.Attempt(t)
		require.Equal(t, policy.Delivered, report.Verdict.Action)
		require.Equal(t, 1, report.Number)
		require.Greater(t, report.Duration, time.Second, "counted from the send")
	}
	require.Equal(t, 6, tn.Rows(t, "deliveries", "state = 'delivered' AND attempts = 1 AND last_outcome = 'Delivered' "+
		"AND last_status = 200 AND reason IS NULL"))
	require.Equal(t, 1, tn.Rows(t, "batches", "state = 'delivered' AND attempts = 1 AND last_status = 200"))
	require.Zero(t, tn.Jobs(t, ""))
	require.Equal(t, 4, tn.Rows(t, "delivery_attempts", "NOT late AND number = 1 AND outcome = 'TimedOut' "+
		"AND verdict = 'retry' AND next_attempt_at IS NOT NULL"))
	require.Equal(t, 4, tn.Count(t, lateRows, 1, "Delivered", "deliver",
		"response after the ack timeout: 200: success; the queued retry was canceled"))
	require.Equal(t, 8, tn.Recorded(t, ""))
	require.Len(t, x.requests(), 4)
}

// A call is cut at the end of its window, at the ack timeout of a policy without a window, and at the response timeout
// of its event subscription.
func TestCallsAreCut(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	// An hour, so that no retry is made, however long a busy machine takes.
	copyPolicy(t, tn, "ga-2021", "window",
		`{"stepsInSeconds": [3600], "ackTimeoutInSeconds": 0.5, "lateResponseWindowInSeconds": 2}`)
	copyPolicy(t, tn, "preview-2017", "no-window", `{"stepsInSeconds": [3600], "ackTimeoutInSeconds": 0.2}`)
	copyPolicy(t, tn, "preview-2017", "minute", `{"stepsInSeconds": [3600]}`)
	rows := map[string]func(*catalog.SubscriptionSpec){
		"window": under("window"), "no-window": under("no-window"),
		"own-timeout": both(under("minute"), // its timeout
			func(s *catalog.SubscriptionSpec) { s.ResponseTimeoutInSeconds = new(1) }),
	}
	gone := make(chan struct{}, len(rows))
	for name, settings := range rows {
		subscribe(t, tn, name, newGoneEndpoint(t, gone), settings)
	}
	tn.Start(t)
	publishOne(t, tn, "e")
	for range rows {
		require.Equal(t, policy.ErrorTimeout, tn.Attempt(t).Result.Err)
	}
	for range rows {
		await(t, gone)
	}
	require.Equal(t, len(rows), tn.Rows(t, "delivery_attempts", "outcome = 'TimedOut' "+
		"AND error LIKE 'no response within % s' AND NOT late"))
	require.Equal(t, len(rows), tn.Rows(t, "delivery_attempts", ""))
	require.Equal(t, len(rows), tn.Rows(t, "deliveries", "state = 'pending' AND attempts = 1"))
}

func TestCallThatStaysOpenHoldsNoWorker(t *testing.T) {
	t.Parallel()
	tn, x := lateSetup(t)
	useWorkers(t, tn, 1)
	tn.Start(t)
	first := timedOut(t, tn, x, "first")
	publishOne(t, tn, "second")
	x.next(t).respond(http.StatusOK)
	require.Equal(t, "second", tn.Attempt(t).EventID)
	first.respond(http.StatusOK)
	require.Equal(t, "first", tn.Attempt(t).EventID)
	require.Equal(t, 2, tn.Rows(t, "deliveries", "state = 'delivered' AND attempts = 1"))
}

// Here Stop lets requests finish for a minute, and cuts calls of finished attempts at once.
func TestStopCutsLateCallsAtOnce(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	copyPolicy(t, tn, "ga-2021", "one-second", `{"ackTimeoutInSeconds": 1, "lateResponseWindowInSeconds": 3600}`)
	gone := make(chan struct{}, 1)
	subscribe(t, tn, "all", newGoneEndpoint(t, gone), under("one-second"))
	engine := tn.Engine(t, func(o *jobs.Options) { o.StopTimeout = time.Hour })
	require.NoError(t, engine.Start(t.Context()))
	publishOne(t, tn, "e")
	tn.Attempt(t)
	select {
	case <-gone:
		require.FailNow(t, "the call was cut at the ack timeout")
	default:
	}
	testnode.RequireStops(t, engine)
	await(t, gone)
	require.Zero(t, tn.Rows(t, "delivery_attempts", "late OR reruns > 0"))
	require.Equal(t, 1, tn.Rows(t, "deliveries", "state = 'pending' AND attempts = 1 "+
		"AND reruns = 0"), "its retry waits for another node")
}

// newGoneEndpoint never responds, and reports when a client has closed the connection.
func newGoneEndpoint(t *testing.T, gone chan struct{}) (url string) {
	t.Helper()
	url, _ = rawEndpoint(t, func(conn *net.TCPConn) {
		hang(conn)
		select {
		case gone <- struct{}{}:
		default: // reported already
		}
	})
	return url
}
