package server_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/server"
)

func TestSubscriptionRoundTrip(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.topic("orders", "")
	made := s.put(billing, `{"endpointUrl":"https://example.com/in?code=secret"}`).json(201)
	require.NotEmpty(t, made["createdAt"])
	require.NotEmpty(t, made["updatedAt"])
	want := map[string]any{
		"topic": "orders", "name": "billing", "endpointBaseUrl": "https://example.com/in", "endpointKind": "webhook",
		"destination":         nil,
		"eventDeliverySchema": "EventGridSchema", "provisioningState": "Succeeded", "endpointValidation": "skip",
		"validation": nil, "hold": nil, "throttling": nil, "deliveryConfiguration": map[string]any{"deliveryMode": "Push"},
		"maxEventsPerBatch": 1.0, "preferredBatchSizeInKilobytes": 64.0, "maxConcurrentDeliveries": nil, "deliveryRate": nil,
		"description":   nil,
		"hostRateLimit": nil, "responseTimeoutInSeconds": 30.0,
		"signing":     map[string]any{"enabled": false, "secrets": 0.0, "rotatedAt": nil, "previousValidUntil": nil},
		"retryPolicy": map[string]any{"policy": "ga-2021", "maxDeliveryAttempts": 30.0, "eventTimeToLiveInMinutes": 1440.0},
		"filter": map[string]any{
			"includedEventTypes": []any{"All"}, "subjectBeginsWith": "", "subjectEndsWith": "", "isSubjectCaseSensitive": false,
			"advancedFilters": []any{}, "enableAdvancedFilteringOnArrays": false,
		},
		"deadLetterDestination":     map[string]any{"endpointType": "Rows"},
		"deliveryAttributeMappings": []any{},
		"behavior":                  "safe", "honorRetryAfter": true, "probationAction": "hold", "retryTransportErrors": true,
		"labels": []any{}, "expirationTimeUtc": nil, "etag": made["etag"],
		"createdAt": made["createdAt"], "updatedAt": made["updatedAt"],
		"minimumTlsVersionAllowed": "1.2", "certificateAuthorities": nil, "clientCertificate": nil, "oauth2": nil,
	}
	require.Equal(t, want, made)
	shown := s.get(billing)
	require.Equal(t, want, shown.json(200))
	require.NotContains(t, shown.body, "code")

	replaced := s.put(billing, `{"endpointUrl":"https://example.com/other","endpointKind":"azure-resource",
		"eventDeliverySchema":"CloudEventSchemaV1_0","retryPolicy":{"policy":"ga-2019","maxDeliveryAttempts":5,`+
		`"eventTimeToLiveInMinutes":10},
		"filter":{"includedEventTypes":["a","b"],"subjectBeginsWith":"x","subjectEndsWith":"y","isSubjectCaseSensitive":true},
		"deadLetterDestination":{"endpointType":"None"}}`).json(200)
	require.Equal(t, replaced, s.get(billing).json(200))
	want["endpointBaseUrl"], want["endpointKind"] = "https://example.com/other", "azure-resource"
	want["eventDeliverySchema"] = "CloudEventSchemaV1_0"
	want["deadLetterDestination"] = map[string]any{"endpointType": "None"}
	retryPolicy, filter := want["retryPolicy"], want["filter"]
	want["retryPolicy"] = map[string]any{"policy": "ga-2019", "maxDeliveryAttempts": 5.0, "eventTimeToLiveInMinutes": 10.0}
	want["filter"] = map[string]any{
		"includedEventTypes": []any{"a", "b"}, "subjectBeginsWith": "x", "subjectEndsWith": "y",
		"isSubjectCaseSensitive": true, "advancedFilters": []any{}, "enableAdvancedFilteringOnArrays": false,
	}
	want["updatedAt"], want["etag"] = replaced["updatedAt"], replaced["etag"]
	require.Equal(t, want, replaced)

	back := s.put(billing, `{"endpointUrl":"https://example.com/in","deadLetterDestination":null,`+
		`"retryPolicy":null,"filter":null}`).json(200)
	require.Equal(t, map[string]any{"endpointType": "Rows"}, back["deadLetterDestination"],
		"what is left out takes its default again")
	require.Equal(t, retryPolicy, back["retryPolicy"])
	require.Equal(t, filter, back["filter"])

	s.delete(billing).is(204)
	s.delete(billing).rejected(404, "NotFound")
	s.get(billing).rejected(404, "NotFound")
	s.put("/v1/topics/nothing/subscriptions/billing", `{"endpointUrl":"https://example.com"}`).rejected(404, "NotFound")
	s.get("/v1/topics/nothing/subscriptions").rejected(404, "NotFound")
}

