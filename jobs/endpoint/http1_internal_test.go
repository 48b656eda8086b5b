package endpoint

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/endpointconf"
	"postrider/policy"
)

// scripted is an endpoint that reads a request and then passes the connection to a script, again while it is open.
type scripted struct {
	url                string
	accepted, requests atomic.Int64
	closed             chan struct{} // gets one when a client has closed its connection
}

func newScripted(t *testing.T, script func(net.Conn)) *scripted {
	t.Helper()
	return newScriptedOver(t, func(conn net.Conn) net.Conn { return conn }, script)
}

// newScriptedOver wraps each connection, for example in TLS.
func newScriptedOver(t *testing.T, wrap func(net.Conn) net.Conn, script func(net.Conn)) *scripted {
	t.Helper()
	s := &scripted{closed: make(chan struct{}, 100)}
	address := serveConns(t, "127.0.0.1:0", func(conn net.Conn) {
		s.accepted.Add(1)
		s.serve(wrap(conn), script)
	})
	s.url = "http://" + address + "/"
	return s
}

func (s *scripted) serve(conn net.Conn, script func(net.Conn)) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			s.closed <- struct{}{}
			return
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		s.requests.Add(1)
		script(conn)
	}
}

// respond writes these parts one by one.
func respond(parts ...string) func(net.Conn) {
	return func(conn net.Conn) {
		for _, part := range parts {
			if _, err := io.WriteString(conn, part); err != nil {
				return
			}
		}
	}
}

// respondAndClose closes the connection after the response.
func respondAndClose(response string) func(net.Conn) {
	return func(conn net.Conn) { respond(response)(conn); conn.Close() }
}

// serveConns passes every connection to serve, and closes it afterwards, until the test ends.
func serveConns(t *testing.T, listen string, serve func(net.Conn)) (address string) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", listen)
	require.NoError(t, err)
	var group sync.WaitGroup
	group.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			group.Go(func() {
				defer conn.Close()
				serve(conn)
			})
		}
	})
	t.Cleanup(func() { listener.Close(); group.Wait() })
	return listener.Addr().String()
}

// trustingClient is loopbackClient that trusts a server's certificate.
func trustingClient(t *testing.T, certified *httptest.Server) *Client {
	t.Helper()
	c := loopbackClient(t)
	c.transports.secure.TLSClientConfig.RootCAs = x509.NewCertPool()
	c.transports.secure.TLSClientConfig.RootCAs.AddCert(certified.Certificate())
	return c
}

// loopbackClient returns a client that may call loopback.
func loopbackClient(t *testing.T) *Client {
	t.Helper()
	c := NewClient(t.Context(), Options{
		UserAgent: "test", MaxIdleConnections: 10, AllowCIDR: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
	})
	t.Cleanup(c.transports.close)
	return c
}

// useNetHTTP makes net/http send the next request to this endpoint.
func (c *Client) useNetHTTP(t *testing.T, endpoint string) {
	t.Helper()
	u, err := url.Parse(endpoint)
	require.NoError(t, err)
	settings, err := c.transports.settings(u, nil)
	require.NoError(t, err)
	c.transports.http1.setHTTP2(poolKey{settings, u.Scheme, u.Host}, true)
}

const (
	okHead  = "HTTP/1.1 200 OK\r\n"
	okEmpty = okHead + "Content-Length: 0\r\n\r\n"

	switching = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"
)

