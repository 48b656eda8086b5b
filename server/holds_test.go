package server_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const billing = "/v1/topics/orders/subscriptions/billing"

// probation puts an event subscription in probation for five minutes, as ten failures of its endpoint would.
func (b *bundle) probation(topic, subscription string) {
	b.t.Helper()
	b.change(`INSERT INTO postrider_internal.probations (probation_key, endpoint_base_url, since, until, cause, step,
		    failures_in_a_row)
		SELECT postrider_internal.probation_key(p.probation_scope, s.endpoint_hash, s.id), s.endpoint_base_url, now(),
		       now() + interval '5 minutes', 'Busy', 1, 10
		  FROM postrider_internal.event_subscriptions s JOIN postrider_internal.topics t ON t.id = s.topic_id
		  JOIN postrider_internal.retry_policies p ON p.name = s.retry_policy
		 WHERE t.name = $1 AND s.name = $2`, topic, subscription)
}

// held reads an event subscription's hold; nil without one.
func (b *bundle) held(topic, subscription string) map[string]any {
	b.t.Helper()
	return holdIn(b.manage(http.MethodGet, "/v1/topics/"+topic+"/subscriptions/"+subscription, ""))
}

// holdIn reads the hold in a successful response.
func holdIn(a response) map[string]any {
	a.t.Helper()
	shown := a.json(http.StatusOK)
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

// withBilling is a server with event subscription billing on topic orders; key publishes to the topic.
func withBilling(t *testing.T) (b *bundle, key string) {
	t.Helper()
	b = setup(t)
	key = b.topic("orders", "")
	b.subscription("orders", "billing", `{"endpointUrl":"https://example.com/in"}`)
	return b, key
}

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	b, _ := withBilling(t)
	var since any
	for range 2 {
		response := b.manage(http.MethodPost, billing+"/pause", "")
		hold := holdIn(response)
		if since == nil {
			since = hold["since"]
		}
		require.WithinDuration(t, time.Now(), momentIn(t, hold["since"]), time.Minute)
		require.Equal(t, map[string]any{
			"reason": "paused", "cause": nil, "since": since, "nextProbeAt": nil, "probing": false, "heldDeliveries": 0.0,
			"timeToLiveStopped": false, "resuming": false,
		}, hold, "pausing again changes nothing")
		require.Equal(t, response.value(), b.manage(http.MethodGet, billing, "").value())
	}
	require.Equal(t, 1,
		b.count("SELECT count(*) FROM postrider.event_subscriptions WHERE hold = 'paused' AND hold_since IS NOT NULL"))
	for range 2 {
		require.Nil(t, holdIn(b.manage(http.MethodPost, billing+"/resume", "")))
	}
	require.Nil(t, b.held("orders", "billing"))
}

func TestPauseThatStopsTheTimeToLive(t *testing.T) {
	t.Parallel()
	b, _ := withBilling(t)
	for _, row := range []struct {
		name, body string
		stopped    bool
	}{
		{"it goes on unless something is said", `{}`, false},
		{"stopped, for the whole pause", `{"stopTimeToLive":true}`, true},
		{"no body changes nothing", ``, true},
		{"nor does an empty object", `{}`, true},
		{"nor does null", `{"stopTimeToLive":null}`, true},
		{"it goes on again", `{"stopTimeToLive":false}`, false},
	} {
		hold := holdIn(b.manage(http.MethodPost, billing+"/pause", row.body))
		require.Equal(t, row.stopped, hold["timeToLiveStopped"], row.name)
		require.Equal(t, row.stopped, b.held("orders", "billing")["timeToLiveStopped"], row.name)
	}
	b.manage(http.MethodPost, billing+"/pause", `{"stopTimeToLive":true}`).json(http.StatusOK)
	require.Nil(t, holdIn(b.manage(http.MethodPost, billing+"/resume", "")))
	require.Equal(t, false, holdIn(b.manage(http.MethodPost, billing+"/pause", ""))["timeToLiveStopped"],
		"the next pause begins anew")
}

func TestPauseRejections(t *testing.T) {
	t.Parallel()
	b, _ := withBilling(t)
	for name, row := range map[string]struct {
		body, says string
		targets    []string
	}{
		"an unknown member": {`{"stopTTL":true}`, "the members are: stopTimeToLive", []string{"stopTTL"}},
		"a member in the wrong case": {
			`{"stoptimetolive":true}`, "stoptimetolive is not a member", []string{"stoptimetolive"},
		},
		"a member twice": {
			`{"stopTimeToLive":true,"stopTimeToLive":false}`, "appears twice", []string{"stopTimeToLive"},
		},
		"a string for true": {
			`{"stopTimeToLive":"true"}`, "stopTimeToLive must be true or false", []string{"stopTimeToLive"},
		},
		"a number for true": {
			`{"stopTimeToLive":1}`, "stopTimeToLive must be true or false", []string{"stopTimeToLive"},
		},
		"an unknown one and a mistake": {
			`{"until":"tomorrow","stopTimeToLive":1}`, "until is not a member", []string{"until", "stopTimeToLive"},
		},
		"null":        {`null`, "must be a JSON object", []string{}},
		"an array":    {`[true]`, "must be a JSON object", []string{}},
		"half a body": {`{"stopTimeToLive":`, "must be one JSON document", []string{}},
	} {
		rejection := b.manage(http.MethodPost, billing+"/pause", row.body).rejected(400, "InvalidRequest")
		require.Contains(t, rejection.Message, row.says, name)
		require.Equal(t, row.targets, targets(rejection), name)
	}
	b.send(http.MethodPost, billing+"/pause", "{}", "Authorization", "Bearer "+adminToken, "Content-Type", "text/plain").
		rejected(415, "UnsupportedMediaType")
	require.Nil(t, b.held("orders", "billing"), "a rejected request pauses nothing")
}

