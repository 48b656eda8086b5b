package server_test

import (
	"strings"
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
	put := func(queue string) map[string]any {
		return queueOf(t, s.put(billing, `{"deliveryConfiguration":{"deliveryMode":"Queue","queue":`+queue+`}}`))
	}
	patch := func(queue string) map[string]any {
		return queueOf(t, s.patch(billing, `{"deliveryConfiguration":{"queue":`+queue+`}}`))
	}
	shown := func(lock, count int, ttl, to string) map[string]any {
		return map[string]any{
			"receiveLockDurationInSeconds": float64(lock), "maxDeliveryCount": float64(count), "eventTimeToLive": ttl,
			"deadLetterDestination": map[string]any{"endpointType": to},
		}
	}
	require.Equal(t, shown(60, 10, "P7D", "Rows"), put("null"))
	require.Equal(t, []map[string]any{{
		"delivery_mode": "Queue", "lock": "00:01:00", "url": "", "state": "Succeeded", "policy": "namespace-2023",
		"most": int32(10), "minutes": int32(10080), "kept": "Rows", "schema": "CloudEventSchemaV1_0", "hold": nil,
	}}, s.rows(`SELECT delivery_mode, lock_duration::text AS lock, endpoint_base_url AS url, provisioning_state AS state,
			retry_policy AS policy, max_delivery_attempts AS most, event_time_to_live_in_minutes AS minutes,
			dead_letter_destination ->> 'endpointType' AS kept, event_delivery_schema AS schema, hold
			FROM postrider.event_subscriptions`))
	full := `{"receiveLockDurationInSeconds":300,"maxDeliveryCount":3,"eventTimeToLive":"P1DT2H",` +
		`"deadLetterDestination":{"endpointType":"None"}}`
	require.Equal(t, shown(300, 3, "P1DT2H", "None"), put(full))
	require.Equal(t, map[string]any{
		"policy": "namespace-2023", "maxDeliveryAttempts": 3.0, "eventTimeToLiveInMinutes": 1560.0,
	}, s.get(billing).json(200)["retryPolicy"])

	require.Equal(t, shown(300, 3, "P1DT2H", "None"), patch(`{}`))
	require.Equal(t, shown(61, 10, "P2D", "None"),
		patch(`{"receiveLockDurationInSeconds":61,"maxDeliveryCount":null,"eventTimeToLive":"PT48H"}`))
	require.Equal(t, shown(61, 10, "P2D", "Rows"), patch(`{"deadLetterDestinationWithResourceIdentity":{`+
		`"deadLetterDestination":{"endpointType":"Rows"},"identity":{"type":"UserAssigned","userAssignedIdentity":"/x"}}}`))
	require.Equal(t, shown(61, 4, "P2D", "Rows"),
		queueOf(t, s.patch(billing, `{"retryPolicy":{"maxDeliveryAttempts":4}}`)), "the name in retryPolicy")

	// jobs/pull has what becomes of deliveries when the mode changes.
	e := s.patch(billing, `{"deliveryConfiguration":{"deliveryMode":"Push"}}`).rejected(400, "InvalidRequest")
	require.Equal(t, "endpointUrl is required", e.Message)
	pushed := s.patch(billing, `{"deliveryConfiguration":{"deliveryMode":"Push"},"endpointUrl":"https://example.com/",`+
		`"retryPolicy":{"policy":"namespace-2023"}}`).json(200)
	require.Equal(t, map[string]any{"deliveryMode": "Push"}, pushed["deliveryConfiguration"])
	require.InDelta(t, 4, pushed["retryPolicy"].(map[string]any)["maxDeliveryAttempts"], 0)
	const toQueue = `{"deliveryConfiguration":{"deliveryMode":"Queue"}`
	e = s.patch(billing, toQueue+"}").rejected(400, "InvalidRequest")
	require.Equal(t, "endpointUrl must be absent with deliveryMode Queue: consumers receive the events; set it to null",
		e.Message)
	require.Equal(t, shown(60, 4, "P2D", "Rows"), queueOf(t, s.patch(billing, toQueue+`,"endpointUrl":null}`)),
		"the lock's duration is of the block of the other mode")
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
	reject := func(members, target, message string) {
		t.Helper()
		e := s.put(billing, `{`+members+`}`).rejected(400, "InvalidRequest")
		require.Equal(t, []string{target}, targets(e), members)
		require.Contains(t, e.Details[0].Message, target+" "+message, members)
	}
	queue := func(settings string) string {
		return `"deliveryConfiguration":{"deliveryMode":"Queue","queue":{` + settings + `}}`
	}
	const destination = `"deadLetterDestination":{"endpointType":"Rows"}`
	const withIdentity = "deadLetterDestinationWithResourceIdentity"
	for settings, want := range map[string][2]string{ // of the queue
		`"receiveLockDurationInSeconds":59`: {"receiveLockDurationInSeconds", "must be between 60 and 300, not 59"},
		`"maxDeliveryCount":11`: {
			"maxDeliveryCount", "must be between 1 and 10 under retry policy namespace-2023, not 11",
		},
		`"eventTimeToLive":"1d"`: {"eventTimeToLive", `must be an ISO 8601 duration`},
		`"eventTimeToLive":"P8D"`: {
			"eventTimeToLive", "must be between PT1M and P7D under retry policy namespace-2023",
		},
		`"deadLetterDestination":{"endpointType":"Queue"}`: {
			"deadLetterDestination.endpointType", "must be Rows, None, Blob or StorageBlob",
		},
		`"` + withIdentity + `":{"deadLetterDestination":{"endpointType":"Blob"}}`: {
			withIdentity + ".deadLetterDestination.properties", "is required for Blob",
		},
		destination + `,"` + withIdentity + `":{` + destination + `}`: {
			withIdentity + ".deadLetterDestination",
			"must be absent with " + at + "deadLetterDestination: both are names of one setting",
		},
		`"receiveLockDuration":60`: {"receiveLockDuration", "is not a member"},
	} {
		reject(queue(settings), at+want[0], want[1])
	}
	for member, value := range map[string]string{ // of push delivery
		"endpointUrl": `"ftp://x"`, "endpointKind": `"azure-resource"`, "endpointValidation": `"skip"`,
		"maxEventsPerBatch":             "6000",
		"preferredBatchSizeInKilobytes": "64", "maxConcurrentDeliveries": "3", "deliveryRate.limit": "3",
		"responseTimeoutInSeconds": "10", "signing.enabled": "true", "honorRetryAfter": "false", "probationAction": `"hold"`,
		"retryTransportErrors": "true", "minimumTlsVersionAllowed": `"1.3"`, "certificateAuthorities": `"x"`,
		"clientCertificate.certificate": `"x"`, "deliveryAttributeMappings": `[{"name":"a b"}]`,
	} {
		if object, name, nested := strings.Cut(member, "."); nested {
			reject(queue("")+`,"`+object+`":{"`+name+`":`+value+`}`, member, "must be absent")
			continue
		}
		reject(queue("")+`,"`+member+`":`+value, member, "must be absent")
	}
	for members, want := range map[string][2]string{
		queue("") + `,"eventDeliverySchema":"EventGridSchema"`:  {"eventDeliverySchema", "must be CloudEventSchemaV1_0"},
		queue("") + `,"retryPolicy":{"policy":"ga-2021"}`:       {"retryPolicy.policy", "must be namespace-2023 with "},
		queue("") + `,"retryPolicy":{"maxDeliveryAttempts":11}`: {"retryPolicy.maxDeliveryAttempts", "must be between 1 and"},
		`"deliveryConfiguration":{"deliveryMode":"Pull"}`:       {mode, "must be Push or Queue"},
		`"deliveryConfiguration":{"deliveryMode":"Push"}`:       {"endpointUrl", "is required"},
		`"deliveryConfiguration":{}`:                            {"endpointUrl", "is required"},
		queue(`"maxDeliveryCount":1`) + `,"retryPolicy":{"maxDeliveryCount":1}`: {
			at + "maxDeliveryCount", "must be absent with ",
		},
		queue(`"maxDeliveryCount":1`) + `,"retryPolicy":{"maxDeliveryAttempts":1}`: {
			at + "maxDeliveryCount", "must be absent with ",
		},
		`"deliveryConfiguration":{"deliveryMode":"Push","queue":{}}`: {
			"deliveryConfiguration.queue", "must be absent unless deliveryMode is Queue",
		},
	} {
		reject(members, want[0], want[1])
	}
	e := s.put("/v1/topics/other/subscriptions/billing", queueMode).rejected(400, "InvalidRequest")
	require.Equal(t, []string{mode}, targets(e))
	require.Contains(t, e.Message, "must be Push: the topic's input schema is EventGridSchema, and Queue requires")
}
