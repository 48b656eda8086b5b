// Package endpoint sends HTTP requests to endpoints: deliveries, validation handshakes and OAuth token requests.
//
// It guards addresses after name resolution, follows no redirect, uses no proxy unless configured, and keeps a call
// open past its ack timeout while a late response still counts. Read Client.Send first.
package endpoint

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"time"
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

// CloseLate cuts the calls that stay open past their ack timeout, and keeps no more.
func (c *Client) CloseLate() { c.late.close() }

// WaitLate returns when the late responses that had arrived before CloseLate have been recorded.
func (c *Client) WaitLate() { c.late.group.Wait() }

// OpenCalls is the number of calls that stay open past their ack timeout.
func (c *Client) OpenCalls() int { return c.late.len() }

// CloseIdle closes all idle connections.
func (c *Client) CloseIdle() { c.transports.close() }
