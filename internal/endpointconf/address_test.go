package endpointconf_test

import (
	"net/netip"
	"testing"

	"postrider/internal/endpointconf"

	"github.com/stretchr/testify/require"
)

func prefixes(texts ...string) []netip.Prefix {
	made := make([]netip.Prefix, 0, len(texts))
	for _, text := range texts {
		made = append(made, netip.MustParsePrefix(text))
	}
	return made
}

// publicAddresses may be called; among them are the last ones before blocked ranges and the first ones after them.
var publicAddresses = []string{
	"8.8.8.8", "1.1.1.1", "93.184.215.14", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0",
	"126.255.255.255", "128.0.0.1", "168.63.129.15", "172.15.255.255", "172.32.0.0", "192.0.1.1", "198.17.255.255",
	"198.20.0.0", "223.255.255.255", "2606:4700:4700::1111", "2001:4860:4860::8888", "2003::1", "3ffe::1",
	"::ffff:8.8.8.8", "::8.8.8.8",
}

// blockedAddresses are addresses with the range that the error names.
var blockedAddresses = []struct{ address, blocked string }{
	{"0.0.0.0", "this network 0.0.0.0/8"},
	{"0.1.2.3", "this network 0.0.0.0/8"},
	{"10.0.0.1", "private 10.0.0.0/8"},
	{"10.255.255.255", "private 10.0.0.0/8"},
	{"100.64.0.1", "shared address space (CGNAT) 100.64.0.0/10"},
	{"100.127.255.255", "shared address space (CGNAT) 100.64.0.0/10"},
	{"100.100.100.200", "cloud metadata (Alibaba) 100.100.100.200/32"},
	{"127.0.0.1", "loopback 127.0.0.0/8"},
	{"127.255.255.254", "loopback 127.0.0.0/8"},
	{"169.254.0.1", "link-local 169.254.0.0/16"},
	{"169.254.169.254", "cloud metadata 169.254.169.254/32"},
	{"169.254.170.2", "cloud metadata (ECS) 169.254.170.2/32"},
	{"168.63.129.16", "Azure WireServer 168.63.129.16/32"},
	{"172.16.0.1", "private 172.16.0.0/12"},
	{"172.31.255.255", "private 172.16.0.0/12"},
	{"192.0.0.1", "IETF protocol assignments 192.0.0.0/24"},
	{"192.0.0.192", "cloud metadata (Oracle) 192.0.0.192/32"},
	{"192.0.2.1", "documentation 192.0.2.0/24"},
	{"192.88.99.1", "6to4 relay anycast 192.88.99.0/24"},
	{"192.168.1.1", "private 192.168.0.0/16"},
	{"198.18.0.1", "benchmarking 198.18.0.0/15"},
	{"198.19.255.255", "benchmarking 198.18.0.0/15"},
	{"198.51.100.7", "documentation 198.51.100.0/24"},
	{"203.0.113.7", "documentation 203.0.113.0/24"},
	{"224.0.0.1", "multicast 224.0.0.0/4"},
	{"239.255.255.255", "multicast 224.0.0.0/4"},
	{"240.0.0.1", "reserved (class E) 240.0.0.0/4"},
	{"255.255.255.255", "broadcast 255.255.255.255/32"},
	{"::", "unspecified ::/128"},
	{"::1", "loopback ::1/128"},
	{"::2", "this network 0.0.0.0/8"},
	{"::127.0.0.1", "loopback 127.0.0.0/8"},
	{"::ffff:127.0.0.1", "loopback 127.0.0.0/8"},
	{"::ffff:10.0.0.1", "private 10.0.0.0/8"},
	{"::ffff:169.254.169.254", "cloud metadata 169.254.169.254/32"},
	{"::ffff:0:127.0.0.1", "IPv4-translated ::ffff:0:0:0/96"},
	{"64:ff9b::7f00:1", "NAT64 64:ff9b::/96"},
	{"64:ff9b::808:808", "NAT64 64:ff9b::/96"},
	{"64:ff9b:1::1", "local-use NAT64 64:ff9b:1::/48"},
	{"100::1", "discard-only 100::/64"},
	{"2001::1", "Teredo 2001::/32"},
	{"2001:2::1", "benchmarking 2001:2::/48"},
	{"2001:20::1", "IETF protocol assignments 2001::/23"},
	{"2001:db8::1", "documentation 2001:db8::/32"},
	{"2002:7f00:1::", "6to4 2002::/16"},
	{"3fff::1", "documentation 3fff::/20"},
	{"3fff:fff:ffff::1", "documentation 3fff::/20"},
	{"5f00::1", "segment routing 5f00::/16"},
	{"fc00::1", "unique local fc00::/7"},
	{"fd12:3456:789a::1", "unique local fc00::/7"},
	{"fd00:ec2::254", "cloud metadata fd00:ec2::254/128"},
	{"fd00:ec2::23", "cloud metadata (EKS) fd00:ec2::23/128"},
	{"fd20:ce::254", "cloud metadata (Google) fd20:ce::254/128"},
	{"fe80::1", "link-local fe80::/10"},
	{"fe80::1%eth0", "link-local fe80::/10"},
	{"fec0::1", "site-local fec0::/10"},
	{"ff02::1", "multicast ff00::/8"},
	{"4000::1", "outside global unicast 2000::/3"},
	{"200::1", "outside global unicast 2000::/3"},
	{"::1:0:0:0", "outside global unicast 2000::/3"},
}

