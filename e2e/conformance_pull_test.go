package e2e

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	cloudTopic = `{"kind":"namespace","inputSchema":"CloudEventSchemaV1_0"}`
	queueMode  = `{"deliveryConfiguration":{"deliveryMode":"Queue"}}`
)

// pulled is an event as Microsoft's client returns it, without its attributes that are equal in all.
type pulled struct {
	ID            string
	Data          any
	DeliveryCount int
}

// settledTokens is the result of settling.
type settledTokens struct {
	SucceededLockTokens []string
	FailedLockTokens    []struct {
		LockToken string
		Error     struct{ Code string }
	}
}

// resultOf is what a program of a client returned.
func resultOf[T any](c *clientCases, name string) (result T) {
	c.t.Helper()
	require.Nil(c.t, c.cases[name].error, "%s: %+v", name, c.cases[name].error)
	require.NoError(c.t, json.Unmarshal(c.cases[name].result, &result), name)
	return result
}

// Microsoft's client for namespaces, for JavaScript, as a consumer: receive with and without a wait, acknowledge,
// release at once and with a delay, reject, and renew.
func TestConformanceAzureEventGridReceiverForJavaScript(t *testing.T) {
	t.Parallel()
	db := migratedDatabase(t)
	n := startNode(t, db)
	c := &clientCases{t, map[string]*clientCase{}}
	add := func(name, topic string) string {
		key := n.makeTopic(topic, cloudTopic)
		n.manage(http.StatusCreated, http.MethodPut, "/v1/topics/"+topic+"/subscriptions/billing", queueMode)
		c.add(name, &n.service, "", key, "topic", topic)
		return key
	}
	key := add("settle", "settled")
	add("wait", "waits")
	add("wait for nothing", "empty")
	add("abort", "aborts")
	other := add("too many", "rejections")
	c.add("wrong key", &n.service, "", other, "topic", "settled")
	c.add("no such event subscription", &n.service, "", n.makeTopic("bare", cloudTopic), "topic", "bare")
	push := n.makeTopic("pushed", cloudTopic)
	n.subscribeAs("pushed", "billing", "CloudEventSchemaV1_0", "https://example.com", 1)
	c.add("not a queue", &n.service, "", push, "topic", "pushed")
	require.NotEqual(t, key, other)
	c.run("pull.mjs")

	requireSettled(t, db, c)
	require.Equal(t, []pulled{{"awaited", pulledData, 1}}, resultOf[[]pulled](c, "wait"))
	require.Empty(t, resultOf[[]pulled](c, "wait for nothing"))
	require.Equal(t, []int{200}, c.cases["wait for nothing"].statuses())
	require.Equal(t, []pulled{{"after", pulledData, 1}}, resultOf[[]pulled](c, "abort"))
	c.failed("wrong key", http.StatusUnauthorized, "Unauthorized", "access key")
	c.failed("too many", http.StatusBadRequest, "InvalidRequest", "maxEvents must be an integer between 1 and 100")
	c.failed("no such event subscription", http.StatusNotFound, "NotFound", "has no event subscription")
	c.failed("not a queue", http.StatusBadRequest, "InvalidRequest", "deliveryMode Push")
}

var pulledData = map[string]any{"text": "<Grüße 🚀>", "n": 1.5}

// requireSettled requires the results of the case settle, and the states of its deliveries.
func requireSettled(t *testing.T, db *database, c *clientCases) {
	t.Helper()
	r := resultOf[struct {
		Token                                             map[string]string
		Events, Again, Later                              []pulled
		Renewed, Acked, Lost, Released, Delayed, Rejected settledTokens
	}](c, "settle")
	slices.SortFunc(r.Events, func(a, b pulled) int { return map[bool]int{true: -1, false: 1}[a.ID < b.ID] })
	require.Equal(t, []pulled{
		{"acked", pulledData, 1},
		{"binary", "AAH+/w==", 1},
		{"delayed", pulledData, 1},
		{"rejected", pulledData, 1},
		{"released", pulledData, 1},
	}, r.Events)
	require.Len(t, slices.Collect(maps.Values(r.Token)), 5)
	for name, tokens := range map[string]struct {
		result settledTokens
		ids    []string
	}{
		"renewed": {r.Renewed, []string{"acked"}}, "acked": {r.Acked, []string{"acked", "binary"}},
		"released": {r.Released, []string{"released"}}, "delayed": {r.Delayed, []string{"delayed"}},
		"rejected": {r.Rejected, []string{"rejected"}},
	} {
		var expected []string
		for _, id := range tokens.ids {
			expected = append(expected, r.Token[id])
		}
		require.Equal(t, expected, tokens.result.SucceededLockTokens, name)
		require.Empty(t, tokens.result.FailedLockTokens, name)
	}
	require.Empty(t, r.Lost.SucceededLockTokens)
	require.Len(t, r.Lost.FailedLockTokens, 2)
	require.Equal(t, "TokenLost", r.Lost.FailedLockTokens[0].Error.Code)
	require.Equal(t, "BadToken", r.Lost.FailedLockTokens[1].Error.Code)
	require.Equal(t, []pulled{{"released", pulledData, 2}}, r.Again)
	require.Equal(t, []pulled{{"delayed", pulledData, 2}}, r.Later)
	require.Equal(t, "acked delivered, binary delivered, delayed pending, rejected dead_lettered, released pending",
		one[string](db, "SELECT string_agg(event_id || ' ' || state, ', ' ORDER BY event_id) FROM postrider.deliveries "+
			"WHERE topic = 'settled'"))
}
