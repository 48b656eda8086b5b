package config

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/cli/rest"
)

func TestReadApplyRejects(t *testing.T) {
	t.Parallel()
	for text, says := range map[string]string{
		"- a": "it must have topics, subscriptions or policies",
		"topic: []\nqueue: []": "document 1: unknown member queue: a file can have policies, subscriptions and topics\n" +
			"unknown member topic: a file",
		"topics: [{name: abc, subscriptions: [{name: s-1}]}, {name: abc, subscriptions: [{name: s-2}]}]\npolicies: [5]": "" +
			"document 1: policies[0] must be an object\ntopics[1]: topic abc is duplicate",
		"topics: [{name: abc, subscriptions: [{name: s-1}, {name: s-1}, {}]}]": "document 1: topics[0].subscriptions[1]: " +
			"subscription abc/s-1 is duplicate\ntopics[0].subscriptions[2]: a subscription without a name or a topic",
		"topics: [{name: abc, subscriptions: 5}]": "topics[0].subscriptions must be a list",
		`[{"type": "Microsoft.EventGrid/eventSubscriptions", "topic": "/x/Microsoft.EventGrid/topics/t-1", "destination": ` +
			`{"endpointType": "WebHook", "endpointUrl": "https://example.com"}}]`: "entry 1 of the list: a subscription without",
		"topics: [{name: abc}, {name: abc}]":   "topic abc is duplicate",
		"topics: [{name: abc}, {name: aBc}]":   `topic aBc: the name conflicts with "abc"`,
		"policies: [{name: abc}, {name: aBc}]": `policy aBc: the name conflicts with "abc"`,
		"subscriptions: [{topic: t-1, name: abc}, {topic: t-1, name: ABC}]": `subscription t-1/ABC: the name conflicts ` +
			`with "abc"`,
		"topics:\n- name: abc\n  name: abc":                 "line 3: name is duplicate",
		"topics: [{kind: basic}]":                           "topics[0]: a topic without a name",
		"subscriptions: [{name: abc}]":                      "subscriptions[0]: a subscription without a name or a topic",
		"topics: [abc]":                                     "topics[0] must be an object",
		"x: &x {a: 1}\ntopics: [{<<: *x}]":                  "merge keys",
		"topics: &x [*x]":                                   "more than 2000000 values",
		"topics: [":                                         "did not find expected",
		"topics: [{name: abc, eventRetentionInDays: .inf}]": "is not a number of JSON",
	} {
		_, err := readApply([]byte(text), "")
		require.ErrorContains(t, err, says)
	}
	file, err := readApply(
		[]byte("subscriptions: [{topic: t-1, name: s-1, expirationTimeUtc: 2030-01-01, maxEventsPerBatch: "+
			"1_0}]\n---\npolicies: [{name: p-1}]\ntopics: []"), "")
	require.NoError(t, err)
	require.Equal(t, kindPolicy, file.objects[0].kind, "dependencies come first")
	require.Equal(t, `{"expirationTimeUtc":"2030-01-01","maxEventsPerBatch":10}`, encoded(t, file.objects[1].settings))
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
		{"name":"three",`+of+`"deliveryConfiguration":{"deliveryMode":"Queue"}}}],"nextLink":null}`), "")
	require.NoError(t, err)
	require.True(t, file.azure)
	require.Len(t, file.objects, 2)
	require.Equal(t,
		declared{
			key: key{kindTopic, "", "orders"}, settings: rest.Object{"inputSchema": "CloudEventSchemaV1_0"}, ifMissing: true,
		}, file.objects[0])
	require.Equal(t,
		`{"deadLetterDestination":{"endpointType":"StorageBlob","properties":{"blobContainerName":"c","resourceId":"/r"}},`+
			`"deliveryAttributeMappings":[{"name":"X","properties":{"isSecret":false,"value":"v"},"type":"Static"}],`+
			`"endpointUrl":"https://a.example/in",`+
			`"eventDeliverySchema":"CloudEventSchemaV1_0","minimumTlsVersionAllowed":"1.2",`+
			`"retryPolicy":{"maxDeliveryAttempts":3}}`,
		encoded(t, file.objects[1].settings))
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

// FuzzReadApply: any file is read or rejected. The declared objects have names, appear once, and are checked without a
// panic.
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
	} {
		f.Add(text, "orders")
		f.Add(text, "")
	}
	f.Fuzz(func(t *testing.T, text, topic string) {
		read, err := readApply([]byte(text), topic)
		if err != nil {
			return
		}
		seen := map[key]bool{}
		for i := range read.objects {
			d := &read.objects[i]
			require.NotEmpty(t, d.name)
			require.False(t, seen[d.key])
			seen[d.key] = true
			_, _ = validated(d)
			for _, line := range diff(tables[d.kind], nil, d.settings) {
				require.NotContains(t, line.String(), "\x1b", "nothing in a file controls the terminal")
			}
		}
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

// A topic that is deleted while apply reads what exists is no error.
func TestApplyReadsWhileATopicIsDeleted(t *testing.T) {
	t.Parallel()
	a := &applier{client: topicDeletedMeanwhile(t), file: &applyFile{}, prune: true}
	require.NoError(t, a.read(t.Context()))
	require.Contains(t, a.existing, key{kindTopic, "", "orders"})
	require.NotContains(t, a.existing, key{kindTopic, "", "gone"})
	require.Contains(t, a.existing, key{kindSubscription, "orders", "billing"})
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
