package jobs_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/testnode"
	"postrider/jobs"
	"postrider/policy"
)

// rawEndpoint passes every connection to serve and closes it afterwards.
func rawEndpoint(t *testing.T, serve func(*net.TCPConn)) (url string, accepted *atomic.Int64) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	accepted = new(atomic.Int64)
	var group sync.WaitGroup
	group.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			accepted.Add(1)
			group.Go(func() {
				defer conn.Close()
				serve(conn.(*net.TCPConn))
			})
		}
	})
	t.Cleanup(func() { listener.Close(); group.Wait() })
	return "http://" + listener.Addr().String() + "/", accepted
}

// respondRaw reads a request and responds with these bytes.
func respondRaw(response string) func(*net.TCPConn) {
	return func(conn *net.TCPConn) {
		readRequest(conn)
		_, _ = io.WriteString(conn, response)
	}
}

// readRequest reads the request; every request of these tests fits into one read or two.
func readRequest(conn *net.TCPConn) {
	buf := make([]byte, 64<<10)
	for got := []byte{}; !bytes.Contains(got, []byte("\"data\":{}")); {
		n, err := conn.Read(buf)
		if err != nil {
			return
		}
		got = append(got, buf[:n]...)
	}
}

// untilClosed waits until the client closes the connection.
func untilClosed(conn *net.TCPConn) { _, _ = io.Copy(io.Discard, conn) }

func hang(conn *net.TCPConn) {
	readRequest(conn)
	untilClosed(conn)
}

func reset(conn *net.TCPConn) {
	readRequest(conn)
	_ = conn.SetLinger(0)
}

func halfClose(conn *net.TCPConn) {
	readRequest(conn)
	_ = conn.CloseWrite()
	untilClosed(conn)
}

func unfinished(response string) func(*net.TCPConn) {
	return func(conn *net.TCPConn) {
		respondRaw(response)(conn)
		untilClosed(conn)
	}
}

func endless(status string) func(*net.TCPConn) {
	return func(conn *net.TCPConn) {
		respondRaw("HTTP/1.1 " + status + "\r\nContent-Type: text/plain\r\n\r\n")(conn)
		for chunk := bytes.Repeat([]byte("x"), 1<<10); ; {
			if _, err := conn.Write(chunk); err != nil {
				return
			}
		}
	}
}

// endpointCase is one kind of endpoint and the result of an attempt.
type endpointCase struct {
	name    string
	serve   func(*net.TCPConn)
	url     string // instead of serve
	outcome policy.Outcome
	status  int
	verdict policy.VerdictAction
	errText string // part of the stored error
}

