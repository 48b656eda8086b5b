package endpoint

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
)

// Payload is the body of one request. It releases its bytes, and their share of the node's memory, once they are
// written: a thousand endpoints that hang for a minute must not keep a thousand bodies.
//
// net/http reads plain bytes.Readers: it sends headers and body of those in one write, and of any other reader in two
// (6 % of the CPU per event).
type Payload struct {
	mu      sync.Mutex
	data    []byte
	readers []*bytes.Reader
	release func()
}

var errWritten = errors.New("the body was written already and is never sent twice")

// NewPayload returns a body. release is called once, when the bytes are no longer needed.
func NewPayload(data []byte, release func()) *Payload {
	return &Payload{data: data, release: release}
}

// attach sets the request's body. net/http reads it again if it finds a connection closed before anything was written.
func (p *Payload) attach(req *http.Request) {
	req.ContentLength = int64(len(p.data))
	req.GetBody = p.reader
	req.Body, _ = p.reader() // not written yet
}

// bytes returns the bytes until they are written or dropped, then nil.
func (p *Payload) bytes() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.data
}

func (p *Payload) reader() (io.ReadCloser, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.data == nil {
		return nil, errWritten
	}
	r := bytes.NewReader(p.data)
	p.readers = append(p.readers, r)
	return io.NopCloser(r), nil
}

// wrote empties the readers, which net/http keeps until the response. The goroutine that reads them calls it after the
// last byte.
func (p *Payload) wrote(info httptrace.WroteRequestInfo) {
	if info.Err != nil {
		return
	}
	p.mu.Lock()
	for _, r := range p.readers {
		r.Reset(nil)
	}
	p.mu.Unlock()
	p.Drop()
}

// again returns a second payload of the same bytes, for a second request. Their memory is released when both are
// dropped.
func (p *Payload) again() *Payload {
	p.mu.Lock()
	defer p.mu.Unlock()
	var dropped atomic.Int32
	release := p.release
	p.release = func() {
		if dropped.Add(1) == 2 {
			release()
		}
	}
	return NewPayload(p.data, p.release)
}

// Drop releases the bytes; a second call does nothing. It leaves the readers alone: net/http may still read after a
// request that was cut.
func (p *Payload) Drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.data == nil {
		return
	}
	p.data, p.readers = nil, nil
	p.release()
}
