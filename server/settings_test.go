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

// The API, the view and the engine have the same settings under every policy.
func TestBehavior(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.topic("orders", `{"inputSchema":"CloudEventSchemaV1_0"}`)
	put := func(members string) string {
		body := `{"endpointUrl":"https://example.com"` + members + `}`
		response := b.manage(http.MethodPut, "/v1/topics/orders/subscriptions/billing", body)
		require.Contains(t, []int{200, 201}, response.status, response.body)
		shown := settingsOf(response.json(response.status))
		view := b.rows(`SELECT concat_ws(' ', behavior, honor_retry_after::text, probation_action,
			    retry_transport_errors::text, dead_letter_destination ->> 'endpointType') AS shown
			FROM postrider.event_subscriptions`)
		require.Equal(t, shown, view[0]["shown"], body)
		require.Equal(t, shown, settingsOf(b.manage(http.MethodGet, "/v1/topics/orders/subscriptions/billing", "").json(200)))
		return shown
	}
	b.manage(http.MethodPut, "/v1/policies/literal", `{"honorRetryAfter":true,"deadLetterDefault":"rows",`+
		`"retryTransportErrors":false,"probation":{"action":"documented"}}`).json(201)
	for _, row := range []struct{ policy, safe, documented string }{
		{"preview-2017", "safe true hold true Rows", "documented false hold true None"},
		{"ga-2018", "safe true hold true Rows", "documented false hold true None"},
		{"ga-2019", "safe true hold true Rows", "documented false hold true None"},
		{"ga-2021", "safe true hold true Rows", "documented false hold true None"},
		{"namespace-2023", "safe true hold true Rows", "documented false documented false None"},
		{"literal", "safe true hold true Rows", "documented true documented false Rows"},
	} {
		under := `,"retryPolicy":{"policy":"` + row.policy + `"}`
		require.Equal(t, row.safe, put(under), row.policy)
		require.Equal(t, row.safe,
			put(under+`,"behavior":null,"honorRetryAfter":null,"probationAction":null,"retryTransportErrors":null`), row.policy)
		require.Equal(t, row.documented, put(under+`,"behavior":"documented"`), row.policy)
		const set = `,"honorRetryAfter":false,"probationAction":"documented","retryTransportErrors":true,` +
			`"deadLetterDestination":{"endpointType":"None"}`
		require.Equal(t, "safe false documented true None", put(under+set), "each by itself")
		const other = `,"behavior":"documented","honorRetryAfter":true,"probationAction":"hold",` +
			`"retryTransportErrors":false,"deadLetterDestination":{"endpointType":"Rows"}`
		require.Equal(t, "documented true hold false Rows", put(under+other), "each by itself")
	}
}

// A patch keeps all settings that it does not have, such as the query string of the endpoint and defaults.
func TestPatchKeepsWhatItDoesNotName(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.topic("orders", "")
	spec := func() catalog.SubscriptionSpec {
		sub, err := b.store.Subscriptions.Get(t.Context(), "orders", "billing")
		require.NoError(t, err)
		return sub.SubscriptionSpec
	}
	b.subscription("orders", "billing", `{"endpointUrl":"https://example.com/in?code=secret&x=%3C"}`)
	plain := spec()
	require.NotContains(t, b.manage(http.MethodPatch, billing, `{}`).body, "code=")
	require.Equal(t, plain, spec(), "nothing named")
	b.manage(http.MethodPatch, billing, `{"labels":["a"],"retryPolicy":{"maxDeliveryAttempts":3}}`).json(http.StatusOK)
	want := plain
	want.Labels, want.RetryPolicy.MaxDeliveryAttempts = []string{"a"}, new(3)
	require.Equal(t, want, spec())
	require.Nil(t, want.RetryPolicy.EventTimeToLiveInMinutes, "still the policy's default")
	b.manage(http.MethodPatch, billing, `{"labels":null,"retryPolicy":null}`).json(http.StatusOK)
	require.Equal(t, plain, spec(), "the defaults again")

	b.manage(http.MethodPut, billing, `{"endpointUrl":"https://example.com/in?code=secret",`+
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
		`"expirationTimeUtc":"2099-01-02T03:04:05.678+01:00"}`).json(http.StatusOK)
	full := spec()
	for _, patch := range []string{
		`{}`, ``, `{"retryPolicy":{},"filter":{}}`, `{"retryPolicy":{"maxDeliveryAttempts":5}}`,
	} {
		b.manage(http.MethodPatch, billing, patch).json(http.StatusOK)
		requireSameSpec(t, full, spec())
	}
	shown := b.manage(http.MethodPatch, billing, `{"filter":{"subjectBeginsWith":null,"advancedFilters":[]},`+
		`"retryPolicy":{"eventTimeToLiveInMinutes":null},"endpointUrl":"https://example.org/?code=other"}`).
		json(http.StatusOK)
	require.Equal(t, []any{"", "y", []any{}},
		[]any{
			shown["filter"].(map[string]any)["subjectBeginsWith"], shown["filter"].(map[string]any)["subjectEndsWith"],
			shown["filter"].(map[string]any)["advancedFilters"],
		})
	require.Equal(t, map[string]any{"policy": "ga-2021", "maxDeliveryAttempts": 5.0, "eventTimeToLiveInMinutes": 1440.0},
		shown["retryPolicy"])
	require.Equal(t, "https://example.org/?code=other", spec().EndpointURL)
}

