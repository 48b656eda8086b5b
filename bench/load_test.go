package bench

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/event"
)

// TestTemplate has postrider's own parser and printer say that what is published can be delivered byte for byte.
func TestTemplate(t *testing.T) {
	t.Parallel()
	template := testTemplate(t, "http://127.0.0.1:1/topics/bench/api/events")
	ids, now := map[string]bool{}, time.Now()
	for _, sequence := range []int64{0, 1, 999_999_999_999} {
		template.patch(sequence, now)
		event0 := template.slots[0].event
		require.Len(t, event0, defaultEventBytes)
		body := template.body()
		require.Equal(t, "["+string(event0)+"]", string(body))
		events, err := event.Input{Schema: event.EventGrid, Topic: "bench"}.Parse("application/json", body)
		require.NoError(t, err)
		delivered, err := event.Body(nil, []*event.Event{&events[0]}, "bench", event.EventGrid, false)
		require.NoError(t, err)
		require.Equal(t, string(body), string(delivered))
		require.Equal(t, string(template.slots[0].id), events[0].ID)
		require.Equal(t, now.UTC().Truncate(time.Microsecond), events[0].Time)
		require.Equal(t, 1, eachEvent(event0, func(e *receivedEvent) { require.Equal(t, now.UnixNano(), e.sentAt) }))
		ids[events[0].ID] = true
	}
	require.Len(t, ids, 3)
	require.False(t, publishable(1_000_000_000_000), "its digits would not fit")
}

// TestTemplateOfSeveral: each event of a request has a number of its own, and is noted in the ledger as it is sent.
func TestTemplateOfSeveral(t *testing.T) {
	t.Parallel()
	endpoint, err := url.Parse("http://127.0.0.1:1/topics/bench/api/events")
	require.NoError(t, err)
	several, err := newTemplate(endpoint, "key", defaultSubject, newRun(), 3, 400, plainEvent)
	require.NoError(t, err)
	several.patch(7, time.Now())
	events, err := event.Input{Schema: event.EventGrid, Topic: "bench"}.Parse("application/json", several.body())
	require.NoError(t, err)
	require.Len(t, events, 3)
	path := filepath.Join(t.TempDir(), "ledger")
	ledger, err := OpenLedger(path)
	require.NoError(t, err)
	require.NoError(t, ledger.noteLines(several.ledgerLines("a/")))
	require.NoError(t, ledger.Close())
	noted, err := ReadLedger(path)
	require.NoError(t, err)
	require.Len(t, noted, 3)
	for i, e := range events {
		require.Regexp(t, fmt.Sprintf("-00000000000%d$", 7+i), e.ID)
		require.Equal(t, Entry{"a/" + e.ID, sha256.Sum256(several.slots[i].event)}, noted[i])
		require.Len(t, several.slots[i].event, 400)
	}
}

