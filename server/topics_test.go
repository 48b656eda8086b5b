package server_test

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"postrider/internal/testnode"

	"github.com/stretchr/testify/require"
)

// customWithoutID are the settings of a topic whose events have no id of their own.
const customWithoutID = `{"inputSchema":"CustomEventSchema","inputSchemaMapping":{"inputSchemaMappingType":"Json",` +
	`"properties":{"eventType":{"defaultValue":"a"},"subject":{"defaultValue":"b"}}}}`

func TestTopicRoundTrip(t *testing.T) {
	t.Parallel()
	s := setup(t)
	made := s.put("/v1/topics/orders", "").json(201)
	require.Equal(t, []any{"orders", "basic", "EventGridSchema", "/topics/orders/api/events"},
		[]any{made["name"], made["kind"], made["inputSchema"], made["endpoint"]})
	require.NotEmpty(t, made["key1"])
	require.NotEmpty(t, made["key2"])
	require.NotEqual(t, made["key1"], made["key2"])

	shown := maps.Clone(made)
	delete(shown, "key1")
	delete(shown, "key2")
	require.Equal(t, shown, s.put("/v1/topics/orders", `{"kind":"basic"}`).json(200), "the keys are shown once")
	require.Equal(t, shown, s.get("/v1/topics/orders").json(200))
	s.put("/v1/topics/orders", `{"kind":"namespace"}`).rejected(409, "TopicExists")
	s.subscription("orders", "billing", `{"endpointUrl":"https://example.com"}`)
	require.Contains(t, s.delete("/v1/topics/orders").rejected(409, "TopicHasSubscriptions").Message,
		"event subscriptions")
	s.delete(billing).is(204)

	require.Empty(t, s.delete("/v1/topics/orders").is(204).body)
	s.delete("/v1/topics/orders").rejected(404, "NotFound")
	s.get("/v1/topics/orders").rejected(404, "NotFound")
	s.publish("orders", made["key1"].(string), gridEvents("1")).rejected(401, "Unauthorized")
}

func TestNamesThatDifferOnlyInCaseConflict(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.topic("Orders", "")
	s.get("/v1/topics/orders").rejected(404, "NotFound")
	const settings, says = `{"endpointUrl":"https://example.com"}`, `cannot be created: "%s" exists, and names must ` +
		`not differ only in letter case`
	s.subscription("Orders", "Billing", settings)
	conflicts := func(path, body, what, exists string) {
		t.Helper()
		require.Equal(t, what+" "+fmt.Sprintf(says, exists), s.put(path, body).rejected(409, "NameTaken").Message)
	}
	const billing = "/v1/topics/Orders/subscriptions/billing"
	conflicts("/v1/topics/orders", "", `topic "orders"`, "Orders")
	conflicts(billing, settings, `event subscription "billing"`, "Billing")
	conflicts(billing+"?dryRun=true", settings, `event subscription "billing"`, "Billing")
	conflicts("/v1/policies/GA-2021", "", `retry policy "GA-2021"`, "ga-2021")
	s.put("/v1/policies/mine", "").json(201)
	conflicts("/v1/policies/Mine", "", `retry policy "Mine"`, "mine")
	s.put("/v1/users/Anna", `{"role":"viewer","password":"`+testnode.Password+`"}`).json(201)
	conflicts("/v1/users/anna", `{"role":"viewer","password":"`+testnode.Password+`"}`, `user "anna"`, "Anna")
	const query = `{"sql":"select 1"}`
	s.put("/v1/queries/Mine", query).json(201)
	conflicts("/v1/queries/mine", query, `query "mine"`, "Mine")
	s.post("/v1/apiKeys", `{"name":"Reader","scope":"read"}`).json(201)
	require.Equal(t, "API key "+fmt.Sprintf(`"reader" `+says, "Reader"),
		s.post("/v1/apiKeys", `{"name":"reader","scope":"read"}`).rejected(409, "NameTaken").Message)
	for _, insert := range []string{
		`INSERT INTO postrider_internal.topics (name, kind, input_schema, key1_sealed, key2_sealed, key1_hash, key2_hash)
		 SELECT 'ORDERS', kind, input_schema, key1_sealed, key2_sealed, key1_hash, key2_hash FROM postrider_internal.topics`,
		`INSERT INTO postrider_internal.event_subscriptions (topic_id, name, settings, endpoint_base_url, endpoint_hash,
			event_delivery_schema, retry_policy)
		 SELECT topic_id, 'BILLING', settings, endpoint_base_url, endpoint_hash, event_delivery_schema, retry_policy
		   FROM postrider_internal.event_subscriptions`,
	} {
		require.Contains(t, s.tn.RejectedBy(t, insert), "lower_name_key")
	}
	s.topic("payments", "")
	s.subscription("payments", "billing", settings) // another topic's
	s.delete("/v1/topics/Orders/subscriptions/Billing").is(204)
	s.put(billing, settings).json(201)
}