func TestHoldsOfWhatDoesNotExist(t *testing.T) {
	t.Parallel()
	b, _ := withBilling(t)
	for _, action := range []string{"pause", "resume", "release", "probe"} {
		for _, path := range []string{"/v1/topics/orders/subscriptions/never/", "/v1/topics/never/subscriptions/billing/"} {
			rejection := b.manage(http.MethodPost, path+action, "").rejected(404, "NotFound")
			require.Contains(t, rejection.Message, "never", action)
		}
		b.manage(http.MethodGet, billing+"/"+action, "").rejected(405, "MethodNotAllowed")
	}
}

func TestHeldDeliveriesAreCountedForOne(t *testing.T) {
	t.Parallel()
	b, key := withBilling(t)
	b.subscription("orders", "stock", `{"endpointUrl":"https://example.com/stock"}`)
	b.manage(http.MethodPost, billing+"/pause", "").json(http.StatusOK)
	require.Equal(t, http.StatusOK,
		b.publish("orders", key, "["+gridEvent("1")+","+gridEvent("2")+","+gridEvent("3")+"]").status)
	for name, response := range map[string]response{
		"read":         b.manage(http.MethodGet, billing, ""),
		"paused again": b.manage(http.MethodPost, billing+"/pause", ""),
		"replaced":     b.manage(http.MethodPut, billing, `{"endpointUrl":"https://example.com/in"}`),
	} {
		require.Equal(t, 3.0, holdIn(response)["heldDeliveries"], name)
	}
	require.Nil(t, b.held("orders", "stock"))
	list := b.manage(http.MethodGet, "/v1/topics/orders/subscriptions", "").json(http.StatusOK)["value"].([]any)
	require.Len(t, list, 2)
	hold := list[0].(map[string]any)["hold"].(map[string]any)
	require.Equal(t, "paused", hold["reason"])
	require.Contains(t, hold, "heldDeliveries")
	require.Nil(t, hold["heldDeliveries"], "not in a list")
	require.Nil(t, list[1].(map[string]any)["hold"])
}

func TestProbationIsShown(t *testing.T) {
	t.Parallel()
	b, key := withBilling(t)
	b.probation("orders", "billing")
	require.Equal(t, http.StatusOK, b.publish("orders", key, "["+gridEvent("1")+"]").status)
	hold := b.held("orders", "billing")
	require.Equal(t, 5*time.Minute, momentIn(t, hold["nextProbeAt"]).Sub(momentIn(t, hold["since"])))
	require.Equal(t, map[string]any{
		"reason": "probation", "cause": "Busy", "since": hold["since"], "nextProbeAt": hold["nextProbeAt"], "probing": false,
		"heldDeliveries":    1.0,
		"timeToLiveStopped": false, "resuming": false,
	}, hold)
	b.change("UPDATE postrider_internal.probations SET probe_job_id = 1")
	require.Equal(t, false, b.held("orders", "billing")["probing"], "the probe went away: it has no job")
	b.change(`WITH job AS (INSERT INTO postrider_internal.river_job (id, state, args, kind, queue, priority, max_attempts)
		VALUES (1000, 'available', '{}', 'deliver', 'deliveries', 1, 1000) RETURNING id) UPDATE postrider_internal.probations
		SET probe_job_id = job.id FROM job`)
	require.Equal(t, true, b.held("orders", "billing")["probing"])

	hold = holdIn(b.manage(http.MethodPost, billing+"/pause", ""))
	require.Equal(t, "paused", hold["reason"], "a pause precedes a probation")
	require.Equal(t, []any{nil, nil, false}, []any{hold["cause"], hold["nextProbeAt"], hold["probing"]},
		"the pause shows nothing of the probation")
}

func TestLongResume(t *testing.T) {
	t.Parallel()
	b, _ := withBilling(t)
	b.manage(http.MethodPost, billing+"/pause", `{"stopTimeToLive":true}`).json(http.StatusOK)
	b.change("UPDATE postrider_internal.event_subscription_states SET resumed_at = now()")
	hold := b.held("orders", "billing")
	require.Equal(t, []any{"paused", true, true}, []any{hold["reason"], hold["timeToLiveStopped"], hold["resuming"]})
}

