package server_test

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/access"
	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/server"
)

func TestPublishEventGrid(t *testing.T) {
	t.Parallel()
	reports := make(chan []any, 1)
	s := setup(t, func(o *server.Options) {
		o.OnPublish = func(r server.PublishReport) { // the bodies are valid until it returns
			reports <- []any{r.Topic, r.Matched, string(r.Events[0].Body), string(r.Events[1].Body)}
		}
	})
	key := s.topic("orders", "")
	s.subscription("orders", "everything", `{"endpointUrl":"https://example.com/all"}`)
	s.subscription("orders", "only-two", `{"endpointUrl":"https://example.com/two","filter":{"subjectEndsWith":"/2"}}`)

	response := s.publish("orders", key, gridEvents("1", "2")).is(200)
	require.Empty(t, response.body)
	require.Equal(t, "0", response.header.Get("Content-Length"))
	require.Equal(t, []map[string]any{
		{
			"topic": "orders", "event_id": "1", "event_type": "Shop.OrderPlaced", "subject": "orders/1",
			"schema": "EventGridSchema", "matched": int32(1), "body_text": gridEvent("1"),
		},
		{
			"topic": "orders", "event_id": "2", "event_type": "Shop.OrderPlaced", "subject": "orders/2",
			"schema": "EventGridSchema", "matched": int32(2), "body_text": gridEvent("2"),
		},
	}, s.rows("SELECT topic, event_id, event_type, subject, schema, matched, body_text FROM postrider.events "+
		"ORDER BY event_id"))
	require.Equal(t, []map[string]any{
		{"subscription": "everything", "event_id": "1", "state": "pending"},
		{"subscription": "everything", "event_id": "2", "state": "pending"},
		{"subscription": "only-two", "event_id": "2", "state": "pending"},
	}, s.rows("SELECT subscription, event_id, state FROM postrider.deliveries ORDER BY subscription, event_id"))
	require.Equal(t, []any{"orders", []int{1, 2}, gridEvent("1"), gridEvent("2")}, <-reports)
}

