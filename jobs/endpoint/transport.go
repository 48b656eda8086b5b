package endpoint

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"time"

	"postrider/internal/endpointconf"
)

// maxOwnTransports bounds the connection pools of event subscriptions that have their own TLS settings. An empty pool
// is a few KB and a certificate chain some 20 KB.
const maxOwnTransports = 256

// transports are the connection pools. Requests share a pool only if their TLS settings are equal.
type transports struct {
	Options

	secure *http.Transport // https, with default settings
	plain  *http.Transport // http
	http1  *http1          // most deliveries, with the settings of those

	mu   sync.Mutex
	own  map[[sha256.Size]byte]*ownTransport // by their settings
	uses uint64
}

type ownTransport struct {
	*http.Transport
	lastUse uint64
}

func (t *transports) newTransport(control func(string, string, syscall.RawConn) error) *http.Transport {
	transport := &http.Transport{
		// No proxy from the environment: a proxy resolves names itself, past the address guard.
		Proxy:               nil,
		TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2:   true,
		MaxIdleConns:        t.MaxIdleConnections,
		MaxIdleConnsPerHost: t.MaxIdleConnections,
		IdleConnTimeout:     idleConnTimeout,
		// A dial and its handshake continue after their request has ended. Without this limit, an endpoint that accepts
		// connections and sends nothing keeps a socket and three goroutines for ever.
		TLSHandshakeTimeout: handshakeTimeout,
		// Without pings, requests on a dead HTTP/2 connection fail one after another until TCP notices.
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 10 * time.Second},
		MaxResponseHeaderBytes: maxResponseHead,
		DisableCompression:     true,
	}
	if t.Proxy != nil { // the only address that is dialed, configured by the operator
		transport.Proxy, control = http.ProxyURL(t.Proxy), nil
	}
	transport.DialContext = (&net.Dialer{
		Timeout: dialTimeout, KeepAlive: 30 * time.Second, Control: control, Resolver: t.Resolver,
	}).DialContext
	return transport
}

// guard checks each address after name resolution and before the connection: a name that resolved to a public address
// when it was checked may resolve to an internal one now. plain is for connections without TLS.
func guard(allow []netip.Prefix, plain bool) func(network, address string, _ syscall.RawConn) error {
	return func(_, address string, _ syscall.RawConn) error {
		addr, err := netip.ParseAddrPort(address)
		if err == nil {
			err = endpointconf.Dialed(addr, plain, allow)
		}
		if err != nil {
			return &rejectedError{cause: err}
		}
		return nil
	}
}

// roundTrip makes one request with the right pool. A redirect is a response like any other.
func (t *transports) roundTrip(req *http.Request, by *endpointconf.Connection) (*http.Response, error) {
	settings, err := t.settings(req.URL, by)
	if err != nil {
		return nil, err
	}
	return withNetHTTP(settings, req)
}

// withNetHTTP makes one request with net/http. The body of a 101 is the connection itself, which no context cuts: it is
// not read.
func withNetHTTP(settings *http.Transport, req *http.Request) (*http.Response, error) {
	resp, err := settings.RoundTrip(req)
	if err == nil && resp.StatusCode == http.StatusSwitchingProtocols {
		_ = resp.Body.Close()
		resp.Body = io.NopCloser(strings.NewReader(""))
	}
	return resp, err
}

// send makes a call's request on this goroutine, or with net/http if http1 cannot send it.
func (t *transports) send(req *http.Request, k *Call) (*http.Response, error) {
	settings, err := t.settings(req.URL, k.Connection)
	if err != nil {
		return nil, err
	}
	key := poolKey{settings, req.URL.Scheme, req.URL.Host}
	if t.Proxy == nil && t.http1.sends(key, req, len(k.Body.bytes())) {
		resp, err := t.http1.roundTrip(req, k, key)
		if !errors.Is(err, errHTTP2) {
			return resp, err
		}
	}
	trace := k.watch.trace()
	trace.WroteRequest = k.wrote
	req = req.WithContext(httptrace.WithClientTrace(req.Context(), trace))
	k.Body.attach(req)
	resp, err := withNetHTTP(settings, req)
	if err == nil && resp.ProtoMajor == 1 {
		t.http1.setHTTP2(key, false)
	}
	return resp, err
}

// settings are net/http's pool for a request, with its dialer and TLS settings.
func (t *transports) settings(u *url.URL, by *endpointconf.Connection) (*http.Transport, error) {
	if t.Proxy != nil {
		if err := t.checkProxied(u); err != nil {
			return nil, &rejectedError{cause: err}
		}
	}
	if u.Scheme == "http" {
		return t.plain, nil
	}
	if by == nil || by.DefaultTLS() {
		return t.secure, nil
	}
	return t.of(by)
}

// checkProxied checks a URL whose name the proxy resolves.
func (t *transports) checkProxied(u *url.URL) error {
	if _, err := endpointconf.EndpointURL(u.String(), t.AllowCIDR); err != nil {
		return err
	}
	if err := endpointconf.ProxiedPort(u); err != nil || t.AllowHTTP {
		return err
	}
	return endpointconf.PlainEndpoint(u, t.AllowCIDR)
}

// of returns the pool for these settings.
func (t *transports) of(by *endpointconf.Connection) (*http.Transport, error) {
	settings := *by
	settings.OAuth2 = nil // a token belongs to a request
	text, _ := json.Marshal(settings)
	key := sha256.Sum256(text)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.uses++
	if own, known := t.own[key]; known {
		own.lastUse = t.uses
		return own.Transport, nil
	}
	own := &ownTransport{Transport: t.secure.Clone(), lastUse: t.uses}
	if err := setTLS(own.TLSClientConfig, by); err != nil {
		return nil, err
	}
	if len(t.own) >= maxOwnTransports {
		t.forget()
	}
	t.own[key] = own
	return own.Transport, nil
}

// forget removes the least recently used pool. Its requests in flight finish; their connections then idle out.
func (t *transports) forget() {
	var oldest [sha256.Size]byte
	for key, own := range t.own {
		if first, known := t.own[oldest]; !known || own.lastUse < first.lastUse {
			oldest = key
		}
	}
	t.own[oldest].CloseIdleConnections()
	delete(t.own, oldest)
}

// errUnreadable replaces an error that may quote a secret.
var errUnreadable = errors.New("the stored value cannot be read")

func setTLS(config *tls.Config, by *endpointconf.Connection) error {
	config.MinVersion = by.MinimumTLSVersion.Number()
	if by.CertificateAuthorities != "" {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM([]byte(by.CertificateAuthorities)) {
			return fmt.Errorf("certificateAuthorities: %w", errUnreadable)
		}
	}
	if c := by.ClientCertificate; c != nil {
		pair, err := tls.X509KeyPair([]byte(c.Certificate), []byte(c.PrivateKey))
		if err != nil {
			return fmt.Errorf("clientCertificate: %w", errUnreadable)
		}
		// Sent whatever authorities the endpoint names: an endpoint that rejects it reports that itself.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	return nil
}

func (t *transports) close() {
	t.http1.remove(func(*conn) bool { return true })
	t.secure.CloseIdleConnections()
	t.plain.CloseIdleConnections()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, own := range t.own {
		own.CloseIdleConnections()
	}
}
