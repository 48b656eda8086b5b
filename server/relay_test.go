package server_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/access"
	"postrider/server"
)

const (
	azureID   = "/subscriptions/5b4b650e/resourceGroups/rg/providers/microsoft.eventgrid/topics/orders"
	azureCode = "512d38b6-c7b8-40c8-89fe-f46f9e9622b6"
	// azureValidation is the validation event of Azure Event Grid.
	azureValidation = `[{"id":"2d1781af-3a4c-4d7c-bd0c-e34b19da4e66","topic":"` + azureID + `","subject":"",` +
		`"eventType":"Microsoft.EventGrid.SubscriptionValidationEvent","eventTime":"2026-01-25T22:12:19.4556811Z",` +
		`"metadataVersion":"1","dataVersion":"1","data":{"validationCode":"` + azureCode + `",` +
		`"validationUrl":"https://rp-westeurope.eventgrid.azure.net:553/eventsubscriptions/feed/validate?id=` + azureCode +
		`&t=2026-01-25T22:12:19.4556811Z&apiVersion=2020-10-15-preview&token=secret"}}]`
	azureDeletion = `[{"id":"1","topic":"` + azureID + `","subject":"","eventType":` +
		`"Microsoft.EventGrid.SubscriptionDeletedEvent","eventTime":"2026-01-25T22:12:19.4556811Z","metadataVersion":"1",` +
		`"dataVersion":"1","data":{"eventSubscriptionId":"` + azureID + `/providers/x/eventSubscriptions/feed"}}]`
	azureCallback = "https://rp-westeurope.eventgrid.azure.net:553/eventsubscriptions/feed/validate?id=1&token=secret"
)

// azureEvents are events as Azure delivers them.
func azureEvents(ids ...string) string {
	events := make([]string, len(ids))
	for i, id := range ids {
		events[i] = fmt.Sprintf(`{"id":%q,"topic":%q,"subject":"s","eventType":"t","data":{},`+
			`"eventTime":"2026-01-25T22:12:19.4556811Z","dataVersion":"","metadataVersion":"1"}`, id, azureID)
	}
	return "[" + strings.Join(events, ",") + "]"
}

// azure makes a request as Azure does: the key is in the query of the endpoint's URL, and headers say what it is.
func (s *service) azure(topic, key, kind, body string, headers ...string) response {
	all := append([]string{
		"Content-Type", "application/json; charset=utf-8", "aeg-event-type", kind, "aeg-subscription-name", "FEED",
		"aeg-delivery-count", "0", "aeg-data-version", "", "aeg-metadata-version", "1",
	}, headers...)
	return s.send(http.MethodPost, "/topics/"+topic+"/api/events?aeg-sas-key="+key, body, all...)
}

// allow is the OPTIONS of a CloudEvents handshake.
func (s *service) allow(topic, key string, headers ...string) response {
	path := "/topics/" + topic + "/api/events?aeg-sas-key=" + key
	return s.send(http.MethodOptions, path, "", append([]string{"WebHook-Request-Origin", "eventgrid.azure.net"},
		headers...)...)
}

// relayTopic creates a relay topic and returns a key, escaped for a query.
func (s *service) relayTopic(name, settings string) string {
	return strings.NewReplacer("+", "%2B", "/", "%2F", "=", "%3D").Replace(
		s.topic(name, `{"relay":"azure"`+settings+"}"))
}

// feed records the requests of relay feeds, as each ten seconds and at the end, and reads the only one.
func (s *service) feed() map[string]any {
	s.writeRejections()
	list := s.get("/v1/relayFeeds").json(200)["value"].([]any)
	require.Len(s.t, list, 1)
	return list[0].(map[string]any)
}

