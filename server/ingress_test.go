package server_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/server"
)

// Only trusted proxies can report the address of a client, which the audit then has.
func TestAddressOfTheClient(t *testing.T) {
	t.Parallel()
	address := func(b *bundle, headers ...string) string {
		b.send(http.MethodPut, "/v1/topics/orders", "", append(headers, "Authorization", "Bearer "+adminToken)...)
		b.send(http.MethodPost, "/v1/topics/orders/listKeys", "", append(headers, "Authorization", "Bearer "+adminToken)...)
		return b.rows("SELECT address FROM postrider.audit ORDER BY at DESC, audit_id DESC LIMIT 1")[0]["address"].(string)
	}
	const spoofed = "203.0.113.7, 198.51.100.1"
	direct := setup(t)
	require.Equal(t, "127.0.0.1",
		address(direct, "X-Forwarded-For", spoofed, "Forwarded", "for=203.0.113.7", "X-Real-Ip", "203.0.113.7"))
	others := setup(t, func(o *server.Options) { o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")} })
	require.Equal(t, "127.0.0.1", address(others, "X-Forwarded-For", spoofed))
	behind := setup(t, func(o *server.Options) { o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} })
	require.Equal(t, "198.51.100.1",
		address(behind, "X-Forwarded-For", spoofed, "Forwarded", "for=203.0.113.7", "X-Real-Ip", "203.0.113.7"))
}

// A limited address cannot continue to guess with a spoofed header.
func TestGuessingIsLimitedDespiteSpoofedHeaders(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.topic("orders", "")
	slowed := 0
	for n := range 60 {
		response := b.send(http.MethodPost, "/topics/orders/api/events", "[]", "aeg-sas-key", fmt.Sprint("wrong", n),
			"X-Forwarded-For", fmt.Sprintf("203.0.113.%d", n))
		if response.status == http.StatusTooManyRequests {
			slowed++
		}
	}
	require.Greater(t, slowed, 20)
}

func TestRequestsPerSecond(t *testing.T) {
	t.Parallel()
	b := setup(t, func(o *server.Options) { o.RequestsPerSecond = 5 })
	made := b.manage(http.MethodPut, "/v1/topics/orders", "").json(http.StatusCreated)
	key1, key2 := made["key1"].(string), made["key2"].(string)
	var last response
	require.Eventually(t, func() bool {
		last = b.publish("orders", key1, "[]")
		return last.status == http.StatusTooManyRequests
	}, time.Minute, time.Millisecond)
	require.Contains(t, last.rejected(http.StatusTooManyRequests, "TooManyRequests").Message,
		"more than 5 requests a second")
	require.Equal(t, "1", last.header.Get("Retry-After"))
	require.Equal(t, http.StatusOK, b.publish("orders", key2, "[]").status, "another credential has its own")
	require.Equal(t, http.StatusOK, b.send(http.MethodGet, "/healthz", "").status)
	require.Eventually(t, func() bool { return b.publish("orders", key1, "[]").status == http.StatusOK }, time.Minute,
		100*time.Millisecond)
}

// Browsers must not show a response in a frame, guess its type or run it.
func TestSecurityHeaders(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, a := range []response{b.manage(http.MethodGet, "/v1/topics", ""), b.send(http.MethodGet, "/nowhere",
		""), b.send(http.MethodGet, "/healthz", ""), b.send(http.MethodPost, "/topics/x/api/events", "[]")} {
		require.Equal(t, "nosniff", a.header.Get("X-Content-Type-Options"))
		require.Equal(t, "default-src 'none'; frame-ancestors 'none'", a.header.Get("Content-Security-Policy"))
		require.Equal(t, "no-referrer", a.header.Get("Referrer-Policy"))
	}
}

// dripping sends single bytes until the server closes the connection, and returns after how long.
func dripping(t *testing.T, address, first string, every time.Duration) time.Duration {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	require.NoError(t, err)
	defer conn.Close()
	began := time.Now()
	_, err = io.WriteString(conn, first)
	require.NoError(t, err)
	go func() {
		for range time.Tick(every) {
			if _, err := conn.Write([]byte("a")); err != nil {
				return
			}
		}
	}()
	_ = conn.SetReadDeadline(began.Add(20 * time.Second))
	response, err := io.ReadAll(bufio.NewReader(conn))
	if err != nil {
		require.NotContains(t, err.Error(), "timeout", "the server goes on listening")
	}
	require.NotContains(t, string(response), " 200 ")
	return time.Since(began)
}

// listen serves with the limits of a node, changed for the test.
func (b *bundle) listen(change func(*http.Server)) (address string) {
	b.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b.t, err)
	s := server.NewHTTPServer("", b.server.Handler())
	change(s)
	go func() { _ = s.Serve(listener) }()
	b.t.Cleanup(func() { _ = s.Close() })
	return listener.Addr().String()
}

// A client that sends a byte at a time is cut off, in its headers and in its body, and delays no other client.
func TestSlowClientsAreCutOff(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key := b.topic("orders", "")
	address := b.listen(func(s *http.Server) {
		s.ReadTimeout = 2 * time.Second // 30 s as it is served; TestHTTPServerHasLimits has that one
		s.ReadHeaderTimeout = time.Second
	})
	for name, first := range map[string]string{
		"headers": "POST /topics/orders/api/events HTTP/1.1\r\nHost: x\r\nX-Slow: ",
		"body": "POST /topics/orders/api/events HTTP/1.1\r\nHost: x\r\naeg-sas-key: " + key +
			"\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n",
		"chunks": "POST /topics/orders/api/events HTTP/1.1\r\nHost: x\r\naeg-sas-key: " + key +
			"\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nfffff\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			took := dripping(t, address, first, 100*time.Millisecond)
			require.Greater(t, took, 500*time.Millisecond)
			require.Less(t, took, 25*time.Second)
		})
	}
	response, err := http.Get("http://" + address + "/healthz")
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, http.StatusOK, response.StatusCode)
}

// Too large requests are rejected without being read.
func TestRequestsThatAreTooLarge(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key := b.topic("orders", "")
	limited := *b
	limited.url = "http://" + b.listen(func(*http.Server) {})
	require.Equal(t, http.StatusRequestHeaderFieldsTooLarge,
		limited.send(http.MethodGet, "/healthz", "", "X-Big", strings.Repeat("x", 80<<10)).status)
	require.Equal(t, http.StatusUnsupportedMediaType, b.send(http.MethodPost, "/topics/orders/api/events", "\x1f\x8b",
		"aeg-sas-key", key, "Content-Encoding", "gzip").status,
		"nothing is unpacked, so there are no bombs")
	require.Equal(t, http.StatusRequestEntityTooLarge, b.publish("orders", key, "["+strings.Repeat(" ", 2<<20)+"]").status)
	require.Equal(t, http.StatusBadRequest, b.publish("orders", key, "["+strings.Repeat("0,", 400_000)+"0]").status,
		"a million elements that are no events")
	require.Equal(t, http.StatusBadRequest, b.publish("orders", key, strings.Repeat("[", 500_000)).status)
}