func TestRelease(t *testing.T) {
	t.Parallel()
	b, _ := withBilling(t)
	require.Nil(t, holdIn(b.manage(http.MethodPost, billing+"/release", "")), "nothing to release")
	b.probation("orders", "billing")

	b.manage(http.MethodPost, billing+"/pause", "").json(http.StatusOK)
	rejection := b.manage(http.MethodPost, billing+"/release", "").rejected(409, "SubscriptionPaused")
	require.Equal(t, `event subscription "billing" of topic "orders" is paused: resume it first`, rejection.Message)
	resumed := holdIn(b.manage(http.MethodPost, billing+"/resume", ""))
	require.Equal(t, "probation", resumed["reason"], "the rejected release left the probation as it was")
	require.Equal(t, 0.0, resumed["heldDeliveries"])

	for range 2 {
		require.Nil(t, holdIn(b.manage(http.MethodPost, billing+"/release", "")))
	}
	require.Nil(t, b.held("orders", "billing"))
	require.Zero(t, b.count("SELECT count(*) FROM postrider_internal.probations"))
}

func TestProbe(t *testing.T) {
	t.Parallel()
	b, _ := withBilling(t)
	rejection := b.manage(http.MethodPost, billing+"/probe", "").rejected(409, "SubscriptionNotInProbation")
	require.Equal(t, `event subscription "billing" of topic "orders" is not in probation, so it cannot be probed`,
		rejection.Message)

	b.probation("orders", "billing")
	before := b.held("orders", "billing")
	b.manage(http.MethodPost, billing+"/pause", "").json(http.StatusOK)
	require.Contains(t, b.manage(http.MethodPost, billing+"/probe", "").rejected(409, "SubscriptionPaused").Message,
		"resume it first")
	b.manage(http.MethodPost, billing+"/resume", "").json(http.StatusOK)
	require.Equal(t, before, b.held("orders", "billing"), "the rejected probe left the probation as it was")

	hold := holdIn(b.manage(http.MethodPost, billing+"/probe", ""))
	require.Equal(t, before["since"], hold["since"], "the hold goes on until the probe succeeds")
	require.Zero(t, b.count("SELECT count(*) FROM postrider_internal.probations WHERE until > now()"), "its time has come")
	require.True(t, momentIn(t, hold["nextProbeAt"]).Before(momentIn(t, before["nextProbeAt"])))
	require.Equal(t, hold, holdIn(b.manage(http.MethodPost, billing+"/probe", "")), "a repetition changes nothing")
}

// Under the policies of 2019 and 2021 a probation belongs to the endpoint, its query string included; under those of
// namespaces to one event subscription.
func TestProbationBelongsToTheEndpoint(t *testing.T) {
	t.Parallel()
	for policyName, together := range map[string]bool{"ga-2019": true, "ga-2021": true, "namespace-2023": false} {
		t.Run(policyName, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.topic("orders", "")
			for name, endpoint := range map[string]string{
				"billing": "https://example.com/in?a=1", "stock": "https://example.com/in?a=1",
				"other": "https://example.com/in?a=2",
			} {
				b.subscription("orders", name,
					fmt.Sprintf(`{"endpointUrl":%q,"eventDeliverySchema":"CloudEventSchemaV1_0","retryPolicy":{"policy":%q}}`,
						endpoint, policyName))
			}
			b.probation("orders", "billing")
			b.probation("orders", "other")
			if !together {
				b.probation("orders", "stock")
			}
			shared := b.held("orders", "stock")
			require.Equal(t, "probation", shared["reason"])

			b.manage(http.MethodPost, billing+"/probe", "").json(http.StatusOK)
			require.Equal(t, together, b.held("orders", "stock")["nextProbeAt"] != shared["nextProbeAt"])
			require.Nil(t, holdIn(b.manage(http.MethodPost, billing+"/release", "")))
			require.Equal(t, together, b.held("orders", "stock") == nil)
			require.NotNil(t, b.held("orders", "other"), "another query string is another endpoint")
		})
	}
}

func TestPolicyWithoutProbation(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.topic("orders", "")
	b.subscription("orders", "billing", `{"endpointUrl":"https://example.com/in"}`)
	b.probation("orders", "billing")
	b.subscription("orders", "early", `{"endpointUrl":"https://example.com/in","retryPolicy":{"policy":"ga-2018"}}`)
	require.Nil(t, b.held("orders", "early"), "its policy rests no endpoint, though another's does")
	b.manage(http.MethodPost, "/v1/topics/orders/subscriptions/early/probe", "").
		rejected(409, "SubscriptionNotInProbation")
	require.Nil(t, holdIn(b.manage(http.MethodPost, "/v1/topics/orders/subscriptions/early/release", "")))
	require.NotNil(t, b.held("orders", "billing"), "nor does it end another's probation")
}
