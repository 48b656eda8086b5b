package server_test

import (
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
	s := setup(t)
	key := s.topic("orders", customTopic)
	shown := s.get("/v1/topics/orders")
	require.Equal(t, "CustomEventSchema", shown.json(200)["inputSchema"])
	require.Contains(t, shown.body, `"inputSchemaMapping":`+orderMapping)
	require.Equal(t, 1, s.count(`SELECT count(*) FROM postrider.topics
		WHERE input_schema_mapping #>> '{properties,id,sourceField}' = 'orderId'`))
	s.put("/v1/topics/orders", customTopic).json(200)
	changed := strings.Replace(customTopic, "none", "other", 1)
	require.Contains(t, s.put("/v1/topics/orders", changed).rejected(409, "TopicExists").Message, "inputSchemaMapping")

	s.subscription("orders", "billing", `{"endpointUrl":"https://example.com","filter":{"subjectBeginsWith":"ann"}}`)
	require.Equal(t, "CustomInputSchema", s.get(billing).json(200)["eventDeliverySchema"], "as published")
	s.publish("orders", key, `{"orderId":7,"customer":"Anna"}`).is(200)
	s.publish("orders", key, `[{"orderId":"8","action":"x"}]`).is(200)
	require.Equal(t, []map[string]any{
		{
			"event_id": "7", "event_type": "Shop.OrderPlaced", "subject": "Anna", "matched": int32(1),
			"body_text": `{"orderId":7,"customer":"Anna"}`,
		},
		{
			"event_id": "8", "event_type": "x", "subject": "none", "matched": int32(0),
			"body_text": `{"orderId":"8","action":"x"}`,
		},
	}, s.rows("SELECT event_id, event_type, subject, matched, body_text FROM postrider.events ORDER BY system_id"))
	rejection := s.publish("orders", key, `[{"orderId":null}]`).rejected(400, "InvalidEvent")
	require.Equal(t, []string{"events[0].orderId"}, targets(rejection))
}

func TestMappingRejections(t *testing.T) {
	t.Parallel()
	s := setup(t)
	custom := func(mapping string) string {
		return `{"inputSchema":"CustomEventSchema","inputSchemaMapping":` + mapping + `}`
	}
	const at = "inputSchemaMapping"
	for body, says := range map[string][2]string{ // the target and the message
		`{"inputSchema":"CustomEventSchema"}`:         {at, "is required"},
		custom("null"):                                {at, "is required"},
		`{"inputSchemaMapping":` + orderMapping + `}`: {at, "must be absent"},
		custom("[]"):                                  {at, "must be an object"},
		custom(strings.Replace(orderMapping, "Json", "Xml", 1)): {
			at + ".inputSchemaMappingType", `must be "Json"`,
		},
		custom(strings.Replace(orderMapping, "subject", "dataVersion", 1)): {at + ".properties.subject", "is required"},
		custom(strings.Replace(orderMapping, "subject", "Subject", 1)):     {at + ".properties.Subject", "is not a member"},
		custom(strings.Replace(orderMapping, "orderId", `\ud800`, 1)): {
			at + ".properties.id.sourceField", "must not contain a lone surrogate",
		},
		custom(strings.Replace(orderMapping, `"orderId"`, `"a","defaultValue":"b"`, 1)): {
			at + ".properties.id.defaultValue", "is not a member",
		},
	} {
		rejection := s.put("/v1/topics/orders", body).rejected(400, "InvalidRequest")
		require.Equal(t, says[:1], targets(rejection), body)
		require.Contains(t, rejection.Message, says[0]+" "+says[1], body)
	}
	require.Zero(t, s.count("SELECT count(*) FROM postrider.topics"))
}

// internal/event has the schemas that each can become.
func TestDeliverySchemas(t *testing.T) {
	t.Parallel()
	s := setup(t)
	for topic, settings := range map[string]string{
		"grid": "", "cloud": `{"inputSchema":"CloudEventSchemaV1_0"}`, "shop": `{"kind":"namespace"}`, "custom": customTopic,
	} {
		s.topic(topic, settings)
	}
	for _, row := range []struct{ topic, schema, says string }{
		{"grid", "CloudEventSchemaV1_0", ""},
		{"grid", "CustomInputSchema", "must be EventGridSchema or CloudEventSchemaV1_0: the topic's input schema is " +
			"EventGridSchema, which cannot become CustomInputSchema"},
		{"cloud", "EventGridSchema", "must be CloudEventSchemaV1_0: the topic's input schema is CloudEventSchemaV1_0, " +
			"which cannot become EventGridSchema"},
		{"shop", "EventGridSchema", "must be CloudEventSchemaV1_0"},
		{"custom", "EventGridSchema", ""},
		{"custom", "CustomInputSchema", ""},
		{"custom", "x", "must be EventGridSchema, CloudEventSchemaV1_0 or CustomInputSchema"},
	} {
		response := s.put("/v1/topics/"+row.topic+"/subscriptions/billing",
			`{"endpointUrl":"https://example.com","eventDeliverySchema":"`+row.schema+`"}`)
		if row.says == "" {
			require.Less(t, response.status, 300, response.body)
			continue
		}
		require.Contains(t, response.rejected(400, "InvalidRequest").Message, "eventDeliverySchema "+row.says)
	}
	shown := s.put("/v1/topics/shop/subscriptions/billing", `{"endpointUrl":"https://example.com"}`).json(201)
	require.Equal(t, "CloudEventSchemaV1_0", shown["eventDeliverySchema"], "as published")
}
