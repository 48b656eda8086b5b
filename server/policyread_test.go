package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/policy"
	v1 "postrider/server/v1"
)

// without is the JSON of a policy without its name and its version.
func without(t *testing.T, text string) map[string]any {
	t.Helper()
	var v map[string]any
	require.NoError(t, json.Unmarshal([]byte(text), &v))
	for _, member := range []string{"name", "builtIn", "isDefault", "etag"} {
		require.Contains(t, v, member)
		delete(v, member)
	}
	return v
}

// A policy that is read can be written under another name, and decides the same.
func TestPoliciesAreCopied(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for i, built := range policy.Builtins() {
		path := fmt.Sprintf("/v1/policies/copy-%d", i)
		original := b.manage(http.MethodGet, "/v1/policies/"+built.Name, "").body
		made := b.manage(http.MethodPut, path, original)
		require.Equal(t, false, made.json(http.StatusCreated)["builtIn"])
		require.Equal(t, false, made.json(http.StatusCreated)["isDefault"])
		require.Equal(t, without(t, original), without(t, made.body))
		read := b.manage(http.MethodGet, path, "")
		require.Equal(t, made.json(http.StatusCreated), read.json(http.StatusOK))
		require.Equal(t, without(t, read.body), without(t, b.manage(http.MethodPut, path, read.body).body),
			"put again as it is")

		own, ok := b.store.Cache.Snapshot().Policy(fmt.Sprintf("copy-%d", i))
		require.True(t, ok)
		requireSameCourses(t, &built, own)
	}
	require.Len(t, b.manage(http.MethodGet, "/v1/policies", "").json(http.StatusOK)["value"], 10)
}

func requireSameCourses(t *testing.T, x, y *policy.Policy) {
	t.Helper()
	for _, kind := range []policy.EndpointKind{policy.KindWebhook, policy.KindAzureResource} {
		for _, met := range []policy.Result{
			{Status: 200},
			{Status: 201},
			{Status: 400},
			{Status: 404},
			{Status: 413},
			{Status: 500},
			{Status: 503},
			{Err: policy.ErrorTimeout},
		} {
			for _, deadLetter := range []bool{true, false} {
				o := policy.ExplainOptions{Kind: kind, Result: met, DeadLetter: &deadLetter}
				want, err := policy.Explain(x, o)
				require.NoError(t, err)
				got, err := policy.Explain(y, o)
				require.NoError(t, err)
				want.Policy = y.Name // the only difference
				require.Equal(t, want, got, "%s %s", kind, met)
			}
		}
	}
}