// Azure Event Grid validates, delivers and deletes an event subscription whose endpoint is a relay topic.
func TestRelayOfAzureEventSubscription(t *testing.T) {
	t.Parallel()
	s := setup(t)
	key := s.relayTopic("orders", "")
	for _, wrong := range []string{"", "wrong"} {
		s.azure("orders", wrong, "SubscriptionValidation", azureValidation).rejected(401, "Unauthorized")
	}
	require.Zero(t, s.count("SELECT count(*) FROM postrider.relay_feeds"))

	answer := s.azure("orders", key, "SubscriptionValidation", azureValidation, "aeg-subscription-name", "feed").is(200)
	require.Equal(t, `{"validationResponse":"`+azureCode+`"}`, answer.body)
	require.Equal(t, fmt.Sprint(len(answer.body)), answer.header.Get("Content-Length"))
	feed := s.feed()
	require.Equal(t, "active", feed["state"])
	require.Equal(t, "feed", feed["azureSubscription"])
	require.Equal(t, azureID, feed["source"])
	require.Equal(t, "EventGridSchema", feed["schema"])
	require.NotNil(t, feed["validatedAt"])
	require.Zero(t, s.count("SELECT count(*) FROM postrider.events"))

	require.Empty(t, s.azure("orders", key, "Notification", azureEvents("1", "2")).is(200).body)
	s.azure("orders", key, "Notification", azureEvents("2", "3"), "aeg-delivery-count", "2").is(200)
	require.Equal(t, 3, s.count("SELECT count(*) FROM postrider.events WHERE source = $1", azureID),
		"duplicates are detected by default")
	s.publish("orders", key, "[]", "aeg-sas-key", s.post("/v1/topics/orders/listKeys", "").json(200)["key1"].(string)).
		is(200)
	feed = s.feed()
	for member, n := range map[string]int{
		"requests": 2, "events": 3, "duplicates": 1, "rejectedRequests": 0, "loopedRequests": 0, "lastDeliveryCount": 2,
	} {
		require.InDelta(t, n, feed[member], 0, member)
	}

	s.azure("orders", key, "SubscriptionDeletion", azureDeletion).is(200)
	feed = s.feed()
	require.Equal(t, "ended", feed["state"])
	require.NotNil(t, feed["endedAt"])
	require.Equal(t, 3, s.count("SELECT count(*) FROM postrider.events"))
	s.azure("orders", key, "SubscriptionValidation", azureValidation).is(200)
	require.Equal(t, "active", s.feed()["state"], "created again")
}

// What a relay topic accepts beyond others: another topic without Azure's headers, any form of the body, and a size
// that Azure can reach. Other topics reject it.
func TestRelayAcceptsMore(t *testing.T) {
	t.Parallel()
	s := setup(t)
	key := s.topic("plain", "")
	s.publish("plain", key, azureEvents("1")).rejected(400, "InvalidEvent")
	s.azure("plain", key, "SubscriptionValidation", azureValidation).is(400)
	large := strings.Replace(azureEvents("large"), `"data":{}`, `"data":"`+strings.Repeat("x", 1<<20)+`"`, 1)
	s.publish("plain", key, large).rejected(413, "PayloadTooLarge")
	key = s.topic("grid", `{"relay":"azure"}`)
	s.publish("grid", key, azureEvents("1")).is(200)
	s.publish("grid", key, large).is(200)
	s.publish("grid", key, strings.Trim(azureEvents("2"), "[]")).is(200)
	many := make([]string, 5000)
	for i := range many {
		many[i] = fmt.Sprint("many-", i)
	}
	s.publish("grid", key, azureEvents(many...)).is(200)
	s.publish("grid", key, azureEvents(append(many, "one-more")...)).rejected(413, "PayloadTooLarge")
	s.publish("grid", key, strings.Repeat(" ", 2<<20)+"[]").rejected(413, "PayloadTooLarge")

	key = s.topic("cloud", `{"relay":"azure","inputSchema":"CloudEventSchemaV1_0"}`)
	for i, body := range []string{cloudEvent("1"), "[" + cloudEvent("2") + "," + cloudEvent("3") + "]"} {
		s.publish("cloud", key, body, "Content-Type", "application/cloudevents+json; charset=utf-8").is(200)
		require.Equal(t, []int{1, 3}[i], s.count("SELECT count(*) FROM postrider.events WHERE topic = 'cloud'"))
	}
	key = s.topic("custom", `{"relay":"azure","inputSchema":"CustomEventSchema","inputSchemaMapping":`+
		`{"inputSchemaMappingType":"Json","properties":{"id":{"sourceField":"n"},"topic":{"sourceField":"of"},`+
		`"eventType":{"defaultValue":"t"},"subject":{"defaultValue":"s"}}}}`)
	s.publish("custom", key, `[{"n":1,"of":"`+azureID+`"}]`, "aeg-event-type", "Notification").is(200)
	require.Equal(t, 1, s.count("SELECT count(*) FROM postrider.events WHERE topic = 'custom' AND source = $1", azureID))
	s.azure("custom", strings.ReplaceAll(key, "+", "%2B"), "SubscriptionValidation", azureValidation).is(200)
}

