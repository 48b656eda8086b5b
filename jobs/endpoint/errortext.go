package endpoint

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"regexp"
	"strings"
	"syscall"
)

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
	default:
		return networkErrorText(err)
	}
}

// networkErrorText is an error of the network, of name resolution or of a time limit.
func networkErrorText(err error) string {
	var dns *net.DNSError
	var op *net.OpError
	var system syscall.Errno
	switch {
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
