package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
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
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, "", err
	}
	response, err := client.Do(r)
	if err != nil {
		return nil, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response, string(text), err
}

// shownSerial is the serial number of the certificate that a new connection is shown.
func shownSerial(t *testing.T, api string) string {
	t.Helper()
	conn, err := tls.Dial("tcp", strings.TrimPrefix(api, "https://"), &tls.Config{InsecureSkipVerify: true})
	require.NoError(t, err)
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
}

func startTLSNode(t *testing.T, db *database, files tlsFiles) *nodeProcess {
	t.Helper()
	n := startNode(t, db, "--tls-cert", files.cert, "--tls-key", files.key)
	require.True(t, strings.HasPrefix(n.api, "https://127.0.0.1:"), n.api)
	return n
}

func TestServeTLS(t *testing.T) {
	t.Parallel()
	files := newTLSFiles(t)
	n := startTLSNode(t, migratedDatabase(t), files)

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

	code := n.stop()
	require.Zero(t, code)
}

func TestRenewedCertificateIsShownWithoutARestart(t *testing.T) {
	t.Parallel()
	files := newTLSFiles(t)
	n := startTLSNode(t, migratedDatabase(t), files)
	first := shownSerial(t, n.api)

	files.renew(t)
	eventually(t, "the renewed certificate is shown",
		func() bool { return shownSerial(t, n.api) != first })
	second := shownSerial(t, n.api)

	require.NoError(t, os.WriteFile(files.cert, []byte("cut sho"), 0o644))
	const complaint = "renewed TLS certificate is invalid; the current one stays in use"
	eventually(t, "a broken renewal is reported", func() bool { return strings.Contains(n.stderr.String(), complaint) })
	require.Equal(t, second, shownSerial(t, n.api))

	files.renew(t)
	eventually(t, "the next renewal is shown", func() bool { return shownSerial(t, n.api) != second })
	require.Equal(t, 1, strings.Count(n.stderr.String(), complaint), "a line for each mistake, not for each look")
}

func TestServeRejectsTLSFilesThatDoNotFit(t *testing.T) {
	t.Parallel()
	one, other := newTLSFiles(t), newTLSFiles(t)
	missing := filepath.Join(t.TempDir(), "missing.pem")
	for _, row := range []struct{ name, cert, key, says string }{
		{"no key", one.cert, "", "--tls-cert without --tls-key"},
		{"no certificate", "", one.key, "--tls-key without --tls-cert"},
		{"missing certificate", missing, one.key, "--tls-cert: open " + missing},
		{"missing key", one.cert, missing, "--tls-key: open " + missing},
		{"another's key", one.cert, other.key, "--tls-key " + other.key +
			": tls: private key does not match public key"},
		{"mixed up", one.key, one.cert, "--tls-cert " + one.key + " and --tls-key " + one.cert +
			": tls: failed to find certificate PEM data"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			env := []string{
				"POSTRIDER_DATABASE_URL=postgres://unknown@127.0.0.1:1/none", "POSTRIDER_ENCRYPTION_KEY=" + testEncryptionKey,
			}
			for name, value := range map[string]string{"POSTRIDER_TLS_CERT=": row.cert, "POSTRIDER_TLS_KEY=": row.key} {
				if value != "" {
					env = append(env, name+value)
				}
			}
			r := postrider(t, env, "serve")
			require.Equal(t, 2, r.code, r.stderr)
			require.Contains(t, r.stderr, row.says)
		})
	}
}

func TestDevWithTLS(t *testing.T) {
	t.Parallel()
	d := startDev(t, "--tls", "--tls-listen", "127.0.0.1:0")
	require.Regexp(t, `^https://127\.0\.0\.1:\d+$`, d.info.APITLS)
	require.Equal(t, filepath.Join(filepath.Dir(d.data), "tls", "cert.pem"), d.info.CAFile)
	address, err := url.Parse(d.info.APITLS)
	require.NoError(t, err)
	for _, base := range []string{d.info.APITLS, "https://localhost:" + address.Port()} {
		response, text, err := get(t.Context(), trusting(t, d.info.CAFile), base+"/readyz")
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, response.StatusCode, text)
		require.Equal(t, "HTTP/2.0", response.Proto, "beside a port without TLS")
	}
	response, _, err := get(t.Context(), caller, d.info.API+"/readyz")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode, "the other port goes on without it")
	if _, err := exec.LookPath("curl"); err == nil {
		require.Regexp(t, `(?m)^HTTP/\S+ 200`, shell(t, printedCommand(t, d, "Publish an event with TLS:")))
		require.Equal(t, "delivered", d.delivery("my-2", "accepted", 1))
	}
	info, err := os.Stat(filepath.Join(filepath.Dir(d.info.CAFile), "key.pem"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	code := d.stop()
	require.Zero(t, code)
	_, err = os.Stat(d.info.CAFile)
	require.ErrorIs(t, err, os.ErrNotExist, "removed with the database")
}
