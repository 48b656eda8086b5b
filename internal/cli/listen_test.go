package cli_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/local"
)

func TestListen(t *testing.T) {
	t.Parallel()
	h := newDelivering(t)
	key := h.topic("heard")
	const exists = "SELECT count(*)::int FROM postrider.event_subscriptions WHERE topic = 'heard' AND subscription LIKE $1"
	start := func(flags ...string) (*running, string) {
		r := h.start(append([]string{"listen", "--listen", "127.0.0.1:0"}, flags...)...)
		notes := &r.stdout
		if slices.Contains(flags, "json") {
			notes = &r.stderr
		}
		return r, listeningAt.FindString(notes.await(t, 1, "Listening at ")[0])
	}
	last, lastURL := start("-o", "json", "--respond", "503,200")
	first, _ := start("--topic", "heard", "--name", "first", "--event-delivery-schema", "CloudEventSchemaV1_0",
		"--forward-to", lastURL+"/hook", "-v")
	first.stdout.await(t, 1, "responded to the validation handshake")
	first.stdout.await(t, 1, "Event subscription first of topic heard delivers here")
	require.Equal(t, 1, one[int](h, exists, "first"))
	h.publish("heard", key, cloudEvent("h1"))
	first.stdout.await(t, 1, "<-- 503")
	eventually(t, "the attempt is recorded", func() bool {
		return one[int](h, "SELECT count(*)::int FROM postrider.deliveries WHERE topic = 'heard' AND state = 'pending' "+
			"AND attempts = 1") == 1
	})
	h.exec("SELECT postrider.retry_now(delivery_id) FROM postrider.deliveries WHERE topic = 'heard' AND state = 'pending'")
	first.stdout.await(t, 1, "<-- 200")
	printed, _ := first.stdout.read()
	require.Regexp(t, `--> shop\.order\.placed - h1 \(\S+, attempt 1\)`, printed)
	require.Contains(t, printed, `"specversion": "1.0"`)
	var heard struct {
		EventID         string `json:"eventId"`
		Attempt, Status int
	}
	require.NoError(t, json.Unmarshal([]byte(last.stdout.await(t, 2, "h1")[1]), &heard))
	require.Equal(t, []any{"h1", 2, 200}, []any{heard.EventID, heard.Attempt, heard.Status})
	require.Zero(t, first.stop())
	require.Zero(t, one[int](h, exists, "first"), "it is deleted at the end")
	require.Zero(t, last.stop())
}

var listeningAt = regexp.MustCompile(`http://[0-9.:]+`)

// busyEndpoint responds to handshakes, and 503 to all other requests.
func busyEndpoint(t *testing.T) string {
	t.Helper()
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if !local.RespondToHandshake(w, r, body) {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(endpoint.Close)
	return endpoint.URL + "/"
}

func TestTail(t *testing.T) {
	t.Parallel()
	h := newDelivering(t)
	key := h.topic("followed")
	h.subscribe("followed", "refusing", busyEndpoint(t))
	tail := h.start("tail", "--topic", "followed")
	filtered := h.start("tail", "--state", "dead_lettered,dropped", "-o", "json")
	for _, verb := range []*running{tail, filtered} {
		verb.stderr.await(t, 1, "Following")
	}
	h.publish("followed", key, cloudEvent("f1"))
	tail.stdout.await(t, 1, "--> followed")
	require.Regexp(t, `f1 attempt 1: 503 Busy in \d`, tail.stdout.await(t, 1, "<-- followed/refusing")[0])
	printed, _ := filtered.stdout.read()
	require.NotContains(t, printed, "followed", "a retry is no end")
	for _, verb := range []*running{tail, filtered} {
		require.Zero(t, verb.stop())
	}
}
