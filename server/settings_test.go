package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
)

// settingsOf are the settings that behavior decides.
func settingsOf(shown map[string]any) string {
	destination := shown["deadLetterDestination"].(map[string]any)["endpointType"]
	return fmt.Sprint(shown["behavior"], " ", shown["honorRetryAfter"], " ", shown["probationAction"], " ",
		shown["retryTransportErrors"], " ", destination)
}

// The API and the view show the same. policy.TestResolve has every policy.
func TestBehavior(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.topic("orders", `{"inputSchema":"CloudEventSchemaV1_0"}`)
	s.put("/v1/policies/literal", `{"honorRetryAfter":true,"deadLetterDefault":"rows",`+
		`"retryTransportErrors":false,"probation":{"action":"documented"}}`).json(201)
	const (
		each = `,"honorRetryAfter":false,"probationAction":"documented","retryTransportErrors":true,` +
			`"deadLetterDestination":{"endpointType":"None"}`
		others = `,"behavior":"documented","honorRetryAfter":true,"probationAction":"hold","retryTransportErrors":false,` +
			`"deadLetterDestination":{"endpointType":"Rows"}`
	)
	for _, row := range []struct{ policy, settings, want string }{
		{"ga-2021", "", "safe true hold true Rows"},
		{"ga-2021", `,"behavior":"documented"`, "documented false hold true None"},
		{"namespace-2023", `,"behavior":"documented"`, "documented false documented false None"},
		{"literal", `,"behavior":null,"honorRetryAfter":null,"probationAction":null`, "safe true hold true Rows"},
		{"literal", `,"behavior":"documented"`, "documented true documented false Rows"},
		{"literal", each, "safe false documented true None"},
		{"ga-2019", others, "documented true hold false Rows"},
	} {
		body := `{"endpointUrl":"https://example.com","retryPolicy":{"policy":"` + row.policy + `"}` + row.settings + `}`
		response := s.put(billing, body)
		require.Less(t, response.status, 300, response.body)
		require.Equal(t, row.want, settingsOf(response.json(response.status)), body)
		view := s.rows(`SELECT concat_ws(' ', behavior, honor_retry_after::text, probation_action,
			    retry_transport_errors::text, dead_letter_destination ->> 'endpointType') AS shown
			FROM postrider.event_subscriptions`)
		require.Equal(t, row.want, view[0]["shown"], body)
		require.Equal(t, row.want, settingsOf(s.get(billing).json(200)))
	}
}

// A patch keeps all settings that it does not have, such as the query string of the endpoint and defaults.
func TestPatchKeepsWhatItDoesNotName(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.topic("orders", "")
	spec := func() catalog.SubscriptionSpec {
		sub, err := s.store.Subscriptions.Get(t.Context(), "orders", "billing")
		require.NoError(t, err)
		return sub.SubscriptionSpec
	}
	s.subscription("orders", "billing", `{"endpointUrl":"https://example.com/in?code=secret&x=%3C"}`)
	plain := spec()
	require.NotContains(t, s.patch(billing, `{}`).body, "code=")
	require.Equal(t, plain, spec(), "nothing named")
	s.patch(billing, `{"labels":["a"],"retryPolicy":{"maxDeliveryAttempts":3}}`).json(200)
	want := plain
	want.Labels, want.RetryPolicy.MaxDeliveryAttempts = []string{"a"}, new(3)
	require.Equal(t, want, spec())
	require.Nil(t, want.RetryPolicy.EventTimeToLiveInMinutes, "still the policy's default")
	s.patch(billing, `{"labels":null,"retryPolicy":null}`).json(200)
	require.Equal(t, plain, spec(), "the defaults again")

	s.put(billing, `{"endpointUrl":"https://example.com/in?code=secret",`+
		`"endpointKind":"azure-resource","eventDeliverySchema":"CloudEventSchemaV1_0",
		"retryPolicy":{"policy":"ga-2021","maxDeliveryAttempts":5,"eventTimeToLiveInMinutes":10},`+
		`"deadLetterDestination":{"endpointType":"None"},
		"filter":{"includedEventTypes":["a","<b>"],"subjectBeginsWith":"x","subjectEndsWith":"y",`+
		`"isSubjectCaseSensitive":true,"enableAdvancedFilteringOnArrays":true,
			"advancedFilters":[{"operatorType":"NumberIn","key":"data.n","values":[12345678901234567890.50, 1e3]},`+
		`{"operatorType":"StringContains","key":"subject","values":["<&>"]}]},
		"maxEventsPerBatch":7,"preferredBatchSizeInKilobytes":8,"maxConcurrentDeliveries":9,"behavior":"documented",`+
		`"honorRetryAfter":true,
		"probationAction":"documented","retryTransportErrors":false,"labels":["a","b"],`+
		`"expirationTimeUtc":"2099-01-02T03:04:05.678+01:00"}`).json(200)
	full := spec()
	for _, patch := range []string{
		`{}`, ``, `{"retryPolicy":{},"filter":{}}`, `{"retryPolicy":{"maxDeliveryAttempts":5}}`,
	} {
		s.patch(billing, patch).json(200)
		requireSameSpec(t, full, spec())
	}
	shown := s.patch(billing, `{"filter":{"subjectBeginsWith":null,"advancedFilters":[]},`+
		`"retryPolicy":{"eventTimeToLiveInMinutes":null},"endpointUrl":"https://example.org/?code=other"}`).
		json(200)
	require.Equal(t, []any{"", "y", []any{}},
		[]any{
			shown["filter"].(map[string]any)["subjectBeginsWith"], shown["filter"].(map[string]any)["subjectEndsWith"],
			shown["filter"].(map[string]any)["advancedFilters"],
		})
	require.Equal(t, map[string]any{"policy": "ga-2021", "maxDeliveryAttempts": 5.0, "eventTimeToLiveInMinutes": 1440.0},
		shown["retryPolicy"])
	require.Equal(t, "https://example.org/?code=other", spec().EndpointURL)
}

