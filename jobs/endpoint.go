package jobs

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"time"

	"postrider/policy"
	"postrider/store"
)

const (
	maxResponseBytes = 64 << 10 // read at most: the connection stays usable for the next request
	maxExcerptBytes  = 4 << 10  // stored at most
	maxResponseHead  = 64 << 10
	// Node.js closes idle connections after 5 s by default. A request that meets the close is a socket error, which
	// namespace-2023 never retries under documented: idle connections are given up before that.
	idleConnTimeout = 4 * time.Second

	dialTimeout      = 30 * time.Second
	handshakeTimeout = 30 * time.Second
)

// errInterrupted: our own stop cut the request. That is no outcome; the attempt is made again.
var errInterrupted = errors.New("the attempt was cut by this node's stop")

// refusedError is an address that must not be called.
type refusedError struct{ cause error }

func (e *refusedError) Error() string { return "refused address: " + e.cause.Error() }
func (e *refusedError) Unwrap() error { return e.cause }

// endpointClient makes the requests. They live in a context of their own, not in their job's: only the ack timeout and
// the engine's stop end them.
type endpointClient struct {
	requests   context.Context //nolint:containedctx // the requests' lifetime, cut by the engine's stop
	transports *transports
	tokens     *tokens
	userAgent  string
	late       *lateCalls
	sent       func() // told when a request was written; nil = nobody
}

func newEndpointClient(requests context.Context, o Options) *endpointClient {
	c := &endpointClient{requests: requests, userAgent: o.UserAgent, late: newLateCalls(), transports: newTransports(o)}
	c.tokens = newTokens(requests, o.UserAgent, c.transports.roundTrip)
	return c
}

// answer is what one request met.
type answer struct {
	result     policy.Result
	errText    string
	cause      error // of errText, for the log
	headers    []byte
	excerpt    []byte
	retryAfter string
	timings    store.Timings
	duration   time.Duration
}

// post sends one request and waits for its answer, at most until the ack timeout. The error is errInterrupted or nil:
// an endpoint's failure is an outcome.
func (c *endpointClient) post(k *call, ackTimeout time.Duration) (answer, error) {
	ctx, cancel := context.WithTimeout(c.requests, ackTimeout)
	defer cancel()
	a, err := c.exchange(ctx, k)
	if ctx.Err() != nil {
		a.timedOut(ackTimeout)
	}
	return a, err
}

// timedOut words the error of an attempt that got no response until the ack timeout.
func (a *answer) timedOut(ackTimeout time.Duration) {
	if a.result.Err == policy.ErrorTimeout {
		a.errText = fmt.Sprintf("no response within %g s", ackTimeout.Seconds())
	}
}

// failed keeps why there was no response: in plain words, and as it was for the log.
func (a *answer) failed(err error) {
	a.errText, a.cause = errorText(err), originalError(err)
}

// exchange makes the call until ctx ends it.
func (c *endpointClient) exchange(ctx context.Context, k *call) (answer, error) {
	a := answer{}
	trace := k.watch.trace()
	trace.WroteRequest = c.wrote(k.body)
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), http.MethodPost, k.url, nil)
	if err != nil {
		a.result, a.duration = policy.Result{Err: policy.ErrorArgument}, k.elapsed()
		a.failed(err)
		return a, nil
	}
	k.body.attach(req)
	req.Header = k.header
	if req.Header["User-Agent"] == nil { // a custom header may name another one
		req.Header.Set("User-Agent", c.userAgent)
	}
	resp, err := c.transports.roundTrip(req, k.by)
	a.timings, a.duration = k.watch.read(), k.elapsed() // in this order: no phase is longer than the whole
	if err != nil {
		if c.requests.Err() != nil {
			return a, errInterrupted
		}
		a.result = policy.Result{Err: errorKind(ctx, err)}
		a.failed(err)
		return a, nil
	}
	defer func() { _ = resp.Body.Close() }()
	defer k.answered()()
	a.read(resp)
	a.duration = k.elapsed()
	return a, nil
}

func (c *endpointClient) wrote(body *payload) func(httptrace.WroteRequestInfo) {
	if c.sent == nil {
		return body.wrote
	}
	return func(info httptrace.WroteRequestInfo) {
		body.wrote(info)
		c.sent()
	}
}

