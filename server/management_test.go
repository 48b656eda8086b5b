package server_test

import (
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"testing"
	"time"

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
	times := map[string]any{"createdAt": made["createdAt"], "updatedAt": made["updatedAt"]}
	want := map[string]any{
		"topic": "orders", "name": "billing", "endpointBaseUrl": "https://example.com/in", "endpointKind": "webhook",
		"eventDeliverySchema": "EventGridSchema", "provisioningState": "Succeeded", "endpointValidation": "skip",
		"validation": nil, "hold": nil, "deliveryConfiguration": map[string]any{"deliveryMode": "Push"},
		"maxEventsPerBatch": 1.0, "preferredBatchSizeInKilobytes": 64.0, "maxConcurrentDeliveries": nil, "deliveryRate": nil,
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
		"minimumTlsVersionAllowed": "1.2", "certificateAuthorities": nil, "clientCertificate": nil, "oauth2": nil,
	}
	maps.Copy(want, times)
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
	for member, value := range map[string]any{
		"endpointBaseUrl": "https://example.com/other", "endpointKind": "azure-resource",
		"eventDeliverySchema": "CloudEventSchemaV1_0",
		"retryPolicy": map[string]any{
			"policy": "ga-2019", "maxDeliveryAttempts": 5.0, "eventTimeToLiveInMinutes": 10.0,
		},
		"filter": map[string]any{
			"includedEventTypes": []any{"a", "b"}, "subjectBeginsWith": "x", "subjectEndsWith": "y",
			"isSubjectCaseSensitive": true, "advancedFilters": []any{}, "enableAdvancedFilteringOnArrays": false,
		},
		"deadLetterDestination": map[string]any{"endpointType": "None"}, "createdAt": made["createdAt"],
	} {
		require.Equal(t, value, replaced[member], member)
	}

	back := s.put(billing, `{"endpointUrl":"https://example.com/in","deadLetterDestination":null,`+
		`"retryPolicy":null,"filter":null}`).json(200)
	require.Equal(t, want["deadLetterDestination"], back["deadLetterDestination"],
		"what is left out takes its default again")
	require.Equal(t, want["retryPolicy"], back["retryPolicy"])
	require.Equal(t, want["filter"], back["filter"])

	s.delete(billing).is(204)
	s.delete(billing).rejected(404, "NotFound")
	s.get(billing).rejected(404, "NotFound")
	s.put("/v1/topics/nothing/subscriptions/billing", `{"endpointUrl":"https://example.com"}`).rejected(404, "NotFound")
	s.get("/v1/topics/nothing/subscriptions").rejected(404, "NotFound")
}

