package server_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// halfClosed sends a request over TCP, closes the client's side for writing, and returns how to read the response.
func halfClosed(t *testing.T, b *bundle, method, path, body string, headers ...string) (response func() *http.Response) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(b.url, "http://"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	var request strings.Builder
	fmt.Fprintf(&request, "%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n", method, path, len(body))
	for i := 0; i < len(headers); i += 2 {
		fmt.Fprintf(&request, "%s: %s\r\n", headers[i], headers[i+1])
	}
	_, err = io.WriteString(conn, request.String()+"\r\n"+body)
	require.NoError(t, err)
	require.NoError(t, conn.(*net.TCPConn).CloseWrite())
	return func() *http.Response {
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
		r, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
		require.NoError(t, err, "%s %s", method, path)
		t.Cleanup(func() { _ = r.Body.Close() })
		return r
	}
}

// A client may close its side of the connection once its request is sent. It gets its response, however long that takes.
func TestHalfClosedClientsGetTheirResponses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key := b.topic("orders", "")
	const event = `{"id":"%s","eventType":"a","subject":"b","eventTime":"2026-11-22T09:30:00Z","dataVersion":"1","data":{}}`
	one := func(id string) string { return "[" + fmt.Sprintf(event, id) + "]" }
	batch := "[" + fmt.Sprintf(event, "3") + "," + fmt.Sprintf(event, "4") + "]"

	blocker, err := b.db.Begin(t.Context())
	require.NoError(t, err)
	_, err = blocker.Exec(t.Context(), "LOCK TABLE postrider_internal.events, postrider_internal.audit IN ACCESS EXCLUSIVE MODE")
	require.NoError(t, err)
	const events = "/topics/orders/api/events"
	admin := []string{"Authorization", "Bearer " + adminToken}
	waiting := func(n int) {
		t.Helper()
		require.Eventually(t, func() bool {
			var blocked int
			const query = "SELECT count(DISTINCT pid) FROM pg_locks WHERE NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
			require.NoError(t, blocker.QueryRow(t.Context(), query).Scan(&blocked))
			return blocked >= n
		}, 20*time.Second, 5*time.Millisecond)
	}
	responses := map[string]func() *http.Response{"first": halfClosed(t, b, "POST", events, one("1"), "aeg-sas-key", key)}
	waiting(1) // the publishes that follow wait for this one's commit
	responses["single"] = halfClosed(t, b, "POST", events, one("2"), "aeg-sas-key", key)
	responses["batch"] = halfClosed(t, b, "POST", events, batch, "aeg-sas-key", key)
	responses["GET"] = halfClosed(t, b, "GET", "/v1/events?topic=orders", "", admin...)
	responses["PUT"] = halfClosed(t, b, "PUT", "/v1/topics/parcels", "{}", admin...)
	waiting(3)
	require.NoError(t, blocker.Rollback(t.Context()))
	for name, want := range map[string]int{"first": 200, "single": 200, "batch": 200, "GET": 200, "PUT": 201} {
		require.Equal(t, want, responses[name]().StatusCode, name)
	}
	require.Equal(t, 4, b.count("SELECT count(*)::int FROM postrider.events"))
}
