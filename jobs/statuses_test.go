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
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/internal/testnode"
	"postrider/jobs"
	"postrider/policy"
)

// wireStatuses are those that a policy's table names, others beside them, and the ends of the classes. Package policy
// tests all.
var wireStatuses = []int{
	100, 101, 102, 103, 199, 200, 201, 202, 203, 204, 205, 206, 226, 299, 300, 301, 302, 303, 304, 307, 308, 399, 400, 401,
	402, 403, 404, 405, 408, 409, 410, 411, 412, 413, 414, 415, 416, 418, 421, 422, 425, 428, 429, 431, 499, 500, 501, 502,
	503, 504, 505, 511, 599,
}

// Statuses under each of the policies, with real requests: the record and the time of the next attempt are those of the
// policy's table. A 1xx announces a response; if none follows, the endpoint closed the connection. 101 is the
// exception: no HTTP follows it.
func TestStatusesUnderEveryPolicy(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	withoutProbation(t, tn)
	e := newEndpoint(t, statusOfEvent)
	var kinds []statusColumn
	for _, p := range policy.Builtins() {
		kinds = append(kinds, statusColumn{p, policy.KindWebhook})
	}
	for _, name := range []string{policy.DefaultName, "namespace-2023", "ga-2026"} {
		p, _ := policy.Builtin(name)
		kinds = append(kinds, statusColumn{p, policy.KindAzureResource})
	}
	tn.System.Closed.IgnoreResponses()
	tn.Start(t, func(o *jobs.Options) { o.OnAttempt = nil })
	// One after the other: on a busy machine, the retries of all would come before the first attempts of the last.
	for _, k := range kinds {
		subscribe(t, tn, k.name(), e.URL, func(s *catalog.SubscriptionSpec) {
			s.RetryPolicy.Policy, s.EndpointKind = k.policy.Name, k.kind
		})
		publishStatuses(t, tn)
		tn.BecomeRows(t, len(wireStatuses), "delivery_attempts", "number = 1 AND subscription = $1", k.name())
		for _, row := range statusRows(t, tn, k.name()) {
			row.require(t, k)
		}
		require.NoError(t, tn.System.Subscriptions.Delete(t.Context(), topicName, k.name()))
	}
}

type statusColumn struct {
	policy policy.Policy
	kind   policy.EndpointKind
}

func (k statusColumn) name() string { return k.policy.Name + "-" + string(k.kind) }

func publishStatuses(t *testing.T, tn *testnode.Node) {
	t.Helper()
	bodies := make([]string, len(wireStatuses))
	for i, status := range wireStatuses {
		bodies[i] = eventGridBody(strconv.Itoa(status), "{}")
	}
	publishBody(t, tn, jsonType, "["+strings.Join(bodies, ",")+"]")
}

func announced(status int) bool { return status < 200 && status != http.StatusSwitchingProtocols }

// statusOfEvent responds to event 503 with 503. Go's server cannot send a 1xx alone.
func statusOfEvent(w http.ResponseWriter, r request) {
	status, _ := strconv.Atoi(r.eventID())
	if status >= 200 {
		w.WriteHeader(status)
		return
	}
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	fmt.Fprintf(conn, "HTTP/1.1 %d Announced\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", status)
}

// statusRow is the recorded result of one status.
type statusRow struct {
	Event, Status                   int
	Outcome, Verdict, State, Reason string
	Floor                           int // milliseconds
	Gap                             float64
}

func statusRows(t *testing.T, tn *testnode.Node, name string) []statusRow {
	t.Helper()
	rows, err := tn.Pool.Query(t.Context(), `SELECT d.event_id::int AS event, coalesce(a.status, 0) AS status, a.outcome,
		       a.verdict, d.state, coalesce(d.reason, '') AS reason,
		coalesce(a.floor_ms, 0) AS floor, coalesce(extract(epoch FROM a.next_attempt_at - a.started_at) - a.duration_us / 1e6,
		    0)::float8 AS gap
		FROM postrider_internal.delivery_attempts a JOIN postrider.deliveries d USING (delivery_id) WHERE a.number = 1
		    AND d.subscription = $1`, name)
	require.NoError(t, err)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[statusRow])
	require.NoError(t, err)
	return list
}

func (r statusRow) require(t *testing.T, k statusColumn) {
	t.Helper()
	where := fmt.Sprintf("%s: %d", k.name(), r.Event)
	result := policy.Result{Status: r.Event}
	if announced(r.Event) {
		result = policy.Result{Err: policy.ErrorSocket}
	}
	require.Equal(t, result.Status, r.Status, where)
	require.Equal(t, string(k.policy.Classify(k.kind, result)), r.Outcome, where)
	require.EqualValues(t, k.decided(result).Action, r.Verdict, where)
	if r.Event == http.StatusSwitchingProtocols {
		result = policy.Result{Status: 599} // not in Explain's range, and "other" in every policy
	}
	explained, err := policy.Explain(&k.policy, policy.ExplainOptions{Kind: k.kind, Result: result})
	require.NoError(t, err, where)
	if len(explained.Attempts) == 1 {
		require.Equal(t, policy.ExplainedEnd{State: r.State, Reason: policy.Reason(r.Reason)}, explained.End, where)
		return
	}
	require.Equal(t, "pending", r.State, where)
	require.GreaterOrEqual(t, r.Gap, explained.Attempts[1].AtSeconds-0.001, where)
	require.Less(t, r.Gap, explained.Attempts[1].AtSeconds+30, "%s: a busy machine decides late", where)
	require.EqualValues(t, k.policy.Cell(k.kind, result).MinDelay/policy.Seconds(time.Millisecond), r.Floor, where)
}

