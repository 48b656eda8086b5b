package server_test

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/server"
)

func TestPublishEventGrid(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var reports []string
	b := setup(t, func(o *server.Options) {
		o.OnPublish = func(r server.PublishReport) {
			mu.Lock()
			defer mu.Unlock()
			for i, e := range r.Events {
				reports = append(reports, fmt.Sprintf("%s %s %d %s", r.Topic, e.ID, r.Matched[i], e.Body))
			}
		}
	})
	key := b.topic("orders", "")
	b.subscription("orders", "everything", `{"endpointUrl":"https://example.com/all"}`)
	b.subscription("orders", "only-two", `{"endpointUrl":"https://example.com/two","filter":{"subjectEndsWith":"/2"}}`)

	response := b.publish("orders", key, "["+gridEvent("1")+","+gridEvent("2")+"]")
	require.Equal(t, http.StatusOK, response.status, response.body)
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
	}, b.rows("SELECT topic, event_id, event_type, subject, schema, matched, body_text FROM postrider.events "+
		"ORDER BY event_id"))
	require.Equal(t, []map[string]any{
		{"subscription": "everything", "event_id": "1", "state": "pending"},
		{"subscription": "everything", "event_id": "2", "state": "pending"},
		{"subscription": "only-two", "event_id": "2", "state": "pending"},
	}, b.rows("SELECT subscription, event_id, state FROM postrider.deliveries ORDER BY subscription, event_id"))
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, []string{"orders 1 1 " + gridEvent("1"), "orders 2 2 " + gridEvent("2")}, reports)
}

func TestPublishCloudEvents(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key := b.topic("shop", `{"inputSchema":"CloudEventSchemaV1_0"}`)
	for name, row := range map[string]struct{ contentType, body string }{
		"one, structured": {"application/cloudevents+json; charset=utf-8", cloudEvent("a")},
		"a batch": {"application/cloudevents-batch+json; charset=utf-8", "[" + cloudEvent("b") + "," +
			cloudEvent("c") + "]"},
		"one as JSON": {"application/json", cloudEvent("d")},
	} {
		response := b.publish("shop", key, row.body, "Content-Type", row.contentType)
		require.Equal(t, http.StatusOK, response.status, name+response.body)
	}
	require.Equal(t, 4,
		b.count("SELECT count(*) FROM postrider.events WHERE schema = 'CloudEventSchemaV1_0' AND source = '/shop'"))
	require.Equal(t, 1, b.count("SELECT count(*) FROM postrider.events WHERE body_text = $1", cloudEvent("c")))
}

func TestPublishInBinaryMode(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key := b.topic("shop", `{"inputSchema":"CloudEventSchemaV1_0"}`)
	headers := []string{
		"ce-specversion", "1.0", "ce-id", "a%20b", "ce-source", "/shop", "ce-type", "Shop.OrderPlaced", "Content-Type",
	}
	response := b.publish("shop", key, `{"total":12.50}`, append(headers, "application/json")...)
	require.Equal(t, http.StatusOK, response.status, response.body)
	require.Equal(t, []map[string]any{{
		"event_id": "a b", "source": "/shop", "schema": "CloudEventSchemaV1_0",
		"body_text": `{"id":"a b","source":"/shop","specversion":"1.0","type":"Shop.OrderPlaced",` +
			`"datacontenttype":"application/json","data":{"total":12.50}}`,
	}}, b.rows("SELECT event_id, source, schema, body_text FROM postrider.events"))

	rejected := b.publish("shop", key, `{`, append(headers, "application/json")...).rejected(400, "InvalidJson")
	require.Equal(t, "events[0].data: the text ends too early, at byte 1 of the body", rejected.Message)
	rejected = b.publish("shop", key, `x`, "ce-id", "1", "Content-Type", "text/plain").rejected(400, "InvalidEvent")
	require.Equal(t, "header ce-specversion: is required", rejected.Message)
}

