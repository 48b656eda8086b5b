package cli_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/cli/rest"
)

// The flags of the Azure CLI, as a script for it has them.
func TestSubscriptionVerbs(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.topic("subscribed")
	endpoint := h.url + "/healthz?code=secret"
	h.run(0, "subscription", "create", "subscribed", "all-flags", "--endpoint", endpoint, "--endpoint-type", "webhook",
		"--endpoint-validation", "skip",
		"--event-delivery-schema", "cloudeventschemav1_0", "--included-event-types", "A,B", "--subject-begins-with", "x/",
		"--subject-ends-with", ".jpg", "--subject-case-sensitive", "true",
		"--enable-advanced-filtering-on-arrays", "--advanced-filter", "data.total numbergreaterthan 9007199254740993",
		"--advanced-filter", `data.city StringIn "New York" 'Paris, Texas'`,
		"--max-delivery-attempts", "7", "--event-ttl", "60", "--max-events-per-batch", "10",
		"--preferred-batch-size-in-kilobytes", "32", "--deadletter-endpoint", "none",
		"--expiration-date", "2099-01-31", "--labels", "a,b", "--delivery-attribute-mapping", "X-Secret static s3cret true",
		"--delivery-attribute-mapping", "X-Path dynamic data.path",
		"--policy", "ga-2021", "--behavior", "documented", "--max-concurrent-deliveries", "3", "--honor-retry-after", "false",
		"--signing", "true")
	shown := h.object("subscription", "show", "subscribed", "all-flags")
	for path, want := range map[string]string{
		"endpointBaseUrl": `"` + h.url + `/healthz"`, "filter.includedEventTypes": `["A","B"]`,
		"filter.isSubjectCaseSensitive": `true`, "filter.enableAdvancedFilteringOnArrays": `true`,
		"filter.subjectBeginsWith": `"x/"`, "filter.subjectEndsWith": `".jpg"`,
		"retryPolicy":           `{"policy":"ga-2021","maxDeliveryAttempts":7,"eventTimeToLiveInMinutes":60}`,
		"deadLetterDestination": `{"endpointType":"None"}`, "expirationTimeUtc": `"2099-01-31T00:00:00Z"`,
		"labels": `["a","b"]`, "maxEventsPerBatch": `10`, "preferredBatchSizeInKilobytes": `32`,
		"behavior": `"documented"`, "maxConcurrentDeliveries": `3`, "honorRetryAfter": `false`, "signing.enabled": `true`,
	} {
		require.JSONEq(t, want, mustJSON(t, rest.ValueAt(shown, path)), path)
	}
	raw := h.run(0, "subscription", "show", "subscribed", "all-flags", "-o", "json").stdout
	require.Contains(t, raw, "9007199254740993", "numbers keep their digits")
	require.Contains(t, raw, "Paris, Texas")
	require.NotContains(t, raw, "s3cret")

	require.Contains(t, h.run(1, "subscription", "create", "subscribed", "all-flags", "--endpoint", endpoint).stderr,
		"event subscription all-flags of topic subscribed exists already")
	changed := h.object("subscription", "update", "subscribed", "all-flags", "--event-ttl", "30", "--unset", "labels",
		"--unset", "filter.advancedFilters")
	require.JSONEq(t, `{"policy":"ga-2021","maxDeliveryAttempts":7,"eventTimeToLiveInMinutes":30}`,
		mustJSON(t, changed["retryPolicy"]))
	require.Empty(t, changed["labels"])
	require.Empty(t, rest.ValueAt(changed, "filter.advancedFilters"))
	require.Equal(t, []any{"A", "B"}, rest.ValueAt(changed, "filter.includedEventTypes"), "what is not named stays")
	replaced := h.object("subscription", "create", "subscribed", "all-flags", "--replace", "--endpoint", endpoint,
		"--endpoint-validation", "skip")
	require.Equal(t, []any{"All"}, rest.ValueAt(replaced, "filter.includedEventTypes"))

	stale := []string{"subscribed", "all-flags", "--if-match", strings.Trim(rest.TextAt(shown, "etag"), `"`)}
	for _, args := range [][]string{
		{"create", "--endpoint", endpoint, "--endpoint-validation", "skip"}, {"update", "--labels", "c"}, {"delete", "--yes"},
	} {
		require.Contains(t, h.run(1, append(append([]string{"subscription", args[0]}, stale...), args[1:]...)...).stderr,
			"is in none of the versions that If-Match names")
	}
	latest := h.object("subscription", "update", "subscribed", "all-flags", "--labels", "c", "--if-match",
		rest.TextAt(replaced, "etag"))
	h.run(0, "subscription", "create", "subscribed", "all-flags", "--endpoint", endpoint, "--endpoint-validation",
		"skip", "--if-match", rest.TextAt(latest, "etag"))

	for name, limit := range map[string][]string{
		"limited": {"--rate-limit", "5"}, "slower": {"--rate-limit", "1", "--rate-period", "60"},
	} {
		h.run(0, append([]string{
			"subscription", "create", "subscribed", name, "--endpoint", h.url + "/" + name, "--endpoint-validation", "skip",
			"--rate-scope", "endpoint",
		}, limit...)...)
	}
	const lower = "lower limit of its host 1 request/min"
	require.Contains(t, words(h.run(0, "subscription", "show", "subscribed", "limited").stdout), lower)
	require.NotContains(t, words(h.run(0, "subscription", "show", "subscribed", "slower").stdout), lower)
	require.Contains(t,
		h.run(1, "subscription", "update", "subscribed", "limited", "--unset", "deliveryRate.limit").stderr,
		"deliveryRate.limit must be 1 to 100000")

	require.Regexp(t, `(?m)^subscribed +all-flags +http`, h.run(0, "subscription", "list", "subscribed").stdout)
	require.Contains(t, h.run(0, "subscription", "list").stdout, "all-flags")
	require.Equal(t, "Event subscription all-flags of topic subscribed was deleted.\n",
		h.run(0, "subscription", "delete", "subscribed", "all-flags", "--yes").stdout)
	h.run(1, "subscription", "show", "subscribed", "all-flags")
}