func (k statusColumn) decided(result policy.Result) policy.Verdict {
	at := time.Unix(0, 0)
	return policy.Decide(k.policy.Resolve(policy.Overrides{}).Policy, policy.Attempt{
		Result: result, Kind: k.kind, Number: 1, TimeToLiveSince: at, FirstAttemptAt: at, ScheduledAt: at, FinishedAt: at,
		Limits:     policy.Limits{MaxAttempts: k.policy.MaxAttempts.Default, TTL: time.Duration(k.policy.TTL.Default)},
		DeadLetter: true,
	})
}

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

// What is recorded of kinds of endpoints. Package endpoint has many more responses.
func TestEndpointBehavior(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	withoutProbation(t, tn)
	other := newEndpoint(t, respondWith(http.StatusOK))
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	t.Cleanup(secure.Close)
	copyPolicy(t, tn, policy.DefaultName, "quick", `{"ackTimeoutInSeconds": 2}`)
	raw := func(serve func(*net.TCPConn)) string {
		url, _ := rawEndpoint(t, serve)
		return url
	}
	const empty = "Content-Length: 0\r\n\r\n"
	rows := map[string]struct{ url, want string }{ // outcome, status, verdict and error
		"refused-connection":    {closedPort, "^SocketError 0 retry .*connection refused"},
		"no-such-host":          {"http://nowhere.invalid/", `^ResolutionError 0 retry .*nowhere\.invalid`},
		"self-signed":           {secure.URL, "^SocketError 0 retry .*certificate"},
		"not-http-or-https":     {"gopher://127.0.0.1/", "^GenericError 0 retry .*scheme"},
		"not-a-url":             {"http://[::1", "^GenericError 0 retry .+"},
		"hangs":                 {raw(hang), "^TimedOut 0 retry no response within"},
		"200-with-endless-body": {raw(endless("200 OK")), "^Delivered 200 deliver$"},
		"500-with-endless-body": {raw(endless("500 Broken")), "^GenericError 500 retry$"},
		"status-000":            {raw(respondRaw("HTTP/1.1 000 Nothing\r\n" + empty)), "^GenericError 0 retry$"},
		"redirect": {
			raw(respondRaw("HTTP/1.1 307 Redirect\r\nLocation: " + other.URL + "/\r\n" + empty)), "^GenericError 307 retry$",
		},
		"switching-protocols": {
			raw(respondRaw("HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")),
			"^GenericError 101 retry$",
		},
	}
	for name, row := range rows {
		limit := under(policy.DefaultName) // a busy machine takes seconds for a TLS handshake
		if name == "hangs" {
			limit = under("quick")
		}
		subscribe(t, tn, name, row.url, limit)
	}
	tn.Start(t)
	publishOne(t, tn, "e")
	tn.AttemptsMade(t, len(rows))
	require.Empty(t, other.requests(), "redirects are not followed")
	for name, row := range rows {
		require.Regexp(t, row.want, tn.Text(t, `SELECT concat_ws(' ', outcome, coalesce(status, 0), verdict, error)
			FROM postrider.delivery_attempts WHERE subscription = $1`, name), name)
	}
	require.Equal(t, 2, tn.Recorded(t, "octet_length(response_excerpt) = 4096"), "an endless body is cut")
}

// Neither deliveries nor handshakes connect to them.
func TestNoConnectionsToRejectedAddresses(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	url, accepted := rawEndpoint(t, respondRaw("HTTP/1.1 200 OK\r\n\r\n"))
	port := url[strings.LastIndexByte(url, ':'):]
	for name, host := range map[string]string{
		"literal": "127.0.0.1", "name": "localhost", "mapped": "[::ffff:127.0.0.1]", "other-loopback": "127.9.9.9",
	} {
		subscribe(t, tn, name, "http://"+host+port, nil)
	}
	startHandshakes(t, tn, func(o *jobs.Options) { o.AllowCIDR = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")} })
	publishOne(t, tn, "e")
	tn.AttemptsMade(t, 4)
	require.Equal(t, 4, tn.Rows(t, "delivery_attempts", "outcome = 'GenericError' AND status IS NULL "+
		"AND verdict = 'retry' AND (error LIKE '%loopback 127.0.0.0/8%' OR error LIKE '%loopback ::1/128%')"))
	h := handshakeEnded(t, tn, "handshake", validated(url, event.EventGrid))
	require.Equal(t, catalog.HandshakeFailed, h.State)
	require.Contains(t, h.Message, "rejected address")
	require.Zero(t, accepted.Load())
}

// Bytes that neither UTF-8 nor a text column can hold are stored and can be read, also for each member of a batch.
func TestResponsesThatATextColumnCannotHold(t *testing.T) {
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
	responses["batch"] = responses["body"]
	for name, response := range responses {
		url, _ := rawEndpoint(t, respondRaw(response))
		subscribe(t, tn, name, url, func(s *catalog.SubscriptionSpec) {
			s.RetryPolicy.MaxDeliveryAttempts = new(1)
			if name == "batch" {
				s.MaxEventsPerBatch = new(10)
			}
		})
	}
	publishAtOnce(t, tn, "e", 2)
	tn.Start(t)
	tn.AttemptsMade(t, 2*len(responses)-1)
	require.Len(t, everything(t, tn, "delivery_attempts"), 2*len(responses)-1)
	for _, view := range []string{"dead_letters", "deliveries"} {
		require.Len(t, everything(t, tn, view), 2*len(responses), view)
	}
	require.Equal(t, 3, tn.Rows(t, "delivery_attempts", `response_excerpt = '\000\377\376\303(x'`))
	require.Equal(t, 4, tn.Rows(t, "dead_letters", `last_response = '\000\377\376\303(x'`))
	require.Equal(t, 2, tn.Rows(t, "delivery_attempts", "subscription = 'header' "+
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
