package server_test

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
)

// queueOf is the queue block of an event subscription with deliveryMode Queue.
func queueOf(t *testing.T, a response) map[string]any {
	t.Helper()
	require.Contains(t, []int{200, 201}, a.status, a.body)
	c := a.json(a.status)["deliveryConfiguration"].(map[string]any)
	require.Equal(t, "Queue", c["deliveryMode"])
	return c["queue"].(map[string]any)
}

func TestQueueSettings(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.topic("orders", `{"inputSchema":"CloudEventSchemaV1_0"}`)
	put := func(queue string) response {
		return s.put(billing, `{"deliveryConfiguration":{"deliveryMode":"Queue","queue":`+queue+`}}`)
	}
	view := func() map[string]any {
		return s.rows(`SELECT delivery_mode, lock_duration::text AS lock, endpoint_base_url AS url,
			provisioning_state AS state, retry_policy AS policy, max_delivery_attempts AS most,
			event_time_to_live_in_minutes AS minutes,
			dead_letter_destination ->> 'endpointType' AS kept, event_delivery_schema AS schema, hold
			FROM postrider.event_subscriptions`)[0]
	}
	rows, none := map[string]any{"endpointType": "Rows"}, map[string]any{"endpointType": "None"}
	shown := func(lock, count int, ttl string, to map[string]any) map[string]any {
		return map[string]any{
			"receiveLockDurationInSeconds": float64(lock), "maxDeliveryCount": float64(count), "eventTimeToLive": ttl,
			"deadLetterDestination": to,
		}
	}
	require.Equal(t, shown(60, 10, "P7D", rows), queueOf(t, put("null")))
	require.Equal(t, map[string]any{
		"delivery_mode": "Queue", "lock": "00:01:00", "url": "", "state": "Succeeded", "policy": "namespace-2023",
		"most": int32(10), "minutes": int32(10080), "kept": "Rows", "schema": "CloudEventSchemaV1_0", "hold": nil,
	}, view())
	full := shown(300, 3, "P1DT2H", none)
	require.Equal(t, full, queueOf(t, put(`{"receiveLockDurationInSeconds":300,"maxDeliveryCount":3,`+
		`"eventTimeToLive":"P1DT2H","deadLetterDestination":{"endpointType":"None"}}`)))
	limits := s.get(billing).json(200)["retryPolicy"]
	require.Equal(t, map[string]any{
		"policy": "namespace-2023", "maxDeliveryAttempts": 3.0, "eventTimeToLiveInMinutes": 1560.0,
	}, limits)
	require.Equal(t, "00:05:00", view()["lock"])
	require.Equal(t, int32(3), view()["most"])

	patch := func(queue string) map[string]any {
		return queueOf(t, s.patch(billing, `{"deliveryConfiguration":{"queue":`+queue+`}}`))
	}
	with := func(member string, value any) map[string]any {
		full = maps.Clone(full)
		full[member] = value
		return full
	}
	require.Equal(t, full, patch(`{}`))
	require.Equal(t, with("receiveLockDurationInSeconds", 61.0), patch(`{"receiveLockDurationInSeconds":61}`))
	require.Equal(t, with("maxDeliveryCount", 10.0), patch(`{"maxDeliveryCount":null}`))
	require.Equal(t, with("eventTimeToLive", "P2D"), patch(`{"eventTimeToLive":"PT48H"}`))
	require.Equal(t, with("deadLetterDestination", rows), patch(`{"deadLetterDestinationWithResourceIdentity":{`+
		`"deadLetterDestination":{"endpointType":"Rows"},"identity":{"type":"UserAssigned","userAssignedIdentity":"/x"}}}`))
	full = with("maxDeliveryCount", 4.0)
	require.Equal(t, full, queueOf(t, s.patch(billing, `{"retryPolicy":{"maxDeliveryAttempts":4}}`)),
		"the name in retryPolicy")
	s.delete(billing).is(204)
	require.Empty(t, s.rows("SELECT FROM postrider.handshakes"), "there is no endpoint to notify")
}

