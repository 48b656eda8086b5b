package server_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
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

func describe(t *testing.T, p *policy.Policy) string {
	t.Helper()
	text, err := json.Marshal(v1.DescribePolicy(p, 0))
	require.NoError(t, err)
	return string(text)
}

func TestPolicies(t *testing.T) {
	t.Parallel()
	s := setup(t)
	list := s.get("/v1/policies").json(200)["value"].([]any)
	var names []string
	for i, built := range policy.Builtins() {
		shown := list[i].(map[string]any)
		names = append(names, shown["name"].(string))
		require.Equal(t, built.Name == policy.DefaultName, shown["isDefault"])
		require.Equal(t, built.DefaultMaxAttempts == 0, shown["maxDeliveryAttempts"].(map[string]any)["default"] == nil,
			"no limit is null")
		require.Equal(t, shown, s.get("/v1/policies/"+built.Name).json(200))
		require.NotEmpty(t, shown["etag"])
		delete(shown, "etag") // which the program's own list has not
		var want map[string]any
		require.NoError(t, json.Unmarshal([]byte(describe(t, &built)), &want))
		require.Equal(t, want, shown)
	}
	require.True(t, slices.Contains(names, policy.DefaultName))
	s.get("/v1/policies/ga-2020").rejected(404, "NotFound")
}

// A policy that is read can be written under another name, and decides the same.
func TestPoliciesAreCopied(t *testing.T) {
	t.Parallel()
	s := setup(t)
	for i, built := range policy.Builtins() {
		path := fmt.Sprintf("/v1/policies/copy-%d", i)
		original := s.get("/v1/policies/" + built.Name).body
		made := s.put(path, original)
		require.Equal(t, false, made.json(201)["builtIn"])
		require.Equal(t, false, made.json(201)["isDefault"])
		require.Equal(t, without(t, original), without(t, made.body))
		read := s.get(path)
		require.Equal(t, made.json(201), read.json(200))
		require.Equal(t, without(t, read.body), without(t, s.put(path, read.body).body), "put again as it is")

		own, ok := s.store.Cache.Snapshot().Policy(fmt.Sprintf("copy-%d", i))
		require.True(t, ok)
		want := built.Clone()
		want.Name, want.BuiltIn = own.Name, false
		require.Equal(t, describe(t, &want), describe(t, own))
	}
	require.Len(t, s.get("/v1/policies").json(200)["value"], 10)
}

// Absent settings take the defaults in openapi.yaml and docs/reference/settings.md.
func TestPolicyDefaults(t *testing.T) {
	t.Parallel()
	s := setup(t)
	standard := without(t, s.get("/v1/policies/"+policy.DefaultName).body)
	standard["source"], standard["lateResponseWindowInSeconds"], standard["retryWindowInSeconds"], standard["expiry"] = "",
		0.0, nil, "at_ttl"
	standard["deadLetterDefault"] = "rows"
	const (
		endpointProbation = `{"scope":"endpoint","trigger":10,"firstInSeconds":300,"maxInSeconds":14400,"action":"hold",` +
			`"byOutcome":{}}`
		azure   = `{"endpointKind":"azure-resource","condition":"other","action":"retry"`
		webhook = `{"endpointKind":"webhook","condition":"other","action":"never"`
	)
	for body, changed := range map[string]string{
		`{}`: `{}`,
		`{"source":null,"basis":null,"stepsInSeconds":null,"maxDeliveryAttempts":null,"probation":null,` +
			`"statusTable":null}`: `{}`,
		`{"maxDeliveryAttempts":{}}`:                     `{"maxDeliveryAttempts":{"default":null,"least":1,"most":30}}`,
		`{"maxDeliveryAttempts":{"default":0,"most":7}}`: `{"maxDeliveryAttempts":{"default":null,"least":1,"most":7}}`,
		`{"maxDeliveryAttempts":{"default":1000}}`:       `{"maxDeliveryAttempts":{"default":1000,"least":1,"most":1000}}`,
		`{"eventTimeToLiveInMinutes":{"default":43200}}`: `{"eventTimeToLiveInMinutes":{"default":43200,"least":1,` +
			`"most":43200}}`,
		`{"eventTimeToLiveInMinutes":{"most":2000}}`: `{"eventTimeToLiveInMinutes":{"default":1440,"least":1,"most":2000}}`,
		`{"retryAfterCapInSeconds":90.5}`:            `{"retryAfterCapInSeconds":90.5}`,
		`{"retryWindowInSeconds":0}`:                 `{}`,
		`{"stepsInSeconds":[1.25,1]}`:                `{"stepsInSeconds":[1.25,1]}`,
		`{"probation":{"trigger":3}}`: `{"probation":` +
			strings.Replace(endpointProbation, "10", "3", 1) + `}`,
		`{"probation":{"scope":"none"}}`: `{"probation":{"scope":"none","trigger":0,"firstInSeconds":0,"maxInSeconds":0,` +
			`"action":"hold","byOutcome":{}}}`,
		`{"probation":{"byOutcome":{"Busy":2.5}}}`: `{"probation":{"scope":"endpoint","trigger":10,"firstInSeconds":0,` +
			`"maxInSeconds":0,"action":"hold","byOutcome":{"Busy":2.5}}}`,
		`{"statusTable":[` + azure + `},` + webhook + `}]}`: `{"statusTable":[` + webhook + `,"minDelayInSeconds":0},` +
			azure +
			`,"minDelayInSeconds":0}]}`,
	} {
		s.put("/v1/policies/mine", body)
		want := maps.Clone(standard)
		require.NoError(t, json.Unmarshal([]byte(changed), &want))
		require.Equal(t, want, without(t, s.get("/v1/policies/mine").body), body)
	}
}

