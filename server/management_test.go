package server_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/server"
)

func TestSubscriptionRoundTrip(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.topic("orders", "")
	const path = "/v1/topics/orders/subscriptions/billing"
	made := b.manage(http.MethodPut, path, `{"endpointUrl":"https://example.com/in?code=secret"}`).json(http.StatusCreated)
	require.NotEmpty(t, made["createdAt"])
	require.NotEmpty(t, made["updatedAt"])
	times := map[string]any{"createdAt": made["createdAt"], "updatedAt": made["updatedAt"]}
	want := map[string]any{
		"topic": "orders", "name": "billing", "endpointBaseUrl": "https://example.com/in", "endpointKind": "webhook",
		"eventDeliverySchema": "EventGridSchema", "provisioningState": "Succeeded", "endpointValidation": "skip",
		"validation": nil, "hold": nil, "deliveryConfiguration": map[string]any{"deliveryMode": "Push"},
		"maxEventsPerBatch": 1.0, "preferredBatchSizeInKilobytes": 64.0, "maxConcurrentDeliveries": nil, "deliveryRate": nil,
		"hostRateLimit": nil, "responseTimeoutInSeconds": 30.0,
		"signing": map[string]any{
			"enabled": false, "secrets": 0.0, "rotatedAt": nil, "previousValidUntil": nil,
		},
		"retryPolicy": map[string]any{
			"policy": "ga-2021", "maxDeliveryAttempts": 30.0, "eventTimeToLiveInMinutes": 1440.0,
		},
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
	shown := b.manage(http.MethodGet, path, "")
	require.Equal(t, want, shown.json(http.StatusOK))
	require.NotContains(t, shown.body, "code")

	replaced := b.manage(http.MethodPut, path, `{"endpointUrl":"https://example.com/other","endpointKind":"azure-resource",
		"eventDeliverySchema":"CloudEventSchemaV1_0","retryPolicy":{"policy":"ga-2019","maxDeliveryAttempts":5,`+
		`"eventTimeToLiveInMinutes":10},
		"filter":{"includedEventTypes":["a","b"],"subjectBeginsWith":"x","subjectEndsWith":"y","isSubjectCaseSensitive":true},
		"deadLetterDestination":{"endpointType":"None"}}`).json(http.StatusOK)
	require.Equal(t, replaced, b.manage(http.MethodGet, path, "").json(http.StatusOK))
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

	back := b.manage(http.MethodPut, path, `{"endpointUrl":"https://example.com/in","deadLetterDestination":null,`+
		`"retryPolicy":null,"filter":null}`).json(http.StatusOK)
	require.Equal(t, want["deadLetterDestination"], back["deadLetterDestination"],
		"what is left out takes its default again")
	require.Equal(t, want["retryPolicy"], back["retryPolicy"])
	require.Equal(t, want["filter"], back["filter"])

	require.Equal(t, http.StatusNoContent, b.manage(http.MethodDelete, path, "").status)
	b.manage(http.MethodDelete, path, "").rejected(404, "NotFound")
	b.manage(http.MethodGet, path, "").rejected(404, "NotFound")
	b.manage(http.MethodPut, "/v1/topics/nothing/subscriptions/billing", `{"endpointUrl":"https://example.com"}`).
		rejected(404, "NotFound")
	b.manage(http.MethodGet, "/v1/topics/nothing/subscriptions", "").rejected(404, "NotFound")
}

func TestSubscriptionOnCloudEventsTopics(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.topic("shop", `{"kind":"namespace"}`)
	made := b.manage(http.MethodPut, "/v1/topics/shop/subscriptions/billing", `{"endpointUrl":"https://example.com"}`).
		json(http.StatusCreated)
	require.Equal(t,
		map[string]any{
			"policy": "namespace-2023", "maxDeliveryAttempts": 10.0, "eventTimeToLiveInMinutes": 10080.0,
			"maxDeliveryCount": 10.0, "eventTimeToLive": "P7D",
		}, made["retryPolicy"])
	require.Equal(t, "CloudEventSchemaV1_0", made["eventDeliverySchema"])
	rejection := b.manage(http.MethodPut, "/v1/topics/shop/subscriptions/billing",
		`{"endpointUrl":"https://example.com","eventDeliverySchema":"EventGridSchema"}`).rejected(400, "InvalidRequest")
	require.Equal(t, []string{"eventDeliverySchema"}, targets(rejection))

	b.topic("cloud", `{"inputSchema":"CloudEventSchemaV1_0"}`)
	rejection = b.manage(http.MethodPut, "/v1/topics/cloud/subscriptions/billing",
		`{"endpointUrl":"https://example.com","eventDeliverySchema":"EventGridSchema"}`).rejected(400, "InvalidRequest")
	require.Contains(t, rejection.Message, "cannot become EventGridSchema", "nor on a basic topic that takes CloudEvents")
}

func TestSubscriptionRejections(t *testing.T) {
	t.Parallel()
	b := setup(t, func(o *server.Options) { o.AllowCIDR = []netip.Prefix{netip.MustParsePrefix("192.168.0.0/16")} })
	b.topic("orders", "")
	endpoint := func(url string) string { return fmt.Sprintf(`{"endpointUrl":%q}`, url) }
	with := func(members string) string { return `{"endpointUrl":"https://example.com",` + members + `}` }
	for name, row := range map[string]struct {
		body    string
		targets []string
	}{
		"nothing":                     {"", []string{"endpointUrl"}},
		"an empty object":             {"{}", []string{"endpointUrl"}},
		"a cloud's metadata service":  {endpoint("http://169.254.169.254"), []string{"endpointUrl"}},
		"a private address":           {endpoint("http://10.0.0.1"), []string{"endpointUrl"}},
		"this machine":                {endpoint("http://127.0.0.1:8080/"), []string{"endpointUrl"}},
		"this machine by name":        {endpoint("http://localhost:8080/"), []string{"endpointUrl"}},
		"this machine in IPv6":        {endpoint("http://[::1]/"), []string{"endpointUrl"}},
		"an address in disguise":      {endpoint("http://0x7f000001/"), []string{"endpointUrl"}},
		"another scheme":              {endpoint("ftp://example.com/?sig=secret"), []string{"endpointUrl"}},
		"credentials in the URL":      {endpoint("https://me:secret@example.com/"), []string{"endpointUrl"}},
		"an unknown kind of endpoint": {with(`"endpointKind":"queue"`), []string{"endpointKind"}},
		"an unknown delivery schema": {
			with(`"eventDeliverySchema":"CustomInputSchema"`), []string{"eventDeliverySchema"},
		},
		"an unknown policy": {with(`"retryPolicy":{"policy":"ga-2020"}`), []string{"retryPolicy.policy"}},
		"an empty policy":   {with(`"retryPolicy":{"policy":""}`), []string{"retryPolicy.policy"}},
		"no attempts": {
			with(`"retryPolicy":{"maxDeliveryAttempts":0}`), []string{"retryPolicy.maxDeliveryAttempts"},
		},
		"31 attempts": {
			with(`"retryPolicy":{"maxDeliveryAttempts":31}`), []string{"retryPolicy.maxDeliveryAttempts"},
		},
		"half an attempt": {
			with(`"retryPolicy":{"maxDeliveryAttempts":0.5}`), []string{"retryPolicy.maxDeliveryAttempts"},
		},
		"attempts as text": {
			with(`"retryPolicy":{"maxDeliveryAttempts":"5"}`), []string{"retryPolicy.maxDeliveryAttempts"},
		},
		"1441 minutes": {
			with(`"retryPolicy":{"eventTimeToLiveInMinutes":1441}`), []string{"retryPolicy.eventTimeToLiveInMinutes"},
		},
		"both limits": {
			with(`"retryPolicy":{"maxDeliveryAttempts":0,"eventTimeToLiveInMinutes":0}`),
			[]string{"retryPolicy.maxDeliveryAttempts", "retryPolicy.eventTimeToLiveInMinutes"},
		},
		"namespace-2023 without CloudEvents": {
			with(`"retryPolicy":{"policy":"namespace-2023"}`), []string{"eventDeliverySchema"},
		},
		"an empty event type": {
			with(`"filter":{"includedEventTypes":["a",""]}`), []string{"filter.includedEventTypes[1]"},
		},
		"a filter that cannot be stored": {
			with(`"filter":{"subjectBeginsWith":"\u0000"}`), []string{"filter.subjectBeginsWith"},
		},
		"a word wrong in an advanced filter": {
			with(`"filter":{"advancedFilters":[{"operatorType":"IsNotNull","kye":"id"}]}`),
			[]string{"filter.advancedFilters[0].kye"},
		},
		"an unknown dead-letter destination": {
			with(`"deadLetterDestination":{"endpointType":"EventHub"}`), []string{"deadLetterDestination.endpointType"},
		},
		"a dead-letter destination without one": {
			with(`"deadLetterDestination":{}`), []string{"deadLetterDestination.endpointType"},
		},
		"a setting that only can be read": {with(`"provisioningState":"Succeeded"`), []string{"provisioningState"}},
		"unknown members at two depths": {
			with(`"retryPolice":{},"retryPolicy":{"attempts":1}`), []string{"retryPolice", "retryPolicy.attempts"},
		},
		"filter not an object":    {with(`"filter":"all"`), []string{"filter"}},
		"no events in a batch":    {with(`"maxEventsPerBatch":0`), []string{"maxEventsPerBatch"}},
		"5,001 events in a batch": {with(`"maxEventsPerBatch":5001`), []string{"maxEventsPerBatch"}},
		"a batch of 0 KB": {
			with(`"preferredBatchSizeInKilobytes":0`), []string{"preferredBatchSizeInKilobytes"},
		},
		"a batch of 1,025 KB": {
			with(`"preferredBatchSizeInKilobytes":1025`), []string{"preferredBatchSizeInKilobytes"},
		},
		"a batch wrong both ways": {
			with(`"maxEventsPerBatch":-1,"preferredBatchSizeInKilobytes":1025`),
			[]string{"maxEventsPerBatch", "preferredBatchSizeInKilobytes"},
		},
		"a batch of text":      {with(`"maxEventsPerBatch":"10"`), []string{"maxEventsPerBatch"}},
		"no request in flight": {with(`"maxConcurrentDeliveries":0`), []string{"maxConcurrentDeliveries"}},
		"an unknown behavior":  {with(`"behavior":"strict"`), []string{"behavior"}},
		"an unknown action":    {with(`"probationAction":"drop"`), []string{"probationAction"}},
		"a behavior and an action": {
			with(`"behavior":"","probationAction":""`), []string{"behavior", "probationAction"},
		},
		"Retry-After as text": {with(`"honorRetryAfter":"yes"`), []string{"honorRetryAfter"}},
		"101 labels": {
			with(`"labels":["a"` + strings.Repeat(`,"a"`, 100) + `]`), []string{"labels"},
		},
		"an empty label and one of null": {with(`"labels":["a","",null]`), []string{"labels[1]", "labels[2]"}},
		"a label of 257 characters": {
			with(`"labels":["` + strings.Repeat("é", 257) + `"]`), []string{"labels[0]"},
		},
		"a label that cannot be stored": {with(`"labels":["\u0000"]`), []string{"labels[0]"}},
		"labels that are none":          {with(`"labels":{"a":"b"}`), []string{"labels"}},
		"expired long ago": {
			with(`"expirationTimeUtc":"2020-01-01T00:00:00Z"`), []string{"expirationTimeUtc"},
		},
		"expired just now": {
			with(`"expirationTimeUtc":"` + time.Now().Add(-time.Second).Format(time.RFC3339) + `"`),
			[]string{"expirationTimeUtc"},
		},
		"no time":       {with(`"expirationTimeUtc":"soon"`), []string{"expirationTimeUtc"}},
		"an empty time": {with(`"expirationTimeUtc":""`), []string{"expirationTimeUtc"}},
		"a time without a zone": {
			with(`"expirationTimeUtc":"2099-01-01T00:00:00"`), []string{"expirationTimeUtc"},
		},
		"a day":                   {with(`"expirationTimeUtc":"2099-01-01"`), []string{"expirationTimeUtc"}},
		"a time that is a number": {with(`"expirationTimeUtc":4070908800`), []string{"expirationTimeUtc"}},
		"limits by their namespace names": {
			with(`"retryPolicy":{"maxDeliveryCount":5,"eventTimeToLive":"P1D"}`),
			[]string{"retryPolicy.maxDeliveryCount", "retryPolicy.eventTimeToLive"},
		},
		"more requests than can be counted": {
			with(`"maxConcurrentDeliveries":2147483648`), []string{"maxConcurrentDeliveries"},
		},
		"batches in 2019": {
			with(`"maxEventsPerBatch":2,"retryPolicy":{"policy":"ga-2019"}`), []string{"maxEventsPerBatch"},
		},
		"batches in 2018, by size alone": {
			with(`"preferredBatchSizeInKilobytes":64,"retryPolicy":{"policy":"ga-2018"}`),
			[]string{"preferredBatchSizeInKilobytes"},
		},
		"batches in 2017, and a size too large": {
			with(`"maxEventsPerBatch":10,"preferredBatchSizeInKilobytes":2000,"retryPolicy":{"policy":"preview-2017"}`),
			[]string{"maxEventsPerBatch", "preferredBatchSizeInKilobytes"},
		},
		"all at once": {
			`{"endpointUrl":"http://10.0.0.1","endpointKind":"x","eventDeliverySchema":"x","retryPolicy":{"policy":"x"},` +
				`"filter":{"includedEventTypes":[""]},"deadLetterDestination":{"endpointType":"x"},"maxConcurrentDeliveries":-1}`,
			[]string{
				"endpointUrl", "filter.includedEventTypes[0]", "retryPolicy.policy", "eventDeliverySchema", "endpointKind",
				"maxConcurrentDeliveries", "deadLetterDestination.endpointType",
			},
		},
	} {
		response := b.manage(http.MethodPut, "/v1/topics/orders/subscriptions/billing", row.body)
		rejection := response.rejected(400, "InvalidRequest")
		require.Equal(t, row.targets, targets(rejection), "%s: %s", name, response.body)
		require.Equal(t, rejection.Details[0].Message, rejection.Message, name)
		require.Contains(t, rejection.Message, row.targets[0], name)
		require.NotContains(t, response.body, "secret", name)
	}
	require.Contains(t,
		b.manage(http.MethodPut, "/v1/topics/orders/subscriptions/billing", with(`"retryPolicy":{"policy":"x"}`)).body,
		"preview-2017, ga-2018, ga-2019, ga-2021, namespace-2023", "the known names are listed")
	for _, rate := range []string{`{}`, `{"burst":5}`, `{"limit":null,"scope":"endpoint"}`} {
		rejection := b.manage(http.MethodPut, "/v1/topics/orders/subscriptions/billing", with(`"deliveryRate":`+rate)).
			rejected(400, "InvalidRequest")
		require.Equal(t, "deliveryRate.limit must be 1 to 100000; without deliveryRate there is no limit",
			rejection.Message)
	}
	require.Equal(t, []string{"subscription", "endpointUrl"},
		targets(b.manage(http.MethodPut, "/v1/topics/orders/subscriptions/x", "{}").rejected(400, "InvalidRequest")))
	require.Zero(t, b.count("SELECT count(*) FROM postrider.event_subscriptions"))
	b.subscription("orders", "allowed", endpoint("http://192.168.1.1:9000/in"))
}

func TestBatchesAndRequestsInFlight(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.topic("orders", "")
	const path = "/v1/topics/orders/subscriptions/billing"
	b.subscription("orders", "billing", `{"endpointUrl":"https://example.com"}`)
	for _, row := range []struct {
		name, members                  string
		events, kilobytes, concurrents any
		stored                         string
	}{
		{
			"all of them", `"maxEventsPerBatch":5000,"preferredBatchSizeInKilobytes":1024,"maxConcurrentDeliveries":2147483647`,
			5000.0, 1024.0, 2147483647.0, "5000 1024 2147483647",
		},
		{"left out again", `"endpointKind":"webhook"`, 1.0, 64.0, nil, "null null null"},
		{"only a number of events", `"maxEventsPerBatch":2`, 2.0, 64.0, nil, "2 null null"},
		{"only a size", `"preferredBatchSizeInKilobytes":1`, 10.0, 1.0, nil, "null 1 null"},
		{
			"null", `"maxEventsPerBatch":null,"preferredBatchSizeInKilobytes":null,"maxConcurrentDeliveries":null`, 1.0, 64.0,
			nil, "null null null",
		},
		{"only requests in flight", `"maxConcurrentDeliveries":1`, 1.0, 64.0, 1.0, "null null 1"},
		{
			"batches of one in 2019",
			`"maxEventsPerBatch":1,"preferredBatchSizeInKilobytes":256,"retryPolicy":{"policy":"ga-2019"}`, 1.0, 256.0, nil,
			"1 256 null",
		},
	} {
		put := b.manage(http.MethodPut, path, `{"endpointUrl":"https://example.com",`+row.members+`}`).json(http.StatusOK)
		require.Equal(t, []any{row.events, row.kilobytes, row.concurrents},
			[]any{put["maxEventsPerBatch"], put["preferredBatchSizeInKilobytes"], put["maxConcurrentDeliveries"]}, row.name)
		require.Equal(t, put, b.manage(http.MethodGet, path, "").json(http.StatusOK), row.name)
		stored := b.rows(`SELECT concat_ws(' ', coalesce(settings ->> 'maxEventsPerBatch', 'null'),
			coalesce(settings ->> 'preferredBatchSizeInKilobytes', 'null'),
			coalesce(settings ->> 'maxConcurrentDeliveries', 'null')) AS settings FROM postrider_internal.event_subscriptions`)
		require.Equal(t, row.stored, stored[0]["settings"], row.name)
	}
	for members, says := range map[string]string{
		`"maxEventsPerBatch":5001`: "maxEventsPerBatch must be between 1 and 5000, " +
			"not 5001",
		`"preferredBatchSizeInKilobytes":0`: "preferredBatchSizeInKilobytes must be between 1 " +
			"and 1024, not 0",
		`"maxConcurrentDeliveries":0`: "maxConcurrentDeliveries must be between 1 and " +
			"2147483647, not 0",
		`"maxEventsPerBatch":2,"retryPolicy":{"policy":"preview-2017"}`: "maxEventsPerBatch must be 1 or absent under " +
			"retry policy preview-2017, which delivers each event separately",
	} {
		require.Equal(t, says, b.manage(http.MethodPut, path, `{"endpointUrl":"https://example.com",`+members+`}`).
			rejected(400, "InvalidRequest").Message)
	}
}

func TestPaging(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var topics, subs []string
	for i := range 7 {
		topics = append(topics, fmt.Sprintf("topic-%d", i))
		b.topic(topics[i], "")
		subs = append(subs, fmt.Sprintf("sub-%d", i))
		b.subscription("topic-0", subs[i], `{"endpointUrl":"https://example.com"}`)
	}
	walk := func(path string) (names []string, pages int) {
		for next := any(path); next != nil; pages++ {
			page := b.manage(http.MethodGet, next.(string), "").json(http.StatusOK)
			for _, item := range page["value"].([]any) {
				names = append(names, item.(map[string]any)["name"].(string))
			}
			var given bool
			next, given = page["nextLink"]
			require.True(t, given, "nextLink is there on the last page too")
		}
		return names, pages
	}
	for path, want := range map[string][]string{"/v1/topics": topics, "/v1/topics/topic-0/subscriptions": subs} {
		for limit, wantPages := range map[int]int{1: 7, 2: 4, 3: 3, 7: 1, 1000: 1} {
			names, pages := walk(fmt.Sprintf("%s?limit=%d", path, limit))
			require.Equal(t, want, names, "limit %d", limit)
			require.Equal(t, wantPages, pages, "limit %d", limit)
		}
		names, _ := walk(path)
		require.Equal(t, want, names)
		for query, target := range map[string]string{
			"?limit=0": "limit", "?limit=1001": "limit", "?limit=-1": "limit", "?cursor=*": "cursor", "?cursor=AA": "cursor",
			"?cursor=_w": "cursor",
		} {
			require.Equal(t, []string{target},
				targets(b.manage(http.MethodGet, path+query, "").rejected(400, "InvalidRequest")), query)
		}
		rejection := b.manage(http.MethodGet, path+"?limit=many", "").rejected(400, "InvalidRequest")
		require.Equal(t, `limit must be an integer between 1 and 1000, not "many"`, rejection.Message)
	}
	require.Empty(t, b.manage(http.MethodGet, "/v1/topics/topic-1/subscriptions", "").json(http.StatusOK)["value"])
}