// service stands for postrider: it answers publishes as it is told, and hands what it accepts to a sink.
func service(t *testing.T, answer func(n int64) int) (url string, sink *CountingSink, ledger string) {
	t.Helper()
	ledger = filepath.Join(t.TempDir(), "received")
	sink, err := NewCountingSink(ledger)
	require.NoError(t, err)
	var requests atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Header.Get("aeg-sas-key") != "secret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		status := answer(requests.Add(1))
		if status == 0 {
			panic(http.ErrAbortHandler)
		}
		if status == http.StatusOK && sink.take("/", body, time.Now()) != nil {
			status = http.StatusInternalServerError
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(server.Close)
	return server.URL + "/topics/bench/api/events", sink, ledger
}

// TestLoadInTurn: each target gets its turn, with its own path, key and subject, and the ledger says whose an event
// was.
func TestLoadInTurn(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	got := map[string]int{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		topic := strings.Split(r.URL.Path, "/")[2]
		events, parseErr := event.Input{Schema: event.EventGrid, Topic: topic}.Parse("application/json", body)
		if err != nil || parseErr != nil || len(events) != 1 {
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
	target := func(n string) Target {
		return Target{
			URL: server.URL + "/topics/top-" + n + "/api/events", Key: "key-" + n, Subject: "/sub-" + n, Prefix: n + "/",
		}
	}
	load, err := NewLoad(LoadOptions{
		Targets: []Target{target("1"), target("2"), target("3")}, Clients: 4, Events: 30, Ledger: ledger,
	})
	require.NoError(t, err)
	report, err := load.Run(t.Context())
	require.NoError(t, err)
	require.NoError(t, report.FirstError)
	require.NoError(t, ledger.Close())
	require.Equal(t, map[string]int{"top-1 key-1 /sub-1": 10, "top-2 key-2 /sub-2": 10, "top-3 key-3 /sub-3": 10}, got)
	published, err := ReadLedger(path)
	require.NoError(t, err)
	prefixes := map[string]int{}
	for _, e := range published {
		prefixes[e.ID[:2]]++
	}
	require.Equal(t, map[string]int{"1/": 10, "2/": 10, "3/": 10}, prefixes)
}

func TestLoadTargets(t *testing.T) {
	t.Parallel()
	const url = "http://127.0.0.1:80/topics/bench/api/events"
	for name, second := range map[string]Target{
		"a longer URL":     {URL: "http://127.0.0.1:80/topics/benches/api/events", Key: "k"},
		"a longer key":     {URL: url, Key: "kk"},
		"a longer subject": {URL: url, Key: "k", Subject: "/s"},
		"another host":     {URL: "http://127.0.0.1:81/topics/bench/api/events", Key: "k"},
	} {
		_, err := NewLoad(LoadOptions{Targets: []Target{{URL: url, Key: "k"}, second}, Events: 1})
		require.Error(t, err, name)
	}
}

func accept(int64) int { return http.StatusOK }

func TestLoad(t *testing.T) {
	t.Parallel()
	url, sink, receivedPath := service(t, func(n int64) int {
		switch n {
		case 3:
			return 0 // the connection breaks: nobody knows
		case 5, 6:
			return http.StatusServiceUnavailable
		}
		return http.StatusOK
	})
	publishedPath := filepath.Join(t.TempDir(), "published")
	ledger, err := OpenLedger(publishedPath)
	require.NoError(t, err)
	load, err := NewLoad(LoadOptions{URL: url, Key: "secret", Clients: 4, Events: 200, Ledger: ledger})
	require.NoError(t, err)
	report, err := load.Run(t.Context())
	require.NoError(t, err)
	require.NoError(t, ledger.Close())
	require.NoError(t, sink.Close())
	require.EqualValues(t, 197, report.Published)
	require.EqualValues(t, 197, load.Published())
	require.EqualValues(t, 2, report.Refused)
	require.EqualValues(t, 1, report.Failed)
	require.Error(t, report.FirstError)
	require.True(t, report.EndedAt.After(report.StartedAt))
	require.Positive(t, report.Latency.P50)

	published, err := ReadLedger(publishedPath)
	require.NoError(t, err)
	received, err := ReadLedger(receivedPath)
	require.NoError(t, err)
	require.Equal(t, Verdict{Published: 197, Received: 197}, Compare(published, received))
	require.Len(t, Compare(published, received[1:]).Lost, 1, "the harness sees a loss")
	received[0].Hash[0]++
	require.Len(t, Compare(published, received).Changed, 1, "and a change")
	require.EqualValues(t, 197, sink.Stats().Distinct)
}

func TestLoadThatNobodyAccepts(t *testing.T) {
	t.Parallel()
	url, _, _ := service(t, accept)
	load, err := NewLoad(LoadOptions{URL: url, Key: "wrong", Clients: 2, Events: 2})
	require.NoError(t, err)
	report, err := load.Run(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 2, report.Refused)
	require.ErrorContains(t, report.FirstError, "401")

	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	load, err = NewLoad(LoadOptions{
		URL: "http://" + closed.Addr().String() + "/topics/bench/api/events", Clients: 1, Events: 1,
	})
	require.NoError(t, err)
	report, err = load.Run(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, report.Failed)
	require.Zero(t, report.Latency)
}

func TestLoadIsCut(t *testing.T) {
	t.Parallel()
	arrived, release := make(chan struct{}, 2), make(chan struct{})
	url, _, _ := service(t, func(int64) int {
		arrived <- struct{}{}
		<-release
		return http.StatusOK
	})
	t.Cleanup(func() { close(release) })
	ctx, cancel := context.WithCancel(t.Context())
	load, err := NewLoad(LoadOptions{URL: url, Key: "secret", Clients: 2, Duration: time.Hour})
	require.NoError(t, err)
	go func() {
		<-arrived
		<-arrived
		cancel()
	}()
	report, err := load.Run(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, report.Published+report.Failed, "what our own end cut is nobody's failure")
}

func TestLoadStopsWhenItsLedgerFails(t *testing.T) {
	t.Parallel()
	url, _, _ := service(t, accept)
	ledger, err := OpenLedger(filepath.Join(t.TempDir(), "published"))
	require.NoError(t, err)
	require.NoError(t, ledger.Close())
	load, err := NewLoad(LoadOptions{URL: url, Key: "secret", Clients: 2, Duration: time.Hour, Ledger: ledger})
	require.NoError(t, err)
	_, err = load.Run(t.Context())
	require.Error(t, err)
}

// TestOpenLoop: in an open loop an event is due by the clock, however late its turn comes.
func TestOpenLoop(t *testing.T) {
	t.Parallel()
	load, err := NewLoad(LoadOptions{
		URL: "http://127.0.0.1:1/topics/bench/api/events", Clients: 1, Rate: 100, Duration: time.Second, Events: 90,
	})
	require.NoError(t, err)
	load.started = time.Now().Add(-time.Minute)
	for sequence, want := range map[int64]time.Duration{0: 0, 10: 100 * time.Millisecond, 89: 890 * time.Millisecond} {
		due, more := load.due(t.Context(), sequence)
		require.True(t, more)
		require.Equal(t, load.started.Add(want), due, "and not now: the wait for its turn counts as latency")
	}
	_, more := load.due(t.Context(), 90)
	require.False(t, more, "after the last event")
	load.options.Events = 0
	_, more = load.due(t.Context(), 100)
	require.False(t, more, "after the duration")

	load.started = time.Now().Add(time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, more = load.due(ctx, 0)
	require.False(t, more, "not yet due, and cut while it waits")
}

func TestOpenLoopPublishes(t *testing.T) {
	t.Parallel()
	url, sink, _ := service(t, accept)
	load, err := NewLoad(LoadOptions{URL: url, Key: "secret", Clients: 2, Rate: 10_000, Events: 50})
	require.NoError(t, err)
	report, err := load.Run(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 50, report.Published)
	require.EqualValues(t, 50, sink.Stats().Distinct)
	require.NoError(t, sink.Close())
}

func TestLoadOptions(t *testing.T) {
	t.Parallel()
	const url = "http://127.0.0.1:80/topics/bench/api/events"
	for name, o := range map[string]LoadOptions{
		"no URL":            {Events: 1},
		"not a URL":         {URL: "http://\x00", Events: 1},
		"TLS":               {URL: "https://127.0.0.1:443/topics/bench/api/events", Events: 1},
		"no port":           {URL: "http://localhost/topics/bench/api/events", Events: 1},
		"no topic's":        {URL: "http://127.0.0.1:80/v1/topics", Events: 1},
		"no end":            {URL: url},
		"negative clients":  {URL: url, Events: 1, Clients: -1},
		"negative rate":     {URL: url, Events: 1, Rate: -1},
		"an event too tiny": {URL: url, Events: 1, EventBytes: 100},
	} {
		_, err := NewLoad(o)
		require.Error(t, err, name)
	}
	_, err := NewLoad(LoadOptions{URL: url, Events: 1, EventBytes: 300})
	require.NoError(t, err)
}

func TestSleepEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	require.False(t, pause(ctx, time.Hour))
	require.True(t, pause(t.Context(), 0))
}
