package auth

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"postrider/access"
)

// ForwardedHeader is the header in which the proxies before this service say whom a request came from. Only one is
// believed: of the other one, which they do not write, anybody may send what he likes.
type ForwardedHeader string

// The headers; the second is RFC 7239's.
const (
	XForwardedFor ForwardedHeader = "X-Forwarded-For"
	Forwarded     ForwardedHeader = "Forwarded"
)

// maxHops bounds how far a header is read back: each trusted proxy is one hop.
const maxHops = 32

// forwardedHeaders are all headers in which proxies report a client's address, scheme and host.
var forwardedHeaders = []string{
	string(XForwardedFor), string(Forwarded), "X-Forwarded-Host", "X-Real-Ip",
	echo.HeaderXForwardedProto, echo.HeaderXForwardedProtocol, echo.HeaderXForwardedSsl, echo.HeaderXUrlScheme,
}

// KnowClient puts the client's address in the place of the last proxy's, for everything after it: the audit, the log,
// the limits. It removes what a peer that is no trusted proxy says of address, scheme and host, so that no later code
// can believe it. Requests of the dashboard within the process passed here before.
func KnowClient(header ForwardedHeader, trusted []netip.Prefix) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			noteClient(c, header, trusted)
			return next(c)
		}
	}
}

func noteClient(c echo.Context, name ForwardedHeader, trusted []netip.Prefix) {
	r := c.Request()
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
	if name == Forwarded { // the proxies write this one, so the others are the client's
		scheme := member(lastHop(r.Header), "proto")
		dropForwarded(r.Header)
		r.Header.Set(echo.HeaderXForwardedProto, scheme)
	}
}

// SchemeOf believes a trusted proxy; what others say was removed, see KnowClient.
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

// lastHop is what the proxy before this service has written into Forwarded.
func lastHop(header http.Header) string {
	values := strings.Join(header.Values(string(Forwarded)), ",")
	return values[strings.LastIndexByte(values, ',')+1:]
}

// clientOf is the last address on a request's way that is no trusted proxy's. Each proxy has written down whom it was
// called by, at the end; what stands before the first address that is not trusted may be anybody's invention. Where
// that cannot be read, it is whoever wrote it.
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

// hopAddress reads 192.0.2.1, 192.0.2.1:4711, [2001:db8::1]:4711 and, of Forwarded, the member for= in quotes or
// without.
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

// member reads for= or proto= of one hop of Forwarded.
func member(hop, wanted string) string {
	for part := range strings.SplitSeq(hop, ";") {
		if name, value, found := strings.Cut(strings.TrimSpace(part), "="); found && strings.EqualFold(name, wanted) {
			return strings.Trim(value, `"`)
		}
	}
	return ""
}
