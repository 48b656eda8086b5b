package config

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/cli/rest"
	"postrider/internal/terminal"
)

func TestReadApplyRejects(t *testing.T) {
	t.Parallel()
	for text, says := range map[string]string{
		"- a":                               "it must have topics, subscriptions or policies",
		"topics:\n- name: abc\n  name: abc": "line 3: name is duplicate",
		"x: &x {a: 1}\ntopics: [{<<: *x}]":  "merge keys",
		"topics: &x [*x]":                   "more than 2000000 values",
		"topics: [":                         "did not find expected",
		"topics: [{name: abc, eventRetentionInDays: .inf}]": "is not a number of JSON",
	} {
		_, err := readApply([]byte(text), applyFlags{})
		require.ErrorContains(t, err, says)
	}
	file, err := readApply(
		[]byte("subscriptions: [{topic: t-1, name: s-1, expirationTimeUtc: 2030-01-01, maxEventsPerBatch: "+
			"1_0}]\n---\npolicies: [{name: p-1}]\ntopics: []\n---\npolicies: [{name: p-2}]\nother: 5"), applyFlags{})
	require.NoError(t, err)
	require.JSONEq(t, `{"policies":[{"name":"p-1"},{"name":"p-2"}],"topics":null,"other":5,`+
		`"subscriptions":[{"topic":"t-1","name":"s-1","expirationTimeUtc":"2030-01-01","maxEventsPerBatch":10}]}`,
		encoded(t, file.objects),
		"the server checks members and values")
	_, err = readApply([]byte("topics: []"), applyFlags{topic: "orders"})
	require.ErrorContains(t, err, "--topic is for")
}

// A response of Azure's API, with the topic of a domain.
func TestReadApplyOfAzuresAPI(t *testing.T) {
	t.Parallel()
	const of = `"type":"Microsoft.EventGrid/eventSubscriptions",` +
		`"properties":{"topic":"/subscriptions/s/providers/Microsoft.EventGrid/domains/d/topics/orders",`
	file, err := readApply([]byte(`{"value":[
		{"name":"one",`+of+`"eventDeliverySchema":"CloudEventSchemaV1_0","destination":{"endpointType":"WebHook",`+
		`"properties":{"endpointBaseUrl":"https://a.example/in",
			"minimumTlsVersionAllowed":"1.2",
			"deliveryAttributeMappings":[{"name":"X","type":"Static","properties":{"value":"v","isSecret":false}}]}},
			"deadLetterDestination":{"endpointType":"StorageBlob","properties":{"resourceId":"/r","blobContainerName":"c"}},
			"deadLetterWithResourceIdentity":null,"retryPolicy":{"maxDeliveryAttempts":3}}},
		{"name":"two",`+of+`"destination":{"endpointType":"AzureFunction","properties":{"resourceId":"/f"}}}},
		{"name":"three",`+of+`"deliveryConfiguration":{"deliveryMode":"Queue"}}}],"nextLink":null}`), applyFlags{})
	require.NoError(t, err)
	require.True(t, file.azure)
	require.JSONEq(t, `{"topics":[{"name":"orders","inputSchema":"CloudEventSchemaV1_0","createOnly":true}],
		"subscriptions":[{"topic":"orders","name":"one",
		"deadLetterDestination":{"endpointType":"StorageBlob","properties":{"blobContainerName":"c","resourceId":"/r"}},
		"deliveryAttributeMappings":[{"name":"X","properties":{"isSecret":false,"value":"v"},"type":"Static"}],
		"endpointUrl":"https://a.example/in",
		"eventDeliverySchema":"CloudEventSchemaV1_0","minimumTlsVersionAllowed":"1.2",
		"retryPolicy":{"maxDeliveryAttempts":3}}]}`, encoded(t, file.objects))
	require.Len(t, file.notes, 3)
	for i, note := range []string{
		"one: the list has no endpointUrl", "two: omitted, because endpointType AzureFunction is not supported",
		"three: omitted, because it has the deliveryConfiguration of a namespace",
	} {
		require.Contains(t, file.notes[i], note)
	}
}

func encoded(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	require.NoError(t, err)
	return string(text)
}

