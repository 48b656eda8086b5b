package jobs

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"regexp"
	"strings"
	"syscall"
)

// packagePrefix is the name of a Go package that begins an error's text.
var packagePrefix = regexp.MustCompile(`^(net/http|http|http2|tls|x509|net): `)

// errorText is an attempt's error in words that need no knowledge of Go.
func errorText(err error) string {
	var refused *refusedError
	var dns *net.DNSError
	var op *net.OpError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &refused):
		return err.Error()
	case errors.Is(err, context.DeadlineExceeded):
		return "no response in time"
	case errors.Is(err, context.Canceled):
		return "the request was canceled"
	case errors.As(err, &dns):
		return "name " + dns.Name + " could not be resolved: " + dns.Err
	case errors.As(err, &certificate):
		return "the endpoint's certificate is not trusted: " + packagePrefix.ReplaceAllString(certificate.Err.Error(), "")
	case errors.Is(err, syscall.ECONNREFUSED) && errors.As(err, &op) && op.Addr != nil:
		return "connection refused by " + op.Addr.String()
	case errors.Is(err, syscall.ECONNRESET):
		return "connection reset by the endpoint"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "the endpoint closed the connection before its response was complete"
	case errors.Is(err, io.EOF):
		return "the endpoint closed the connection without a response"
	case strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return "the endpoint responded with HTTP to an HTTPS request"
	default:
		return packagePrefix.ReplaceAllString(err.Error(), "")
	}
}
