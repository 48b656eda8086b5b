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

	// internal/event has the schemas that each can become.
	s.topic("grid", "")
	for topic, message := range map[string]string{
		"orders": "eventDeliverySchema must be EventGridSchema, CloudEventSchemaV1_0 or CustomInputSchema",
		"grid": "eventDeliverySchema must be EventGridSchema or CloudEventSchemaV1_0: the topic's input schema is " +
			"EventGridSchema, which cannot become CustomInputSchema",
	} {
		schema := map[string]string{"orders": "x", "grid": "CustomInputSchema"}[topic]
		rejection = s.put("/v1/topics/"+topic+"/subscriptions/billing", `{"endpointUrl":"https://example.com",`+
			`"eventDeliverySchema":"`+schema+`"}`).rejected(400, "InvalidRequest")
		require.Equal(t, message, rejection.Message)
	}
}