// Each wrong value has one error, which names it as it was stated.
func TestQueueSettingsAreChecked(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.topic("orders", `{"inputSchema":"CloudEventSchemaV1_0"}`)
	s.topic("other", `{"inputSchema":"EventGridSchema"}`)
	const mode, at = "deliveryConfiguration.deliveryMode", "deliveryConfiguration.queue."
	queue := func(settings string) string {
		return `"deliveryConfiguration":{"deliveryMode":"Queue","queue":` + settings + `}`
	}
	pulled := func(members string) string { return `"deliveryConfiguration":{"deliveryMode":"Queue"},` + members }
	destination := `"deadLetterDestination":{"endpointType":"Rows"}`
	for members, want := range map[string][2]string{
		queue(`{"receiveLockDurationInSeconds":59}`): {
			at + "receiveLockDurationInSeconds", "must be between 60 and 300, not 59",
		},
		queue(`{"maxDeliveryCount":11}`): {
			at + "maxDeliveryCount", "must be between 1 and 10 under retry policy namespace-2023, not 11",
		},
		queue(`{"eventTimeToLive":"1d"}`): {at + "eventTimeToLive", `must be an ISO 8601 duration`},
		queue(`{"eventTimeToLive":"P8D"}`): {
			at + "eventTimeToLive", "must be between PT1M and P7D under retry policy namespace-2023",
		},
		queue(`{"deadLetterDestination":{"endpointType":"Queue"}}`): {
			at + "deadLetterDestination.endpointType", "must be Rows, None, Blob or StorageBlob",
		},
		queue(`{"deadLetterDestinationWithResourceIdentity":{"deadLetterDestination":{"endpointType":"Blob"}}}`): {
			at + "deadLetterDestinationWithResourceIdentity.deadLetterDestination.properties", "is required for Blob",
		},
		queue(`{` + destination + `,"deadLetterDestinationWithResourceIdentity":{` + destination + `}}`): {
			at + "deadLetterDestinationWithResourceIdentity.deadLetterDestination",
			"must be absent with " + at + "deadLetterDestination: both are names of one setting",
		},
		queue(`{"receiveLockDuration":60}`): {at + "receiveLockDuration", "is not a member"},

		pulled(`"endpointUrl":"https://example.com"`):     {"endpointUrl", "must be absent with deliveryMode Queue"},
		pulled(`"endpointUrl":"ftp://x"`):                 {"endpointUrl", "must be absent with deliveryMode Queue"},
		pulled(`"endpointKind":"webhook"`):                {"endpointKind", "must be absent"},
		pulled(`"endpointValidation":"skip"`):             {"endpointValidation", "must be absent"},
		pulled(`"maxEventsPerBatch":6000`):                {"maxEventsPerBatch", "must be absent"},
		pulled(`"preferredBatchSizeInKilobytes":64`):      {"preferredBatchSizeInKilobytes", "must be absent"},
		pulled(`"maxConcurrentDeliveries":3`):             {"maxConcurrentDeliveries", "must be absent"},
		pulled(`"deliveryRate":{"limit":3}`):              {"deliveryRate.limit", "must be absent"},
		pulled(`"responseTimeoutInSeconds":10`):           {"responseTimeoutInSeconds", "must be absent"},
		pulled(`"signing":{"enabled":true}`):              {"signing.enabled", "must be absent"},
		pulled(`"honorRetryAfter":false`):                 {"honorRetryAfter", "must be absent"},
		pulled(`"probationAction":"hold"`):                {"probationAction", "must be absent"},
		pulled(`"retryTransportErrors":true`):             {"retryTransportErrors", "must be absent"},
		pulled(`"minimumTlsVersionAllowed":"1.3"`):        {"minimumTlsVersionAllowed", "must be absent"},
		pulled(`"certificateAuthorities":"x"`):            {"certificateAuthorities", "must be absent"},
		pulled(`"clientCertificate":{"certificate":"x"}`): {"clientCertificate.certificate", "must be absent"},
		pulled(`"eventDeliverySchema":"EventGridSchema"`): {"eventDeliverySchema", "must be CloudEventSchemaV1_0"},
		pulled(`"retryPolicy":{"policy":"ga-2021"}`):      {"retryPolicy.policy", "must be namespace-2023 with "},
		pulled(`"retryPolicy":{"maxDeliveryAttempts":11}`): {
			"retryPolicy.maxDeliveryAttempts", "must be between 1 and 10",
		},
		pulled(`"deliveryAttributeMappings":[{"name":"a b"}]`): {"deliveryAttributeMappings", "must be absent"},

		queue(`{"maxDeliveryCount":1}`) + `,"retryPolicy":{"maxDeliveryCount":1}`: {
			at + "maxDeliveryCount", "must be absent with ",
		},
		queue(`{"maxDeliveryCount":1}`) + `,"retryPolicy":{"maxDeliveryAttempts":1}`: {
			at + "maxDeliveryCount", "must be absent with ",
		},
		`"deliveryConfiguration":{"deliveryMode":"Pull"}`: {mode, "must be Push or Queue"},
		`"deliveryConfiguration":{"deliveryMode":"Push","queue":{}}`: {
			"deliveryConfiguration.queue", "must be absent unless deliveryMode is Queue",
		},
		`"deliveryConfiguration":{"deliveryMode":"Push"}`: {"endpointUrl", "is required"},
		`"deliveryConfiguration":{}`:                      {"endpointUrl", "is required"},
	} {
		e := s.put(billing, `{`+members+`}`).rejected(400, "InvalidRequest")
		require.Equal(t, want[:1], targets(e), members)
		require.Contains(t, e.Details[0].Message, want[0]+" "+want[1], members)
	}
	e := s.put("/v1/topics/other/subscriptions/billing", queueMode).rejected(400, "InvalidRequest")
	require.Equal(t, []string{mode}, targets(e))
	require.Contains(t, e.Message, "must be Push: the topic's input schema is EventGridSchema, and Queue requires")
}