// A CloudEvents handshake stores its callback as a secret. A deletion event in that schema ends the feed of its name.
func TestRelayOfCloudEvents(t *testing.T) {
	t.Parallel()
	s := setup(t, func(o *server.Options) { o.RequestsPerSecond = 1000 })
	key := s.relayTopic("cloud", `,"inputSchema":"CloudEventSchemaV1_0"`)
	s.allow("cloud", "").rejected(401, "Unauthorized")
	s.allow("cloud", "wrong").rejected(401, "Unauthorized")
	s.allow("cloud", key, "WebHook-Request-Origin", "").rejected(400, "InvalidRequest")
	require.Zero(t, s.count("SELECT count(*) FROM postrider.relay_feeds"))
	got := s.allow("cloud", key, "WebHook-Request-Callback", azureCallback).is(200)
	require.Equal(t, "eventgrid.azure.net", got.header.Get("WebHook-Allowed-Origin"))
	require.Equal(t, "60000", got.header.Get("WebHook-Allowed-Rate"))
	require.Equal(t, "POST", got.header.Get("Allow"))
	feed := s.feed()
	require.Equal(t, "feed", feed["azureSubscription"], "named by the callback")
	require.Equal(t, "eventgrid.azure.net", feed["origin"])
	require.Equal(t, "awaiting", feed["callback"])
	require.NotContains(t, fmt.Sprint(s.rows("SELECT * FROM postrider.relay_feeds"),
		s.rows("SELECT * FROM postrider.handshakes"), feed), "secret")

	s.allow("cloud", key, "WebHook-Request-Callback", azureCallback).is(200)
	require.Equal(t, 1, s.count("SELECT count(*) FROM postrider.handshakes"), "the newest one replaces the other")
	path := fmt.Sprintf("/v1/relayFeeds/%.0f", feed["relayFeedId"])
	require.Equal(t, "pending", s.post(path+"/openCallback", "").json(200)["callback"])
	require.Equal(t, "pending", s.post(path+"/openCallback", "").json(200)["callback"], "it is requested once")
	require.Equal(t, 1, s.count("SELECT count(*) FROM postrider.audit WHERE action = 'relay_callback_opened' AND "+
		"topic = 'cloud' AND subscription = 'feed'"))
	s.post("/v1/relayFeeds/4711/openCallback", "").rejected(404, "NotFound")

	s.azure("cloud", key, "Notification", cloudEvent("1"), "Content-Type", "application/cloudevents+json").is(200)
	s.azure("cloud", key, "SubscriptionDeletion", cloudEvent("2"), "Content-Type", "application/cloudevents+json").is(200)
	feed = s.feed()
	require.Equal(t, "ended", feed["state"])
	require.InDelta(t, 1, feed["events"], 0)
	require.Equal(t, 1, s.count("SELECT count(*) FROM postrider.events"))

	// Without a limit of requests, any rate is allowed; without a callback, nothing can be opened.
	other := s.with()
	require.Equal(t, "*", other.allow("cloud", key).is(200).header.Get("WebHook-Allowed-Rate"))
	for _, refused := range []string{"http://example.com/validate", "https://127.0.0.1/x", "file:///etc/passwd"} {
		key := s.relayTopic("cloud-"+refused[:4]+refused[len(refused)-1:], `,"inputSchema":"CloudEventSchemaV1_0"`)
		name := "cloud-" + refused[:4] + refused[len(refused)-1:]
		other.allow(name, key, "WebHook-Request-Callback", refused, "aeg-subscription-name", "x").is(200)
		id := s.count("SELECT relay_feed_id FROM postrider.relay_feeds WHERE topic = $1 AND callback IS NULL", name)
		s.post(fmt.Sprintf("/v1/relayFeeds/%d/openCallback", id), "").rejected(409, "NoCallback")
	}
}