// package policy has the rules, and internal/catalog/spec the ranges. The command line reports the same mistakes.
func TestPolicyRejections(t *testing.T) {
	t.Parallel()
	s := setup(t)
	for body, want := range map[string][2]string{ // the targets and a message
		`{"steps":[1]}`: {"steps", "steps is not a member; the members are: ackTimeoutInSeconds, basis,"},
		`{"probation":{"first":1},"maxDeliveryAttempts":{"min":1}}`: {
			"probation.first maxDeliveryAttempts.min", "firstInSeconds",
		},
		`{"statusTable":[{"status":"404"}]}`: {
			"statusTable[0].status", "the members are: action, condition, endpointKind, minDelayInSeconds",
		},
		`{"probation":{"byOutcome":{"Busy":1,"Busy":2}}}`: {"probation.byOutcome.Busy", "appears twice"},
		`{"ackTimeoutInSeconds":"30 s"}`:                  {"ackTimeoutInSeconds", "must be a number"},
		`{"ackTimeoutInSeconds":0.5}`:                     {"ackTimeoutInSeconds", "must be between 1 and 230"},
		`{"ackTimeoutInSeconds":1e300}`:                   {"ackTimeoutInSeconds", "must be between 1 and 230"},
		`{"tailInSeconds":-1e300}`:                        {"tailInSeconds", "must be between 1 and 604800"},
		`{"lateResponseWindowInSeconds":10}`: {
			"lateResponseWindowInSeconds", "must be 0 or at least ackTimeoutInSeconds",
		},
		`{"stepsInSeconds":[]}`: {"stepsInSeconds", "must have 1 to 100 entries"},
		`{"stepsInSeconds":[` + strings.Repeat("10,", 100) + `10]}`: {"stepsInSeconds", "must have 1 to 100 entries"},
		`{"stepsInSeconds":[10,691200]}`: {
			"stepsInSeconds[1]", "must be between 1 and 604800, not ",
		},
		`{"basis":"offset","stepsInSeconds":[10,5]}`: {
			"stepsInSeconds[1]", "must be more than the one before it",
		},
		`{"basis":"moon"}`: {"basis", "must be gap or offset"},
		`{"source":"` + strings.Repeat("a", 501) + `"}`: {"source", "must be 500 bytes or less"},
		`{"source":"\u001b[2J"}`:                        {"source", "must have no control characters"},
		`{"eventTimeToLiveInMinutes":{"default":44640}}`: {
			"eventTimeToLiveInMinutes.default", "must be between 1 and 43200, not 44640",
		},
		`{"maxDeliveryAttempts":{"most":1001}}`: {"maxDeliveryAttempts.most", "and 1000"},
		`{"maxDeliveryAttempts":{"most":1.5}}`:  {"maxDeliveryAttempts.most", "must be a whole number"},
		`{"statusTable":[{"endpointKind":"webhook","condition":"404","action":"success"},{"endpointKind":"webhook",` +
			`"condition":"other","action":"retry"},{"endpointKind":"azure-resource","condition":"other","action":"retry"}]}`: {
			"statusTable[0].action", "must not be success: only a status from 200 to 299 can be",
		},
		`{"statusTable":[]}`:   {"statusTable statusTable", "webhook other"},
		`{"statusTable":[{}]}`: {"statusTable[0].endpointKind statusTable statusTable", "must be webhook or azure-resource"},
		`{"probation":{"byOutcome":{"Delivered":5}}}`: {
			"probation.byOutcome.Delivered", "the outcomes that do are BadRequest, Unauthorized,",
		},
		`{"probation":{"trigger":0}}`: {"probation.trigger", "must be 1 or more"},
		`{"expiry":"x","deadLetterDefault":"blob","deadLetterDelayInSeconds":-1,"deadLetterExportWindowInSeconds":1e9}`: {
			"expiry deadLetterDefault deadLetterDelayInSeconds deadLetterExportWindowInSeconds", "at_ttl",
		},
	} {
		rejection := s.put("/v1/policies/mine", body).rejected(400, "InvalidRequest")
		require.Equal(t, want[0], strings.Join(targets(rejection), " "), body)
		require.Contains(t, rejection.Message, rejection.Details[0].Target, body)
		messages := ""
		for _, d := range rejection.Details {
			messages += d.Message + "\n"
		}
		require.Contains(t, messages, want[1], body)
		_, err := v1.ReadPolicy("mine", []byte(body))
		require.EqualError(t, err, strings.TrimSuffix(messages, "\n"))
	}
	for _, name := range []string{"ab", "postrider.mine", "m%20e", "a%00b"} {
		rejection := s.put("/v1/policies/"+name, "{}").rejected(400, "InvalidRequest")
		require.Equal(t, []string{"name"}, targets(rejection), name)
	}
	require.Equal(t, 5, s.count("SELECT count(*) FROM postrider_internal.retry_policies"))
	for _, body := range []string{" \n", "[]"} {
		_, err := v1.ReadPolicy("mine", []byte(body))
		require.ErrorContains(t, err, "must be a JSON object")
	}
}