func TestPublishCredentials(t *testing.T) {
	t.Parallel()
	s := setup(t)
	keys := s.put("/v1/topics/orders", "").json(201)
	key1, key2 := keys["key1"].(string), keys["key2"].(string)
	other, wide := s.topic("parcels", ""), s.topic("wide", `{"kind":"namespace"}`)
	s.devTopic()
	publisher, one := s.apiKey("publisher", "publish", ""), s.apiKey("one", "publish", "orders")
	reader, revoked := s.apiKey("reader", "read", ""), s.apiKey("revoked", "admin", "")
	s.delete("/v1/apiKeys/revoked").is(200)
	const bearer, shared = "Bearer ", "SharedAccessKey "
	for _, row := range []struct {
		topic, header, credential string
		status                    int
		says                      string
	}{
		{"orders", "aeg-sas-key", key1, 200, ""},
		{"orders", "aeg-sas-key", key2, 200, ""},
		{"orders", "Authorization", bearer + key1, 200, ""},
		{"orders", "Authorization", "bearer " + key2, 200, ""},
		{"orders", "Authorization", shared + key1, 200, ""},
		{"orders", "Authorization", bearer + adminToken, 200, ""},
		{"%6Frders", "aeg-sas-key", key1, 200, ""},
		{"orders", "Authorization", shared + "wrong", 401, ""},
		{"orders", "Authorization", shared + adminToken, 401, ""},
		{"orders", "aeg-sas-key", adminToken, 401, ""},
		{"orders", "aeg-sas-key", "wrong", 401, ""},
		{"orders", "Authorization", bearer + "wrong", 401, ""},
		{"orders", "aeg-sas-key", other, 401, ""},
		{"orders", "aeg-sas-key", key1[:20], 401, ""},
		{"orders", "Authorization", "Basic " + key1, 401, ""},
		{"orders", "Authorization", bearer, 401, ""},
		{"orders", "X-None", "", 401, ""},
		{"nothing", "X-None", "", 401, ""},
		{"nothing", "aeg-sas-key", "any", 401, ""},
		{"nothing", "Authorization", bearer + adminToken, 404, ""},
		{"%00%ff", "aeg-sas-key", "any", 401, ""},
		{"made-by-dev", "aeg-sas-key", devKey, 401, "loopback"},
		{"orders", "aeg-sas-key", publisher, 200, ""},
		{"parcels", "Authorization", bearer + publisher, 200, ""},
		{"orders", "Authorization", shared + one, 200, ""},
		{"nothing", "aeg-sas-key", publisher, 404, ""},
		{"parcels", "aeg-sas-key", one, 403, "API key one publishes only to topic"},
		{"nothing", "Authorization", bearer + one, 403, "API key one"},
		{"orders", "Authorization", bearer + reader, 403, "API key reader has scope read"},
		{"orders", "Authorization", bearer + revoked, 401, "the API key does not exist"},
		{"orders", "aeg-sas-key", "prk_" + strings.Repeat("A", 43), 401, "the API key does not exist"},
		{"orders", "aeg-sas-key", publisher[:40], 401, "the API key does not exist"},
	} {
		path := "/topics/" + row.topic + "/api/events"
		response := s.send(http.MethodPost, path, gridEvents("1"), row.header, row.credential)
		require.Equal(t, row.status, response.status, "%+v: %s", row, response.body)
		require.Contains(t, response.body, row.says, "%+v", row)
		if row.status == 401 {
			response.rejected(401, "Unauthorized")
			require.Equal(t, `Bearer realm="postrider"`, response.header.Get("WWW-Authenticate"))
		}
	}
	s.send(http.MethodPost, "/topics/orders/api/events", gridEvents("1"), "aeg-sas-key", "wrong", "Authorization",
		"Bearer "+key1).is(401)
	s.send(http.MethodPost, "/topics/wide:publish", cloudEvent("1"), "Authorization", shared+wide, "Content-Type",
		"application/cloudevents+json").is(200)
	require.Equal(t, 11, s.count("SELECT count(*) FROM postrider.events"))
}

// devTopic is a topic that postrider dev has created, with its well-known key.
func (s *service) devTopic() {
	s.t.Helper()
	s.topicWithKeys("made-by-dev", devKey, devKey)
}

func (s *service) topicWithKeys(name, key1, key2 string) {
	s.t.Helper()
	_, _, err := s.store.Topics.Put(s.t.Context(), name, catalog.TopicSpec{
		Kind: catalog.TopicBasic, InputSchema: event.EventGrid, Keys: &catalog.AccessKeys{Key1: key1, Key2: key2},
	})
	require.NoError(s.t, err)
}

// The well-known key of postrider dev, and what is signed with it, publish only under dev.
func TestDevKey(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.devTopic()
	soon := time.Now().UTC().Add(time.Hour).Format(usEnglish)
	signed := token(t, devKey, s.url+"/topics/made-by-dev", soon, dotNet)
	dev := s.with(func(o *server.Options) { o.AllowDevKey = true })
	for header, credential := range map[string]string{"aeg-sas-key": devKey, "aeg-sas-token": signed} {
		dev.send(http.MethodPost, "/topics/made-by-dev/api/events", "[]", header, credential).is(200)
		rejected := s.send(http.MethodPost, "/topics/made-by-dev/api/events", "[]", header, credential)
		require.Contains(t, rejected.rejected(401, "Unauthorized").Message, "loopback")
	}
}

