package policy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

// AddressError says that an address may not be called, and which range it lies in.
type AddressError struct {
	Address netip.Addr
	Range   string // "loopback 127.0.0.0/8"
}

// Error names the address and the range.
func (e *AddressError) Error() string {
	return fmt.Sprintf("address %s may not be called: %s", e.Address, e.Range)
}

// errNoAddress is returned for the zero netip.Addr.
var errNoAddress = errors.New("no address to judge")

type namedRange struct {
	prefix netip.Prefix
	name   string
}

func ranges(pairs ...string) []namedRange {
	made := make([]namedRange, 0, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		made = append(made, namedRange{netip.MustParsePrefix(pairs[i]), pairs[i+1]})
	}
	return made
}

// metadataAddresses answer any process on a cloud machine with that machine's credentials. They stay refused even where
// the range they lie in was opened: who opens 169.254.0.0/16 means neighbours, not keys.
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

// rejectedRanges are the special-purpose ranges of IANA's two registries in which no stranger's endpoint can live, and
// those whose addresses stand for another address. The first that holds an address names it.
var rejectedRanges = ranges(
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

// globalUnicast is all that IANA has handed out for the public IPv6 internet; nothing else is called unless opened.
var globalUnicast = netip.MustParsePrefix("2000::/3")

// Address reports, as an *AddressError, why a may not be called: an endpoint's URL is a stranger's wish, and must not
// reach the machines behind the firewall. It is asked after the name was resolved, with the very address that is
// dialled. The prefixes in allow open ranges (a private network, loopback in tests). A metadata address is opened only
// by a prefix that is that single address. An IPv4 address in IPv6 clothes is judged as what it is.
func Address(a netip.Addr, allow []netip.Prefix) error {
	if !a.IsValid() {
		return errNoAddress
	}
	a = plain(a)
	if r, ok := find(metadataAddresses, a); ok && !singled(a, allow) {
		return &AddressError{a, r}
	}
	if r, ok := refused(a); ok && !opened(a, allow) {
		return &AddressError{a, r}
	}
	if inner, ok := carried(a); ok {
		return Address(inner, allow)
	}
	return nil
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
		return a // :: and ::1 are addresses of their own
	}
	return netip.AddrFrom4([4]byte(b[12:]))
}

// carried returns the IPv4 address that a gateway would call for a, so that opening the gateway's range does not open
// everything behind it.
func carried(a netip.Addr) (netip.Addr, bool) {
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

var (
	nat64      = netip.MustParsePrefix("64:ff9b::/96")
	translated = netip.MustParsePrefix("::ffff:0:0:0/96")
	sixToFour  = netip.MustParsePrefix("2002::/16")
)

func refused(a netip.Addr) (string, bool) {
	if name, ok := find(rejectedRanges, a); ok {
		return name, true
	}
	if a.Is6() && !globalUnicast.Contains(a) {
		return "outside global unicast " + globalUnicast.String(), true
	}
	return "", false
}

func find(in []namedRange, a netip.Addr) (string, bool) {
	for _, r := range in {
		if r.prefix.Contains(a) {
			return r.name + " " + r.prefix.String(), true
		}
	}
	return "", false
}

func opened(a netip.Addr, allow []netip.Prefix) bool {
	for _, p := range allow {
		if plainPrefix(p).Contains(a) {
			return true
		}
	}
	return false
}

func singled(a netip.Addr, allow []netip.Prefix) bool {
	for _, p := range allow {
		if q := plainPrefix(p); q.IsSingleIP() && q.Addr() == a {
			return true
		}
	}
	return false
}

// plainPrefix turns ::ffff:10.0.0.0/104 into 10.0.0.0/8, the form in which addresses are compared.
func plainPrefix(p netip.Prefix) netip.Prefix {
	if !p.Addr().Is4In6() || p.Bits() < 96 {
		return p
	}
	return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
}
