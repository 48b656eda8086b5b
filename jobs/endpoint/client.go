// Package endpoint sends HTTP requests to endpoints: deliveries, validation handshakes and OAuth token requests.
//
// It guards addresses after name resolution, follows no redirect, uses no proxy unless configured, and keeps a call
// open past its ack timeout while a late response still counts. Read Client.Send first.
package endpoint

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"time"

	"postrider/policy"
)

const (
	maxResponseBytes = 64 << 10 // read at most: the connection stays usable for the next request
	// MaxExcerptBytes is how much of a response body is kept.
	MaxExcerptBytes = 4 << 10
	maxResponseHead = 64 << 10
	// Node.js closes idle connections after 5 s by default. A request on a connection that is being closed is a socket
	// error, which namespace-2023 never retries under "documented". So idle connections are closed earlier.
	idleConnTimeout = 4 * time.Second

	dialTimeout      = 30 * time.Second
	handshakeTimeout = 30 * time.Second
)

// ErrInterrupted means that the stop of this node cut the request. It is not an outcome: the attempt is repeated.
var ErrInterrupted = errors.New("the attempt was cut by this node's stop")

// rejectedError is an address that must not be called.
type rejectedError struct{ cause error }

func (e *rejectedError) Error() string { return "rejected address: " + e.cause.Error() }
func (e *rejectedError) Unwrap() error { return e.cause }

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

// Client sends requests. Their context is not that of their job: only the ack timeout and the engine's stop end them.
type Client struct {
	lateCalls
	requests   context.Context //nolint:containedctx // the requests' lifetime, cut by the engine's stop
	transports *transports
	tokens     *tokens
	userAgent  string
	sent       func() // called when a request has been written; nil = none
}

// NewClient returns a client. The end of requests cuts all its requests.
func NewClient(requests context.Context, o Options) *Client {
	c := &Client{
		requests: requests, userAgent: o.UserAgent, transports: newTransports(o), sent: o.Sent,
		lateCalls: lateCalls{open: map[*Call]*time.Timer{}},
	}
	c.tokens = newTokens(requests, o.UserAgent, c.transports.roundTrip)
	return c
}

// CloseIdle closes all idle connections.
func (c *Client) CloseIdle() { c.transports.close() }

// Request is a POST to an endpoint.
type Request struct {
	URL        string
	Header     http.Header
	Body       *Payload
	Connection *policy.Connection // nil = none of its own
	AckTimeout time.Duration
	// Window is how long after the request a late response still counts; up to the ack timeout there is none.
	Window time.Duration
}

// Send sends a request, with an access token if the connection has OAuth2. late is the call if it stays open past the
// ack timeout: wait for it with Finish. The error is ErrInterrupted or nil; an endpoint's failure is a Response.
func (c *Client) Send(r *Request) (resp Response, late *Call, err error) {
	if r.Connection.OAuth2 == nil {
		return c.post(newCall(r, ""))
	}
	return c.sendAuthorized(r)
}

// sendAuthorized sends a second request if the endpoint rejects a token that is not new: the token may have been
// revoked, and a policy may never retry 401. Both are one attempt, whose result is the second response.
func (c *Client) sendAuthorized(r *Request) (resp Response, late *Call, err error) {
	began := time.Now()
	token, problem := c.Token(r.Connection)
	switch {
	case errors.Is(problem, ErrInterrupted):
		return Response{}, nil, problem
	case problem != nil:
		resp = Response{Result: policy.Result{Err: policy.ErrorUnauthorized}, Duration: time.Since(began)}
		resp.Failed(problem)
		return resp, nil, nil
	}
	second := *r
	second.Body = r.Body.again() // kept until the response
	defer second.Body.Drop()
	resp, late, err = c.sendWith(r, token)
	if err != nil || late != nil || resp.Result.Status != http.StatusUnauthorized ||
		!c.tokens.rejected(r.Connection, token) {
		return resp, late, err
	}
	if token, err = c.Token(r.Connection); errors.Is(err, ErrInterrupted) {
		return resp, nil, err
	} else if err != nil {
		return resp, nil, nil //nolint:nilerr // the endpoint's 401 is the result
	}
	return c.sendWith(&second, token)
}

func (c *Client) sendWith(r *Request, token string) (resp Response, late *Call, err error) {
	resp, late, err = c.post(newCall(r, token))
	resp.Token = token
	return resp, late, err
}

// post makes a call and waits for its response until the ack timeout. Then the attempt has timed out, and the call may
// stay open until its window, counted from the send, is over: late is that call, for Finish.
func (c *Client) post(k *Call) (resp Response, late *Call, err error) {
	ctx, cut := context.WithCancelCause(c.requests)
	k.cut = cut
	go func() {
		defer cut(nil)
		resp, err := c.exchange(ctx, k)
		resp.Sent = k.header
		k.result <- result{resp, err}
	}()
	ack := time.NewTimer(k.AckTimeout)
	defer ack.Stop()
	select {
	case r := <-k.result:
		return r.Response, nil, r.err
	case <-ack.C:
	}
	if c.keep(k, k.Window-k.AckTimeout) {
		resp = Response{
			Result: policy.Result{Err: policy.ErrorTimeout}, Timings: k.watch.read(), Duration: k.elapsed(),
			Cause: context.DeadlineExceeded, Sent: k.header,
		}
		resp.timedOut(k.AckTimeout)
		return resp, k, nil
	}
	cut(context.DeadlineExceeded) // no response yet, or its body has not ended
	r := <-k.result
	r.timedOut(k.AckTimeout)
	return r.Response, nil, r.err
}

// exchange makes the call until ctx ends it. The error is ErrInterrupted or nil.
func (c *Client) exchange(ctx context.Context, k *Call) (resp Response, err error) {
	trace := k.watch.trace()
	trace.WroteRequest = c.wrote(k.Body)
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), http.MethodPost, k.URL, nil)
	if err != nil {
		resp.Result, resp.Duration = policy.Result{Err: policy.ErrorArgument}, k.elapsed()
		resp.Failed(err)
		return resp, nil
	}
	k.Body.attach(req)
	req.Header = k.header
	if req.Header["User-Agent"] == nil { // a custom header may set another
		req.Header.Set("User-Agent", c.userAgent)
	}
	received, err := c.transports.roundTrip(req, k.Connection)
	resp.Timings, resp.Duration = k.watch.read(), k.elapsed() // in this order: no phase is longer than the whole
	if err != nil {
		if c.requests.Err() != nil {
			return resp, ErrInterrupted
		}
		resp.Result = policy.Result{Err: errorKind(ctx, err)}
		resp.Failed(err)
		return resp, nil
	}
	defer func() { _ = received.Body.Close() }()
	defer k.responded()()
	resp.read(received)
	resp.Duration = k.elapsed()
	return resp, nil
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

// Finish waits for a call that stayed open, and then calls use unless the call was cut. cause cuts it at once. WaitLate
// waits for use.
func (c *Client) Finish(k *Call, cause error, use func(Response)) {
	if cause != nil {
		k.cut(cause)
	}
	defer c.done(k)
	if r := <-k.result; r.err == nil && cause == nil {
		use(r.Response)
	}
}