// internal/event has the mistakes of events. Of a request, all events are stored or none.
func TestPublishRejections(t *testing.T) {
	t.Parallel()
	s := setup(t)
	key := s.topic("orders", "")
	ceKey := s.topic("shop", `{"inputSchema":"CloudEventSchemaV1_0"}`)
	with := func(old, changed string) string {
		return "[" + gridEvent("1") + "," + strings.Replace(gridEvent("2"), old, changed, 1) + "]"
	}
	many := strings.Repeat(`{"id":"1","subject":"","eventType":"t","eventTime":"2026-11-20T09:30:00Z"},`, 5000)
	for _, row := range []struct {
		topic, body, contentType string
		status                   int
		code                     string
		targets                  []string
	}{
		{"orders", with(`"id":`, `"xid":`), "", 400, "InvalidEvent", []string{"events[1].id"}},
		{"orders", with("2026-11-20T", "20 November"), "", 400, "InvalidEvent", []string{"events[1].eventTime"}},
		{"orders", with("orders/", "orders\xff"), "", 400, "InvalidJson", []string{}},
		{"orders", gridEvent("1"), "", 400, "InvalidEvent", []string{}},
		{"orders", "[" + gridEvent("1"), "", 400, "InvalidJson", []string{"events[0]"}},
		{"orders", "[" + many + gridEvent("1") + "]", "", 413, "PayloadTooLarge", []string{"events[5000]"}},
		{"orders", gridEvents("1"), "application/cloudevents+json", 415, "UnsupportedMediaType", []string{}},
		{"shop", "[]", "text/plain", 415, "UnsupportedMediaType", []string{}},
		{"shop", gridEvent("1"), "", 400, "InvalidEvent", []string{"events[0].specversion"}},
	} {
		credential := map[string]string{"orders": key, "shop": ceKey}[row.topic]
		response := s.publish(row.topic, credential, row.body, "Content-Type", cmp.Or(row.contentType, "application/json"))
		rejection := response.rejected(row.status, row.code)
		require.Equal(t, row.targets, targets(rejection), rejection.Message)
	}
	s.publish("orders", key, gridEvents("1"), "Content-Encoding", "gzip").rejected(415, "UnsupportedMediaType")
	require.Zero(t, s.count("SELECT count(*) FROM postrider.events"))
	require.Zero(t, s.count("SELECT count(*) FROM postrider.deliveries"))
}

// What the quick starts of Event Grid send: curl -d with date +%z; PowerShell's Invoke-WebRequest with a hash table
// whose id is a number, and Get-Date -Format s; the events of the page on input mappings. And .NET's spelling of the
// members.
func TestPublishAsInQuickStarts(t *testing.T) {
	t.Parallel()
	s := setup(t)
	const form = "application/x-www-form-urlencoded"
	grid := s.topic("orders", "")
	mapped := s.topic("mapped", `{"inputSchema":"CustomEventSchema","inputSchemaMapping":{`+
		`"inputSchemaMappingType":"Json","properties":{"eventType":{"sourceField":"myEventTypeField"},`+
		`"subject":{"defaultValue":"DefaultSubject"},`+
		`"dataVersion":{"defaultValue":"1.0"}}}}`)
	s.publish("orders", grid, `[ {"id": "4711", "eventType": "recordInserted", "subject": "myapp/vehicles/motorcycles", `+
		`"eventTime": "2026-11-28T03:00:00+0000", "data": {"make": "Ducati"}, "dataVersion": "1.0"} ]`,
		"Content-Type", form).is(200)
	s.publish("orders", grid, "[{\r\n    \"eventType\":  \"recordInserted\",\r\n    \"dataVersion\":  1,\r\n"+
		"    \"id\":  4712,\r\n"+
		"    \"data\":  {\"make\":  \"Ducati\"},\r\n    \"eventTime\":  \"2026-11-28T03:00:00\",\r\n"+
		"    \"subject\":  \"myapp/vehicles/motorcycles\"\r\n}]", "Content-Type", form).is(200)
	s.publish("orders", grid, `[{"ID":"4713","EventType":"recordInserted","Subject":"myapp/vehicles/motorcycles",`+
		`"EventTime":"2026-11-28T03:00:00Z","Data":{"make":"Ducati"},"DataVersion":"1"}]`,
		"Content-Type", "application/json; charset=us-ascii").is(200)
	const created = `{"myEventTypeField":"Created","resource":"Users/example/Messages/1000"}`
	s.publish("mapped", mapped, "["+created+"]", "Content-Type", form).is(200)
	s.publish("mapped", mapped, created, "Content-Type", "application/json; charset=us-ascii").is(200)

	row := func(id, version string) map[string]any {
		return map[string]any{
			"event_id": id, "at": "2026-11-28 03:00:00", "make": "Ducati", "version": version,
			"subject": "myapp/vehicles/motorcycles",
		}
	}
	require.Equal(t, []map[string]any{row("4711", "1.0"), row("4712", "1"), row("4713", "1")},
		s.rows(`SELECT event_id, (event_time AT TIME ZONE 'UTC')::text AS at, body #>> '{data,make}' AS make,
			body ->> 'dataVersion' AS version, body ->> 'subject' AS subject
			FROM postrider.events WHERE topic = 'orders' ORDER BY event_id`))
	require.Equal(t, 2, s.count(`SELECT count(*) FROM postrider.events
		WHERE topic = 'mapped' AND event_type = 'Created' AND subject = 'DefaultSubject' AND body_text = $1`, created))
}