func endpointCases(other *endpoint, tlsURL string) []endpointCase {
	ok := "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
	return []endpointCase{
		{"refused-connection", nil, closedPort, policy.OutcomeSocketError, 0, policy.Retry, "connection refused"},
		{"reset", reset, "", policy.OutcomeSocketError, 0, policy.Retry, "reset"},
		{"half-close", halfClose, "", policy.OutcomeSocketError, 0, policy.Retry, "closed the connection"},
		{"half-a-status-line", respondRaw("HTTP/1.1 20"), "", policy.OutcomeSocketError, 0, policy.Retry, ""},
		{"garbage", respondRaw("\x00\xff\xfe nonsense\r\n\r\n"), "", policy.OutcomeSocketError, 0, policy.Retry, "malformed"},
		{"no-such-host", nil, "http://nowhere.invalid/", policy.OutcomeResolutionError, 0, policy.Retry, "nowhere.invalid"},
		{"self-signed", nil, tlsURL, policy.OutcomeSocketError, 0, policy.Retry, "certificate"},
		{"tls-to-a-plain-port", nil, strings.Replace(other.URL, "http:", "https:",
			1), policy.OutcomeSocketError, 0, policy.Retry, ""},
		{"not-http-or-https", nil, "gopher://127.0.0.1/", policy.OutcomeGenericError, 0, policy.Retry, "scheme"},
		{"not-a-url", nil, "http://[::1", policy.OutcomeGenericError, 0, policy.Retry, ""},
		{
			"redirect",
			respondRaw("HTTP/1.1 307 Temporary Redirect\r\nLocation: " + other.URL + "/\r\nContent-Length: 0\r\n\r\n"),
			"", policy.OutcomeGenericError, 307, policy.Retry, "",
		},
		{"hangs", hang, "", policy.OutcomeTimedOut, 0, policy.Retry, "no response within"},
		{
			"header-that-never-ends", unfinished("HTTP/1.1 200 OK\r\nX-Slow: "), "", policy.OutcomeTimedOut, 0, policy.Retry,
			"no response within",
		},
		{
			"200-with-slow-body", unfinished("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nslow"), "", policy.OutcomeDelivered,
			200, policy.Delivered, "",
		},
		{
			"200-with-broken-body", respondRaw("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nbroken"), "",
			policy.OutcomeDelivered,
			200, policy.Delivered, "",
		},
		{"200-with-endless-body", endless("200 OK"), "", policy.OutcomeDelivered, 200, policy.Delivered, ""},
		{"500-with-endless-body", endless("500 Broken"), "", policy.OutcomeGenericError, 500, policy.Retry, ""},
		{
			"header-of-1-mb", respondRaw("HTTP/1.1 200 OK\r\nX-Big: " + strings.Repeat("x", 1<<20) + "\r\n\r\n"), "",
			policy.OutcomeSocketError, 0, policy.Retry, "header",
		},
		{
			"50-early-hints", respondRaw(strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", 50) + ok), "",
			policy.OutcomeDelivered, 200, policy.Delivered, "",
		},
		{
			"switching-protocols",
			respondRaw("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"), "",
			policy.OutcomeGenericError, 101, policy.Retry, "",
		},
		{
			"status-999", respondRaw("HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n"), "", policy.OutcomeGenericError, 999,
			policy.Retry, "",
		},
		{
			"status-000", respondRaw("HTTP/1.1 000 Nothing\r\nContent-Length: 0\r\n\r\n"), "", policy.OutcomeGenericError, 0,
			policy.Retry, "",
		},
		{"http-1.0", respondRaw("HTTP/1.0 204 No Content\r\n\r\n"), "", policy.OutcomeDelivered, 204, policy.Delivered, ""},
	}
}

func TestEndpointBehavior(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	withoutProbation(t, tn)
	other := newEndpoint(t, respondWith(http.StatusOK))
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	t.Cleanup(secure.Close)
	copyPolicy(t, tn, policy.DefaultName, "quick", `{"ack_timeout": "2 seconds"}`)
	zoo := endpointCases(other, secure.URL)
	for _, a := range zoo {
		url := a.url
		if url == "" {
			url, _ = rawEndpoint(t, a.serve)
		}
		subscribe(t, tn, a.name, url, under("quick"))
	}
	tn.Start(t)
	publishOne(t, tn, "e")
	tn.AttemptsMade(t, len(zoo))
	require.Empty(t, other.requests(), "redirects are not followed")
	for _, a := range zoo {
		requireCase(t, tn, a)
	}
	require.Equal(t, 2, tn.Count(t, `SELECT count(*) FROM postrider_internal.delivery_attempts a
		JOIN postrider_internal.event_subscriptions s ON s.id = a.subscription_id
		WHERE s.name LIKE '%-with-endless-body' AND octet_length(response_excerpt) = 4096 AND duration_us < 1900000`),
		"an endless body is cut, not waited for")
}

func requireCase(t *testing.T, tn *testnode.Node, a endpointCase) {
	t.Helper()
	var outcome, verdict, errText string
	var status int
	err := tn.Pool.QueryRow(t.Context(), `SELECT outcome, coalesce(status, 0), verdict, coalesce(error, '')
		FROM postrider.delivery_attempts WHERE subscription = $1`,
		a.name).Scan(&outcome, &status, &verdict, &errText)
	require.NoError(t, err, a.name)
	require.Equal(t, string(a.outcome), outcome, "%s: %s", a.name, errText)
	require.Equal(t, a.status, status, a.name)
	require.Equal(t, string(a.verdict), verdict, a.name)
	require.Contains(t, errText, a.errText, a.name)
	require.Equal(t, a.status == 0 && a.name != "status-000", errText != "",
		"%s: an error is stored where there is no response: %q", a.name, errText)
}

// Every status from 200 to 599 under the default policy, at both kinds of endpoint, is recorded as the policy's table
// says.
func TestStatusSweep(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	withoutProbation(t, tn)
	e := newEndpoint(t, func(w http.ResponseWriter, r request) {
		status, _ := strconv.Atoi(r.eventID())
		w.WriteHeader(status)
	})
	for _, kind := range []policy.EndpointKind{policy.KindWebhook, policy.KindAzureResource} {
		subscribe(t, tn, string(kind), e.URL, func(s *catalog.SubscriptionSpec) { s.EndpointKind = kind })
	}
	var bodies []string
	for status := 200; status <= 599; status++ {
		bodies = append(bodies, eventGridBody(strconv.Itoa(status), "{}"))
	}
	tn.Start(t)
	publishBody(t, tn, "application/json", "["+strings.Join(bodies, ",")+"]")
	tn.BecomeRows(t, 2*len(bodies), "delivery_attempts", "number = 1")
	require.Zero(t, tn.Rows(t, "delivery_attempts", "first_byte_ms IS NULL OR first_byte_ms > duration_ms "+
		"OR dns_ms IS NOT NULL OR tls_ms IS NOT NULL"))
	require.NotZero(t, tn.Rows(t, "delivery_attempts", "connect_ms > 0"))
	rows, err := tn.Pool.Query(t.Context(),
		`SELECT a.subscription AS kind, d.event_id::int AS expected, coalesce(a.status, 0) AS status, a.outcome, a.verdict,
		coalesce(a.floor_ms, 0) AS floor, d.state, coalesce(d.reason, '') AS reason FROM postrider.delivery_attempts a
		JOIN postrider.deliveries d USING (delivery_id) WHERE a.number = 1`)
	require.NoError(t, err)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[statusResult])
	require.NoError(t, err)
	require.Len(t, list, 2*len(bodies))
	for _, s := range list {
		s.require(t)
	}
}