// Responses have the same result as with net/http. A connection is used again only after a complete response.
func TestHTTP1Responses(t *testing.T) {
	t.Parallel()
	ok, socket := policy.Result{Status: 200}, policy.Result{Err: policy.ErrorSocket}
	long := func(n int) string { return strings.Repeat("x", n) }
	sized := func(n int) string { return fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", okHead, n, long(n)) }
	const (
		chunked = okHead + "Transfer-Encoding: chunked\r\n\r\n"
		hint    = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
		tooLong = "response headers exceeded 65536 bytes"
	)
	rows := map[string]struct {
		script func(net.Conn)
		want   policy.Result
		text   string // of the error, or the excerpt
		reused bool
	}{
		"empty":              {respond(okEmpty), ok, "", true},
		"no content":         {respond("HTTP/1.1 204 No Content\r\n\r\n"), policy.Result{Status: 204}, "", true},
		"a body":             {respond(sized(2)), ok, "xx", true},
		"byte by byte":       {respond(strings.Split(sized(2), "")...), ok, "xx", true},
		"chunks":             {respond(chunked+"1\r\nh\r\n", "1\r\ni\r\n0\r\n\r\n"), ok, "hi", true},
		"trailers":           {respond(chunked + "2\r\nhi\r\n0\r\nX: y\r\n\r\n"), ok, "hi", true},
		"continue and hints": {respond("HTTP/1.1 100 Continue\r\n\r\n"+hint, hint+okEmpty), ok, "", true},
		"50 early hints":     {respond(strings.Repeat(hint, 50) + okEmpty), ok, "", true},
		"a long body":        {respond(sized(20000)), ok, long(MaxExcerptBytes), true},
		"a huge body":        {respond(sized(70000)), ok, long(MaxExcerptBytes), false},
		"a header of 60 KB":  {respond(okHead + "X: " + long(60<<10) + "\r\nContent-Length: 0\r\n\r\n"), ok, "", true},
		"a header of 70 KB":  {respond(okHead + "X: " + long(70<<10) + "\r\n\r\n"), socket, tooLong, false},
		"hints of 70 KB":     {respond(strings.Repeat(hint, 70<<10/len(hint))), socket, tooLong, false},
		"garbage after it":   {respond(okEmpty + "garbage"), ok, "", false},
		"another response":   {respond(okEmpty + okEmpty), ok, "", false},
		"a body after 204":   {respond("HTTP/1.1 204 No Content\r\n\r\nhi"), policy.Result{Status: 204}, "", false},
		"connection close":   {respond(okHead + "Connection: close\r\nContent-Length: 0\r\n\r\n"), ok, "", false},
		"until its end":      {respondAndClose(okHead + "\r\nhi"), ok, "hi", false},
		"HTTP/1.0":           {respond("HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n"), ok, "", false},
		"HTTP/1.0, keep-alive": {
			respond("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n"), ok, "", true,
		},
		"switching protocols": {respond(switching), policy.Result{Status: 101}, "", false},
		"status 999": {
			respond("HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n"), policy.Result{Status: 999}, "", true,
		},
		"status 99": {
			respond("HTTP/1.1 099\r\nContent-Length: 0\r\n\r\n"), policy.Result{Status: 99}, "", false,
		},
		"cut before it":          {respondAndClose(""), socket, "closed the connection", false},
		"cut in its first line":  {respondAndClose("HTTP/1.1 20"), socket, "malformed", false},
		"cut in its header":      {respondAndClose(okHead + "X: y\r\n"), socket, "before its response was complete", false},
		"cut after a hint":       {respondAndClose(hint), socket, "closed the connection", false},
		"cut in its body":        {respondAndClose(okHead + "Content-Length: 9\r\n\r\nhi"), ok, "hi", false},
		"cut in a chunk":         {respondAndClose(chunked + "9\r\nhi"), ok, "hi", false},
		"cut before the trailer": {respondAndClose(chunked + "2\r\nhi\r\n0\r\n"), ok, "hi", false},
		"no HTTP":                {respondAndClose("SSH-2.0-x\r\n"), socket, "malformed HTTP response", false},
		"a negative length":      {respond(okHead + "Content-Length: -1\r\n\r\n"), socket, "Content-Length", false},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check := func(resp Response) {
				require.Equal(t, row.want, resp.Result, resp.ErrorText)
				if resp.Result.Err != policy.ErrorNone {
					require.Contains(t, resp.ErrorText, row.text)
				} else {
					require.Equal(t, row.text, string(resp.Excerpt))
				}
			}
			e := newScripted(t, row.script)
			own, other := loopbackClient(t), loopbackClient(t)
			for range 2 {
				check(post(t, own, e.url))
			}
			require.EqualValues(t, 2, e.requests.Load(), "each attempt is one request")
			require.Equal(t, row.reused, e.accepted.Load() == 1)
			other.useNetHTTP(t, e.url)
			check(post(t, other, e.url))
		})
	}
}

// A handshake that an endpoint responds to with 101 ends: its connection has no end.
func TestHandshakeEndsAtSwitchingProtocols(t *testing.T) {
	t.Parallel()
	e := newScripted(t, respond(switching))
	resp, _, _, err := loopbackClient(t).SendHandshake(&HandshakeRequest{
		Method: http.MethodPost, URL: e.url, Header: http.Header{}, Connection: &endpointconf.Connection{},
	}, time.Minute)
	require.NoError(t, err)
	require.Equal(t, 101, resp.Status)
}