func TestPublishVersion(t *testing.T) {
	t.Parallel()
	s := setup(t)
	key := s.topic("orders", "")
	for query, status := range map[string]int{
		"": 200, "?api-version=2018-01-01": 200, "?other=1": 200, "?api-version=": 400, "?api-version=2017-09-15": 400,
	} {
		response := s.send(http.MethodPost, "/topics/orders/api/events"+query, gridEvents("1"), "aeg-sas-key", key)
		require.Equal(t, status, response.status, query)
		if status == 400 {
			rejection := response.rejected(400, "InvalidRequest")
			require.Equal(t, []string{"api-version"}, targets(rejection))
			require.Contains(t, rejection.Message, "2018-01-01")
		}
	}
}

// Repeated requests and duplicates get the response of any publish. jobs/publish has what is stored of them.
func TestRepeatedPublishes(t *testing.T) {
	t.Parallel()
	reports := make(chan server.PublishReport, 10)
	s := setup(t, func(o *server.Options) { o.OnPublish = func(r server.PublishReport) { reports <- r } })
	key := s.topic("orders", `{"duplicateDetectionWindowInMinutes":1440}`)
	require.InDelta(t, 1440, s.get("/v1/topics/orders").json(200)["duplicateDetectionWindowInMinutes"], 0)
	for _, row := range []struct{ body, key, reported string }{
		{gridEvents("1", "2"), "order-1", "1"},
		{gridEvents("8"), "order-1", ""}, // the key of a stored request
		{gridEvents("8"), `"order-1"`, "8"},
		{gridEvents("1"), "a", ""},
		{gridEvents("2", "3", "3"), strings.Repeat("k", 255), "3"},
	} {
		require.Empty(t, s.publish("orders", key, row.body, "Idempotency-Key", row.key).is(200).body)
		if row.reported == "" {
			require.Empty(t, reports, "a repeat is no publish")
			continue
		}
		require.Equal(t, row.reported, (<-reports).Events[0].ID)
	}
	for _, wrong := range []string{"", strings.Repeat("k", 256)} {
		rejection := s.publish("orders", key, gridEvents("4"), "Idempotency-Key", wrong).rejected(400, "InvalidRequest")
		require.Equal(t, []string{"Idempotency-Key"}, targets(rejection))
		require.Contains(t, rejection.Message, "1 to 255 bytes")
	}

	// The first one is not committed yet: 503, so the client sends it again.
	end := s.tn.OpenTransaction(t, `SELECT postrider.publish('orders', '{"id": "4", "eventType": "A", "subject": ""}')`)
	response := s.publish("orders", key, gridEvents("4"))
	response.rejected(503, "ServiceUnavailable")
	require.NotEmpty(t, response.header.Get("Retry-After"))
	end(true)
	s.events(key, "4")
	require.Equal(t, 5, s.count("SELECT count(*) FROM postrider.events"))
}

