package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
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

// newDevTLS has a certificate of its own.
func newDevTLS(t *testing.T) devTLS {
	t.Helper()
	d := devTLS{filepath.Join(t.TempDir(), "tls")}
	require.NoError(t, d.prepare(time.Now()))
	return d
}

// renew replaces the certificate.
func (d devTLS) renew(t *testing.T) {
	t.Helper()
	require.NoError(t, d.create(time.Now()))
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

func startTLSNode(t *testing.T, db *database, files tlsFlags) *nodeProcess {
	t.Helper()
	n := startNode(t, db, "--tls-cert", files.TLSCert, "--tls-key", files.TLSKey)
	require.True(t, strings.HasPrefix(n.api, "https://127.0.0.1:"), n.api)
	return n
}

func TestServeTLS(t *testing.T) {
	t.Parallel()
	files := newDevTLS(t)
	n := startTLSNode(t, migratedDatabase(t), files.files())

	response, text, err := get(t.Context(), trusting(t, files.files().TLSCert), n.api+"/readyz")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode, text)
	require.Equal(t, "HTTP/2.0", response.Proto)
	require.Equal(t, uint16(tls.VersionTLS13), response.TLS.Version)
	response, _, err = get(t.Context(), trusting(t, files.files().TLSCert, func(c *tls.Config) {
		c.MaxVersion, c.NextProtos = tls.VersionTLS12, []string{"http/1.1"}
	}), n.api+"/readyz")
	require.NoError(t, err)
	require.Equal(t, "HTTP/1.1", response.Proto)

	var wrongHost x509.HostnameError
	_, _, err = get(t.Context(),
		trusting(t, files.files().TLSCert, func(c *tls.Config) { c.ServerName = "postrider.example.com" }), n.api+"/readyz")
	require.ErrorAs(t, err, &wrongHost)
	var unknown x509.UnknownAuthorityError
	_, _, err = get(t.Context(), trusting(t, newDevTLS(t).files().TLSCert), n.api+"/readyz")
	require.ErrorAs(t, err, &unknown)
	_, _, err = get(t.Context(),
		trusting(t, files.files().TLSCert, func(c *tls.Config) {
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

	code, _ := n.stop()
	require.Zero(t, code)
}

func TestRenewedCertificateIsShownWithoutARestart(t *testing.T) {
	t.Parallel()
	files := newDevTLS(t)
	n := startTLSNode(t, migratedDatabase(t), files.files())
	first := shownSerial(t, n.api)

	files.renew(t)
	eventually(t, "the renewed certificate is shown",
		func() bool { return shownSerial(t, n.api) != first })
	second := shownSerial(t, n.api)

	require.NoError(t, os.WriteFile(files.files().TLSCert, []byte("cut sho"), 0o644))
	const complaint = "renewed TLS certificate is invalid; the current one stays in use"
	eventually(t, "a broken renewal is reported", func() bool { return strings.Contains(n.stderr.String(), complaint) })
	require.Equal(t, second, shownSerial(t, n.api))

	files.renew(t)
	eventually(t, "the next renewal is shown", func() bool { return shownSerial(t, n.api) != second })
	require.Equal(t, 1, strings.Count(n.stderr.String(), complaint), "a line for each mistake, not for each look")
}

func TestServeRejectsTLSFilesThatDoNotFit(t *testing.T) {
	t.Parallel()
	one, other := newDevTLS(t).files(), newDevTLS(t).files()
	missing := filepath.Join(t.TempDir(), "missing.pem")
	for _, row := range []struct{ name, cert, key, says string }{
		{"no key", one.TLSCert, "", "--tls-cert without --tls-key"},
		{"no certificate", "", one.TLSKey, "--tls-key without --tls-cert"},
		{"missing certificate", missing, one.TLSKey, "--tls-cert: open " + missing},
		{"missing key", one.TLSCert, missing, "--tls-key: open " + missing},
		{"another's key", one.TLSCert, other.TLSKey, "--tls-key " + other.TLSKey +
			": tls: private key does not match public key"},
		{"mixed up", one.TLSKey, one.TLSCert, "--tls-cert " + one.TLSKey + " and --tls-key " + one.TLSCert +
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

func TestDevKeepsItsCertificateUntilItEndsSoon(t *testing.T) {
	t.Parallel()
	now := time.Now()
	d := devTLS{filepath.Join(t.TempDir(), "tls")}
	prepared := func(at time.Time) string {
		require.NoError(t, d.prepare(at))
		for file, mode := range map[string]os.FileMode{d.files().TLSKey: 0o600, d.files().TLSCert: 0o644} {
			info, err := os.Stat(file)
			require.NoError(t, err)
			require.Equal(t, mode, info.Mode().Perm(), file)
		}
		return contentOf(t, d.files().TLSCert)
	}
	first := prepared(now)
	require.Equal(t, first, prepared(now.Add(devCertificateLasts-devRenewBefore-time.Minute)))
	renewed := prepared(now.Add(devCertificateLasts - devRenewBefore + time.Minute))
	require.NotEqual(t, first, renewed)
	require.NoError(t, os.Remove(d.files().TLSKey))
	remade := prepared(now)
	require.NotEqual(t, renewed, remade)
	require.NoError(t, os.WriteFile(d.files().TLSKey, []byte("lost"), 0o600))
	require.NotEqual(t, remade, prepared(now))
}

func contentOf(t *testing.T, file string) string {
	t.Helper()
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(raw)
}

// A client that has the key of dev's certificate can sign no certificate that others accept.
func TestDevsCertificateSignsNoOther(t *testing.T) {
	t.Parallel()
	d := newDevTLS(t)
	own, err := tls.LoadX509KeyPair(d.files().TLSCert, d.files().TLSKey)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(own.Leaf)
	for _, template := range []*x509.Certificate{
		{DNSNames: []string{"example.com"}},
		{DNSNames: []string{"localhost"}},
		{IPAddresses: []net.IP{net.IPv4(10, 0, 0, 1)}},
	} {
		template.NotAfter = time.Now().Add(time.Hour)
		stolen, err := issue(template, &own, filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem"))
		require.NoError(t, err)
		_, err = stolen.Leaf.Verify(x509.VerifyOptions{Roots: roots})
		require.ErrorContains(t, err, "x509: ")
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
	code, _ := d.stop()
	require.Zero(t, code)
	_, err = os.Stat(d.info.CAFile)
	require.ErrorIs(t, err, os.ErrNotExist, "removed with the database")
}

// at returns a listener without clients.
type at struct {
	net.Listener
	ip string
}

func (a at) Addr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(a.ip)} }

func TestDevOnOpenAddresses(t *testing.T) {
	t.Parallel()
	here, anywhere := at{ip: "127.0.0.1"}, at{ip: "0.0.0.0"}
	require.True(t, (&dev{api: here}).local())
	require.True(t, (&dev{api: here, secure: here}).local())
	require.False(t, (&dev{api: here, secure: anywhere}).local())
	require.False(t, (&dev{api: anywhere, secure: here}).local())
}