// requireSameSpec compares as JSON: spaces do not count.
func requireSameSpec(t *testing.T, want, got catalog.SubscriptionSpec) {
	t.Helper()
	x, err := json.Marshal(want)
	require.NoError(t, err)
	y, err := json.Marshal(got)
	require.NoError(t, err)
	require.Equal(t, string(x), string(y))
}

func TestPatchRejections(t *testing.T) {
	t.Parallel()
	s, _ := withBilling(t)
	before := s.get(billing).body
	for body, want := range map[string]string{ // the targets
		`{"lables":["a"]}`:                  "lables",
		`{"retryPolicy":{"attempts":null}}`: "retryPolicy.attempts",
		`{"labels":["a"],"labels":null}`:    "labels",
		`{"labels":"a"}`:                    "labels",
		`{"provisioningState":"Succeeded"}`: "provisioningState",
		`{"endpointUrl":null}`:              "endpointUrl",
		`{"endpointUrl":"http://10.0.0.1","retryPolicy":{"maxDeliveryAttempts":31},"labels":[""]}`: "endpointUrl " +
			"retryPolicy.maxDeliveryAttempts labels[0]",
		`{"retryPolicy":{"policy":"namespace-2023"}}`:     "eventDeliverySchema", // that was there before
		`{"retryPolicy":{"eventTimeToLive":"PT5M"}}`:      "retryPolicy.eventTimeToLive",
		`{"deadLetterDestination":{"endpointType":null}}`: "deadLetterDestination.endpointType",
		`[{"op":"remove","path":"/labels"}]`:              "",
		`null`:                                            "",
		`{"labels":`:                                      "",
	} {
		rejection := s.patch(billing, body).rejected(400, "InvalidRequest")
		require.Equal(t, want, strings.Join(targets(rejection), " "), body)
	}
	for _, path := range []string{"orders/subscriptions/nothing", "nothing/subscriptions/x", "%00/subscriptions/x"} {
		s.patch("/v1/topics/"+path, `{}`).rejected(404, "NotFound")
	}
	send := func(method, media, body string) response {
		return s.send(method, billing, body, "Authorization", "Bearer "+adminToken, "Content-Type", media)
	}
	send(http.MethodPatch, "application/json-patch+json", `{}`).rejected(415, "UnsupportedMediaType")
	send(http.MethodPut, "application/merge-patch+json", `{"endpointUrl":"https://example.com"}`).
		rejected(415, "UnsupportedMediaType")
	require.Equal(t, before, s.get(billing).body, "nothing was changed")
	for _, media := range []string{
		"application/json", "application/merge-patch+json", "application/merge-patch+json; charset=utf-8",
	} {
		send(http.MethodPatch, media, `{"labels":["`+media+`"]}`).json(200)
	}
}

