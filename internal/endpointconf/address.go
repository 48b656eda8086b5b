package endpointconf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

type namedRange struct {
	prefix netip.Prefix
	name   string
}

func ranges(pairs ...string) []namedRange {
	list := make([]namedRange, 0, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, namedRange{netip.MustParsePrefix(pairs[i]), pairs[i+1]})
	}
	return list
}

// metadataAddresses give any process on a cloud machine that machine's credentials. An operator who opens a range
// around one, such as 169.254.0.0/16, does not open it.
var metadataAddresses = ranges(
	"169.254.169.254/32", "cloud metadata",
	"169.254.170.2/32", "cloud metadata (ECS)",
	"169.254.170.23/32", "cloud metadata (EKS)",
	"168.63.129.16/32", "Azure WireServer",
	"100.100.100.200/32", "cloud metadata (Alibaba)",
	"192.0.0.192/32", "cloud metadata (Oracle)",
	"fd00:ec2::254/128", "cloud metadata",
	"fd00:ec2::23/128", "cloud metadata (EKS)",
	"fd20:ce::254/128", "cloud metadata (Google)",
)

// blockedRanges are the special-purpose ranges of IANA's two registries that no public endpoint can be in, and those
// whose addresses stand for another address. The first that contains an address names it.
var blockedRanges = ranges(
	"0.0.0.0/8", "this network",
	"10.0.0.0/8", "private",
	"100.64.0.0/10", "shared address space (CGNAT)",
	"127.0.0.0/8", "loopback",
	"169.254.0.0/16", "link-local",
	"172.16.0.0/12", "private",
	"192.0.0.0/24", "IETF protocol assignments",
	"192.0.2.0/24", "documentation",
	"192.88.99.0/24", "6to4 relay anycast",
	"192.168.0.0/16", "private",
	"198.18.0.0/15", "benchmarking",
	"198.51.100.0/24", "documentation",
	"203.0.113.0/24", "documentation",
	"224.0.0.0/4", "multicast",
	"255.255.255.255/32", "broadcast",
	"240.0.0.0/4", "reserved (class E)",
	"::/128", "unspecified",
	"::1/128", "loopback",
	"::ffff:0:0:0/96", "IPv4-translated",
	"64:ff9b::/96", "NAT64",
	"64:ff9b:1::/48", "local-use NAT64",
	"100::/64", "discard-only",
	"2001::/32", "Teredo",
	"2001:2::/48", "benchmarking",
	"2001:db8::/32", "documentation",
	"2001::/23", "IETF protocol assignments",
	"2002::/16", "6to4",
	"3fff::/20", "documentation",
	"5f00::/16", "segment routing",
	"fc00::/7", "unique local",
	"fe80::/10", "link-local",
	"fec0::/10", "site-local",
	"ff00::/8", "multicast",
)

// globalUnicast is all that IANA has assigned for the public IPv6 internet; other addresses are called only if opened.
var globalUnicast = netip.MustParsePrefix("2000::/3")

// Address returns an error if a must not be called: clients choose endpoints, and must not reach the machines behind
// the firewall. Check the address that is dialed, after the name was resolved. The prefixes in allow open ranges (a
// private network, loopback in tests); a metadata address is opened only by a prefix of that single address. An IPv4
// address in IPv6 notation is checked as the IPv4 address.
func Address(a netip.Addr, allow []netip.Prefix) error {
	if at, reason := blocked(a, allow); reason != "" {
		return fmt.Errorf("address %s must not be called: %s", at, reason)
	}
	return nil
}

// blocked returns the address that must not be called and why; "" if a may be called.
func blocked(a netip.Addr, allow []netip.Prefix) (at netip.Addr, reason string) {
	if !a.IsValid() {
		return a, "it is not an address"
	}
	a = plain(a)
	single := func(p netip.Prefix) bool { return plainPrefix(p) == netip.PrefixFrom(a, a.BitLen()) }
	if reason := rangeOf(metadataAddresses, a); reason != "" && !slices.ContainsFunc(allow, single) {
		return a, reason
	}
	reason = rangeOf(blockedRanges, a)
	if reason == "" && a.Is6() && !globalUnicast.Contains(a) {
		reason = "outside global unicast " + globalUnicast.String()
	}
	if reason != "" && !opened(a, allow) {
		return a, reason
	}
	if inner, ok := embedded(a); ok {
		return blocked(inner, allow)
	}
	return a, ""
}

// plain strips the zone and unwraps ::ffff:1.2.3.4 and ::1.2.3.4, which systems dial as 1.2.3.4.
func plain(a netip.Addr) netip.Addr {
	a = a.WithZone("").Unmap()
	if !a.Is6() {
		return a
	}
	b := a.As16()
	if binary.BigEndian.Uint64(b[:8]) != 0 || binary.BigEndian.Uint32(b[8:12]) != 0 ||
		binary.BigEndian.Uint32(b[12:]) <= 1 {
		return a // :: and ::1 embed no IPv4 address
	}
	return netip.AddrFrom4([4]byte(b[12:]))
}

var (
	nat64      = netip.MustParsePrefix("64:ff9b::/96")
	translated = netip.MustParsePrefix("::ffff:0:0:0/96")
	sixToFour  = netip.MustParsePrefix("2002::/16")
)

