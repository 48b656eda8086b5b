package cli_test

import (
	"net/http"
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

	const put = "subscription create subscribed all-flags --endpoint-validation skip --endpoint "
	stale := " --if-match " + strings.Trim(rest.TextAt(shown, "etag"), `"`)
	for _, line := range []string{
		put + endpoint, "subscription update subscribed all-flags --labels c",
		"subscription delete subscribed all-flags --yes",
	} {
		require.Contains(t, h.line(1, line+stale), "is in none of the versions that If-Match names")
	}
	latest := h.object("subscription", "update", "subscribed", "all-flags", "--labels", "c", "--if-match",
		rest.TextAt(replaced, "etag"))
	h.line(0, put+endpoint+" --if-match "+rest.TextAt(latest, "etag"))

	for name, limit := range map[string]string{"limited": "--rate-limit 5", "slower": "--rate-limit 1 --rate-period 60"} {
		h.line(0, "subscription create subscribed "+name+" --endpoint-validation skip --rate-scope endpoint "+limit+
			" --endpoint "+h.url)
	}
	const lower = "lower limit of its host 1 request/min"
	require.Contains(t, words(h.line(0, "subscription show subscribed limited")), lower)
	require.NotContains(t, words(h.line(0, "subscription show subscribed slower")), lower)

	require.Regexp(t, `(?m)^subscribed +all-flags +WebHook +http`, h.line(0, "subscription list subscribed"))
	require.Contains(t, h.line(0, "subscription list"), "all-flags")
	require.Equal(t, "Event subscription all-flags of topic subscribed was deleted.\n",
		h.line(0, "subscription delete subscribed all-flags --yes"))
}

// The first secret can be that of a file.
func TestSubscriptionSignsWithAGivenSecret(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.topic("signed")
	create := func(name, secret string, flags ...string) []string {
		return append([]string{
			"subscription", "create", "signed", name, "--endpoint", "http://127.0.0.1:1/", "--endpoint-validation", "skip",
			"--signing-secret-file", writtenFile(t, secret),
		}, flags...)
	}
	const own = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	created := h.object(create("billing", own+"\n")...)
	require.Equal(t, true, rest.ValueAt(created, "signing.enabled"))
	secrets := rest.Objects(h.object("subscription", "signing-secrets", "signed", "billing"), "value")
	require.Len(t, secrets, 1)
	require.Equal(t, own, secrets[0]["secret"])

	for _, wrong := range [][]string{create("audit", "whsec_short"), create("audit", own, "--signing", "false")} {
		require.Contains(t, h.run(2, wrong...).stderr, "signing.secret ")
	}
	require.Contains(t, h.line(1, "subscription show signed audit"), "has no event subscription")
	h.run(0, create("billing", own, "--replace")...)
	const other = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD0Pt9fn2fNgs="
	rejected := h.run(2, create("billing", other, "--replace")...).stderr
	require.Contains(t, rejected, "signing.secret is not the newest secret: replace that one with rotateSigningSecret")
	require.NotContains(t, rejected, other)
	require.NotContains(t, h.run(0, "subscription", "show", "signed", "billing", "-o", "json").stdout, "whsec_")
	require.NotContains(t, h.run(0, "audit", "list", "-o", "json").stdout, "whsec_")
}

