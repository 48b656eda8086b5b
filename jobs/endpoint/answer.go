package endpoint

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"time"

	"postrider/policy"
)

// Timings are the durations of a request's phases; zero for a phase that did not happen, as on a reused connection.
// FirstByte counts from the moment the connection was ready.
type Timings struct{ DNS, Connect, TLS, FirstByte time.Duration }

// Answer is the result of one request.
type Answer struct {
	Result policy.Result
	// ErrorText says in plain words why there is no response; Cause is the original error, for the log.
	ErrorText string
	Cause     error
	// Headers and Excerpt are what is kept of the response, at most 4 KiB each; nil = none.
	Headers    []byte
	Excerpt    []byte
	RetryAfter string // the header as received
	Timings    Timings
	Duration   time.Duration
	Sent       http.Header // the headers of the request; nil = no request was sent
	Token      string      // the access token in them; "" = none
}

// timedOut words the error of an attempt that got no response until the ack timeout.
func (a *Answer) timedOut(ackTimeout time.Duration) {
	if a.Result.Err == policy.ErrorTimeout {
		a.ErrorText = fmt.Sprintf("no response within %g s", ackTimeout.Seconds())
	}
}

// Failed sets ErrorText and Cause from the error of a request without a response.
func (a *Answer) Failed(err error) {
	a.ErrorText, a.Cause = ErrorText(err), OriginalError(err)
}

// read takes what is kept of a response. A body that never ends or breaks off changes nothing: the status is the
// answer.
func (a *Answer) read(resp *http.Response) {
	a.Result = policy.Result{Status: resp.StatusCode}
	a.RetryAfter = resp.Header.Get("Retry-After")
	excerpt, err := io.ReadAll(io.LimitReader(resp.Body, MaxExcerptBytes))
	if err == nil && len(excerpt) == MaxExcerptBytes {
		_, _ = io.CopyN(io.Discard, resp.Body, maxResponseBytes-MaxExcerptBytes)
	}
	if len(excerpt) > 0 {
		a.Excerpt = excerpt
	}
	if !a.boring() {
		a.Headers = headerBytes(resp.Header)
	}
}

// boring answers (success without a body) are most of all answers: their headers are not worth a write.
func (a *Answer) boring() bool {
	return len(a.Excerpt) == 0 && a.Result.Status >= 200 && a.Result.Status < 300
}

func headerBytes(header http.Header) []byte {
	var out bytes.Buffer
	_ = header.WriteSubset(&out, map[string]bool{"Set-Cookie": true}) // a bytes.Buffer cannot fail; cookies are secrets
	return out.Bytes()[:min(out.Len(), MaxExcerptBytes)]
}

// errorKind sorts errors below HTTP into the policies' conditions. TLS failures count as socket errors.
func errorKind(ctx context.Context, err error) policy.ErrorKind {
	var refused *rejectedError
	var dns *net.DNSError
	var netErr net.Error
	switch {
	case errors.As(err, &refused):
		return policy.ErrorArgument
	case ctx.Err() != nil:
		return policy.ErrorTimeout
	case errors.As(err, &dns):
		return policy.ErrorDNS
	case errors.As(err, &netErr) && netErr.Timeout():
		return policy.ErrorTimeout
	case strings.Contains(err.Error(), "unsupported protocol scheme"):
		return policy.ErrorArgument
	default:
		return policy.ErrorSocket
	}
}

// stopwatch takes the durations of a request's phases, which follow one another and so add up to the request's at most.
// It is locked: a dial continues after its request was given another connection or has ended, and still writes while
// the request's result is being recorded.
type stopwatch struct {
	started time.Time

	mu                      sync.Mutex
	dns, connect, handshake time.Time
	ready                   time.Time // when the request had its connection; what a dial still does then is no phase of it
	timings                 Timings
}

func (s *stopwatch) read() Timings {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.timings
}

func (s *stopwatch) begin(phase *time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*phase = time.Now()
}

// end ends a phase of the dial. A connect to another address may still be open when the TLS handshake has begun: it is
// not counted.
func (s *stopwatch) end(took *time.Duration, phase *time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ready.IsZero() && (s.handshake.IsZero() || phase == &s.handshake) {
		*took = time.Since(*phase)
	}
}

// get begins again: the connection that the request had was found closed.
func (s *stopwatch) get() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dns, s.connect, s.handshake, s.ready, s.timings = time.Time{}, time.Time{}, time.Time{}, time.Time{}, Timings{}
}

func (s *stopwatch) got(reused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready = time.Now()
	if reused {
		s.timings = Timings{}
	}
}

func (s *stopwatch) firstByte() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ready.IsZero() {
		s.timings.FirstByte = time.Since(s.ready)
	}
}

func (s *stopwatch) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn:              func(string) { s.get() },
		GotConn:              func(c httptrace.GotConnInfo) { s.got(c.Reused) },
		DNSStart:             func(httptrace.DNSStartInfo) { s.begin(&s.dns) },
		DNSDone:              func(httptrace.DNSDoneInfo) { s.end(&s.timings.DNS, &s.dns) },
		ConnectStart:         func(string, string) { s.begin(&s.connect) },
		ConnectDone:          func(string, string, error) { s.end(&s.timings.Connect, &s.connect) },
		TLSHandshakeStart:    func() { s.begin(&s.handshake) },
		TLSHandshakeDone:     func(tls.ConnectionState, error) { s.end(&s.timings.TLS, &s.handshake) },
		GotFirstResponseByte: s.firstByte,
	}
}