func TestPublishCredentials(t *testing.T) {
	t.Parallel()
	b := setup(t)
	keys := b.manage(http.MethodPut, "/v1/topics/orders", "").json(http.StatusCreated)
	key1, key2 := keys["key1"].(string), keys["key2"].(string)
	other := b.topic("parcels", "")
	_, _, err := b.store.Topics.Put(t.Context(), "made-by-dev", catalog.TopicSpec{
		Kind: catalog.TopicBasic, InputSchema: event.EventGrid, Keys: &catalog.AccessKeys{Key1: devKey, Key2: devKey},
	})
	require.NoError(t, err)
	for name, row := range map[string]struct {
		topic   string
		headers []string
		status  int
	}{
		"key1":                               {"orders", []string{"aeg-sas-key", key1}, 200},
		"key2":                               {"orders", []string{"aeg-sas-key", key2}, 200},
		"key1 as bearer":                     {"orders", []string{"Authorization", "Bearer " + key1}, 200},
		"key2 as bearer, scheme in small":    {"orders", []string{"Authorization", "bearer " + key2}, 200},
		"the admin token as bearer":          {"orders", []string{"Authorization", "Bearer " + adminToken}, 200},
		"key1 as SharedAccessKey":            {"orders", []string{"Authorization", "SharedAccessKey " + key1}, 200},
		"a wrong SharedAccessKey":            {"orders", []string{"Authorization", "SharedAccessKey wrong"}, 401},
		"the admin token as SharedAccessKey": {"orders", []string{"Authorization", "SharedAccessKey " + adminToken}, 401},
		"the admin token as access key":      {"orders", []string{"aeg-sas-key", adminToken}, 401},
		"a wrong key":                        {"orders", []string{"aeg-sas-key", "wrong"}, 401},
		"a wrong key beside a good bearer": {
			"orders", []string{"aeg-sas-key", "wrong", "Authorization", "Bearer " + key1}, 401,
		},
		"a wrong bearer":                         {"orders", []string{"Authorization", "Bearer wrong"}, 401},
		"another topic's key":                    {"orders", []string{"aeg-sas-key", other}, 401},
		"half a key":                             {"orders", []string{"aeg-sas-key", key1[:20]}, 401},
		"another scheme":                         {"orders", []string{"Authorization", "Basic " + key1}, 401},
		"an empty bearer":                        {"orders", []string{"Authorization", "Bearer "}, 401},
		"none":                                   {"orders", nil, 401},
		"none, on a topic that is not there":     {"nothing", nil, 401},
		"any, on a topic that is not there":      {"nothing", []string{"aeg-sas-key", "any"}, 401},
		"admin, on a topic that is not there":    {"nothing", []string{"Authorization", "Bearer " + adminToken}, 404},
		"any, on a name that cannot be":          {"%00%ff", []string{"aeg-sas-key", "any"}, 401},
		"key1, the name encoded more than needs": {"%6Frders", []string{"aeg-sas-key", key1}, 200},
		"the well-known key of dev":              {"made-by-dev", []string{"aeg-sas-key", devKey}, 401},
	} {
		response := b.send(http.MethodPost, "/topics/"+row.topic+"/api/events", "["+gridEvent("1")+"]", row.headers...)
		require.Equal(t, row.status, response.status, "%s: %s", name, response.body)
		switch row.status {
		case 401:
			response.rejected(401, "Unauthorized")
			require.Equal(t, `Bearer realm="postrider"`, response.header.Get("WWW-Authenticate"), name)
		case 404:
			response.rejected(404, "NotFound")
		}
	}
	require.Equal(t, 7, b.count("SELECT count(*) FROM postrider.events"))
}

