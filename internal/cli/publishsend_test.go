package cli

import (
	"encoding/json"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/cli/rest"
	"postrider/internal/terminal"
	"postrider/server/api"
)

// A request without a response, or with a retryable one, is repeated unchanged.
func TestPublishRepeatsRequestsWithTheSameKey(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var keys, bodies []string
	statuses := []int{http.StatusServiceUnavailable, 0, http.StatusTooManyRequests, http.StatusOK, http.StatusOK}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		status := statuses[len(keys)]
		keys, bodies = append(keys, r.Header.Get("Idempotency-Key")), append(bodies, string(body))
		if status == 0 {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(server.Close)
	client, err := rest.ServerFlags{URL: server.URL}.Client()
	require.NoError(t, err)
	p := &publisher{
		PublishCmd: &PublishCmd{Topic: "orders", Key: "k", Batch: 2, RetryFor: time.Minute}, client: client,
		path: "/topics/orders/api/events", progress: &terminal.ProgressLine{},
	}
	require.NoError(t, p.publish(t.Context(),
		givenEvents(`{"specversion":"1.0","n":1.0}`, `{"n":2}`, `{"n":3}`)))
	require.Equal(t, []string{keys[0], keys[0], keys[0], keys[0]}, keys[:4])
	require.NotEqual(t, keys[0], keys[4])
	require.Equal(t,
		[]string{`[{"specversion":"1.0","n":1.0},{"n":2}]`, bodies[0], bodies[0], bodies[0], `[{"n":3}]`}, bodies)
	require.Equal(t, []int{3, 3, 0, 2}, []int{p.done.Sent, p.done.Accepted, p.done.Failed, p.done.Requests})
	// net/http repeats a request with this header by itself where a connection was lost
	require.GreaterOrEqual(t, p.done.Retries, 2)
	require.Equal(t, "CloudEventSchemaV1_0", p.schema, "the schema of the first event")
}

// Without a response, the error does not claim that nothing was stored.
func TestPublishReportsAnUnknownResult(t *testing.T) {
	t.Parallel()
	for status, says := range map[int]string{
		http.StatusBadRequest: "event 7 was not accepted: ", http.StatusTooManyRequests: "event 7 was not accepted: ",
		http.StatusServiceUnavailable: "it is unknown whether event 7 was accepted: ",
	} {
		cause := &rest.Error{Status: status, Body: api.Error{Message: "no"}}
		require.ErrorContains(t, &rejectedEventsError{7, 7, cause}, says)
	}
	require.ErrorContains(t, &rejectedEventsError{7, 9, io.ErrUnexpectedEOF},
		"it is unknown whether events 7 to 9 were accepted: ")
	require.ErrorContains(t,
		&rejectedEventsError{7, 9, &rest.Error{
			Status: http.StatusBadRequest, Body: api.Error{Message: "events[2].type: is required"},
		}},
		"event 9.type: is required")
}

func givenEvents(events ...string) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for _, event := range events {
			if !yield([]byte(event), nil) {
				return
			}
		}
	}
}

func TestPublishGroupsEventsUpToAMegabyte(t *testing.T) {
	t.Parallel()
	large := `{"a":"` + strings.Repeat("x", 400_000) + `"}`
	var sizes []int
	for request, err := range requests(givenEvents(large, large, large, large, large), 100) {
		require.NoError(t, err)
		require.True(t, json.Valid(request.body))
		require.LessOrEqual(t, len(request.body), maxRequestBytes)
		sizes = append(sizes, request.n)
	}
	require.Equal(t, []int{2, 2, 1}, sizes)
}

// FuzzFileEvents: a file of events is read to its end or rejected, and each event is one JSON object.
func FuzzFileEvents(f *testing.F) {
	for _, text := range []string{"", "[]", `{"a":1}`, `[{"a":1},{"b":2}] {"c":3}` + "\n" +
		`{"d":4}`, "[[{}]]", `[{"a":1}`, "\ufeff{}", "null", strings.Repeat("[", 100)} {
		f.Add(text)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text string) {
		name := filepath.Join(dir, "events.json")
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		n := 0
		for event, err := range fileEvents(nil, []string{name}) {
			if n++; err != nil {
				return
			}
			require.Equal(t, byte('{'), event[0])
			require.True(t, json.Valid(event))
		}
		require.LessOrEqual(t, n, len(text)+1, "a file has more events than bytes")
	})
}
