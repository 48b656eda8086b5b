package bench

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

// talk is all that a sink answers to a client that sends these bytes in one connection and then no more. Without a
// socket, because a close before everything was read resets a real one, and the answer with it.
func talk(t *testing.T, raw string) string {
	t.Helper()
	sink, err := NewCountingSink("")
	require.NoError(t, err)
	conn := &scriptedConn{in: strings.NewReader(raw)}
	serveConn(t.Context(), conn, sink.answer)
	return conn.out.String()
}

func TestServerAnswers(t *testing.T) {
	t.Parallel()
	const event = `[{"id":"a"}]`
	const post = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 12\r\n"
	for name, tc := range map[string]struct{ sent, want string }{
		"one request":                {post + "\r\n" + event, noContent},
		"two requests at once":       {post + "\r\n" + event + post + "\r\n" + event, noContent + noContent},
		"names in any case":          {"POST / HTTP/1.1\r\ncontent-LENGTH:12\r\n\r\n" + event, noContent},
		"lines that end in LF alone": {"POST / HTTP/1.1\nContent-Length: 12\n\n" + event, noContent},
		"the client's last": {
			post + "Connection: close\r\n\r\n" + event + post, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n",
		},
		"no body":                    {"POST / HTTP/1.1\r\n\r\n", noContent},
		"a body that breaks off":     {post + "\r\n[{", ""},
		"a head that breaks off":     {post, ""},
		"chunks":                     {"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "HTTP/1.1 501"},
		"a wait for 100 Continue":    {post + "Expect: 100-continue\r\n\r\n", "HTTP/1.1 501"},
		"two lengths":                {post + "Content-Length: 12\r\n\r\n" + event, "HTTP/1.1 501"},
		"a negative length":          {"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", "HTTP/1.1 501"},
		"a length that is no number": {"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n", "HTTP/1.1 501"},
		"a body of more than 2 MiB":  {"POST / HTTP/1.1\r\nContent-Length: 2097153\r\n\r\n", "HTTP/1.1 413"},
		"HTTP/1.0":                   {"POST / HTTP/1.0\r\n\r\n", "HTTP/1.1 501"},
		"no path":                    {"POST x HTTP/1.1\r\n\r\n", "HTTP/1.1 501"},
		"a header without a colon":   {"POST / HTTP/1.1\r\nhello\r\n\r\n", "HTTP/1.1 501"},
		"a header of more than 4 KiB": {
			"POST / HTTP/1.1\r\nx: " + strings.Repeat("x", wireBuffer) + "\r\n\r\n", "HTTP/1.1 501",
		},
		"an origin to split a header": {"OPTIONS / HTTP/1.1\r\nWebHook-Request-Origin: a\rb\r\n\r\n", "HTTP/1.1 501"},
		"TLS":                         {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer := talk(t, tc.sent)
			if strings.HasSuffix(tc.want, "\n") || tc.want == "" {
				require.Equal(t, tc.want, answer)
				return
			}
			require.True(t, strings.HasPrefix(answer, tc.want), answer)
			require.Equal(t, 1, strings.Count(answer, "HTTP/1.1"), "closed after it")
		})
	}
}

func TestReadHeadByteByByte(t *testing.T) {
	t.Parallel()
	raw := "POST /a?b HTTP/1.1\r\nAeg-Event-Type: SubscriptionValidation\r\nWebHook-Request-Origin: " +
		"o\r\nContent-Length: 7\r\nConnection: Close\r\n\r\n"
	var scratch []byte
	h, err := readHead(bufio.NewReader(iotest.OneByteReader(strings.NewReader(raw))), &scratch)
	require.NoError(t, err)
	require.Equal(t,
		head{first: []byte("POST /a?b HTTP/1.1"), length: 7, last: true, eventType: "SubscriptionValidation", origin: "o"}, h)
	for i := range raw[:len(raw)-1] {
		_, err := readHead(bufio.NewReader(strings.NewReader(raw[:i])), &scratch)
		require.Error(t, err)
		//nolint:errorlint // as io.Reader's is
		require.Equal(t, i == 0, err == io.EOF, "an end between requests is a proper one; after %d bytes it is not", i)
	}
}

