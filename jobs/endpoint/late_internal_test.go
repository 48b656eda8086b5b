package endpoint

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/policy"
)

// testCall is a call with an ack timeout and without a window.
func testCall(url string, ackTimeout time.Duration) *Call {
	return newCall(&Request{
		URL: url, Header: http.Header{}, Body: NewPayload([]byte("{}"), func() {}), AckTimeout: ackTimeout,
	}, "")
}

// post makes a call and returns when its attempt has ended. late gets the response of a call that stays open; nil if it
// has ended.
func (c *Client) post(k *Call) (resp Response, late chan Response, err error) {
	ended, open := make(chan struct{}), make(chan Response, 1)
	go c.call(k, func(r Response, problem error) error {
		defer close(ended)
		if resp, err = r, problem; k.state.Load() == callLate {
			late = open
		}
		return nil
	}, func(r Response) { open <- r })
	<-ended
	return resp, late, err
}

// newTestClient returns a client that may call an endpoint on loopback, and a function that makes a call with a window.
func newTestClient(
	t *testing.T, serve http.HandlerFunc,
) (client *Client, call func(ackTimeout time.Duration) *Call) {
	t.Helper()
	server := httptest.NewServer(serve)
	t.Cleanup(server.Close)
	options := Options{AllowCIDR: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	requests, cut := context.WithCancel(context.Background())
	client = NewClient(requests, options)
	t.Cleanup(func() { cut(); client.transports.close() }) // before the server closes, which waits for its handlers
	return client, func(ackTimeout time.Duration) *Call {
		k := testCall(server.URL, ackTimeout)
		k.Window = time.Hour
		return k
	}
}

// untilGone reads the request and waits until its client has closed the connection.
func untilGone(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

const ack = time.Second

// keptCall is a call whose body is written.
func keptCall() *Call {
	return &Call{Request: &Request{Body: NewPayload(nil, nil)}, cut: func(error) {}}
}

func TestLateCallsAreBounded(t *testing.T) {
	t.Parallel()
	client, call := newTestClient(t, untilGone)
	others := make([]*Call, maxLateCalls-1)
	for i := range others {
		others[i] = keptCall()
		require.True(t, client.keep(others[i], time.Hour))
	}
	resp, first, err := client.post(call(ack))
	require.NoError(t, err)
	require.NotNil(t, first)
	require.Equal(t, policy.ErrorTimeout, resp.Result.Err)

	resp, beyond, err := client.post(call(ack))
	require.NoError(t, err)
	require.Nil(t, beyond, "cut at its ack timeout")
	require.Equal(t, policy.ErrorTimeout, resp.Result.Err)
	require.Equal(t, "no response within 1 s", resp.ErrorText)

	client.CloseLate()
	r := <-first
	require.Equal(t, policy.ErrorTimeout, r.Result.Err)
	for _, k := range others {
		client.done(k)
	}
	client.WaitLate()
	_, after, err := client.post(call(ack))
	require.NoError(t, err)
	require.Nil(t, after, "a node that stops keeps no call")
}

// A place is free again when its call is over.
func TestLateCallsFreeTheirPlace(t *testing.T) {
	t.Parallel()
	late := lateCalls{open: map[*Call]*time.Timer{}}
	for range 2 * maxLateCalls {
		k := keptCall()
		require.True(t, late.keep(k, time.Hour))
		late.done(k)
	}
	late.CloseLate()
	late.WaitLate()
}

func TestCallIsNotKept(t *testing.T) {
	t.Parallel()
	responded := keptCall()
	responded.responded()()
	unwritten := testCall("", ack)
	late := lateCalls{open: map[*Call]*time.Timer{}}
	require.False(t, late.keep(responded, time.Hour), "the response came first")
	require.False(t, late.keep(unwritten, time.Hour), "the body is not written")
	require.False(t, late.keep(keptCall(), 0), "there is no window")
}

// The status came in time: it is the result, however slow the body is.
func TestSlowBodyIsNoLateResponse(t *testing.T) {
	t.Parallel()
	client, call := newTestClient(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusAccepted)
		_ = http.NewResponseController(w).Flush()
		untilGone(w, r)
	})
	resp, late, err := client.post(call(ack))
	require.NoError(t, err)
	require.Nil(t, late)
	require.Equal(t, policy.Result{Status: http.StatusAccepted}, resp.Result)
	require.GreaterOrEqual(t, resp.Duration, ack)
}

