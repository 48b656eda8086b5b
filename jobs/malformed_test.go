package jobs_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/testnode"
	"postrider/policy"
)

// then responds and, after a moment, calls next: the response has arrived by then.
func then(response string, next func(*net.TCPConn)) func(*net.TCPConn) {
	return func(conn *net.TCPConn) {
		respondRaw(response)(conn)
		<-time.After(100 * time.Millisecond)
		next(conn)
	}
}

func cutWithReset(conn *net.TCPConn) { _ = conn.SetLinger(0) }

// dripping responds, and then continues byte by byte while the client is connected.
func dripping(response, drop string) func(*net.TCPConn) {
	return func(conn *net.TCPConn) {
		for respondRaw(response)(conn); ; <-time.After(10 * time.Millisecond) {
			if _, err := io.WriteString(conn, drop); err != nil {
				return
			}
		}
	}
}

// flooding is the same without pauses.
func flooding(response, drop string) func(*net.TCPConn) {
	return func(conn *net.TCPConn) {
		for respondRaw(response)(conn); ; {
			if _, err := io.WriteString(conn, drop); err != nil {
				return
			}
		}
	}
}

// greeting responds to any first bytes, such as a TLS client's hello.
func greeting(response string) func(*net.TCPConn) {
	return func(conn *net.TCPConn) {
		_, _ = conn.Read(make([]byte, 16<<10))
		_, _ = io.WriteString(conn, response)
	}
}

func headers(n int, value string) string {
	var all strings.Builder
	for i := range n {
		fmt.Fprintf(&all, "X-Header-%d: %s\r\n", i, value)
	}
	return all.String()
}

// bomb is 10 MB of zeros, compressed to ten thousand bytes.
func bomb() string {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = w.Write(make([]byte, 10<<20))
	_ = w.Close()
	return fmt.Sprintf("HTTP/1.1 500 Boom\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", packed.Len(),
		packed.String())
}

const (
	okHead    = "HTTP/1.1 200 OK\r\n"
	okEmpty   = okHead + "Content-Length: 0\r\n\r\n"
	busyHead  = "HTTP/1.1 503 Busy\r\n"
	earlyHint = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
)

