package server_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// probation puts an event subscription in probation for five minutes, as ten failures of its endpoint would.
func (s *service) probation(topic, subscription string) {
	s.t.Helper()
	s.change(`INSERT INTO postrider_internal.probations (probation_key, endpoint_base_url, since, until, cause, step,
		    failures_in_a_row)
		SELECT (postrider_internal.probation_keys(p.settings #>> '{probation,scope}', s.endpoint_hash, s.id))[1],
		       s.endpoint_base_url, now(),
		       now() + interval '5 minutes', 'Busy', 1, 10
		  FROM postrider_internal.event_subscriptions s JOIN postrider_internal.topics t ON t.id = s.topic_id
		  JOIN postrider_internal.retry_policies p ON p.name = s.retry_policy
		 WHERE t.name = $1 AND s.name = $2`, topic, subscription)
}

// held reads an event subscription's hold; nil without one.
func (s *service) held(topic, subscription string) map[string]any {
	s.t.Helper()
	return holdIn(s.get("/v1/topics/" + topic + "/subscriptions/" + subscription))
}

// holdIn reads the hold in a successful response.
func holdIn(a response) map[string]any {
	a.t.Helper()
	shown := a.json(200)
	require.Contains(a.t, shown, "hold")
	hold, _ := shown["hold"].(map[string]any)
	return hold
}

// momentIn reads a time.
func momentIn(t *testing.T, v any) time.Time {
	t.Helper()
	text, _ := v.(string)
	at, err := time.Parse(time.RFC3339Nano, text)
	require.NoError(t, err)
	require.Equal(t, time.UTC, at.Location())
	return at
}

// jobs/queue and jobs have what a pause does to deliveries.
func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	s, key := withBilling(t)
	for body, says := range map[string]string{
		`{"stopTTL":true}`:          "the members are: stopTimeToLive",
		`{"stopTimeToLive":"true"}`: "stopTimeToLive must be true or false",
		`null`:                      "must be a JSON object",
		`{"stopTimeToLive":`:        "must be one JSON document",
	} {
		require.Contains(t, s.post(billing+"/pause", body).rejected(400, "InvalidRequest").Message, says, body)
	}
	s.manage(http.MethodPost, billing+"/pause", "{}", "Content-Type", "text/plain").rejected(415, "UnsupportedMediaType")
	s.get(billing+"/pause").rejected(405, "MethodNotAllowed")
	require.Nil(t, s.held("orders", "billing"), "a rejected request pauses nothing")

	first := holdIn(s.post(billing+"/pause", ""))
	require.WithinDuration(t, time.Now(), momentIn(t, first["since"]), time.Minute)
	require.Equal(t, map[string]any{
		"reason": "paused", "cause": nil, "since": first["since"], "nextProbeAt": nil, "probing": false,
		"heldDeliveries": 0.0, "timeToLiveStopped": false, "resuming": false,
	}, first)
	again := s.post(billing+"/pause", "")
	require.Equal(t, first, holdIn(again), "pausing again changes nothing")
	require.Equal(t, again.value(), s.get(billing).value())
	for _, row := range []struct {
		body    string
		stopped bool
	}{
		{`{}`, false},
		{`{"stopTimeToLive":true}`, true},
		{``, true},
		{`{"stopTimeToLive":null}`, true},
		{`{"stopTimeToLive":false}`, false},
		{`{"stopTimeToLive":true}`, true},
	} {
		require.Equal(t, row.stopped, holdIn(s.post(billing+"/pause", row.body))["timeToLiveStopped"], row.body)
		require.Equal(t, row.stopped, s.held("orders", "billing")["timeToLiveStopped"], row.body)
	}
	for range 2 {
		require.Nil(t, holdIn(s.post(billing+"/resume", "")))
	}
	require.Equal(t, false, holdIn(s.post(billing+"/pause", ""))["timeToLiveStopped"], "the next pause begins anew")

	s.subscription("orders", "stock", `{"endpointUrl":"https://example.com/stock"}`)
	s.events(key, "1", "2", "3")
	for name, response := range map[string]response{
		"read": s.get(billing), "paused again": s.post(billing+"/pause", ""),
		"replaced": s.put(billing, `{"endpointUrl":"https://example.com/in"}`),
	} {
		require.Equal(t, 3.0, holdIn(response)["heldDeliveries"], name)
	}
	list := s.get("/v1/topics/orders/subscriptions").json(200)["value"].([]any)
	hold := list[0].(map[string]any)["hold"].(map[string]any)
	require.Equal(t, "paused", hold["reason"])
	require.Contains(t, hold, "heldDeliveries")
	require.Nil(t, hold["heldDeliveries"], "not in a list")
	require.Nil(t, list[1].(map[string]any)["hold"])
}

