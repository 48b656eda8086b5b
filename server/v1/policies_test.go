package v1_test

import (
	"encoding/json"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/policy"
	v1 "postrider/server/v1"
)

// Each field of a policy has its own place in the JSON: a policy that is written as it was read is the same. Every
// field differs from what absent settings are. Holds by outcome exclude the first and the longest hold.
func TestPoliciesAreReadAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	const second, minute = policy.Seconds(time.Second), policy.Minutes(time.Minute)
	own := policy.Policy{
		Name: "mine", Source: "a page", AckTimeout: 11 * second, LateResponseWindow: 90500 * second / 1000,
		Basis: policy.BasisOffset, Steps: []policy.Seconds{1250 * second / 1000, 13 * second}, Tail: 14 * second,
		RetryWindow: policy.OptionalSeconds(15 * second), JitterFraction: 0.16, JitterCap: 17 * second,
		Expiry:          policy.ExpiryNextAttempt,
		TTL:             policy.Range[policy.Minutes]{Default: 19 * minute, Least: 18 * minute, Most: 20 * minute},
		MaxAttempts:     policy.Range[int]{Default: 22, Least: 21, Most: 23},
		HonorRetryAfter: true, RetryAfterCap: 24 * second, RetryTransportErrors: false,
		DeadLetterDefault: policy.DeadLetterNone, DeadLetterDelay: 25 * second, DeadLetterExportWindow: 26 * second,
		Batching: false,
		Probation: policy.Probation{
			Scope: policy.ProbationEventSubscription, Trigger: 27, First: 28 * second, Max: 29 * second,
			Action: policy.ProbationDocumented,
		},
		Cells: []policy.Cell{
			{EndpointKind: "webhook", Condition: "200", Action: "success", MinDelay: 0},
			{EndpointKind: "webhook", Condition: "404", Action: "never", MinDelay: 0},
			{EndpointKind: "webhook", Condition: "other", Action: "retry", MinDelay: 31 * second},
			{EndpointKind: "azure-resource", Condition: "204", Action: "success", MinDelay: 0},
			{EndpointKind: "azure-resource", Condition: "other", Action: "retry", MinDelay: 32 * second},
		},
	}
	const text = `{"name":"mine","builtIn":false,"isDefault":false,"source":"a page","ackTimeoutInSeconds":11,
		"lateResponseWindowInSeconds":90.5,"basis":"offset","stepsInSeconds":[1.25,13],"tailInSeconds":14,
		"retryWindowInSeconds":15,"jitterFraction":0.16,"jitterCapInSeconds":17,"expiry":"next_attempt",
		"eventTimeToLiveInMinutes":{"default":19,"least":18,"most":20},
		"maxDeliveryAttempts":{"default":22,"least":21,"most":23},"honorRetryAfter":true,"retryAfterCapInSeconds":24,
		"retryTransportErrors":false,"deadLetterDefault":"none","deadLetterDelayInSeconds":25,
		"deadLetterExportWindowInSeconds":26,"batching":false,"probation":{"scope":"event_subscription","trigger":27,
		"firstInSeconds":28,"maxInSeconds":29,"action":"documented","byOutcome":{}},"statusTable":[
		{"endpointKind":"webhook","condition":"200","action":"success","minDelayInSeconds":0},
		{"endpointKind":"webhook","condition":"404","action":"never","minDelayInSeconds":0},
		{"endpointKind":"webhook","condition":"other","action":"retry","minDelayInSeconds":31},
		{"endpointKind":"azure-resource","condition":"204","action":"success","minDelayInSeconds":0},
		{"endpointKind":"azure-resource","condition":"other","action":"retry","minDelayInSeconds":32}]}`
	same := func(p *policy.Policy, text string) {
		t.Helper()
		require.JSONEq(t, text, describe(t, p))
		read, err := v1.ReadPolicy("mine", []byte(text))
		require.NoError(t, err)
		require.Equal(t, p, read)
	}
	same(&own, text)
	byOutcome := own.Clone()
	byOutcome.Probation.First, byOutcome.Probation.Max = 0, 0
	byOutcome.Probation.ByOutcome = policy.Holds{"Busy": 30 * second}
	same(&byOutcome, strings.NewReplacer(`"firstInSeconds":28,"maxInSeconds":29`, `"firstInSeconds":0,"maxInSeconds":0`,
		`"byOutcome":{}`, `"byOutcome":{"Busy":30}`).Replace(text))
	own.Probation.ByOutcome = byOutcome.Probation.ByOutcome

	defaults, err := v1.ReadPolicy("default", []byte("{}"))
	require.NoError(t, err)
	for _, pair := range [][2]reflect.Value{
		{reflect.ValueOf(own), reflect.ValueOf(*defaults)},
		{reflect.ValueOf(own.Probation), reflect.ValueOf(defaults.Probation)},
	} {
		for i := range pair[0].NumField() {
			field := pair[0].Type().Field(i)
			if field.IsExported() && field.Name != "BuiltIn" {
				require.NotEqual(t, pair[1].Field(i).Interface(), pair[0].Field(i).Interface(), field.Name)
			}
		}
	}
	var empty map[string]any
	require.NoError(t, json.Unmarshal([]byte(describe(t, &policy.Policy{})), &empty))
	require.Equal(t, []any{[]any{}, []any{}}, []any{empty["stepsInSeconds"], empty["statusTable"]}, "never null")
}

func describe(t *testing.T, p *policy.Policy) string {
	t.Helper()
	text, err := json.Marshal(v1.DescribePolicy(p, 0))
	require.NoError(t, err)
	return string(text)
}