// FuzzReadApply: any file is read or rejected. What was read can be sent.
func FuzzReadApply(f *testing.F) {
	applied, err := os.ReadFile("testdata/apply.yaml")
	require.NoError(f, err)
	for _, text := range []string{
		string(applied), "", "---\n---\n",
		"topics: [{name: a}]\n---\nsubscriptions: [{topic: a, name: b, endpointUrl: 'https://example.com/'}]", "a: &a [*a]",
		"a: &a {b: 1}\nc: {<<: *a}", "topics: {}", "[]", "!!binary aGFsbG8=",
		`[{"type":"Microsoft.EventGrid/eventSubscriptions","name":"a","destination":{"endpointType":"WebHook",` +
			`"endpointUrl":"https://example.com/"},"filter":{"advancedFilters":[{"operatorType":"NumberIn","key":"data.n",` +
			`"values":[1e400,9007199254740993]}]},"retryPolicy":{"maxDeliveryAttempts":30,"eventTimeToLiveInMinutes":1440}}]`,
		`{"value":[{"type":"microsoft.eventgrid/topics/eventsubscriptions","name":"a",` +
			`"properties":{"destination":{"properties":{"maxEventsPerBatch":1}}}}]}`,
		`{"parameters":{"p":{"defaultValue":"[variables('v').x]"}},"variables":{"v":{"x":"[format('{0}''', 'a')]"}},` +
			`"resources":[{"type":"Microsoft.EventGrid/topics/eventSubscriptions","name":"[concat(parameters('p'), '/b')]",` +
			`"properties":{"deliveryConfiguration":{},"destination":{"properties":{}}}}]}`,
		`{"values":{"root_module":{"resources":[{"type":"azapi_resource","values":{"type":"Microsoft.EventGrid/topics@1",` +
			`"name":"a","body":"{}"}}]}}}`,
	} {
		f.Add(text, "orders")
		f.Add(text, "")
	}
	f.Fuzz(func(t *testing.T, text, topic string) {
		read, err := readApply([]byte(text), applyFlags{topic: topic})
		if err != nil {
			return
		}
		_, err = terminal.EncodePlainly(read.objects)
		require.NoError(t, err)
	})
}

// topicDeletedMeanwhile is a server that lists a topic and then does not have it.
func topicDeletedMeanwhile(t *testing.T) *rest.Client {
	t.Helper()
	responses := map[string]string{
		"/v1/policies":                    `{"value":[]}`,
		"/v1/topics":                      `{"value":[{"name":"gone"},{"name":"orders"}]}`,
		"/v1/topics/orders/subscriptions": `{"value":[{"name":"billing"}]}`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		response, found := responses[r.URL.Path]
		if !found {
			w.WriteHeader(http.StatusNotFound)
			response = `{"error":{"code":"NotFound","message":"topic \"gone\" does not exist"}}`
		}
		_, _ = w.Write([]byte(response))
	}))
	t.Cleanup(server.Close)
	client, err := rest.ServerFlags{URL: server.URL, APIKey: "k"}.Client()
	require.NoError(t, err)
	return client
}

// A topic that is deleted meanwhile does not keep the event subscriptions of other topics from being listed.
func TestSubscriptionsOfAllTopicsWhileOneIsDeleted(t *testing.T) {
	t.Parallel()
	client := topicDeletedMeanwhile(t)
	list, err := subscriptionsOf(t.Context(), client, "")
	require.NoError(t, err)
	require.Equal(t, []rest.Object{{"name": "billing"}}, list)
	_, err = subscriptionsOf(t.Context(), client, "gone")
	require.ErrorContains(t, err, "does not exist", "a named topic must exist")
}

// A request makes the changes that it has time for. The rest follows with the etag of the response.
func TestApplyContinues(t *testing.T) {
	t.Parallel()
	responses := map[string]string{ // by If-Match
		"": `{"etag":"a","changes":[{"kind":"topic","name":"one","change":"create"},
			{"kind":"topic","name":"two","change":"create"}]}`,
		"a": `{"etag":"b","changes":[{"kind":"topic","name":"one","change":"create","applied":true},
			{"kind":"topic","name":"two","change":"create"}]}`,
		"b": `{"etag":"c","changes":[{"kind":"topic","name":"one","change":"none"},
			{"kind":"topic","name":"two","change":"create","applied":true}]}`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(responses[r.Header.Get("If-Match")]))
	}))
	t.Cleanup(server.Close)
	client, err := rest.ServerFlags{URL: server.URL, APIKey: "k"}.Client()
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "file.yaml")
	require.NoError(t, os.WriteFile(file, []byte("topics: []"), 0o600))
	var out strings.Builder
	std := terminal.Streams{In: strings.NewReader(""), Out: &out, Err: &out}
	verb := ApplyCmd{File: file, Yes: true, Output: "table"}
	require.NoError(t, verb.Run(t.Context(), std, client))
	require.Contains(t, out.String(), "created topic one\ncreated topic two\n")
	responses["b"] = responses[""]
	require.ErrorContains(t, verb.Run(t.Context(), std, client), "1 of 2 changes applied; the server has changed nothing")
}
