package endpoint

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
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"postrider/policy"
)

const (
	maxResponseBytes = 64 << 10 // read at most: the connection stays usable for the next request
	// MaxExcerptBytes is how much of a response body is kept.
	MaxExcerptBytes = 4 << 10
	maxResponseHead = 64 << 10
	// Node.js closes idle connections after 5 s by default. A request that meets the close is a socket error, which
	// namespace-2023 never retries under documented: idle connections are given up before that.
	idleConnTimeout = 4 * time.Second

	dialTimeout      = 30 * time.Second
	handshakeTimeout = 30 * time.Second
)

// ErrInterrupted means that the stop of this node cut the request. It is not an outcome: the attempt is made again.
var ErrInterrupted = errors.New("the attempt was cut by this node's stop")

// refusedError is an address that must not be called.
type refusedError struct{ cause error }

func (e *refusedError) Error() string { return "refused address: " + e.cause.Error() }
func (e *refusedError) Unwrap() error { return e.cause }

// Options configure a Client.
type Options struct {
	UserAgent string
	// AllowCIDR opens address ranges that policy.Address denies.
	AllowCIDR []netip.Prefix
	// AllowHTTP allows requests without TLS to public addresses.
	AllowHTTP bool
	// Proxy is the proxy of all requests; nil = none.
	Proxy *url.URL
	// Resolver resolves names; nil = the system's.
	Resolver *net.Resolver
	// MaxIdleConnections is the number of idle connections that are kept, per endpoint and in total.
	MaxIdleConnections int
	// Sent is called when a request has been written; nil = none.
	Sent func()
}

// Client sends requests. They have their own context, not in their job's: only the ack timeout and the
// engine's stop end them.
type Client struct {
	requests   context.Context //nolint:containedctx // the requests' lifetime, cut by the engine's stop
	transports *transports
	tokens     *tokens
	userAgent  string
	late       *lateCalls
	sent       func() // called when a request has been written; nil = none
}

// NewClient returns a client. The end of requests cuts all its requests.
func NewClient(requests context.Context, o Options) *Client {
	c := &Client{
		requests: requests, userAgent: o.UserAgent, late: newLateCalls(), transports: newTransports(o), sent: o.Sent,
	}
	c.tokens = newTokens(requests, o.UserAgent, c.transports.roundTrip)
	return c
}

// Timings are the durations of a request's phases; zero for a phase that did not happen, as on a reused connection.
// FirstByte counts from the moment the connection was ready.
type Timings struct{ DNS, Connect, TLS, FirstByte time.Duration }

// Answer is the result of one request.
type Answer struct {
	Result policy.Result
	// ErrorText says in plain words why there is no response; Cause is the original error, for the log.
	ErrorText string
	Cause     error
	// Headers and Excerpt are what is kept of the response, at most 4 KiB each; nil = none.
	Headers    []byte
	Excerpt    []byte
	RetryAfter string // the header as received
	Timings    Timings
	Duration   time.Duration
	Sent       http.Header // the headers of the request; nil = no request was sent
	Token      string      // the access token in them; "" = none
}

// post sends one request and waits for its answer, at most until the ack timeout. The error is errInterrupted or nil:
// an endpoint's failure is an outcome.
func (c *Client) post(k *Call, ackTimeout time.Duration) (Answer, error) {
	ctx, cancel := context.WithTimeout(c.requests, ackTimeout)
	defer cancel()
	a, err := c.exchange(ctx, k)
	if ctx.Err() != nil {
		a.timedOut(ackTimeout)
	}
	return a, err
}

// timedOut words the error of an attempt that got no response until the ack timeout.
func (a *Answer) timedOut(ackTimeout time.Duration) {
	if a.Result.Err == policy.ErrorTimeout {
		a.ErrorText = fmt.Sprintf("no response within %g s", ackTimeout.Seconds())
	}
}

// Failed sets ErrorText and Cause from the error of a request without a response.
func (a *Answer) Failed(err error) {
	a.ErrorText, a.Cause = ErrorText(err), OriginalError(err)
}

