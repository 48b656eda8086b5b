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
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"postrider/policy"
)

// Response is the result of one request.
type Response struct {
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

	passed bool // see destination.Result
}

// Failed sets ErrorText and Cause from the error of a request without a response.
func (r *Response) Failed(err error) {
	r.ErrorText, r.Cause = ErrorText(err), OriginalError(err)
}

// timedOut words the error of an attempt that got no response until the ack timeout.
func (r *Response) timedOut(ackTimeout time.Duration) {
	if r.Result.Err == policy.ErrorTimeout {
		r.ErrorText = fmt.Sprintf("no response within %g s", ackTimeout.Seconds())
	}
}

// read keeps a part of a response. A body that never ends or breaks off changes nothing: the status decides. The
// headers of a success without a body are not kept; most responses are such.
func (r *Response) read(resp *http.Response) {
	r.Result = policy.Result{Status: resp.StatusCode}
	r.RetryAfter = resp.Header.Get("Retry-After")
	var excerpt []byte
	var err error
	if resp.ContentLength != 0 { // most responses have no body; ReadAll begins with 512 bytes
		excerpt, err = io.ReadAll(io.LimitReader(resp.Body, MaxExcerptBytes))
	}
	if err == nil && len(excerpt) == MaxExcerptBytes {
		_, _ = io.CopyN(io.Discard, resp.Body, maxResponseBytes-MaxExcerptBytes)
	}
	if len(excerpt) > 0 {
		r.Excerpt = excerpt
	}
	if len(excerpt) == 0 && resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return
	}
	var header bytes.Buffer
	_ = resp.Header.WriteSubset(&header, map[string]bool{"Set-Cookie": true}) // cookies are secrets; no error is possible
	r.Headers = header.Bytes()[:min(header.Len(), MaxExcerptBytes)]
}

// errorKind maps errors below HTTP to the conditions of retry policies. A TLS failure is a socket error.
func errorKind(ctx context.Context, err error) policy.ErrorKind {
	var rejected *rejectedError
	var dns *net.DNSError
	var netErr net.Error
	switch {
	case errors.As(err, &rejected):
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

// Timings are the durations of a request's phases; zero for a phase that did not happen, as on a reused connection.
// FirstByte counts from the moment the connection was ready.
type Timings struct{ DNS, Connect, TLS, FirstByte time.Duration }

// stopwatch measures the phases of a request. They follow one another, so their sum is at most the request's duration.
// It is locked: a dial continues after its request got another connection or ended, and still writes.
type stopwatch struct {
	started time.Time

	mu sync.Mutex
	phases
}

// phases are the beginnings of the phases, and how long they took.
type phases struct {
	dns, connect, handshake time.Time
	ready                   time.Time // when the request had its connection; phases of a dial that end later do not count
	timings                 Timings
}

func (s *stopwatch) lock() (unlock func()) {
	s.mu.Lock()
	return s.mu.Unlock
}

func (s *stopwatch) read() Timings {
	defer s.lock()()
	return s.timings
}

// reset begins again, if another connection was found closed.
func (s *stopwatch) reset() {
	defer s.lock()()
	s.phases = phases{}
}

func (s *stopwatch) begin(phase *time.Time) {
	defer s.lock()()
	*phase = time.Now()
}

// end ends a phase of the dial. A connect to another address may end after the TLS handshake has begun: it does not
// count.
func (s *stopwatch) end(took *time.Duration, phase *time.Time) {
	defer s.lock()()
	if s.ready.IsZero() && (s.handshake.IsZero() || phase == &s.handshake) {
		*took = time.Since(*phase)
	}
}

func (s *stopwatch) connected(c httptrace.GotConnInfo) {
	defer s.lock()()
	s.ready = time.Now()
	if c.Reused {
		s.timings = Timings{}
	}
}

func (s *stopwatch) firstByte() {
	defer s.lock()()
	if !s.ready.IsZero() {
		s.timings.FirstByte = time.Since(s.ready)
	}
}

func (s *stopwatch) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn:              func(string) { s.reset() },
		GotConn:              s.connected,
		DNSStart:             func(httptrace.DNSStartInfo) { s.begin(&s.dns) },
		DNSDone:              func(httptrace.DNSDoneInfo) { s.end(&s.timings.DNS, &s.dns) },
		ConnectStart:         func(string, string) { s.begin(&s.connect) },
		ConnectDone:          func(string, string, error) { s.end(&s.timings.Connect, &s.connect) },
		TLSHandshakeStart:    func() { s.begin(&s.handshake) },
		TLSHandshakeDone:     func(tls.ConnectionState, error) { s.end(&s.timings.TLS, &s.handshake) },
		GotFirstResponseByte: s.firstByte,
	}
}

