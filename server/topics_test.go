package server_test

import (
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// customWithoutID are the settings of a topic whose events have no id of their own.
const customWithoutID = `{"inputSchema":"CustomEventSchema","inputSchemaMapping":{"inputSchemaMappingType":"Json",` +
	`"properties":{"eventType":{"defaultValue":"a"},"subject":{"defaultValue":"b"}}}}`

func TestTopicRoundTrip(t *testing.T) {
	t.Parallel()
	s := setup(t)
	made := s.put("/v1/topics/orders", "").json(201)
	require.Equal(t, "orders", made["name"])
	require.Equal(t, "basic", made["kind"])
	require.Equal(t, "EventGridSchema", made["inputSchema"])
	require.Equal(t, "/topics/orders/api/events", made["endpoint"])
	require.NotEmpty(t, made["key1"])
	require.NotEmpty(t, made["key2"])
	require.NotEqual(t, made["key1"], made["key2"])

	shown := maps.Clone(made)
	delete(shown, "key1")
	delete(shown, "key2")
	require.Equal(t, shown, s.put("/v1/topics/orders", `{"kind":"basic"}`).json(200), "the keys are shown once")
	require.Equal(t, shown, s.get("/v1/topics/orders").json(200))

	gone := s.delete("/v1/topics/orders")
	require.Equal(t, http.StatusNoContent, gone.status)
	require.Empty(t, gone.body)
	s.delete("/v1/topics/orders").rejected(404, "NotFound")
	s.get("/v1/topics/orders").rejected(404, "NotFound")
	s.publish("orders", made["key1"].(string), gridEvents("1")).rejected(401, "Unauthorized")
}

func TestTopicDefaults(t *testing.T) {
	t.Parallel()
	s := setup(t)
	for body, want := range map[string][2]string{
		`{}`:                                     {"basic", "EventGridSchema"},
		`{"kind":null}`:                          {"basic", "EventGridSchema"},
		`{"kind":"namespace"}`:                   {"namespace", "CloudEventSchemaV1_0"},
		`{"inputSchema":"CloudEventSchemaV1_0"}`: {"basic", "CloudEventSchemaV1_0"},
	} {
		made := s.put("/v1/topics/orders", body).json(201)
		require.Equal(t, want, [2]string{made["kind"].(string), made["inputSchema"].(string)}, body)
		s.delete("/v1/topics/orders").is(204)
	}
}

func TestTopicConflicts(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.topic("orders", "")
	s.put("/v1/topics/orders", `{"kind":"namespace"}`).rejected(409, "TopicExists")
	s.put("/v1/topics/orders", `{"inputSchema":"CloudEventSchemaV1_0"}`).rejected(409, "TopicExists")
	s.subscription("orders", "billing", `{"endpointUrl":"https://example.com"}`)
	rejection := s.delete("/v1/topics/orders").rejected(409, "TopicHasSubscriptions")
	require.Contains(t, rejection.Message, "event subscriptions")
	s.delete(billing).is(204)
	s.delete("/v1/topics/orders").is(204)
}

func TestNamesThatDifferOnlyInCaseConflict(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.topic("Orders", "")
	s.subscription("Orders", "Billing", `{"endpointUrl":"https://example.com"}`)
	const settings = `{"endpointUrl":"https://example.net","endpointValidation":"skip"}`
	for path, says := range map[string]string{
		"/v1/topics/orders": `topic "orders" cannot be created: "Orders" exists, and names must not differ only in ` +
			`letter case`,
		"/v1/topics/Orders/subscriptions/bILLING": `event subscription "bILLING" cannot be created: "Billing" exists, ` +
			`and names must not differ only in letter case`,
		"/v1/topics/Orders/subscriptions/billing?dryRun=true": `event subscription "billing" cannot be created: "Billing" ` +
			`exists, and names must not differ only in letter case`,
	} {
		body := settings
		if !strings.Contains(path, "subscriptions") {
			body = ""
		}
		require.Equal(t, says, s.put(path, body).rejected(409, "NameTaken").Message)
	}
	for _, insert := range []string{
		`INSERT INTO postrider_internal.topics (name, kind, input_schema, key1_sealed, key2_sealed, key1_hash, key2_hash)
		 SELECT 'ORDERS', kind, input_schema, key1_sealed, key2_sealed, key1_hash, key2_hash FROM postrider_internal.topics`,
		`INSERT INTO postrider_internal.event_subscriptions (topic_id, name, settings, endpoint_base_url, endpoint_hash,
			event_delivery_schema, retry_policy)
		 SELECT topic_id, 'BILLING', settings, endpoint_base_url, endpoint_hash, event_delivery_schema, retry_policy
		   FROM postrider_internal.event_subscriptions`,
	} {
		_, err := s.db.Exec(t.Context(), insert)
		require.ErrorContains(t, err, "lower_name_key")
	}
	s.topic("payments", "")
	s.subscription("payments", "billing", `{"endpointUrl":"https://example.com"}`) // another topic's

	s.delete("/v1/topics/Orders/subscriptions/Billing").is(204)
	s.put("/v1/topics/Orders/subscriptions/billing", settings).json(201)
	s.delete("/v1/topics/Orders/subscriptions/billing").is(204)
	s.delete("/v1/topics/Orders").is(204)
	s.put("/v1/topics/orders", "").json(201)
}

// policy.TestValidName has the names, and internal/catalog/spec the ranges.
func TestTopicRejections(t *testing.T) {
	t.Parallel()
	s := setup(t)
	const window = "duplicateDetectionWindowInMinutes"
	for _, row := range [][3]string{ // the name, the body and the targets
		{"ab", "", "topic"},
		{"or%20ders", "", "topic"},
		{"postrider.events", "", "topic"},
		{"ab", `{"kind":"premium","inputSchema":"x"}`, "topic kind inputSchema"},
		{"orders", `{"inputSchema":"CustomInputSchema"}`, "inputSchema"},
		{"orders", `{"kind":"namespace","inputSchema":"EventGridSchema"}`, "inputSchema"},
		{"orders", `{"eventRetentionInDays":7}`, "eventRetentionInDays"}, // of a basic topic
		{"orders", `{"kind":"namespace","eventRetentionInDays":8}`, "eventRetentionInDays"},
		{"orders", `{"` + window + `":0}`, window},
		{"orders", strings.TrimSuffix(customWithoutID, "}") + `,"` + window + `":60}`, window},
		{"orders", `{"knid":"basic"}`, "knid"},
		{"orders", `{"Kind":"basic"}`, "Kind"},
		{"orders", `{"kind":"basic","kind":"namespace"}`, "kind"},
		{"orders", `{"a":1,"kind":7,"b":2}`, "a b kind"},
		{"orders", `[]`, ""},
		{"orders", `null`, ""},
		{"orders", `{"kind":`, ""},
		{"orders", `{} {}`, ""},
		{"orders", "{\"kind\":\"\xff\"}", ""},
	} {
		rejection := s.put("/v1/topics/"+row[0], row[1]).rejected(400, "InvalidRequest")
		require.Equal(t, row[2], strings.Join(targets(rejection), " "), row)
		if len(rejection.Details) > 0 {
			require.Equal(t, rejection.Details[0].Message, rejection.Message)
			require.Contains(t, rejection.Message, rejection.Details[0].Target)
		}
	}
	s.send(http.MethodPut, "/v1/topics/orders", "{}", "Authorization", "Bearer "+adminToken, "Content-Type", "text/plain").
		rejected(415, "UnsupportedMediaType")
	s.put("/v1/topics/orders", `{"kind":"`+string(make([]byte, 1<<20))+`"}`).rejected(413, "PayloadTooLarge")
	require.Zero(t, s.count("SELECT count(*) FROM postrider.topics"))
}

func TestInvalidNames(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.topic("orders", "")
	for _, name := range []string{"%00", "%ff", "or%00ders", "%F0%9F%90%8E"} {
		s.get("/v1/topics/"+name).rejected(404, "NotFound")
		s.delete("/v1/topics/"+name).rejected(404, "NotFound")
		s.get("/v1/topics/"+name+"/subscriptions").rejected(404, "NotFound")
		s.put("/v1/topics/"+name+"/subscriptions/billing", `{"endpointUrl":"https://example.com"}`).rejected(404, "NotFound")
		s.get("/v1/topics/orders/subscriptions/"+name).rejected(404, "NotFound")
		s.delete("/v1/topics/orders/subscriptions/"+name).rejected(404, "NotFound")
		s.put("/v1/topics/orders/subscriptions/"+name, `{"endpointUrl":"https://example.com"}`).
			rejected(400, "InvalidRequest")
		for _, action := range []string{
			"pause", "resume", "release", "probe", "testFilter", "getFullUrl", "getDeliveryAttributes",
		} {
			s.post("/v1/topics/orders/subscriptions/"+name+"/"+action, "").rejected(404, "NotFound")
			s.post("/v1/topics/"+name+"/subscriptions/billing/"+action, "").rejected(404, "NotFound")
		}
		s.get("/v1/policies/"+name).rejected(404, "NotFound")
	}
}