// Each mistake has the name of its property, whatever package has found it: internal/catalog/spec and policy have the
// ranges, internal/endpointconf has the rules of URLs.
func TestSubscriptionRejections(t *testing.T) {
	t.Parallel()
	s := setup(t, func(o *server.Options) { o.AllowCIDR = []netip.Prefix{netip.MustParsePrefix("192.168.0.0/16")} })
	s.topic("orders", "")
	endpoint := func(url string) string { return fmt.Sprintf(`{"endpointUrl":%q}`, url) }
	with := func(members string) string { return `{"endpointUrl":"https://example.com",` + members + `}` }
	policy := func(members string) string { return with(`"retryPolicy":{` + members + `}`) }
	justNow := time.Now().Add(-time.Second).Format(time.RFC3339)
	for body, want := range map[string]string{ // the targets
		"":                                                          "endpointUrl",
		"{}":                                                        "endpointUrl",
		endpoint("http://169.254.169.254"):                          "endpointUrl",
		endpoint("http://10.0.0.1"):                                 "endpointUrl",
		endpoint("http://127.0.0.1:8080/"):                          "endpointUrl",
		endpoint("http://localhost:8080/"):                          "endpointUrl",
		endpoint("http://[::1]/"):                                   "endpointUrl",
		endpoint("http://0x7f000001/"):                              "endpointUrl",
		endpoint("ftp://example.com/?sig=secret"):                   "endpointUrl",
		endpoint("https://me:secret@example.com/"):                  "endpointUrl",
		with(`"endpointKind":"queue"`):                              "endpointKind",
		with(`"eventDeliverySchema":"x"`):                           "eventDeliverySchema",
		policy(`"policy":"ga-2020"`):                                "retryPolicy.policy",
		policy(`"policy":""`):                                       "retryPolicy.policy",
		policy(`"maxDeliveryAttempts":0`):                           "retryPolicy.maxDeliveryAttempts",
		policy(`"maxDeliveryAttempts":31`):                          "retryPolicy.maxDeliveryAttempts",
		policy(`"maxDeliveryAttempts":0.5`):                         "retryPolicy.maxDeliveryAttempts",
		policy(`"maxDeliveryAttempts":"5"`):                         "retryPolicy.maxDeliveryAttempts",
		policy(`"eventTimeToLiveInMinutes":1441`):                   "retryPolicy.eventTimeToLiveInMinutes",
		policy(`"policy":"namespace-2023"`):                         "eventDeliverySchema",
		with(`"filter":{"includedEventTypes":["a",""]}`):            "filter.includedEventTypes[1]",
		with(`"filter":"all"`):                                      "filter",
		with(`"deadLetterDestination":{"endpointType":"EventHub"}`): "deadLetterDestination.endpointType",
		with(`"deadLetterDestination":{}`):                          "deadLetterDestination.endpointType",
		with(`"provisioningState":"Succeeded"`):                     "provisioningState",
		with(`"retryPolice":{},"retryPolicy":{"attempts":1}`):       "retryPolice retryPolicy.attempts",
		with(`"maxEventsPerBatch":-1,"preferredBatchSizeInKilobytes":1025`): "maxEventsPerBatch " +
			"preferredBatchSizeInKilobytes",
		with(`"maxEventsPerBatch":"10"`):                          "maxEventsPerBatch",
		with(`"maxConcurrentDeliveries":2147483648`):              "maxConcurrentDeliveries",
		with(`"behavior":"strict","probationAction":"drop"`):      "behavior probationAction",
		with(`"honorRetryAfter":"yes"`):                           "honorRetryAfter",
		with(`"labels":["a"` + strings.Repeat(`,"a"`, 100) + `]`): "labels",
		with(`"labels":["a","",null]`):                            "labels[1] labels[2]",
		with(`"labels":["` + strings.Repeat("é", 257) + `"]`):     "labels[0]",
		with(`"labels":{"a":"b"}`):                                "labels",
		with(`"expirationTimeUtc":"` + justNow + `"`):             "expirationTimeUtc",
		with(`"expirationTimeUtc":"2020-01-01T00:00:00Z"`):        "expirationTimeUtc",
		with(`"expirationTimeUtc":""`):                            "expirationTimeUtc",
		with(`"expirationTimeUtc":"2099-01-01T00:00:00"`):         "expirationTimeUtc",
		with(`"expirationTimeUtc":4070908800`):                    "expirationTimeUtc",
		policy(`"maxDeliveryCount":5,"eventTimeToLive":"P1D"`): "retryPolicy.maxDeliveryCount " +
			"retryPolicy.eventTimeToLive",
		with(`"maxEventsPerBatch":2,"retryPolicy":{"policy":"ga-2019"}`):              "maxEventsPerBatch",
		with(`"preferredBatchSizeInKilobytes":64,"retryPolicy":{"policy":"ga-2018"}`): "preferredBatchSizeInKilobytes",
		`{"endpointUrl":"http://10.0.0.1","endpointKind":"x","eventDeliverySchema":"x","retryPolicy":{"policy":"x"},` +
			`"filter":{"includedEventTypes":[""]},"deadLetterDestination":{"endpointType":"x"},` +
			`"maxConcurrentDeliveries":-1}`: "endpointUrl filter.includedEventTypes[0] retryPolicy.policy eventDeliverySchema " +
			"endpointKind maxConcurrentDeliveries deadLetterDestination.endpointType",
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
			"namespace-2023",
		`"deliveryRate":{"burst":5}`: "deliveryRate.limit must be 1 to 100000; without deliveryRate there is no limit",
		`"deliveryRate":{"limit":null,"scope":"endpoint"}`: "deliveryRate.limit must be 1 to 100000; without " +
			"deliveryRate there is no limit",
		`"maxEventsPerBatch":5001`:          "maxEventsPerBatch must be between 1 and 5000, not 5001",
		`"preferredBatchSizeInKilobytes":0`: "preferredBatchSizeInKilobytes must be between 1 and 1024, not 0",
		`"maxConcurrentDeliveries":0`:       "maxConcurrentDeliveries must be between 1 and 2147483647, not 0",
		`"maxEventsPerBatch":2,"retryPolicy":{"policy":"preview-2017"}`: "maxEventsPerBatch must be 1 or absent under " +
			"retry policy preview-2017, which delivers each event separately",
	} {
		require.Equal(t, says, s.put(billing, with(members)).rejected(400, "InvalidRequest").Message)
	}
	require.Equal(t, []string{"subscription", "endpointUrl"},
		targets(s.put("/v1/topics/orders/subscriptions/x", "{}").rejected(400, "InvalidRequest")))
	require.Zero(t, s.count("SELECT count(*) FROM postrider.event_subscriptions"))
	s.subscription("orders", "allowed", endpoint("http://192.168.1.1:9000/in"))
}