// Concurrent patches all take effect: none is based on settings that another one has changed.
func TestPatchesTogether(t *testing.T) {
	t.Parallel()
	s, _ := withBilling(t)
	patches := map[string]any{
		"honorRetryAfter": false, "retryTransportErrors": false, "probationAction": "documented", "behavior": "documented",
		"maxConcurrentDeliveries": 3.0,
		"maxEventsPerBatch":       4.0, "preferredBatchSizeInKilobytes": 5.0, "labels": []any{"a"},
		"endpointKind": "azure-resource", "eventDeliverySchema": "CloudEventSchemaV1_0",
	}
	var group sync.WaitGroup
	for member, value := range patches {
		group.Go(func() {
			body, _ := json.Marshal(map[string]any{member: value})
			if response := s.patch(billing, string(body)); response.status != http.StatusOK {
				t.Errorf("%s: %s", body, response.body)
			}
		})
	}
	group.Wait()
	shown := s.get(billing).json(200)
	for member, value := range patches {
		require.Equal(t, value, shown[member], member)
	}
	etag := shown["etag"].(string)
	var changed, late int
	var lock sync.Mutex
	for range 8 {
		group.Go(func() {
			response := s.send(http.MethodPatch, billing, `{"labels":null}`, "Authorization", "Bearer "+adminToken,
				"If-Match", etag)
			lock.Lock()
			defer lock.Unlock()
			switch response.status {
			case http.StatusOK:
				changed++
			case http.StatusPreconditionFailed:
				late++
			}
		})
	}
	group.Wait()
	require.Equal(t, []int{1, 7}, []int{changed, late}, "of those that name a version one succeeds")
}

func TestNamespaceLimits(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.topic("shop", `{"kind":"namespace","eventRetentionInDays":3}`)
	const topic, path = "/v1/topics/shop", "/v1/topics/shop/subscriptions/billing"
	require.InDelta(t, 3, s.get(topic).json(200)["eventRetentionInDays"], 0)
	put := func(limits string) response {
		return s.put(path, `{"endpointUrl":"https://example.com","retryPolicy":`+limits+`}`)
	}
	limits := func(a response) map[string]any {
		require.Contains(t, []int{200, 201}, a.status, a.body)
		return a.json(a.status)["retryPolicy"].(map[string]any)
	}
	shown := func(attempts, minutes int, ttl string) map[string]any {
		return map[string]any{
			"policy": "namespace-2023", "maxDeliveryAttempts": float64(attempts), "maxDeliveryCount": float64(attempts),
			"eventTimeToLiveInMinutes": float64(minutes), "eventTimeToLive": ttl,
		}
	}
	require.Equal(t, shown(10, 3*1440, "P3D"), limits(put("null")),
		"the topic's retention ends it sooner than the policy's 7 days")
	// parseMinutes of server/v1 has the forms.
	for given, shownAs := range map[string]string{"PT90M": "PT1H30M", "PT72H": "P3D", "PT60S": "PT1M"} {
		got := limits(put(`{"eventTimeToLive":"` + given + `","maxDeliveryCount":4}`))
		minutes := int(got["eventTimeToLiveInMinutes"].(float64))
		require.Equal(t, shown(4, minutes, shownAs), got, given)
		byNumbers := fmt.Sprintf(`{"eventTimeToLiveInMinutes":%d,"maxDeliveryAttempts":4}`, minutes)
		require.Equal(t, got, limits(put(byNumbers)), "the other names")
	}
	const ttl, count = "retryPolicy.eventTimeToLive", "retryPolicy.maxDeliveryCount"
	for body, says := range map[string]string{
		`{"eventTimeToLive":"PT0M"}`:   ttl + " must be between PT1M and P7D under retry policy namespace-2023, not PT0M",
		`{"eventTimeToLive":"PT90S"}`:  ttl + ` must be whole minutes: its seconds must be a multiple of 60, not "PT90S"`,
		`{"eventTimeToLive":"P8D"}`:    ttl + " must be between PT1M and P7D",
		`{"eventTimeToLive":"P3DT1M"}`: ttl + " must be no longer than the topic's eventRetentionInDays, which is 3",
		`{"eventTimeToLiveInMinutes":4321}`: ttl + "InMinutes must be no longer than the topic's eventRetentionInDays, " +
			"which is 3",
		`{"eventTimeToLiveInMinutes":0}`: ttl + "InMinutes must be between 1 and 10080 minutes",
		`{"maxDeliveryCount":0}`: count + " must be between 1 and 10 under retry " +
			"policy namespace-2023, not 0",
		`{"maxDeliveryAttempts":11}`: "retryPolicy.maxDeliveryAttempts must be between " +
			"1 and 10",
		`{"maxDeliveryCount":1,"maxDeliveryAttempts":1}`:              count + " must be absent with maxDeliveryAttempts",
		`{"eventTimeToLive":"P1D","eventTimeToLiveInMinutes":1440}`:   ttl + " must be absent with eventTimeToLiveInMinutes",
		`{"eventTimeToLive":"P1Y","maxDeliveryCount":0,"policy":"x"}`: ttl + " must be an ISO 8601 duration",
	} {
		require.Contains(t, put(body).rejected(400, "InvalidRequest").Message, says, body)
	}

	patch := func(body string) map[string]any { return limits(s.patch(path, body)) }
	limits(put(`{"eventTimeToLiveInMinutes":4320,"maxDeliveryAttempts":2}`))
	require.Equal(t, shown(5, 2880, "P2D"), patch(`{"retryPolicy":{"eventTimeToLive":"P2D","maxDeliveryCount":5}}`),
		"a patch may take either name")
	require.Equal(t, shown(10, 2880, "P2D"), patch(`{"retryPolicy":{"maxDeliveryCount":null}}`))
	s.put(topic, `{"kind":"namespace","eventRetentionInDays":1}`).json(200)
	require.Equal(t, shown(10, 1440, "P1D"), limits(s.get(path)), "a shorter retention holds at once")
	require.Equal(t, 1,
		s.count("SELECT count(*) FROM postrider.event_subscriptions WHERE event_time_to_live_in_minutes = 1440"))
	require.Equal(t, 1, s.count("SELECT count(*) FROM postrider.topics WHERE event_retention_in_days = 1"))
	sub, err := s.store.Subscriptions.Get(t.Context(), "shop", "billing")
	require.NoError(t, err)
	rules, known := s.store.Cache.Snapshot().Rules(sub.ID)
	require.True(t, known)
	require.Equal(t, 24*time.Hour, rules.Limits.TTL, "the engine's")
	require.InDelta(t, 7, s.put(topic, `{"kind":"namespace"}`).json(200)["eventRetentionInDays"], 0,
		"left out, it takes its default")
	require.Equal(t, shown(10, 2880, "P2D"), limits(s.get(path)))
	s.put(topic, `{"eventRetentionInDays":1}`).rejected(400, "InvalidRequest")
	s.put(topic, `{}`).rejected(409, "TopicExists")
}

