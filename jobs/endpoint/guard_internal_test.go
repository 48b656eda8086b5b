package endpoint

import (
	"context"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"

	"postrider/internal/endpointconf"
	"postrider/policy"
)

// nameServer resolves names to addresses of the test's choice, once for each query.
func nameServer(t *testing.T, resolve func(name string) netip.Addr) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	var serving sync.WaitGroup
	serving.Go(func() {
		buffer := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buffer)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buffer[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			_, _ = conn.WriteTo(dnsResponse(m, resolve), from)
		}
	})
	t.Cleanup(func() { conn.Close(); serving.Wait() })
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

func dnsResponse(m dnsmessage.Message, resolve func(string) netip.Addr) []byte {
	q := m.Questions[0]
	m.Response, m.Authoritative, m.Additionals = true, true, nil
	addr := resolve(strings.TrimSuffix(q.Name.String(), "."))
	header := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: dnsmessage.ClassINET}
	switch {
	case q.Type == dnsmessage.TypeA && addr.Is4():
		m.Answers = []dnsmessage.Resource{{Header: header, Body: &dnsmessage.AResource{A: addr.As4()}}}
	case q.Type == dnsmessage.TypeAAAA && addr.Is6():
		m.Answers = []dnsmessage.Resource{{Header: header, Body: &dnsmessage.AAAAResource{AAAA: addr.As16()}}}
	}
	packed, _ := m.Pack()
	return packed
}

// post sends one request.
func post(t *testing.T, c *Client, endpoint string) Response {
	t.Helper()
	resp, _, err := c.post(testCall(endpoint, 5*time.Second))
	require.NoError(t, err)
	return resp
}

// A name that resolves to an internal address is rejected when it is dialed, whatever form the address has. An opened
// range does not open the metadata service in it.
func TestNamesOfInternalAddressesAreRejected(t *testing.T) {
	t.Parallel()
	rows := map[string]string{ // address: what the error contains
		"127.0.0.1": "loopback", "127.8.8.8": "loopback", "0.0.0.0": "this network", "10.0.0.1": "private",
		"172.16.0.1": "private", "192.168.1.1": "private",
		"100.64.0.1": "CGNAT", "192.0.0.1": "IETF", "198.18.0.1": "benchmarking", "224.0.0.1": "multicast",
		"240.0.0.1": "class E", "255.255.255.255": "broadcast",
		"169.254.1.1": "link-local", "169.254.169.254": "cloud metadata", "169.254.170.2": "cloud metadata (ECS)",
		"168.63.129.16": "Azure WireServer", "100.100.100.200": "cloud metadata (Alibaba)",
		"::1": "loopback", "::": "unspecified", "::ffff:127.0.0.1": "loopback", "::ffff:169.254.169.254": "cloud metadata",
		"::127.0.0.1":     "loopback",
		"64:ff9b::7f00:1": "NAT64", "64:ff9b:1::1": "local-use NAT64", "2002:7f00:1::": "6to4", "2001::1": "Teredo",
		"fc00::1": "unique local", "fd00:ec2::254": "cloud metadata",
		"fe80::1": "link-local", "fec0::1": "site-local", "ff02::1": "multicast", "5f00::1": "segment routing",
	}
	names := map[string]netip.Addr{}
	for address := range rows {
		names[nameOf(address)] = netip.MustParseAddr(address)
	}
	resolver := nameServer(t, func(name string) netip.Addr { return names[name] })
	c := NewClient(t.Context(), Options{MaxIdleConnections: 10, AllowHTTP: true, Resolver: resolver})
	opened := NewClient(t.Context(),
		Options{MaxIdleConnections: 10, AllowHTTP: true, Resolver: resolver, AllowCIDR: []netip.Prefix{
			netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("168.63.129.0/24"),
			netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("fd00::/8"),
		}})
	for address, why := range rows {
		t.Run(address, func(t *testing.T) {
			t.Parallel()
			for _, scheme := range []string{"http", "https"} {
				resp := post(t, c, scheme+"://"+nameOf(address)+":9/")
				require.Equal(t, policy.ErrorArgument, resp.Result.Err, resp.ErrorText)
				require.Contains(t, resp.ErrorText, why)
			}
			if strings.Contains(why, "metadata") || strings.Contains(why, "WireServer") {
				resp := post(t, opened, "http://"+nameOf(address)+":9/")
				require.Equal(t, policy.ErrorArgument, resp.Result.Err, resp.ErrorText)
				require.Contains(t, resp.ErrorText, why)
			}
		})
	}
}

func nameOf(address string) string {
	return strings.NewReplacer(".", "-", ":", "x").Replace(address) + ".example.test"
}

