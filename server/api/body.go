package api

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/labstack/echo/v4"

	"postrider/internal/event"
)

const (
	// MaxBodyBytes is Event Grid's 1 MB for a request (Microsoft, Azure Event Grid quotas and limits), as 1 MiB.
	MaxBodyBytes = 1 << 20
	// maxPooledBytes is the largest buffer that returns to the pool.
	maxPooledBytes = 64 << 10
)

// buffers are reused: reading 300 bytes takes 0.2 µs instead of 1.0 µs, 60 KiB 1.5 µs instead of 34 µs
// (BenchmarkReadBody, two cores, 2026).
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// BodySize is the size of a request's body before it is read, or the limit if the client does not announce the size. It
// rejects what ReadBody rejects without reading.
func BodySize(r *http.Request, limit int) (int, error) {
	if encoding := r.Header.Get(echo.HeaderContentEncoding); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return 0, Reject(http.StatusUnsupportedMediaType, CodeUnsupportedMediaType,
			"Content-Encoding %q is not supported: send the body without one", Shorten(encoding))
	}
	if r.ContentLength > int64(limit) {
		return 0, tooLarge(limit)
	}
	if r.ContentLength < 0 {
		return limit, nil
	}
	return int(r.ContentLength), nil
}

// DiscardBody reads and forgets the body of a rejected request: many clients read the response only after they have
// sent the body. A client that expects 100 Continue has not begun to send it.
func DiscardBody(r *http.Request, limit int) {
	if r.Header.Get("Expect") == "" {
		_, _ = io.CopyN(io.Discard, r.Body, int64(limit))
	}
}

// ReadBody reads the whole body of a publish into a buffer, up to a limit in bytes. The caller passes it to Free after
// the last use of its bytes. A body that ends too early is 503: the client should send it again.
func ReadBody(r *http.Request, limit int) (*bytes.Buffer, error) {
	if _, err := BodySize(r, limit); err != nil {
		return nil, err
	}
	buf := buffers.Get().(*bytes.Buffer)
	err := readInto(buf, r, limit)
	switch {
	case err != nil:
		Free(buf)
		return nil, Reject(http.StatusServiceUnavailable, CodeUnavailable, "the body did not arrive completely; retry")
	case buf.Len() > limit:
		Free(buf)
		return nil, tooLarge(limit)
	}
	return buf, nil
}

// readInto allocates at most maxPooledBytes for a Content-Length, which may be wrong, until as many bytes have arrived,
// and then all of it: growing step by step would allocate four times as much. ReadFrom needs MinRead more bytes to find
// the end without growing the buffer.
func readInto(buf *bytes.Buffer, r *http.Request, limit int) error {
	const first = maxPooledBytes - 2*bytes.MinRead
	length, body := int(r.ContentLength), io.LimitReader(r.Body, int64(limit)+1)
	if length > 0 {
		buf.Grow(min(length, first) + bytes.MinRead)
	}
	if length > first {
		if n, err := buf.ReadFrom(io.LimitReader(body, first)); err != nil || n < first {
			return err
		}
		buf.Grow(length - first + bytes.MinRead)
	}
	_, err := buf.ReadFrom(body)
	return err
}

// Free returns a buffer of ReadBody to the pool.
func Free(buf *bytes.Buffer) {
	if Unpooled(buf) > 0 {
		return
	}
	buf.Reset()
	buffers.Put(buf)
}

// Unpooled is the size of a buffer that Free does not return to the pool; 0 of one that it returns.
func Unpooled(buf *bytes.Buffer) int {
	if buf.Cap() <= maxPooledBytes {
		return 0
	}
	return buf.Cap()
}

func tooLarge(limit int) error {
	return Reject(http.StatusRequestEntityTooLarge, event.CodePayloadTooLarge, "the body must have at most %d bytes",
		limit)
}