func TestDevKey(t *testing.T) {
	t.Parallel()
	b := setup(t, func(o *server.Options) { o.AllowDevKey = true })
	_, _, err := b.store.Topics.Put(t.Context(), "made-by-dev", catalog.TopicSpec{
		Kind: catalog.TopicBasic, InputSchema: event.EventGrid, Keys: &catalog.AccessKeys{Key1: devKey, Key2: devKey},
	})
	require.NoError(t, err)
	require.Equal(t, 200, b.publish("made-by-dev", devKey, "["+gridEvent("1")+"]").status)

	serving, err := server.New(server.Options{Parts: b.store.API(), AdminToken: adminToken, DevKey: devKey})
	require.NoError(t, err)
	rejected := serve(t, serving, http.MethodPost, "/topics/made-by-dev/api/events", "["+gridEvent("1")+"]",
		"aeg-sas-key", devKey)
	require.Contains(t, rejected.rejected(401, "Unauthorized").Message, "loopback")
}

func TestPublishRejections(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key := b.topic("orders", "")
	ceKey := b.topic("shop", `{"inputSchema":"CloudEventSchemaV1_0"}`)
	without := func(member string) string {
		return "[" + gridEvent("1") + "," + strings.Replace(gridEvent("2"), `"`+member+`":`, `"x`+member+`":`, 1) + "]"
	}
	type row struct {
		topic, body string
		headers     []string
		status      int
		code        string
		target      string
	}
	orders := func(body string, status int, code, target string, headers ...string) row {
		return row{"orders", body, headers, status, code, target}
	}
	for name, row := range map[string]row{
		"no id":        orders(without("id"), 400, "InvalidEvent", "events[1].id"),
		"no subject":   orders(without("subject"), 400, "InvalidEvent", "events[1].subject"),
		"no eventType": orders(without("eventType"), 400, "InvalidEvent", "events[1].eventType"),
		"no eventTime": orders(without("eventTime"), 400, "InvalidEvent", "events[1].eventTime"),
		"eventTime not a time": orders(strings.Replace("["+gridEvent("1")+"]", "2026-11-20T", "20 November", 1), 400,
			"InvalidEvent", "events[0].eventTime"),
		"an object, not an array": orders(gridEvent("1"), 400, "InvalidEvent", ""),
		"no JSON":                 orders("hello", 400, "InvalidJson", ""),
		"half a body":             orders("["+gridEvent("1"), 400, "InvalidJson", "events[0]"),
		"nothing":                 orders("", 400, "InvalidJson", ""),
		"bad UTF-8": orders(strings.Replace("["+gridEvent("1")+"]", "orders/", "orders\xff", 1), 400,
			"InvalidJson", ""),
		"a member twice": orders(strings.Replace("["+gridEvent("1")+"]", `{`, `{"id":"0",`, 1), 400, "InvalidEvent",
			"events[0].id"),
		"NUL in the event type": orders(strings.Replace("["+gridEvent("1")+"]", "Shop.", `\u0000`, 1), 400, "InvalidEvent",
			"events[0].eventType"),
		"too many events": orders(
			"["+
				strings.TrimSuffix(strings.Repeat(`{"id":"1","subject":"","eventType":"t","eventTime":"2026-11-20T09:30:00Z"},`,
					5001), ",")+"]", 413, "PayloadTooLarge", "events[5000]"),
		"another content type": orders("["+gridEvent("1")+"]", 415, "UnsupportedMediaType", "", "Content-Type",
			"text/plain"),
		"a compressed body": orders("["+gridEvent("1")+"]", 415, "UnsupportedMediaType", "",
			"Content-Encoding", "gzip"),
		"a CloudEvent elsewhere": orders("["+cloudEvent("1")+"]", 400, "InvalidEvent", "events[0].eventType"),
		"a CloudEvent without id": {"shop", strings.Replace(cloudEvent("1"), `"id"`, `"xid"`,
			1), []string{"Content-Type", "application/cloudevents+json"}, 400, "InvalidEvent", "events[0].id"},
		"Event Grid among the CEs": {"shop", gridEvent("1"), nil, 400, "InvalidEvent", "events[0].specversion"},
	} {
		k := key
		if row.topic == "shop" {
			k = ceKey
		}
		rejection := b.publish(row.topic, k, row.body, row.headers...).rejected(row.status, row.code)
		want := []string{}
		if row.target != "" {
			want = append(want, row.target)
		}
		require.Equal(t, want, targets(rejection), "%s: %s", name, rejection.Message)
	}
	require.Zero(t, b.count("SELECT count(*) FROM postrider.events"), "all or none")
	require.Zero(t, b.count("SELECT count(*) FROM postrider.deliveries"))
}