func TestSubscriptionActions(t *testing.T) {
	t.Parallel()
	h := newDelivering(t)
	h.topic("acted")
	h.run(0, "subscription", "create", "acted", "billing", "--endpoint", busyEndpoint(t)+"acted?code=secret",
		"--event-delivery-schema", "CloudEventSchemaV1_0", "--signing", "true",
		"--delivery-attribute-mapping", "X-Secret static s3cret true", "--delivery-attribute-mapping",
		"X-Path dynamic data.path")
	require.Equal(t, "succeeded",
		rest.ValueAt(h.object("subscription", "validate", "acted", "billing"), "validation.state"))
	require.Regexp(t, `(?m)^state +Succeeded$`, h.line(0, "subscription validate acted billing"))

	revealed := h.object("subscription", "reveal", "acted", "billing")
	require.Contains(t, revealed["endpointUrl"], "/acted?code=secret")
	require.Equal(t, "s3cret", rest.ValueAt(rest.Objects(revealed, "deliveryAttributeMappings")[0], "properties.value"))
	require.Regexp(t,
		`(?m)^endpoint +http\S+code=secret\nheader X-Secret +s3cret\nheader X-Path +from each event: data\.path$`,
		h.line(0, "subscription reveal acted billing"))

	secrets := h.object("subscription", "signing-secrets", "acted", "billing")
	require.Len(t, secrets["value"], 1)
	own := "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	rotated := rest.Objects(h.object("subscription", "signing-secrets", "acted", "billing", "--rotate",
		"--previous-valid-for-hours", "1", "--secret-file", writtenFile(t, own+"\n")), "value")
	require.Equal(t, own, rotated[0]["secret"])
	require.Equal(t, rest.Objects(secrets, "value")[0]["secret"], rotated[1]["secret"])
	require.Regexp(t, `(?m)^whsec_\S+ +20\S+Z +-\n`+own+` +20\S+Z +20\S+Z$`,
		h.run(0, "subscription", "signing-secrets", "acted", "billing", "--rotate").stdout)
	sent := h.object("subscription", "test-delivery", "acted", "billing")
	require.Equal(t, "postrider.TestEvent",
		one[string](h, "SELECT event_type FROM postrider.deliveries WHERE delivery_id = "+rest.TextAt(sent, "deliveryId")))
	require.Regexp(t, `^The sample event is delivery (\d+); see postrider delivery show \d+\.\n$`,
		h.line(0, "subscription test-delivery acted billing"))
	require.Contains(t, h.line(1, "subscription probe acted billing"), "probation")
	h.Become(t, 2, "SELECT count(*) FROM postrider.delivery_attempts")
	h.Exec(t, "DELETE FROM postrider_internal.probations")
	h.Rest(t, "billing")
	require.Equal(t, "probation", rest.ValueAt(h.object("subscription", "probe", "acted", "billing"), "hold.reason"))
	require.Equal(t, "Event subscription billing of topic acted: one delivery is attempted now.\n",
		h.line(0, "subscription probe acted billing"))
	require.Contains(t, one[[]string](h, "SELECT array_agg(action) FROM postrider.audit WHERE topic = 'acted'"),
		"subscription_probed")

	for _, verb := range []string{"probe", "validate", "test-delivery", "reveal", "signing-secrets"} {
		require.Contains(t, h.line(1, "subscription "+verb+" acted none"), `has no event subscription`, verb)
	}
	require.Equal(t, rest.Object{"topic": "acted", "name": "billing", "deleted": true},
		h.object("subscription", "delete", "acted", "billing", "--yes"))
}

func TestAzureCommandLinesAreHelped(t *testing.T) {
	t.Parallel()
	for flags, says := range map[string]string{
		"--name billing --source-resource-id /subscriptions/1": "the topic and the event subscription are the verb's two",
		"orders billing --source-resource-id /subscriptions/1": "the topic is the verb's first argument",
		"orders billing --resource-id /subscriptions/1":        "--resource-id: a flag of the Azure CLI; here, the topic is",
		"orders billing --delivery-identity systemassigned":    "--oauth2-token-url",
		"orders billing more --labels a":                       "unexpected argument more",
		"orders billing --labels a b --what":                   "unexpected argument b",
		"orders billing --advanced-filter data.n NumberIn x":   `"data.n NumberIn x": NumberIn takes numbers, not "x"`,
	} {
		rejected := postrider(t, append([]string{"subscription", "create"}, strings.Fields(flags)...)...)
		require.Equal(t, 2, rejected.code, flags)
		require.Contains(t, rejected.stderr, says)
		require.Empty(t, rejected.stdout, "what a pipe gets is no usage")
	}
	require.NotContains(t, postrider(t, "subscription", "create", "--help").stdout, "--source-resource-id")
}

