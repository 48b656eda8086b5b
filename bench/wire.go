package bench

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"
	"unicode"
)

// Load and sink run on the cores of what they measure, so both ends speak the little of HTTP/1.1 that they need
// themselves: keep-alive, Content-Length, one request at a time. Whatever else the other side says ends the connection
// after its answer. An event of 1 KB costs the sink 11.5 microseconds of CPU this way and 22 by net/http, the publisher
// 10.5 and 30 (BenchmarkSink, BenchmarkPublisher).

const (
	wireBuffer = 4 << 10 // a delivery's head and a body of 1 KB arrive in one read
	// answerDeadline is beyond any answer that counts: postrider's own timeouts are 30 s.
	answerDeadline = 60 * time.Second
	maxRefusal     = 500 // what a person reads of an error
)

// errUnusual is HTTP that this file does not speak.
var errUnusual = errors.New("not plain HTTP with a Content-Length")

// head is what is kept of a request's or a response's head.
type head struct {
	first  []byte // request line or status line, valid until the next head is read
	length int    // of the body; -1 when it was not given
	last   bool   // the sender closes the connection afterwards
	// Of requests only; "" when absent.
	eventType, origin string
}

// readHead reads a head to its blank line. The first line is copied to scratch, for reading the others overwrites it.
func readHead(r *bufio.Reader, scratch *[]byte) (head, error) {
	h := head{length: -1}
	line, err := readLine(r)
	if err != nil {
		return h, err
	}
	*scratch = append((*scratch)[:0], line...)
	h.first = *scratch
	for {
		if line, err = readLine(r); err != nil {
			return h, noEOF(err)
		}
		if len(line) == 0 {
			return h, nil
		}
		if err := h.header(line); err != nil {
			return h, err
		}
	}
}

// readLine returns a line without its end, valid until the next read.
func readLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return nil, fmt.Errorf("%w: a line of more than %d bytes", errUnusual, wireBuffer)
	}
	if err != nil && len(line) > 0 {
		return nil, noEOF(err)
	}
	if err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(line[:len(line)-1], []byte{'\r'}), nil
}

// noEOF: an end inside a message is never a proper one.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// header takes one line. Names are told apart by their length first, because most are none of ours.
func (h *head) header(line []byte) error {
	name, value, ok := bytes.Cut(line, []byte{':'})
	if !ok {
		return fmt.Errorf("%w: a header without a colon", errUnusual)
	}
	value = bytes.TrimSpace(value)
	is := func(want string) bool { return len(name) == len(want) && bytes.EqualFold(name, []byte(want)) }
	switch {
	case is("content-length"):
		n, err := strconv.Atoi(string(value))
		if err != nil || n < 0 || h.length >= 0 {
			return fmt.Errorf("%w: Content-Length %q", errUnusual, value)
		}
		h.length = n
	case is("connection"):
		h.last = h.last || bytes.EqualFold(value, []byte("close"))
	case is("transfer-encoding"), is("expect"):
		return fmt.Errorf("%w: %s", errUnusual, name)
	case is("aeg-event-type"):
		if string(value) != "Notification" { // no copy for what is nearly always there
			h.eventType = string(value)
		}
	case is("webhook-request-origin"):
		if bytes.ContainsFunc(value, unicode.IsControl) { // it is sent back in a header of ours
			return fmt.Errorf("%w: a control character in %s", errUnusual, name)
		}
		h.origin = string(value)
	}
	return nil
}

// get is the header by name for handshake, of the few that are kept.
func (h *head) get(name string) string {
	switch name {
	case "WebHook-Request-Origin":
		return h.origin
	case "aeg-event-type":
		return h.eventType
	}
	return ""
}

// wireClient is one connection to one server; it dials when it has to.
type wireClient struct {
	address string
	reader  *bufio.Reader
	scratch []byte
	refusal []byte // the beginning of the last answer's body, unless it was a success

	mu     sync.Mutex // of the fields below: cut comes from another goroutine
	conn   net.Conn
	closed bool
}

// do sends a whole request and returns the status of its answer. Of its body only the beginning is kept, in refusal.
// After an error the next call dials again: whether the request arrived is not known.
func (c *wireClient) do(request []byte) (int, error) {
	if c.conn == nil {
		if err := c.dial(); err != nil {
			return 0, err
		}
	}
	status, keep, err := c.exchange(request)
	if err != nil || !keep {
		c.close()
	}
	return status, err
}

func (c *wireClient) said() []byte { return c.refusal }

func (c *wireClient) dial() error {
	conn, err := net.DialTimeout("tcp", c.address, answerDeadline)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		_ = conn.Close()
		return net.ErrClosed
	}
	c.conn, c.reader = conn, bufio.NewReaderSize(conn, wireBuffer)
	return nil
}

func (c *wireClient) exchange(request []byte) (status int, keep bool, err error) {
	if err := c.conn.SetDeadline(time.Now().Add(answerDeadline)); err != nil {
		return 0, false, err
	}
	c.refusal = c.refusal[:0]
	if _, err := c.conn.Write(request); err != nil {
		return 0, false, err
	}
	h, err := readHead(c.reader, &c.scratch)
	status, ok := statusOf(h.first)
	switch {
	case errors.Is(err, errUnusual) && ok:
		return status, false, nil // chunked, say: the status is known, the rest is not worth reading
	case err != nil:
		return 0, false, noEOF(err)
	case !ok:
		return 0, false, fmt.Errorf("%w: status line %q", errUnusual, h.first)
	case status == 204 || status == 304:
		return status, !h.last, nil
	case h.length < 0:
		return status, false, nil
	}
	if status >= 300 {
		text, _ := c.reader.Peek(min(h.length, maxRefusal))
		c.refusal = append(c.refusal[:0], text...)
	}
	if _, err := c.reader.Discard(h.length); err != nil {
		return 0, false, noEOF(err)
	}
	return status, !h.last, nil
}

// statusOf reads the number of "HTTP/1.1 200 OK". Informational answers (1xx) are not expected, and no status here.
func statusOf(line []byte) (int, bool) {
	rest, ok := bytes.CutPrefix(line, []byte("HTTP/1.1 "))
	if !ok || len(rest) < 3 {
		return 0, false
	}
	status, err := strconv.Atoi(string(rest[:3]))
	return status, err == nil && status >= 200 && status <= 999
}

// close ends the connection; the next request makes another.
func (c *wireClient) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

// cut fails the request in flight and all later ones. It may be called while do runs.
func (c *wireClient) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.conn != nil {
		_ = c.conn.Close()
	}
}
