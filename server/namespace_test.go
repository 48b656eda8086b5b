package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A topic that takes CloudEvents takes one, a batch, and binary mode.
func TestPublishCloudEvents(t *testing.T) {
	t.Parallel()
	s := setup(t)
	basic, namespace := s.topic("cloud", `{"inputSchema":"CloudEventSchemaV1_0"}`), s.topic("shop", `{"kind":"namespace"}`)
	require.Equal(t, "/topics/shop:publish", s.get("/v1/topics/shop").json(200)["endpoint"])
	binary := []string{"ce-specversion", "1.0", "ce-id", "d", "ce-source", "/shop", "ce-type", "t", "Content-Type"}
	const one, batch = "application/cloudevents+json; charset=utf-8", "application/cloudevents-batch+json; charset=utf-8"
	for _, row := range []struct {
		path, body string
		headers    []string
	}{
		{"/topics/cloud/api/events", cloudEvent("a"), []string{"Content-Type", one}},
		{"/topics/cloud/api/events", "[" + cloudEvent("b") + "," + cloudEvent("c") + "]", []string{"Content-Type", batch}},
		{"/topics/cloud/api/events", cloudEvent("d"), []string{"Content-Type", "application/json"}},
		{"/topics/shop:publish?api-version=2023-11-01", cloudEvent("a"), []string{"Content-Type", one}},
		{
			"/topics/shop:publish?api-version=2024-06-01", "[" + cloudEvent("b") + "," + cloudEvent("c") + "]",
			[]string{"Content-Type", batch},
		},
		{"/topics/shop:publish", `{"n":1.50}`, append(binary, "application/json")},
		{"/topics/shop:publish", "text", append(binary, "text/plain", "ce-id", "e")},
	} {
		key := map[bool]string{true: basic, false: namespace}[strings.HasPrefix(row.path, "/topics/cloud")]
		response := s.send(http.MethodPost, row.path, row.body,
			append(row.headers, "Authorization", "SharedAccessKey "+key)...)
		response.is(200)
		if key == namespace {
			require.Empty(t, response.json(200))
		}
	}
	require.Equal(t, 9, s.count("SELECT count(*) FROM postrider.events WHERE schema = 'CloudEventSchemaV1_0' "+
		"AND source = '/shop'"))
	require.Equal(t, 2, s.count("SELECT count(*) FROM postrider.events WHERE body_text = $1", cloudEvent("c")))
	require.Equal(t, 1,
		s.count("SELECT count(*) FROM postrider.events WHERE event_id = 'd' AND topic = 'shop' "+
			"AND body_text LIKE '%\"data\":{\"n\":1.50}}'"))

	// Event Grid takes 1,000 events in such a request, and 5,000 in one to a custom topic. Here one limit is for all.
	many := func(n int) string { return "[" + strings.TrimSuffix(strings.Repeat(cloudEvent("a")+",", n), ",") + "]" }
	headers := []string{"Content-Type", batch, "aeg-sas-key", namespace}
	s.send(http.MethodPost, "/topics/shop:publish", many(1001), headers...).is(200)
	require.Equal(t, 1010, s.count("SELECT count(*) FROM postrider.events"))
	s.send(http.MethodPost, "/topics/shop:publish", many(5001), headers...).rejected(413, "PayloadTooLarge")
}

func TestPublishToTheWrongPath(t *testing.T) {
	t.Parallel()
	s := setup(t)
	basic, namespace := s.topic("cloud", `{"inputSchema":"CloudEventSchemaV1_0"}`), s.topic("shop", `{"kind":"namespace"}`)
	const structured = "application/cloudevents+json"
	for _, row := range []struct {
		path, key, contentType string
		status                 int
		code, says             string
	}{
		{"cloud:publish", basic, structured, 400, "InvalidRequest", "is of kind basic: publish to /topics/cloud/api/events"},
		{
			"shop/api/events", namespace, structured, 400, "InvalidRequest",
			"is of kind namespace: publish to /topics/shop:publish",
		},
		{"shop:publish", namespace, "application/json", 415, "UnsupportedMediaType", "application/cloudevents+json"},
		{"shop:publish?api-version=2018-01-01", namespace, structured, 400, "InvalidRequest", "2023-11-01 or 2024-06-01"},
		{"shop:receive", namespace, structured, 404, "NotFound", ""},
		{"shop", namespace, structured, 404, "NotFound", ""},
		{"shop:publish", basic, structured, 401, "Unauthorized", ""},
		{"cloud:publish", namespace, structured, 401, "Unauthorized", ""},
	} {
		response := s.send(http.MethodPost, "/topics/"+row.path, cloudEvent("1"), "Content-Type", row.contentType,
			"aeg-sas-key", row.key)
		require.Contains(t, response.rejected(row.status, row.code).Message, row.says, row.path)
	}
	require.Zero(t, s.count("SELECT count(*) FROM postrider.events"))
}