// statusResult is the result of one status.
type statusResult struct {
	Kind                            policy.EndpointKind
	Expected, Status, Floor         int
	Outcome, Verdict, State, Reason string
}

func (s statusResult) require(t *testing.T) {
	t.Helper()
	p, _ := policy.Builtin(policy.DefaultName)
	result := policy.Result{Status: s.Expected}
	cell := p.Cell(s.Kind, result)
	expected := map[policy.Action][2]string{
		policy.ActionSuccess: {"deliver", "delivered"},
		policy.ActionRetry:   {"retry", "pending"},
		policy.ActionNever:   {"dead_letter", "dead_lettered"},
	}[cell.Action]
	require.Equal(t, s.Expected, s.Status)
	require.Equal(t, expected, [2]string{s.Verdict, s.State}, "%s %d", s.Kind, s.Status)
	require.Equal(t, string(p.Classify(s.Kind, result)), s.Outcome, "%s %d", s.Kind, s.Status)
	require.EqualValues(t, cell.MinDelay.Milliseconds(), s.Floor, "%s %d", s.Kind, s.Status)
	require.Equal(t, s.State == "dead_lettered", strings.HasPrefix(s.Reason, "UndeliverableDueTo"), "%s %d: %s", s.Kind,
		s.Status, s.Reason)
}