func TestPublishVersion(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key := b.topic("orders", "")
	body := "[" + gridEvent("1") + "]"
	for query, status := range map[string]int{
		"": 200, "?api-version=2018-01-01": 200, "?other=1": 200, "?api-version=": 400, "?api-version=2017-09-15": 400,
	} {
		response := b.send(http.MethodPost, "/topics/orders/api/events"+query, body, "aeg-sas-key", key)
		require.Equal(t, status, response.status, query)
		if status == 400 {
			rejection := response.rejected(400, "InvalidRequest")
			require.Equal(t, []string{"api-version"}, targets(rejection))
			require.Contains(t, rejection.Message, "2018-01-01")
		}
	}
}

func TestPublishWithIdempotencyKey(t *testing.T) {
	t.Parallel()
	reports := make(chan server.PublishReport, 10)
	b := setup(t, func(o *server.Options) { o.OnPublish = func(r server.PublishReport) { reports <- r } })
	key := b.topic("orders", "")
	send := func(event string, headers ...string) response {
		return b.send(http.MethodPost, "/topics/orders/api/events", "["+event+"]",
			append([]string{"aeg-sas-key", key}, headers...)...)
	}
	for range 3 {
		response := send(gridEvent("1"), "Idempotency-Key", "order-1")
		require.Equal(t, 200, response.status)
		require.Empty(t, response.body)
	}
	require.Equal(t, 200, send(gridEvent("2"), "Idempotency-Key", `"order-1"`).status, "quotes are part of a key")
	require.Equal(t, 200, send(gridEvent("3"), "Idempotency-Key", strings.Repeat("k", 255)).status)
	require.Equal(t, 3, b.count("SELECT count(*) FROM postrider.events"))
	require.Len(t, reports, 3, "a repeat is no publish")
	for _, wrong := range [][]string{{"Idempotency-Key", ""}, {"Idempotency-Key", strings.Repeat("k", 256)}} {
		rejection := send(gridEvent("4"), wrong...).rejected(400, "InvalidRequest")
		require.Equal(t, []string{"Idempotency-Key"}, targets(rejection))
		require.Contains(t, rejection.Message, "1 to 255 bytes")
	}
	require.Equal(t, 3, b.count("SELECT count(*) FROM postrider.events"))
}