// policy.TestValidName has the names, internal/catalog/spec the ranges, and internal/event the mappings.
func TestTopicRejections(t *testing.T) {
	t.Parallel()
	s := setup(t)
	const window, mapping = "duplicateDetectionWindowInMinutes", "inputSchemaMapping"
	for _, row := range [][3]string{ // the name, the body and the targets
		{"or%20ders", "", "topic"},
		{"ab", `{"kind":"premium","inputSchema":"x"}`, "topic kind inputSchema"},
		{"orders", `{"kind":"namespace","inputSchema":"EventGridSchema"}`, "inputSchema"},
		{"orders", `{"eventRetentionInDays":7}`, "eventRetentionInDays"}, // of a basic topic
		{"orders", `{"kind":"namespace","eventRetentionInDays":8}`, "eventRetentionInDays"},
		{"orders", `{"` + window + `":0}`, window},
		{"orders", strings.TrimSuffix(customWithoutID, "}") + `,"` + window + `":60}`, window},
		{"orders", `{"a":1,"kind":7,"b":2}`, "a b kind"},
		{"orders", `{"inputSchema":"CustomEventSchema"}`, mapping},
		{"orders", `{"inputSchemaMapping":` + orderMapping + `}`, mapping},
		{"orders", strings.Replace(customTopic, "Json", "Xml", 1), mapping + ".inputSchemaMappingType"},
		{"orders", strings.Replace(customTopic, "subject", "Subject", 1), mapping + ".properties.Subject"},
		{"orders", strings.Replace(customTopic, "orderId", `\ud800`, 1), mapping + ".properties.id.sourceField"},
		{"orders", `[]`, ""},
		{"orders", `null`, ""},
		{"orders", `{} {}`, ""},
		{"orders", "{\"kind\":\"\xff\"}", ""},
	} {
		rejection := s.put("/v1/topics/"+row[0], row[1]).rejected(400, "InvalidRequest")
		require.Equal(t, row[2], strings.Join(targets(rejection), " "), row)
	}
	s.manage(http.MethodPut, "/v1/topics/orders", "{}", "Content-Type", "text/plain").rejected(415, "UnsupportedMediaType")
	s.put("/v1/topics/orders", `{"kind":"`+string(make([]byte, 1<<20))+`"}`).rejected(413, "PayloadTooLarge")
	require.Zero(t, s.count("SELECT count(*) FROM postrider.topics"))
}

func TestInvalidNames(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.topic("orders", "")
	const settings = `{"endpointUrl":"https://example.com"}`
	for _, name := range []string{"never", "%00", "%ff", "or%00ders"} {
		topic, subscription := "/v1/topics/"+name, "/v1/topics/orders/subscriptions/"+name
		for _, path := range []string{topic, subscription, "/v1/policies/" + name} {
			s.get(path).rejected(404, "NotFound")
			s.delete(path).rejected(404, "NotFound")
		}
		s.get(topic+"/subscriptions").rejected(404, "NotFound")
		s.put(topic+"/subscriptions/billing", settings).rejected(404, "NotFound")
		s.patch(subscription, `{}`).rejected(404, "NotFound")
		if name != "never" {
			s.put(subscription, settings).rejected(400, "InvalidRequest")
		}
		s.post(topic+"/listKeys", "").rejected(404, "NotFound")
		for _, action := range []string{
			"pause", "resume", "release", "probe", "testFilter", "getFullUrl", "getDeliveryAttributes", "getSigningSecrets",
			"rotateSigningSecret", "validate", "testDelivery",
		} {
			s.post(subscription+"/"+action, "").rejected(404, "NotFound")
			s.post(topic+"/subscriptions/billing/"+action, "").rejected(404, "NotFound")
		}
	}
}
