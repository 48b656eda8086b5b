package server

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"
)

// ForwardedHeader is the header in which the proxies before this service say whom a request came from. Only one is believed: of the
// other one, which they do not write, anybody may send what he likes.
type ForwardedHeader string

// The headers; the second is RFC 7239's.
const (
	XForwardedFor ForwardedHeader = "X-Forwarded-For"
	Forwarded     ForwardedHeader = "Forwarded"
)

// maxHops bounds how far a header is read back: each trusted proxy is one hop.
const maxHops = 32

// knowClient puts the client's address in the place of the last proxy's, for everything after it: the audit, the log, the limits.
func (s *Server) knowClient(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		if at, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
			if client := clientOf(at.Addr(), r.Header, s.options.ForwardedHeader, s.options.TrustedProxies); client != at.Addr() {
				r.RemoteAddr = netip.AddrPortFrom(client, 0).String()
			}
		}
		return next(c)
	}
}

// clientOf is the last address on a request's way that is no trusted proxy's. Each proxy has written down whom it was called by, at
// the end; what stands before the first address that is not trusted may be anybody's invention. Where that cannot be read, it
// is whoever wrote it.
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

// hopAddress reads 192.0.2.1, 192.0.2.1:4711, [2001:db8::1]:4711 and, of Forwarded, the member for= in quotes or without.
func hopAddress(hop string, name ForwardedHeader) (netip.Addr, bool) {
	hop = strings.TrimSpace(hop)
	if name == Forwarded {
		hop = forMember(hop)
	}
	if host, _, err := net.SplitHostPort(hop); err == nil {
		hop = host
	}
	a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(hop, "["), "]"))
	return a.Unmap().WithZone(""), err == nil
}

func forMember(hop string) string {
	for member := range strings.SplitSeq(hop, ";") {
		if name, value, found := strings.Cut(strings.TrimSpace(member), "="); found && strings.EqualFold(name, "for") {
			return strings.Trim(value, `"`)
		}
	}
	return ""
}
