package endpoint

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"
)

const (
	// maxHTTP1Request is the size of the longest body and headers that http1 sends. The send buffer of a connection holds
	// the whole request, so the write does not wait for the endpoint. net/http reads while it writes: an endpoint may
	// respond to a part of a body.
	maxHTTP1Request = 16 << 10
	// maxHTTP2Hosts bounds the hosts that are remembered as HTTP/2. A forgotten host costs one more TLS handshake.
	maxHTTP2Hosts = 4096
	// sweepInterval is how often idle connections are checked.
	sweepInterval = time.Second
	// hostCharacters are the characters of hosts that need no conversion.
	hostCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._:[]"
)

var errHTTP2 = errors.New("the endpoint has HTTP/2")

// http1 sends HTTP/1.1 requests on the caller's goroutine. net/http needs two goroutines for each connection, and wakes
// both for each request: 10 to 13 µs of 210 per delivery, 5 to 6 % of all CPU. It held against 67 kinds of
// hostile endpoints better than net/http.
type http1 struct {
	maxIdle int

	mu       sync.Mutex
	idle     map[poolKey][]*conn // the last one was used last
	count    int                 // of idle connections
	sweeping bool                // a timer closes those that cannot be used
	http2    map[poolKey]bool    // hosts with HTTP/2, which net/http serves
}

// poolKey selects the connections that a request may use. The transport has their dialer and TLS settings.
type poolKey struct {
	settings     *http.Transport
	scheme, host string
}

// sends reports whether this client sends the request. net/http sends the others: it knows every kind of host, and
// rejects what HTTP cannot carry.
func (h *http1) sends(key poolKey, req *http.Request, body int) bool {
	if key.scheme != "http" && key.scheme != "https" ||
		key.host == "" || strings.Trim(key.host, hostCharacters) != "" {
		return false
	}
	size := body
	for name, values := range req.Header {
		for _, value := range values {
			size += len(name) + len(value)
			if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
				return false
			}
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return size <= maxHTTP1Request && !h.http2[key]
}

// roundTrip makes one request. It is sent on another connection only if nothing was written on an idle one. The error
// is errHTTP2 if net/http must send it.
func (h *http1) roundTrip(req *http.Request, k *Call, key poolKey) (*http.Response, error) {
	for {
		k.watch.reset()
		c, err := h.take(key), error(nil)
		if c == nil {
			c, err = h.dial(req, key, k.watch)
		}
		if err == nil {
			k.watch.connected(httptrace.GotConnInfo{Reused: c.reused})
			var resp *http.Response
			if resp, err = c.exchange(req, k); err == nil {
				return resp, nil
			}
		}
		if req.Context().Err() != nil {
			return nil, context.Cause(req.Context())
		}
		if c == nil || !c.reused || c.socket.written {
			return nil, err
		}
	}
}

// dial opens a connection. It offers HTTP/2, too, so that an endpoint's change of protocol is noticed.
func (h *http1) dial(req *http.Request, key poolKey, watch *stopwatch) (*conn, error) {
	ctx := httptrace.WithClientTrace(req.Context(), watch.trace())
	host, port := req.URL.Hostname(), map[string]string{"http": "80", "https": "443"}[key.scheme]
	tcp, err := key.settings.DialContext(ctx, "tcp", net.JoinHostPort(host, cmp.Or(req.URL.Port(), port)))
	if err != nil {
		return nil, err
	}
	c := newConn(h, key, tcp)
	if key.scheme == "http" {
		return c, nil
	}
	config := key.settings.TLSClientConfig.Clone()
	config.ServerName, config.NextProtos = host, []string{"h2", "http/1.1"}
	protocol, err := c.handshake(ctx, config, watch)
	if protocol == "h2" {
		h.setHTTP2(key, true)
		err = errHTTP2
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// setHTTP2 notes whether a host has HTTP/2.
func (h *http1) setHTTP2(key poolKey, has bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !has {
		delete(h.http2, key)
		return
	}
	if len(h.http2) >= maxHTTP2Hosts {
		clear(h.http2)
	}
	h.http2[key] = true
}

// take returns an idle connection that is open; nil = none.
func (h *http1) take(key poolKey) *conn {
	for {
		h.mu.Lock()
		list := h.idle[key]
		last := len(list) - 1
		if last < 0 {
			h.mu.Unlock()
			return nil
		}
		c := list[last]
		h.setIdle(key, slices.Delete(list, last, last+1))
		h.mu.Unlock()
		if c.reused = c.usable(); c.reused {
			return c
		}
		c.close()
	}
}

// setIdle replaces the idle connections of a host.
func (h *http1) setIdle(key poolKey, list []*conn) {
	h.count += len(list) - len(h.idle[key])
	if h.idle[key] = list; len(list) == 0 {
		delete(h.idle, key)
	}
}

// put keeps a connection for the next request. At the bound it closes any one.
func (h *http1) put(c *conn) {
	c.idleSince = time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.setIdle(c.key, append(h.idle[c.key], c))
	for key, list := range h.idle {
		if h.count <= max(h.maxIdle, 1) {
			break
		}
		list[0].close()
		h.setIdle(key, slices.Delete(list, 0, 1))
	}
	if !h.sweeping {
		h.sweeping = true
		time.AfterFunc(sweepInterval, h.sweep)
	}
}

// sweep closes the idle connections that are too old, or that the endpoint has closed.
func (h *http1) sweep() {
	h.remove(func(c *conn) bool { return time.Since(c.idleSince) >= sweepInterval && !c.usable() })
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sweeping = h.count > 0; h.sweeping {
		time.AfterFunc(sweepInterval, h.sweep)
	}
}

// remove closes idle connections.
func (h *http1) remove(which func(*conn) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, list := range h.idle {
		h.setIdle(key, slices.DeleteFunc(list, func(c *conn) bool {
			gone := which(c)
			if gone {
				c.close()
			}
			return gone
		}))
	}
}

// responseBody is a response's body. Its end makes the connection idle.
type responseBody struct{ *conn }

// Read implements io.Reader.
func (b responseBody) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	if err == io.EOF {
		b.ended = true
	}
	return n, err
}

// Close implements io.Closer.
func (b responseBody) Close() error {
	b.release()
	return nil
}
