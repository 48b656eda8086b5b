package server_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

var cloudEvents = []exampleRequest{
	{name: "oneCloudEvent", contentType: "application/cloudevents+json", body: `{
		"specversion": "1.0", "id": "1807", "source": "/shop", "type": "shop.order.placed", "subject": "orders/1807",
		"time": "2026-11-20T09:30:00Z", "data": {"total": 12.5, "currency": "EUR"}
	}`},
	{name: "cloudEvents", contentType: "application/cloudevents-batch+json", body: `[
		{
			"specversion": "1.0", "id": "1808", "source": "/shop", "type": "shop.order.placed",
			"subject": "orders/1808", "data": {"total": 5}
		},
		{
			"specversion": "1.0", "id": "1809", "source": "/shop", "type": "shop.order.canceled",
			"subject": "orders/1807"
		}
	]`},
}

var oneToken = []exampleRequest{{name: "oneToken", body: `{"lockTokens": ["AAAAAAAAEmc/DCqeXUFLepwej20rekwR"]}`}}

// exampleRequests are the requests of the examples in the OpenAPI document, by operation, in the order in which the
// test sends them. The content type is application/json unless another is set.
var exampleRequests = map[string][]exampleRequest{
	"publishEvents": append(slices.Clone(cloudEvents), exampleRequest{name: "oneEvent", body: `[
			{
				"id": "1807", "subject": "orders/1807", "eventType": "Shop.OrderPlaced",
				"eventTime": "2026-11-20T09:30:00Z", "dataVersion": "1.0", "data": {"total": 12.5, "currency": "EUR"}
			}
		]`}),
	"publishCloudEvents": cloudEvents,
	"acknowledgeEvents":  oneToken,
	"releaseEvents":      oneToken,
	"rejectEvents":       oneToken,
	"renewLocks":         oneToken,
	"acknowledgeProblem": {
		{name: "forFourHours", body: `{"forMinutes": 240, "note": "the endpoint is being moved"}`},
	},
	"resolveProblem": {
		{name: "withNote", body: `{"note": "certificate renewed"}`},
	},
	"putTopic": {
		{name: "defaults", body: `{}`},
		{name: "allSettings", body: `{
			"kind": "basic", "inputSchema": "EventGridSchema", "duplicateDetectionWindowInMinutes": 1440
		}`},
	},
	"regenerateTopicKey": {
		{name: "theFirst", body: `{"keyName": "key1"}`},
		{name: "theSecond", body: `{"keyName": "key2"}`},
	},
	"testFilter": {
		{name: "anEvent", body: `{
			"filter": {
				"subjectBeginsWith": "orders/",
				"advancedFilters": [{"operatorType": "NumberGreaterThanOrEquals", "key": "data.total", "value": 10}]
			},
			"event": {
				"id": "1808", "subject": "orders/1808", "eventType": "Shop.OrderPlaced",
				"eventTime": "2026-11-20T09:30:00Z", "dataVersion": "1.0", "data": {"total": 5, "currency": "EUR"}
			}
		}`},
		{name: "theLastTen", body: `{"filter": {"includedEventTypes": ["Shop.OrderPlaced"]}, "last": 10}`},
	},
	"putSubscription": {
		{name: "onlyAnEndpoint", body: `{"endpointUrl": "https://billing.example.com/events"}`},
		{name: "allSettings", body: `{
			"endpointUrl": "https://billing.example.com/events?code=5f0c", "endpointKind": "webhook",
			"eventDeliverySchema": "CloudEventSchemaV1_0",
			"retryPolicy": {"policy": "ga-2021", "maxDeliveryAttempts": 10, "eventTimeToLiveInMinutes": 60},
			"filter": {
				"includedEventTypes": ["Shop.OrderPlaced", "Shop.OrderCanceled"], "subjectBeginsWith": "orders/",
				"isSubjectCaseSensitive": true,
				"advancedFilters": [{"operatorType": "NumberGreaterThanOrEquals", "key": "data.total", "value": 10}],
				"enableAdvancedFilteringOnArrays": false
			},
			"deadLetterDestination": {"endpointType": "None"}, "maxEventsPerBatch": 100,
			"preferredBatchSizeInKilobytes": 256, "maxConcurrentDeliveries": 16,
			"deliveryRate": {"limit": 600, "periodInSeconds": 60, "scope": "endpoint"}, "responseTimeoutInSeconds": 20,
			"deliveryAttributeMappings": [
				{"name": "Authorization", "type": "Static", "properties": {"value": "Bearer 5f0c", "isSecret": true}},
				{"name": "X-Channel", "type": "Dynamic", "properties": {"sourceField": "data.system"}}
			],
			"behavior": "documented", "honorRetryAfter": true, "probationAction": null, "retryTransportErrors": null,
			"labels": ["billing", "team-a"], "expirationTimeUtc": "2099-12-31T23:59:59Z", "signing": {"enabled": true},
			"endpointValidation": "skip", "minimumTlsVersionAllowed": null, "certificateAuthorities": null,
			"clientCertificate": null,
			"oauth2": {
				"tokenUrl": "https://login.example.com/oauth2/token", "clientId": "postrider", "clientSecret": "9d41",
				"scope": null
			}
		}`},
	},
	"patchSubscription": {
		{name: "change", body: `{
			"retryPolicy": {"maxDeliveryAttempts": null, "eventTimeToLiveInMinutes": 120},
			"filter": {"advancedFilters": null}, "behavior": null, "labels": ["billing"], "expirationTimeUtc": null
		}`},
		{name: "nothing", body: `{}`},
	},
	"pauseSubscription": {
		{name: "stoppingTheTimeToLive", body: `{"stopTimeToLive": true}`},
	},
	"testSubscriptionFilter": {
		{name: "anEvent", body: `{
			"event": {
				"id": "1808", "subject": "orders/1808", "eventType": "Shop.OrderPlaced",
				"eventTime": "2026-11-20T09:30:00Z", "dataVersion": "1.0", "data": {"total": 5, "currency": "EUR"}
			}
		}`},
		{name: "theLastTen", body: `{"last": 10}`},
	},
	"rotateSigningSecret": {
		{name: "generated", body: `{"previousValidForHours": 24}`},
		{name: "given", body: `{"secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}`},
	},
	"redeliverEvents": {
		{name: "counted", body: `{
			"from": "2024-11-20T08:00:00Z", "until": "2024-11-20T09:00:00Z", "dryRun": true
		}`},
		{name: "lastHour", body: `{
			"from": "2024-11-20T08:00:00Z", "until": "2024-11-20T09:00:00Z", "ratePerSecond": 50
		}`},
	},
	"redeliverDeadLetters": {
		{name: "counted", body: `{"filter": {"topic": "orders"}, "dryRun": true}`},
		{name: "slowly", body: `{
			"filter": {"topic": "orders", "reason": "MaxDeliveryAttemptsExceeded"}, "expectedCount": 1,
			"ratePerSecond": 100
		}`},
	},
	"importDeadLetters": {
		{name: "dryRun", body: `{
			"dryRun": true, "deadLetters": [{
				"importedFrom": "BILLING/2026/3/4/6/7d0d5b5e-8a56-4bb7-9f0c-3a7d2c1e0b11.json", "subscription": "billing",
				"deadLetter": {
					"deadLetterProperties": {
						"deadletterreason": "Maximum delivery attempts was exceeded.", "deliveryattempts": 3,
						"deliveryresult": "Unauthorized", "publishutc": "2026-03-04T05:06:08.4521467Z",
						"deliveryattemptutc": "2026-03-04T05:36:09.3692079Z"
					},
					"event": {
						"specversion": "1.0", "id": "5b0c", "source": "/shop", "type": "Shop.StockLow", "data": {"left": 3}
					}
				}
			}]
		}`},
		{name: "anEvent", body: `{
			"deadLetters": [{
				"importedFrom": "BILLING/2026/3/4/6/50612e54-22a0-4e0b-8c5c-5d1f9d7c9a10.json", "index": 0,
				"subscription": "billing", "deadLetter": {
					"id": "o-1807", "eventTime": "2026-03-04T05:06:07.1234567Z", "eventType": "Shop.OrderPlaced",
					"dataVersion": "1", "metadataVersion": "1", "subject": "orders/1807",
					"topic": "/subscriptions/3c0f/resourceGroups/shop/providers/microsoft.eventgrid/topics/orders",
					"deadLetterReason": "MaxDeliveryAttemptsExceeded", "deliveryAttempts": 30,
					"lastDeliveryOutcome": "NotFound", "publishTime": "2026-03-04T05:06:08.0265758Z",
					"lastDeliveryAttemptTime": "2026-03-05T05:06:08.0465788Z", "data": {"total": 12.5}
				}
			}]
		}`},
	},
	"repairDeadLetters": {
		{name: "dryRun", body: `{
			"dryRun": true, "filter": {"topic": "orders"}, "again": true, "mergePatch": {"data": {"currency": "EUR"}}
		}`},
		{name: "start", body: `{
			"filter": {"topic": "orders"}, "expectedCount": 1, "ratePerSecond": 100,
			"mergePatch": {"data": {"total": 10}}
		}`},
	},
	"purgeDeadLetters": {
		{name: "counted", body: `{"filter": {"eventType": "Shop.Nothing"}, "dryRun": true}`},
		{name: "redeliveredOnes", body: `{"filter": {"topic": "orders", "state": "redelivered"}}`},
	},
	"resolveDeadLetters": {
		{name: "counted", body: `{"filter": {"topic": "orders"}, "dryRun": true}`},
		{name: "withANote", body: `{
			"filter": {"topic": "orders", "lastStatus": 404}, "note": "The customers were deleted."
		}`},
	},
	"resolveDeadLetter": {
		{name: "withANote", body: `{"note": "Refunded by hand."}`},
	},
	"redeliverEvent": {
		{name: "toBilling", body: `{"subscription": "billing", "unmatched": true}`},
	},
	"redeliverDeadLetter": {
		{name: "again", body: `{"again": true}`},
		{name: "edited", body: `{
			"again": true,
			"event": {
				"id": "o-42", "eventType": "Shop.OrderPlaced", "subject": "orders/42", "eventTime": "2024-11-20T09:32:00Z",
				"dataVersion": "1", "data": {"total": 9.5, "currency": "EUR"}
			}
		}`},
		{name: "elsewhere", body: `{"again": true, "topic": "orders", "subscription": "billing"}`},
		{name: "plain", body: `{"again": true}`},
	},
	"createAPIKey": {
		{name: "operators", body: `{"name": "ci", "scope": "operate", "expiresInDays": 90}`},
		{name: "publisher", body: `{"name": "shop", "scope": "publish", "topic": "orders"}`},
		{name: "receiver", body: `{
			"name": "worker", "scope": "receive", "topic": "orders", "subscription": "billing"
		}`},
	},
	"putUser": {
		{name: "a new user", body: `{"role": "viewer", "password": "correct horse battery staple"}`},
		{name: "b role", body: `{"role": "operator", "disabled": true}`},
	},
	"runSQL": {
		{name: "byTopic", body: `{
			"sql": "select topic, count(*) as dead_letters from dead_letters where topic = $1 group by 1",
			"args": ["orders"]
		}`},
	},
	"putQuery": {
		{name: "replaced", body: `{
			"description": "Dead letters of a topic",
			"sql": "select topic, count(*) as dead_letters from dead_letters where topic = $1 group by 1", "shared": true
		}`},
		{name: "shared", body: `{
			"description": "Dead letters of a topic",
			"sql": "select topic, count(*) as dead_letters from dead_letters where topic = $1 group by 1", "shared": true
		}`},
	},
	"runQuery": {
		{name: "oneArgument", body: `{"args": {"1": "orders"}}`},
	},
	"putPolicy": {
		{name: "fewWords", body: `{
			"stepsInSeconds": [60, 300], "tailInSeconds": 3600, "maxDeliveryAttempts": {"default": 100},
			"eventTimeToLiveInMinutes": {"default": 5760}
		}`},
		{name: "patient", body: `{
			"source": "bridges a weekend",
			"stepsInSeconds": [10, 20, 30, 60, 180, 300, 300, 300, 300, 300, 300, 300, 600, 600], "tailInSeconds": 3600,
			"maxDeliveryAttempts": {"default": null, "least": 1, "most": 1000},
			"eventTimeToLiveInMinutes": {"default": 5760, "least": 1, "most": 5760},
			"statusTable": [
				{"endpointKind": "webhook", "condition": "200", "action": "success"},
				{"endpointKind": "webhook", "condition": "201", "action": "success"},
				{"endpointKind": "webhook", "condition": "202", "action": "success"},
				{"endpointKind": "webhook", "condition": "203", "action": "success"},
				{"endpointKind": "webhook", "condition": "204", "action": "success"},
				{"endpointKind": "webhook", "condition": "413", "action": "never"},
				{"endpointKind": "webhook", "condition": "other", "action": "retry", "minDelayInSeconds": 10},
				{"endpointKind": "azure-resource", "condition": "200", "action": "success"},
				{"endpointKind": "azure-resource", "condition": "201", "action": "success"},
				{"endpointKind": "azure-resource", "condition": "202", "action": "success"},
				{"endpointKind": "azure-resource", "condition": "203", "action": "success"},
				{"endpointKind": "azure-resource", "condition": "204", "action": "success"},
				{"endpointKind": "azure-resource", "condition": "413", "action": "never"},
				{"endpointKind": "azure-resource", "condition": "other", "action": "retry", "minDelayInSeconds": 10}
			]
		}`},
	},
	"applyConfiguration": {
		{name: "declared", body: `{
			"policies": [{"name": "weekend", "stepsInSeconds": [60, 3600]}],
			"topics": [
				{
					"name": "orders", "duplicateDetectionWindowInMinutes": 60,
					"subscriptions": [
						{
							"name": "audit", "endpointUrl": "https://audit.example.com/events?code=5f0c",
							"endpointValidation": "skip", "retryPolicy": {"policy": "weekend"}
						}
					]
				}
			]
		}`},
	},
	"eraseSubject": {
		{name: "aPerson", body: `{"subject": "orders/1807"}`},
		{name: "inSteps", body: `{"subject": "newsletters/november"}`},
	},
	"retryDeliveries": {
		{name: "counted", body: `{"filter": {"topic": "orders"}, "dryRun": true}`},
		{name: "slowly", body: `{
			"filter": {"topic": "orders", "lastOutcome": "Busy"}, "expectedCount": 1, "ratePerSecond": 100
		}`},
	},
	"cancelDeliveries": {
		{name: "byIds", body: `{"filter": {"deliveryIds": [4711]}, "expectedCount": 1, "ratePerSecond": 100}`},
		{name: "counted", body: `{"filter": {"topic": "orders"}, "dryRun": true}`},
	},
}

