package server_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"postrider/server"
)

// Browsers must not show a response in a frame, guess its type or run it. Responses of /v1 are never cached.
func TestSecurityHeaders(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.topic("orders", "")
	for path, cache := range map[string]string{
		"/v1/topics": "no-store", "/v1/topics/orders": "no-store", "/v1/topics/never": "no-store", "/v1/nothing": "no-store",
		"/v1": "no-store", "/nowhere": "", "/healthz": "", "/openapi.yaml": "", "/topics/x/api/events": "",
	} {
		for _, a := range []response{s.get(path), s.send(http.MethodGet, path, ""), s.post(path, "")} {
			require.Equal(t, "nosniff", a.header.Get("X-Content-Type-Options"), path)
			require.Equal(t, "default-src 'none'; frame-ancestors 'none'", a.header.Get("Content-Security-Policy"), path)
			require.Equal(t, "no-referrer", a.header.Get("Referrer-Policy"), path)
			require.Equal(t, cache, a.header.Get("Cache-Control"), path)
		}
	}
}

// listen serves with the limits of a node, changed for the test.
func (s *service) listen(change func(*http.Server)) (address string) {
	s.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(s.t, err)
	limited := server.NewHTTPServer("", s.server.Handler())
	change(limited)
	go func() { _ = limited.Serve(listener) }()
	s.t.Cleanup(func() { _ = limited.Close() })
	return listener.Addr().String()
}

// A client that sends a byte at a time is cut off, in its headers and in its body, and delays no other client.
func TestSlowClientsAreCutOff(t *testing.T) {
	t.Parallel()
	s := setup(t)
	key := s.topic("orders", "")
	address := s.listen(func(s *http.Server) { // 30 s and 5 s as it is served: TestHTTPServerHasLimits
		s.ReadTimeout, s.ReadHeaderTimeout = 400*time.Millisecond, 200*time.Millisecond
	})
	const request = "POST /topics/orders/api/events HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\naeg-sas-key: "
	var clients sync.WaitGroup
	for name, first := range map[string]string{
		"headers": request + key + "\r\nX-Slow: ",
		"body":    request + key + "\r\nContent-Length: 1000000\r\n\r\n",
		"chunks":  request + key + "\r\nTransfer-Encoding: chunked\r\n\r\nfffff\r\n",
	} {
		conn, err := net.Dial("tcp", address)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
		_, err = io.WriteString(conn, first)
		require.NoError(t, err)
		clients.Go(func() { // until the server closes the connection
			for {
				if _, err := conn.Write([]byte("a")); err != nil {
					return
				}
				<-time.After(20 * time.Millisecond) // a slow client
			}
		})
		clients.Go(func() {
			text, err := io.ReadAll(conn)
			assert.NotContains(t, string(text), " 200 ", name)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error(name, "was not cut off")
			}
		})
	}
	s.publish("orders", key, "[]").is(200)
	clients.Wait()
}

// Too large requests are rejected without being read.
func TestRequestsThatAreTooLarge(t *testing.T) {
	t.Parallel()
	s := setup(t)
	key := s.topic("orders", "")
	limited := *s
	limited.url = "http://" + s.listen(func(*http.Server) {})
	limited.send(http.MethodGet, "/healthz", "", "X-Big", strings.Repeat("x", 80<<10)).is(431)
	require.Equal(t, http.StatusUnsupportedMediaType, s.send(http.MethodPost, "/topics/orders/api/events", "\x1f\x8b",
		"aeg-sas-key", key, "Content-Encoding", "gzip").status,
		"nothing is unpacked, so there are no bombs")
	require.Equal(t, http.StatusRequestEntityTooLarge, s.publish("orders", key, "["+strings.Repeat(" ", 2<<20)+"]").status)
	require.Equal(t, http.StatusBadRequest, s.publish("orders", key, "["+strings.Repeat("0,", 400_000)+"0]").status,
		"a million elements that are no events")
	s.publish("orders", key, strings.Repeat("[", 500_000)).is(400)
}
