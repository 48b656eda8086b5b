package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const conformanceMapping = `{"inputSchema":"CustomEventSchema","inputSchemaMapping":{"inputSchemaMappingType":"Json",` +
	`"properties":{
	"id":{"sourceField":"orderId"},"eventType":{"sourceField":"action","defaultValue":"Unknown"},` +
	`"subject":{"sourceField":"customer","defaultValue":"unknown"},
	"dataVersion":{"defaultValue":"2"}}}}`

// makeTopic makes a topic of any kind and returns its access key.
func (s *service) makeTopic(name, body string) string {
	s.t.Helper()
	var made struct{ Key1 string }
	require.NoError(s.t,
		json.Unmarshal([]byte(s.manage(http.StatusCreated, http.MethodPut, "/v1/topics/"+name, body)), &made))
	return made.Key1
}

// subscribeAs has a topic's events delivered to a reader of the receiver, in a schema, batches if most > 1.
func (s *service) subscribeAs(topic, name, schema, endpoint string, most int) {
	s.t.Helper()
	s.manage(http.StatusCreated, http.MethodPut, "/v1/topics/"+topic+"/subscriptions/"+name,
		fmt.Sprintf(`{"endpointUrl":%q,"endpointValidation":"skip","eventDeliverySchema":%q,"maxEventsPerBatch":%d}`,
			endpoint+"/"+name, schema, most))
}

func eventsPath(topic string) string { return "/topics/" + topic + "/api/events" }

// Microsoft's client for JavaScript: what it sends is stored as it sent it, and what is delivered is read by
// Microsoft's EventGridDeserializer and by the CloudEvents project's HTTP.toEvent.
func TestConformanceAzureEventGridForJavaScript(t *testing.T) {
	t.Parallel()
	to := startReceiver(t)
	db := migratedDatabase(t)
	n := startNode(t, db)
	grid, cloud, custom := n.makeTopic("grid", "{}"), n.topic("cloud"), n.makeTopic("custom", conformanceMapping)
	n.subscribeAs("grid", "grid-as-grid", "EventGridSchema", to.url+"/grid", 1)
	n.subscribeAs("grid", "grid-batched", "EventGridSchema", to.url+"/grid", 10)
	n.subscribeAs("grid", "grid-as-cloud", "CloudEventSchemaV1_0", to.url+"/cloudevents", 1)
	n.subscribeAs("cloud", "cloud-lone", "CloudEventSchemaV1_0", to.url+"/cloudevents", 1)
	n.subscribeAs("cloud", "cloud-batched", "CloudEventSchemaV1_0", to.url+"/cloudevents", 10)
	n.subscribeAs("cloud", "cloud-azure", "CloudEventSchemaV1_0", to.url+"/cloud", 1)

	c := &clientCases{t, map[string]*clientCase{}}
	for _, how := range []string{"key", "signature"} {
		c.add("grid, "+how, &n.service, eventsPath("grid"), grid, "topic", "grid")
		c.add("cloud, "+how, &n.service, eventsPath("cloud"), cloud)
		c.add("custom, "+how, &n.service, eventsPath("custom"), custom)
	}
	c.add("custom, none", &n.service, eventsPath("custom"), custom)
	c.add("wrong key", &n.service, eventsPath("grid"), cloud)
	c.add("expired signature", &n.service, eventsPath("grid"), grid)
	c.add("no such topic", &n.service, eventsPath("nothing"), grid)
	c.add("another schema", &n.service, eventsPath("cloud"), cloud)
	c.add("an event without a type", &n.service, eventsPath("grid"), grid)
	c.add("too large", &n.service, eventsPath("grid"), grid)
	c.run("eventgrid.mjs")

	require.Empty(t, c.sent("custom, none"))
	gridEvents, cloudEvents := c.sent("grid, key", "grid, signature"), c.sent("cloud, key", "cloud, signature")
	db.stored("grid", gridEvents)
	db.stored("cloud", cloudEvents)
	db.stored("custom", c.sent("custom, key", "custom, signature"))
	c.failed("wrong key", http.StatusUnauthorized, "Unauthorized", "access key")
	c.failed("expired signature", http.StatusUnauthorized, "Unauthorized", "expired")
	c.failed("no such topic", http.StatusUnauthorized, "Unauthorized", "the topic does not exist")
	c.failed("another schema", http.StatusBadRequest, "InvalidEvent", "events[0].specversion: is required")
	c.failed("an event without a type", http.StatusBadRequest, "InvalidEvent", "events[1].eventType")
	c.failed("too large", http.StatusRequestEntityTooLarge, "PayloadTooLarge", "1048576")

	requireGridDeliveries(t, to, gridEvents)
	requireCloudDeliveries(t, to, cloudEvents)
	db.drained()
	require.Zero(t, one[int](db, "SELECT count(*) FROM postrider.deliveries WHERE state <> 'delivered'"))
}

