package cli_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPublish(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	key := h.topic("published")
	file := writtenFile(t, cloudEvent("p1")+"\n[]\n["+cloudEvent("p2")+",\n"+cloudEvent("p3")+"]")
	summary := h.object("publish", "published", file, "--batch", "2")
	require.Equal(t, []any{3.0, 3.0, 0.0, 2.0},
		[]any{summary["sent"], summary["accepted"], summary["failed"], summary["requests"]})
	body := one[string](h, "SELECT body_text FROM postrider.events WHERE topic = 'published' AND event_id = 'p2'")
	require.Equal(t, cloudEvent("p2"), body, "to the last byte")

	require.NotContains(t, h.run(0, "publish", "published", file, "-o", "json").stdout, "delivery list")
	require.Contains(t, h.run(0, "publish", "published", file, "--batch", "2").stdout,
		"Event p1: postrider delivery list --event-id p1\nEvent p2: postrider delivery list --event-id p2\nEvent p3: ")

	many := h.run(0, "publish", "published", "--sample", "--count", "30", "--rate", "200").stdout
	require.Regexp(t, `(?s)(Event (\S+): postrider delivery list --event-id \S+\n){10}… and 20 more events\n$`, many)
	h.run(0, "publish", "published", "--type", "Shop.Opened", "--subject", "shops/1", "--data",
		`{"n": 12345678901234567890}`)
	require.Contains(t,
		one[string](h, "SELECT body_text FROM postrider.events WHERE topic = 'published' AND event_type = 'Shop.Opened'"),
		"12345678901234567890")
	require.Equal(t, 40, one[int](h, "SELECT count(*)::int FROM postrider.events WHERE topic = 'published'"))

	wrong := writtenFile(t,
		cloudEvent("p4")+cloudEvent("p5")+`{"specversion":"1.0","id":"p6","source":"/s"}`+cloudEvent("p7"))
	require.Contains(t, h.run(1, "publish", "published", wrong, "--batch", "1").stderr,
		"event 3 was not accepted: event 3.type: is required")
	require.Equal(t, 2,
		one[int](h, "SELECT count(*)::int FROM postrider.events WHERE topic = 'published' "+
			"AND event_id IN ('p4', 'p5', 'p7')"), "it stops there")
	require.Contains(t, h.run(1, "publish", "published", wrong, "--batch", "1", "--keep-going").stdout,
		"4 events to topic published")
	require.Equal(t, 1,
		one[int](h, "SELECT count(*)::int FROM postrider.events WHERE topic = 'published' AND event_id = 'p7'"))
	odd := h.run(0, "publish", "published", writtenFile(t, cloudEvent("it's; p11"))).stdout
	require.Contains(t, odd, `--event-id 'it'\''s; p11'`+"\n")
	broken := h.run(1, "publish", "published", writtenFile(t, cloudEvent("p8")+`{"id":`))
	require.Contains(t, broken.stderr, "the file ends within an event")
	require.Contains(t, broken.stdout, "1 accepted", "something was done: that is no wrong usage")
	require.Empty(t, h.run(2, "publish", "published", writtenFile(t, cloudEvent("p10")), "/none").stdout)
	require.Empty(t, h.run(2, "publish", "published", writtenFile(t, "no event")).stdout)
	require.Zero(t, one[int](h, "SELECT count(*)::int FROM postrider.events WHERE event_id = 'p10'"),
		"files are opened before anything is sent")

	onlyTheKey := postrider(t, "publish", "published", "--url", h.url, "--api-key", "none", "--key", key,
		writtenFile(t, cloudEvent("p9")))
	require.Zero(t, onlyTheKey.code, onlyTheKey.stderr)
	h.run(1, "publish", "published", file, "--key", "wrong")
	require.Zero(t,
		one[int](h, "SELECT count(*)::int FROM postrider.audit WHERE action = 'topic_keys_shown' AND topic = 'published'"),
		"the API key publishes by itself")
}

// A key of scope publish may not read the topic it publishes to.
func TestPublishByAPIKey(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.manage(http.StatusCreated, http.MethodPut, "/v1/topics/by-key", "{}")
	h.topic("published")
	publishing := " --api-key " + h.apiKey("publish")
	for _, args := range []string{
		"by-key --sample --count 2", "by-key --type Shop.Opened --subject shops/1",
		"published " + writtenFile(t, cloudEvent("by-key")),
	} {
		h.line(0, "publish "+args+publishing)
	}
	require.Equal(t, "by-key 3, published 1", h.Text(t, "SELECT string_agg(topic || ' ' || n, ', ' ORDER BY topic) "+
		"FROM (SELECT topic, count(*) AS n FROM postrider.events GROUP BY 1) topics"))
	require.Contains(t, h.line(1, "publish by-key --sample --api-key "+h.apiKey("operate")),
		"publishing needs scope publish, or admin")
}
