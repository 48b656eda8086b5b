package jobs_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"postrider/internal/testnode"

	"github.com/stretchr/testify/require"
)

// endpoint is an HTTP server that records its requests.
type endpoint struct {
	*httptest.Server
	mu   sync.Mutex
	seen []request
}

type request struct {
	method, uri string
	header      http.Header
	body        string
}

// eventID is the id of the event in the body, alone or in an array of one.
func (r request) eventID() string {
	var e struct{ ID string }
	_ = json.Unmarshal([]byte(strings.TrimSuffix(strings.TrimPrefix(r.body, "["), "]")), &e)
	return e.ID
}

// newEndpoint serves until the test ends. It calls respond once the request was read and recorded.
func newEndpoint(t *testing.T, respond func(http.ResponseWriter, request)) *endpoint {
	t.Helper()
	e := &endpoint{}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // cut by the client
		}
		got := request{method: r.Method, uri: r.RequestURI, header: r.Header.Clone(), body: string(body)}
		e.mu.Lock()
		e.seen = append(e.seen, got)
		e.mu.Unlock()
		respond(w, got)
	}))
	t.Cleanup(e.Close)
	return e
}

func (e *endpoint) requests() []request {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.seen)
}

// delivered returns the requests with events, without validation and deletion events.
func (e *endpoint) delivered() []request {
	return slices.DeleteFunc(e.requests(),
		func(r request) bool { return r.header.Get("Aeg-Event-Type") != "Notification" })
}

// respondWith responds with one status.
func respondWith(status int) func(http.ResponseWriter, request) {
	return func(w http.ResponseWriter, _ request) { w.WriteHeader(status) }
}

// statusOfPath responds to /503 with 503.
func statusOfPath(w http.ResponseWriter, r request) {
	status, err := strconv.Atoi(strings.TrimPrefix(r.uri, "/"))
	if err != nil {
		status = http.StatusTeapot
	}
	w.WriteHeader(status)
}

// hanging keeps requests waiting until letGo; begun gets each of them.
type hanging struct {
	begun   chan request
	release chan struct{}
	once    sync.Once
}

// newHanging returns an endpoint that responds only after letGo, which runs before the server closes and waits for its
// handlers.
func newHanging(t *testing.T, respond func(http.ResponseWriter, request)) (*endpoint, *hanging) {
	t.Helper()
	h := &hanging{begun: make(chan request, 1000), release: make(chan struct{})}
	e := newEndpoint(t, func(w http.ResponseWriter, r request) {
		h.begun <- r
		<-h.release
		respond(w, r)
	})
	t.Cleanup(h.letGo)
	return e, h
}

// await waits for an event of the test.
func await[T any](t *testing.T, events <-chan T) T {
	t.Helper()
	select {
	case event := <-events:
		return event
	case <-time.After(testnode.Timeout):
		require.FailNow(t, "it did not happen")
		panic("unreachable")
	}
}

func (h *hanging) letGo() { h.once.Do(func() { close(h.release) }) }

// eventIDs returns the ids of the events that the endpoint got, sorted.
func (e *endpoint) eventIDs() []string {
	var ids []string
	for _, r := range e.requests() {
		ids = append(ids, r.eventID())
	}
	slices.Sort(ids)
	return ids
}

func requireOneRequest(t *testing.T, e *endpoint) request {
	t.Helper()
	seen := e.requests()
	require.Len(t, seen, 1)
	return seen[0]
}