// A patch keeps the secrets that deliveries are signed with, and null of signing deletes them.
func TestPatchKeepsSigningSecrets(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.topic("orders", "")
	b.subscription("orders", "billing", `{"endpointUrl":"https://example.com/in","signing":{"enabled":true}}`)
	secrets := func() []any {
		return b.manage(http.MethodPost, billing+"/getSigningSecrets", "").json(http.StatusOK)["value"].([]any)
	}
	before := secrets()
	require.Len(t, before, 1)
	b.manage(http.MethodPatch, billing, `{"labels":["a"]}`).json(http.StatusOK)
	require.Equal(t, before, secrets())
	b.manage(http.MethodPatch, billing, `{"signing":null}`).json(http.StatusOK)
	require.Empty(t, secrets())
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
	b, _ := withBilling(t)
	before := b.manage(http.MethodGet, billing, "").body
	for name, row := range map[string]struct {
		body    string
		targets []string
	}{
		"an unknown member":         {`{"lables":["a"]}`, []string{"lables"}},
		"an unknown member of null": {`{"retryPolicy":{"attempts":null}}`, []string{"retryPolicy.attempts"}},
		"a member twice":            {`{"labels":["a"],"labels":null}`, []string{"labels"}},
		"a wrong kind":              {`{"labels":"a"}`, []string{"labels"}},
		"what only can be read":     {`{"provisioningState":"Succeeded"}`, []string{"provisioningState"}},
		"no endpoint":               {`{"endpointUrl":null}`, []string{"endpointUrl"}},
		"validated like a put": {
			`{"endpointUrl":"http://10.0.0.1","retryPolicy":{"maxDeliveryAttempts":31},"labels":[""]}`,
			[]string{"endpointUrl", "retryPolicy.maxDeliveryAttempts", "labels[0]"},
		},
		"with what was there before": {`{"retryPolicy":{"policy":"namespace-2023"}}`, []string{"eventDeliverySchema"}},
		"the namespace's names": {
			`{"retryPolicy":{"eventTimeToLive":"PT5M"}}`, []string{"retryPolicy.eventTimeToLive"},
		},
		"an array":                   {`[]`, []string{}},
		"null":                       {`null`, []string{}},
		"half a body":                {`{"labels":`, []string{}},
		"an operation of JSON Patch": {`[{"op":"remove","path":"/labels"}]`, []string{}},
		"an object for a destination": {
			`{"deadLetterDestination":{"endpointType":null}}`, []string{"deadLetterDestination.endpointType"},
		},
	} {
		rejection := b.manage(http.MethodPatch, billing, row.body).rejected(400, "InvalidRequest")
		require.Equal(t, row.targets, targets(rejection), name)
	}
	b.manage(http.MethodPatch, "/v1/topics/orders/subscriptions/nothing", `{}`).rejected(404, "NotFound")
	b.manage(http.MethodPatch, "/v1/topics/nothing/subscriptions/billing", `{}`).rejected(404, "NotFound")
	b.manage(http.MethodPatch, "/v1/topics/%00/subscriptions/billing", `{}`).rejected(404, "NotFound")
	admin := []string{"Authorization", "Bearer " + adminToken, "Content-Type"}
	b.send(http.MethodPatch, billing, `{}`, append(admin, "application/json-patch+json")...).
		rejected(415, "UnsupportedMediaType")
	b.send(http.MethodPut, billing, `{"endpointUrl":"https://example.com"}`,
		append(admin, "application/merge-patch+json")...).rejected(415, "UnsupportedMediaType")
	require.Equal(t, before, b.manage(http.MethodGet, billing, "").body, "nothing was changed")
	for _, media := range []string{
		"application/json", "application/merge-patch+json", "application/merge-patch+json; charset=utf-8",
	} {
		b.send(http.MethodPatch, billing, `{"labels":["`+media+`"]}`, append(admin, media)...).json(http.StatusOK)
	}
}

