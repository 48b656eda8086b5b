package cli

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/cmd/postrider/cli/rest"
)

// What was not answered, or only with "later", is sent again as the same request.
func TestPublishIsSentAgainUnderTheSameKey(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var keys, bodies []string
	answers := []int{http.StatusServiceUnavailable, 0, http.StatusTooManyRequests, http.StatusOK, http.StatusOK}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		status := answers[len(keys)]
		keys, bodies = append(keys, r.Header.Get("Idempotency-Key")), append(bodies, string(body))
		if status == 0 {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(server.Close)
	client, err := rest.ServerFlags{Server: server.URL}.Client()
	require.NoError(t, err)
	p := &publisher{
		client: client, target: &publishTarget{name: "orders", path: "/topics/orders/api/events", key: "k"}, batch: 2,
		retryFor: time.Minute, run: newRunID(),
	}
	left := []string{`{"specversion":"1.0","n":1.0}`, `{"n":2}`, `{"n":3}`}
	require.NoError(t, p.publish(t.Context(), givenEvents(func() ([]byte, error) {
		if len(left) == 0 {
			return nil, io.EOF
		}
		event := left[0]
		left = left[1:]
		return []byte(event), nil
	})))
	require.Equal(t, []string{keys[0], keys[0], keys[0], keys[0]}, keys[:4])
	require.NotEqual(t, keys[0], keys[4])
	require.Equal(t,
		[]string{`[{"specversion":"1.0","n":1.0},{"n":2}]`, bodies[0], bodies[0], bodies[0], `[{"n":3}]`}, bodies)
	require.Equal(t, []int{3, 3, 0, 2}, []int{p.tally.sent, p.tally.accepted, p.tally.failed, p.tally.requests})
	// net/http repeats a request with this header by itself where a connection was lost
	require.GreaterOrEqual(t, p.tally.retries, 2)
	require.Equal(t, "CloudEventSchemaV1_0", p.target.schema, "events tell their schema")
}

// Who gets no answer in the end must not be told that nothing was stored.
func TestPublishSaysWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	for status, says := range map[int]string{
		http.StatusBadRequest: "event 7 was not accepted: ", http.StatusTooManyRequests: "event 7 was not accepted: ",
		http.StatusServiceUnavailable: "it is not known whether event 7 was accepted: ",
	} {
		require.ErrorContains(t, &refusedEventsError{7, 7, &rest.Error{Status: status, Message: "no"}}, says)
	}
	require.ErrorContains(t, &refusedEventsError{7, 9, io.ErrUnexpectedEOF},
		"it is not known whether events 7 to 9 were accepted: ")
	require.ErrorContains(t,
		&refusedEventsError{7, 9, &rest.Error{Status: http.StatusBadRequest, Message: "events[2].type: is required"}},
		"event 9.type: is required")
}

type givenEvents func() ([]byte, error)

func (f givenEvents) next() ([]byte, error) { return f() }

func TestPublishGathersUpToAMegabyte(t *testing.T) {
	t.Parallel()
	large := `{"a":"` + strings.Repeat("x", 400_000) + `"}`
	p := &publisher{}
	n := 0
	source := givenEvents(func() ([]byte, error) {
		if n++; n > 5 {
			return nil, io.EOF
		}
		return []byte(large), nil
	})
	var sizes []int
	for {
		body, events, end := p.gather(source, 100)
		require.True(t, json.Valid(body))
		require.LessOrEqual(t, len(body), maxBatchBytes)
		sizes = append(sizes, events)
		if errors.Is(end, io.EOF) {
			break
		}
	}
	require.Equal(t, []int{2, 2, 1}, sizes)
}