func TestPublishOfDuplicates(t *testing.T) {
	t.Parallel()
	reports := make(chan server.PublishReport, 10)
	b := setup(t, func(o *server.Options) { o.OnPublish = func(r server.PublishReport) { reports <- r } })
	key := b.topic("orders", `{"duplicateDetectionWindowInMinutes":1440}`)
	shown := b.manage(http.MethodGet, "/v1/topics/orders", "").json(200)
	require.InDelta(t, 1440, shown["duplicateDetectionWindowInMinutes"], 0)
	require.Equal(t, 1, b.count("SELECT duplicate_detection_window_in_minutes / 1440 FROM postrider.topics"))
	for _, row := range []struct {
		body     string
		reported []string
	}{
		{"[" + gridEvent("1") + "," + gridEvent("2") + "]", []string{"1", "2"}},
		{"[" + gridEvent("1") + "]", nil},
		{"[" + gridEvent("2") + "," + gridEvent("3") + "," + gridEvent("3") + "]", []string{"3"}},
	} {
		response := b.publish("orders", key, row.body)
		require.Equal(t, 200, response.status)
		require.Empty(t, response.body, "as of any publish")
		if row.reported == nil {
			require.Empty(t, reports)
			continue
		}
		report := <-reports
		var reported []string
		for _, e := range report.Events {
			reported = append(reported, e.ID)
		}
		require.Equal(t, row.reported, reported)
		require.Len(t, report.Matched, len(reported))
	}
	require.Equal(t, 3, b.count("SELECT count(*) FROM postrider.events"))

	// The first one is not committed yet: 503, so the client sends it again.
	tx, err := b.db.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), `SELECT postrider.publish('orders', '{"id": "4", "eventType": "A", "subject": ""}')`)
	require.NoError(t, err)
	response := b.publish("orders", key, "["+gridEvent("4")+"]")
	response.rejected(503, "ServiceUnavailable")
	require.NotEmpty(t, response.header.Get("Retry-After"))
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, 200, b.publish("orders", key, "["+gridEvent("4")+"]").status)
	require.Equal(t, 4, b.count("SELECT count(*) FROM postrider.events"))

	b.manage(http.MethodPut, "/v1/topics/orders", "").json(200)
	require.NotContains(t, b.manage(http.MethodGet, "/v1/topics/orders", "").json(200),
		"duplicateDetectionWindowInMinutes", "left out, it is off")
	require.Equal(t, 200, b.publish("orders", key, "["+gridEvent("4")+"]").status)
	require.Equal(t, 5, b.count("SELECT count(*) FROM postrider.events"))
}

func TestPublishSize(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key := b.topic("orders", "")
	frame := `[{"id":"1","subject":"","eventType":"t","eventTime":"2026-11-20T09:30:00Z","data":"%s"}]`
	exactly := func(n int) string { return fmt.Sprintf(frame, strings.Repeat("x", n-len(frame)+2)) }
	require.Len(t, exactly(1<<20), 1<<20)

	require.Equal(t, 200, b.publish("orders", key, exactly(1<<20)).status)
	require.Equal(t, 200, b.publish("orders", key, exactly(70_000)).status, "larger than a pooled buffer")
	b.publish("orders", key, exactly(1<<20+1)).rejected(413, "PayloadTooLarge")

	// Without a length, as a chunked body comes.
	chunked := serve(t, b.server, http.MethodPost, "/topics/orders/api/events", exactly(1<<20+1), "aeg-sas-key", key,
		"Content-Length", "-1")
	chunked.rejected(413, "PayloadTooLarge")
	chunked = serve(t, b.server, http.MethodPost, "/topics/orders/api/events", exactly(1<<20), "aeg-sas-key", key,
		"Content-Length", "-1")
	require.Equal(t, 200, chunked.status)
	require.Equal(t, 3, b.count("SELECT count(*) FROM postrider.events"))
	require.Equal(t, 2, b.count("SELECT count(*) FROM postrider.events WHERE body_bytes = $1", 1<<20-2))
}

