package endpoint

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/endpointconf"
	"postrider/policy"
)

// authority issues certificates that only its own pool trusts.
type authority struct {
	tls.Certificate
	pem string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	made := newCertificate(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "an authority of a test"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign,
	}, nil)
	return &authority{made, pemOf("CERTIFICATE", made.Leaf.Raw)}
}

// newCertificate creates a certificate that is signed by another one, or by itself.
func newCertificate(t *testing.T, template *x509.Certificate, by *tls.Certificate) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	if by == nil {
		by = &tls.Certificate{Leaf: template, PrivateKey: key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.Leaf, &key.PublicKey, by.PrivateKey)
	require.NoError(t, err)
	leaf, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func pemOf(kind string, bytes []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}))
}

// issue issues a certificate for this machine.
func (a *authority) issue(t *testing.T, name string) tls.Certificate {
	t.Helper()
	return newCertificate(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, &a.Certificate)
}

// client issues a client certificate of an event subscription.
func (a *authority) client(t *testing.T, name string) *endpointconf.ClientCertificate {
	t.Helper()
	issued := a.issue(t, name)
	key, err := x509.MarshalPKCS8PrivateKey(issued.PrivateKey)
	require.NoError(t, err)
	return &endpointconf.ClientCertificate{
		Certificate: pemOf("CERTIFICATE", issued.Leaf.Raw), PrivateKey: pemOf("PRIVATE KEY", key),
	}
}

// serve serves TLS with a certificate of the authority.
func (a *authority) serve(t *testing.T, change func(*tls.Config), handler http.HandlerFunc) (url string) {
	t.Helper()
	config := &tls.Config{
		Certificates: []tls.Certificate{a.issue(t, "endpoint")}, ClientCAs: x509.NewCertPool(),
		MinVersion: tls.VersionTLS12,
	}
	config.ClientCAs.AddCert(a.Leaf)
	change(config)
	e := httptest.NewUnstartedServer(handler)
	e.TLS, e.EnableHTTP2, e.Config.ErrorLog = config, true, log.New(io.Discard, "", 0)
	e.StartTLS()
	t.Cleanup(e.Close)
	return e.URL
}

// Each event subscription uses its own authorities, client certificate and minimum TLS version, at the same endpoint.
func TestConnectionSettings(t *testing.T) {
	t.Parallel()
	ours, theirs := newAuthority(t), newAuthority(t)
	open := ours.serve(t, func(*tls.Config) {}, func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 { // its own pool has HTTP/2 like the others
			w.WriteHeader(http.StatusHTTPVersionNotSupported)
		}
	})
	old := ours.serve(t, func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 },
		func(http.ResponseWriter, *http.Request) {})
	older := ours.serve(t, func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS11 },
		func(http.ResponseWriter, *http.Request) {})
	shown := make(chan string, 10)
	mutual := ours.serve(t, func(c *tls.Config) { c.ClientAuth = tls.RequireAndVerifyClientCert },
		func(_ http.ResponseWriter, r *http.Request) { shown <- r.TLS.PeerCertificates[0].Subject.CommonName })

	// An endpoint checks the certificate after the handshake has ended for the client (RFC 8446, 4.4): either may end the
	// connection first.
	const notAdmitted = "certificate|could not be established|reset|EOF|broken pipe|closed"
	trusting := func(authorities string, change func(*endpointconf.Connection)) endpointconf.Connection {
		c := endpointconf.Connection{CertificateAuthorities: authorities}
		if change != nil {
			change(&c)
		}
		return c
	}
	tls13 := func(c *endpointconf.Connection) { c.MinimumTLSVersion = endpointconf.TLS13 }
	as := func(client *endpointconf.ClientCertificate) func(*endpointconf.Connection) {
		return func(c *endpointconf.Connection) { c.ClientCertificate = client }
	}
	client := loopbackClient(t)
	for name, row := range map[string]struct {
		url   string
		by    endpointconf.Connection
		fails string // the error, as an expression; "" = delivered
	}{
		"not trusted":           {open, endpointconf.Connection{}, "certificate is not trusted"},
		"trusted":               {open, trusting(ours.pem, nil), ""},
		"another authority":     {open, trusting(theirs.pem, nil), "certificate is not trusted"},
		"both authorities":      {open, trusting(theirs.pem+ours.pem, nil), ""},
		"TLS 1.3":               {open, trusting(ours.pem, tls13), ""},
		"TLS 1.2 at an old one": {old, trusting(ours.pem, nil), ""},
		"TLS 1.3 at an old one": {old, trusting(ours.pem, tls13), "protocol version"},
		"an older one":          {older, endpointconf.Connection{}, "protocol version"},
		"an older, trusted one": {older, trusting(ours.pem, nil), "protocol version"},
		"no client certificate": {mutual, trusting(ours.pem, nil), notAdmitted},
		"ours":                  {mutual, trusting(ours.pem, as(ours.client(t, "postrider"))), ""},
		"another client's":      {mutual, trusting(ours.pem, as(theirs.client(t, "another"))), notAdmitted},
	} {
		k := testCall(row.url, 5*time.Second)
		k.Connection = &row.by
		resp, _, err := client.post(k)
		require.NoError(t, err)
		if row.fails == "" {
			require.Equal(t, policy.Result{Status: http.StatusOK}, resp.Result, "%s: %s", name, resp.ErrorText)
			continue
		}
		require.Equal(t, policy.Result{Err: policy.ErrorSocket}, resp.Result, name)
		require.Regexp(t, row.fails, resp.ErrorText, name)
	}
	require.Len(t, shown, 1)
	require.Equal(t, "postrider", <-shown)
}
