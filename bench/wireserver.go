package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
)

// wireHandler answers one request. The body is valid until it returns; the path comes without its query.
type wireHandler func(method, path string, h *head, body []byte) reply

// serveWire answers requests until ctx ends, then cuts the connections and returns nil. Any other end is an error.
func serveWire(ctx context.Context, listener net.Listener, handle wireHandler) error {
	open := connections{set: map[net.Conn]struct{}{}}
	stop := context.AfterFunc(ctx, func() {
		_ = listener.Close()
		open.cut()
	})
	defer stop()
	var serving sync.WaitGroup
	defer serving.Wait()
	for {
		conn, err := listener.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			open.cut()
			return fmt.Errorf("accept connections: %w", err)
		}
		if open.add(conn) {
			serving.Go(func() {
				defer open.drop(conn)
				serveConn(ctx, conn, handle)
			})
		}
	}
}

// connections are the open ones, so that they can be cut.
type connections struct {
	mu    sync.Mutex
	set   map[net.Conn]struct{}
	ended bool
}

func (c *connections) add(conn net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		_ = conn.Close()
		return false
	}
	c.set[conn] = struct{}{}
	return true
}

func (c *connections) drop(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.set, conn)
	_ = conn.Close()
}

func (c *connections) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	for conn := range c.set {
		_ = conn.Close()
	}
}

// serveConn answers one connection's requests, one after the other. The end of ctx ends the wait before a late answer.
func serveConn(ctx context.Context, conn net.Conn, handle wireHandler) {
	c := wireConn{reader: bufio.NewReaderSize(conn, wireBuffer)}
	for {
		answer, keep, err := c.answerNext(handle)
		if errors.Is(err, io.EOF) || err != nil && answer.status == 0 {
			return
		}
		if answer.status == 0 { // no answer, until the client goes away
			_, _ = io.Copy(io.Discard, conn)
			return
		}
		if answer.after > 0 && !pause(ctx, answer.after) {
			return
		}
		c.out = appendReply(c.out[:0], answer, keep)
		if _, err := conn.Write(c.out); err != nil || !keep {
			return
		}
	}
}

// wireConn is one connection's buffers.
type wireConn struct {
	reader           *bufio.Reader
	path             string // of the last request, which most often is the next one's too
	scratch, in, out []byte
}

// answerNext reads one request and has it answered. An error without a status is an end of the connection.
func (c *wireConn) answerNext(handle wireHandler) (answer reply, keep bool, err error) {
	h, err := readHead(c.reader, &c.scratch)
	if err != nil {
		return unusualReply(err), false, err
	}
	method, target, ok := splitRequestLine(h.first)
	if !ok {
		return unusualReply(errUnusual), false, errUnusual
	}
	if h.length > maxSinkBody {
		return reply{status: http.StatusRequestEntityTooLarge}, false, errUnusual
	}
	c.in = slices.Grow(c.in[:0], max(h.length, 0))[:max(h.length, 0)]
	if _, err := io.ReadFull(c.reader, c.in); err != nil {
		return reply{}, false, noEOF(err)
	}
	if string(target) != c.path {
		c.path = string(target)
	}
	return handle(methodName(method), c.path, &h, c.in), !h.last, nil
}

func unusualReply(err error) reply {
	if errors.Is(err, errUnusual) {
		return reply{status: http.StatusNotImplemented, body: err.Error() + "\n"}
	}
	return reply{}
}

// splitRequestLine takes "POST /path?query HTTP/1.1" apart.
func splitRequestLine(line []byte) (method, path []byte, ok bool) {
	method, rest, _ := bytes.Cut(line, []byte{' '})
	target, version, _ := bytes.Cut(rest, []byte{' '})
	path, _, _ = bytes.Cut(target, []byte{'?'})
	return method, path, string(version) == "HTTP/1.1" && len(path) > 0 && path[0] == '/'
}

// methodName spares the usual methods a copy.
func methodName(method []byte) string {
	switch string(method) {
	case http.MethodPost:
		return http.MethodPost
	case http.MethodGet:
		return http.MethodGet
	}
	return string(method)
}

// noContent is nearly every answer of a sink.
const noContent = "HTTP/1.1 204 No Content\r\n\r\n"

func appendReply(out []byte, a reply, keep bool) []byte {
	if keep && a.status == http.StatusNoContent {
		return append(out, noContent...)
	}
	out = fmt.Appendf(out, "HTTP/1.1 %d %s\r\n", a.status, http.StatusText(a.status))
	for name, value := range a.header {
		out = fmt.Appendf(out, "%s: %s\r\n", name, value)
	}
	if !keep {
		out = append(out, "Connection: close\r\n"...)
	}
	if a.status == http.StatusNoContent {
		return append(out, "\r\n"...)
	}
	return fmt.Appendf(out, "Content-Length: %d\r\n\r\n%s", len(a.body), a.body)
}
