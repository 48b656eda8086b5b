package endpoint

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/policy"
)

// rawEndpoint passes every connection to serve, after its first bytes were read, and closes it afterwards.
func rawEndpoint(t *testing.T, serve func(*net.TCPConn)) (address string) {
	t.Helper()
	return serveConns(t, "127.0.0.1:0", func(conn net.Conn) {
		_, _ = conn.Read(make([]byte, 64<<10))
		serve(conn.(*net.TCPConn))
	})
}

// sending responds with these bytes.
func sending(response string) func(*net.TCPConn) {
	return func(conn *net.TCPConn) { _, _ = io.WriteString(conn, response) }
}

// keeping responds and keeps the connection open until the client closes it.
func keeping(response string) func(*net.TCPConn) {
	return func(conn *net.TCPConn) {
		sending(response)(conn)
		_, _ = io.Copy(io.Discard, conn)
	}
}

// resetting responds and, after a moment in which the response arrives, resets the connection.
func resetting(response string) func(*net.TCPConn) {
	return func(conn *net.TCPConn) {
		sending(response)(conn)
		<-time.After(100 * time.Millisecond)
		_ = conn.SetLinger(0)
	}
}

// dripping responds, and then continues drop by drop while the client is connected.
func dripping(pause time.Duration, response, drop string) func(*net.TCPConn) {
	return func(conn *net.TCPConn) {
		for sending(response)(conn); ; <-time.After(pause) {
			if _, err := io.WriteString(conn, drop); err != nil {
				return
			}
		}
	}
}

// headers are n headers with one value.
func headers(n int, value string) string {
	var all strings.Builder
	for i := range n {
		fmt.Fprintf(&all, "X-Header-%d: %s\r\n", i, value)
	}
	return all.String()
}

// compressedZeros is 10 MB of zeros, compressed to ten thousand bytes.
func compressedZeros() string {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = w.Write(make([]byte, 10<<20))
	_ = w.Close()
	return fmt.Sprintf("HTTP/1.1 500 Boom\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", packed.Len(),
		packed.String())
}