// Concurrent patches all take effect: none is based on settings that another one has changed.
func TestPatchesTogether(t *testing.T) {
	t.Parallel()
	b, _ := withBilling(t)
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
			if response := b.manage(http.MethodPatch, billing, string(body)); response.status != http.StatusOK {
				t.Errorf("%s: %s", body, response.body)
			}
		})
	}
	group.Wait()
	shown := b.manage(http.MethodGet, billing, "").json(http.StatusOK)
	for member, value := range patches {
		require.Equal(t, value, shown[member], member)
	}
	etag := shown["etag"].(string)
	var changed, late int
	var lock sync.Mutex
	for range 8 {
		group.Go(func() {
			response := b.send(http.MethodPatch, billing, `{"labels":null}`, "Authorization", "Bearer "+adminToken,
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

func TestEtags(t *testing.T) {
	t.Parallel()
	b := setup(t)
	admin := []string{"Authorization", "Bearer " + adminToken}
	with := func(method, path, body string, headers ...string) response {
		return b.send(method, path, body, append(headers, admin...)...)
	}
	const orders = "/v1/topics/orders"
	for _, row := range []struct{ path, body, list string }{
		{orders, `{}`, "/v1/topics"}, {billing, `{"endpointUrl":"https://example.com/in"}`, orders + "/subscriptions"},
	} {
		with(http.MethodPut, row.path, row.body, "If-Match", "*").rejected(412, "PreconditionFailed")
		with(http.MethodPut, row.path, row.body, "If-Match", `"1"`).rejected(412, "PreconditionFailed")
		made := with(http.MethodPut, row.path, row.body, "If-None-Match", "*")
		require.Equal(t, http.StatusCreated, made.status)
		rejection := with(http.MethodPut, row.path, row.body, "If-None-Match", "*").rejected(412, "PreconditionFailed")
		require.Contains(t, rejection.Message, "exists already")
		etag := made.header.Get("ETag")
		require.Regexp(t, `^"[0-9]+"$`, etag)
		for range 2 {
			got := b.manage(http.MethodGet, row.path, "")
			require.Equal(t, etag, got.header.Get("ETag"))
			require.Equal(t, etag, got.json(200)["etag"])
			require.Equal(t, etag, b.manage(http.MethodGet, row.list, "").json(200)["value"].([]any)[0].(map[string]any)["etag"])
		}
		for _, match := range []string{"*", etag, `"x", ` + etag} {
			etag = with(http.MethodGet, row.path, "").header.Get("ETag")
			match = strings.Replace(match, made.header.Get("ETag"), etag, 1)
			require.Equal(t, http.StatusOK, with(http.MethodPut, row.path, row.body, "If-Match", match).status, match)
		}
		etag = b.manage(http.MethodGet, row.path, "").header.Get("ETag")
		for _, match := range []string{`"1"`, "W/" + etag, `"x"`} {
			rejection := with(http.MethodPut, row.path, row.body, "If-Match", match).rejected(412, "PreconditionFailed")
			require.Contains(t, rejection.Message, "If-Match")
			with(http.MethodDelete, row.path, "", "If-Match", match).rejected(412, "PreconditionFailed")
		}
		require.Equal(t, []string{"If-Match"},
			targets(with(http.MethodPut, row.path, row.body, "If-Match", "1").rejected(400, "InvalidRequest")))
		require.Equal(t, []string{"If-None-Match"},
			targets(with(http.MethodPut, row.path, row.body, "If-None-Match", etag).rejected(400, "InvalidRequest")))
		require.Equal(t, etag, b.manage(http.MethodGet, row.path, "").header.Get("ETag"), "a rejected one changes nothing")
	}

	etag := b.manage(http.MethodGet, billing, "").header.Get("ETag")
	b.manage(http.MethodPost, billing+"/pause", "").json(200)
	require.Equal(t, etag, b.manage(http.MethodGet, billing, "").header.Get("ETag"), "a pause is no setting")
	with(http.MethodPatch, billing, `{}`, "If-Match", `"1"`).rejected(412, "PreconditionFailed")
	patched := with(http.MethodPatch, billing, `{"labels":["a"]}`, "If-Match", etag)
	require.Equal(t, patched.json(200)["etag"], patched.header.Get("ETag"))
	require.NotEqual(t, etag, patched.header.Get("ETag"))
	with(http.MethodPatch, billing, `{}`, "If-Match", etag).rejected(412, "PreconditionFailed")
	with(http.MethodPatch, orders+"/subscriptions/nothing", `{}`, "If-Match", etag).rejected(404, "NotFound")
	with(http.MethodDelete, orders+"/subscriptions/nothing", "", "If-Match", "*").rejected(404, "NotFound")

	require.Equal(t, http.StatusNoContent,
		with(http.MethodDelete, billing, "", "If-Match", patched.header.Get("ETag")).status)
	b.subscription("orders", "billing", `{"endpointUrl":"https://example.com/in"}`)
	require.NotEqual(t, patched.header.Get("ETag"), b.manage(http.MethodGet, billing, "").header.Get("ETag"),
		"made again, it is another")
}

func TestNamespaceLimits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.topic("shop", `{"kind":"namespace","eventRetentionInDays":3}`)
	const topic, path = "/v1/topics/shop", "/v1/topics/shop/subscriptions/billing"
	require.InDelta(t, 3, b.manage(http.MethodGet, topic, "").json(200)["eventRetentionInDays"], 0)
	put := func(limits string) response {
		return b.manage(http.MethodPut, path, `{"endpointUrl":"https://example.com","retryPolicy":`+limits+`}`)
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
	for _, tt := range []struct {
		given   string
		minutes int
		shown   string
	}{
		{"P1D", 1440, "P1D"},
		{"PT90M", 90, "PT1H30M"},
		{"P1DT2H", 1560, "P1DT2H"},
		{"PT1M", 1, "PT1M"},
		{"P3D", 4320, "P3D"},
		{"PT72H", 4320, "P3D"},
		{"P0DT5M", 5, "PT5M"},
		{"P1DT1H1M", 1501, "P1DT1H1M"},
		{"PT60S", 1, "PT1M"},
	} {
		got := limits(put(`{"eventTimeToLive":"` + tt.given + `","maxDeliveryCount":4}`))
		require.Equal(t, shown(4, tt.minutes, tt.shown), got, tt.given)
		byNumbers := fmt.Sprintf(`{"eventTimeToLiveInMinutes":%d,"maxDeliveryAttempts":4}`, tt.minutes)
		require.Equal(t, got, limits(put(byNumbers)), "the other names")
	}
	for _, text := range []string{
		"", "P", "PT", "P1", "1D", "P1Y", "P1M", "P1W1D", "PT1S", "PT90S", "P1DT", "PT1.5H", "P-1D", "-P1D", "+P1D", "pt1m",
		"P1D2H", "PT1M1H", "P 1D", "P1000000D", "PT1H1H", "P1DT1D",
	} {
		rejection := put(`{"eventTimeToLive":"`+text+`"}`).rejected(400, "InvalidRequest")
		require.Equal(t, []string{"retryPolicy.eventTimeToLive"}, targets(rejection), text)
	}
	for body, says := range map[string]string{
		`{"eventTimeToLive":"PT0M"}`: "retryPolicy.eventTimeToLive must be between PT1M " +
			"and P7D under retry policy namespace-2023, not PT0M",
		`{"eventTimeToLive":"PT90S"}`: `retryPolicy.eventTimeToLive must be whole minutes: ` +
			`its seconds must be a multiple of 60, not "PT90S"`,
		`{"eventTimeToLive":"P1W"}`: "retryPolicy.eventTimeToLive must be no longer than " +
			"the topic's eventRetentionInDays, which is 3",
		`{"eventTimeToLive":"P2W"}`: "retryPolicy.eventTimeToLive must be between PT1M " +
			"and P7D",
		`{"eventTimeToLive":"P8D"}`: "retryPolicy.eventTimeToLive must be between PT1M " +
			"and P7D",
		`{"eventTimeToLive":"P3DT1M"}`: "retryPolicy.eventTimeToLive must be no longer than " +
			"the topic's eventRetentionInDays, which is 3",
		`{"eventTimeToLiveInMinutes":4321}`: "retryPolicy.eventTimeToLiveInMinutes must be no " +
			"longer than the topic's eventRetentionInDays, which is 3",
		`{"eventTimeToLiveInMinutes":0}`: "retryPolicy.eventTimeToLiveInMinutes must be " +
			"between 1 and 10080 minutes",
		`{"maxDeliveryCount":0}`: "retryPolicy.maxDeliveryCount must be between 1 and " +
			"10 under retry policy namespace-2023, not 0",
		`{"maxDeliveryCount":11}`: "retryPolicy.maxDeliveryCount must be between 1 " +
			"and 10",
		`{"maxDeliveryAttempts":11}`: "retryPolicy.maxDeliveryAttempts must be between 1 " +
			"and 10",
		`{"maxDeliveryCount":1,"maxDeliveryAttempts":1}`: "retryPolicy.maxDeliveryCount must be absent with " +
			"maxDeliveryAttempts",
		`{"eventTimeToLive":"P1D","eventTimeToLiveInMinutes":1440}`: "retryPolicy.eventTimeToLive must be absent with " +
			"eventTimeToLiveInMinutes",
		`{"eventTimeToLive":"P1Y","maxDeliveryCount":0,"policy":"x"}`: "retryPolicy.eventTimeToLive must be an ISO 8601 " +
			"duration",
	} {
		require.Contains(t, put(body).rejected(400, "InvalidRequest").Message, says, body)
	}

	patch := func(body string) map[string]any { return limits(b.manage(http.MethodPatch, path, body)) }
	limits(put(`{"eventTimeToLiveInMinutes":4320,"maxDeliveryAttempts":2}`))
	require.Equal(t, shown(5, 2880, "P2D"), patch(`{"retryPolicy":{"eventTimeToLive":"P2D","maxDeliveryCount":5}}`),
		"a patch may take either name")
	require.Equal(t, shown(10, 2880, "P2D"), patch(`{"retryPolicy":{"maxDeliveryCount":null}}`))
	b.manage(http.MethodPut, topic, `{"kind":"namespace","eventRetentionInDays":1}`).json(200)
	require.Equal(t, shown(10, 1440, "P1D"), limits(b.manage(http.MethodGet, path, "")),
		"a shorter retention holds at once")
	require.Equal(t, 1,
		b.count("SELECT count(*) FROM postrider.event_subscriptions WHERE event_time_to_live_in_minutes = 1440"))
	require.Equal(t, 1, b.count("SELECT count(*) FROM postrider.topics WHERE event_retention_in_days = 1"))
	sub, err := b.store.Subscriptions.Get(t.Context(), "shop", "billing")
	require.NoError(t, err)
	rules, known := b.store.Cache.Snapshot().Rules(sub.ID)
	require.True(t, known)
	require.Equal(t, 24*time.Hour, rules.Limits.TTL, "the engine's")
	require.InDelta(t, 7, b.manage(http.MethodPut, topic, `{"kind":"namespace"}`).json(200)["eventRetentionInDays"], 0,
		"left out, it takes its default")
	require.Equal(t, shown(10, 2880, "P2D"), limits(b.manage(http.MethodGet, path, "")))
	b.manage(http.MethodPut, topic, `{"eventRetentionInDays":1}`).rejected(400, "InvalidRequest")
	b.manage(http.MethodPut, topic, `{}`).rejected(409, "TopicExists")
}

// The views read settings as jsonb, which holds no U+0000 and no number of that size: one event subscription must not
// make them unreadable.
func TestSettingsThatNoViewCanShowAreRejected(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.topic("orders", "")
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
		response := b.manage(http.MethodPut, billing, `{"endpointUrl":"https://example.com",`+setting+`}`)
		require.Equal(t, http.StatusBadRequest, response.status, "%s: %s", setting, response.body)
	}
	require.Empty(t, b.rows("SELECT topic FROM postrider.event_subscriptions"))
}