// A handshake that would lead to rejected deliveries fails.
func TestRelayRejectsHandshakes(t *testing.T) {
	t.Parallel()
	s := setup(t)
	grid, cloud := s.relayTopic("grid", ""), s.relayTopic("cloud", `,"inputSchema":"CloudEventSchemaV1_0"`)
	plain := strings.ReplaceAll(s.topic("plain", `{"inputSchema":"CloudEventSchemaV1_0"}`), "+", "%2B")
	s.allow("plain", plain).rejected(405, "MethodNotAllowed")
	require.Contains(t, s.allow("grid", grid).rejected(400, "InvalidRequest").Message, "EventGridSchema")
	require.Contains(t, s.azure("cloud", cloud, "SubscriptionValidation", azureValidation).
		rejected(400, "InvalidRequest").Message, "cloudeventschemav1_0")
	for _, body := range []string{
		"[]", "{}", "x", strings.TrimSuffix(azureValidation, "]") + "," + azureValidation[1:],
		strings.Replace(azureValidation, azureCode, "", 1),
	} {
		s.azure("grid", grid, "SubscriptionValidation", body).rejected(400, "InvalidEvent")
	}
	require.Zero(t, s.count("SELECT count(*) FROM postrider.relay_feeds WHERE validated_at IS NOT NULL"))
	s.put("/v1/topics/space", `{"kind":"namespace","relay":"azure"}`).rejected(400, "InvalidRequest")
	s.put("/v1/topics/other", `{"relay":"aws"}`).rejected(400, "InvalidRequest")
}

// A relay topic rejects deliveries of the same database, so that they are dead letters, and counts them. Its handshakes
// fail.
func TestRelayEndsLoops(t *testing.T) {
	t.Parallel()
	s := setup(t)
	key := s.relayTopic("orders", "")
	own := s.store.Cache.Snapshot().ServerID
	require.NotEmpty(t, own)
	s.azure("orders", key, "Notification", azureEvents("1"), "Postrider-Origin", own).rejected(400, "InvalidRequest")
	require.Zero(t, s.count("SELECT count(*) FROM postrider.events"))
	feed := s.feed()
	require.InDelta(t, 1, feed["loopedRequests"], 0)
	require.InDelta(t, 0, feed["rejectedRequests"], 0)
	require.Equal(t, "unvalidated", feed["state"])
	s.azure("orders", key, "SubscriptionValidation", azureValidation, "Postrider-Origin", own).
		rejected(400, "InvalidRequest")
	s.azure("orders", key, "Notification", azureEvents("1"), "Postrider-Origin", "another").is(200)
	require.Equal(t, 1, s.count("SELECT count(*) FROM postrider.events"))
	cloud := s.relayTopic("cloud", `,"inputSchema":"CloudEventSchemaV1_0"`)
	s.allow("cloud", cloud, "Postrider-Origin", own).rejected(400, "InvalidRequest")
}

