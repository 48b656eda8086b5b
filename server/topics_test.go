package server_test

import (
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTopicRoundTrip(t *testing.T) {
	t.Parallel()
	b := setup(t)
	made := b.manage(http.MethodPut, "/v1/topics/orders", "").json(http.StatusCreated)
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
	require.Equal(t, shown, b.manage(http.MethodPut, "/v1/topics/orders", `{"kind":"basic"}`).json(http.StatusOK),
		"the keys are shown once")
	require.Equal(t, shown, b.manage(http.MethodGet, "/v1/topics/orders", "").json(http.StatusOK))

	gone := b.manage(http.MethodDelete, "/v1/topics/orders", "")
	require.Equal(t, http.StatusNoContent, gone.status)
	require.Empty(t, gone.body)
	b.manage(http.MethodDelete, "/v1/topics/orders", "").rejected(404, "NotFound")
	b.manage(http.MethodGet, "/v1/topics/orders", "").rejected(404, "NotFound")
	b.publish("orders", made["key1"].(string), "["+gridEvent("1")+"]").rejected(401, "Unauthorized")
}

func TestTopicDefaults(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for body, want := range map[string][2]string{
		`{}`:                                     {"basic", "EventGridSchema"},
		`{"kind":null}`:                          {"basic", "EventGridSchema"},
		`{"kind":"namespace"}`:                   {"namespace", "CloudEventSchemaV1_0"},
		`{"inputSchema":"CloudEventSchemaV1_0"}`: {"basic", "CloudEventSchemaV1_0"},
	} {
		made := b.manage(http.MethodPut, "/v1/topics/orders", body).json(http.StatusCreated)
		require.Equal(t, want, [2]string{made["kind"].(string), made["inputSchema"].(string)}, body)
		require.Equal(t, http.StatusNoContent, b.manage(http.MethodDelete, "/v1/topics/orders", "").status)
	}
}

func TestTopicConflicts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.topic("orders", "")
	b.manage(http.MethodPut, "/v1/topics/orders", `{"kind":"namespace"}`).rejected(409, "TopicExists")
	b.manage(http.MethodPut, "/v1/topics/orders", `{"inputSchema":"CloudEventSchemaV1_0"}`).rejected(409, "TopicExists")
	b.subscription("orders", "billing", `{"endpointUrl":"https://example.com"}`)
	rejection := b.manage(http.MethodDelete, "/v1/topics/orders", "").rejected(409, "TopicHasSubscriptions")
	require.Contains(t, rejection.Message, "event subscriptions")
	require.Equal(t, http.StatusNoContent,
		b.manage(http.MethodDelete, "/v1/topics/orders/subscriptions/billing", "").status)
	require.Equal(t, http.StatusNoContent, b.manage(http.MethodDelete, "/v1/topics/orders", "").status)
}

func TestNamesThatDifferOnlyInCaseConflict(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.topic("Orders", "")
	b.subscription("Orders", "Billing", `{"endpointUrl":"https://example.com"}`)
	const settings = `{"endpointUrl":"https://example.net","endpointValidation":"skip"}`
	for path, says := range map[string]string{
		"/v1/topics/orders": `topic "orders" cannot be created: "Orders" exists, and names must not differ only in ` +
			`letter case`,
		"/v1/topics/Orders/subscriptions/bILLING": `event subscription "bILLING" cannot be created: "Billing" exists, ` +
			`and names must not differ only in letter case`,
		"/v1/topics/Orders/subscriptions/billing?dryRun=true": `event subscription "billing" cannot be created: "Billing" ` +
			`exists, ` +
			`and names must not differ only in letter case`,
	} {
		body := settings
		if !strings.Contains(path, "subscriptions") {
			body = ""
		}
		require.Equal(t, says, b.manage(http.MethodPut, path, body).rejected(409, "NameTaken").Message)
	}
	for _, insert := range []string{
		`INSERT INTO postrider_internal.topics (name, kind, input_schema, key1_sealed, key2_sealed, key1_hash, key2_hash)
		 SELECT 'ORDERS', kind, input_schema, key1_sealed, key2_sealed, key1_hash, key2_hash FROM postrider_internal.topics`,
		`INSERT INTO postrider_internal.event_subscriptions (topic_id, name, settings, endpoint_base_url, endpoint_hash,
			event_delivery_schema, retry_policy)
		 SELECT topic_id, 'BILLING', settings, endpoint_base_url, endpoint_hash, event_delivery_schema, retry_policy
		   FROM postrider_internal.event_subscriptions`,
	} {
		_, err := b.db.Exec(t.Context(), insert)
		require.ErrorContains(t, err, "lower_name_key")
	}
	b.topic("payments", "")
	b.subscription("payments", "billing", `{"endpointUrl":"https://example.com"}`) // another topic's

	require.Equal(t, http.StatusNoContent,
		b.manage(http.MethodDelete, "/v1/topics/Orders/subscriptions/Billing", "").status)
	b.manage(http.MethodPut, "/v1/topics/Orders/subscriptions/billing", settings).json(http.StatusCreated)
	require.Equal(t, http.StatusNoContent,
		b.manage(http.MethodDelete, "/v1/topics/Orders/subscriptions/billing", "").status)
	require.Equal(t, http.StatusNoContent, b.manage(http.MethodDelete, "/v1/topics/Orders", "").status)
	b.manage(http.MethodPut, "/v1/topics/orders", "").json(http.StatusCreated)
}

