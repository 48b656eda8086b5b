package server_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// Publishing clients of Event Grid send the same events in different forms. Sources of the forms: the recorded sessions
// of azure-sdk-for-net, azure-sdk-for-java and azure-sdk-for-python, 2020 to 2023.
func TestPublishFormsOfClients(t *testing.T) {
	t.Parallel()
	const (
		plain, charset = "application/json", "application/json; charset=utf-8"
		batch          = "application/cloudevents-batch+json; charset=utf-8"
		custom         = `{"inputSchema":"CustomEventSchema",` +
			`"inputSchemaMapping":{"inputSchemaMappingType":"Json","properties":` +
			`{"eventType":{"defaultValue":"custom"},"subject":{"defaultValue":"s"},"dataVersion":{"defaultValue":"1"}}}}`
		cloud = `{"inputSchema":"CloudEventSchemaV1_0"}`
	)
	s := setup(t)
	topics := map[string]string{"": "event-grid", cloud: "cloud", custom: "custom"}
	keys := map[string]string{}
	for schema, name := range topics {
		keys[name] = s.topic(name, schema)
	}
	dotnet := []string{
		"User-Agent", "azsdk-net-Messaging.EventGrid/4.12.0 (.NET 6.0.13; Microsoft Windows 10.0.22621)",
		"x-ms-client-request-id", "0a1b2c3d4e5f60718293a4b5c6d7e8f9", "x-ms-return-client-request-id", "true",
		"traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00",
	}
	java := []string{
		"User-Agent", "azsdk-java-azure-messaging-eventgrid/4.12.0 (11.0.16; Linux)",
		"x-ms-client-request-id", "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9",
	}
	pythonHeaders := []string{"Accept", "*/*", "User-Agent", "azsdk-python-eventgrid/4.9.2 Python/3.11.7 (Linux)"}
	// .NET prints the expiry with the program's offset, Java in UTC without one. Both sign the URL with its query.
	const sasToken, query = "aeg-sas-token", "?api-version=2018-01-01"
	address, soon := s.url+"/topics/event-grid/api/events"+query, time.Now().UTC().Add(time.Hour)
	dotNetExpiry := soon.In(time.FixedZone("", -7*3600)).Format(usEnglish + " -07:00")
	dotNetToken := []string{sasToken, token(t, keys["event-grid"], address, dotNetExpiry, dotNet)}
	javaToken := []string{sasToken, token(t, keys["event-grid"], address, soon.Format("1/2/2006 3:4:5 PM"), python)}
	for name, row := range map[string]struct {
		topic, contentType string
		headers            []string
		body               string
		want               []string // ids of the stored events; "" = any
	}{
		".NET, Event Grid": {
			"event-grid", plain, dotnet, `[{"id":"n1","subject":"s","data":"text","eventType":"t",` +
				`"eventTime":"2026-01-02T03:04:05.1234567-07:00","dataVersion":"1.0"}]`, []string{"n1"},
		},
		".NET, Event Grid, signature": {
			"event-grid", plain, append(dotNetToken, dotnet...), `[{"id":"n3","subject":"s","data":null,"eventType":"t",` +
				`"eventTime":"2026-01-02T03:04:05.1234567+00:00","dataVersion":"1.0"}]`, []string{"n3"},
		},
		"Java, Event Grid, signature": {
			"event-grid", plain, append(javaToken, java...), `[{"id":"j3","subject":"s","data":"x","eventType":"t",` +
				`"eventTime":"2026-01-02T03:04:05Z","dataVersion":"0.1"}]`, []string{"j3"},
		},
		"Java, Event Grid": {
			"event-grid", plain, java, `[{"id":"j1","subject":"s","data":{"a":1},"eventType":"t",` +
				`"eventTime":"2026-01-02T03:04:05.123456789Z","dataVersion":"0.1"}]`, []string{"j1"},
		},
		"Python, Event Grid": {
			"event-grid", charset, pythonHeaders, `[{"id": "p1", "subject": "s", "data": {"a": 1}, "eventType": "t", ` +
				`"eventTime": "2026-01-02T03:04:05.123456Z", "dataVersion": "1.0"}, {"id": "p2", "subject": "s", ` +
				`"data": "x", "eventType": "t", "eventTime": "2026-01-02T03:04:05.123456Z", "dataVersion": "1.0"}]`,
			[]string{"p1", "p2"},
		},
		".NET, CloudEvents, one": {
			"cloud", batch, dotnet, `[{"id":"n2","source":"/s","data":{"a":1},"type":"t",` +
				`"time":"2026-01-02T03:04:05.1234567-07:00","specversion":"1.0","subject":"s","ext":"x",` +
				`"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"}]`, []string{"n2"},
		},
		"Java, CloudEvents, binary": {
			"cloud", batch, java, `[{"id":"j2","source":"/s","data_base64":"AAE=","type":"t",` +
				`"datacontenttype":"application/octet-stream","specversion":"1.0"}]`, []string{"j2"},
		},
		"Python, CloudEvents, extension first and a number": {
			"cloud", batch, pythonHeaders, `[{"ext1": 1, "ext2": "x", "id": "p3", "source": "/s", "data": {"a": 1}, ` +
				`"type": "t", "time": "2026-01-02T03:04:05.123456Z", "specversion": "1.0"}]`, []string{"p3"},
		},
		"Python, custom": {
			"custom", charset, pythonHeaders, `[{"customSubject": "sample", "customData": {"a": 1}}]`, []string{""},
		},
		".NET, custom":  {"custom", plain, dotnet, `[{"name":"a"},{"name":"b"}]`, []string{"", ""}},
		".NET, strings": {"custom", plain, dotnet, `["data"]`, []string{""}},
	} {
		headers := append([]string{"Content-Type", row.contentType}, row.headers...)
		if !slices.Contains(headers, sasToken) {
			headers = append(headers, "aeg-sas-key", keys[row.topic])
		}
		response := s.send(http.MethodPost, "/topics/"+row.topic+"/api/events"+query, row.body, headers...)
		require.Equal(t, 200, response.status, "%s: %s", name, response.body)
		require.Empty(t, response.body, name)
		require.Equal(t, "0", response.header.Get("Content-Length"), name)
		for _, id := range row.want {
			require.Positive(t, s.count("SELECT count(*) FROM postrider.events WHERE topic = $1 AND $2 IN (event_id, '')",
				row.topic, id), "%s %s", name, id)
		}
	}
	require.Equal(t, 13, s.count("SELECT count(*) FROM postrider.events"))
	require.Equal(t, 1, s.count(`SELECT count(*) FROM postrider.events WHERE body_text = '"data"'`))
	require.Equal(t, 2, s.count(
		"SELECT count(*) FROM postrider.events WHERE date_trunc('second', event_time) = '2026-01-02 10:04:05Z'"))
}