// JSON that PostgreSQL's jsonb rejects is stored, and the views stay readable.
func TestPublishPoison(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key := b.topic("orders", "")
	b.subscription("orders", "all", `{"endpointUrl":"https://example.com/"}`)
	with := func(data string) string {
		return `[{"id":"1","subject":"s","eventType":"t","eventTime":"2026-11-20T09:30:00Z","dataVersion":"1","data":` +
			data + `}]`
	}
	stored := 0
	for name, row := range map[string]struct {
		body   string
		status int
		events int
	}{
		"NUL escaped in data":             {with(`"a\u0000b"`), 200, 1},
		"NUL escaped in a name of data":   {with(`{"a\u0000b":1}`), 200, 1},
		"a lone surrogate":                {with(`"\ud800"`), 200, 1},
		"a number that is beyond all":     {with(`1e999999`), 200, 1},
		"a number of ten thousand digits": {with(strings.Repeat("9", 10_000)), 200, 1},
		"equal names in data":             {with(`{"a":1,"a":2}`), 200, 1},
		"200 levels":                      {with(strings.Repeat("[", 200) + strings.Repeat("]", 200)), 200, 1},
		"100,000 levels":                  {with(strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000)), 400, 0},
		"bad UTF-8":                       {with("\"\xff\""), 400, 0},
		"a raw NUL":                       {with("\"\x00\""), 400, 0},
		"an overlong slash":               {with("\"\xc0\xaf\""), 400, 0},
		"no event":                        {"[]", 200, 0},
		"no event, with spaces":           {" [ ] \n", 200, 0},
		"an array of null":                {"[null]", 400, 0},
		"a byte order mark":               {"\ufeff" + with("1"), 200, 1},
	} {
		response := b.publish("orders", key, row.body)
		require.Equal(t, row.status, response.status, "%s: %s", name, response.body)
		stored += row.events
	}
	for view, rows := range map[string]int{"events": stored, "deliveries": stored, "dead_letters": 0} {
		// As text, because pgx would read jsonb's numbers as float64.
		require.Equal(t, rows, b.count("SELECT count(v::text) FROM postrider."+view+" v"),
			"every row of %s can be shown", view)
	}
	require.Equal(t, 1,
		b.count("SELECT count(*) FROM postrider.events WHERE '['||body_text||']' = $1", with(`"a\u0000b"`)), "byte for byte")
}

func TestPublishSeesOtherNodes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other := openStore(t, b.dbURL)
	_, keys, err := other.Topics.Put(t.Context(), "elsewhere",
		catalog.TopicSpec{Kind: catalog.TopicBasic, InputSchema: event.EventGrid})
	require.NoError(t, err)
	require.Equal(t, 200, b.publish("elsewhere", keys.Key1, "["+gridEvent("1")+"]").status,
		"a topic made on another node a moment ago")

	_, _, err = other.Subscriptions.Put(t.Context(), "elsewhere", "late", catalog.SubscriptionSpec{
		EndpointURL: "https://example.com", EndpointKind: "webhook",
		EventDeliverySchema: event.EventGrid, RetryPolicy: catalog.RetryPolicySpec{Policy: "ga-2021"},
	})
	require.NoError(t, err)
	require.Equal(t, 200, b.publish("elsewhere", keys.Key1, "["+gridEvent("2")+"]").status)
	require.Equal(t, []map[string]any{{"subscription": "late", "event_id": "2"}},
		b.rows("SELECT subscription, event_id FROM postrider.deliveries"),
		"an event subscription made on another node a moment ago")

	require.NoError(t, other.Subscriptions.Delete(t.Context(), "elsewhere", "late"))
	require.NoError(t, other.Topics.Delete(t.Context(), "elsewhere"))
	b.publish("elsewhere", keys.Key1, "["+gridEvent("3")+"]").rejected(401, "Unauthorized")
}

// Concurrent publishers share pooled buffers, and their own bytes are stored.
func TestPublishConcurrently(t *testing.T) {
	t.Parallel()
	b := setup(t, func(o *server.Options) { o.AllowCIDR = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} })
	key := b.topic("orders", "")
	const publishers, each = 16, 20
	var group sync.WaitGroup
	failed := make(chan string, publishers*each)
	for p := range publishers {
		group.Go(func() {
			for i := range each {
				body := "[" + gridEvent(fmt.Sprintf("%d-%s-%d", p, strings.Repeat("x", 7*p), i)) + "]"
				if a := serve(t, b.server, http.MethodPost, "/topics/orders/api/events", body, "aeg-sas-key",
					key); a.status != 200 {
					failed <- a.body
				}
			}
		})
	}
	group.Wait()
	close(failed)
	require.Empty(t, failed)
	require.Equal(t, publishers*each, b.count("SELECT count(DISTINCT event_id) FROM postrider.events "+
		"WHERE subject = 'orders/'||event_id AND body->>'id' = event_id"))
}
