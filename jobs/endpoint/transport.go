package endpoint

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"syscall"
	"time"

	"postrider/policy"
)

// maxOwnTransports bounds the pools of connections that belong to event subscriptions with settings of their own. An
// empty pool is a few KB and a certificate chain some 20 KB, so that 256 are a few MB; beyond, whoever was not heard of
// longest gets a new one.
const maxOwnTransports = 256

// transports are the pools of connections. Two requests share one only if their connections may be exchanged: what asks
// for a client certificate, or trusts other authorities, must never meet a connection that was made without.
type transports struct {
	Options

	secure *http.Transport // https, with nothing of their own
	plain  *http.Transport // http

	mu   sync.Mutex
	own  map[[sha256.Size]byte]*ownTransport
	turn uint64
}

// ownTransport is for one set of settings. It is never used where they could not be read.
type ownTransport struct {
	*http.Transport
	used uint64
}

func newTransports(o Options) *transports {
	t := &transports{Options: o, own: map[[sha256.Size]byte]*ownTransport{}}
	t.secure = t.make(guard(o.AllowCIDR))
	t.plain = t.secure
	if !o.AllowHTTP {
		t.plain = t.make(guardPlain(o.AllowCIDR))
	}
	return t
}

func (t *transports) make(control func(string, string, syscall.RawConn) error) *http.Transport {
	made := &http.Transport{
		// None from the environment: a proxy resolves names itself, past the address guard, and must be somebody's decision.
		Proxy:               nil,
		TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2:   true,
		MaxIdleConns:        t.MaxIdleConnections,
		MaxIdleConnsPerHost: t.MaxIdleConnections,
		IdleConnTimeout:     idleConnTimeout,
		// A dial and its handshake go on when the request they were for has given up: without a limit of their own, an
		// endpoint that accepts and never speaks keeps a socket and three goroutines for ever.
		TLSHandshakeTimeout: handshakeTimeout,
		// A connection of HTTP/2 that went dead in silence would fail request after request until TCP notices.
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 10 * time.Second},
		MaxResponseHeaderBytes: maxResponseHead,
		DisableCompression:     true,
	}
	if t.Proxy != nil { // the only address that is dialled, and the operator named it
		made.Proxy, control = http.ProxyURL(t.Proxy), nil
	}
	made.DialContext = (&net.Dialer{
		Timeout: dialTimeout, KeepAlive: 30 * time.Second, Control: control, Resolver: t.Resolver,
	}).DialContext
	return made
}

// guard asks the policy about the address itself, after name resolution and before the connection: a name that
// resolved to a public address when it was checked cannot point inside now.
func guard(allow []netip.Prefix) func(network, address string, _ syscall.RawConn) error {
	return func(_, address string, _ syscall.RawConn) error {
		addr, err := netip.ParseAddrPort(address)
		if err != nil {
			return &rejectedError{cause: err}
		}
		if err := policy.Address(addr.Addr(), allow); err != nil {
			return &rejectedError{cause: err}
		}
		if err := policy.Port(addr, allow); err != nil {
			return &rejectedError{cause: err}
		}
		return nil
	}
}

// guardPlain is guard for connections without TLS.
func guardPlain(allow []netip.Prefix) func(network, address string, _ syscall.RawConn) error {
	known := guard(allow)
	return func(network, address string, c syscall.RawConn) error {
		if err := known(network, address, c); err != nil {
			return err
		}
		if err := policy.PlainAddress(netip.MustParseAddrPort(address).Addr(), allow); err != nil {
			return &rejectedError{cause: err}
		}
		return nil
	}
}

// roundTrip makes one request by the pool that is right for it. It follows no redirect: that is an answer like any
// other.
func (t *transports) roundTrip(req *http.Request, by *policy.Connection) (*http.Response, error) {
	if t.Proxy != nil {
		if err := t.judgeProxied(req.URL); err != nil {
			return nil, &rejectedError{cause: err}
		}
	}
	switch {
	case req.URL.Scheme == "http":
		return t.plain.RoundTrip(req)
	case by == nil || by.DefaultTLS():
		return t.secure.RoundTrip(req)
	}
	own, err := t.of(by)
	if err != nil {
		return nil, err
	}
	return own.RoundTrip(req)
}

// judgeProxied is all that can be known of an address that somebody else resolves: what is written in the URL.
func (t *transports) judgeProxied(u *url.URL) error {
	if _, err := policy.EndpointURL(u.String(), t.AllowCIDR); err != nil {
		return err
	}
	if err := policy.ProxiedPort(u); err != nil {
		return err
	}
	if t.AllowHTTP {
		return nil
	}
	return policy.PlainEndpoint(u, t.AllowCIDR)
}

// of finds or makes the pool for these settings.
func (t *transports) of(by *policy.Connection) (*http.Transport, error) {
	settings := *by
	settings.OAuth2 = nil // a token belongs to a request
	text, _ := json.Marshal(settings)
	key := sha256.Sum256(text)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turn++
	if own, known := t.own[key]; known {
		own.used = t.turn
		return own.Transport, nil
	}
	own := &ownTransport{Transport: t.secure.Clone(), used: t.turn}
	if err := setTLS(own.TLSClientConfig, by); err != nil {
		return nil, err
	}
	if len(t.own) >= maxOwnTransports {
		t.forget()
	}
	t.own[key] = own
	return own.Transport, nil
}

// forget lets the pool go that was not used longest. Requests in flight end as ever; their connections then idle out.
func (t *transports) forget() {
	var oldest [sha256.Size]byte
	for key, own := range t.own {
		if first, known := t.own[oldest]; !known || own.used < first.used {
			oldest = key
		}
	}
	t.own[oldest].CloseIdleConnections()
	delete(t.own, oldest)
}

// errUnreadable stands for an error that may repeat what it could not read.
var errUnreadable = errors.New("what is stored cannot be read")

// setTLS changes the configuration of a pool that was made for these settings.
func setTLS(config *tls.Config, by *policy.Connection) error {
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
			return fmt.Errorf("clientCertificate: %w", errUnreadable) // not err, which may tell of the key
		}
		// Whatever authorities the endpoint names: it says itself if the certificate is not the one it wants.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	return nil
}

// close lets go of all connections that no request uses.
func (t *transports) close() {
	t.secure.CloseIdleConnections()
	t.plain.CloseIdleConnections()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, own := range t.own {
		own.CloseIdleConnections()
	}
}