// Absent settings take the defaults in openapi.yaml and docs/reference/settings.md.
func TestPolicyDefaults(t *testing.T) {
	t.Parallel()
	b := setup(t)
	standard := without(t, b.manage(http.MethodGet, "/v1/policies/"+policy.DefaultName, "").body)
	standard["source"], standard["lateResponseWindowInSeconds"], standard["retryWindowInSeconds"], standard["expiry"] = "",
		0.0, nil, "at_ttl"
	standard["deadLetterDefault"] = "rows"
	number := func(least, most int, value any) map[string]any {
		return map[string]any{"default": value, "least": float64(least), "most": float64(most)}
	}
	rest := func(scope string, trigger, first, most float64, byOutcome map[string]any) map[string]any {
		return map[string]any{
			"scope": scope, "trigger": trigger, "firstInSeconds": first, "maxInSeconds": most, "action": "hold",
			"byOutcome": byOutcome,
		}
	}
	for name, row := range map[string]struct {
		body string
		want map[string]any
	}{
		"nothing": {`{}`, nil},
		"null": {
			`{"source":null,"basis":null,"stepsInSeconds":null,"maxDeliveryAttempts":null,"probation":null,"statusTable":null}`,
			nil,
		},
		"no limit": {
			`{"maxDeliveryAttempts":{}}`, map[string]any{"maxDeliveryAttempts": number(1, 30, nil)},
		},
		"no limit, as a number": {
			`{"maxDeliveryAttempts":{"default":0,"most":7}}`, map[string]any{"maxDeliveryAttempts": number(1, 7, nil)},
		},
		"many attempts": {
			`{"maxDeliveryAttempts":{"default":1000}}`, map[string]any{"maxDeliveryAttempts": number(1, 1000, 1000.0)},
		},
		"a long life": {`{"eventTimeToLiveInMinutes":{"default":43200}}`, map[string]any{
			"eventTimeToLiveInMinutes": number(1, 43200, 43200.0),
		}},
		"a range of lives": {
			`{"eventTimeToLiveInMinutes":{"most":2000}}`, map[string]any{"eventTimeToLiveInMinutes": number(1, 2000, 1440.0)},
		},
		"a cap for Retry-After": {`{"retryAfterCapInSeconds":90.5}`, map[string]any{"retryAfterCapInSeconds": 90.5}},
		"no window":             {`{"retryWindowInSeconds":0}`, nil},
		"a rest of its own": {
			`{"probation":{"trigger":3}}`, map[string]any{"probation": rest("endpoint", 3, 300, 14400, map[string]any{})},
		},
		"no rest": {
			`{"probation":{"scope":"none"}}`, map[string]any{"probation": rest("none", 0, 0, 0, map[string]any{})},
		},
		"rest by the cause": {`{"probation":{"byOutcome":{"Busy":2.5}}}`, map[string]any{"probation": rest("endpoint",
			10, 0, 0, map[string]any{"Busy": 2.5})}},
		"steps of parts of seconds": {`{"stepsInSeconds":[1.25,1]}`, map[string]any{"stepsInSeconds": []any{1.25, 1.0}}},
		"a cell without a wait": {
			`{"statusTable":[{"endpointKind":"azure-resource","condition":"other","action":"retry"},{"endpointKind":"webhook",` +
				`"condition":"other","action":"never"}]}`,
			map[string]any{"statusTable": []any{
				map[string]any{"endpointKind": "webhook", "condition": "other", "action": "never", "minDelayInSeconds": 0.0},
				map[string]any{"endpointKind": "azure-resource", "condition": "other", "action": "retry", "minDelayInSeconds": 0.0},
			}},
		},
	} {
		b.manage(http.MethodPut, "/v1/policies/mine", row.body)
		got := without(t, b.manage(http.MethodGet, "/v1/policies/mine", "").body)
		for member, value := range standard {
			if changed, ok := row.want[member]; ok {
				value = changed
			}
			require.Equal(t, value, got[member], "%s: %s", name, member)
		}
		require.Len(t, got, len(standard))
	}
}

