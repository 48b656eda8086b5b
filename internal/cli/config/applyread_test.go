package config

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/cli/rest"
)

func TestReadApplyRejects(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, text, says string }{
		{"a list of anything", "- a", "it must have topics, subscriptions or policies"},
		{"an unknown member", "topic: []", "unknown member topic"},
		{"a name twice", "topics: [{name: abc}, {name: abc}]", "topic abc is duplicate"},
		{"two topics' names in other case", "topics: [{name: abc}, {name: aBc}]", `topic aBc: the name conflicts with "abc"`},
		{
			"two event subscriptions' names in other case", "subscriptions: [{topic: t-1, name: abc}, {topic: t-1, name: ABC}]",
			`subscription t-1/ABC: the name conflicts with "abc"`,
		},
		{"a member twice", "topics:\n- name: abc\n  name: abc", "line 3: name is duplicate"},
		{"no name", "topics: [{kind: basic}]", "topics[0]: a topic without a name"},
		{"no topic", "subscriptions: [{name: abc}]", "subscriptions[0]: a subscription without a name or a topic"},
		{"no object", "topics: [abc]", "topics[0] must be an object"},
		{"a merge key", "x: &x {a: 1}\ntopics: [{<<: *x}]", "merge keys"},
		{"an alias of itself", "topics: &x [*x]", "more than 2000000 values"},
		{"no YAML", "topics: [", "did not find expected"},
		{"an infinite number", "topics: [{name: abc, eventRetentionInDays: .inf}]", "is not a number of JSON"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			_, err := readApply([]byte(row.text), "")
			require.ErrorContains(t, err, row.says)
		})
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
			`"eventDeliverySchema":"CloudEventSchemaV1_0","retryPolicy":{"maxDeliveryAttempts":3}}`,
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