// Each mistake has the name of its property, whatever package has found it: internal/catalog/spec and policy have the
// ranges, internal/endpointconf the rules of URLs and headers, internal/filter those of filters.
func TestSubscriptionRejections(t *testing.T) {
	t.Parallel()
	s := setup(t, func(o *server.Options) { o.AllowCIDR = []netip.Prefix{netip.MustParsePrefix("192.168.0.0/16")} })
	s.topic("orders", "")
	with := func(members string) string { return `{"endpointUrl":"https://example.com",` + members + `}` }
	policy := func(members string) string { return with(`"retryPolicy":{` + members + `}`) }
	const headers = "deliveryAttributeMappings"
	for body, want := range map[string]string{ // the targets
		"":                                  "endpointUrl",
		`{"endpointUrl":"http://10.0.0.1"}`: "endpointUrl",
		`{"endpointUrl":"ftp://example.com/?sig=secret"}`:           "endpointUrl",
		`{"endpointUrl":"https://me:secret@example.com/"}`:          "endpointUrl",
		with(`"endpointKind":"queue"`):                              "endpointKind",
		policy(`"policy":"ga-2020"`):                                "retryPolicy.policy",
		policy(`"maxDeliveryAttempts":31`):                          "retryPolicy.maxDeliveryAttempts",
		policy(`"eventTimeToLiveInMinutes":1441`):                   "retryPolicy.eventTimeToLiveInMinutes",
		policy(`"policy":"namespace-2023"`):                         "eventDeliverySchema",
		with(`"deadLetterDestination":{"endpointType":"EventHub"}`): "deadLetterDestination.endpointType",
		with(`"deadLetterDestination":{}`):                          "deadLetterDestination.endpointType",
		with(`"provisioningState":"Succeeded"`):                     "provisioningState",
		with(`"retryPolice":{},"retryPolicy":{"attempts":1}`):       "retryPolice retryPolicy.attempts",
		with(`"maxEventsPerBatch":"10"`):                            "maxEventsPerBatch",
		with(`"behavior":"strict","probationAction":"drop"`):        "behavior probationAction",
		with(`"honorRetryAfter":"yes"`):                             "honorRetryAfter",
		with(`"labels":["a"` + strings.Repeat(`,"a"`, 100) + `]`):   "labels",
		with(`"labels":["a","",null]`):                              "labels[1] labels[2]",
		with(`"labels":["` + strings.Repeat("é", 257) + `"]`):       "labels[0]",
		with(`"expirationTimeUtc":"2020-01-01T00:00:00Z"`):          "expirationTimeUtc",
		with(`"expirationTimeUtc":"2099-01-01T00:00:00"`):           "expirationTimeUtc",
		policy(`"maxDeliveryCount":5,"eventTimeToLive":"P1D"`): "retryPolicy.maxDeliveryCount " +
			"retryPolicy.eventTimeToLive",
		with(`"maxEventsPerBatch":2,"retryPolicy":{"policy":"ga-2019"}`): "maxEventsPerBatch",
		with(`"filter":{"advancedFilters":[{"operatorType":"NumberIn","key":"a","values":["x"]}]}`): "" +
			"filter.advancedFilters[0].values[0]",
		with(`"filter":{"advancedFilters":[{"operatorType":"IsNotNull","kye":"id"}]}`): "filter.advancedFilters[0].kye",
		with(`"` + headers + `":{}`): headers,
		with(`"` + headers + `":[{"name":"X","type":"Static","properties":{"value":5}}]`): headers + ".properties.value",
		`{"endpointUrl":"http://10.0.0.1","endpointKind":"x","eventDeliverySchema":"x","retryPolicy":{"policy":"x"},` +
			`"filter":{"includedEventTypes":[""]},"deadLetterDestination":{"endpointType":"x"},` +
			`"maxConcurrentDeliveries":-1,"deliveryAttributeMappings":[{"name":"X Y","type":"Static",` +
			`"properties":{"isSecret":true}}]}`: "endpointUrl filter.includedEventTypes[0] retryPolicy.policy " +
			headers + "[0].name " + headers + "[0].properties.value eventDeliverySchema endpointKind maxConcurrentDeliveries " +
			"deadLetterDestination.endpointType",
	} {
		response := s.put(billing, body)
		rejection := response.rejected(400, "InvalidRequest")
		require.Equal(t, want, strings.Join(targets(rejection), " "), "%s: %s", body, response.body)
		require.Equal(t, rejection.Details[0].Message, rejection.Message, body)
		require.Contains(t, rejection.Message, rejection.Details[0].Target, body)
		require.NotContains(t, response.body, "secret", body)
	}
	for members, says := range map[string]string{
		`"retryPolicy":{"policy":"x"}`: "retryPolicy.policy must be one of preview-2017, ga-2018, ga-2019, ga-2021, " +
			"namespace-2023, ga-2026, not \"x\"",
		`"deliveryRate":{"burst":5}`: "deliveryRate.limit must be 1 to 100000; without deliveryRate there is no limit",
		`"maxEventsPerBatch":5001`:   "maxEventsPerBatch must be between 1 and 5000, not 5001",
	} {
		require.Equal(t, says, s.put(billing, with(members)).rejected(400, "InvalidRequest").Message)
	}
	require.Equal(t, []string{"subscription", "endpointUrl"},
		targets(s.put("/v1/topics/orders/subscriptions/x", "{}").rejected(400, "InvalidRequest")))
	require.Zero(t, s.count("SELECT count(*) FROM postrider.event_subscriptions"))
	require.Zero(t, s.count("SELECT count(*) FROM postrider.audit WHERE action = 'subscription_created'"))
	s.subscription("orders", "allowed", `{"endpointUrl":"http://192.168.1.1:9000/in"}`)
}

func TestPaging(t *testing.T) {
	t.Parallel()
	s := setup(t)
	var topics, subs []any
	for i := range 4 {
		topics, subs = append(topics, fmt.Sprintf("topic-%d", i)), append(subs, fmt.Sprintf("sub-%d", i))
		s.topic(topics[i].(string), "")
		s.subscription("topic-0", subs[i].(string), `{"endpointUrl":"https://example.com"}`)
	}
	for path, want := range map[string][]any{"/v1/topics": topics, "/v1/topics/topic-0/subscriptions": subs} {
		for limit, wantPages := range map[int]int{1: 4, 3: 2, 4: 1, 1000: 1} {
			names, pages := s.listAll(fmt.Sprintf("%s?limit=%d", path, limit), "name")
			require.Equal(t, want, names, "limit %d", limit)
			require.Equal(t, wantPages, pages, "limit %d", limit)
		}
		page := s.get(path).json(200)
		require.Contains(t, page, "nextLink", "it is there on the last page too")
		require.Nil(t, page["nextLink"])
	}
	require.Empty(t, s.get("/v1/topics/topic-1/subscriptions").json(200)["value"])
}
