package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	orderMapping = `{"inputSchemaMappingType":"Json","properties":{"id":{"sourceField":"orderId"},` +
		`"eventType":{"sourceField":"action","defaultValue":"Shop.OrderPlaced"},"subject":{"sourceField":"customer",` +
		`"defaultValue":"none"}}}`
	customTopic = `{"inputSchema":"CustomEventSchema","inputSchemaMapping":` + orderMapping + `}`
)

func TestCustomTopic(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key := b.topic("orders", customTopic)
	shown := b.manage(http.MethodGet, "/v1/topics/orders", "")
	require.Equal(t, "CustomEventSchema", shown.json(http.StatusOK)["inputSchema"])
	require.Contains(t, shown.body, `"inputSchemaMapping":`+orderMapping)
	require.Equal(t, 1, b.count(`SELECT count(*) FROM postrider.topics
		WHERE input_schema_mapping #>> '{properties,id,sourceField}' = 'orderId'`))
	b.manage(http.MethodPut, "/v1/topics/orders", customTopic).json(http.StatusOK)
	changed := strings.Replace(customTopic, "none", "other", 1)
	require.Contains(t, b.manage(http.MethodPut, "/v1/topics/orders", changed).rejected(409, "TopicExists").Message,
		"inputSchemaMapping")

	b.subscription("orders", "billing", `{"endpointUrl":"https://example.com","filter":{"subjectBeginsWith":"ann"}}`)
	require.Equal(t, "CustomInputSchema", b.manage(http.MethodGet, billing, "").json(http.StatusOK)["eventDeliverySchema"],
		"as published")
	require.Equal(t, http.StatusOK, b.publish("orders", key, `{"orderId":7,"customer":"Anna"}`).status)
	require.Equal(t, http.StatusOK, b.publish("orders", key, `[{"orderId":"8","action":"x"}]`).status)
	require.Equal(t, []map[string]any{
		{
			"event_id": "7", "event_type": "Shop.OrderPlaced", "subject": "Anna", "matched": int32(1),
			"body_text": `{"orderId":7,"customer":"Anna"}`,
		},
		{
			"event_id": "8", "event_type": "x", "subject": "none", "matched": int32(0),
			"body_text": `{"orderId":"8","action":"x"}`,
		},
	}, b.rows("SELECT event_id, event_type, subject, matched, body_text FROM postrider.events ORDER BY system_id"))
	rejection := b.publish("orders", key, `[{"orderId":null}]`).rejected(400, "InvalidEvent")
	require.Equal(t, []string{"events[0].orderId"}, targets(rejection))
}

func TestMappingRejections(t *testing.T) {
	t.Parallel()
	b := setup(t)
	custom := func(mapping string) string {
		return `{"inputSchema":"CustomEventSchema","inputSchemaMapping":` + mapping + `}`
	}
	for name, row := range map[string]struct{ body, target, says string }{
		"none":              {`{"inputSchema":"CustomEventSchema"}`, "inputSchemaMapping", "is required"},
		"null":              {custom("null"), "inputSchemaMapping", "is required"},
		"of another schema": {`{"inputSchemaMapping":` + orderMapping + `}`, "inputSchemaMapping", "must be absent"},
		"not an object":     {custom("[]"), "inputSchemaMapping", "must be an object"},
		"another kind": {
			custom(strings.Replace(orderMapping, "Json", "Xml", 1)), "inputSchemaMapping.inputSchemaMappingType",
			`must be "Json"`,
		},
		"no subject": {
			custom(strings.Replace(orderMapping, "subject", "dataVersion", 1)), "inputSchemaMapping.properties.subject",
			"is required",
		},
		"an unknown member": {
			custom(strings.Replace(orderMapping, "subject", "Subject", 1)), "inputSchemaMapping.properties.Subject",
			"is not a member",
		},
		"a field without name": {
			custom(strings.Replace(orderMapping, `"orderId"`, `""`, 1)), "inputSchemaMapping.properties.id.sourceField", "must",
		},
		"a lone surrogate": {
			custom(strings.Replace(orderMapping, "orderId", `\ud800`, 1)), "inputSchemaMapping.properties.id.sourceField",
			"must not contain a lone surrogate",
		},
		"a default for an id": {
			custom(strings.Replace(orderMapping, `"orderId"`, `"a","defaultValue":"b"`, 1)),
			"inputSchemaMapping.properties.id.defaultValue", "is not a member",
		},
	} {
		rejection := b.manage(http.MethodPut, "/v1/topics/orders", row.body).rejected(400, "InvalidRequest")
		require.Equal(t, []string{row.target}, targets(rejection), name)
		require.Contains(t, rejection.Message, row.target+" "+row.says, name)
	}
	require.Zero(t, b.count("SELECT count(*) FROM postrider.topics"))
}

func TestDeliverySchemas(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.topic("grid", "")
	b.topic("cloud", `{"inputSchema":"CloudEventSchemaV1_0"}`)
	b.topic("custom", customTopic)
	for _, row := range []struct{ topic, schema, says string }{
		{"grid", "EventGridSchema", ""},
		{"grid", "CloudEventSchemaV1_0", ""},
		{"grid", "CustomInputSchema", "must be EventGridSchema or CloudEventSchemaV1_0: the topic's input schema is " +
			"EventGridSchema, which cannot become CustomInputSchema"},
		{"grid", "CustomEventSchema", "must be EventGridSchema or CloudEventSchemaV1_0"},
		{"cloud", "CloudEventSchemaV1_0", ""},
		{"cloud", "EventGridSchema", "must be CloudEventSchemaV1_0: the topic's input schema is CloudEventSchemaV1_0, " +
			"which cannot become EventGridSchema"},
		{"custom", "EventGridSchema", ""},
		{"custom", "CloudEventSchemaV1_0", ""},
		{"custom", "CustomInputSchema", ""},
		{"custom", "x", "must be EventGridSchema, CloudEventSchemaV1_0 or CustomInputSchema"},
	} {
		response := b.manage(http.MethodPut, "/v1/topics/"+row.topic+"/subscriptions/billing",
			`{"endpointUrl":"https://example.com","eventDeliverySchema":"`+row.schema+`"}`)
		if row.says == "" {
			require.Less(t, response.status, 300, response.body)
			continue
		}
		require.Equal(t, "eventDeliverySchema "+row.says, response.rejected(400, "InvalidRequest").Message)
	}
}
