package e2e

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// Microsoft's client for namespaces, for JavaScript. It gives data without a content type that of the request,
// and leaves extension attributes out; what it does send is stored and delivered as it is.
func TestConformanceAzureEventGridNamespacesForJavaScript(t *testing.T) {
	t.Parallel()
	to := startReceiver(t)
	db := migratedDatabase(t)
	n := startNode(t, db)
	key := n.makeTopic("orders", `{"kind":"namespace","inputSchema":"CloudEventSchemaV1_0"}`)
	classic := n.topic("classic")
	n.subscribeAs("orders", "lone", "CloudEventSchemaV1_0", to.url+"/cloudevents", 1)
	n.subscribeAs("orders", "batched", "CloudEventSchemaV1_0", to.url+"/cloudevents", 10)

	c := &clientCases{t, map[string]*clientCase{}}
	for _, name := range []string{"one", "many", "binary", "no content type", "an event without a type"} {
		c.add(name, &n.service, "", key, "topic", "orders")
	}
	c.add("wrong key", &n.service, "", classic, "topic", "orders")
	c.add("no such topic", &n.service, "", key, "topic", "nothing")
	c.add("not a namespace topic", &n.service, "", classic, "topic", "classic")
	c.run("namespaces.mjs")

	events := c.sent("one", "many", "binary", "no content type")
	require.Len(t, events, 5)
	db.stored("orders", events)
	c.failed("wrong key", http.StatusUnauthorized, "Unauthorized", "access key")
	c.failed("no such topic", http.StatusUnauthorized, "Unauthorized", "the topic does not exist")
	c.failed("an event without a type", http.StatusBadRequest, "InvalidEvent", "type")
	c.failed("not a namespace topic", http.StatusBadRequest, "InvalidRequest", "/topics/classic/api/events")

	lone := to.deliveries("lone", len(events))
	require.ElementsMatch(t, events, bodies(lone))
	var batched []string
	for _, d := range to.deliveries("batched", len(events)) {
		batched = append(batched, members(t, []byte(d.Body))...)
	}
	require.ElementsMatch(t, events, batched)
	byID := map[string]map[string]any{}
	for _, d := range lone {
		byID[d.Events[0]["id"].(string)] = d.Events[0]
	}
	require.Equal(t, map[string]any{"text": "Grüße 🚀", "n": 1.5}, byID["n1"]["data"])
	require.Equal(t, "AAH+/w==", byID["n4"]["data_base64"])
	require.Equal(t, "application/cloudevents+json; charset=utf-8", byID["n5"]["datacontenttype"])
}
