package endpoint

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/endpointconf"
	"postrider/policy"
)

// The stored error of an attempt is plain English, without the names of Go packages, operations and addresses.
func TestErrorTextIsPlain(t *testing.T) {
	t.Parallel()
	host := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 443}
	dial := func(err syscall.Errno) error {
		return &net.OpError{Op: "dial", Net: "tcp", Addr: host, Err: os.NewSyscallError("connect", err)}
	}
	untrusted := &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}
	login := &endpointconf.Connection{OAuth2: &endpointconf.OAuth2{TokenURL: "https://login/"}}
	for _, row := range []struct {
		want string
		err  error
	}{
		{"no response in time", fmt.Errorf("get: %w", context.DeadlineExceeded)},
		{"the endpoint closed the connection without a response", io.EOF},
		{"the endpoint closed the connection before its response was complete", io.ErrUnexpectedEOF},
		{
			"the endpoint responded with HTTP to an HTTPS request",
			errors.New("http: server gave HTTP response to HTTPS client"),
		},
		{
			"the endpoint's certificate is not trusted: certificate signed by unknown authority",
			fmt.Errorf("x: %w", untrusted),
		},
		{"connection refused by 10.0.0.1:443", dial(syscall.ECONNREFUSED)},
		{"connection reset by the endpoint", dial(syscall.ECONNRESET)},
		{
			"name nowhere.invalid could not be resolved: no such host",
			&net.DNSError{Name: "nowhere.invalid", Err: "no such host"},
		},
		{"rejected address: loopback", &rejectedError{cause: errors.New("loopback")}},
		{
			"first record does not look like a TLS handshake",
			errors.New("tls: first record does not look like a TLS handshake"),
		},
		{"the URL is malformed", &url.Error{Op: "parse", URL: "http://a:b/", Err: errors.New("invalid port")}},
		{
			"no connection to 10.0.0.1:443: no route to host",
			&url.Error{Op: "Put", URL: "https://a/", Err: dial(syscall.EHOSTUNREACH)},
		},
		{"no token from https://login/: no response in time", noToken(login, context.DeadlineExceeded)},
		{
			"the connection broke: broken pipe",
			&net.OpError{Op: "write", Err: os.NewSyscallError("write", syscall.EPIPE)},
		},
		{
			"the endpoint ended the TLS connection: handshake failure",
			&net.OpError{Op: "remote error", Err: errors.New("tls: handshake failure")},
		},
		{
			"name slow.invalid could not be resolved: no response from the name server in time",
			&net.DNSError{Name: "slow.invalid", Err: "i/o timeout", IsTimeout: true},
		},
		{"rejected address: metadata", &net.OpError{Op: "dial", Err: &rejectedError{cause: errors.New("metadata")}}},
		{
			`malformed HTTP status code "20"`,
			errors.New(`net/http: HTTP/1.x transport connection broken: malformed HTTP status code "20"`),
		},
	} {
		require.Equal(t, row.want, ErrorText(row.err))
	}
}

// Attempts and handshakes store plain words about a URL that Go does not parse. The original error is for the log.
func TestMalformedURLsArePlain(t *testing.T) {
	t.Parallel()
	const malformed = "https://a:b/?code=planted"
	c := NewClient(t.Context(), Options{MaxIdleConnections: 1})
	t.Cleanup(c.transports.close)
	resp, _, err := c.post(testCall(malformed, time.Second))
	require.NoError(t, err)
	require.Equal(t, "the URL is malformed", resp.ErrorText)
	require.Equal(t, policy.ErrorArgument, resp.Result.Err)
	require.ErrorContains(t, resp.Cause, "invalid port")

	handshake, _, _, err := c.SendHandshake(&HandshakeRequest{
		Method: http.MethodPost, URL: malformed, Header: http.Header{}, Connection: &endpointconf.Connection{},
	}, time.Second)
	require.NoError(t, err)
	require.Equal(t, "the URL is malformed", handshake.Err)
	require.ErrorContains(t, handshake.Cause, "invalid port")
}
