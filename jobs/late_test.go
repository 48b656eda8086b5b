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
	select {
	case r := <-x.begun:
		return r
	case <-time.After(testnode.Timeout):
		require.FailNow(t, "no request came")
		panic("unreachable")
	}
}

// lateSetup has an event subscription under a policy with an ack timeout of a second and late responses.
func lateSetup(t *testing.T) (*testnode.Node, *manualEndpoint) {
	t.Helper()
	tn := setup(t)
	copyPolicy(t, tn, "ga-2019", "one-second", `{"ack_timeout": "1 second", "late_response_window": "3 minutes"}`)
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

// withLongTimeout gives later attempts a long ack timeout: the test decides when their responses come.
func withLongTimeout(t *testing.T, tn *testnode.Node, x *manualEndpoint) {
	t.Helper()
	subscribe(t, tn, "all", x.URL, under("ga-2019"))
}

const lateRows = "SELECT count(*) FROM postrider.delivery_attempts WHERE late AND number = $1 AND outcome = $2 " +
	"AND verdict = $3 AND why = $4"

func TestLateSuccessCancelsTheQueuedRetry(t *testing.T) {
	t.Parallel()
	tn, x := lateSetup(t)
	tn.Start(t)
	r := timedOut(t, tn, x, "e")
	require.Equal(t, 1, tn.Count(t, "SELECT count(*) FROM postrider.deliveries WHERE state = 'pending' "+
		"AND last_outcome = 'TimedOut' AND attempts = 1 AND next_attempt_at > now()"))
	r.respond(http.StatusOK)

	report := tn.Attempt(t)
	require.Equal(t, policy.Delivered, report.Verdict.Action)
	require.Equal(t, 1, report.Number)
	require.Greater(t, report.Duration, time.Second, "counted from the send")
	require.Equal(t, 1, tn.Count(t, "SELECT count(*) FROM postrider.deliveries WHERE state = 'delivered' "+
		"AND attempts = 1 AND last_outcome = 'Delivered' AND last_status = 200 AND reason IS NULL"))
	require.Zero(t, tn.Jobs(t, ""))
	require.Equal(t, 1, tn.Count(t, "SELECT count(*) FROM postrider.delivery_attempts WHERE NOT late AND number = 1 "+
		"AND outcome = 'TimedOut' AND verdict = 'retry' AND next_attempt_at IS NOT NULL"))
	require.Equal(t, 1, tn.Count(t, lateRows, 1, "Delivered", "deliver",
		"response after the ack timeout: 200: success; the queued retry was canceled"))
	require.Equal(t, 2, tn.Count(t, "SELECT count(*) FROM postrider.delivery_attempts"))
	require.Len(t, x.requests(), 1)
}

func TestLateSuccessWhileTheRetryRuns(t *testing.T) {
	t.Parallel()
	tn, x := lateSetup(t)
	tn.Start(t)
	first := timedOut(t, tn, x, "e")
	withLongTimeout(t, tn, x)
	travel(t, tn)
	second := x.next(t)
	first.respond(http.StatusOK)
	tn.Become(t, 1, lateRows, 1, "Delivered", "note",
		"response after the ack timeout: 200: success; only noted: no retry was waiting in the queue")
	require.Equal(t, 1, tn.Count(t, "SELECT count(*) FROM postrider.deliveries WHERE state = 'pending' AND attempts = 1"))
	second.respond(http.StatusNoContent)
	tn.Attempt(t)
	require.Equal(t, 1, tn.Count(t,
		"SELECT count(*) FROM postrider.deliveries WHERE state = 'delivered' AND attempts = 2 AND last_status = 204"))
	require.Empty(t, tn.Attempts)
}

func TestLateSuccessAfterTheDeliveryEnded(t *testing.T) {
	t.Parallel()
	tn, x := lateSetup(t)
	tn.Start(t)
	first := timedOut(t, tn, x, "e")
	withLongTimeout(t, tn, x)
	travel(t, tn)
	x.next(t).respond(http.StatusBadRequest)
	require.Equal(t, policy.DeadLetter, tn.Attempt(t).Verdict.Action)
	first.respond(http.StatusOK)
	tn.Become(t, 1, lateRows, 1, "Delivered", "note",
		"response after the ack timeout: 200: success; only noted: the delivery had ended")
	require.Equal(t, 1, tn.Count(t,
		"SELECT count(*) FROM postrider.deliveries WHERE state = 'dead_lettered' AND attempts = 2 AND last_status = 400"))
	require.Equal(t, 1, tn.Count(t, "SELECT count(*) FROM postrider.dead_letters"))
}

// The event arrived: a success cancels whichever retry waits, also that of a later attempt.
func TestLateSuccessAfterAnotherAttemptFailed(t *testing.T) {
	t.Parallel()
	tn, x := lateSetup(t)
	tn.Start(t)
	first := timedOut(t, tn, x, "e")
	withLongTimeout(t, tn, x)
	travel(t, tn)
	x.next(t).respond(http.StatusServiceUnavailable)
	require.Equal(t, policy.Retry, tn.Attempt(t).Verdict.Action)
	first.respond(http.StatusOK)
	require.Equal(t, policy.Delivered, tn.Attempt(t).Verdict.Action)
	require.Equal(t, 1, tn.Count(t,
		"SELECT count(*) FROM postrider.deliveries WHERE state = 'delivered' AND attempts = 2 AND last_status = 200"))
	require.Equal(t, 1,
		tn.Count(t, "SELECT count(*) FROM postrider.delivery_attempts WHERE late AND number = 1 AND verdict = 'deliver'"))
	require.Zero(t, tn.Jobs(t, ""))
	require.Len(t, x.requests(), 2)
}

// A late failure is no second verdict, even if its status is never retried.
func TestLateFailureIsOnlyNoted(t *testing.T) {
	t.Parallel()
	tn, x := lateSetup(t)
	tn.Start(t)
	r := timedOut(t, tn, x, "e")
	const waiting = "SELECT extract(epoch FROM next_attempt_at)::int FROM postrider_internal.deliveries " +
		"WHERE attempts = 1 AND last_outcome = 'TimedOut' AND job_id IS NOT NULL"
	next := tn.Count(t, waiting)
	r.respond(http.StatusBadRequest)
	tn.Become(t, 1, lateRows, 1, "BadRequest", "note", "response after the ack timeout: 400; only noted")
	require.Equal(t, next, tn.Count(t, waiting))
	withLongTimeout(t, tn, x)
	travel(t, tn)
	x.next(t).respond(http.StatusOK)
	require.Equal(t, 2, tn.Attempt(t).Number)
}

// The last allowed attempt times out: its dead letter is written, and a late success is noted with it.
func TestLateSuccessOfTheLastAttempt(t *testing.T) {
	t.Parallel()
	tn, x := lateSetup(t)
	subscribe(t, tn, "all", x.URL,
		func(s *catalog.SubscriptionSpec) {
			s.RetryPolicy.Policy, s.RetryPolicy.MaxDeliveryAttempts = "one-second", new(1)
		})
	tn.Start(t)
	timedOut(t, tn, x, "e").respond(http.StatusOK)
	tn.Become(t, 1, "SELECT count(*) FROM postrider.delivery_attempts WHERE late AND verdict = 'note' "+
		"AND why LIKE '%the delivery had ended'")
	require.Equal(t, 1, tn.Count(t, "SELECT count(*) FROM postrider.deliveries WHERE state = 'dead_lettered' "+
		"AND reason = 'MaxDeliveryAttemptsExceeded' AND last_outcome = 'TimedOut'"))
}

func TestNoLateResponseAfterTheWindow(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	copyPolicy(t, tn, "ga-2021", "brief", `{"ack_timeout": "500 milliseconds", "late_response_window": "2 seconds"}`)
	requireCut(t, tn, under("brief"))
}

func TestPolicyWithoutAWindowCutsAtTheAckTimeout(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	copyPolicy(t, tn, "preview-2017", "brief", `{"ack_timeout": "200 milliseconds"}`)
	requireCut(t, tn, under("brief"))
}

func TestResponseTimeoutOfAnEventSubscription(t *testing.T) {
	t.Parallel()
	requireCut(t, setup(t), both(under("preview-2017"), // its timeout is a minute
		func(s *catalog.SubscriptionSpec) { s.ResponseTimeoutInSeconds = new(1) }))
}

// requireCut sends one event to an endpoint that waits until its client closes the connection.
func requireCut(t *testing.T, tn *testnode.Node, settings func(*catalog.SubscriptionSpec)) {
	t.Helper()
	gone := make(chan struct{}, 1)
	e := newGoneEndpoint(t, gone)
	subscribe(t, tn, "all", e, settings)
	tn.Start(t)
	publishOne(t, tn, "e")
	require.Equal(t, policy.ErrorTimeout, tn.Attempt(t).Result.Err)
	select {
	case <-gone:
	case <-time.After(testnode.Timeout):
		require.FailNow(t, "the call was not cut")
	}
	require.Equal(t, 1, tn.Count(t, "SELECT count(*) FROM postrider.delivery_attempts WHERE outcome = 'TimedOut' "+
		"AND error LIKE 'no response within % s' AND NOT late"))
	require.Equal(t, 1, tn.Count(t, "SELECT count(*) FROM postrider.delivery_attempts"))
	require.Equal(t, 1, tn.Count(t, "SELECT count(*) FROM postrider.deliveries WHERE state = 'pending' AND attempts = 1"))
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
	require.Equal(t, 2, tn.Count(t,
		"SELECT count(*) FROM postrider.deliveries WHERE state = 'delivered' AND attempts = 1"))
}

// Here Stop lets requests finish for a minute, and cuts calls of finished attempts at once.
func TestStopCutsLateCallsAtOnce(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	copyPolicy(t, tn, "ga-2021", "one-second", `{"ack_timeout": "1 second", "late_response_window": "1 hour"}`)
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
	<-gone
	require.Zero(t, tn.Count(t, "SELECT count(*) FROM postrider.delivery_attempts WHERE late OR reruns > 0"))
	require.Equal(t, 1,
		tn.Count(t, "SELECT count(*) FROM postrider.deliveries WHERE state = 'pending' AND attempts = 1 AND reruns = 0"),
		"its retry waits for another node")
}

// newGoneEndpoint never responds, and reports when its first client has closed the connection.
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