// comparable is v as JSON, without times and keys, which differ in each run.
func comparable(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	require.NoError(t, err)
	var plain any
	require.NoError(t, json.Unmarshal(text, &plain))
	mask(plain)
	text, err = json.MarshalIndent(plain, "", "  ")
	require.NoError(t, err)
	return string(text)
}

func mask(v any) {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			mask(item)
		}
	case map[string]any:
		for name, value := range v {
			if slices.Contains(
				[]string{
					"createdAt", "updatedAt", "etag", "since", "operationId", "nextProbeAt",
					"key1", "key2", "secret", "rotatedAt",
					"previousValidUntil", "validUntil", "nextAttemptAt", "holdUntil", "timeToLiveSince", "publishedAt",
					"filterVersion",
					"tookMilliseconds", "key", "hint", "expiresAt", "revokedAt", "changedAt", "startedAt", "finishedAt",
					"deadLetterId", "deviceCode", "lockToken",
					"userCode", "verificationUri", "verificationUriComplete", "at", "place", "firstFailedAt", "lastFailedAt",
					"drainsAt", "closedUntil", "resolvedAt", "redeliveredAt", "recoveredAt", "acknowledgedAt", "acknowledgedUntil",
					"callbackExpiresAt", "validatedAt", "lastReceivedAt", "endedAt",
				}, name) && value != nil || name == "nextLink" && value != nil {
				v[name] = "…"
			}
			mask(value)
		}
	}
}