func TestRejections(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.topic("refusing")
	said := h.run(1, "subscription", "create", "refusing", "abc", "--endpoint", h.url, "--max-delivery-attempts", "900",
		"--event-ttl", "0").stderr
	require.Equal(t, `postrider: the server found 2 mistakes
  retryPolicy.maxDeliveryAttempts: must be between 1 and 30 under retry policy ga-2021, not 900
  retryPolicy.eventTimeToLiveInMinutes: must be between 1 and 1440 minutes under retry policy ga-2021, not 0
`, said)
	require.Contains(t, h.run(1, "topic", "list", "--api-key", "wrong").stderr,
		"set POSTRIDER_API_KEY or pass --api-key")
	require.Contains(t, h.run(1, "topic", "list", "--url", "http://127.0.0.1:1").stderr,
		"check that the service is running")
	require.Contains(t, h.run(1, "topic", "list", "--url", strings.Replace(h.url, "http:", "https:", 1)).stderr,
		"does not use TLS: use http://")
	for _, args := range [][]string{
		{"topic", "list", "--url", "ftp://x"},
		{"topic", "list", "--url", "https://events.example.com", "--api-key", ""},
		{"topic", "list", "--ca-file", "/none"},
		{"topic", "create", "abc", "--input-mapping-fields", "kind"},
		{"subscription", "create", "refusing", "abc", "--endpoint-type", "eventhub"},
		{"subscription", "create", "refusing", "abc", "--advanced-filter", "data.total"},
		{"subscription", "create", "refusing", "abc", "--expiration-date", "tomorrow"},
		{"subscription", "create", "refusing", "abc", "--delivery-attribute-mapping", "X-A static"},
		{"subscription", "create", "refusing", "abc", "--subject-case-sensitive=perhaps"},
		{"subscription", "update", "refusing", "abc"},
		{"subscription", "update", "refusing", "abc", "--unset", "labels", "--labels", "a"},
		{"publish", "refusing", "--count", "2"},
		{"publish", "refusing", "--sample", "file"},
		{"publish", "refusing", "--type", "A", "--data", "{"},
		{"publish", "refusing", "/none"},
		{"listen", "--respond", "99"},
		{"listen", "--forward-to", "here"},
		{"listen", "--listen", "127.0.0.1:0", "--policy", "ga-2019"},
		{"tail", "--subscription", "abc"},
		{"apply", "-f", "/none"},
	} {
		require.NotEmpty(t, h.run(2, args...).stderr, args)
	}
}

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