// requireGridDeliveries: Event Grid events arrive with nothing added but topic and metadataVersion, and become
// CloudEvents.
func requireGridDeliveries(t *testing.T, to *receiver, events []string) {
	t.Helper()
	var expected []string
	byID := map[string]map[string]any{}
	for _, e := range events {
		f := fields(t, e)
		byID[f["id"].(string)] = f
		if f["topic"] == nil {
			e = strings.TrimSuffix(e, "}") + `,"topic":"/topics/grid"}`
			f["topic"] = "/topics/grid"
		}
		f["metadataVersion"] = "1"
		expected = append(expected, strings.TrimSuffix(e, "}")+`,"metadataVersion":"1"}`)
	}
	lone := to.deliveries("grid-as-grid", len(events))
	var arrays, batched []string
	for _, e := range expected {
		arrays = append(arrays, "["+e+"]")
	}
	require.ElementsMatch(t, arrays, bodies(lone))
	for _, d := range to.deliveries("grid-batched", len(events)) {
		batched = append(batched, members(t, []byte(d.Body))...)
	}
	require.ElementsMatch(t, expected, batched)
	for _, d := range lone {
		require.Equal(t, "application/json; charset=utf-8", d.Type)
		require.Equal(t, []map[string]any{byID[d.Events[0]["id"].(string)]}, d.Events, "as EventGridDeserializer reads it")
	}
	for _, d := range to.deliveries("grid-as-cloud", len(events)) {
		require.Equal(t, "application/cloudevents+json; charset=utf-8", d.Type)
		from := byID[d.Events[0]["id"].(string)]
		require.Equal(t, map[string]any{
			"specversion": "1.0", "id": from["id"], "source": "/topics/grid", "type": from["eventType"],
			"subject": from["subject"], "time": from["eventTime"],
			"datacontenttype": "application/json", "dataversion": from["dataVersion"], "data": from["data"],
		}, d.Events[0], "as HTTP.toEvent reads it")
	}
}

// requireCloudDeliveries: CloudEvents arrive to the last byte as they were sent, alone and in batches.
func requireCloudDeliveries(t *testing.T, to *receiver, events []string) {
	t.Helper()
	byID := map[string]map[string]any{}
	for _, e := range events {
		f := fields(t, e)
		byID[f["id"].(string)] = f
	}
	lone := to.deliveries("cloud-lone", len(events))
	require.ElementsMatch(t, events, bodies(lone))
	var batched []string
	batches := to.deliveries("cloud-batched", len(events))
	for _, d := range batches {
		require.Equal(t, "application/cloudevents-batch+json; charset=utf-8", d.Type)
		batched = append(batched, members(t, []byte(d.Body))...)
	}
	require.ElementsMatch(t, events, batched)
	for _, d := range append(lone, batches...) {
		for _, read := range d.Events {
			sent := maps.Clone(byID[read["id"].(string)])
			if read["data_base64"] != nil {
				delete(read, "data") // the same bytes once more, which toEvent makes of them
			}
			require.Equal(t, sent, read, "as HTTP.toEvent reads it")
		}
	}
	azure := to.deliveries("cloud-azure", len(events))
	require.ElementsMatch(t, events, bodies(azure))
	for _, d := range azure {
		read, sent := d.Events[0], byID[d.Events[0]["id"].(string)]
		require.Equal(t, sent["type"], read["type"])
		if sent["data_base64"] != nil {
			require.Equal(t, "base64:"+sent["data_base64"].(string), read["data"])
			continue
		}
		require.Equal(t, sent["data"], read["data"])
		if sent["ext2"] != nil {
			require.Equal(t, map[string]any{"ext1": "one", "ext2": 5.0, "ext3": true}, read["extensionAttributes"])
		}
	}
}

// Microsoft's client sends a request up to four times after a retryable response, and waits for Retry-After.
func TestConformanceAzureEventGridForJavaScriptTriesAgain(t *testing.T) {
	t.Parallel()
	db := migratedDatabase(t)
	line := newWire(t, db)
	away := startNode(t, line.through(db))
	key := away.makeTopic("grid", "{}")
	c := &clientCases{t, map[string]*clientCase{}}
	lost := c.add("database away", &away.service, eventsPath("grid"), key)
	line.breaks(func(*wireLine, wireMessage) fate { return cutHere })
	c.run("eventgrid.mjs")

	require.NotNil(t, lost.error)
	require.Equal(t, []int{503, 503, 503, 503}, lost.statuses())
	require.Equal(t, []any{503, "ServiceUnavailable"}, []any{lost.error.Status, lost.error.Code})
}
