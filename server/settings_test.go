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

// The API and the view show the same. policy.TestResolve has every policy.
func TestBehavior(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.topic("orders", `{"inputSchema":"CloudEventSchemaV1_0"}`)
	s.subscription("orders", "billing", `{"endpointUrl":"https://example.com"}`)
	s.put("/v1/policies/literal", `{"honorRetryAfter":true,"deadLetterDefault":"rows",`+
		`"retryTransportErrors":false,"probation":{"action":"documented"}}`).json(201)
	for _, row := range []struct{ policy, settings, want string }{
		{"ga-2021", "", "safe true hold true Rows"},
		{"namespace-2023", `,"behavior":"documented"`, "documented false documented false None"},
		{"literal", `,"behavior":null,"honorRetryAfter":null,"probationAction":null`, "safe true hold true Rows"},
		{"literal", `,"behavior":"documented"`, "documented true documented false Rows"},
		{"literal", `,"honorRetryAfter":false,"probationAction":"documented","retryTransportErrors":true,` +
			`"deadLetterDestination":{"endpointType":"None"}`, "safe false documented true None"},
	} {
		body := `{"endpointUrl":"https://example.com","retryPolicy":{"policy":"` + row.policy + `"}` + row.settings + `}`
		put := s.put(billing, body).json(200)
		destination := put["deadLetterDestination"].(map[string]any)["endpointType"]
		require.Equal(t, row.want, fmt.Sprint(put["behavior"], " ", put["honorRetryAfter"], " ", put["probationAction"], " ",
			put["retryTransportErrors"], " ", destination), body)
		require.Equal(t, put, s.get(billing).json(200))
		require.Equal(t, row.want, s.tn.Text(t, `SELECT concat_ws(' ', behavior, honor_retry_after::text, probation_action,
			    retry_transport_errors::text, dead_letter_destination ->> 'endpointType')
			FROM postrider.event_subscriptions`), body)
	}
}

// A patch keeps all settings that it does not have. v1.TestPatched has numbers, secrets and defaults.
func TestPatchKeepsOtherSettings(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.topic("orders", "")
	s.subscription("orders", "billing", `{"endpointUrl":"https://example.com/in?code=secret","labels":["a","b"],
		"retryPolicy":{"policy":"ga-2021","maxDeliveryAttempts":5,"eventTimeToLiveInMinutes":10},"maxEventsPerBatch":7,
		"filter":{"includedEventTypes":["a","<b>"],"subjectBeginsWith":"x","subjectEndsWith":"y",
			"advancedFilters":[{"operatorType":"IsNotNull","key":"id"}]}}`)
	spec := func() catalog.SubscriptionSpec {
		sub, err := s.store.Subscriptions.Get(t.Context(), "orders", "billing")
		require.NoError(t, err)
		return sub.SubscriptionSpec
	}
	want := spec()
	for _, patch := range []string{
		`{}`, ``, `{"retryPolicy":{},"filter":{}}`, `{"retryPolicy":{"maxDeliveryAttempts":5}}`,
	} {
		require.NotContains(t, s.patch(billing, patch).is(200).body, "code=")
		require.Equal(t, want, spec())
	}
	s.patch(billing, `{"filter":{"subjectBeginsWith":null,"advancedFilters":null},"labels":null,`+
		`"retryPolicy":{"eventTimeToLiveInMinutes":null},"endpointUrl":"https://example.org/?code=other"}`).is(200)
	want.Filter.SubjectBeginsWith, want.Filter.AdvancedFilters, want.Labels = "", nil, nil
	want.RetryPolicy.EventTimeToLiveInMinutes, want.EndpointURL = nil, "https://example.org/?code=other"
	require.Equal(t, want, spec())
}

func TestPatchRejections(t *testing.T) {
	t.Parallel()
	s, _ := withBilling(t)
	before := s.get(billing).body
	for body, want := range map[string]string{ // the targets
		`{"lables":["a"]}`:                  "lables",
		`{"retryPolicy":{"attempts":null}}`: "retryPolicy.attempts",
		`{"labels":["a"],"labels":null}`:    "labels",
		`{"endpointUrl":null}`:              "endpointUrl",
		`{"endpointUrl":"http://10.0.0.1","retryPolicy":{"maxDeliveryAttempts":31},"labels":[""]}`: "endpointUrl " +
			"retryPolicy.maxDeliveryAttempts labels[0]",
		`{"retryPolicy":{"policy":"namespace-2023"}}`:     "eventDeliverySchema", // that was there before
		`{"deadLetterDestination":{"endpointType":null}}`: "deadLetterDestination.endpointType",
		`[{"op":"remove","path":"/labels"}]`:              "",
		`null`:                                            "",
	} {
		rejection := s.patch(billing, body).rejected(400, "InvalidRequest")
		require.Equal(t, want, strings.Join(targets(rejection), " "), body)
	}
	send := func(method, media, body string) response {
		return s.manage(method, billing, body, "Content-Type", media)
	}
	send(http.MethodPatch, "application/json-patch+json", `{}`).rejected(415, "UnsupportedMediaType")
	send(http.MethodPut, "application/merge-patch+json", `{"endpointUrl":"https://example.com"}`).
		rejected(415, "UnsupportedMediaType")
	require.Equal(t, before, s.get(billing).body, "nothing was changed")
	for _, media := range []string{"application/json", "application/merge-patch+json; charset=utf-8"} {
		send(http.MethodPatch, media, `{"labels":["`+media+`"]}`).json(200)
	}
}

