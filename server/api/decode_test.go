package api

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
)

func TestDecodeStrictly(t *testing.T) {
	t.Parallel()
	attempts := 3
	var got catalog.SubscriptionSpec
	require.NoError(t,
		DecodeStrictly(
			[]byte(` {"endpointUrl":"u", "retryPolicy" : {"maxDeliveryAttempts": 3, "eventTimeToLiveInMinutes":null}} `), &got))
	require.Equal(t,
		catalog.SubscriptionSpec{EndpointURL: "u", RetryPolicy: catalog.RetryPolicySpec{MaxDeliveryAttempts: &attempts}}, got)

	got = catalog.SubscriptionSpec{EndpointURL: "before"}
	require.NoError(t, DecodeStrictly([]byte(" \n"), &got), "an empty body says nothing")
	require.Equal(t, "before", got.EndpointURL)

	for name, row := range map[string]struct{ body, target, says string }{
		"a name's case": {
			`{"endpointURL":"u"}`, "endpointURL", "is not a member; the members are: behavior, certificateAuthorities, " +
				"clientCertificate, deadLetterDestination, deliveryAttributeMappings, deliveryConfiguration, deliveryRate, " +
				"description, destination, endpointKind, endpointUrl,",
		},
		"a setting among Event Grid's properties": {
			`{"destination":{"endpointType":"WebHook","properties":{"endpointUrl":"u"}}}`, "destination.properties.endpointUrl",
			"is not a member of properties: set it beside destination",
		},
		"a long name": {
			`{"` + strings.Repeat("é", 200) + `":1}`, strings.Repeat("é", 64) + "...", "is not a member",
		},
		"an escaped name": {`{"endpoint\u0055rl":"u","endpointUrl":"v"}`, "endpointUrl", "appears twice"},
		"deep down": {
			`{"filter":{"includedEventTypes":["a"],"subjectbeginswith":"x"}}`, "filter.subjectbeginswith",
			"is not a member; the members are: advancedFilters, enableAdvancedFilteringOnArrays, includedEventTypes,",
		},
		"a lone surrogate in a list": {
			`{"labels":["\ud83d\ude00","\udfff"]}`, "labels[1]", "must not contain a lone surrogate",
		},
		"a string for a boolean": {
			`{"filter":{"isSubjectCaseSensitive":"yes"}}`, "filter.isSubjectCaseSensitive", "must be true or false",
		},
		"a number for a string": {`{"endpointUrl":1}`, "endpointUrl", "must be a string"},
		"a number too large": {
			`{"retryPolicy":{"maxDeliveryAttempts":1e30}}`, "retryPolicy.maxDeliveryAttempts", "must be a whole number",
		},
		"an object for an array": {`{"filter":{"includedEventTypes":{}}}`, "filter.includedEventTypes", "must be an array"},
		"within an array": {
			`{"filter":{"advancedFilters":[{"key":"a"},{"Key":"a"}]}}`, "filter.advancedFilters[1].Key",
			"is not a member; the members are: key,",
		},
	} {
		var rejected *RejectionError
		require.ErrorAs(t, DecodeStrictly([]byte(row.body), new(catalog.SubscriptionSpec)), &rejected, name)
		require.Equal(t, 400, rejected.Status, name)
		require.Equal(t, row.target, rejected.Details[0].Target, name)
		require.Contains(t, rejected.Message, row.says, name)
	}
}

func TestBodiesThatAreNoDocument(t *testing.T) {
	t.Parallel()
	deep := func(levels int) string {
		return `{"filter":` + strings.Repeat("[", levels-1) + strings.Repeat("]", levels-1) + "}"
	}
	for body, says := range map[string]string{
		`{"labels":`:              "must be one JSON document: the text ends too early, at byte 10",
		`{"labels":[]} {}`:        "must be one JSON document: it continues after its end, at byte 13",
		deep(512):                 "filter must be an object",
		deep(513):                 "must be one JSON document: nested deeper than 512 levels, at byte 521",
		deep(100_000):             "nested deeper than 512 levels",
		"{\"labels\":[\"\xff\"]}": "must be UTF-8",
		`[]`:                      "must be a JSON object",
	} {
		require.ErrorContains(t, DecodeStrictly([]byte(body), new(catalog.SubscriptionSpec)), says, "%.40s", body)
	}
}

// FuzzDecodeStrictly: no input panics, each rejection is a 400, and encoding/json accepts all accepted input.
func FuzzDecodeStrictly(f *testing.F) {
	for _, seed := range []string{
		``, `{}`, `null`, `{"endpointUrl":"u"}`, `{"filter":{"includedEventTypes":["a",null]}}`, `{"a":{"b":[{"c":1e999}]}}`,
		`{"retryPolicy":{"maxDeliveryAttempts":1},"retryPolicy":null}`, "{\"\xff\":1}",
		`{"deadLetterDestination":{"endpointType":"Rows"}}`, "\f{}", "\u00a0{}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var got, plain catalog.SubscriptionSpec
		err := DecodeStrictly(body, &got)
		if err != nil {
			var rejected *RejectionError
			require.ErrorAs(t, err, &rejected)
			require.Equal(t, 400, rejected.Status)
			require.NotEmpty(t, rejected.Message)
			return
		}
		if strings.TrimSpace(string(body)) != "" {
			require.NoError(t, json.Unmarshal(body, &plain))
			require.Equal(t, plain, got)
		}
	})
}