// embedded returns the IPv4 address that a gateway would call for a, so that opening the gateway's range does not open
// everything behind it.
func embedded(a netip.Addr) (netip.Addr, bool) {
	b := a.As16()
	switch {
	case a.Is4():
		return netip.Addr{}, false
	case nat64.Contains(a), translated.Contains(a):
		return netip.AddrFrom4([4]byte(b[12:])), true
	case sixToFour.Contains(a):
		return netip.AddrFrom4([4]byte(b[2:6])), true
	default:
		return netip.Addr{}, false
	}
}

// rangeOf names the first range that contains a; "" if there is none.
func rangeOf(list []namedRange, a netip.Addr) string {
	for _, r := range list {
		if r.prefix.Contains(a) {
			return r.name + " " + r.prefix.String()
		}
	}
	return ""
}

func opened(a netip.Addr, allow []netip.Prefix) bool {
	return slices.ContainsFunc(allow, func(p netip.Prefix) bool { return plainPrefix(p).Contains(a) })
}

// plainPrefix turns ::ffff:10.0.0.0/104 into 10.0.0.0/8, the form in which addresses are compared.
func plainPrefix(p netip.Prefix) netip.Prefix {
	if !p.Addr().Is4In6() || p.Bits() < 96 {
		return p
	}
	return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
}

var errPlainHTTP = errors.New("a public address is called by https only, unless the operator allows plain http " +
	"(--allow-http)")

// plainAddress returns an error if a must not be called without TLS: others on the network could read the events and
// respond for the endpoint. Opened networks are the operator's own. Check the address that is dialed, besides Address.
func plainAddress(a netip.Addr, allow []netip.Prefix) error {
	if opened(plain(a), allow) {
		return nil
	}
	return errPlainHTTP
}

// Dialed returns the error of Address or port or, for a connection without TLS (plain), of plainAddress.
func Dialed(at netip.AddrPort, plain bool, allow []netip.Prefix) error {
	if err := Address(at.Addr(), allow); err != nil {
		return err
	}
	if err := port(at, allow); err != nil || !plain {
		return err
	}
	return plainAddress(at.Addr(), allow)
}

// PlainEndpoint returns a *ValidationError on endpointUrl if the URL, which EndpointURL has accepted, is http and
// cannot be in an opened network. A name may be in one if there is one: plainAddress checks that when it is called.
func PlainEndpoint(u *url.URL, allow []netip.Prefix) error {
	if u.Scheme == "https" {
		return nil
	}
	addr, err := netip.ParseAddr(u.Hostname())
	if err != nil && len(allow) > 0 || err == nil && plainAddress(addr, allow) == nil {
		return nil
	}
	return endpointError("must be https: plain http is for networks that --allow-cidr opens, unless the service runs " +
		"with --allow-http")
}

// otherProtocols are ports of protocols that may take a request's lines for their own commands: a mail server sends the
// body as a mail. The list is that of the Fetch standard (2.9, "port blocking"), which browsers follow.
var otherProtocols = []uint16{
	1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102, 103, 104, 109, 110, 111,
	113, 115, 117, 119, 123,
	135, 137, 139, 143, 161, 179, 389, 427, 465, 512, 513, 514, 515, 526, 530, 531, 532, 540, 548, 554, 556, 563, 587, 601,
	636, 989, 990, 993, 995,
	1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080,
}

// port returns an error if a port must not be called at an address that Address accepts. In opened networks, the
// operator's own, every port may be called. Check the address that is dialed.
func port(at netip.AddrPort, allow []netip.Prefix) error {
	if _, other := slices.BinarySearch(otherProtocols, at.Port()); !other || opened(plain(at.Addr()), allow) {
		return nil
	}
	return fmt.Errorf("port %d must not be called: it belongs to another protocol", at.Port())
}

// ProxiedPort returns a *ValidationError on endpointUrl if a URL that EndpointURL has accepted must not be called
// through a proxy. Only the proxy resolves its name, so a name is in no opened network.
func ProxiedPort(u *url.URL) error {
	if _, err := netip.ParseAddr(u.Hostname()); err == nil {
		return nil // EndpointURL has checked the port at this address
	}
	return endpointProtocol(u, nil)
}

// endpointProtocol checks the port of a URL. A name may be in an opened network if there is one.
func endpointProtocol(u *url.URL, allow []netip.Prefix) error {
	n, err := strconv.ParseUint(u.Port(), 10, 16)
	if err != nil {
		return nil //nolint:nilerr // the scheme's own port
	}
	addr, err := netip.ParseAddr(u.Hostname())
	if err != nil && len(allow) > 0 || port(netip.AddrPortFrom(addr, uint16(n)), allow) == nil {
		return nil
	}
	return endpointError("must not have port %d, which belongs to another protocol", n)
}

// IsLocalHost reports whether a request's Host, with or without a port, is localhost, a name under it, or an IP
// address. DNS rebinding points the name of another site at 127.0.0.1, and browsers send that name. An address cannot
// be rebound, and no other site has a name under localhost.
//
// Source: RFC 6761, section 6.3.
func IsLocalHost(host string) bool {
	name := (&url.URL{Host: host}).Hostname()
	_, err := netip.ParseAddr(name)
	name = strings.ToLower(name)
	return err == nil || name == "localhost" || strings.HasSuffix(name, ".localhost")
}