func TestPolicyRejections(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, row := range map[string]struct {
		body    string
		targets []string
		says    string
	}{
		"an unknown property": {
			`{"steps":[1]}`, []string{"steps"}, "steps is not a member; the members are: ackTimeoutInSeconds, basis,",
		},
		"unknown ones deep down": {
			`{"probation":{"first":1},"maxDeliveryAttempts":{"min":1}}`,
			[]string{"probation.first", "maxDeliveryAttempts.min"},
			"firstInSeconds",
		},
		"one in a table": {
			`{"statusTable":[{"status":"404"}]}`,
			[]string{"statusTable[0].status"},
			"the members are: action, condition, endpointKind, minDelayInSeconds",
		},
		"an outcome twice": {
			`{"probation":{"byOutcome":{"Busy":1,"Busy":2}}}`, []string{"probation.byOutcome.Busy"}, "appears twice",
		},
		"text for a number": {
			`{"ackTimeoutInSeconds":"30 s"}`, []string{"ackTimeoutInSeconds"}, "must be a number",
		},
		"no time to respond": {
			`{"ackTimeoutInSeconds":0.5}`, []string{"ackTimeoutInSeconds"}, "must be between 1 and 230",
		},
		"a long time to respond": {
			`{"ackTimeoutInSeconds":1e300}`, []string{"ackTimeoutInSeconds"}, "must be between 1 and 230",
		},
		"a late window before the end": {
			`{"lateResponseWindowInSeconds":10}`,
			[]string{"lateResponseWindowInSeconds"},
			"must be 0 or at least ackTimeoutInSeconds",
		},
		"no steps": {`{"stepsInSeconds":[]}`, []string{"stepsInSeconds"}, "must have 1 to 100 entries"},
		"101 steps": {
			`{"stepsInSeconds":[` + strings.Repeat("10,", 100) + `10]}`,
			[]string{"stepsInSeconds"},
			"must have 1 to 100 entries",
		},
		"a step of 8 days": {
			`{"stepsInSeconds":[10,691200]}`, []string{"stepsInSeconds[1]"}, "must be between 1 and 604800, not ",
		},
		"marks that go back": {
			`{"basis":"offset","stepsInSeconds":[10,5]}`, []string{"stepsInSeconds[1]"}, "must be more than the one before it",
		},
		"a negative tail":      {`{"tailInSeconds":-1e300}`, []string{"tailInSeconds"}, "must be between 1 and 604800"},
		"jitter of 60 %":       {`{"jitterFraction":0.6}`, []string{"jitterFraction"}, "must be between 0 and 0.5"},
		"a word for the basis": {`{"basis":"moon"}`, []string{"basis"}, "must be gap or offset"},
		"501 bytes of source": {
			`{"source":"` + strings.Repeat("a", 501) + `"}`, []string{"source"}, "must be 500 bytes or less",
		},
		"a life of 31 days": {
			`{"eventTimeToLiveInMinutes":{"default":44640}}`,
			[]string{"eventTimeToLiveInMinutes.default"},
			"must be between 1 and 43200, not 44640",
		},
		"1,001 attempts": {`{"maxDeliveryAttempts":{"most":1001}}`, []string{"maxDeliveryAttempts.most"}, "and 1000"},
		"half an attempt": {
			`{"maxDeliveryAttempts":{"most":1.5}}`, []string{"maxDeliveryAttempts.most"}, "must be a whole number",
		},
		"404 for a success": {
			`{"statusTable":[{"endpointKind":"webhook","condition":"404","action":"success"},{"endpointKind":"webhook",` +
				`"condition":"other","action":"retry"},{"endpointKind":"azure-resource","condition":"other","action":"retry"}]}`,
			[]string{"statusTable[0].action"},
			"must not be success: only a status from 200 to 299 can be",
		},
		"no table": {`{"statusTable":[]}`, []string{"statusTable", "statusTable"}, "webhook other"},
		"an empty cell": {
			`{"statusTable":[{}]}`,
			[]string{"statusTable[0].endpointKind", "statusTable", "statusTable"},
			"must be webhook or azure-resource",
		},
		"a cause of none": {
			`{"probation":{"byOutcome":{"Delivered":5}}}`,
			[]string{"probation.byOutcome.Delivered"},
			"the outcomes that do are BadRequest, Unauthorized,",
		},
		"no failures": {`{"probation":{"trigger":0}}`, []string{"probation.trigger"}, "must be 1 or more"},
		"a probation of a week": {
			`{"probation":{"maxInSeconds":604800}}`,
			[]string{"probation.maxInSeconds"},
			"must be between 0 and 86400, not 604800",
		},
		"what moves the cursor": {
			`{"source":"\u001b[2J"}`, []string{"source"}, "must have no control characters",
		},
		"no cap for Retry-After": {
			`{"retryAfterCapInSeconds":0}`, []string{"retryAfterCapInSeconds"}, "must be between 1 and 604800, not ",
		},
		"a cap of 8 days": {
			`{"retryAfterCapInSeconds":691200}`, []string{"retryAfterCapInSeconds"}, "must be between 1 and 604800, not ",
		},
		"all at once": {
			`{"expiry":"x","deadLetterDefault":"blob","deadLetterDelayInSeconds":-1,"deadLetterExportWindowInSeconds":1e9}`,
			[]string{"expiry", "deadLetterDefault", "deadLetterDelayInSeconds", "deadLetterExportWindowInSeconds"},
			"at_ttl",
		},
	} {
		rejection := b.manage(http.MethodPut, "/v1/policies/mine", row.body).rejected(400, "InvalidRequest")
		require.Equal(t, row.targets, targets(rejection), name)
		require.Contains(t, rejection.Message, row.targets[0], name)
		messages := ""
		for _, d := range rejection.Details {
			messages += d.Message + "\n"
		}
		require.Contains(t, messages, row.says, name)
		_, err := v1.ReadPolicy("mine", []byte(row.body))
		require.EqualError(t, err, strings.TrimSuffix(messages, "\n"), "the command line says the same")
	}
	for _, name := range []string{"ab", "postrider.mine", "-mine", "m%20e", strings.Repeat("a", 65), "a%00b"} {
		require.Equal(t, []string{"name"},
			targets(b.manage(http.MethodPut, "/v1/policies/"+name, "{}").rejected(400, "InvalidRequest")), name)
	}
	require.Equal(t, 5, b.count("SELECT count(*) FROM postrider_internal.retry_policies"))
	_, err := v1.ReadPolicy("mine", []byte(" \n"))
	require.EqualError(t, err, "the body must be a JSON object")
	_, err = v1.ReadPolicy("mine", []byte("[]"))
	require.ErrorContains(t, err, "must be a JSON object")
}

