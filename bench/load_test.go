package bench

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/event"
)

// service replaces postrider: it notes events like an endpoint, unless respond returns another status for the nth
// request; 0 cuts the connection.
func service(t *testing.T, respond func(n int64) int) (url string, r *receiver, ledger string) {
	t.Helper()
	r, ledger, _ = newReceiver(t)
	var requests atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil || req.Header.Get("aeg-sas-key") != "secret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		status := respond(requests.Add(1))
		if status == 0 {
			panic(http.ErrAbortHandler)
		}
		if status == http.StatusOK && r.note("/a", body, true, time.Now()) != nil {
			status = http.StatusInternalServerError
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(server.Close)
	return server.URL + "/topics/bench/api/events", r, ledger
}

func accept(int64) int { return http.StatusOK }

// options are of a load of 200 events/s for half a second.
func options(url string) loadOptions {
	return loadOptions{
		targets: []target{{url: url, key: "secret", prefixes: []string{"a/"}}}, clients: 4, rate: 200,
		duration: 500 * time.Millisecond, eventBytes: 1024, eventsPerRequest: 1,
	}
}

func publishAll(t *testing.T, o loadOptions) loadReport {
	t.Helper()
	l, err := newLoad(o)
	require.NoError(t, err)
	report, err := l.publish(t.Context())
	require.NoError(t, err)
	return report
}

func TestLoad(t *testing.T) {
	t.Parallel()
	url, sink, receivedPath := service(t, func(n int64) int {
		switch n {
		case 3:
			return 0 // the connection breaks: the outcome is unknown
		case 5, 6:
			return http.StatusServiceUnavailable
		}
		return http.StatusOK
	})
	publishedPath := filepath.Join(t.TempDir(), "published")
	ledger, err := OpenLedger(publishedPath)
	require.NoError(t, err)
	o := options(url)
	o.ledger, o.eventsPerRequest = ledger, 2
	report := publishAll(t, o)
	require.NoError(t, ledger.Close())
	require.NoError(t, sink.close())
	require.EqualValues(t, 94, report.published)
	require.EqualValues(t, 4, report.rejected)
	require.EqualValues(t, 2, report.failed)
	require.Error(t, report.firstError)
	require.True(t, report.to.After(report.from))
	require.Positive(t, report.latency.P50)
	require.Positive(t, report.stall)

	published, err := ReadLedger(publishedPath)
	require.NoError(t, err)
	received, err := ReadLedger(receivedPath)
	require.NoError(t, err)
	require.Equal(t, Verdict{Published: 94, Received: 94}, Compare(published, received))
	require.Len(t, Compare(published, received[1:]).Lost, 1, "a loss is found")
	received[0].Hash[0]++
	require.Len(t, Compare(published, received).Changed, 1, "and a change")
	require.Len(t, sink.seen, 94)
}

// TestLoadInTurn: each target gets its turn, with its own path, key and subject, and the ledger names it.
func TestLoadInTurn(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	got := map[string]int{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		topic := strings.Split(r.URL.Path, "/")[2]
		events, parseErr := event.Input{Schema: event.EventGrid, Topic: topic}.Parse("application/json", body)
		if err != nil || parseErr != nil || len(events) != 1 || len(body) != 1024+2 {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		got[topic+" "+r.Header.Get("aeg-sas-key")+" "+events[0].Subject]++
	}))
	t.Cleanup(server.Close)
	path := filepath.Join(t.TempDir(), "published")
	ledger, err := OpenLedger(path)
	require.NoError(t, err)
	o := options("")
	o.targets, o.ledger, o.rate = nil, ledger, 60
	for n := 9; n < 12; n++ {
		url := fmt.Sprintf("%s/topics/top-%d/api/events", server.URL, n)
		o.targets = append(o.targets,
			target{url, fmt.Sprint("key-", n), fmt.Sprint("/sub-", n), []string{fmt.Sprintf("%02d/", n)}})
	}
	report := publishAll(t, o)
	require.NoError(t, report.firstError)
	require.NoError(t, ledger.Close())
	require.Equal(t,
		map[string]int{"top-9 key-9 /sub-9": 10, "top-10 key-10 /sub-10": 10, "top-11 key-11 /sub-11": 10}, got)
	published, err := ReadLedger(path)
	require.NoError(t, err)
	prefixes := map[string]int{}
	for _, e := range published {
		prefixes[e.ID[:3]]++
	}
	require.Equal(t, map[string]int{"09/": 10, "10/": 10, "11/": 10}, prefixes)
}