// PlainError has one text for people, and the original error for the log and for code that distinguishes errors.
type PlainError struct {
	Text  string
	Cause error
}

// Error returns the text for people.
func (e *PlainError) Error() string { return e.Text }

// Unwrap returns the original error.
func (e *PlainError) Unwrap() error { return e.Cause }

// OriginalError is what the log shows of an error: the cause of a PlainError, and any other error itself.
func OriginalError(err error) error {
	var plain *PlainError
	if errors.As(err, &plain) {
		return plain.Cause
	}
	return err
}

// goPrefix is what Go's packages put before an error's text.
var goPrefix = regexp.MustCompile(`^((net/http|http|http2|tls|x509|net): |HTTP/1\.x transport connection broken: )+`)

func withoutPrefix(text string) string { return goPrefix.ReplaceAllString(text, "") }

// ErrorText returns the error of a request in words that need no knowledge of Go.
func ErrorText(err error) string {
	var plain *PlainError
	var rejected *rejectedError
	var request *url.Error
	var certificate *tls.CertificateVerificationError
	var dns *net.DNSError
	var op *net.OpError
	var system syscall.Errno
	switch {
	case errors.As(err, &plain):
		return plain.Text
	case errors.As(err, &rejected):
		return rejected.Error()
	case errors.As(err, &request) && request.Op == "parse":
		return "the URL is malformed"
	case errors.As(err, &request):
		return ErrorText(request.Err)
	case errors.As(err, &certificate):
		return "the endpoint's certificate is not trusted: " + withoutPrefix(certificate.Err.Error())
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "the endpoint closed the connection before its response was complete"
	case errors.Is(err, io.EOF):
		return "the endpoint closed the connection without a response"
	case strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return "the endpoint responded with HTTP to an HTTPS request"
	case errors.As(err, &dns) && dns.IsTimeout:
		return "name " + dns.Name + " could not be resolved: no response from the name server in time"
	case errors.As(err, &dns):
		return "name " + dns.Name + " could not be resolved: " + dns.Err
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return "no response in time"
	case errors.Is(err, context.Canceled):
		return "the request was canceled"
	case errors.Is(err, syscall.ECONNREFUSED) && errors.As(err, &op) && op.Addr != nil:
		return "connection refused by " + op.Addr.String()
	case errors.Is(err, syscall.ECONNRESET):
		return "connection reset by the endpoint"
	case errors.As(err, &system) && errors.As(err, &op) && op.Op == "dial" && op.Addr != nil:
		return "no connection to " + op.Addr.String() + ": " + system.Error()
	case errors.As(err, &system):
		return "the connection broke: " + system.Error()
	case errors.As(err, &op) && op.Op == "remote error":
		return "the endpoint ended the TLS connection: " + withoutPrefix(op.Err.Error())
	case errors.As(err, &op):
		return "the connection broke: " + withoutPrefix(op.Err.Error())
	default:
		return withoutPrefix(err.Error())
	}
}

// IsNetworkError reports whether ErrorText has words for the error.
func IsNetworkError(err error) bool {
	var op *net.OpError
	var dns *net.DNSError
	var certificate *tls.CertificateVerificationError
	return errors.As(err, &op) || errors.As(err, &dns) || errors.As(err, &certificate) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}
