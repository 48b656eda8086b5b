package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/event"
	"postrider/internal/ledger"
)

// TestLoad publishes to an endpoint instead of the service: what is accepted, rejected and lost is counted.
func TestLoad(t *testing.T) {
	t.Parallel()
	sink, receivedFile := newReceiver(t)
	var requests atomic.Int64
	var nodes []*child
	var used [2]atomic.Int64
	node := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		switch n := requests.Add(1); {
		case err != nil || r.Header.Get("aeg-sas-key") != "secret":
			w.WriteHeader(http.StatusUnauthorized)
		case n == 3:
			panic(http.ErrAbortHandler) // the connection breaks: the outcome is unknown
		case n == 5 || n == 6:
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			_ = sink.note("/a", body, true, false, time.Now())
		}
	})
	for i := range used {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			used[i].Add(1)
			node(w, r)
		}))
		t.Cleanup(server.Close)
		nodes = append(nodes, &child{api: server.URL})
	}
	publishedFile := filepath.Join(t.TempDir(), "published")
	published, err := ledger.Create(publishedFile)
	require.NoError(t, err)
	ctx, fail := context.WithCancelCause(t.Context())
	l := (&load{
		targets: []target{{url: nodes[0].api + "/topics/bench/api/events", key: "secret", prefixes: []string{"a/"}}},
		clients: 4, events: 100, eventBytes: 1024, eventsPerRequest: 2, ledger: published,
	}).publish(&system{ctx: ctx, fail: fail, nodes: nodes})
	require.NoError(t, ctx.Err())
	require.Equal(t, []int64{94, 4, 2}, []int64{l.published, l.rejected, l.failed})
	require.Error(t, l.firstError)
	require.Len(t, l.took, 47)
	require.Positive(t, l.stall)
	require.Positive(t, used[0].Load())
	require.Positive(t, used[1].Load(), "publishers use all nodes")
	require.NoError(t, published.Close())
	_, err = sink.close()
	require.NoError(t, err)
	verdict, err := ledger.CompareFiles(publishedFile, receivedFile)
	require.NoError(t, err)
	require.Equal(t, ledger.Verdict{Published: 94, Received: 94}, verdict)
}

// TestOpenLoop: in an open loop an event is due by the clock, however late its turn comes.
func TestOpenLoop(t *testing.T) {
	t.Parallel()
	l := &load{rate: 100, duration: time.Second, from: time.Now().Add(-time.Minute)}
	due, more := l.due(t.Context(), 10)
	require.True(t, more)
	require.Equal(t, l.from.Add(100*time.Millisecond), due, "and not now: the wait for its turn counts as latency")
	_, more = l.due(t.Context(), 100)
	require.False(t, more, "after the duration")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l.from = time.Now().Add(time.Hour)
	_, more = l.due(ctx, 0)
	require.False(t, more, "not yet due, and cut while it waits")
}

// TestEventsHaveOneSize: the smallest events fit the longest names.
func TestEventsHaveOneSize(t *testing.T) {
	t.Parallel()
	const url = "http://h/topics/failing-20-abcdefgh/api/events"
	for _, tc := range []struct {
		target target
		schema event.Schema
		media  string
	}{
		{target{url: url, subject: "/sub-00000/load"}, event.EventGrid, "application/json"},
		{target{url: url, cloud: true}, event.CloudEvents, "application/cloudevents-batch+json"},
	} {
		w := newEventWriter(tc.target, 320)
		for _, number := range []int64{0, 9, 123_456_789_012} {
			text := w.append(nil, newRunID(), number, time.Now())
			require.Len(t, text, 320)
			input := event.Input{Schema: tc.schema, Topic: "failing-20-abcdefgh"}
			parsed, err := input.Parse(tc.media, []byte("["+string(text)+"]"))
			require.NoError(t, err)
			require.Equal(t, string(text[len(w.head):len(w.head)+idLength]), parsed[0].ID)
			eachEvent(text, func(found, id []byte, at int64) {
				require.Equal(t, string(text), string(found))
				require.Equal(t, parsed[0].ID, string(id))
				require.Positive(t, at)
			})
		}
	}
}