// Absent settings take the defaults in openapi.yaml and docs/reference/settings.md.
func TestPolicyDefaults(t *testing.T) {
	t.Parallel()
	read := func(text string) (members map[string]any) {
		require.NoError(t, json.Unmarshal([]byte(text), &members))
		return members
	}
	standard, _ := policy.Builtin(policy.DefaultName)
	want := read(describe(t, &standard))
	want["name"], want["builtIn"], want["isDefault"], want["source"] = "mine", false, false, ""
	want["lateResponseWindowInSeconds"], want["retryWindowInSeconds"], want["expiry"] = 0.0, nil, "at_ttl"
	want["deadLetterDefault"] = "rows"
	const (
		probation = `{"scope":"endpoint","trigger":10,"firstInSeconds":300,"maxInSeconds":14400,"action":"hold",` +
			`"byOutcome":{}}`
		azure   = `{"endpointKind":"azure-resource","condition":"other","action":"retry"`
		webhook = `{"endpointKind":"webhook","condition":"other","action":"never"`
		success = `"condition":"200","action":"success","minDelayInSeconds":0},`
		both    = `{"endpointKind":"webhook",` + success + `{"endpointKind":"azure-resource",` + success
	)
	for body, changed := range map[string]string{
		`{}`: `{}`,
		`{"source":null,"basis":null,"stepsInSeconds":null,"maxDeliveryAttempts":null,"probation":null,` +
			`"statusTable":null}`: `{}`,
		`{"maxDeliveryAttempts":{}}`:                     `{"maxDeliveryAttempts":{"default":null,"least":1,"most":30}}`,
		`{"maxDeliveryAttempts":{"default":0,"most":7}}`: `{"maxDeliveryAttempts":{"default":null,"least":1,"most":7}}`,
		`{"maxDeliveryAttempts":{"default":1000}}`:       `{"maxDeliveryAttempts":{"default":1000,"least":1,"most":1000}}`,
		`{"eventTimeToLiveInMinutes":{"most":2000}}`: `{"eventTimeToLiveInMinutes":{"default":1440,"least":1,` +
			`"most":2000}}`,
		`{"retryWindowInSeconds":0}`:  `{}`,
		`{"stepsInSeconds":[1.25,1]}`: `{"stepsInSeconds":[1.25,1]}`,
		`{"probation":{"trigger":3}}`: `{"probation":` + strings.Replace(probation, "10", "3", 1) + `}`,
		`{"probation":{"scope":"none"}}`: `{"probation":{"scope":"none","trigger":0,"firstInSeconds":0,"maxInSeconds":0,` +
			`"action":"hold","byOutcome":{}}}`,
		`{"probation":{"byOutcome":{"Busy":2.5}}}`: `{"probation":{"scope":"endpoint","trigger":10,"firstInSeconds":0,` +
			`"maxInSeconds":0,"action":"hold","byOutcome":{"Busy":2.5}}}`,
		`{"statusTable":[` + both + azure + `},` + webhook + `}]}`: `{"statusTable":[{"endpointKind":"webhook",` + success +
			webhook + `,"minDelayInSeconds":0},{"endpointKind":"azure-resource",` + success + azure +
			`,"minDelayInSeconds":0}]}`,
	} {
		p, err := v1.ReadPolicy("mine", []byte(body))
		require.NoError(t, err, body)
		expected := maps.Clone(want)
		maps.Copy(expected, read(changed))
		require.Equal(t, expected, read(describe(t, p)), body)
	}
}

// Package policy has the rules, and internal/catalog/spec the ranges.
func TestInvalidPolicies(t *testing.T) {
	t.Parallel()
	for body, message := range map[string]string{
		` `:             "the body must be a JSON object",
		`[]`:            "the body must be a JSON object",
		`{"steps":[1]}`: "steps is not a member; the members are: ackTimeoutInSeconds, basis,",
		`{"probation":{"first":1},"maxDeliveryAttempts":{"min":1}}`: "probation.first is not a member; the members are: " +
			"action, byOutcome, firstInSeconds, maxInSeconds, scope, trigger\nmaxDeliveryAttempts.min is not a member",
		`{"statusTable":[{"status":"404"}]}`:              "statusTable[0].status is not a member; the members are: action,",
		`{"probation":{"byOutcome":{"Busy":1,"Busy":2}}}`: "probation.byOutcome.Busy appears twice",
		`{"ackTimeoutInSeconds":"30 s"}`:                  "ackTimeoutInSeconds must be a number",
		`{"ackTimeoutInSeconds":1e300}`:                   "ackTimeoutInSeconds must be between 1 and 230",
		`{"tailInSeconds":-1e300}`:                        "tailInSeconds must be between 1 and 604800",
		`{"stepsInSeconds":[]}`:                           "stepsInSeconds must have 1 to 100 entries",
		`{"stepsInSeconds":[10,691200]}`:                  "stepsInSeconds[1] must be between 1 and 604800, not ",
		`{"source":"` + strings.Repeat("a", 501) + `"}`:   "source must be 500 bytes or less",
		`{"eventTimeToLiveInMinutes":{"default":44640}}`: "eventTimeToLiveInMinutes.default must be between 1 and 43200, " +
			"not 44640",
		`{"maxDeliveryAttempts":{"most":1.5}}`: "maxDeliveryAttempts.most must be a whole number",
		`{"statusTable":[]}`:                   "webhook other",
		`{"statusTable":[{}]}`:                 "statusTable[0].endpointKind must be webhook or azure-resource",
	} {
		_, err := v1.ReadPolicy("mine", []byte(body))
		require.ErrorContains(t, err, message, body)
	}
}
