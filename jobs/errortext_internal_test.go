package jobs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// The stored error of an attempt is plain English, without the names of Go packages.
func TestErrorTextIsPlain(t *testing.T) {
	t.Parallel()
	dial := func(err syscall.Errno) error {
		at := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 443}
		return &net.OpError{Op: "dial", Net: "tcp", Addr: at, Err: os.NewSyscallError("connect", err)}
	}
	untrusted := &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}
	for want, err := range map[string]error{
		"no response in time": fmt.Errorf("get: %w", context.DeadlineExceeded),
		"the endpoint closed the connection without a response":                              io.EOF,
		"the endpoint closed the connection before its response was complete":                io.ErrUnexpectedEOF,
		"the endpoint responded with HTTP to an HTTPS request":                               errors.New("http: server gave HTTP response to HTTPS client"),
		"the endpoint's certificate is not trusted: certificate signed by unknown authority": fmt.Errorf("x: %w", untrusted),
		"connection refused by 10.0.0.1:443":                                                 dial(syscall.ECONNREFUSED),
		"connection reset by the endpoint":                                                   dial(syscall.ECONNRESET),
		"name nowhere.invalid could not be resolved: no such host":                           &net.DNSError{Name: "nowhere.invalid", Err: "no such host"},
		"refused address: loopback":                                                          &refusedError{cause: errors.New("loopback")},
		"first record does not look like a TLS handshake":                                    errors.New("tls: first record does not look like a TLS handshake"),
	} {
		require.Equal(t, want, errorText(err))
	}
}