func TestLoadThatIsNotAccepted(t *testing.T) {
	t.Parallel()
	url, _, _ := service(t, accept)
	o := options(url)
	o.targets[0].key = "wrong"
	report := publishAll(t, o)
	require.Positive(t, report.rejected)
	require.ErrorContains(t, report.firstError, "401")

	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	report = publishAll(t, options("http://"+closed.Addr().String()+"/topics/bench/api/events"))
	require.Positive(t, report.failed)
	require.Zero(t, report.latency)
}

func TestLoadIsCut(t *testing.T) {
	t.Parallel()
	arrived, release := make(chan struct{}, 4), make(chan struct{})
	url, _, _ := service(t, func(int64) int {
		arrived <- struct{}{}
		<-release
		return http.StatusOK
	})
	t.Cleanup(func() { close(release) })
	ctx, cancel := context.WithCancel(t.Context())
	o := options(url)
	o.clients, o.rate, o.duration = 2, 0, time.Hour
	l, err := newLoad(o)
	require.NoError(t, err)
	go func() {
		<-arrived
		<-arrived
		cancel()
	}()
	report, err := l.publish(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, report.published+report.failed, "requests that were cut are not failures")
}

func TestLoadEndsWhenItsLedgerFails(t *testing.T) {
	t.Parallel()
	url, _, _ := service(t, accept)
	o := options(url)
	var err error
	o.ledger, err = OpenLedger(filepath.Join(t.TempDir(), "published"))
	require.NoError(t, err)
	require.NoError(t, o.ledger.Close())
	l, err := newLoad(o)
	require.NoError(t, err)
	_, err = l.publish(t.Context())
	require.Error(t, err)
}

// TestOpenLoop: in an open loop an event is due by the clock, however late its turn comes.
func TestOpenLoop(t *testing.T) {
	t.Parallel()
	o := options("http://127.0.0.1:1/topics/bench/api/events")
	o.rate, o.duration = 100, time.Second
	l, err := newLoad(o)
	require.NoError(t, err)
	l.started = time.Now().Add(-time.Minute)
	for number, want := range map[int64]time.Duration{0: 0, 10: 100 * time.Millisecond, 89: 890 * time.Millisecond} {
		due, more := l.due(t.Context(), number)
		require.True(t, more)
		require.Equal(t, l.started.Add(want), due, "and not now: the wait for its turn counts as latency")
	}
	_, more := l.due(t.Context(), 100)
	require.False(t, more, "after the duration")

	l.started = time.Now().Add(time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, more = l.due(ctx, 0)
	require.False(t, more, "not yet due, and cut while it waits")
}

func TestEventsHaveOneSize(t *testing.T) {
	t.Parallel()
	w, err := newEventWriter(target{url: "http://h/topics/bench/api/events"}, leastEventBytes)
	require.NoError(t, err)
	for _, number := range []int64{0, 9, 123_456_789_012} {
		e := string(w.append(nil, newRunID(), number, time.Now()))
		require.Len(t, e, leastEventBytes)
		parsed, err := event.Input{Schema: event.EventGrid, Topic: "bench"}.Parse("application/json", []byte("["+e+"]"))
		require.NoError(t, err)
		require.Equal(t, e[len(idPrefix):len(idPrefix)+idLength], parsed[0].ID)
	}
	_, err = newEventWriter(target{}, 100)
	require.ErrorContains(t, err, "bytes at least, not 100")
	require.Len(t, text(200<<10), 200<<10)
}

func TestPause(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.False(t, pause(ctx, time.Hour))
	require.True(t, pause(t.Context(), 0))
}