func TestPublishSize(t *testing.T) {
	t.Parallel()
	s := setup(t)
	key := s.topic("orders", "")
	frame := `[{"id":"1","subject":"","eventType":"t","eventTime":"2026-11-20T09:30:00Z","data":"%s"}]`
	exactly := func(n int) string { return fmt.Sprintf(frame, strings.Repeat("x", n-len(frame)+2)) }
	require.Len(t, exactly(1<<20), 1<<20)

	s.publish("orders", key, exactly(1<<20)).is(200)
	require.Equal(t, 200, s.publish("orders", key, exactly(70_000)).status, "larger than a pooled buffer")
	s.publish("orders", key, exactly(1<<20+1)).rejected(413, "PayloadTooLarge")

	// Without a length, as a chunked body comes.
	chunked := s.serve(access.Actor{}, http.MethodPost, "/topics/orders/api/events", exactly(1<<20+1), "aeg-sas-key", key,
		"Content-Length", "-1")
	chunked.rejected(413, "PayloadTooLarge")
	chunked = s.serve(access.Actor{}, http.MethodPost, "/topics/orders/api/events", exactly(1<<20), "aeg-sas-key", key,
		"Content-Length", "-1")
	require.Equal(t, 200, chunked.status)
	require.Equal(t, 3, s.count("SELECT count(*) FROM postrider.events"))
	require.Equal(t, 2, s.count("SELECT count(*) FROM postrider.events WHERE body_bytes = $1", 1<<20-2))
}

// JSON that PostgreSQL's jsonb rejects is stored, and the views stay readable. internal/event has what is rejected.
func TestPublishPoison(t *testing.T) {
	t.Parallel()
	s := setup(t)
	key := s.topic("orders", "")
	s.subscription("orders", "all", `{"endpointUrl":"https://example.com/"}`)
	with := func(data string) string {
		return `[{"id":"1","subject":"s","eventType":"t","eventTime":"2026-11-20T09:30:00Z","dataVersion":"1","data":` +
			data + `}]`
	}
	accepted := []string{
		with(`"a\u0000b"`), with(`{"a\u0000b":1}`), with(`"\ud800"`), with(`1e999999`), with(strings.Repeat("9", 10_000)),
		with(`{"a":1,"a":2}`), with(strings.Repeat("[", 200) + strings.Repeat("]", 200)), "\ufeff" + with("1"),
	}
	for _, body := range accepted {
		s.publish("orders", key, body).is(200)
	}
	s.publish("orders", key, " [ ] \n").is(200)
	for _, body := range []string{
		with(strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000)), with("\"\xff\""), with("\"\x00\""),
		with("\"\xc0\xaf\""), "[null]",
	} {
		s.publish("orders", key, body).is(400)
	}
	for _, view := range []string{"events", "deliveries"} {
		// As text, because pgx would read jsonb's numbers as float64.
		require.Equal(t, len(accepted), s.count("SELECT count(v::text) FROM postrider."+view+" v"),
			"every row of %s can be shown", view)
	}
	require.Equal(t, 1,
		s.count("SELECT count(*) FROM postrider.events WHERE '['||body_text||']' = $1", with(`"a\u0000b"`)), "byte for byte")
}

// Concurrent publishers share pooled buffers, and their own bytes are stored.
func TestPublishConcurrently(t *testing.T) {
	t.Parallel()
	s := setup(t)
	key := s.topic("orders", "")
	const publishers, each = 16, 20
	var group sync.WaitGroup
	failed := make(chan string, publishers*each)
	for p := range publishers {
		group.Go(func() {
			for i := range each {
				body := "[" + gridEvent(fmt.Sprintf("%d-%s-%d", p, strings.Repeat("x", 7*p), i)) + "]"
				if a := s.serve(access.Actor{}, http.MethodPost, "/topics/orders/api/events", body, "aeg-sas-key",
					key); a.status != 200 {
					failed <- a.body
				}
			}
		})
	}
	group.Wait()
	close(failed)
	require.Empty(t, failed)
	require.Equal(t, publishers*each, s.count("SELECT count(DISTINCT event_id) FROM postrider.events "+
		"WHERE subject = 'orders/'||event_id AND body->>'id' = event_id"))
}