func TestReleaseAndProbe(t *testing.T) {
	t.Parallel()
	s, key := withBilling(t)
	require.Nil(t, holdIn(s.post(billing+"/release", "")), "nothing to release")
	require.Equal(t, `event subscription "billing" of topic "orders" is not in probation, so it cannot be probed`,
		s.post(billing+"/probe", "").rejected(409, "SubscriptionNotInProbation").Message)
	s.probation("orders", "billing")
	s.events(key, "1")
	before := s.held("orders", "billing")
	require.Equal(t, 5*time.Minute, momentIn(t, before["nextProbeAt"]).Sub(momentIn(t, before["since"])))
	require.Equal(t, map[string]any{
		"reason": "probation", "cause": "Busy", "since": before["since"], "nextProbeAt": before["nextProbeAt"],
		"probing": false, "heldDeliveries": 1.0, "timeToLiveStopped": false, "resuming": false,
	}, before)
	paused := holdIn(s.post(billing+"/pause", ""))
	require.Equal(t, []any{"paused", nil, nil, false}, []any{
		paused["reason"], paused["cause"], paused["nextProbeAt"], paused["probing"],
	}, "a pause precedes a probation, and shows nothing of it")
	for _, action := range []string{"/probe", "/release"} {
		require.Equal(t, `event subscription "billing" of topic "orders" is paused: resume it first`,
			s.post(billing+action, "").rejected(409, "SubscriptionPaused").Message)
	}
	require.Equal(t, before, holdIn(s.post(billing+"/resume", "")), "the probation is as it was")

	hold := holdIn(s.post(billing+"/probe", ""))
	require.Equal(t, before["since"], hold["since"], "the hold goes on until the probe succeeds")
	require.True(t, momentIn(t, hold["nextProbeAt"]).Before(momentIn(t, before["nextProbeAt"])))
	again := holdIn(s.post(billing+"/probe", ""))
	require.False(t, momentIn(t, again["nextProbeAt"]).Before(momentIn(t, hold["nextProbeAt"])), "it is due, and not past")
	again["nextProbeAt"] = hold["nextProbeAt"]
	require.Equal(t, hold, again, "a repetition changes nothing else")
	s.change("UPDATE postrider_internal.probations SET probe_job_id = 1")
	require.Equal(t, false, s.held("orders", "billing")["probing"], "the probe is gone: it has no job")
	s.change(`WITH job AS (INSERT INTO postrider_internal.river_job (id, state, args, kind, queue, priority, max_attempts)
		VALUES (1000, 'available', '{}', 'deliver', 'deliveries', 1, 1000) RETURNING id) UPDATE postrider_internal.probations
		SET probe_job_id = job.id FROM job`)
	require.Equal(t, true, s.held("orders", "billing")["probing"])
	require.Nil(t, holdIn(s.post(billing+"/release", "")))
	require.Nil(t, s.held("orders", "billing"))
}

// Under the policies of 2019 and 2021 a probation belongs to the endpoint, its query string included; under those of
// namespaces to one event subscription; that of 2026 has both. Earlier ones have none.
func TestProbationBelongsToTheEndpoint(t *testing.T) {
	t.Parallel()
	s := setup(t)
	for policyName, together := range map[string]bool{
		"ga-2019": true, "ga-2021": true, "ga-2026": true, "namespace-2023": false,
	} {
		s.topic(policyName, "")
		at := func(name string) string { return "/v1/topics/" + policyName + "/subscriptions/" + name }
		put := func(name, query, policy string) {
			s.put(at(name), fmt.Sprintf(`{"endpointUrl":"https://example.com/%s?%s",`+
				`"eventDeliverySchema":"CloudEventSchemaV1_0","retryPolicy":{"policy":%q}}`, policyName, query, policy)).json(201)
		}
		put("billing", "a=1", policyName)
		put("stock", "a=1", policyName)
		put("other", "a=2", policyName)
		put("early", "a=1", "ga-2018")
		s.probation(policyName, "billing")
		s.probation(policyName, "other")
		if !together {
			s.probation(policyName, "stock")
		}
		require.Nil(t, s.held(policyName, "early"))
		s.post(at("early")+"/probe", "").rejected(409, "SubscriptionNotInProbation")
		require.Nil(t, holdIn(s.post(at("early")+"/release", "")))
		shared := s.held(policyName, "stock")
		require.Equal(t, "probation", shared["reason"], "a release under another policy does not end it")
		s.post(at("billing")+"/probe", "").json(200)
		require.Equal(t, together, s.held(policyName, "stock")["nextProbeAt"] != shared["nextProbeAt"], policyName)
		require.Nil(t, holdIn(s.post(at("billing")+"/release", "")))
		require.Equal(t, together, s.held(policyName, "stock") == nil, policyName)
		require.NotNil(t, s.held(policyName, "other"), "another query string is another endpoint")
	}
}

// What waits for deliveryRate is shown with the end of the backlog.
func TestThrottling(t *testing.T) {
	t.Parallel()
	s, _ := withBilling(t)
	require.Nil(t, s.get(billing).json(200)["throttling"])
	s.manage(http.MethodPatch, billing, `{"deliveryRate":{"limit":1}}`).is(200)
	s.tn.Publish(t, "orders", "e", 2)
	shown, _ := s.get(billing).json(200)["throttling"].(map[string]any)
	require.Equal(t, []any{2.0, nil, false}, []any{shown["waiting"], shown["closedUntil"], shown["tooLate"]})
	require.WithinDuration(t, time.Now().Add(2*time.Second), momentIn(t, shown["drainsAt"]), time.Minute)
}
