package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPublishToNamespaceTopics(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key := b.topic("shop", `{"kind":"namespace"}`)
	require.Equal(t, "/topics/shop:publish",
		b.manage(http.MethodGet, "/v1/topics/shop", "").json(http.StatusOK)["endpoint"])
	b.subscription("shop", "all", `{"endpointUrl":"https://example.com"}`)
	binary := []string{"ce-specversion", "1.0", "ce-id", "d", "ce-source", "/shop", "ce-type", "t", "Content-Type"}
	for name, row := range map[string]struct {
		query, body string
		headers     []string
	}{
		"one": {
			"?api-version=2023-11-01", cloudEvent("a"), []string{"Content-Type", "application/cloudevents+json; charset=utf-8"},
		},
		"a batch": {"?api-version=2024-06-01", "[" + cloudEvent("b") + "," + cloudEvent("c") +
			"]", []string{"Content-Type", "application/cloudevents-batch+json; charset=utf-8"}},
		"binary":                     {"", `{"n":1.50}`, append(binary, "application/json")},
		"binary without JSON's type": {"", "text", append(binary, "text/plain", "ce-id", "e")},
	} {
		response := b.send(http.MethodPost, "/topics/shop:publish"+row.query, row.body,
			append(row.headers, "Authorization", "SharedAccessKey "+key)...)
		require.Empty(t, response.json(http.StatusOK), name)
	}
	require.Equal(t, 5, b.count("SELECT count(*) FROM postrider.deliveries"))
	require.Equal(t, 1,
		b.count("SELECT count(*) FROM postrider.events WHERE event_id = 'd' AND body_text LIKE '%\"data\":{\"n\":1.50}}'"))
}

func TestPublishToTheWrongPath(t *testing.T) {
	t.Parallel()
	b := setup(t)
	basic, namespace := b.topic("cloud", `{"inputSchema":"CloudEventSchemaV1_0"}`), b.topic("shop", `{"kind":"namespace"}`)
	const structured = "application/cloudevents+json"
	send := func(path, key, contentType string) response {
		return b.send(http.MethodPost, path, cloudEvent("1"), "Content-Type", contentType, "aeg-sas-key", key)
	}
	require.Contains(t, send("/topics/cloud:publish", basic, structured).rejected(400, "InvalidRequest").Message,
		"is of kind basic: publish to /topics/cloud/api/events")
	require.Contains(t, send("/topics/shop/api/events", namespace, structured).rejected(400, "InvalidRequest").Message,
		"is of kind namespace: publish to /topics/shop:publish")
	require.Contains(t,
		send("/topics/shop:publish", namespace, "application/json").rejected(415, "UnsupportedMediaType").Message,
		"application/cloudevents+json")
	require.Contains(t,
		send("/topics/shop:publish?api-version=2018-01-01", namespace, structured).rejected(400, "InvalidRequest").Message,
		"2023-11-01 or 2024-06-01")
	send("/topics/shop:receive", namespace, structured).rejected(404, "NotFound")
	send("/topics/shop", namespace, structured).rejected(404, "NotFound")
	send("/topics/nothing:publish", namespace, structured).rejected(401, "Unauthorized")
	send("/topics/shop:publish", basic, structured).rejected(401, "Unauthorized")
	send("/topics/cloud:publish", namespace, structured).rejected(401, "Unauthorized")
	b.send(http.MethodPost, "/topics/shop:publish", cloudEvent("1"), "Content-Type", structured).
		rejected(401, "Unauthorized")
	require.Zero(t, b.count("SELECT count(*) FROM postrider.events"))
}

// Event Grid takes 1,000 events in such a request, and 5,000 in one to a custom topic. Here one limit is for all.
func TestPublishManyToANamespaceTopic(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key := b.topic("shop", `{"kind":"namespace"}`)
	many := func(n int) string { return "[" + strings.TrimSuffix(strings.Repeat(cloudEvent("a")+",", n), ",") + "]" }
	headers := []string{"Content-Type", "application/cloudevents-batch+json", "aeg-sas-key", key}
	require.Equal(t, http.StatusOK, b.send(http.MethodPost, "/topics/shop:publish", many(1001), headers...).status)
	require.Equal(t, 1001, b.count("SELECT count(*) FROM postrider.events"))
	b.send(http.MethodPost, "/topics/shop:publish", many(5001), headers...).rejected(413, "PayloadTooLarge")
}