// A name that resolves to a public address when it is checked and to an internal one when it is called (DNS rebinding)
// reaches nothing: both clients check the address of each connection.
func TestDNSRebindingIsBlocked(t *testing.T) {
	t.Parallel()
	port, reached := counting(t)
	var requests atomic.Int64
	resolver := nameServer(t, func(string) netip.Addr {
		if requests.Add(1) == 1 {
			return netip.MustParseAddr("93.184.215.14")
		}
		return netip.MustParseAddr("127.0.0.1")
	})
	endpoint := "http://rebind.example.test:" + port + "/"
	_, err := endpointconf.EndpointURL(endpoint, nil)
	require.NoError(t, err, "its name is allowed")
	found, err := resolver.LookupNetIP(t.Context(), "ip4", "rebind.example.test")
	require.NoError(t, err)
	require.NoError(t, endpointconf.Address(found[0], nil), "so is its first address")

	c := NewClient(t.Context(), Options{MaxIdleConnections: 10, AllowHTTP: true, Resolver: resolver})
	for _, raw := range []string{endpoint, strings.Replace(endpoint, "http", "https", 1)} {
		own := post(t, c, raw)
		c.useNetHTTP(t, raw)
		for _, resp := range []Response{own, post(t, c, raw)} {
			require.Equal(t, policy.ErrorArgument, resp.Result.Err)
			require.Contains(t, resp.ErrorText, "loopback")
		}
	}
	require.Zero(t, reached.Load())
	require.Greater(t, requests.Load(), int64(1))
}

// Without TLS only networks that the operator opened can be called.
func TestPlainHTTPStaysInOpenedNetworks(t *testing.T) {
	t.Parallel()
	inside := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer inside.Close()
	c := loopbackClient(t)
	require.Equal(t, http.StatusOK, post(t, c, inside.URL).Result.Status)
	resp := post(t, c, "http://1.2.3.4:8009/")
	require.Equal(t, policy.ErrorArgument, resp.Result.Err)
	require.Contains(t, resp.ErrorText, "--allow-http")
}

// A proxy resolves names; addresses in URLs are checked here all the same.
func TestDeliveryProxy(t *testing.T) {
	t.Parallel()
	requested := make(chan string, 10)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		requested <- r.Method + " " + r.RequestURI + " " + string(body)
		w.WriteHeader(http.StatusAccepted)
	}))
	defer proxy.Close()
	at, err := url.Parse(proxy.URL)
	require.NoError(t, err)
	c := NewClient(t.Context(), Options{MaxIdleConnections: 10, AllowHTTP: true, Proxy: at})
	require.Equal(t, http.StatusAccepted, post(t, c, "http://endpoint.example.test/hook").Result.Status)
	require.Equal(t, "POST http://endpoint.example.test/hook {}", <-requested)
	require.Equal(t, policy.ErrorSocket, post(t, c, "https://endpoint.example.test/hook").Result.Err,
		"this proxy makes no tunnel")
	require.Equal(t, "CONNECT endpoint.example.test:443 ", <-requested)
	for _, literal := range []string{
		"http://127.0.0.1:9/", "https://[::1]:9/", "http://169.254.169.254/", "http://metadata.google.internal/",
	} {
		resp := post(t, c, literal)
		require.Equal(t, policy.ErrorArgument, resp.Result.Err, literal)
		require.Contains(t, resp.ErrorText, "rejected address")
	}
	c.transports.close()
	require.Empty(t, requested)

	// Whatever networks are opened: only the proxy knows to which address a name resolves.
	opened := NewClient(t.Context(), Options{
		MaxIdleConnections: 10, AllowHTTP: true, Proxy: at, AllowCIDR: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
	})
	for _, other := range []string{
		"http://endpoint.example.test:25/", "https://endpoint.example.test:22/", "http://1.2.3.4:25/",
	} {
		resp := post(t, opened, other)
		require.Equal(t, policy.ErrorArgument, resp.Result.Err, other)
		require.Contains(t, resp.ErrorText, "another protocol")
	}
	require.Empty(t, requested)
	require.Equal(t, http.StatusAccepted, post(t, opened, "http://10.1.2.3:25/hook").Result.Status,
		"an address in an opened network")
	require.Equal(t, "POST http://10.1.2.3:25/hook {}", <-requested)
	opened.transports.close()
}

// A proxy, perhaps on a cloud machine, resolves names itself: names of metadata services never reach it.
func TestProxyGetsNoRequestsForMetadataServices(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	defer proxy.Close()
	at, err := url.Parse(proxy.URL)
	require.NoError(t, err)
	c := NewClient(t.Context(), Options{MaxIdleConnections: 10, AllowHTTP: true, Proxy: at, AllowCIDR: []netip.Prefix{
		netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("10.0.0.0/8"),
	}})
	for _, name := range []string{
		"metadata", "metadata.google.internal", "metadata.goog", "metadata.azure.internal", "metadata.corp.internal",
		"metadata.tencentyun.com",
		"metadata.packet.net", "metadata.platformequinix.com", "api.metadata.cloud.ibm.com",
		"instance-data", "instance-data.ec2.internal", "instance-data.eu-central-1.compute.internal",
	} {
		for _, spelling := range []string{
			name, name + ".", strings.ToUpper(name), strings.ToUpper(name[:1]) + name[1:] + ".", name + "..",
		} {
			for _, scheme := range []string{"http://", "https://"} {
				resp := post(t, c, scheme+spelling+"/latest/meta-data/")
				require.Equal(t, policy.ErrorArgument, resp.Result.Err, scheme+spelling)
				require.Contains(t, resp.ErrorText, "rejected address", scheme+spelling)
			}
		}
	}
	c.transports.close()
	require.Zero(t, requests.Load())
	for _, other := range []string{
		"metadata.example.test", "instance-data.example.test", "internal.example.test", "my-metadata",
	} {
		require.Equal(t, http.StatusOK, post(t, c, "http://"+other+"/").Result.Status, other)
	}
	c.transports.close()
}