func TestTopicRejections(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, row := range map[string]struct {
		name, body string
		targets    []string
	}{
		"a name too short":    {"ab", "", []string{"topic"}},
		"a name with a space": {"or%20ders", "", []string{"topic"}},
		"a reserved name":     {"postrider.events", "", []string{"topic"}},
		"an unknown kind":     {"orders", `{"kind":"premium"}`, []string{"kind"}},
		"an unknown schema":   {"orders", `{"inputSchema":"CustomInputSchema"}`, []string{"inputSchema"}},
		"a namespace topic in Event Grid": {
			"orders", `{"kind":"namespace","inputSchema":"EventGridSchema"}`, []string{"inputSchema"},
		},
		"all at once": {
			"ab", `{"kind":"premium","inputSchema":"x"}`, []string{"topic", "kind", "inputSchema"},
		},
		"a retention of a basic topic": {"orders", `{"eventRetentionInDays":7}`, []string{"eventRetentionInDays"}},
		"a retention of no day": {
			"orders", `{"kind":"namespace","eventRetentionInDays":0}`, []string{"eventRetentionInDays"},
		},
		"a retention of 8 days": {
			"orders", `{"kind":"namespace","eventRetentionInDays":8}`, []string{"eventRetentionInDays"},
		},
		"a window of no minute": {
			"orders", `{"duplicateDetectionWindowInMinutes":0}`, []string{"duplicateDetectionWindowInMinutes"},
		},
		"a window of 8 days": {
			"orders", `{"duplicateDetectionWindowInMinutes":11520}`, []string{"duplicateDetectionWindowInMinutes"},
		},
		"a window where ids are made": {
			"orders",
			`{"inputSchema":"CustomEventSchema","inputSchemaMapping":{"inputSchemaMappingType":"Json",` +
				`"properties":{"eventType":{"defaultValue":"a"},"subject":{"defaultValue":"b"}}},` +
				`"duplicateDetectionWindowInMinutes":60}`,
			[]string{"duplicateDetectionWindowInMinutes"},
		},
		"a member that is not known":       {"orders", `{"knid":"basic"}`, []string{"knid"}},
		"a member in the wrong case":       {"orders", `{"Kind":"basic"}`, []string{"Kind"}},
		"a member twice":                   {"orders", `{"kind":"basic","kind":"namespace"}`, []string{"kind"}},
		"a member of the wrong type":       {"orders", `{"kind":7}`, []string{"kind"}},
		"unknown members and a wrong type": {"orders", `{"a":1,"kind":7,"b":2}`, []string{"a", "b", "kind"}},
		"an array":                         {"orders", `[]`, []string{}},
		"null":                             {"orders", `null`, []string{}},
		"half a body":                      {"orders", `{"kind":`, []string{}},
		"two bodies":                       {"orders", `{} {}`, []string{}},
		"bad UTF-8":                        {"orders", "{\"kind\":\"\xff\"}", []string{}},
	} {
		rejection := b.manage(http.MethodPut, "/v1/topics/"+row.name, row.body).rejected(400, "InvalidRequest")
		require.Equal(t, row.targets, targets(rejection), name)
		if len(rejection.Details) > 0 {
			require.Equal(t, rejection.Details[0].Message, rejection.Message, name)
			require.Contains(t, rejection.Message, row.targets[0], name)
		}
	}
	b.send(http.MethodPut, "/v1/topics/orders", "{}", "Authorization", "Bearer "+adminToken, "Content-Type", "text/plain").
		rejected(415, "UnsupportedMediaType")
	b.manage(http.MethodPut, "/v1/topics/orders", `{"kind":"`+string(make([]byte, 1<<20))+`"}`).
		rejected(413, "PayloadTooLarge")
	require.Zero(t, b.count("SELECT count(*) FROM postrider.topics"))
}

func TestInvalidNames(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.topic("orders", "")
	for _, name := range []string{"%00", "%ff", "or%00ders", "%F0%9F%90%8E"} {
		b.manage(http.MethodGet, "/v1/topics/"+name, "").rejected(404, "NotFound")
		b.manage(http.MethodDelete, "/v1/topics/"+name, "").rejected(404, "NotFound")
		b.manage(http.MethodGet, "/v1/topics/"+name+"/subscriptions", "").rejected(404, "NotFound")
		b.manage(http.MethodPut, "/v1/topics/"+name+"/subscriptions/billing", `{"endpointUrl":"https://example.com"}`).
			rejected(404, "NotFound")
		b.manage(http.MethodGet, "/v1/topics/orders/subscriptions/"+name, "").rejected(404, "NotFound")
		b.manage(http.MethodDelete, "/v1/topics/orders/subscriptions/"+name, "").rejected(404, "NotFound")
		b.manage(http.MethodPut, "/v1/topics/orders/subscriptions/"+name, `{"endpointUrl":"https://example.com"}`).
			rejected(400, "InvalidRequest")
		for _, action := range []string{
			"pause", "resume", "release", "probe", "testFilter", "getFullUrl", "getDeliveryAttributes",
		} {
			b.manage(http.MethodPost, "/v1/topics/orders/subscriptions/"+name+"/"+action, "").rejected(404, "NotFound")
			b.manage(http.MethodPost, "/v1/topics/"+name+"/subscriptions/billing/"+action, "").rejected(404, "NotFound")
		}
		b.manage(http.MethodGet, "/v1/policies/"+name, "").rejected(404, "NotFound")
	}
}