// What is absent has its default, and is not stored. policy.ResolveBatch has the defaults.
func TestBatchesAndRequestsInFlight(t *testing.T) {
	t.Parallel()
	s, _ := withBilling(t)
	for members, want := range map[string]string{ // as shown and as stored
		`"maxEventsPerBatch":5000,"preferredBatchSizeInKilobytes":1024,"maxConcurrentDeliveries":2147483647`: "5000 1024 " +
			"2147483647, 5000 1024 2147483647",
		`"endpointKind":"webhook"`:          "1 64 -1, null null null",
		`"maxEventsPerBatch":2`:             "2 64 -1, 2 null null",
		`"preferredBatchSizeInKilobytes":1`: "10 1 -1, null 1 null",
		`"maxEventsPerBatch":null,"preferredBatchSizeInKilobytes":null,"maxConcurrentDeliveries":null`: "1 64 -1, null " +
			"null null",
		`"maxConcurrentDeliveries":1`: "1 64 1, null null 1",
		`"maxEventsPerBatch":1,"preferredBatchSizeInKilobytes":256,"retryPolicy":{"policy":"ga-2019"}`: "1 256 -1, 1 256 " +
			"null",
	} {
		put := s.put(billing, `{"endpointUrl":"https://example.com",`+members+`}`).json(200)
		require.Equal(t, put, s.get(billing).json(200), members)
		if put["maxConcurrentDeliveries"] == nil {
			put["maxConcurrentDeliveries"] = -1.0
		}
		shown := fmt.Sprintf("%.0f %.0f %.0f, ", put["maxEventsPerBatch"], put["preferredBatchSizeInKilobytes"],
			put["maxConcurrentDeliveries"])
		stored := s.rows(`SELECT concat_ws(' ', coalesce(settings ->> 'maxEventsPerBatch', 'null'),
			coalesce(settings ->> 'preferredBatchSizeInKilobytes', 'null'),
			coalesce(settings ->> 'maxConcurrentDeliveries', 'null')) AS settings FROM postrider_internal.event_subscriptions`)
		require.Equal(t, want, shown+stored[0]["settings"].(string), members)
	}
}

func TestPaging(t *testing.T) {
	t.Parallel()
	s := setup(t)
	var topics, subs []any
	for i := range 7 {
		topics, subs = append(topics, fmt.Sprintf("topic-%d", i)), append(subs, fmt.Sprintf("sub-%d", i))
		s.topic(topics[i].(string), "")
		s.subscription("topic-0", subs[i].(string), `{"endpointUrl":"https://example.com"}`)
	}
	for path, want := range map[string][]any{"/v1/topics": topics, "/v1/topics/topic-0/subscriptions": subs} {
		for limit, wantPages := range map[int]int{1: 7, 2: 4, 3: 3, 7: 1, 1000: 1} {
			names, pages := s.walked(fmt.Sprintf("%s?limit=%d", path, limit), "name")
			require.Equal(t, want, names, "limit %d", limit)
			require.Equal(t, wantPages, pages, "limit %d", limit)
		}
		page := s.get(path).json(200)
		require.Contains(t, page, "nextLink", "it is there on the last page too")
		require.Nil(t, page["nextLink"])
		for query, target := range map[string]string{
			"?limit=0": "limit", "?limit=1001": "limit", "?limit=many": "limit", "?cursor=*": "cursor", "?cursor=AA": "cursor",
			"?cursor=_w": "cursor",
		} {
			require.Equal(t, []string{target}, targets(s.get(path+query).rejected(400, "InvalidRequest")), query)
		}
	}
	require.Empty(t, s.get("/v1/topics/topic-1/subscriptions").json(200)["value"])
}