// The default window of duplicates belongs to relay topics, and can be changed. It ends with the relay.
func TestRelayDetectsDuplicatesByDefault(t *testing.T) {
	t.Parallel()
	s := setup(t)
	const window = "duplicateDetectionWindowInMinutes"
	for _, step := range []struct {
		settings string
		window   any
	}{
		{`{"relay":"azure"}`, 1440.0}, {`{"relay":"azure","` + window + `":5}`, 5.0}, {`{"relay":"none"}`, nil},
	} {
		s.put("/v1/topics/orders", step.settings)
		require.Equal(t, step.window, s.get("/v1/topics/orders").json(200)[window], step.settings)
	}
	s.topic("custom", `{"relay":"azure","inputSchema":"CustomEventSchema","inputSchemaMapping":`+
		`{"inputSchemaMappingType":"Json","properties":{"eventType":{"defaultValue":"t"},"subject":{"defaultValue":"s"}}}}`)
	require.Nil(t, s.get("/v1/topics/custom").json(200)[window], "its events have no id")
}

// A rejected delivery is lost in Azure, so its feed counts it.
func TestRelayCountsRejections(t *testing.T) {
	t.Parallel()
	s := setup(t)
	key := s.relayTopic("orders", "")
	s.azure("orders", key, "SubscriptionValidation", azureValidation).is(200)
	s.azure("orders", key, "Notification", `[{"id":"1"}]`).rejected(400, "InvalidEvent")
	s.azure("orders", key, "Notification", strings.Repeat(" ", 2<<20)+"[]").rejected(413, "PayloadTooLarge")
	s.azure("orders", key, "Notification", azureEvents("1"), "Idempotency-Key", "").rejected(400, "InvalidRequest")
	s.azure("orders", key+"&api-version=x", "Notification", azureEvents("1")).rejected(400, "InvalidRequest")
	require.InDelta(t, 4, s.feed()["rejectedRequests"], 0)
	s.azure("orders", "wrong", "Notification", azureEvents("1")).rejected(401, "Unauthorized")
	s.azure("orders", "wrong", "Notification", strings.Repeat(" ", 2<<20)+"[]").rejected(413, "PayloadTooLarge")
	s.azure("orders", "wrong&api-version=x", "Notification", azureEvents("1")).rejected(400, "InvalidRequest")
	require.InDelta(t, 4, s.feed()["rejectedRequests"], 0, "of senders without a key")
}

// A node whose catalog is a moment old treats a topic as what it is now: a relay, or none any more.
func TestRelayOfAnotherNode(t *testing.T) {
	t.Parallel()
	s := setup(t)
	const mapping = `"inputSchema":"CustomEventSchema","inputSchemaMapping":{"inputSchemaMappingType":"Json",` +
		`"properties":{"eventType":{"defaultValue":"t"},"subject":{"defaultValue":"s"}}}`
	grid, custom, cloud := s.relayTopic("grid", ""), s.topic("custom", "{"+mapping+"}"),
		s.relayTopic("cloud", `,"inputSchema":"CloudEventSchemaV1_0"`)
	custom = strings.NewReplacer("+", "%2B", "/", "%2F", "=", "%3D").Replace(custom)
	for _, row := range []struct {
		topic, settings string
		send            func(stale *service)
	}{
		{"grid", `{"relay":"none"}`, func(stale *service) {
			stale.azure("grid", grid, "Notification", azureEvents("1")).rejected(400, "InvalidEvent")
		}},
		{"grid", `{"relay":"azure"}`, func(*service) {}},
		{"grid", `{"relay":"none"}`, func(stale *service) {
			stale.azure("grid", grid, "SubscriptionValidation", azureValidation).rejected(400, "InvalidEvent")
		}},
		{"custom", `{"relay":"azure",` + mapping + "}", func(stale *service) {
			require.Contains(t, stale.azure("custom", custom, "SubscriptionValidation", azureValidation).is(200).body,
				azureCode)
		}},
		{"cloud", `{"relay":"none","inputSchema":"CloudEventSchemaV1_0"}`, func(stale *service) {
			stale.allow("cloud", cloud).rejected(405, "MethodNotAllowed")
		}},
	} {
		s.withCatalogOf(row.topic, func(stale *service) {
			s.put("/v1/topics/"+row.topic, row.settings).is(200)
			row.send(stale)
		})
	}
	require.Zero(t, s.count("SELECT count(*) FROM postrider.events"))
	require.Equal(t, 1, s.count("SELECT count(*) FROM postrider.relay_feeds"))
}