// Lists as az eventgrid has them: the words after the flag are its values.
func TestAzuresLists(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.run(0, strings.Fields("topic create azure-lists --input-schema customeventschema --input-mapping-fields id=nr "+
		"eventType=meta.kind --input-mapping-default-values subject=a dataVersion=1.0")...)
	require.JSONEq(t, `{"id":{"sourceField":"nr"},"eventType":{"sourceField":"meta.kind"},
		"subject":{"defaultValue":"a"},"dataVersion":{"defaultValue":"1.0"}}`,
		mustJSON(t, rest.ValueAt(h.object("topic", "show", "azure-lists"), "inputSchemaMapping.properties")))
	h.run(0, "subscription", "create", "azure-lists", "billing", "--endpoint", h.url+"/healthz", "--endpoint-validation",
		"skip", "--included-event-types", "A", "B,C", "--labels", "a", "b", "--advanced-filter", "data.city", "StringIn",
		"New York", `it's "quoted"`, "--advanced-filter", "data.n", "NumberIn", "-5", "7",
		"--delivery-attribute-mapping", "X-S", "static", "two words", "true",
		"--delivery-attribute-mapping", "X-D", "dynamic", "data.city")
	shown := h.object("subscription", "show", "azure-lists", "billing")
	for path, want := range map[string]string{
		"filter.includedEventTypes": `["A","B","C"]`, "labels": `["a","b"]`,
		"filter.advancedFilters": `[{"operatorType":"StringIn","key":"data.city","values":["New York","it's \"quoted\""]},` +
			`{"operatorType":"NumberIn","key":"data.n","values":[-5,7]}]`,
	} {
		require.JSONEq(t, want, mustJSON(t, rest.ValueAt(shown, path)), path)
	}
	headers := rest.Objects(h.object("subscription", "reveal", "azure-lists", "billing"), "deliveryAttributeMappings")
	require.JSONEq(t, `{"value":"two words","isSecret":true}`, mustJSON(t, headers[0]["properties"]))
	require.JSONEq(t, `{"sourceField":"data.city"}`, mustJSON(t, headers[1]["properties"]))
}

func TestTopicVerbs(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	create := strings.Fields("topic create topics-a --input-schema cloudeventschemav1_0 " +
		"--duplicate-detection-window-in-minutes 5")
	made := h.object(create...)
	require.NotEmpty(t, made["key1"])
	require.Nil(t, h.object(create...)["key1"], "keys are shown once")
	shown := h.object("topic", "show", "topics-a")
	require.JSONEq(t, h.manage(http.StatusOK, http.MethodGet, "/v1/topics/topics-a", ""), mustJSON(t, shown),
		"JSON is the API's")
	require.Regexp(t, `(?m)^topics-a +basic +CloudEventSchemaV1_0 +/topics/topics-a/api/events `,
		h.line(0, "topic list"))

	keys := h.object("topic", "keys", "topics-a")
	require.Equal(t, made["key1"], keys["key1"])
	renewed := h.object("topic", "keys", "topics-a", "--renew", "key2")
	require.Equal(t, keys["key1"], renewed["key1"])
	require.NotEqual(t, keys["key2"], renewed["key2"])

	const custom = "topic create topics-b --input-schema customeventschema --input-mapping-fields eventType=kind,id=nr " +
		"--input-mapping-default-values subject=all"
	h.line(0, custom)
	require.JSONEq(t, `{"eventType":{"sourceField":"kind"},"id":{"sourceField":"nr"},"subject":{"defaultValue":"all"}}`,
		mustJSON(t, rest.ValueAt(h.object("topic", "show", "topics-b"), "inputSchemaMapping.properties")))
	stale := rest.TextAt(h.object("topic", "show", "topics-b"), "etag")
	h.line(0, custom+" --duplicate-detection-window-in-minutes 5 --if-match "+stale)
	require.Contains(t, h.line(1, "topic delete topics-b --yes --if-match "+stale),
		`"topics-b" is in none of the versions that If-Match names`)
	require.Equal(t, "Topic topics-b was deleted.\n", h.line(0, "topic delete topics-b --yes --if-match *"))
	h.topic("topics-c")
	require.Equal(t, rest.Object{"name": "topics-c", "deleted": true}, h.object("topic", "delete", "topics-c", "--yes"))
	require.Equal(t, "postrider: topic \"topics-b\" does not exist\n", h.line(1, "topic show topics-b"))
}