func TestAddress(t *testing.T) {
	t.Parallel()
	for _, address := range publicAddresses {
		require.NoError(t, endpointconf.Address(netip.MustParseAddr(address), nil), address)
	}
	for _, tt := range blockedAddresses {
		err := endpointconf.Address(netip.MustParseAddr(tt.address), nil)
		require.ErrorContains(t, err, " must not be called: "+tt.blocked, tt.address)
	}
}

func TestAddressInOpenedRanges(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		address string
		allow   []netip.Prefix
		open    bool
	}{
		{"loopback opened", "127.0.0.1", prefixes("127.0.0.0/8"), true},
		{"loopback opened, written as IPv6", "::ffff:127.0.0.1", prefixes("127.0.0.0/8"), true},
		{"range written as IPv6", "10.1.2.3", prefixes("::ffff:10.0.0.0/104"), true},
		{"IPv6 loopback opened", "::1", prefixes("::1/128"), true},
		{"the other loopback", "::1", prefixes("127.0.0.0/8"), false},
		{"one of several", "192.168.7.7", prefixes("10.0.0.0/8", "192.168.7.0/24"), true},
		{"outside the range", "192.168.8.7", prefixes("10.0.0.0/8", "192.168.7.0/24"), false},
		{"zones do not matter", "fe80::1%eth0", prefixes("fe80::/10"), true},
		{"public address", "8.8.8.8", prefixes("10.0.0.0/8"), true},
		{"metadata in an opened range", "169.254.169.254", prefixes("169.254.0.0/16"), false},
		{"address next to it", "169.254.169.253", prefixes("169.254.0.0/16"), true},
		{"metadata with everything opened", "169.254.169.254", prefixes("0.0.0.0/0", "::/0"), false},
		{"metadata in a range written with its address", "169.254.169.254", prefixes("169.254.169.254/16"), false},
		{"metadata with another single address opened", "169.254.169.254", prefixes("169.254.169.253/32"), false},
		{"all of IPv4, written as IPv6", "10.1.2.3", prefixes("::ffff:0:0/96"), true},
		{"metadata in IPv6 notation", "::ffff:169.254.169.254", prefixes("0.0.0.0/0", "::/0"), false},
		{"metadata opened by itself", "169.254.169.254", prefixes("169.254.169.254/32"), true},
		{"IPv6 metadata in an opened range", "fd00:ec2::254", prefixes("fd00::/8"), false},
		{"IPv6 metadata opened by itself", "fd00:ec2::254", prefixes("fd00:ec2::254/128"), true},
		{"WireServer in an opened range", "168.63.129.16", prefixes("168.63.129.0/24"), false},
		{"WireServer opened by itself", "168.63.129.16", prefixes("168.63.129.16/32"), true},
		{"Alibaba's metadata in opened CGNAT", "100.100.100.200", prefixes("100.64.0.0/10"), false},
		{"a public address through opened NAT64", "64:ff9b::808:808", prefixes("64:ff9b::/96"), true},
		{"loopback through opened NAT64", "64:ff9b::7f00:1", prefixes("64:ff9b::/96"), false},
		{"metadata through opened NAT64", "64:ff9b::a9fe:a9fe", prefixes("64:ff9b::/96", "169.254.0.0/16"), false},
		{"opened private one through NAT64", "64:ff9b::a00:1", prefixes("64:ff9b::/96", "10.0.0.0/8"), true},
		{"loopback through opened 6to4", "2002:7f00:1::1", prefixes("2002::/16"), false},
		{"zero prefix", "10.0.0.1", []netip.Prefix{{}}, false},
	} {
		err := endpointconf.Address(netip.MustParseAddr(tt.address), tt.allow)
		require.Equal(t, tt.open, err == nil, "%s: %v", tt.name, err)
	}
	require.Error(t, endpointconf.Address(netip.Addr{}, prefixes("0.0.0.0/0", "::/0")))
}

// FuzzAddress: IPv4 addresses have the same result in IPv6 notation.
func FuzzAddress(f *testing.F) {
	f.Add([]byte{127, 0, 0, 1})
	f.Add([]byte{169, 254, 169, 254})
	f.Add([]byte{8, 8, 8, 8})
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) != 4 {
			return
		}
		v4 := netip.AddrFrom4([4]byte(b))
		mapped := netip.AddrFrom16(v4.As16())
		require.Equal(t, endpointconf.Address(v4, nil), endpointconf.Address(mapped, nil))
		gateway := netip.MustParseAddr("64:ff9b::").As16()
		copy(gateway[12:], b)
		through := endpointconf.Address(netip.AddrFrom16(gateway), prefixes("64:ff9b::/96"))
		require.Equal(t, endpointconf.Address(v4, prefixes("64:ff9b::/96")), through)
	})
}

func TestIsLocalHost(t *testing.T) {
	t.Parallel()
	for host, local := range map[string]bool{
		"localhost": true, "LocalHost:8080": true, "127.0.0.1": true, "127.0.0.1:80": true, "[::1]": true, "[::1]:8080": true,
		"192.168.1.7": true, "orders.localhost": true, "Orders.LocalHost:80": true, "notlocalhost": false,
		"example.com": false, "localhost.example.com": false, "127.0.0.1.example.com:80": false, "localhost.": false,
		"": false,
	} {
		require.Equal(t, local, endpointconf.IsLocalHost(host), host)
	}
}