// The views read settings as jsonb, which holds no U+0000 and no number of that size: one event subscription must not
// make them unreadable.
func TestSettingsThatNoViewCanShowAreRejected(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.topic("orders", "")
	for _, setting := range []string{
		`"filter":{"subjectBeginsWith":"a\u0000"}`, `"filter":{"includedEventTypes":["a\u0000"]}`, `"labels":["a\u0000"]`,
		`"certificateAuthorities":"\u0000-----BEGIN CERTIFICATE-----"`, `"retryPolicy":{"policy":"\u0000"}`,
		`"filter":{"advancedFilters":[{"key":"data.n","operatorType":"NumberIn","values":[1e200000]}]}`,
		`"filter":{"advancedFilters":[{"key":"data.n","operatorType":"StringIn","values":["\u0000"]}]}`,
		`"filter":{"advancedFilters":[{"key":"data.\u0000","operatorType":"IsNotNull"}]}`,
		`"filter":{"advancedFilters":[{"key":"data.n","operatorType":"NumberIn","values":[0e-20000]}]}`,
		`"filter":{"advancedFilters":[{"key":"data.n","operatorType":"NumberIn","values":[1.` + strings.Repeat("0", 17_000) +
			`]}]}`,
		`"deadLetterDestination":{"endpointType":"Blob","properties":{"url":"\u0000"}}`,
		`"oauth2":{"tokenUrl":"https://example.com/","clientId":"a","clientSecret":"b","scope":"\u0000"}`,
	} {
		response := s.put(billing, `{"endpointUrl":"https://example.com",`+setting+`}`)
		require.Equal(t, http.StatusBadRequest, response.status, "%s: %s", setting, response.body)
	}
	require.Empty(t, s.rows("SELECT topic FROM postrider.event_subscriptions"))
}
