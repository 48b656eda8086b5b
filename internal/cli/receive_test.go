package cli_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// An event subscription of pull delivery on the command line.
func TestQueueSubscriptions(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.run(0, "topic", "create", "pulled", "--input-schema", "CloudEventSchemaV1_0")
	rejected := h.run(1, "subscription", "create", "pulled", "audit", "--delivery-mode", "queue",
		"--lock-duration", "301", "--max-delivery-count", "11")
	require.Contains(t, rejected.stderr, "receiveLockDurationInSeconds: must be between 60 and 300, not 301")
	require.Contains(t, rejected.stderr, "queue.maxDeliveryCount: must be between 1 and 10")
	h.run(0, "subscription", "create", "pulled", "audit", "--delivery-mode", "queue", "--lock-duration", "90",
		"--max-delivery-count", "3", "--event-time-to-live", "P1D")
	shown := words(h.run(0, "subscription", "show", "pulled", "audit").stdout)
	for _, line := range []string{
		"mode Queue", "lock duration (s) 90", "delivery attempts 3", "time to live (min) 1440",
		"retry policy namespace-2023", "state Succeeded",
	} {
		require.Contains(t, shown, line)
	}
	require.NotContains(t, shown, "events per batch 1")
	require.Contains(t, words(h.run(0, "subscription", "list", "pulled").stdout),
		"pulled audit pull namespace-2023 3 1440 Succeeded -")
	require.Contains(t, h.run(1, "subscription", "validate", "pulled", "audit").stderr, "has no endpoint")

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
	h.run(0, "subscription", "update", "pulled", "audit", "--delivery-mode", "push", "--endpoint", h.url+"/healthz",
		"--endpoint-validation", "skip")
	h.run(0, "subscription", "update", "pulled", "audit", "--delivery-mode", "queue", "--unset", "endpointUrl")
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
	h.exec("UPDATE postrider_internal.river_job SET scheduled_at = now() WHERE kind = 'lock'")
	eventually(t, "the lock expires", func() bool { return state() == "consumer 4" })
	require.Contains(t, receive("--ack"), "5      e1")
	require.Equal(t, "delivered 5", state())
	none := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"value":[]}`))
	}))
	defer none.Close()
	require.Equal(t, "No event within 10s.\n",
		h.run(0, "receive", "received", "ledger", "--wait", "10s", "--url", none.URL).stderr)

	follow := h.start("receive", "received", "ledger", "--follow", "--ack", "-o", "json")
	for i := range 3 {
		h.publish("received", key, strings.ReplaceAll(event, "e1", fmt.Sprint("f", i)))
	}
	follow.stdout.await(t, 3, "orders/1")
	eventually(t, "the events are acknowledged", func() bool {
		return one[int](h, "SELECT count(*) FROM postrider.deliveries WHERE topic = 'received' AND state = 'delivered'") == 4
	})
	require.Zero(t, follow.stop())

	h.publish("received", key, event)
	h.run(0, "reject", "received", "ledger", lastWord(receive("--lock")))
	require.Equal(t, 1, one[int](h, "SELECT count(*) FROM postrider.dead_letters WHERE topic = 'received'"))
	require.Contains(t, h.run(2, "receive", "received", "ledger", "--follow").stderr, "requires --ack or --lock")
	require.Contains(t, h.run(2, "receive", "received", "ledger", "--ack", "--lock").stderr, "--ack")
}
