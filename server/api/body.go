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

// ReadBody reads the whole body of a publish into a buffer, up to a limit in bytes. The caller passes it to Free after
// the last use of its bytes. A body that ends too early is 503: the client should send it again.
func ReadBody(r *http.Request, limit int) (*bytes.Buffer, error) {
	if encoding := r.Header.Get(echo.HeaderContentEncoding); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return nil, Reject(http.StatusUnsupportedMediaType, CodeUnsupportedMediaType,
			"Content-Encoding %q is not supported: send the body without one", Shorten(encoding))
	}
	if r.ContentLength > int64(limit) {
		return nil, tooLarge(limit)
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
	if buf.Cap() > maxPooledBytes {
		return
	}
	buf.Reset()
	buffers.Put(buf)
}

func tooLarge(limit int) error {
	return Reject(http.StatusRequestEntityTooLarge, event.CodePayloadTooLarge, "the body must have at most %d bytes",
		limit)
}