// exchange makes the call until ctx ends it.
func (c *Client) exchange(ctx context.Context, k *Call) (Answer, error) {
	a := Answer{}
	trace := k.watch.trace()
	trace.WroteRequest = c.wrote(k.body)
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), http.MethodPost, k.url, nil)
	if err != nil {
		a.Result, a.Duration = policy.Result{Err: policy.ErrorArgument}, k.elapsed()
		a.Failed(err)
		return a, nil
	}
	k.body.attach(req)
	req.Header = k.header
	if req.Header["User-Agent"] == nil { // a custom header may name another one
		req.Header.Set("User-Agent", c.userAgent)
	}
	resp, err := c.transports.roundTrip(req, k.by)
	a.Timings, a.Duration = k.watch.read(), k.elapsed() // in this order: no phase is longer than the whole
	if err != nil {
		if c.requests.Err() != nil {
			return a, ErrInterrupted
		}
		a.Result = policy.Result{Err: errorKind(ctx, err)}
		a.Failed(err)
		return a, nil
	}
	defer func() { _ = resp.Body.Close() }()
	defer k.answered()()
	a.read(resp)
	a.Duration = k.elapsed()
	return a, nil
}

func (c *Client) wrote(body *Payload) func(httptrace.WroteRequestInfo) {
	if c.sent == nil {
		return body.wrote
	}
	return func(info httptrace.WroteRequestInfo) {
		body.wrote(info)
		c.sent()
	}
}

// read takes what is kept of a response. A body that never ends or breaks off changes nothing: the status is the
// answer.
func (a *Answer) read(resp *http.Response) {
	a.Result = policy.Result{Status: resp.StatusCode}
	a.RetryAfter = resp.Header.Get("Retry-After")
	excerpt, err := io.ReadAll(io.LimitReader(resp.Body, MaxExcerptBytes))
	if err == nil && len(excerpt) == MaxExcerptBytes {
		_, _ = io.CopyN(io.Discard, resp.Body, maxResponseBytes-MaxExcerptBytes)
	}
	if len(excerpt) > 0 {
		a.Excerpt = excerpt
	}
	if !a.boring() {
		a.Headers = headerBytes(resp.Header)
	}
}

// boring answers (success without a body) are most of all answers: their headers are not worth a write.
func (a *Answer) boring() bool {
	return len(a.Excerpt) == 0 && a.Result.Status >= 200 && a.Result.Status < 300
}

func headerBytes(header http.Header) []byte {
	var out bytes.Buffer
	_ = header.WriteSubset(&out, map[string]bool{"Set-Cookie": true}) // a bytes.Buffer cannot fail; cookies are secrets
	return out.Bytes()[:min(out.Len(), MaxExcerptBytes)]
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

// stopwatch takes the durations of a request's phases, which follow one another and so add up to the request's at most.
// It is locked: a dial continues after its request was given another connection or has ended, and still writes while
// the request's result is being recorded.
type stopwatch struct {
	started time.Time

	mu                      sync.Mutex
	dns, connect, handshake time.Time
	ready                   time.Time // when the request had its connection; what a dial still does then is no phase of it
	timings                 Timings
}

func (s *stopwatch) read() Timings {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.timings
}

func (s *stopwatch) begin(phase *time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*phase = time.Now()
}

// end ends a phase of the dial. A connect to another address may still be open when the TLS handshake has begun: it is
// not counted.
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
	s.dns, s.connect, s.handshake, s.ready, s.timings = time.Time{}, time.Time{}, time.Time{}, time.Time{}, Timings{}
}

func (s *stopwatch) got(reused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready = time.Now()
	if reused {
		s.timings = Timings{}
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

// CloseLate cuts the calls that stay open past their ack timeout, and keeps no more.
func (c *Client) CloseLate() { c.late.close() }

// WaitLate returns when the late responses that had arrived before CloseLate have been recorded.
func (c *Client) WaitLate() { c.late.wait() }

// OpenCalls is the number of calls that stay open past their ack timeout.
func (c *Client) OpenCalls() int { return c.late.len() }

// CloseIdle closes all idle connections.
func (c *Client) CloseIdle() { c.transports.close() }

// Stopped reports whether the node's stop has cut the requests.
func (c *Client) Stopped() bool { return c.requests.Err() != nil }