// read takes what is kept of a response. A body that never ends or breaks off changes nothing: the status is the answer.
func (a *answer) read(resp *http.Response) {
	a.result = policy.Result{Status: resp.StatusCode}
	a.retryAfter = resp.Header.Get("Retry-After")
	excerpt, err := io.ReadAll(io.LimitReader(resp.Body, maxExcerptBytes))
	if err == nil && len(excerpt) == maxExcerptBytes {
		_, _ = io.CopyN(io.Discard, resp.Body, maxResponseBytes-maxExcerptBytes)
	}
	if len(excerpt) > 0 {
		a.excerpt = excerpt
	}
	if !a.boring() {
		a.headers = headerBytes(resp.Header)
	}
}

// boring answers (success without a body) are most of all answers: their headers are not worth a write.
func (a *answer) boring() bool {
	return len(a.excerpt) == 0 && a.result.Status >= 200 && a.result.Status < 300
}

func headerBytes(header http.Header) []byte {
	var out bytes.Buffer
	_ = header.WriteSubset(&out, map[string]bool{"Set-Cookie": true}) // a bytes.Buffer cannot fail; cookies are secrets
	return out.Bytes()[:min(out.Len(), maxExcerptBytes)]
}

// errorKind sorts errors below HTTP into the policies' conditions. TLS failures count as socket errors.
func errorKind(ctx context.Context, err error) policy.ErrorKind {
	var refused *refusedError
	var dns *net.DNSError
	var netErr net.Error
	switch {
	case errors.As(err, &refused):
		return policy.ErrorArgument
	case ctx.Err() != nil:
		return policy.ErrorTimeout
	case errors.As(err, &dns):
		return policy.ErrorDNS
	case errors.As(err, &netErr) && netErr.Timeout():
		return policy.ErrorTimeout
	case strings.Contains(err.Error(), "unsupported protocol scheme"):
		return policy.ErrorArgument
	default:
		return policy.ErrorSocket
	}
}

// stopwatch takes the durations of a request's phases, which follow one another and so add up to the request's at most. It
// is locked: a dial continues after its request was given another connection or has ended, and still writes while the
// request's result is being recorded.
type stopwatch struct {
	started time.Time

	mu                      sync.Mutex
	dns, connect, handshake time.Time
	ready                   time.Time // when the request had its connection; what a dial still does then is no phase of it
	timings                 store.Timings
}

func (s *stopwatch) read() store.Timings {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.timings
}

func (s *stopwatch) begin(phase *time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*phase = time.Now()
}

// end ends a phase of the dial. A connect to another address may still be open when the TLS handshake has begun: it is not
// counted.
func (s *stopwatch) end(took *time.Duration, phase *time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ready.IsZero() && (s.handshake.IsZero() || phase == &s.handshake) {
		*took = time.Since(*phase)
	}
}

// get begins again: the connection that the request had was found closed.
func (s *stopwatch) get() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dns, s.connect, s.handshake, s.ready, s.timings = time.Time{}, time.Time{}, time.Time{}, time.Time{}, store.Timings{}
}

func (s *stopwatch) got(reused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready = time.Now()
	if reused {
		s.timings = store.Timings{}
	}
}

func (s *stopwatch) firstByte() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ready.IsZero() {
		s.timings.FirstByte = time.Since(s.ready)
	}
}

func (s *stopwatch) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn:              func(string) { s.get() },
		GotConn:              func(c httptrace.GotConnInfo) { s.got(c.Reused) },
		DNSStart:             func(httptrace.DNSStartInfo) { s.begin(&s.dns) },
		DNSDone:              func(httptrace.DNSDoneInfo) { s.end(&s.timings.DNS, &s.dns) },
		ConnectStart:         func(string, string) { s.begin(&s.connect) },
		ConnectDone:          func(string, string, error) { s.end(&s.timings.Connect, &s.connect) },
		TLSHandshakeStart:    func() { s.begin(&s.handshake) },
		TLSHandshakeDone:     func(tls.ConnectionState, error) { s.end(&s.timings.TLS, &s.handshake) },
		GotFirstResponseByte: s.firstByte,
	}
}

// errNoPolicy is no store.ErrNotFound: that would end the job, and the delivery would wait without one for ever.
var errNoPolicy = errors.New("its retry policy does not exist")
