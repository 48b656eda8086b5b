package endpoint

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/policy"
)

// newTestClient calls an endpoint on loopback.
func newTestClient(t *testing.T, serve http.HandlerFunc) (client *Client, send func() *Call) {
	t.Helper()
	server := httptest.NewServer(serve)
	t.Cleanup(server.Close)
	options := Options{AllowCIDR: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	requests, cut := context.WithCancel(context.Background())
	client = NewClient(requests, options)
	t.Cleanup(func() { cut(); client.transports.close() }) // before the server closes, which waits for its handlers
	return client, func() *Call {
		return newCall(server.URL, http.Header{}, NewPayload([]byte("{}"), func() {}))
	}
}

// untilGone reads the request and waits until its client has gone away.
func untilGone(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

const ack = time.Second

func TestLateCallsAreBounded(t *testing.T) {
	t.Parallel()
	client, send := newTestClient(t, untilGone)
	others := make([]*Call, maxLateCalls-1)
	for i := range others {
		others[i] = &Call{body: NewPayload(nil, nil), cut: func(error) {}}
		require.True(t, client.late.keep(others[i], time.Hour))
	}
	met, first, err := client.postOpen(send(), ack, time.Hour)
	require.NoError(t, err)
	require.NotNil(t, first)
	require.Equal(t, policy.ErrorTimeout, met.Result.Err)

	met, beyond, err := client.postOpen(send(), ack, time.Hour)
	require.NoError(t, err)
	require.Nil(t, beyond, "cut at its ack timeout")
	require.Equal(t, policy.ErrorTimeout, met.Result.Err)
	require.Equal(t, "no response within 1 s", met.ErrorText)

	client.late.close()
	r := <-first.met
	require.Equal(t, policy.ErrorTimeout, r.answer.Result.Err)
	for _, k := range append(others, first) {
		client.late.done(k)
	}
	client.late.wait()
	_, after, err := client.postOpen(send(), ack, time.Hour)
	require.NoError(t, err)
	require.Nil(t, after, "a node that stops keeps no call")
}

// A place is free again when its call is over.
func TestLateCallsGiveTheirPlaceBack(t *testing.T) {
	t.Parallel()
	late := newLateCalls()
	for range 2 * maxLateCalls {
		k := &Call{body: NewPayload(nil, nil), cut: func(error) {}}
		require.True(t, late.keep(k, time.Hour))
		late.done(k)
	}
	late.close()
	late.wait()
}

func TestCallIsNotKept(t *testing.T) {
	t.Parallel()
	answeredInTime := &Call{body: NewPayload(nil, nil)}
	answeredInTime.answered()()
	unwritten := &Call{body: NewPayload([]byte("{}"), func() {})}
	late := newLateCalls()
	require.False(t, late.keep(answeredInTime, time.Hour), "the answer came first")
	require.False(t, late.keep(unwritten, time.Hour), "the endpoint has not even taken the body")
}

// The status came in time: however slow the body is, that is the answer.
func TestSlowBodyIsNoLateAnswer(t *testing.T) {
	t.Parallel()
	client, send := newTestClient(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusAccepted)
		_ = http.NewResponseController(w).Flush()
		untilGone(w, r)
	})
	met, late, err := client.postOpen(send(), ack, time.Hour)
	require.NoError(t, err)
	require.Nil(t, late)
	require.Equal(t, policy.Result{Status: http.StatusAccepted}, met.Result)
	require.GreaterOrEqual(t, met.Duration, ack)
}

// The body of a late answer does not keep the answer from taking effect.
func TestLateAnswerWithSlowBody(t *testing.T) {
	t.Parallel()
	now := make(chan struct{})
	client, send := newTestClient(t, func(w http.ResponseWriter, r *http.Request) {
		<-now
		w.WriteHeader(http.StatusOK)
		_, _ = io.WriteString(w, "slow")
		_ = http.NewResponseController(w).Flush()
		untilGone(w, r)
	})
	_, late, err := client.postOpen(send(), ack, time.Hour)
	require.NoError(t, err)
	require.NotNil(t, late)
	close(now)
	select {
	case r := <-late.met:
		require.Equal(t, policy.Result{Status: http.StatusOK}, r.answer.Result)
		require.Equal(t, "slow", string(r.answer.Excerpt))
	case <-time.After(10 * time.Second):
		require.FailNow(t, "the body is waited for")
	}
	client.late.done(late)
}

func TestStopInterruptsAnOpenCallBeforeItsAckTimeout(t *testing.T) {
	t.Parallel()
	client, send := newTestClient(t, untilGone)
	requests, cut := context.WithCancel(t.Context())
	client.requests = requests
	time.AfterFunc(50*time.Millisecond, cut)
	_, late, err := client.postOpen(send(), time.Minute, time.Hour)
	require.ErrorIs(t, err, ErrInterrupted)
	require.Nil(t, late)
}