// malformed are endpoints that violate HTTP.
func malformed() []endpointCase {
	socket := func(name string, serve func(*net.TCPConn), errText string) endpointCase {
		return endpointCase{name, serve, "", policy.OutcomeSocketError, 0, policy.Retry, errText}
	}
	timeout := func(name string, serve func(*net.TCPConn)) endpointCase {
		return endpointCase{name, serve, "", policy.OutcomeTimedOut, 0, policy.Retry, "no response within"}
	}
	delivered := func(name string, serve func(*net.TCPConn)) endpointCase {
		return endpointCase{name, serve, "", policy.OutcomeDelivered, 200, policy.Delivered, ""}
	}
	failed := func(name string, status int, outcome policy.Outcome, serve func(*net.TCPConn)) endpointCase {
		return endpointCase{name, serve, "", outcome, status, policy.Retry, ""}
	}
	return []endpointCase{
		timeout("slow-drip-status-line", dripping("HTTP/1.1 200 O", "K")),
		timeout("slow-drip-header", dripping(okHead+"X-Drip: ", "x")),
		timeout("slow-drip-headers", dripping(okHead, "X-Drip: x\r\n")),
		timeout("slow-drip-early-hints", dripping("", earlyHint)),
		timeout("early-hints-and-nothing-more", unfinished(earlyHint)),
		delivered("slow-drip-body", dripping(okHead+"Content-Length: 1000000\r\n\r\n", "x")),
		delivered("slow-drip-chunks", dripping(okHead+"Transfer-Encoding: chunked\r\n\r\n", "1\r\nx\r\n")),
		failed("slow-drip-body-of-503", 503, policy.OutcomeBusy, dripping(busyHead+"Content-Length: 1000000\r\n\r\n", "x")),
		delivered("endless-chunks", flooding(okHead+"Transfer-Encoding: chunked\r\n\r\n", "1\r\nx\r\n")),
		socket("early-hints-for-ever", flooding("", earlyHint), ""),
		socket("early-hints-and-goodbye", respondRaw(earlyHint), "closed the connection"),
		delivered("continue-and-an-response", respondRaw("HTTP/1.1 100 Continue\r\n\r\n"+okEmpty)),

		socket("empty-reply", respondRaw(""), "closed the connection"),
		socket("hangs-up-unheard", func(*net.TCPConn) {}, ""),
		socket("reset-in-the-header", then(okHead+"Content-Le", cutWithReset), ""),
		delivered("reset-in-the-body", then(okHead+"Content-Length: 100\r\n\r\nso far", cutWithReset)),
		failed("reset-in-the-body-of-503", 503, policy.OutcomeBusy,
			then(busyHead+"Content-Length: 100\r\n\r\nso far", cutWithReset)),

		socket("content-length-negative", respondRaw(okHead+"Content-Length: -1\r\n\r\n"), "Content-Length"),
		socket("content-length-in-words", respondRaw(okHead+"Content-Length: two\r\n\r\nok"), "Content-Length"),
		socket("content-length-twice", respondRaw(okHead+"Content-Length: 2\r\nContent-Length: 3\r\n\r\nok"),
			"Content-Length"),
		delivered("content-length-too-short",
			respondRaw(okHead+"Content-Length: 2\r\nConnection: close\r\n\r\nok, and more")),
		delivered("content-length-and-chunks",
			respondRaw(okHead+"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")),
		delivered("broken-chunks", respondRaw(okHead+"Transfer-Encoding: chunked\r\n\r\nzz\r\nx\r\n")),
		delivered("chunks-without-an-end", respondRaw(okHead+"Transfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n")),
		socket("unknown-transfer-encoding", respondRaw(okHead+"Transfer-Encoding: rot13\r\n\r\n"), "transfer encoding"),

		socket("header-of-70-kb", respondRaw(okHead+"X-Big: "+strings.Repeat("x", 70<<10)+"\r\n\r\n"), "header"),
		socket("5000-headers", respondRaw(okHead+headers(5000, "value")+"\r\n"), "header"),
		delivered("header-of-60-kb",
			respondRaw(okHead+"X-Big: "+strings.Repeat("x", 60<<10)+"\r\nContent-Length: 0\r\n\r\n")),
		failed("500-headers-of-100-bytes", 503, policy.OutcomeBusy,
			respondRaw(busyHead+headers(500, strings.Repeat("v", 100))+"Content-Length: 0\r\n\r\n")),
		failed("gzip-bomb", 500, policy.OutcomeGenericError, respondRaw(bomb())),
		failed("redirect-to-nowhere", 302, policy.OutcomeGenericError,
			respondRaw("HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n")),
		failed("redirect-to-garbage", 301, policy.OutcomeGenericError,
			respondRaw("HTTP/1.1 301 Moved\r\nLocation: ://%zz\r\nContent-Length: 0\r\n\r\n")),

		socket("ssh", respondRaw("SSH-2.0-OpenSSH_9.9\r\n"), "malformed"),
		socket("http-0.9", respondRaw("<html>hello</html>"), "malformed"),
		socket("http-2-unrequested", respondRaw("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), "malformed"),
		socket("status-of-two-digits", respondRaw("HTTP/1.1 20 OK\r\n\r\n"), "malformed"),
		socket("status-in-words", respondRaw("HTTP/1.1 OK 200\r\n\r\n"), "malformed"),
		socket("nothing-but-line-ends", respondRaw(strings.Repeat("\r\n", 100)), "malformed"),
		socket("header-without-a-colon", respondRaw(okHead+"nonsense\r\n\r\n"), "malformed"),
		delivered("no-reason-phrase", respondRaw("HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n")),
		delivered("bare-line-feeds", respondRaw("HTTP/1.1 200 OK\nContent-Length: 0\n\n")),
	}
}

// malformedTLS respond to the beginning of a TLS handshake.
func malformedTLS() []endpointCase {
	return []endpointCase{
		{
			"tls-garbage", greeting(strings.Repeat("garbage\x00\xff", 100)), "", policy.OutcomeSocketError, 0, policy.Retry,
			"TLS handshake",
		},
		{"tls-alert", greeting("\x15\x03\x01\x00\x02\x02\x28"), "", policy.OutcomeSocketError, 0, policy.Retry, "handshake " +
			"failure"},
		{
			"tls-record-without-an-end", greeting("\x16\x03\x03\x40\x00\x02"), "", policy.OutcomeSocketError, 0, policy.Retry,
			"closed the connection",
		},
		{"tls-hangs-up", greeting(""), "", policy.OutcomeSocketError, 0, policy.Retry, "closed the connection"},
		{
			"tls-reset", func(conn *net.TCPConn) { greeting("")(conn); cutWithReset(conn) }, "", policy.OutcomeSocketError, 0,
			policy.Retry, "reset",
		},
		{
			"tls-hangs", func(conn *net.TCPConn) { greeting("")(conn); untilClosed(conn) }, "", policy.OutcomeTimedOut, 0,
			policy.Retry, "no response within",
		},
	}
}

// Responses that are not HTTP have an outcome within the ack timeout, and are stored.
func TestMalformedResponses(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	withoutProbation(t, tn)
	copyPolicy(t, tn, policy.DefaultName, "quick", `{"ack_timeout": "2 seconds", "late_response_window": "0"}`)
	zoo := malformed()
	for _, a := range zoo {
		a.url, _ = rawEndpoint(t, a.serve)
		subscribe(t, tn, a.name, a.url, under("quick"))
	}
	for _, a := range malformedTLS() {
		zoo = append(zoo, a)
		url, _ := rawEndpoint(t, a.serve)
		subscribe(t, tn, a.name, strings.Replace(url, "http:", "https:", 1), under("quick"))
	}
	tn.Start(t)
	publishOne(t, tn, "e")
	tn.AttemptsMade(t, len(zoo))
	for _, a := range zoo {
		requireCase(t, tn, a)
	}
	require.Zero(t, tn.Recorded(t, "octet_length(response_excerpt) > 4096 OR octet_length(response_headers) > 4096"))
	require.Equal(t, 1, tn.Count(t, `SELECT count(*) FROM postrider_internal.delivery_attempts a
		JOIN postrider_internal.event_subscriptions s ON s.id = a.subscription_id
		WHERE s.name = 'gzip-bomb' AND substring(response_excerpt FOR 2) = '\x1f8b'`), "what is packed stays packed")
	require.Len(t, everything(t, tn, "delivery_attempts"), len(zoo))
}

// An endpoint that redirects to itself gets one request for each attempt.
func TestRedirectToItself(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, func(w http.ResponseWriter, r request) {
		w.Header().Set("Location", r.uri)
		w.WriteHeader(http.StatusPermanentRedirect)
	})
	subscribe(t, tn, "all", e.URL+"/again", nil)
	tn.Start(t)
	publishOne(t, tn, "e")
	tn.Attempt(t)
	travel(t, tn)
	tn.Attempt(t)
	require.Len(t, e.requests(), 2)
}

// An endpoint closes a kept-alive connection when the next request arrives: the endpoint may have processed it, so it
// is an attempt, and the next one follows on schedule.
func TestBrokenKeepAlive(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	var responses atomic.Int64
	url, accepted := rawEndpoint(t, func(conn *net.TCPConn) {
		respondRaw(okEmpty)(conn)
		responses.Add(1)
		readRequest(conn)
	})
	subscribe(t, tn, "all", url, nil)
	tn.Start(t)
	publishOne(t, tn, "first")
	require.Equal(t, policy.Delivered, tn.Attempt(t).Verdict.Action)
	publishOne(t, tn, "second")
	cut := tn.Attempt(t)
	require.Equal(t, policy.Result{Err: policy.ErrorSocket}, cut.Result)
	require.Equal(t, policy.Retry, cut.Verdict.Action)
	travel(t, tn)
	require.Equal(t, policy.Delivered, tn.Attempt(t).Verdict.Action)
	require.Equal(t, 2, tn.Count(t, "SELECT count(*) FROM postrider.deliveries WHERE state = 'delivered'"))
	require.EqualValues(t, 2, accepted.Load())
	require.EqualValues(t, 2, responses.Load())
}

// An endpoint that closes connections between requests has no effect: the next request opens another.
func TestConnectionsClosedBetweenRequests(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	var closed atomic.Int64
	url, accepted := rawEndpoint(t, func(conn *net.TCPConn) {
		respondRaw(okEmpty)(conn)
		_ = conn.CloseWrite()
		untilClosed(conn) // the client has noticed
		closed.Add(1)
	})
	subscribe(t, tn, "all", url, nil)
	tn.Start(t)
	for i := range 5 {
		publishOne(t, tn, fmt.Sprint(i))
		require.Equal(t, policy.Delivered, tn.Attempt(t).Verdict.Action)
		testnode.Within(t, "the client closes its side", func() bool { return int(closed.Load()) == i+1 })
	}
	require.EqualValues(t, 5, accepted.Load())
}
