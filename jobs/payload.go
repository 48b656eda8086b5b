package jobs

import (
	"io"
	"net/http"
	"net/http/httptrace"
	"sync"
)

// payload is the body of one request. It lets go of its bytes, and of their share of the node's memory, once they are
// written: a thousand endpoints that hang for a minute must not keep a thousand bodies.
type payload struct {
	mu      sync.Mutex
	data    []byte
	size    int
	release func()
}

func newPayload(data []byte, release func()) *payload {
	return &payload{data: data, size: len(data), release: release}
}

// attach makes it the request's body. net/http asks for it again when a connection was found closed before anything
// was written; after that nothing is ever sent twice.
func (p *payload) attach(req *http.Request) {
	req.ContentLength = int64(p.size)
	req.GetBody = func() (io.ReadCloser, error) { return &payloadReader{payload: p}, nil }
	req.Body = &payloadReader{payload: p}
}

func (p *payload) wrote(info httptrace.WroteRequestInfo) {
	if info.Err == nil {
		p.drop()
	}
}

// drop lets go of the bytes; more than once is nothing.
func (p *payload) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.data != nil {
		p.data = nil
		p.release()
	}
}

type payloadReader struct {
	payload *payload
	offset  int
}

// Read implements io.Reader.
func (r *payloadReader) Read(b []byte) (int, error) {
	r.payload.mu.Lock()
	defer r.payload.mu.Unlock()
	if r.offset >= r.payload.size {
		return 0, io.EOF
	}
	if r.payload.data == nil {
		return 0, io.ErrUnexpectedEOF // written already: nobody may send it again
	}
	n := copy(b, r.payload.data[r.offset:])
	r.offset += n
	return n, nil
}

// Close implements io.Closer.
func (r *payloadReader) Close() error { return nil }
