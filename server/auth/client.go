package auth

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"postrider/internal/access"
)

// ForwardedHeader is the header in which the trusted proxies report a client's address. Other headers are ignored: the
// client may have sent them.
type ForwardedHeader string

// The headers. The second is RFC 7239's.
const (
	XForwardedFor ForwardedHeader = "X-Forwarded-For"
	Forwarded     ForwardedHeader = "Forwarded"
)

// maxHops limits how many trusted proxies a header may have.
const maxHops = 32

// forwardedHeaders are all headers in which proxies report a client's address, scheme and host.
var forwardedHeaders = []string{
	string(XForwardedFor), string(Forwarded), "X-Forwarded-Host", "X-Real-Ip",
	echo.HeaderXForwardedProto, echo.HeaderXForwardedProtocol, echo.HeaderXForwardedSsl, echo.HeaderXUrlScheme,
}

// WithClient replaces the address of a trusted proxy by the client's. It removes the headers about address, scheme and
// host of other peers, so that no later code trusts them. The dashboard's requests within the process are not changed.
func WithClient(header ForwardedHeader, trusted []netip.Prefix) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			setClient(c.Request(), header, trusted)
			return next(c)
		}
	}
}

func setClient(r *http.Request, name ForwardedHeader, trusted []netip.Prefix) {
	if access.ActorOf(r.Context()).Role != "" {
		return
	}
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !isTrusted(at.Addr().Unmap().WithZone(""), trusted) {
		dropForwarded(r.Header)
		return
	}
	client := clientOf(at.Addr(), r.Header, name, trusted)
	if client != at.Addr() {
		r.RemoteAddr = netip.AddrPortFrom(client, 0).String()
	}
	if name == Forwarded { // the other headers are the client's
		values := strings.Join(r.Header.Values(string(Forwarded)), ",")
		scheme := member(values[strings.LastIndexByte(values, ',')+1:], "proto")
		dropForwarded(r.Header)
		r.Header.Set(echo.HeaderXForwardedProto, scheme)
	}
}

// SchemeOf is https or http. WithClient has removed the headers of untrusted peers.
func SchemeOf(r *http.Request) string {
	h := r.Header
	for _, name := range []string{echo.HeaderXForwardedProto, echo.HeaderXForwardedProtocol, echo.HeaderXUrlScheme} {
		if strings.EqualFold(h.Get(name), "https") {
			return "https"
		}
	}
	if r.TLS != nil || strings.EqualFold(h.Get(echo.HeaderXForwardedSsl), "on") {
		return "https"
	}
	return "http"
}

func dropForwarded(header http.Header) {
	for _, name := range forwardedHeaders {
		delete(header, name)
	}
}

// clientOf is the last address in the header that is not a trusted proxy's: each proxy appends its peer's address, and
// the client may have sent the rest. If an entry is malformed, it is the address of the proxy that wrote it.
func clientOf(peer netip.Addr, header http.Header, name ForwardedHeader, trusted []netip.Prefix) netip.Addr {
	client := peer.Unmap().WithZone("")
	if !isTrusted(client, trusted) {
		return peer
	}
	hops := strings.Split(strings.Join(header.Values(string(name)), ","), ",")
	slices.Reverse(hops)
	for _, hop := range hops[:min(len(hops), maxHops)] {
		address, ok := hopAddress(hop, name)
		if !ok {
			return client
		}
		if client = address; !isTrusted(client, trusted) {
			return client
		}
	}
	return client
}

func isTrusted(a netip.Addr, trusted []netip.Prefix) bool {
	return slices.ContainsFunc(trusted, func(p netip.Prefix) bool { return p.Contains(a) })
}

// hopAddress reads 192.0.2.1, 192.0.2.1:4711 and [2001:db8::1]:4711; in Forwarded, the member for=.
func hopAddress(hop string, name ForwardedHeader) (netip.Addr, bool) {
	hop = strings.TrimSpace(hop)
	if name == Forwarded {
		hop = member(hop, "for")
	}
	if host, _, err := net.SplitHostPort(hop); err == nil {
		hop = host
	}
	a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(hop, "["), "]"))
	return a.Unmap().WithZone(""), err == nil
}

// member reads a member of one hop of Forwarded, such as for or proto.
func member(hop, key string) string {
	for part := range strings.SplitSeq(hop, ";") {
		if name, value, found := strings.Cut(strings.TrimSpace(part), "="); found && strings.EqualFold(name, key) {
			return strings.Trim(value, `"`)
		}
	}
	return ""
}
