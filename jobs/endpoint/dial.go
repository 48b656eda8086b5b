package endpoint

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"
)

// Rejected implements destination.AddressRejection.
func (e *rejectedError) Rejected() bool { return true }

// dialer returns the dialer of clients of brokers. It guards each address like those of requests, also hosts that a
// broker names. plain is for connections without TLS.
func (t *transports) dialer(plain bool) func(ctx context.Context, network, address string) (net.Conn, error) {
	direct := &net.Dialer{
		Timeout: dialTimeout, KeepAlive: 30 * time.Second, Resolver: t.Resolver,
		Control: guard(t.AllowCIDR, plain && !t.AllowHTTP),
	}
	if t.Proxy == nil {
		return direct.DialContext
	}
	return func(ctx context.Context, _, address string) (net.Conn, error) {
		scheme := "https"
		if plain {
			scheme = "http"
		}
		if err := t.checkProxied(&url.URL{Scheme: scheme, Host: address, Path: "/"}); err != nil {
			return nil, &rejectedError{cause: err}
		}
		return connectThrough(ctx, t.Proxy, address)
	}
}

// errNoConnect is an egress proxy that opens no connection for a protocol other than HTTP.
var errNoConnect = errors.New("the egress proxy does not open connections (CONNECT) to brokers: let it allow them")

// connectThrough opens a connection through an HTTP proxy.
//
// Source: RFC 9110, 9.3.6 (CONNECT).
func connectThrough(ctx context.Context, proxy *url.URL, address string) (net.Conn, error) {
	if proxy.Scheme != "http" && proxy.Scheme != "https" {
		return nil, &rejectedError{cause: fmt.Errorf("%w: it is a %s proxy", errNoConnect, proxy.Scheme)}
	}
	host := proxy.Host
	if proxy.Port() == "" {
		host = net.JoinHostPort(proxy.Hostname(), map[string]string{"http": "80", "https": "443"}[proxy.Scheme])
	}
	dialer := &net.Dialer{Timeout: dialTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", host)
	if err != nil {
		return nil, err
	}
	if proxy.Scheme == "https" {
		conn = tls.Client(conn, &tls.Config{ServerName: proxy.Hostname(), MinVersion: tls.VersionTLS12})
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	req := (&http.Request{
		Method: http.MethodConnect, URL: &url.URL{Opaque: address}, Host: address, Header: http.Header{},
	}).WithContext(ctx)
	if user := proxy.User; user != nil {
		password, _ := user.Password()
		req.SetBasicAuth(user.Username(), password)
		req.Header["Proxy-Authorization"] = req.Header["Authorization"]
		delete(req.Header, "Authorization")
	}
	if err := req.Write(conn); err != nil {
		_ = conn.Close()
		return nil, err
	}
	reader := bufio.NewReader(conn)
	resp, err := http.ReadResponse(reader, req)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		_ = conn.Close()
		return nil, &rejectedError{cause: fmt.Errorf("%w: it responded %s to CONNECT %s", errNoConnect, resp.Status, address)}
	}
	return &tunnel{conn, reader}, nil
}

// tunnel is a connection through a proxy. The reader may have the broker's first bytes.
type tunnel struct {
	net.Conn
	reader *bufio.Reader
}

// Read implements net.Conn.
func (t *tunnel) Read(p []byte) (int, error) { return t.reader.Read(p) }
