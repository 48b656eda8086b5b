package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// tlsFiles are a self-signed certificate for this machine and its key.
type tlsFiles struct{ cert, key string }

func newTLSFiles(t *testing.T) tlsFiles {
	t.Helper()
	dir := t.TempDir()
	files := tlsFiles{filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
	files.renew(t)
	return files
}

// renew replaces the certificate and its key.
func (f tlsFiles) renew(t *testing.T) {
	t.Helper()
	now := time.Now()
	_, err := issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: "test"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}, nil, f.cert+".new", f.key+".new")
	require.NoError(t, err)
	// A node that reads the files meanwhile reads no half of them.
	require.NoError(t, os.Rename(f.key+".new", f.key))
	require.NoError(t, os.Rename(f.cert+".new", f.cert))
}

// trusting is a client that trusts the authority of the file alone.
func trusting(t *testing.T, caFile string, change ...func(*tls.Config)) *http.Client {
	t.Helper()
	pem, err := os.ReadFile(caFile)
	require.NoError(t, err)
	config := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	require.True(t, config.RootCAs.AppendCertsFromPEM(pem))
	for _, c := range change {
		c(config)
	}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: len(config.NextProtos) == 0}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Timeout: patience, Transport: transport}
}

// get makes one request and returns the response and its body.
func get(ctx context.Context, client *http.Client, address string) (*http.Response, string, error) {
	return send(ctx, client, http.MethodGet, address, "")
}

func TestServeTLS(t *testing.T) {
	t.Parallel()
	files := newTLSFiles(t)
	n := startNode(t, migratedDatabase(t), "--tls-cert", files.cert, "--tls-key", files.key)
	response, text, err := get(t.Context(), trusting(t, files.cert), n.api+"/readyz")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode, text)
	require.Equal(t, "HTTP/2.0", response.Proto)
	require.Equal(t, uint16(tls.VersionTLS13), response.TLS.Version)
	response, _, err = get(t.Context(), trusting(t, files.cert, func(c *tls.Config) {
		c.MaxVersion, c.NextProtos = tls.VersionTLS12, []string{"http/1.1"}
	}), n.api+"/readyz")
	require.NoError(t, err)
	require.Equal(t, "HTTP/1.1", response.Proto)

	var wrongHost x509.HostnameError
	_, _, err = get(t.Context(),
		trusting(t, files.cert, func(c *tls.Config) { c.ServerName = "postrider.example.com" }), n.api+"/readyz")
	require.ErrorAs(t, err, &wrongHost)
	var unknown x509.UnknownAuthorityError
	_, _, err = get(t.Context(), trusting(t, newTLSFiles(t).cert), n.api+"/readyz")
	require.ErrorAs(t, err, &unknown)
	_, _, err = get(t.Context(),
		trusting(t, files.cert, func(c *tls.Config) {
			c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
		}),
		n.api+"/readyz")
	require.ErrorContains(t, err, "protocol version not supported")
	response, _, err = get(t.Context(), caller, strings.Replace(n.api, "https:", "http:", 1)+"/readyz")
	require.NoError(t, err)
	require.Equal(t, http.StatusBadRequest, response.StatusCode, "nothing is served in the clear")
	require.Contains(t,
		postrider(t, nil, "topic", "list", "--url", strings.Replace(n.api, "https:", "http:", 1)).stderr,
		"use https:// in --url")
	requireRenewal(t, n, files)
	require.Zero(t, n.stop())
}

// requireRenewal: a renewed certificate is shown without a restart, and a broken one is reported once.
func requireRenewal(t *testing.T, n *nodeProcess, files tlsFiles) {
	t.Helper()
	shown := func() string {
		conn, err := tls.Dial("tcp", strings.TrimPrefix(n.api, "https://"), &tls.Config{InsecureSkipVerify: true})
		require.NoError(t, err)
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	first := shown()
	require.NoError(t, os.WriteFile(files.cert, []byte("cut sho"), 0o644))
	const complaint = "renewed TLS certificate is invalid; the current one stays in use"
	eventually(t, "a broken renewal is reported", func() bool { return strings.Contains(n.stderr.String(), complaint) })
	require.Equal(t, first, shown())
	files.renew(t)
	eventually(t, "the renewed certificate is shown", func() bool { return shown() != first })
	require.Equal(t, 1, strings.Count(n.stderr.String(), complaint), "a line for each mistake, not for each look")
}