func TestPoliciesInUseAndBuiltIn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const path, subscription = "/v1/policies/mine", "/v1/topics/orders/subscriptions/billing"
	for _, method := range []string{http.MethodPut, http.MethodDelete} {
		rejection := b.manage(method, "/v1/policies/ga-2021", "{}").rejected(409, "PolicyBuiltIn")
		require.Equal(t, `retry policy "ga-2021" is built in and never changes: copy it under another name`,
			rejection.Message)
	}
	for _, name := range []string{"mine", "%00", "%ff"} {
		b.manage(http.MethodDelete, "/v1/policies/"+name, "").rejected(404, "NotFound")
	}
	b.topic("orders", "")
	b.manage(http.MethodPut, subscription, `{"endpointUrl":"https://example.com","retryPolicy":{"policy":"mine"}}`).
		rejected(400, "InvalidRequest")
	b.manage(http.MethodPut, path, "{}").json(http.StatusCreated)
	b.subscription("orders", "billing", `{"endpointUrl":"https://example.com","maxEventsPerBatch":2,`+
		`"retryPolicy":{"policy":"mine","maxDeliveryAttempts":30,"eventTimeToLiveInMinutes":1}}`)

	rejection := b.manage(http.MethodDelete, path, "").rejected(409, "PolicyInUse")
	require.Equal(t, `retry policy "mine" is used by event subscriptions (1): orders/billing`, rejection.Message)
	rejection = b.manage(http.MethodPut, path, `{"batching":false}`).rejected(409, "PolicyInUse")
	require.Equal(t, `batching must stay true: retry policy "mine" is used by event subscriptions (1): orders/billing`,
		rejection.Message)

	b.manage(http.MethodPut, path,
		`{"maxDeliveryAttempts":{"default":2,"most":5},"eventTimeToLiveInMinutes":{"least":60}}`).json(http.StatusOK)
	limits := b.manage(http.MethodGet, subscription, "").json(http.StatusOK)["retryPolicy"]
	require.Equal(t, map[string]any{"policy": "mine", "maxDeliveryAttempts": 5.0, "eventTimeToLiveInMinutes": 60.0},
		limits, "the limits in force")

	require.Equal(t, http.StatusNoContent, b.manage(http.MethodDelete, subscription, "").status)
	require.Equal(t, http.StatusNoContent, b.manage(http.MethodDelete, path, "").status)
	b.manage(http.MethodGet, path, "").rejected(404, "NotFound")
	rejection = b.manage(http.MethodPut, subscription,
		`{"endpointUrl":"https://example.com","retryPolicy":{"policy":"mine"}}`).rejected(400, "InvalidRequest")
	require.Equal(t, "retryPolicy.policy must be one of preview-2017, ga-2018, ga-2019, ga-2021, namespace-2023",
		rejection.Message)
}