// answering is a server that reads a request's head and writes fixed bytes, one of answers for each connection, then
// closes if it is told so. It returns the address.
func answering(t *testing.T, answers ...string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, answer := range answers {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			var scratch []byte
			reader := bufio.NewReader(conn)
			for range strings.Count(answer, "|") + 1 {
				part, rest, more := strings.Cut(answer, "|")
				if _, err := readHead(reader, &scratch); err == nil {
					_, _ = io.WriteString(conn, part)
				}
				if answer = rest; !more {
					break
				}
			}
			_ = conn.(*net.TCPConn).CloseWrite()
			stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
			_, _ = io.Copy(io.Discard, conn)
			stop()
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		cancel()
		_ = listener.Close()
		<-done
	})
	return listener.Addr().String()
}

func TestClientReadsAnswers(t *testing.T) {
	t.Parallel()
	const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	for name, tc := range map[string]struct {
		answers []string // of each connection; "|" separates those of one
		want    []int    // 0: an error
		refusal string   // of the last
	}{
		"two on one connection": {[]string{ok + "|" + ok}, []int{200, 200}, ""},
		"no body has no length": {[]string{"HTTP/1.1 204 No Content\r\n\r\n|" + ok}, []int{204, 200}, ""},
		"the server's last": {
			[]string{"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", ok}, []int{200, 200}, "",
		},
		"a refusal says why": {
			[]string{"HTTP/1.1 413 Too Large\r\nContent-Length: 8\r\n\r\ntoo much"}, []int{413}, "too much",
		},
		"chunks: the status is enough": {
			[]string{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", ok}, []int{200, 200}, "",
		},
		"a body until the end":       {[]string{"HTTP/1.1 500 Oh\r\n\r\noh", ok}, []int{500, 200}, ""},
		"no answer, then one":        {[]string{"", ok}, []int{0, 200}, ""},
		"an answer that breaks off":  {[]string{"HTTP/1.1 200 OK\r\nContent-Le", ok}, []int{0, 200}, ""},
		"a body that breaks off":     {[]string{"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok", ok}, []int{0, 200}, ""},
		"no HTTP":                    {[]string{"SSH-2.0-OpenSSH_9.2\r\n\r\n"}, []int{0}, ""},
		"another version of HTTP":    {[]string{"HTTP/1.0 200 OK\r\n\r\n"}, []int{0}, ""},
		"an informational answer":    {[]string{"HTTP/1.1 100 Continue\r\n\r\n"}, []int{0}, ""},
		"a status that is no number": {[]string{"HTTP/1.1 2OO OK\r\n\r\n"}, []int{0}, ""},
		"a status line that is too long": {
			[]string{"HTTP/1.1 200 " + strings.Repeat("x", wireBuffer) + "\r\n\r\n"}, []int{0}, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := wireClient{address: answering(t, tc.answers...)}
			t.Cleanup(client.close)
			for i, want := range tc.want {
				status, err := client.do([]byte("GET / HTTP/1.1\r\n\r\n"))
				require.Equal(t, want, status)
				require.Equal(t, want == 0, err != nil, "request %d: %v", i, err)
			}
			require.Equal(t, tc.refusal, string(client.refusal))
		})
	}
}

func TestCutClient(t *testing.T) {
	t.Parallel()
	client := wireClient{address: answering(t, "HTTP/1.1 204 No Content\r\n\r\n")}
	client.cut()
	_, err := client.do([]byte("GET / HTTP/1.1\r\n\r\n"))
	require.ErrorIs(t, err, net.ErrClosed, "it dials no more")
}

// FuzzServeConn: whatever a client sends, the server comes to an end with it and answers nothing but HTTP.
func FuzzServeConn(f *testing.F) {
	f.Add([]byte("POST /a HTTP/1.1\r\nContent-Length: 12\r\n\r\n[{\"id\":\"a\"}]GET /stats HTTP/1.1\r\n\r\n"))
	f.Add([]byte("OPTIONS / HTTP/1.1\r\nWebHook-Request-Origin: a\r\n\r\n"))
	f.Add([]byte("OPTIONS / HTTP/1.1\r\nWebHook-Request-Origin: \x00\r\n\r\n"))
	f.Add([]byte("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		said := talk(t, string(raw))
		answers := bufio.NewReader(strings.NewReader(said))
		for said != "" {
			resp, err := http.ReadResponse(answers, nil)
			require.NoError(t, err, said)
			_, err = io.Copy(io.Discard, resp.Body)
			require.NoError(t, err)
			if _, err := answers.Peek(1); err != nil {
				return
			}
		}
	})
}

// scriptedConn is a connection whose other side has said everything already.
type scriptedConn struct {
	net.Conn
	in  *strings.Reader
	out strings.Builder
}

func (c *scriptedConn) Read(p []byte) (int, error)  { return c.in.Read(p) }
func (c *scriptedConn) Write(p []byte) (int, error) { return c.out.Write(p) }
