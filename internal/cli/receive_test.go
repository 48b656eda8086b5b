package cli_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/local"
	"postrider/internal/testnode"
)

// An event subscription of pull delivery on the command line.
func TestQueueSubscriptions(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.line(0, "topic create pulled --input-schema CloudEventSchemaV1_0")
	const create = "subscription create pulled audit --delivery-mode queue "
	rejected := h.line(2, create+"--lock-duration 301 --max-delivery-count 11")
	require.Contains(t, rejected, "receiveLockDurationInSeconds: must be between 60 and 300, not 301")
	require.Contains(t, rejected, "queue.maxDeliveryCount: must be between 1 and 10")
	h.line(0, create+"--lock-duration 90 --max-delivery-count 3 --event-time-to-live P1D")
	shown := words(h.line(0, "subscription show pulled audit"))
	require.Subset(t, shown, []string{
		"mode Queue", "lock duration (s) 90", "delivery attempts 3", "time to live (min) 1440",
		"retry policy namespace-2023", "state Succeeded",
	})
	require.NotContains(t, shown, "events per batch 1")
	require.Contains(t, words(h.line(0, "subscription list pulled")),
		"pulled audit pull - namespace-2023 3 1440 Succeeded - -")
	require.Contains(t, h.line(1, "subscription validate pulled audit"), "has no endpoint")

	const of = "subscriptions: [{topic: pulled, name: audit, deliveryConfiguration: {deliveryMode: Queue, queue: {"
	plan := func(code int, file string) string {
		return h.run(code, "apply", "-f", writtenFile(t, file), "--dry-run").stdout
	}
	require.Contains(t, plan(0, of+`receiveLockDurationInSeconds: 90, maxDeliveryCount: 3, eventTimeToLive: P1D}}}]`),
		"(0 to create, 0 to change, 0 to delete, 1 unchanged)")
	require.Contains(t, plan(3, of+`maxDeliveryCount: 4, eventTimeToLive: P1D}}}]`),
		"~ subscription pulled/audit\n    ~ deliveryConfiguration.queue.receiveLockDurationInSeconds: 90 → 60\n"+
			"    ~ retryPolicy.maxDeliveryAttempts: 3 → 4\n(0 to create, 1 to change")
	toPush := plan(3, "subscriptions: [{topic: pulled, name: audit, endpointUrl: '"+h.url+"/healthz'}]")
	require.Contains(t, toPush, "    ~ deliveryConfiguration.deliveryMode: \"Queue\" → \"Push\"\n")
	require.Contains(t, toPush, "    + endpointUrl: ")
	const update = "subscription update pulled audit --delivery-mode "
	h.line(0, update+"push --endpoint-validation skip --endpoint "+h.url+"/healthz")
	h.line(0, update+"queue --unset endpointUrl")
}

// The verbs of consumers print events as they were published, and end their locks as their flags say.
func TestReceive(t *testing.T) {
	t.Parallel()
	h := newDelivering(t)
	key := h.topic("received")
	h.run(0, "subscription", "create", "received", "ledger", "--delivery-mode", "queue")
	state := func() string {
		return one[string](h, `SELECT coalesce(string_agg(DISTINCT coalesce(waits_for, state) || ' ' || attempts, ', '),
			'') FROM postrider.deliveries WHERE topic = 'received'`)
	}
	receive := func(flags ...string) string {
		return h.run(0, append([]string{"receive", "received", "ledger", "--wait", "10s"}, flags...)...).stdout
	}
	event := `{"specversion":"1.0","id":"e1","source":"/s","type":"placed","subject":"orders/1","data":{"n":1.50e2}}`
	h.publish("received", key, event)

	require.Regexp(t, `(?m)^COUNT +ID +TYPE +SUBJECT\n1 +e1 +placed +orders/1\n$`, receive())
	require.Equal(t, "consumer 1", state(), "released")
	require.Equal(t, event+"\n", receive("-o", "json"))

	lastWord := func(text string) string {
		return text[strings.LastIndexAny(strings.TrimSpace(text), " \n")+1 : len(text)-1]
	}
	token := lastWord(receive("--lock", "--key", key))
	require.Equal(t, "lock 2", state())
	require.Equal(t, "release: 1 event.\n", h.run(0, "release", "received", "ledger", token, "--key", key).stdout)
	require.Contains(t, h.run(1, "acknowledge", "received", "ledger", token).stderr,
		"acknowledge failed for 1 lock token; first: "+token+": TokenLost")
	require.Contains(t, receive("--lock", "-o", "json"), `"deliveryCount":4}`)
	h.Exec(t, "UPDATE postrider_internal.river_job SET scheduled_at = now() WHERE kind = 'lock'")
	testnode.Within(t, "the lock expires", func() bool { return state() == "consumer 4" })
	require.Contains(t, receive("--ack"), "5      e1")
	require.Equal(t, "delivered 5", state())
	none := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"value":[]}`))
	}))
	defer none.Close()
	require.Equal(t, "No event within 10s.\n", h.line(0, "receive received ledger --wait 10s --url "+none.URL))

	follow := h.start("receive", "received", "ledger", "--follow", "--ack", "-o", "json")
	for i := range 3 {
		h.publish("received", key, strings.ReplaceAll(event, "e1", fmt.Sprint("f", i)))
	}
	follow.stdout.await(t, 3, "orders/1")
	h.Become(t, 4, "SELECT count(*) FROM postrider.deliveries WHERE state = 'delivered'")
	require.Zero(t, follow.stop())

	h.publish("received", key, event)
	h.run(0, "reject", "received", "ledger", lastWord(receive("--lock")))
	require.Equal(t, 1, one[int](h, "SELECT count(*) FROM postrider.dead_letters WHERE topic = 'received'"))
}

func TestListen(t *testing.T) {
	t.Parallel()
	h := newDelivering(t)
	key := h.topic("heard")
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
	require.Equal(t, 1, h.Subscriptions(t, "name = 'first'"))
	h.publish("heard", key, cloudEvent("h1"))
	first.stdout.await(t, 1, "<-- 503")
	h.Become(t, 1, "SELECT count(*) FROM postrider.deliveries WHERE state = 'pending' AND attempts = 1")
	h.Exec(t, "SELECT postrider.retry_now(delivery_id) FROM postrider.deliveries WHERE state = 'pending'")
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
	require.Zero(t, h.Subscriptions(t, "name = 'first' AND deleted_at IS NULL"), "it is deleted at the end")
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
