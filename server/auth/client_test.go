package auth

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestClientOf(t *testing.T) {
	t.Parallel()
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	for _, row := range []struct {
		peer   string
		name   ForwardedHeader
		values []string
		client string
	}{
		{"203.0.113.9", XForwardedFor, []string{"198.51.100.1"}, "203.0.113.9"}, // not a trusted proxy
		{"10.0.0.1", XForwardedFor, nil, "10.0.0.1"},
		{"10.0.0.1", XForwardedFor, []string{"198.51.100.1"}, "198.51.100.1"},
		// the client sent the first entry
		{"10.0.0.1", XForwardedFor, []string{"1.2.3.4, 198.51.100.1"}, "198.51.100.1"},
		{"10.0.0.1", XForwardedFor, []string{"10.9.9.9, 198.51.100.1, 10.0.0.2"}, "198.51.100.1"},
		{"10.0.0.1", XForwardedFor, []string{"1.2.3.4", "198.51.100.1"}, "198.51.100.1"},
		{"10.0.0.1", XForwardedFor, []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3"},
		{"10.0.0.1", XForwardedFor, []string{"198.51.100.1, unknown"}, "10.0.0.1"},
		{"10.0.0.1", XForwardedFor, []string{"198.51.100.1, garbage, 10.0.0.2"}, "10.0.0.2"},
		{"10.0.0.1", XForwardedFor, []string{""}, "10.0.0.1"},
		{"10.0.0.1", XForwardedFor, []string{"198.51.100.1:4711"}, "198.51.100.1"},
		{"10.0.0.1", XForwardedFor, []string{"[2001:db8::1]:4711"}, "2001:db8::1"},
		{"10.0.0.1", XForwardedFor, []string{"2001:db8::1"}, "2001:db8::1"},
		{"10.0.0.1", XForwardedFor, []string{"::ffff:198.51.100.1"}, "198.51.100.1"},
		{"::ffff:10.0.0.1", XForwardedFor, []string{"198.51.100.1"}, "198.51.100.1"},
		{"fd00::1", XForwardedFor, []string{"198.51.100.1"}, "198.51.100.1"},
		{"10.0.0.1", XForwardedFor, []string{strings.Repeat("10.0.0.2,", 5000) + "10.0.0.2"}, "10.0.0.2"},
		{"10.0.0.1", Forwarded, []string{`for=1.2.3.4, for="[2001:db8::1]:80";proto=https;by=10.0.0.2`}, "2001:db8::1"},
		{"10.0.0.1", Forwarded, []string{`proto=https; For=198.51.100.1`}, "198.51.100.1"},
		{"10.0.0.1", Forwarded, []string{"for=198.51.100.1, for=_hidden"}, "10.0.0.1"},
		{"10.0.0.1", Forwarded, []string{"proto=https"}, "10.0.0.1"},
	} {
		header := http.Header{}
		for _, value := range row.values {
			header.Add(string(row.name), value)
		}
		other := XForwardedFor
		if row.name == XForwardedFor {
			other = Forwarded
		}
		header.Set(string(other), "for=6.6.6.6") // the proxies do not write this header
		require.Equal(t, row.client, clientOf(netip.MustParseAddr(row.peer), header, row.name, trusted).String(), row)
	}
	require.Equal(t, "10.0.0.1",
		clientOf(netip.MustParseAddr("10.0.0.1"), http.Header{"X-Forwarded-For": {"1.2.3.4"}}, XForwardedFor, nil).String())
}

// FuzzClientOf: an address that no trusted proxy has written is never used, whatever a client sends.
func FuzzClientOf(f *testing.F) {
	for _, sent := range []string{
		"", "1.2.3.4", "10.0.0.1, 1.2.3.4", `for="[::1]:80"`, "for=_x;for=1.2.3.4", ",,,", "10.0.0.1,", "\x00",
		"fe80::1%eth0",
	} {
		f.Add(sent)
	}
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	proxy, real := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("198.51.100.1")
	f.Fuzz(func(t *testing.T, sent string) {
		for name, wrote := range map[ForwardedHeader]string{XForwardedFor: real.String(), Forwarded: "for=" + real.String()} {
			header := http.Header{string(name): {sent + ", " + wrote}} // the proxy appends its peer
			require.Equal(t, real, clientOf(proxy, header, name, trusted))
			header = http.Header{string(name): {sent}}
			require.Equal(t, real, clientOf(real, header, name, trusted))
		}
	})
}
