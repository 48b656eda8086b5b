package endpoint

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"strconv"
	"syscall"
	"time"
)

// The errors of net/http.
var (
	errHeadTooLong = fmt.Errorf("server response headers exceeded %d bytes; aborted", maxResponseHead)
	errTLSTimeout  = &PlainError{Text: "TLS handshake timeout", Cause: context.DeadlineExceeded}
)

// conn is a connection that carries one HTTP/1.1 request at a time.
type conn struct {
	net.Conn // TLS, or the socket
	socket   *socket
	pool     *http1
	key      poolKey
	in       *bufio.Reader
	out      *bufio.Writer
	reused   bool
	// Of the current request: how much may be read; an error of a read; whether the response allows another request, and
	// its body has ended.
	readable    int64
	broken      error
	keep, ended bool
	body        io.ReadCloser
	uncut       func() bool // the context cuts the connection until then

	idleSince time.Time
}

// socket is a TCP connection that notes whether the current request was written, in part or whole.
type socket struct {
	net.Conn
	raw     syscall.RawConn
	written bool
}

// Write implements io.Writer.
func (s *socket) Write(p []byte) (int, error) {
	n, err := s.Conn.Write(p)
	s.written = s.written || n > 0
	return n, err
}

func newConn(pool *http1, key poolKey, tcp net.Conn) *conn {
	c := &conn{pool: pool, key: key, socket: &socket{Conn: tcp}}
	if system, ok := tcp.(syscall.Conn); ok {
		c.socket.raw, _ = system.SyscallConn() // nil: it is never reused
	}
	c.Conn, c.in, c.out = c.socket, bufio.NewReader(c), bufio.NewWriter(c.socket)
	return c
}

// handshake begins TLS, and returns the protocol that the endpoint has selected.
func (c *conn) handshake(ctx context.Context, config *tls.Config, watch *stopwatch) (protocol string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.key.settings.TLSHandshakeTimeout, errTLSTimeout)
	defer cancel()
	secure := tls.Client(c.socket, config)
	watch.begin(&watch.phases.handshake)
	err = secure.HandshakeContext(ctx)
	watch.end(&watch.timings.TLS, &watch.phases.handshake)
	if err != nil && errors.Is(context.Cause(ctx), errTLSTimeout) {
		err = errTLSTimeout
	}
	c.Conn = secure
	c.out.Reset(secure)
	return secure.ConnectionState().NegotiatedProtocol, err
}

// exchange sends a request and reads the head of its response. The response's body must be closed.
func (c *conn) exchange(req *http.Request, k *Call) (resp *http.Response, err error) {
	c.uncut = context.AfterFunc(req.Context(), func() { _ = c.socket.Close() })
	defer func() {
		if err != nil {
			c.uncut()
			c.close()
		}
	}()
	c.readable, c.keep, c.ended, c.socket.written = maxResponseHead, false, false, false
	if err = c.write(req, k.Body); err != nil {
		return nil, err
	}
	k.wrote(httptrace.WroteRequestInfo{})
	if _, err = c.in.Peek(1); err != nil {
		return nil, err
	}
	k.watch.firstByte()
	for { // the bound of a response's head bounds early hints, too
		if resp, err = http.ReadResponse(c.in, req); err != nil {
			return nil, err
		}
		if resp.StatusCode < 100 || resp.StatusCode > 199 || resp.StatusCode == http.StatusSwitchingProtocols {
			break
		}
	}
	c.readable, c.body = math.MaxInt64, resp.Body
	c.keep = resp.StatusCode >= 200 && !resp.Close
	if resp.ContentLength == 0 {
		c.ended = true
		c.release()
	} else {
		resp.Body = responseBody{c}
	}
	return resp, nil
}

// write writes a request. Header and body take one write if both fit into the buffer. An error of any part is an error
// of Flush.
func (c *conn) write(req *http.Request, payload *Payload) error {
	body := payload.bytes()
	if body == nil {
		return errWritten
	}
	for _, part := range []string{
		req.Method, " ", req.URL.RequestURI(), " HTTP/1.1\r\nHost: ", req.URL.Host, "\r\nContent-Length: ",
		strconv.Itoa(len(body)), "\r\n",
	} {
		_, _ = c.out.WriteString(part)
	}
	_ = req.Header.Write(c.out) // endpointconf.HeaderLimits keeps out the headers above
	_, _ = c.out.WriteString("\r\n")
	_, _ = c.out.Write(body)
	return c.out.Flush()
}

// Read implements io.Reader for the buffer, up to the bound of a response's head.
func (c *conn) Read(p []byte) (int, error) {
	if c.readable <= 0 {
		return 0, errHeadTooLong
	}
	n, err := c.Conn.Read(p[:min(int64(len(p)), c.readable)])
	c.readable -= int64(n)
	c.broken = err
	return n, err
}

// release ends a request. The connection is used again if the response has ended completely, and nothing follows it.
func (c *conn) release() {
	if c.uncut() && c.keep && c.ended && c.broken == nil && c.in.Buffered() == 0 && c.socket.raw != nil {
		c.pool.put(c)
	} else {
		c.close()
	}
}

func (c *conn) close() { _ = c.Conn.Close() }

// usable reports whether an idle connection is young, open and silent. Whatever an endpoint sends unrequested, the
// connection is not used again.
func (c *conn) usable() bool {
	if time.Since(c.idleSince) >= idleConnTimeout {
		return false
	}
	var byte1 [1]byte
	silent := false
	err := c.socket.raw.Read(func(fd uintptr) bool {
		_, _, err := syscall.Recvfrom(int(fd), byte1[:], syscall.MSG_PEEK) // the socket is non-blocking
		silent = err == syscall.EAGAIN
		return true
	})
	return err == nil && silent && c.nothingDecrypted()
}

// longAgo is a deadline that has passed.
var longAgo = time.Unix(1, 0)

// nothingDecrypted reports whether TLS has no bytes that it has received and not delivered. A read after its deadline
// gets only these.
func (c *conn) nothingDecrypted() bool {
	secure, ok := c.Conn.(*tls.Conn)
	if !ok {
		return true
	}
	var byte1 [1]byte
	_ = secure.SetReadDeadline(longAgo)
	n, err := secure.Read(byte1[:])
	_ = secure.SetReadDeadline(time.Time{})
	return n == 0 && errors.Is(err, os.ErrDeadlineExceeded)
}
