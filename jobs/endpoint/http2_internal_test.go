package endpoint

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"postrider/policy"
)

// stream is a request that a scripted HTTP/2 endpoint has read to its end.
type stream struct {
	*http2.Framer
	conn net.Conn
	id   uint32
}

// respond writes a response's header; ended: no body follows.
func (s stream) respond(ended bool, fields ...string) {
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for i := 0; i < len(fields); i += 2 {
		_ = encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	for first, rest := true, block.Bytes(); first || len(rest) > 0; first = false {
		part := rest[:min(len(rest), 16<<10)]
		rest = rest[len(part):]
		if first {
			_ = s.WriteHeaders(http2.HeadersFrameParam{
				StreamID: s.id, BlockFragment: part, EndStream: ended, EndHeaders: len(rest) == 0,
			})
		} else {
			_ = s.WriteContinuation(s.id, len(rest) == 0, part)
		}
	}
}

// newHTTP2Endpoint speaks HTTP/2 up to the end of each request, and lets the script go on. The client trusts it.
func newHTTP2Endpoint(t *testing.T, script func(stream)) (url string, client *Client) {
	t.Helper()
	certified := httptest.NewTLSServer(http.NotFoundHandler()) // for its certificate
	t.Cleanup(certified.Close)
	config := &tls.Config{
		Certificates: certified.TLS.Certificates, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12,
	}
	address := serveConns(t, "127.0.0.1:0", func(conn net.Conn) {
		defer context.AfterFunc(t.Context(), func() { conn.Close() })()
		serveHTTP2(tls.Server(conn, config), script)
	})
	return "https://" + address + "/", trustingClient(t, certified)
}

func serveHTTP2(conn net.Conn, script func(stream)) {
	if _, err := io.ReadFull(conn, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	framer := http2.NewFramer(conn, conn)
	_ = framer.WriteSettings()
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return
		}
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				_ = framer.WriteSettingsAck()
			}
		case *http2.DataFrame:
			if f.StreamEnded() {
				script(stream{framer, conn, f.StreamID})
			}
		}
	}
}

// What HTTP/2 endpoints do to a connection or to one request on it.
func TestHTTP2Endpoints(t *testing.T) {
	t.Parallel()
	socket, timeout := policy.Result{Err: policy.ErrorSocket}, policy.Result{Err: policy.ErrorTimeout}
	rows := map[string]struct {
		script func(stream)
		want   policy.Result
		text   string
	}{
		"a response": {func(s stream) { s.respond(true, ":status", "204") }, policy.Result{Status: 204}, ""},
		"early hints before it": {func(s stream) {
			for range 20 {
				s.respond(false, ":status", "103", "link", "</a>")
			}
			s.respond(true, ":status", "503")
		}, policy.Result{Status: 503}, ""},
		"a body that never comes": {func(s stream) { s.respond(false, ":status", "200") }, policy.Result{Status: 200}, ""},
		"a body that is reset": {func(s stream) {
			s.respond(false, ":status", "200")
			_ = s.WriteRSTStream(s.id, http2.ErrCodeInternal)
		}, policy.Result{Status: 200}, ""},
		"no response":      {func(stream) {}, timeout, "no response within"},
		"only early hints": {func(s stream) { s.respond(false, ":status", "103") }, timeout, "no response within"},
		"a reset request":  {func(s stream) { _ = s.WriteRSTStream(s.id, http2.ErrCodeInternal) }, socket, "INTERNAL_ERROR"},
		"a cut connection": {func(s stream) { s.conn.Close() }, socket, "closed the connection"},
		"a goodbye that lets the request finish": {func(s stream) {
			_ = s.WriteGoAway(s.id, http2.ErrCodeNo, nil)
			s.respond(true, ":status", "204")
		}, policy.Result{Status: 204}, ""},
		"a goodbye for an error": {func(s stream) {
			_ = s.WriteGoAway(s.id, http2.ErrCodeEnhanceYourCalm, []byte("too many"))
			s.conn.Close()
		}, socket, "too many"},
		"a frame of no kind": {
			func(s stream) { _, _ = io.WriteString(s.conn, strings.Repeat("\xff", 100)) }, socket, "frame too large",
		},
		"a header of 70 KB": {
			func(s stream) { s.respond(true, ":status", "200", "x-big", strings.Repeat("x", 70<<10)) }, socket, "",
		},
		"no status": {func(s stream) { s.respond(true, "x-status", "200") }, socket, "missing status"},
		// Both mean that the endpoint did not process the request. It is an attempt all the same: its body is not kept once
		// it is written.
		"a goodbye without the request": {func(s stream) {
			_ = s.WriteGoAway(0, http2.ErrCodeNo, nil)
			s.conn.Close()
		}, socket, errWritten.Error()},
		"a rejected request": {
			func(s stream) { _ = s.WriteRSTStream(s.id, http2.ErrCodeRefusedStream) }, socket, errWritten.Error(),
		},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var requests atomic.Int64
			url, client := newHTTP2Endpoint(t, func(s stream) {
				requests.Add(1)
				row.script(s)
			})
			resp, _, err := client.post(testCall(url, time.Second))
			require.NoError(t, err)
			require.Equal(t, row.want, resp.Result, resp.ErrorText)
			require.Contains(t, resp.ErrorText, row.text)
			require.Equal(t, row.want.Err == policy.ErrorNone, resp.ErrorText == "")
			require.EqualValues(t, 1, requests.Load(), "one attempt is one request")
		})
	}
}