// The request is what net/http sends, except for the order of its headers.
func TestHTTP1Requests(t *testing.T) {
	t.Parallel()
	type sent struct {
		line, host, body string
		header           http.Header
		length           int64
	}
	requests := make(chan sent, 2)
	e := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		requests <- sent{r.Method + " " + r.RequestURI + " " + r.Proto, r.Host, string(body), r.Header, r.ContentLength}
	}))
	t.Cleanup(e.Close)
	for _, path := range []string{"", "/a%20b/é?q=1&code=x%2Fy#part", "?only", "/;p//../x"} {
		for _, size := range []int{2, 5000, maxHTTP1Request - 1000} {
			c := loopbackClient(t)
			send := func() sent {
				k := testCall(e.URL+path, 5*time.Second)
				k.Body = NewPayload([]byte(strings.Repeat("b", size)), func() {})
				k.Header.Set("X-Value", " tab\tand é ")
				k.Header.Set("Aeg-Empty", "")
				_, _, err := c.post(k)
				require.NoError(t, err)
				return <-requests
			}
			own := send()
			c.useNetHTTP(t, e.URL+path)
			require.Equal(t, send(), own)
			require.Len(t, own.body, size)
			require.Equal(t, "test", own.header.Get("User-Agent"))
		}
	}
}

// What HTTP cannot carry is rejected before any connection, with net/http's text.
func TestHTTP1RejectsHeaderInjection(t *testing.T) {
	t.Parallel()
	e := newScripted(t, respond(okEmpty))
	c := loopbackClient(t)
	for name, value := range map[string]string{
		"X-Line": "a\r\nX-Injected: b", "X-Feed": "a\nb", "X-Nul": "a\x00b", "X-Bad Name": "a", "X-Name\r\nX": "a", "": "a",
	} {
		k := testCall(e.url, 5*time.Second)
		k.Header[name] = []string{value}
		resp, _, err := c.post(k)
		require.NoError(t, err)
		require.Equal(t, policy.ErrorSocket, resp.Result.Err)
		require.Contains(t, resp.ErrorText, "invalid header field", name)
	}
	require.Zero(t, e.accepted.Load())
}

// idleConn returns the only idle connection.
func (c *Client) idleConn(t *testing.T) *conn {
	t.Helper()
	h := c.transports.http1
	h.mu.Lock()
	defer h.mu.Unlock()
	require.Equal(t, 1, h.count)
	for _, list := range h.idle {
		return list[0]
	}
	panic("unreachable")
}

// unwritable is a connection that only reads.
type unwritable struct{ net.Conn }

func (unwritable) Write([]byte) (int, error) { return 0, syscall.EPIPE }

// An idle connection that the endpoint has closed, that has unrequested data, that is too old, or on which nothing can
// be written is not used again: the request goes to another.
func TestHTTP1ReplacesUnusableConnections(t *testing.T) {
	t.Parallel()
	rows := map[string]func(t *testing.T, c *conn, endpoint net.Conn){
		"closed": func(t *testing.T, c *conn, endpoint net.Conn) {
			require.NoError(t, endpoint.(*net.TCPConn).CloseWrite())
			require.Eventually(t, func() bool { return !c.usable() }, 10*time.Second, time.Millisecond)
		},
		"unrequested": func(t *testing.T, c *conn, endpoint net.Conn) {
			respond("HTTP/1.1 408 Request Timeout\r\n\r\n")(endpoint)
			require.Eventually(t, func() bool { return !c.usable() }, 10*time.Second, time.Millisecond)
		},
		"old": func(_ *testing.T, c *conn, _ net.Conn) { c.idleSince = c.idleSince.Add(-idleConnTimeout) },
		"broken": func(t *testing.T, c *conn, _ net.Conn) {
			c.socket.Conn = unwritable{c.socket.Conn}
			require.True(t, c.usable(), "only the write fails")
		},
	}
	for name, damage := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			open := make(chan net.Conn, 2)
			e := newScripted(t, func(conn net.Conn) { respond(okEmpty)(conn); open <- conn })
			c := loopbackClient(t)
			require.Equal(t, 200, post(t, c, e.url).Result.Status)
			damage(t, c.idleConn(t), <-open)
			require.Equal(t, 200, post(t, c, e.url).Result.Status)
			require.EqualValues(t, 2, e.accepted.Load())
			require.EqualValues(t, 2, e.requests.Load())
		})
	}
}

// A request is not repeated if the endpoint closes the connection after any of it was written.
func TestHTTP1NeverRepeatsAWrittenRequest(t *testing.T) {
	t.Parallel()
	var responses atomic.Int64
	e := newScripted(t, func(conn net.Conn) {
		if responses.Add(1) == 2 {
			conn.Close()
			return
		}
		respond(okEmpty)(conn)
	})
	c := loopbackClient(t)
	require.Equal(t, 200, post(t, c, e.url).Result.Status)
	resp := post(t, c, e.url)
	require.Equal(t, policy.ErrorSocket, resp.Result.Err)
	require.EqualValues(t, 2, e.requests.Load())
	require.EqualValues(t, 1, e.accepted.Load())
}

