package e2e

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// internet is the outside world of those who type the pages: every name below example.com is an endpoint that agrees to
// be sent events, and a token server; it is reached through a proxy, and trusted by an authority of the test's own.
type internet struct{ proxy, caFile string }

func startInternet(t *testing.T) internet {
	t.Helper()
	dir, now := t.TempDir(), time.Now()
	file := func(name string) string { return filepath.Join(dir, name) }
	ca, err := issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: "authority of the pages"}, NotBefore: now.Add(-time.Hour),
		NotAfter: now.Add(time.Hour),
		IsCA:     true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, nil, file("ca.pem"), file("ca-key.pem"))
	require.NoError(t, err)
	site, err := issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: "example.com"}, DNSNames: []string{"*.example.com"}, NotBefore: now.Add(-time.Hour),
		NotAfter: now.Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, &ca, file("site.pem"), file("site-key.pem"))
	require.NoError(t, err)
	endpoint := httptest.NewUnstartedServer(http.HandlerFunc(agreeable))
	endpoint.TLS = &tls.Config{
		Certificates: []tls.Certificate{site}, MinVersion: tls.VersionTLS12, ClientAuth: tls.RequestClientCert,
	}
	endpoint.StartTLS()
	t.Cleanup(endpoint.Close)
	proxy := httptest.NewServer(dialTo(endpoint.Listener.Addr().String()))
	t.Cleanup(proxy.Close)
	return internet{proxy: proxy.URL, caFile: file("ca.pem")}
}

// env has a program reach it.
func (i internet) env() []string {
	return []string{"POSTRIDER_DELIVERY_PROXY=" + i.proxy, "SSL_CERT_FILE=" + i.caFile}
}

// agreeable responds to both handshakes, issues tokens and accepts every event.
func agreeable(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("WebHook-Allowed-Origin", "*")
	w.Header().Set("Content-Type", "application/json")
	switch {
	case strings.HasSuffix(r.URL.Path, "/token"):
		fmt.Fprint(w, `{"access_token":"t0ken","token_type":"Bearer","expires_in":3600}`)
	case r.Header.Get("aeg-event-type") == "SubscriptionValidation":
		var questions []struct {
			Data struct{ ValidationCode string }
		}
		_ = json.Unmarshal(body, &questions)
		for _, a := range questions {
			fmt.Fprintf(w, `{"validationResponse":%q}`, a.Data.ValidationCode)
		}
	}
}

// dialTo is a proxy to whom every name leads to one address. A plain HTTP request is for an address of this
// machine, and is passed on.
func dialTo(address string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			(&httputil.ReverseProxy{Rewrite: func(*httputil.ProxyRequest) {}}).ServeHTTP(w, r)
			return
		}
		far, err := net.Dial("tcp", address)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer far.Close()
		near, buffered, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer near.Close()
		fmt.Fprint(near, "HTTP/1.1 200 OK\r\n\r\n")
		go func() {
			_, _ = io.Copy(far, bufio.NewReader(buffered))
			_ = far.(*net.TCPConn).CloseWrite()
		}()
		_, _ = io.Copy(near, far)
	}
}

// issue creates a key and a certificate for it, signed by the authority or, without one, by itself, and writes both.
func issue(
	template *x509.Certificate, ca *tls.Certificate, certFile, keyFile string,
) (made tls.Certificate, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return made, err
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return made, err
	}
	parent, signer := template, any(key)
	if ca != nil {
		parent, signer = ca.Leaf, ca.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return made, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return made, err
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
	if err := errors.Join(os.WriteFile(keyFile, keyPEM, 0o600), os.WriteFile(certFile, certPEM, 0o600)); err != nil {
		return made, err
	}
	return tls.X509KeyPair(certPEM, keyPEM)
}