func TestSubscriptionActions(t *testing.T) {
	t.Parallel()
	h := newDelivering(t)
	h.topic("acted")
	h.run(0, "subscription", "create", "acted", "billing", "--endpoint", agreeing(t)+"/acted?code=secret",
		"--event-delivery-schema", "CloudEventSchemaV1_0", "--signing", "true",
		"--delivery-attribute-mapping", "X-Secret static s3cret true", "--delivery-attribute-mapping",
		"X-Path dynamic data.path")
	require.Equal(t, "succeeded",
		rest.ValueAt(h.object("subscription", "validate", "acted", "billing"), "validation.state"))
	require.Regexp(t, `(?m)^state +Succeeded$`, h.run(0, "subscription", "validate", "acted", "billing").stdout)

	revealed := h.object("subscription", "reveal", "acted", "billing")
	require.Contains(t, revealed["endpointUrl"], "/acted?code=secret")
	require.Equal(t, "s3cret", rest.ValueAt(rest.Objects(revealed, "deliveryAttributeMappings")[0], "properties.value"))
	require.Regexp(t,
		`(?m)^endpoint +http\S+code=secret\nheader X-Secret +s3cret\nheader X-Path +from each event: data\.path$`,
		h.run(0, "subscription", "reveal", "acted", "billing").stdout)

	secrets := h.object("subscription", "signing-secrets", "acted", "billing")
	require.Len(t, secrets["value"], 1)
	own := "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	rotated := rest.Objects(h.object("subscription", "signing-secrets", "acted", "billing", "--rotate",
		"--previous-valid-for-hours", "1", "--secret-file", writtenFile(t, own+"\n")), "value")
	require.Equal(t, own, rotated[0]["secret"])
	require.Equal(t, rest.Objects(secrets, "value")[0]["secret"], rotated[1]["secret"])
	require.Regexp(t, `(?m)^whsec_\S+ +20\S+Z +-\n`+own+` +20\S+Z +20\S+Z$`,
		h.run(0, "subscription", "signing-secrets", "acted", "billing", "--rotate").stdout)
	h.run(2, "subscription", "signing-secrets", "acted", "billing", "--previous-valid-for-hours", "1")

	sent := h.object("subscription", "test-delivery", "acted", "billing")
	require.Equal(t, "postrider.TestEvent",
		one[string](h, "SELECT event_type FROM postrider.deliveries WHERE delivery_id = "+rest.TextAt(sent, "deliveryId")))
	require.Regexp(t, `^The sample event is delivery (\d+); see postrider delivery show \d+\.\n$`,
		h.run(0, "subscription", "test-delivery", "acted", "billing").stdout)
	require.Contains(t, h.run(1, "subscription", "probe", "acted", "billing").stderr, "probation")
	h.exec(`INSERT INTO postrider_internal.probations (probation_key, endpoint_base_url, since, until, cause, step,
		    failures_in_a_row)
		SELECT postrider_internal.probation_key(p.probation_scope, s.endpoint_hash, s.id), s.endpoint_base_url, now(),
		       now() + interval '5 minutes', 'Busy', 1, 10
		  FROM postrider_internal.event_subscriptions s JOIN postrider_internal.retry_policies p ON p.name = s.retry_policy
		  WHERE s.endpoint_base_url LIKE '%/acted' AND s.deleted_at IS NULL
		ON CONFLICT (probation_key) DO UPDATE SET since = excluded.since, until = excluded.until, cause = excluded.cause,
		    step = 1,
		    failures_in_a_row = 10`)
	require.Equal(t, "probation", rest.ValueAt(h.object("subscription", "probe", "acted", "billing"), "hold.reason"))
	require.Equal(t, "Event subscription billing of topic acted: one delivery is attempted now.\n",
		h.run(0, "subscription", "probe", "acted", "billing").stdout)
	require.Contains(t, one[[]string](h, "SELECT array_agg(action) FROM postrider.audit WHERE topic = 'acted'"),
		"subscription_probed")

	h.run(0, "subscription", "release", "acted", "billing")
	for _, verb := range []string{"probe", "validate", "test-delivery", "reveal", "signing-secrets"} {
		require.Contains(t, h.run(1, "subscription", verb, "acted", "none").stderr, `has no event subscription`, verb)
	}
	require.Equal(t, rest.Object{"topic": "acted", "name": "billing", "deleted": true},
		h.object("subscription", "delete", "acted", "billing", "--yes"))
}