// Of two changes to the same version, the second is rejected. So is the second of two creations.
func TestEtagsOfPolicies(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const path = "/v1/policies/mine"
	with := func(method, body string, headers ...string) response {
		return b.send(method, path, body, append(headers, "Authorization", "Bearer "+adminToken)...)
	}
	for _, match := range []string{"*", `"1"`} {
		with(http.MethodPut, `{}`, "If-Match", match).rejected(412, "PreconditionFailed")
	}
	made := with(http.MethodPut, `{}`, "If-None-Match", "*")
	first := made.json(http.StatusCreated)["etag"]
	require.Regexp(t, `^"[0-9]+"$`, first)
	require.Equal(t, first, made.header.Get("ETag"))
	require.Contains(t, with(http.MethodPut, `{}`, "If-None-Match", "*").rejected(412, "PreconditionFailed").Message,
		`retry policy "mine" exists already`)
	for range 2 {
		read := with(http.MethodGet, "")
		require.Equal(t, first, read.header.Get("ETag"))
		require.Equal(t, first, read.json(http.StatusOK)["etag"])
	}
	listed := b.manage(http.MethodGet, "/v1/policies", "").json(http.StatusOK)["value"].([]any)
	require.Equal(t, first, listed[len(listed)-1].(map[string]any)["etag"])

	changed := with(http.MethodPut, `{"stepsInSeconds":[7]}`, "If-Match", first.(string))
	second := changed.json(http.StatusOK)["etag"].(string)
	require.NotEqual(t, first, second)
	require.Equal(t, second, changed.header.Get("ETag"))
	for _, match := range []string{first.(string), "W/" + second, `"x"`} {
		require.Contains(t, with(http.MethodPut, `{}`, "If-Match", match).rejected(412, "PreconditionFailed").Message,
			"If-Match")
		with(http.MethodDelete, "", "If-Match", match).rejected(412, "PreconditionFailed")
	}
	require.Equal(t, []string{"If-Match"},
		targets(with(http.MethodPut, `{}`, "If-Match", "1").rejected(400, "InvalidRequest")))
	require.Equal(t, []string{"If-Match"},
		targets(with(http.MethodDelete, "", "If-Match", "1").rejected(400, "InvalidRequest")))
	read := with(http.MethodGet, "")
	require.Equal(t, second, read.header.Get("ETag"), "a rejected request changes nothing")
	require.Equal(t, []any{7.0}, read.json(http.StatusOK)["stepsInSeconds"])

	require.Equal(t, http.StatusNoContent, with(http.MethodDelete, "", "If-Match", second).status)
	with(http.MethodDelete, "", "If-Match", second).rejected(404, "NotFound")
	require.NotEqual(t, second, with(http.MethodPut, `{"stepsInSeconds":[7]}`).header.Get("ETag"),
		"made again, it is another")
}

func TestExamplePoliciesAreAccepted(t *testing.T) {
	t.Parallel()
	files, err := os.ReadDir("../deploy/examples/policies")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	b := setup(t)
	for _, file := range files {
		body, err := os.ReadFile("../deploy/examples/policies/" + file.Name())
		require.NoError(t, err)
		name := strings.TrimSuffix(file.Name(), ".json")
		b.manage(http.MethodPut, "/v1/policies/"+name, string(body)).json(http.StatusCreated)
	}
}