// Concurrent patches all take effect: none is based on settings that another one has changed. catalog.TestConditions
// has those that name a version.
func TestPatchesTogether(t *testing.T) {
	t.Parallel()
	s, _ := withBilling(t)
	patches := map[string]any{
		"honorRetryAfter": false, "retryTransportErrors": false, "probationAction": "documented", "behavior": "documented",
		"maxConcurrentDeliveries": 3.0, "maxEventsPerBatch": 4.0, "labels": []any{"a"}, "endpointKind": "azure-resource",
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
}

// Namespace topics have other names for limits, which a shorter retention of the topic ends. policy.TestResolvedLimits
// has the limits, and parseMinutes of server/v1 the forms.
func TestNamespaceLimits(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.topic("shop", `{"kind":"namespace","eventRetentionInDays":3}`)
	const topic, path = "/v1/topics/shop", "/v1/topics/shop/subscriptions/billing"
	s.subscription("shop", "billing", `{"endpointUrl":"https://example.com"}`)
	put := func(limits string) response {
		return s.put(path, `{"endpointUrl":"https://example.com","retryPolicy":`+limits+`}`)
	}
	shows := func(a response, attempts, minutes int, ttl string) {
		t.Helper()
		require.Equal(t, map[string]any{
			"policy": "namespace-2023", "maxDeliveryAttempts": float64(attempts), "maxDeliveryCount": float64(attempts),
			"eventTimeToLiveInMinutes": float64(minutes), "eventTimeToLive": ttl,
		}, a.json(200)["retryPolicy"])
	}
	shows(put("null"), 10, 3*1440, "P3D") // the topic's retention ends it sooner than the policy's 7 days
	shows(put(`{"eventTimeToLive":"PT90M","maxDeliveryCount":4}`), 4, 90, "PT1H30M")
	shows(put(`{"eventTimeToLiveInMinutes":4320,"maxDeliveryAttempts":2}`), 2, 4320, "P3D")
	const ttl, count = "retryPolicy.eventTimeToLive", "retryPolicy.maxDeliveryCount"
	for body, says := range map[string]string{
		`{"eventTimeToLive":"P8D"}`:    ttl + " must be between PT1M and P7D under retry policy namespace-2023, not P8D",
		`{"eventTimeToLive":"PT90S"}`:  ttl + ` must be whole minutes: its seconds must be a multiple of 60, not "PT90S"`,
		`{"eventTimeToLive":"P3DT1M"}`: ttl + " must be no longer than the topic's eventRetentionInDays, which is 3",
		`{"eventTimeToLiveInMinutes":4321}`: ttl + "InMinutes must be no longer than the topic's eventRetentionInDays, " +
			"which is 3",
		`{"maxDeliveryCount":0}`: count + " must be between 1 and 10 under retry policy " +
			"namespace-2023, not 0",
		`{"maxDeliveryCount":1,"maxDeliveryAttempts":1}`:            count + " must be absent with maxDeliveryAttempts",
		`{"eventTimeToLive":"P1D","eventTimeToLiveInMinutes":1440}`: ttl + " must be absent with eventTimeToLiveInMinutes",
	} {
		require.Contains(t, put(body).rejected(400, "InvalidRequest").Message, says, body)
	}

	shows(s.patch(path, `{"retryPolicy":{"eventTimeToLive":"P2D","maxDeliveryCount":null}}`), 10, 2880, "P2D")
	s.put(topic, `{"kind":"namespace","eventRetentionInDays":1}`).json(200)
	shows(s.get(path), 10, 1440, "P1D") // a shorter retention holds at once
	require.Equal(t, 1440, s.count("SELECT event_time_to_live_in_minutes FROM postrider.event_subscriptions"))
	sub, err := s.store.Subscriptions.Get(t.Context(), "shop", "billing")
	require.NoError(t, err)
	rules, known := s.store.Cache.Snapshot().Rules(sub.ID)
	require.True(t, known)
	require.Equal(t, 24*time.Hour, rules.Limits.TTL, "the engine's")
	require.InDelta(t, 7, s.put(topic, `{"kind":"namespace"}`).json(200)["eventRetentionInDays"], 0,
		"left out, it takes its default")
	shows(s.get(path), 10, 2880, "P2D")
}

// The views read settings as jsonb, which holds no U+0000 and no number of that size: one event subscription must not
// make them unreadable.
func TestSettingsThatViewsCannotShowAreRejected(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.topic("orders", "")
	for _, setting := range []string{
		`"filter":{"subjectBeginsWith":"a\u0000"}`, `"filter":{"includedEventTypes":["a\u0000"]}`, `"labels":["a\u0000"]`,
		`"certificateAuthorities":"\u0000-----BEGIN CERTIFICATE-----"`, `"retryPolicy":{"policy":"\u0000"}`,
		`"filter":{"advancedFilters":[{"key":"data.n","operatorType":"NumberIn","values":[1e200000]}]}`,
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
