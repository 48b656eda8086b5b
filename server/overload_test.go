package server_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/jobs/publish"
	"postrider/server"
	"postrider/server/api"
)

// allMemory is more than all publish requests get.
const allMemory = 1 << 40

// reserve takes memory for the bodies of publish requests.
func (s *service) reserve(ctx context.Context, bytes int64) (*publish.Reservation, error) {
	return s.store.Publisher.Reserve(ctx, "orders", func(*catalog.Topic) bool { return true }, bytes)
}

// withoutMemory takes the memory for large bodies. waiting returns when n requests wait for it.
func (s *service) withoutMemory() (memory *publish.Reservation, waiting func(n int64)) {
	s.t.Helper()
	memory, err := s.reserve(s.t.Context(), allMemory)
	require.NoError(s.t, err)
	return memory, func(n int64) {
		s.t.Helper()
		require.Eventually(s.t, func() bool { return s.store.Publisher.PublishCounters().Waiting == n },
			time.Minute, time.Millisecond)
	}
}

// largeEvent is a request of one event with n bytes of data.
func largeEvent(id string, n int) string {
	return fmt.Sprintf(`[{"id":%q,"subject":"s","eventType":"t","eventTime":"2026-11-20T09:30:00Z","data":"%s"}]`, id,
		strings.Repeat("x", n))
}

// begin sends the headers of a publish.
func (s *service) begin(key string, length int, headers string) (net.Conn, *bufio.Reader) {
	s.t.Helper()
	var dialer net.Dialer
	conn, err := dialer.DialContext(s.t.Context(), "tcp", strings.TrimPrefix(s.url, "http://"))
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = conn.Close() })
	require.NoError(s.t, conn.SetDeadline(time.Now().Add(time.Minute)))
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+
		"aeg-sas-key: %s\r\nContent-Length: %d\r\n%s\r\n", publishPath, key, length, headers)
	require.NoError(s.t, err)
	return conn, bufio.NewReader(conn)
}

func statusOf(t *testing.T, from *bufio.Reader) int {
	t.Helper()
	response, err := http.ReadResponse(from, nil)
	require.NoError(t, err)
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	require.NoError(t, err)
	return response.StatusCode
}

// A large body is read when there is memory for it. Small requests, and requests without a valid credential, do not
// wait.
func TestLargeBodiesWaitUnread(t *testing.T) {
	t.Parallel()
	s := setup(t)
	key := s.topic("orders", "")
	memory, waiting := s.withoutMemory()
	body := largeEvent("large", 1<<20-1000)
	conn, from := s.begin(key, len(body), "Expect: 100-continue\r\n") // net/http sends 100 when the body is read
	waiting(1)
	s.publish("orders", key, gridEvents("small")).is(200)
	s.publish("orders", "wrong", body).rejected(401, "Unauthorized")
	s.publish("lost", key, body).rejected(401, "Unauthorized")
	memory.Release()
	require.Equal(t, http.StatusContinue, statusOf(t, from))
	_, err := io.WriteString(conn, body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, statusOf(t, from))
	waiting(0)
	require.Zero(t, s.store.Publisher.PublishCounters().WaitingBytes)
	require.Equal(t, 2, s.count("SELECT count(*) FROM postrider.events"))
}

// A small body is read before it waits for memory: its publisher may be slow.
func TestSmallBodiesAreReadFirst(t *testing.T) {
	t.Parallel()
	s := setup(t)
	key := s.topic("orders", "")
	var held []*publish.Reservation
	for range 8 << 20 / publish.SmallBody {
		memory, err := s.reserve(t.Context(), publish.SmallBody)
		require.NoError(t, err)
		held = append(held, memory)
	}
	body := gridEvents("small")
	conn, from := s.begin(key, len(body), "Expect: 100-continue\r\n") // net/http sends 100 when the body is read
	require.Equal(t, http.StatusContinue, statusOf(t, from))
	_, err := io.WriteString(conn, body)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return s.store.Publisher.PublishCounters().Waiting == 1 },
		time.Minute, time.Millisecond)
	for _, memory := range held {
		memory.Release()
	}
	require.Equal(t, http.StatusOK, statusOf(t, from))
}

