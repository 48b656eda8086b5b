// Package endpoint sends HTTP requests to endpoints: deliveries, validation handshakes and OAuth token requests.
//
// It guards addresses after name resolution, follows no redirect, uses no proxy unless configured, and keeps a call
// open past its ack timeout while a late response still counts. Read Client.Send first.
package endpoint

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"time"

	"postrider/internal/destination"
	"postrider/internal/endpointconf"
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
	// AllowCIDR opens address ranges that endpointconf.Address denies.
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
	// Open opens clients of brokers, by their type of destination.
	Open map[destination.Type]destination.Open
	// Log is the log of clients of brokers.
	Log *slog.Logger
}

// Client sends requests. Their context is not that of their job: only the ack timeout and the engine's stop end them.
type Client struct {
	lateCalls
	requests   context.Context //nolint:containedctx // the requests' lifetime, cut by the engine's stop
	transports *transports
	tokens     *tokens
	brokers    *brokers
}

// NewClient returns a client. The end of requests cuts all its requests.
func NewClient(requests context.Context, o Options) *Client {
	t := &transports{
		Options: o, own: map[[sha256.Size]byte]*ownTransport{},
		http1: &http1{maxIdle: o.MaxIdleConnections, idle: map[poolKey][]*conn{}, http2: map[poolKey]bool{}},
	}
	t.secure = t.newTransport(guard(o.AllowCIDR, false))
	t.plain = t.secure
	if !o.AllowHTTP {
		t.plain = t.newTransport(guard(o.AllowCIDR, true))
	}
	return &Client{
		lateCalls: lateCalls{open: map[*Call]*time.Timer{}}, requests: requests, transports: t,
		tokens:  newTokens(requests, o.UserAgent, t.roundTrip),
		brokers: &brokers{open: o.Open, log: o.Log, clients: map[brokerKey]*broker{}},
	}
}

// CloseIdle closes all idle connections, and the clients of brokers.
func (c *Client) CloseIdle() {
	c.transports.close()
	c.brokers.closeAll()
}

// Request is a POST to an endpoint.
type Request struct {
	// Within is within the client's context, and cuts the request at its end; nil = the client's context.
	Within     context.Context //nolint:containedctx // the request is made within it
	URL        string
	Header     http.Header
	Body       *Payload
	Connection *endpointconf.Connection // nil = none of its own
	AckTimeout time.Duration
	// Window is how long after the request a late response still counts; up to the ack timeout there is none.
	Window time.Duration
	// Translate returns what a response means; nil = its status counts.
	Translate func(status int, h http.Header, text []byte) destination.Result
	// Second returns URL and headers with the second key, for a request whose first key was rejected; nil = there is none.
	Second func() (url string, h http.Header)
}

// Done gets the result of an attempt. Its error is ErrInterrupted or nil; an endpoint's failure is a Response. If Done
// returns an error, the attempt is repeated, and no late response counts.
type Done func(Response, error) error

// Send sends a request, with an access token if the connection has OAuth2. It returns when the call has ended. It calls
// done once: at the ack timeout on another goroutine if the call stays open, else on this one. late then gets the
// response of a call that stayed open, unless the attempt is repeated. WaitLate waits for late. done must not panic.
func (c *Client) Send(r *Request, done Done, late func(Response)) {
	switch {
	case r.Connection.OAuth2 != nil:
		c.sendAuthorized(r, done, late)
	case r.Second != nil:
		rejected := func(resp *Response) bool { return !resp.passed }
		c.sendTwice(newCall(r, ""), rejected, func(second Request) (*Call, error) {
			second.URL, second.Header = r.Second()
			return newCall(&second, ""), nil
		}, done, late)
	default:
		c.call(newCall(r, ""), done, late)
	}
}

// sendAuthorized sends a second request if the endpoint rejects a token that is not new: the token may have been
// revoked, and a policy may never retry 401.
func (c *Client) sendAuthorized(r *Request, done Done, late func(Response)) {
	began := time.Now()
	token, problem := c.Token(r.Connection)
	if errors.Is(problem, ErrInterrupted) {
		_ = done(Response{}, problem)
		return
	}
	if problem != nil {
		resp := Response{Result: policy.Result{Err: policy.ErrorUnauthorized}, Duration: time.Since(began)}
		resp.Failed(problem)
		_ = done(resp, nil)
		return
	}
	keyRejected := false // of Relay, whose listener gets the token
	rejected := func(resp *Response) bool {
		keyRejected = r.Second != nil && !resp.passed
		return keyRejected || c.tokens.rejected(r.Connection, token)
	}
	c.sendTwice(newCall(r, token), rejected, func(second Request) (*Call, error) {
		if keyRejected {
			second.URL, second.Header = r.Second()
			return newCall(&second, token), nil
		}
		another, err := c.Token(r.Connection)
		return newCall(&second, another), err
	}, done, late)
}