func TestPoliciesInUseAndBuiltIn(t *testing.T) {
	t.Parallel()
	s := setup(t)
	const path, subscription = "/v1/policies/mine", billing
	for _, method := range []string{http.MethodPut, http.MethodDelete} {
		rejection := s.manage(method, "/v1/policies/ga-2021", "{}").rejected(409, "PolicyBuiltIn")
		require.Equal(t, `retry policy "ga-2021" is built in and never changes: copy it under another name`,
			rejection.Message)
	}
	for _, name := range []string{"mine", "%00", "%ff"} {
		s.delete("/v1/policies/"+name).rejected(404, "NotFound")
	}
	s.topic("orders", "")
	s.put(subscription, `{"endpointUrl":"https://example.com","retryPolicy":{"policy":"mine"}}`).
		rejected(400, "InvalidRequest")
	s.put(path, "{}").json(201)
	s.subscription("orders", "billing", `{"endpointUrl":"https://example.com","maxEventsPerBatch":2,`+
		`"retryPolicy":{"policy":"mine","maxDeliveryAttempts":30,"eventTimeToLiveInMinutes":1}}`)

	rejection := s.delete(path).rejected(409, "PolicyInUse")
	require.Equal(t, `retry policy "mine" is used by event subscriptions (1): orders/billing`, rejection.Message)
	rejection = s.put(path, `{"batching":false}`).rejected(409, "PolicyInUse")
	require.Equal(t, `batching must stay true: retry policy "mine" is used by event subscriptions (1): orders/billing`,
		rejection.Message)

	s.put(path, `{"maxDeliveryAttempts":{"default":2,"most":5},"eventTimeToLiveInMinutes":{"least":60}}`).json(200)
	limits := s.get(subscription).json(200)["retryPolicy"]
	require.Equal(t, map[string]any{"policy": "mine", "maxDeliveryAttempts": 5.0, "eventTimeToLiveInMinutes": 60.0},
		limits, "the limits in force")

	s.delete(subscription).is(204)
	s.delete(path).is(204)
	s.get(path).rejected(404, "NotFound")
	rejection = s.put(subscription, `{"endpointUrl":"https://example.com","retryPolicy":{"policy":"mine"}}`).
		rejected(400, "InvalidRequest")
	require.Equal(t, "retryPolicy.policy must be one of preview-2017, ga-2018, ga-2019, ga-2021, namespace-2023",
		rejection.Message)
}

func TestExamplePoliciesAreAccepted(t *testing.T) {
	t.Parallel()
	files, err := os.ReadDir("../deploy/examples/policies")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		body, err := os.ReadFile("../deploy/examples/policies/" + file.Name())
		require.NoError(t, err)
		_, err = v1.ReadPolicy(strings.TrimSuffix(file.Name(), ".json"), body)
		require.NoError(t, err, file.Name())
	}
}