// A late response takes effect although its body does not end.
func TestLateResponseWithSlowBody(t *testing.T) {
	t.Parallel()
	now := make(chan struct{})
	client, call := newTestClient(t, func(w http.ResponseWriter, r *http.Request) {
		<-now
		w.WriteHeader(http.StatusOK)
		_, _ = io.WriteString(w, "slow")
		_ = http.NewResponseController(w).Flush()
		untilGone(w, r)
	})
	_, late, err := client.post(call(ack))
	require.NoError(t, err)
	require.NotNil(t, late)
	close(now)
	select {
	case r := <-late:
		require.Equal(t, policy.Result{Status: http.StatusOK}, r.Result)
		require.Equal(t, "slow", string(r.Excerpt))
	case <-time.After(10 * time.Second):
		require.FailNow(t, "the call waits for the body")
	}
	client.WaitLate()
}

func TestStopInterruptsAnOpenCallBeforeItsAckTimeout(t *testing.T) {
	t.Parallel()
	client, call := newTestClient(t, untilGone)
	requests, cut := context.WithCancel(t.Context())
	client.requests = requests
	time.AfterFunc(50*time.Millisecond, cut)
	_, late, err := client.post(call(time.Minute))
	require.ErrorIs(t, err, ErrInterrupted)
	require.Nil(t, late)
}

// A panic of done leaves no call behind, and a later request is not affected.
func TestPanicInDoneEndsTheCall(t *testing.T) {
	t.Parallel()
	e := newScripted(t, respond(okEmpty))
	c := loopbackClient(t)
	k := testCall(e.url, time.Minute)
	k.Window = time.Hour
	require.PanicsWithValue(t, "planted", func() {
		c.call(k, func(Response, error) error { panic("planted") }, nil)
	})
	c.WaitLate()
	require.Zero(t, c.OpenCalls())
	require.Equal(t, 200, post(t, c, e.url).Result.Status)
}

// If the attempt is repeated, its open call is cut, and its response has no effect.
func TestRepeatedAttemptCutsItsCall(t *testing.T) {
	t.Parallel()
	client, call := newTestClient(t, untilGone)
	results := 0
	client.call(call(100*time.Millisecond), func(resp Response, err error) error {
		results++
		if err != nil || resp.Result.Err != policy.ErrorTimeout {
			t.Errorf("got %v, %v", resp.Result, err)
		}
		return io.ErrUnexpectedEOF // not recorded
	}, func(Response) { t.Error("a response that counts") })
	require.Equal(t, 1, results)
	client.WaitLate()
}

func TestPayloadIsSentAgainUntilItWasWritten(t *testing.T) {
	t.Parallel()
	released := 0
	p := NewPayload([]byte("hello"), func() { released++ })
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://example.com", nil)
	require.NoError(t, err)
	p.attach(req)
	require.EqualValues(t, 5, req.ContentLength)
	for range 2 {
		body, err := req.GetBody()
		require.NoError(t, err)
		text, err := io.ReadAll(body)
		require.NoError(t, err)
		require.Equal(t, "hello", string(text))
	}
	p.wrote(httptrace.WroteRequestInfo{Err: errors.New("connection found closed")})
	require.Zero(t, released)
	p.wrote(httptrace.WroteRequestInfo{})
	p.Drop()
	require.Equal(t, 1, released, "its memory is released once")
	_, err = req.GetBody()
	require.ErrorIs(t, err, errWritten)
}

// An endpoint that accepts and never speaks TLS must not keep the connection for longer than the handshake may take.
func TestTLSHandshakeWithoutResponseIsAbandoned(t *testing.T) {
	t.Parallel()
	closed := make(chan struct{})
	address := serveConns(t, "127.0.0.1:0", func(conn net.Conn) {
		_, _ = io.Copy(io.Discard, conn)
		close(closed)
	})
	client := loopbackClient(t)
	require.Equal(t, handshakeTimeout, client.transports.secure.TLSHandshakeTimeout)
	client.transports.secure.TLSHandshakeTimeout = 200 * time.Millisecond

	resp, _, err := client.post(testCall("https://"+address, 50*time.Millisecond))

	require.NoError(t, err)
	require.Equal(t, policy.ErrorTimeout, resp.Result.Err)
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		t.Fatal("the connection is still open")
	}
}