// sendTwice makes a second call if the first one's credentials are rejected. Both are one attempt, whose result is the
// second response. next gets the request with its body. Without a call, the endpoint's 401 is the result.
func (c *Client) sendTwice(
	first *Call, rejected func(*Response) bool, next func(Request) (*Call, error), done Done, late func(Response),
) {
	again := *first.Request
	again.Body = first.Body.again() // kept until the response
	defer again.Body.Drop()
	var unauthorized *Response
	c.call(first, func(resp Response, err error) error {
		if err == nil && resp.Result.Status == http.StatusUnauthorized && rejected(&resp) {
			unauthorized = &resp
			return nil
		}
		again.Body.Drop()
		return done(resp, err)
	}, late)
	if unauthorized == nil {
		return
	}
	switch second, err := next(again); {
	case errors.Is(err, ErrInterrupted):
		_ = done(*unauthorized, err)
	case err != nil:
		_ = done(*unauthorized, nil)
	default:
		c.call(second, done, late)
	}
}

// lifetime is what cuts a request.
func (c *Client) lifetime(r *Request) context.Context {
	if r.Within != nil {
		return r.Within
	}
	return c.requests
}

// call makes a call until its ack timeout. Then the attempt has timed out, and the call may stay open until its window,
// counted from the send, is over.
func (c *Client) call(k *Call, done Done, late func(Response)) {
	ctx, cut := context.WithCancelCause(c.lifetime(k.Request))
	k.cut = cut
	ack := time.AfterFunc(k.AckTimeout, func() { c.timedOut(k, done) })
	defer func() { // also after a panic
		ack.Stop()
		cut(nil)
		if k.state.Swap(callResponded) == callLate {
			c.done(k)
		}
	}()
	resp, err := c.exchange(ctx, k)
	resp.Sent, resp.Token = k.header, k.token
	if k.inTime() {
		if !ack.Stop() {
			resp.timedOut(k.AckTimeout)
		}
		_ = done(resp, err)
		return
	}
	k.concluding.Lock()
	repeated := k.repeated
	k.concluding.Unlock()
	if err == nil && !repeated {
		late(resp)
	}
}

// timedOut ends the attempt of a call that may stay open, and cuts another: it has no response yet, or its body has not
// ended.
func (c *Client) timedOut(k *Call, done Done) {
	k.concluding.Lock()
	defer k.concluding.Unlock()
	if !c.keep(k, k.Window-k.AckTimeout) {
		k.cut(context.DeadlineExceeded)
		return
	}
	resp := Response{
		Result: policy.Result{Err: policy.ErrorTimeout}, Timings: k.watch.read(), Duration: k.elapsed(),
		Cause: context.DeadlineExceeded, Sent: k.header, Token: k.token,
	}
	resp.timedOut(k.AckTimeout)
	if err := done(resp, nil); err != nil {
		k.repeated = true
		k.cut(err)
	}
}

// exchange makes the call until ctx ends it. The error is ErrInterrupted or nil.
func (c *Client) exchange(ctx context.Context, k *Call) (resp Response, err error) {
	k.wrote = c.wrote(k.Body)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, k.URL, nil)
	if err != nil {
		resp.Result, resp.Duration = policy.Result{Err: policy.ErrorArgument}, k.elapsed()
		resp.Failed(err)
		return resp, nil
	}
	req.Header = k.header
	if req.Header["User-Agent"] == nil { // a custom header may set another
		req.Header.Set("User-Agent", c.transports.UserAgent)
	}
	received, err := c.transports.send(req, k)
	resp.Timings, resp.Duration = k.watch.read(), k.elapsed() // in this order: no phase is longer than the whole
	if err != nil {
		if c.lifetime(k.Request).Err() != nil {
			return resp, ErrInterrupted
		}
		resp.Result = policy.Result{Err: errorKind(ctx, err)}
		resp.Failed(err)
		return resp, nil
	}
	defer func() { _ = received.Body.Close() }()
	defer k.responded()()
	resp.read(received)
	if k.Translate != nil {
		resp.translated(k.Translate(received.StatusCode, received.Header, resp.Excerpt))
		if resp.ErrorText == "" { // a receipt of the service, which says nothing more than the status
			resp.Excerpt, resp.Headers = nil, nil
		}
	}
	resp.Duration = k.elapsed()
	return resp, nil
}

func (c *Client) wrote(body *Payload) func(httptrace.WroteRequestInfo) {
	return func(info httptrace.WroteRequestInfo) {
		if body.wrote(info); c.transports.Sent != nil {
			c.transports.Sent()
		}
	}
}