// Idle connections are closed when the endpoint closes them, and at their bound.
func TestHTTP1IdleConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	e := newScripted(t, func(conn net.Conn) {
		respond(okEmpty)(conn)
		_ = conn.(*net.TCPConn).CloseWrite()
	})
	c := loopbackClient(t)
	require.Equal(t, 200, post(t, c, e.url).Result.Status)
	<-e.closed

	kept := newScripted(t, respond(okEmpty))
	h := c.transports.http1
	for range 15 {
		conn, err := net.Dial("tcp", strings.Trim(kept.url, "htp:/"))
		require.NoError(t, err)
		h.put(newConn(h, poolKey{scheme: "http", host: conn.LocalAddr().String()}, conn))
	}
	for range 5 {
		<-kept.closed
	}
	require.Equal(t, 10, h.count)
	c.transports.close()
	for range 10 {
		<-kept.closed
	}
	require.Zero(t, h.count)
	require.Empty(t, h.idle)
}

// An endpoint may respond to a part of a large body.
func TestResponseBeforeALargeBodyIsRead(t *testing.T) {
	t.Parallel()
	done := make(chan struct{})
	address := serveConns(t, "127.0.0.1:0", func(conn net.Conn) {
		_, _ = conn.Read(make([]byte, 1000))
		respond("HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")(conn)
		<-done
	})
	t.Cleanup(func() { close(done) })
	k := testCall("http://"+address, 20*time.Second)
	k.Body = NewPayload(make([]byte, 16<<20), func() {})
	resp, _, err := loopbackClient(t).post(k)
	require.NoError(t, err)
	require.Equal(t, 413, resp.Result.Status, resp.ErrorText)
}

// Each TLS handshake finds out which protocol an endpoint has. A connection is used again with either.
func TestHTTP1AndHTTP2OverTLS(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		var accepted atomic.Int64
		protocols := make(chan string, 3)
		e := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			protocols <- r.Proto
		}))
		e.EnableHTTP2 = http2
		e.Config.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				accepted.Add(1)
			}
		}
		e.StartTLS()
		t.Cleanup(e.Close)
		c := trustingClient(t, e)
		for range 3 {
			require.Equal(t, 200, post(t, c, e.URL).Result.Status)
			require.Equal(t, map[bool]string{false: "HTTP/1.1", true: "HTTP/2.0"}[http2], <-protocols)
		}
		require.EqualValues(t, map[bool]int{false: 1, true: 2}[http2], accepted.Load(),
			"net/http opens its own connection to an endpoint with HTTP/2")

		if !http2 { // the endpoint had HTTP/2 before
			c.useNetHTTP(t, e.URL)
			require.Equal(t, 200, post(t, c, e.URL).Result.Status)
			require.Empty(t, c.transports.http1.http2)
		}
	}
}

// together collects what is written and sends it in one segment.
type together struct {
	net.Conn
	collect bool
	bytes   bytes.Buffer
}

func (c *together) Write(p []byte) (int, error) {
	if c.collect {
		return c.bytes.Write(p)
	}
	return c.Conn.Write(p)
}

// A record of TLS that follows a response is no response to the next request, even if it arrived with the first.
func TestHTTP1LeftoverRecord(t *testing.T) {
	t.Parallel()
	for leftover, connections := range map[string]int{
		"": 1, "\r\n": 3, "HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n": 3,
	} {
		certified := httptest.NewTLSServer(http.NotFoundHandler()) // for its certificate
		certified.Close()
		config := certified.TLS.Clone()
		config.NextProtos = []string{"http/1.1"}
		e := newScriptedOver(t, func(conn net.Conn) net.Conn { return tls.Server(&together{Conn: conn}, config) },
			func(conn net.Conn) {
				records := conn.(*tls.Conn).NetConn().(*together)
				records.collect = true
				respond(okEmpty)(conn)
				if leftover != "" {
					respond(leftover)(conn)
				}
				records.collect = false
				_, _ = records.bytes.WriteTo(records.Conn)
			})
		c := trustingClient(t, certified)
		for range 3 {
			resp := post(t, c, "https"+strings.TrimPrefix(e.url, "http"))
			require.Equal(t, policy.Result{Status: http.StatusOK}, resp.Result, "%q: %s", leftover, resp.ErrorText)
		}
		require.EqualValues(t, connections, e.accepted.Load(), "%q", leftover)
	}
}