func TestRejectedAddressesAreNeverConnectedTo(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	url, accepted := rawEndpoint(t, respondRaw("HTTP/1.1 200 OK\r\n\r\n"))
	port := url[strings.LastIndexByte(url, ':'):]
	for name, host := range map[string]string{
		"literal": "127.0.0.1", "name": "localhost", "mapped": "[::ffff:127.0.0.1]", "other-loopback": "127.9.9.9",
	} {
		subscribe(t, tn, name, "http://"+host+port, nil)
	}
	tn.Start(t, func(o *jobs.Options) { o.AllowCIDR = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")} })
	publishOne(t, tn, "e")
	tn.AttemptsMade(t, 4)
	require.Equal(t, 4, tn.Rows(t, "delivery_attempts", "outcome = 'GenericError' AND status IS NULL "+
		"AND verdict = 'retry' AND (error LIKE '%loopback 127.0.0.0/8%' OR error LIKE '%loopback ::1/128%')"))
	require.Zero(t, accepted.Load())
}

// Bytes that neither UTF-8 nor a text column can hold are stored and can be read.
func TestPoisonousResponses(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	responses := map[string]string{
		"body": "HTTP/1.1 500 Oh\r\nContent-Length: 6\r\n\r\n\x00\xff\xfe\xc3\x28x",
		"half-a-rune": "HTTP/1.1 500 Oh\r\nContent-Length: 5000\r\n\r\n" + strings.Repeat("x", 4095) + "é" +
			strings.Repeat("x", 903),
		"header": "HTTP/1.1 500 Oh\r\nX-Bad: \xff\xfe\xc3\x28\r\nX-Json: {\"a\":\"\\u0000\"}\r\nContent-Length: " +
			"0\r\n\r\n",
		"reason":      "HTTP/1.1 500 \xff\xfe\x01\r\nContent-Length: 0\r\n\r\n",
		"nul-header":  "HTTP/1.1 500 Oh\r\nX-Nul: a\x00b\r\nContent-Length: 0\r\n\r\n",
		"status-line": "HTTP/1.1 \xff\x00\xfe\r\n\r\n",
		"header-name": "HTTP/1.1 500 Oh\r\n\xff\x00: x\r\n\r\n",
	}
	for name, response := range responses {
		url, _ := rawEndpoint(t, respondRaw(response))
		subscribe(t, tn, name, url, func(s *catalog.SubscriptionSpec) { s.RetryPolicy.MaxDeliveryAttempts = new(1) })
	}
	tn.Start(t)
	publishOne(t, tn, "e")
	tn.AttemptsMade(t, len(responses))
	for _, view := range []string{"delivery_attempts", "dead_letters", "deliveries"} {
		require.Len(t, everything(t, tn, view), len(responses), view)
	}
	require.Equal(t, 1, tn.Count(t, `SELECT count(*) FROM postrider.delivery_attempts WHERE subscription = 'body'
		    AND response_excerpt = '\000\377\376\303(x'`))
	require.Equal(t, 1, tn.Count(t,
		`SELECT count(*) FROM postrider.dead_letters WHERE subscription = 'body' AND last_response = '\000\377\376\303(x'`))
	require.Equal(t, 1, tn.Rows(t, "delivery_attempts", "subscription = 'header' "+
		"AND response_headers LIKE 'Content-Length: 0%X-Bad:%'"))
	require.Zero(t, tn.Rows(t, "delivery_attempts", "response_excerpt LIKE '(postrider:%'"), "nothing had to be left out")
}

// everything reads all columns of all rows of a view, as JSON.
func everything(t *testing.T, tn *testnode.Node, view string) []map[string]any {
	t.Helper()
	rows, err := tn.Pool.Query(t.Context(),
		fmt.Sprintf("SELECT row_to_json(v)::text FROM (SELECT * FROM postrider.%s) v", view))
	require.NoError(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	var list []map[string]any
	for _, line := range lines {
		var row map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &row))
		list = append(list, row)
	}
	return list
}
