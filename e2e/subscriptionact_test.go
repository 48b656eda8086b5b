package e2e

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/cli/rest"
)

// agreeing is an endpoint that passes the handshake and rejects events for now.
func agreeing(t *testing.T) string {
	t.Helper()
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodOptions {
			w.Header().Set("WebHook-Allowed-Origin", "*")
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	t.Cleanup(endpoint.Close)
	return endpoint.URL
}

func actionVerbs(t *testing.T, r *remote) {
	t.Helper()
	r.topic("acted")
	r.run(t, 0, "subscription", "create", "acted", "billing", "--endpoint", agreeing(t)+"/acted?code=secret",
		"--event-delivery-schema", "CloudEventSchemaV1_0", "--signing", "true",
		"--delivery-attribute-mapping", "X-Secret static s3cret true", "--delivery-attribute-mapping",
		"X-Path dynamic data.path")
	require.Equal(t, "succeeded",
		rest.ValueAt(r.object(t, "subscription", "validate", "acted", "billing"), "validation.state"))
	require.Regexp(t, `(?m)^state +Succeeded$`, r.run(t, 0, "subscription", "validate", "acted", "billing").stdout)

	revealed := r.object(t, "subscription", "reveal", "acted", "billing")
	require.Contains(t, revealed["endpointUrl"], "/acted?code=secret")
	require.Equal(t, "s3cret", rest.ValueAt(rest.Objects(revealed, "deliveryAttributeMappings")[0], "properties.value"))
	require.Regexp(t,
		`(?m)^endpoint +http\S+code=secret\nheader X-Secret +s3cret\nheader X-Path +from each event: data\.path$`,
		r.run(t, 0, "subscription", "reveal", "acted", "billing").stdout)

	secrets := r.object(t, "subscription", "signing-secrets", "acted", "billing")
	require.Len(t, secrets["value"], 1)
	own := "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	rotated := rest.Objects(r.object(t, "subscription", "signing-secrets", "acted", "billing", "--rotate",
		"--previous-valid-for-hours", "1", "--secret-file", writtenFile(t, own+"\n")), "value")
	require.Equal(t, own, rotated[0]["secret"])
	require.Equal(t, rest.Objects(secrets, "value")[0]["secret"], rotated[1]["secret"])
	require.Regexp(t, `(?m)^whsec_\S+ +20\S+Z +-\n`+own+` +20\S+Z +20\S+Z$`,
		r.run(t, 0, "subscription", "signing-secrets", "acted", "billing", "--rotate").stdout)
	r.run(t, 2, "subscription", "signing-secrets", "acted", "billing", "--previous-valid-for-hours", "1")

	sent := r.object(t, "subscription", "test-delivery", "acted", "billing")
	require.Equal(t, "postrider.TestEvent",
		one[string](r.db, "SELECT event_type FROM postrider.deliveries WHERE delivery_id = "+rest.TextAt(sent, "deliveryId")))
	require.Regexp(t, `^The sample event is delivery (\d+); see postrider delivery show \d+\.\n$`,
		r.run(t, 0, "subscription", "test-delivery", "acted", "billing").stdout)
	require.Contains(t, r.run(t, 1, "subscription", "probe", "acted", "billing").stderr, "probation")
	r.db.exec(`INSERT INTO postrider_internal.probations (probation_key, endpoint_base_url, since, until, cause, step,
		    failures_in_a_row)
		SELECT postrider_internal.probation_key(p.probation_scope, s.endpoint_hash, s.id), s.endpoint_base_url, now(),
		       now() + interval '5 minutes', 'Busy', 1, 10
		  FROM postrider_internal.event_subscriptions s JOIN postrider_internal.retry_policies p ON p.name = s.retry_policy
		  WHERE s.endpoint_base_url LIKE '%/acted' AND s.deleted_at IS NULL
		ON CONFLICT (probation_key) DO UPDATE SET since = excluded.since, until = excluded.until, cause = excluded.cause,
		    step = 1,
		    failures_in_a_row = 10`)
	require.Equal(t, "probation", rest.ValueAt(r.object(t, "subscription", "probe", "acted", "billing"), "hold.reason"))
	require.Equal(t, "Event subscription billing of topic acted: one delivery is attempted now.\n",
		r.run(t, 0, "subscription", "probe", "acted", "billing").stdout)
	require.Contains(t, one[[]string](r.db, "SELECT array_agg(action) FROM postrider.audit WHERE topic = 'acted'"),
		"subscription_probed")

	r.run(t, 0, "subscription", "release", "acted", "billing")
	for _, verb := range []string{"probe", "validate", "test-delivery", "reveal", "signing-secrets"} {
		require.Contains(t, r.run(t, 1, "subscription", verb, "acted", "none").stderr, `has no event subscription`, verb)
	}
	require.Equal(t, rest.Object{"topic": "acted", "name": "billing", "deleted": true},
		r.object(t, "subscription", "delete", "acted", "billing", "--yes"))
	topicFilterVerb(t, r)
}

func topicFilterVerb(t *testing.T, r *remote) {
	t.Helper()
	filter, event := writtenFile(t, `{"subjectEndsWith":"1"}`), writtenFile(t, order("9", 1))
	tried := func(flags ...string) []string { return append([]string{"topic", "test-filter", "acted"}, flags...) }
	require.JSONEq(t, r.manage(http.StatusOK, http.MethodPost, "/v1/topics/acted/testFilter",
		`{"filter":{"subjectEndsWith":"1"},"event":`+order("9", 1)+`}`),
		mustJSON(t, r.object(t, tried("--filter", filter, "--event", event)...)))
	said := words(r.run(t, 0, tried("--filter", filter, "--event", event)...).stdout)
	require.Equal(t, "EVENT ID TYPE SUBJECT MATCHED CLAUSE WHY NOT", said[0])
	require.Regexp(t, `^9 shop.order \S+ no subjectEndsWith the subject is .*, but must end with "1"$`, said[1])
	require.Equal(t, "(0 of 1 event matched)", said[2])
	r.run(t, 2, tried("--filter", writtenFile(t, "{"))...)
	r.run(t, 2, tried("--filter", "-", "--event", "-")...)
	r.run(t, 2, tried("--event", event)...)
	r.run(t, 2, tried("--filter", filter, "--last", "51")...)
}