// A body without a length takes the memory of the largest one until it is read, and then its own.
func TestMemoryOfChunkedBodies(t *testing.T) {
	t.Parallel()
	s := setup(t)
	key := s.topic("orders", "")
	blocker, waiting := s.lockTables("postrider_internal.events")
	done, begun := make(chan int, 1), make(chan struct{})
	rest, send := io.Pipe()
	go func() {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, publishPath, io.MultiReader(rest))
		r.ContentLength = -1
		r.Header.Set("aeg-sas-key", key)
		w := httptest.NewRecorder()
		close(begun)
		s.server.Handler().ServeHTTP(w, r)
		done <- w.Code
	}()
	<-begun
	event := gridEvents("1")
	_, err := io.WriteString(send, event) // returns when it is read
	require.NoError(t, err)
	require.EqualValues(t, api.MaxBodyBytes, s.store.Publisher.PublishCounters().WaitingBytes)
	require.NoError(t, send.Close())
	waiting(1)
	require.EqualValues(t, len(event), s.store.Publisher.PublishCounters().WaitingBytes)
	require.NoError(t, blocker.Rollback(t.Context()))
	require.Equal(t, http.StatusOK, <-done)
	require.Zero(t, s.store.Publisher.PublishCounters().WaitingBytes)
}

// A publisher that sends its body slowly, or is gone, gives its memory back.
func TestSlowAndGonePublishersReturnMemory(t *testing.T) {
	t.Parallel()
	s := setup(t)
	key := s.topic("orders", "")
	front := httptest.NewUnstartedServer(s.server.Handler())
	front.Config = server.NewHTTPServer("", s.server.Handler())
	require.LessOrEqual(t, front.Config.ReadTimeout, 30*time.Second)
	front.Config.ReadTimeout = 2 * time.Second // from the first byte of the request
	front.Start()
	t.Cleanup(front.Close)
	s.url = front.URL
	memory, waiting := s.withoutMemory()
	slow, from := s.begin(key, 1<<20, "")
	waiting(1)
	gone, _ := s.begin(key, 1<<20, "")
	waiting(2)
	require.NoError(t, gone.Close())
	memory.Release()
	_, err := io.WriteString(slow, "[")
	require.NoError(t, err)
	all, err := s.reserve(t.Context(), allMemory)
	require.NoError(t, err)
	all.Release()
	require.Equal(t, http.StatusServiceUnavailable, statusOf(t, from))
}

// A rejected publisher gets the response after it has sent its body, and may use the connection again.
func TestTooManyWaitingPublishes(t *testing.T) {
	t.Parallel()
	s := setup(t)
	key := s.topic("orders", "")
	memory, waiting := s.withoutMemory()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	for range 20_000 {
		go func() { _, _ = s.reserve(ctx, 1<<20) }()
	}
	waiting(20_000)
	body := largeEvent("1", 1<<20-1000)
	conn, from := s.begin(key, len(body), "")
	_, err := io.WriteString(conn, body)
	require.NoError(t, err)
	require.Equal(t, http.StatusServiceUnavailable, statusOf(t, from))
	rejected := s.publish("orders", key, body)
	require.Equal(t, "5", rejected.header.Get("Retry-After"))
	require.Contains(t, rejected.rejected(503, "ServiceUnavailable").Message, "too many requests wait: more than 20000")
	leave()
	waiting(0)
	memory.Release()
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+
		"aeg-sas-key: %s\r\nContent-Length: %d\r\n\r\n%s", publishPath, key, len(body), body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, statusOf(t, from))
}

// Waiting bodies do not fill the receive buffer of their HTTP/2 connection, whose number of streams is limited. The
// first body of a connection is sent before the client knows its buffer.
func TestWaitingBodiesLeaveRoomOnTheirConnection(t *testing.T) {
	t.Parallel()
	s := setup(t)
	key := s.topic("orders", "")
	front := httptest.NewUnstartedServer(s.server.Handler())
	front.Config = server.NewHTTPServer("", s.server.Handler())
	front.EnableHTTP2 = true
	var connections atomic.Int64
	front.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	front.StartTLS()
	t.Cleanup(front.Close)
	client := front.Client()
	send := func(body string) string {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, front.URL+publishPath, strings.NewReader(body))
		if err != nil {
			return err.Error()
		}
		r.Header.Set("aeg-sas-key", key)
		response, err := client.Do(r)
		if err != nil {
			return err.Error()
		}
		defer response.Body.Close()
		return response.Proto + " " + response.Status
	}
	memory, waiting := s.withoutMemory()
	const large = 110 // 60 use all streams of a connection, and the others share one with small bodies
	got := make(chan string, large)
	for i := range large {
		go func() { got <- send(largeEvent(fmt.Sprint(i), 100_000)) }()
		waiting(int64(i + 1))
	}
	for range 100 { // until their bodies have arrived as far as they may
		require.Equal(t, "HTTP/2.0 200 OK", send(largeEvent("small", 60_000)))
	}
	require.Empty(t, got)
	require.EqualValues(t, 2, connections.Load())
	memory.Release()
	for range large {
		require.Equal(t, "HTTP/2.0 200 OK", <-got)
	}
}