// Nothing that passes is answered with a status after which Azure drops events: not an outage, a body that breaks off,
// or a catalog in memory that is a moment old.
func TestRelayNeverRejectsWhatPasses(t *testing.T) {
	t.Parallel()
	s, way, _ := failing(t, "", "")
	key := s.topic("grid", "")
	cloud := s.topic("cloud", `{"inputSchema":"CloudEventSchemaV1_0"}`)
	apiKey := s.apiKey("azure", "publish", "")
	s.withCatalogOf("grid", func(stale *service) {
		s.put("/v1/topics/grid", `{"relay":"azure"}`)
		stale.publish("grid", key, azureEvents("1")).is(200)
	})
	s.withCatalogOf("grid", func(stale *service) {
		s.topic("large", `{"relay":"azure"}`)
		large := strings.Replace(azureEvents("2"), `"data":{}`, `"data":"`+strings.Repeat("x", 1<<20)+`"`, 1)
		stale.publish("large", s.post("/v1/topics/large/listKeys", "").json(200)["key1"].(string), large).is(200)
	})
	s.withCatalogOf("cloud", func(stale *service) {
		s.put("/v1/topics/cloud", `{"inputSchema":"CloudEventSchemaV1_0","relay":"azure"}`)
		stale.send(http.MethodOptions, "/topics/cloud/api/events", "", "aeg-sas-key", cloud, "WebHook-Request-Origin", "x").
			is(200)
	})

	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/topics/grid/api/events", brokenBody{})
	r.Header.Set("aeg-sas-key", key)
	s.server.Handler().ServeHTTP(w, r)
	require.Equal(t, http.StatusServiceUnavailable, w.Code, "a body that breaks off")

	way.cut()
	for _, row := range []struct{ method, topic, key, kind, body string }{
		{http.MethodPost, "grid", key, "Notification", azureEvents("3")},
		{http.MethodPost, "grid", key, "SubscriptionValidation", azureValidation},
		{http.MethodPost, "grid", key, "SubscriptionDeletion", azureDeletion},
		{http.MethodPost, "grid", apiKey, "Notification", azureEvents("3")},
		{http.MethodPost, "grid", "a-key-that-may-be-new", "Notification", azureEvents("3")},
		{http.MethodPost, "a-topic-that-may-be-new", key, "Notification", azureEvents("3")},
		{http.MethodOptions, "cloud", cloud, "", ""},
		{http.MethodOptions, "cloud", apiKey, "", ""},
	} {
		got := s.serve(access.Actor{}, row.method, "/topics/"+row.topic+"/api/events", row.body, "aeg-sas-key", row.key,
			"aeg-event-type", row.kind, "aeg-subscription-name", "FEED", "WebHook-Request-Origin", "x", "Content-Type",
			"application/json")
		require.Equal(t, http.StatusServiceUnavailable, got.status, row)
		require.NotEmpty(t, got.header.Get("Retry-After"))
	}
}

// withCatalogOf calls do with a server of another node, which has just read its catalog and reads no change of it
// meanwhile unless it confirms it.
func (s *service) withCatalogOf(topic string, do func(stale *service)) {
	s.t.Helper()
	other := s.node(s.tn.URL, 0)
	other.get("/v1/topics/" + topic).json(200)
	do(other)
}

type brokenBody struct{}

func (brokenBody) Read([]byte) (int, error) { return 0, http.ErrBodyReadAfterClose }