// Responses have the headers that clients log: the versions of the protocol, and an id that is in postrider's log, too.
func TestPublishResponseHeaders(t *testing.T) {
	t.Parallel()
	log := &lines{}
	s := setup(t, log.all)
	key, namespaceKey := s.topic("orders", ""), s.topic("parcels", `{"kind":"namespace"}`)
	met := map[string]bool{}
	requireHeaders := func(response response, status int, versions string) {
		require.Equal(t, status, response.status, response.body)
		require.Equal(t, []string{versions}, response.header.Values("api-supported-versions"))
		id := response.header.Get("x-ms-request-id")
		require.NoError(t, uuid.Validate(id))
		require.NotContains(t, met, id)
		met[id] = true
		require.Contains(t, log.String(), `"requestId":"`+id+`"`)
	}
	for range 2 {
		requireHeaders(s.publish("orders", key, gridEvents("1")), 200, "2018-01-01")
	}
	requireHeaders(s.publish("orders", key, "[{}]"), 400, "2018-01-01")
	requireHeaders(s.publish("orders", "wrong", gridEvents("1")), 401, "2018-01-01")
	requireHeaders(s.send(http.MethodPost, "/topics/parcels:publish", cloudEvent("1"), "aeg-sas-key", namespaceKey,
		"Content-Type", "application/cloudevents+json"), 200, "2023-11-01, 2024-06-01")
	require.Empty(t, s.get("/v1/topics").header.Get("x-ms-request-id"))
}

// Receiving clients send an empty body or one with a charset, and any Accept; the lock tokens come back as they were.
func TestReceiveFormsOfClients(t *testing.T) {
	t.Parallel()
	const path, version = "/topics/shop/eventsubscriptions/pull:", "?api-version=2024-06-01"
	s := setup(t)
	key := s.topic("shop", `{"kind":"namespace"}`)
	s.subscription("shop", "pull", `{"deliveryConfiguration":{"deliveryMode":"Queue"}}`)
	send := func(action, query, body string) map[string]any {
		return s.send(http.MethodPost, path+action+version+query, body, "Authorization", "SharedAccessKey "+key,
			"Accept", "application/json", "Content-Type", "application/json; charset=utf-8").json(200)
	}
	for _, id := range []string{"1", "2"} {
		s.send(http.MethodPost, "/topics/shop:publish"+version, cloudEvent(id), "Authorization", "SharedAccessKey "+key,
			"Accept", "application/json", "Content-Type", "application/cloudevents+json; charset=utf-8").json(200)
	}
	for range 2 {
		received := send("receive", "&maxEvents=2", "")["value"].([]any)
		require.Len(t, received, 2)
		for _, one := range received {
			token := one.(map[string]any)["brokerProperties"].(map[string]any)["lockToken"].(string)
			released := send("release", "", `{"lockTokens": ["`+token+`"]}`)
			require.Equal(t, []any{token}, released["succeededLockTokens"])
		}
	}
}
