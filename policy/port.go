package policy

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
)

// otherProtocols are ports at which something else than HTTP answers, which may take a request's lines for its own: a
// mail server that is sent a body sends a mail. The list is that of the Fetch standard (2.9, "port blocking"), by which
// browsers go: whoever serves HTTP there is visited by nobody.
var otherProtocols = []uint16{
	1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102, 103, 104, 109, 110, 111,
	113, 115, 117, 119, 123,
	135, 137, 139, 143, 161, 179, 389, 427, 465, 512, 513, 514, 515, 526, 530, 531, 532, 540, 548, 554, 556, 563, 587, 601,
	636, 989, 990, 993, 995,
	1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080,
}

// Port reports why a port may not be called at an address that Address lets through. In networks that were opened every
// port may: they are the operator's own. It is asked with the address that is dialled.
func Port(at netip.AddrPort, allow []netip.Prefix) error {
	if _, other := slices.BinarySearch(otherProtocols, at.Port()); !other || opened(plain(at.Addr()), allow) {
		return nil
	}
	return fmt.Errorf("port %d may not be called: it is another protocol's", at.Port())
}

// ProxiedPort reports, as a *ValidationError on endpointUrl, why a URL that EndpointURL has let through may not be
// called through a proxy. Where its name leads only the proxy knows, so that no opened network speaks for a name; an
// address is where it is, and was judged.
func ProxiedPort(u *url.URL) error {
	if _, err := netip.ParseAddr(u.Hostname()); err == nil {
		return nil
	}
	return endpointProtocol(u, nil)
}

// endpointProtocol judges the port of a URL as far as it can be seen: a name may be in an opened network as soon as
// there is one.
func endpointProtocol(u *url.URL, allow []netip.Prefix) error {
	n, err := strconv.ParseUint(u.Port(), 10, 16)
	if err != nil {
		return nil //nolint:nilerr // the scheme's own
	}
	addr, err := netip.ParseAddr(u.Hostname())
	if err != nil && len(allow) > 0 || Port(netip.AddrPortFrom(addr, uint16(n)), allow) == nil {
		return nil
	}
	return endpointError("must not have port %d, which is another protocol's", n)
}
