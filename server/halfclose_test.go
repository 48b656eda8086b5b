package server_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

const publishPath = "/topics/orders/api/events"

// rawRequest is a request over TCP whose client decides when it closes the connection.
type rawRequest struct {
	t      *testing.T
	method string
	conn   *net.TCPConn
}

func (s *service) sendRaw(method, path, body string, headers ...string) *rawRequest {
	s.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = conn.Close() })
	var request strings.Builder
	fmt.Fprintf(&request, "%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n",
		method, path, len(body))
	for i := 0; i < len(headers); i += 2 {
		fmt.Fprintf(&request, "%s: %s\r\n", headers[i], headers[i+1])
	}
	_, err = io.WriteString(conn, request.String()+"\r\n"+body)
	require.NoError(s.t, err)
	return &rawRequest{t: s.t, method: method, conn: conn.(*net.TCPConn)}
}

// halfClose closes the client's side for writing.
func (r *rawRequest) halfClose() *rawRequest {
	r.t.Helper()
	require.NoError(r.t, r.conn.CloseWrite())
	return r
}

// reset closes the connection with RST.
func (r *rawRequest) reset() {
	r.t.Helper()
	require.NoError(r.t, r.conn.SetLinger(0))
	require.NoError(r.t, r.conn.Close())
}

func (r *rawRequest) response() *http.Response {
	r.t.Helper()
	require.NoError(r.t, r.conn.SetReadDeadline(time.Now().Add(time.Minute)))
	response, err := http.ReadResponse(bufio.NewReader(r.conn), &http.Request{Method: r.method})
	require.NoError(r.t, err, r.method)
	r.t.Cleanup(func() { _ = response.Body.Close() })
	return response
}

// lockTables locks tables against every other transaction. waiting returns when n others wait for a lock.
func (s *service) lockTables(tables string) (blocker pgx.Tx, waiting func(n int)) {
	s.t.Helper()
	blocker, err := s.db.Begin(s.t.Context())
	require.NoError(s.t, err)
	_, err = blocker.Exec(s.t.Context(), "LOCK TABLE "+tables+" IN ACCESS EXCLUSIVE MODE")
	require.NoError(s.t, err)
	return blocker, func(n int) {
		s.t.Helper()
		require.Eventually(s.t, func() bool {
			var blocked int
			const query = `SELECT count(DISTINCT pid) FROM pg_locks WHERE NOT granted
				AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`
			require.NoError(s.t, blocker.QueryRow(s.t.Context(), query).Scan(&blocked))
			return blocked >= n
		}, time.Minute, time.Millisecond)
	}
}

// A client may close its side of the connection once its request is sent. It gets its response.
func TestHalfClosedClientsGetTheirResponses(t *testing.T) {
	t.Parallel()
	s := setup(t)
	key := s.topic("orders", "")
	require.Equal(t, 200,
		s.sendRaw("POST", publishPath, gridEvents("0"), "aeg-sas-key", key).halfClose().response().StatusCode)

	batch := strings.TrimSuffix(gridEvents("3"), "]") + "," + strings.TrimPrefix(gridEvents("4"), "[")
	blocker, waiting := s.lockTables("postrider_internal.events, postrider_internal.audit")
	admin := []string{"Authorization", "Bearer " + adminToken}
	requests := map[string]*rawRequest{"first": s.sendRaw("POST", publishPath, gridEvents("1"), "aeg-sas-key", key)}
	waiting(1) // the publishes that follow wait for this one's commit
	requests["single"] = s.sendRaw("POST", publishPath, gridEvents("2"), "aeg-sas-key", key)
	requests["batch"] = s.sendRaw("POST", publishPath, batch, "aeg-sas-key", key)
	requests["GET"] = s.sendRaw("GET", "/v1/events?topic=orders", "", admin...)
	requests["PUT"] = s.sendRaw("PUT", "/v1/topics/parcels", "{}", admin...)
	waiting(3)
	for _, request := range requests {
		request.halfClose()
	}
	require.NoError(t, blocker.Rollback(t.Context()))
	for name, want := range map[string]int{"first": 200, "single": 200, "batch": 200, "GET": 200, "PUT": 201} {
		require.Equal(t, want, requests[name].response().StatusCode, name)
	}
	require.Equal(t, 5, s.count("SELECT count(*)::int FROM postrider.events"))
}

// A publish whose client closed its side is taken out of the queue after a grace: the client may be gone, and may have
// sent the publish again. A client that still waits gets 503.
func TestQueuedPublishesOfGoneClientsAreNotStored(t *testing.T) {
	t.Parallel()
	s := setup(t)
	patient, err := url.Parse(s.tn.URL)
	require.NoError(t, err)
	query := patient.Query()
	query.Set("lock_timeout", "60s") // longer than the grace, unlike the default
	patient.RawQuery = query.Encode()
	s = s.node(patient.String(), 0)
	arrived := make(chan struct{}, 10)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		s.server.Handler().ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	s.url = front.URL
	key := s.topic("orders", "")
	blocker, waiting := s.lockTables("postrider_internal.events")
	first := s.sendRaw("POST", publishPath, gridEvents("first"), "aeg-sas-key", key)
	waiting(1) // the publishes that follow wait for this one's commit
	for len(arrived) > 0 {
		<-arrived
	}
	gone := s.sendRaw("POST", publishPath, gridEvents("reset"), "aeg-sas-key", key)
	<-arrived // its body is read too: it came in one piece
	gone.reset()
	half := s.sendRaw("POST", publishPath, gridEvents("half"), "aeg-sas-key", key).halfClose().response()
	require.Equal(t, http.StatusServiceUnavailable, half.StatusCode)
	require.Equal(t, "1", half.Header.Get("Retry-After"))
	failed := func() (n int64) {
		for _, times := range s.counters.Read().PublishFailures {
			n += times
		}
		return n
	}
	require.Eventually(t, func() bool { return failed() == 2 }, time.Minute, time.Millisecond,
		"the one that was reset ends too")
	require.NoError(t, blocker.Rollback(t.Context()))
	require.Equal(t, http.StatusOK, first.response().StatusCode)
	s.publish("orders", key, gridEvents("last")).is(200)
	require.Equal(t, "first last",
		s.rows("SELECT string_agg(event_id, ' ' ORDER BY event_id) AS ids FROM postrider.events")[0]["ids"])
}