// A patch between push and pull delivery sets or removes the endpoint, and keeps limits and pending deliveries.
func TestPatchOfDeliveryMode(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.topic("orders", `{"inputSchema":"CloudEventSchemaV1_0"}`)
	s.subscription("orders", "billing", `{"endpointUrl":"https://example.com/in?code=1","labels":["a"],`+
		`"retryPolicy":{"policy":"namespace-2023","maxDeliveryAttempts":4},"endpointValidation":"required"}`)
	patch := func(body string) response { return s.patch(billing, body) }
	id := s.rows("SELECT subscription_id FROM postrider.event_subscriptions")[0]["subscription_id"]
	e := patch(`{"deliveryConfiguration":{"deliveryMode":"Queue"}}`).rejected(400, "InvalidRequest")
	require.Len(t, e.Details, 1)
	require.Equal(t, "endpointUrl must be absent with deliveryMode Queue: consumers receive the events; set it to null",
		e.Details[0].Message)

	s.rows(`WITH held AS (
			INSERT INTO postrider_internal.probations (probation_key, endpoint_base_url, since, until, cause)
			SELECT int8send(id), 'https://example.com/in', now(), now() + interval '1 hour', 'Busy'
			  FROM postrider_internal.event_subscriptions WHERE name = 'billing' RETURNING 1)
		SELECT * FROM held`)
	require.NotNil(t, patch(`{}`).json(200)["hold"], "a probation of the event subscription")

	const toQueue = `{"deliveryConfiguration":{"deliveryMode":"Queue","queue":{"receiveLockDurationInSeconds":90}},` +
		`"endpointUrl":null}`
	pulled := patch(toQueue)
	require.InDelta(t, 90, queueOf(t, pulled)["receiveLockDurationInSeconds"], 0)
	require.InDelta(t, 4, queueOf(t, pulled)["maxDeliveryCount"], 0)
	shown := pulled.json(200)
	require.Equal(t, []any{"", "Succeeded", []any{"a"}, nil},
		[]any{shown["endpointBaseUrl"], shown["provisioningState"], shown["labels"], shown["hold"]})

	e = patch(`{"deliveryConfiguration":{"deliveryMode":"Push"}}`).rejected(400, "InvalidRequest")
	require.Len(t, e.Details, 1)
	require.Equal(t, "endpointUrl is required", e.Details[0].Message)
	const toPush = `{"deliveryConfiguration":{"deliveryMode":"Push"},"endpointUrl":"https://example.com/in"}`
	for range 2 {
		shown = patch(toPush).json(200)
		require.Equal(t, map[string]any{"deliveryMode": "Push"}, shown["deliveryConfiguration"])
		require.Equal(t, "https://example.com/in", shown["endpointBaseUrl"])
		require.InDelta(t, 4, shown["retryPolicy"].(map[string]any)["maxDeliveryAttempts"], 0)
		queue := queueOf(t, patch(`{"deliveryConfiguration":{"deliveryMode":"Queue"},"endpointUrl":null}`))
		require.InDelta(t, 60, queue["receiveLockDurationInSeconds"], 0, "the block of the other mode is dropped")
	}
	require.Equal(t, id, s.rows("SELECT subscription_id FROM postrider.event_subscriptions")[0]["subscription_id"])
}