// Variables of the environment set no proxy.
func TestNoProxyFromTheEnvironment(t *testing.T) {
	t.Parallel()
	c := NewClient(t.Context(), Options{MaxIdleConnections: 10})
	require.Nil(t, c.transports.secure.Proxy)
	require.Nil(t, c.transports.plain.Proxy)
}

// counting listens at every address of this machine, and counts connections.
func counting(t *testing.T) (port string, reached *atomic.Int64) {
	t.Helper()
	reached = new(atomic.Int64)
	_, port, err := net.SplitHostPort(serveConns(t, ":0", func(net.Conn) { reached.Add(1) }))
	require.NoError(t, err)
	return port, reached
}

// An endpoint that the API rejects is not called even if it was stored: no connection is made, though every name
// resolves to this machine.
func TestRejectedEndpointsAreNotCalled(t *testing.T) {
	t.Parallel()
	port, reached := counting(t)
	text, err := os.ReadFile("../../internal/endpointconf/testdata/rejected-endpoints.txt")
	require.NoError(t, err)
	resolver := nameServer(t, func(string) netip.Addr { return netip.MustParseAddr("127.0.0.1") })
	c := NewClient(t.Context(), Options{MaxIdleConnections: 10, AllowHTTP: true, Resolver: resolver})
	called := 0
	for line := range strings.Lines(strings.ReplaceAll(string(text), "{port}", port)) {
		endpoint, why, found := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if !found {
			continue
		}
		called++
		for _, scheme := range []string{"http:", "https:"} {
			raw := strings.Replace(endpoint, "http:", scheme, 1)
			resp := post(t, c, raw)
			require.NotEqual(t, policy.ErrorNone, resp.Result.Err, raw)
			if u, err := url.Parse(raw); err == nil {
				if _, err := netip.ParseAddr(u.Hostname()); err == nil && (u.Scheme == "http" || u.Scheme == "https") {
					require.Equal(t, policy.ErrorArgument, resp.Result.Err, "%s: %s", raw, resp.ErrorText)
					require.Contains(t, resp.ErrorText, "rejected address", "%s (%s)", raw, why)
				}
			}
		}
	}
	require.Greater(t, called, 100)
	require.Zero(t, reached.Load())

	post(t, loopbackClient(t), "http://127.0.0.1:"+port+"/")
	require.NotZero(t, reached.Load(), "an opened address is called")
}

// However many TLS settings there are, 256 pools are kept. Requests through removed pools finish, and no connection
// outlives its idle time.
func TestOwnPoolsAreBounded(t *testing.T) {
	t.Parallel()
	var open atomic.Int64
	inside := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	inside.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			open.Add(1)
		case http.StateClosed, http.StateHijacked:
			open.Add(-1)
		case http.StateActive, http.StateIdle:
		}
	}
	inside.StartTLS()
	defer inside.Close()
	authority := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: inside.Certificate().Raw}))
	c := loopbackClient(t)
	send := func(n int) Response {
		k := testCall(inside.URL, 20*time.Second)
		// the same authority, in different settings
		k.Connection = &endpointconf.Connection{CertificateAuthorities: strings.Repeat("\n", n) + authority}
		resp, _, err := c.post(k)
		require.NoError(t, err)
		return resp
	}
	const settings = maxOwnTransports + 50
	first, err := c.transports.of(&endpointconf.Connection{CertificateAuthorities: authority})
	require.NoError(t, err)
	require.NotSame(t, c.transports.secure, first)
	same, err := c.transports.of(&endpointconf.Connection{
		CertificateAuthorities: authority, OAuth2: &endpointconf.OAuth2{ClientID: "x"},
	})
	require.NoError(t, err)
	require.Same(t, first, same, "a token belongs to a request, not to a connection")
	_, err = c.transports.of(&endpointconf.Connection{CertificateAuthorities: "x"})
	require.ErrorIs(t, err, errUnreadable)
	for n := range settings {
		require.Equal(t, http.StatusOK, send(n).Result.Status)
		require.LessOrEqual(t, len(c.transports.own), maxOwnTransports)
		require.Equal(t, http.StatusOK, send(0).Result.Status, "a pool in use stays")
	}
	require.Len(t, c.transports.own, maxOwnTransports)
	again, err := c.transports.of(&endpointconf.Connection{CertificateAuthorities: authority})
	require.NoError(t, err)
	require.Same(t, first, again)
	require.Eventually(t, func() bool { return open.Load() == 0 }, 20*time.Second, 50*time.Millisecond,
		"%d connections are open", open.Load())
}