// Responses that violate HTTP have a result within the ack timeout.
func TestMalformedResponses(t *testing.T) {
	t.Parallel()
	const (
		slow = 10 * time.Millisecond
		busy = "HTTP/1.1 503 Busy\r\n"
		hint = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
		more = okHead + "Transfer-Encoding: chunked\r\n\r\n"
	)
	ok, socket := policy.Result{Status: 200}, policy.Result{Err: policy.ErrorSocket}
	timeout, busyResult := policy.Result{Err: policy.ErrorTimeout}, policy.Result{Status: 503}
	for name, row := range map[string]struct {
		serve func(*net.TCPConn)
		want  policy.Result
		text  string // part of the error
	}{
		"slow status line":     {dripping(slow, "HTTP/1.1 200 O", "K"), timeout, "no response within"},
		"slow header":          {dripping(slow, okHead+"X-Drip: ", "x"), timeout, "no response within"},
		"slow headers":         {dripping(slow, okHead, "X-Drip: x\r\n"), timeout, "no response within"},
		"slow early hints":     {dripping(slow, "", hint), timeout, "no response within"},
		"early hints, no more": {keeping(hint), timeout, "no response within"},
		"early hints for ever": {dripping(0, "", hint), socket, ""},
		"slow body":            {dripping(slow, okHead+"Content-Length: 1000000\r\n\r\n", "x"), ok, ""},
		"slow chunks":          {dripping(slow, more, "1\r\nx\r\n"), ok, ""},
		"slow body of 503":     {dripping(slow, busy+"Content-Length: 1000000\r\n\r\n", "x"), busyResult, ""},
		"endless chunks":       {dripping(0, more, "1\r\nx\r\n"), ok, ""},
		"huge chunks":          {dripping(0, more, "100000\r\n"+strings.Repeat("\x00", 1<<20)+"\r\n"), ok, ""},
		"endless extension":    {dripping(0, more+"1;x=", "xxxxxxxx"), ok, ""},
		"endless trailers":     {dripping(0, more+"1\r\nx\r\n0\r\n", "X: y\r\n"), ok, ""},

		"reset in the header":     {resetting(okHead + "Content-Le"), socket, ""},
		"reset in the body":       {resetting(okHead + "Content-Length: 100\r\n\r\nso far"), ok, ""},
		"reset in the 503's body": {resetting(busy + "Content-Length: 100\r\n\r\nso far"), busyResult, ""},

		"length in words": {sending(okHead + "Content-Length: two\r\n\r\nok"), socket, "Content-Length"},
		"two lengths": {
			sending(okHead + "Content-Length: 2\r\nContent-Length: 3\r\n\r\nok"), socket, "Content-Length",
		},
		"length and chunks": {
			sending(okHead + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), ok, "",
		},
		"broken chunks":        {sending(more + "zz\r\nx\r\n"), ok, ""},
		"16 exabytes":          {sending(more + "ffffffffffffffff\r\nx"), ok, ""},
		"unknown encoding":     {sending(okHead + "Transfer-Encoding: rot13\r\n\r\n"), socket, "transfer encoding"},
		"5000 headers":         {sending(okHead + headers(5000, "value") + "\r\n"), socket, "header"},
		"2000 headers":         {sending(busy + headers(2000, "\xff\xfe") + "Content-Length: 0\r\n\r\n"), busyResult, ""},
		"gzip compressedZeros": {sending(compressedZeros()), policy.Result{Status: 500}, ""},
		"redirect to nowhere": {
			sending("HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n"), policy.Result{Status: 302}, "",
		},
		"redirect to garbage": {
			sending("HTTP/1.1 301 Moved\r\nLocation: ://%zz\r\nContent-Length: 0\r\n\r\n"), policy.Result{Status: 301}, "",
		},
		"HTTP/0.9":             {sending("<html>hello</html>"), socket, "malformed"},
		"HTTP/2":               {sending("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), socket, "malformed"},
		"status of two digits": {sending("HTTP/1.1 20 OK\r\n\r\n"), socket, "malformed"},
		"status in words":      {sending("HTTP/1.1 OK 200\r\n\r\n"), socket, "malformed"},
		"line ends":            {sending(strings.Repeat("\r\n", 100)), socket, "malformed"},
		"header without colon": {sending(okHead + "nonsense\r\n\r\n"), socket, "malformed"},
		"no reason phrase":     {sending("HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n"), ok, ""},
		"bare line feeds":      {sending("HTTP/1.1 200 OK\nContent-Length: 0\n\n"), ok, ""},

		"TLS: garbage":           {sending(strings.Repeat("garbage\x00\xff", 100)), socket, "TLS handshake"},
		"TLS: alert":             {sending("\x15\x03\x01\x00\x02\x02\x28"), socket, "handshake failure"},
		"TLS: unfinished record": {sending("\x16\x03\x03\x40\x00\x02"), socket, "closed the connection"},
		"TLS: hangs up":          {sending(""), socket, "closed the connection"},
		"TLS: reset":             {func(conn *net.TCPConn) { _ = conn.SetLinger(0) }, socket, "reset"},
		"TLS: hangs":             {keeping(""), timeout, "no response within"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scheme := "http://"
			if strings.HasPrefix(name, "TLS") {
				scheme = "https://"
			}
			resp, _, err := loopbackClient(t).post(testCall(scheme+rawEndpoint(t, row.serve)+"/", 2*time.Second))
			require.NoError(t, err)
			require.Equal(t, row.want, resp.Result, resp.ErrorText)
			require.Contains(t, resp.ErrorText, row.text)
			require.LessOrEqual(t, max(len(resp.Excerpt), len(resp.Headers)), MaxExcerptBytes)
			if name == "gzip compressedZeros" {
				require.Equal(t, "\x1f\x8b", string(resp.Excerpt[:2]), "what is packed stays packed")
			}
		})
	}
}
