package config

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A file of AzureEventGridSimulator: webhooks become event subscriptions, and everything else is noted.
func TestReadApplyOfTheSimulator(t *testing.T) {
	t.Parallel()
	file, err := readApply([]byte(`{"dangerousAcceptAnyServerCertificateValidator": false, "topics": [
		{"name": "orders", "port": 60101, "key": "TheLocal+DevelopmentKey=", "inputSchema": "CloudEventV1_0",
			"outputSchema": "EventGridSchema", "Subscribers": {
				"http": [
					{"name": "functions", "endpoint": "http://app/runtime/webhooks/EventGrid?functionName=f",
						"disableValidation": true, "filter": {"includedEventTypes": ["t"], "subjectBeginsWith": "/a", "advancedFilters": [
							{"operatorType": "NumberGreaterThan", "key": "data.n", "value": 5}]},
						"retryPolicy": {"enabled": true, "maxDeliveryAttempts": 5, "eventTimeToLiveInMinutes": 60},
						"deadLetter": {"enabled": false, "folderPath": "./letters"}},
					{"Name": "cloud", "Endpoint": "http://app/c", "deliverySchema": "CloudEventV1_0",
						"retryPolicy": {"enabled": false}},
					{"name": "off", "endpoint": "http://app/", "disabled": true}],
				"serviceBus": [
					{"name": "bus", "queue": "q", "connectionString": "Endpoint=sb://shop;…", "properties": {
						"Kind": {"type": "dynamic", "value": "EventType"}, "From": {"type": "static", "value": "shop"}}},
					{"name": "inherited", "topic": "t", "disableValidation": true},
					{"name": "local", "queue": "q", "connectionString": "Endpoint=sb://localhost;UseDevelopmentEmulator=true;"}],
				"storageQueue": [{"name": "store", "queueName": "q", "connectionString": "UseDevelopmentStorage=true"}],
				"pigeon": [{}]}, "serviceBusNamespace": "shop", "serviceBusSharedAccessKeyName": "send",
			"serviceBusSharedAccessKey": "key"},
		{"name": "older", "subscribers": [{"name": "one", "endpoint": "http://app/1"}]},
		{"name": "disabled", "port": 60103, "disabled": true}]}`), applyFlags{})
	require.NoError(t, err)
	require.JSONEq(t, `{"topics": [
		{"name": "orders", "key1": "TheLocal+DevelopmentKey=", "inputSchema": "CloudEventSchemaV1_0", "subscriptions": [
			{"name": "functions", "endpointUrl": "http://app/runtime/webhooks/EventGrid?functionName=f",
				"eventDeliverySchema": "EventGridSchema", "endpointValidation": "skip",
				"filter": {"includedEventTypes": ["t"], "subjectBeginsWith": "/a", "advancedFilters": [
					{"operatorType": "NumberGreaterThan", "key": "data.n", "value": 5}]},
				"retryPolicy": {"maxDeliveryAttempts": 5, "eventTimeToLiveInMinutes": 60},
				"deadLetterDestination": {"endpointType": "None"}},
			{"name": "cloud", "endpointUrl": "http://app/c", "eventDeliverySchema": "CloudEventSchemaV1_0",
				"retryPolicy": {"maxDeliveryAttempts": 1}},
			{"name": "bus", "eventDeliverySchema": "EventGridSchema", "deliveryAttributeMappings": [
					{"name": "From", "type": "Static", "properties": {"value": "shop", "isSecret": false}},
					{"name": "Kind", "type": "Dynamic", "properties": {"sourceField": "EventType"}}],
				"destination": {"endpointType": "ServiceBusQueue", "properties": {
					"connectionString": "Endpoint=sb://shop;…", "entityName": "q", "sharedAccessKeyName": "send"}}},
			{"name": "inherited", "eventDeliverySchema": "EventGridSchema",
				"destination": {"endpointType": "ServiceBusTopic", "properties": {"entityName": "t",
					"endpoint": "shop.servicebus.windows.net", "sharedAccessKeyName": "send", "primaryKey": "key"}}},
			{"name": "store", "eventDeliverySchema": "EventGridSchema", "destination": {"endpointType": "StorageQueue",
				"properties": {"connectionString": "UseDevelopmentStorage=true", "queueName": "q"}}}]},
		{"name": "older", "subscriptions": [{"name": "one", "endpointUrl": "http://app/1"}]}]}`,
		encoded(t, file.objects))
	require.Equal(t, []string{
		"topics[0]: port 60101 is not opened; publish to /topics/orders/api/events, or to /api/events of host " +
			"orders.localhost",
		"topics[0].subscribers.pigeon: omitted",
		"topics[0].subscribers.http[0].deadLetter.folderPath: omitted",
		"topics[0].subscribers.http[2]: subscriber off omitted, because it is disabled",
		"topics[0].subscribers.serviceBus[1].disableValidation: omitted",
		"topics[0].subscribers.serviceBus[2]: subscriber local omitted: the emulators of Service Bus and Event Hubs have " +
			"no HTTP API",
		"topics[1]: topic older takes only events of the Event Grid schema, because it has no inputSchema",
		"topics[2]: topic disabled omitted, because it is disabled",
	}, file.notes)
}

// A file of Workleap's emulator: consumers that pull make a topic one of a namespace.
func TestReadApplyOfWorkleapsEmulator(t *testing.T) {
	t.Parallel()
	file, err := readApply([]byte(`{"Logging": {}, "Topics": {"shop": ["http://app:8080/a", "https://app/b",],
		"ledger": ["pull://books", "http://app/c"]}}`), applyFlags{})
	require.NoError(t, err)
	require.JSONEq(t, `{"topics": [
		{"name": "ledger", "kind": "namespace", "subscriptions": [
			{"name": "books", "deliveryConfiguration": {"deliveryMode": "Queue"}},
			{"name": "webhook-1", "endpointUrl": "http://app/c"}]},
		{"name": "shop", "subscriptions": [
			{"name": "webhook-1", "endpointUrl": "http://app:8080/a"},
			{"name": "webhook-2", "endpointUrl": "https://app/b"}]}]}`,
		encoded(t, file.objects))
	require.Equal(t, []string{
		"Topics.ledger: its webhooks get CloudEvents only, because it is a topic of a namespace", "Logging: omitted",
	}, file.notes)
}

func TestReadApplyRejectsEmulators(t *testing.T) {
	t.Parallel()
	topic := func(members string) string { return `{"topics":[{"name":"a","port":1,` + members + `}]}` }
	for text, says := range map[string]string{
		`{"topics":[{"port":1}]}`:               "topics[0].name: must be the name of a topic, not null",
		`{"topics":[{"name":"a","port":1},5]}`:  "topics[1]: must be an object with name and subscribers, not 5",
		topic(`"inputSchema":"X"`):              `not "X"`,
		topic(`"outputSchema":7`):               "topics[0].outputSchema: must be EventGridSchema",
		topic(`"disabled":"no"`):                `topics[0].disabled: must be true or false, not "no"`,
		topic(`"key":"short"`):                  "topics[0].key: must be the base64 of 16 bytes or more",
		topic(`"subscribers":{"http":{"x":1}}`): "topics[0].subscribers.http: must be a list of subscribers",
		topic(`"subscribers":[{"name":"b"}]`):   "topics[0].subscribers[0].endpoint: must be text, not null",
		topic(`"subscribers":{"serviceBus":[{"name":"b"}]}`): "subscribers.serviceBus[0].queue or topic: must be text, " +
			"not null",
		topic(`"subscribers":["b"]`): "topics[0].subscribers[0]: must be an object with",
		topic(`"subscribers":[{"name":"b","endpoint":"x","disableValidation":1}]`): "not 1",
		`{"Topics":{"a":["http://app/","ftp://b"]}}`:                               "Topics.a[1]: must be a URL as http",
		`{"Topics":{"a":["pull://"]}}`:                                             `not "pull://"`,
	} {
		_, err := readApply([]byte(text), applyFlags{})
		require.ErrorContains(t, err, says, text)
	}
}

// A file in postrider's own form, with an object instead of a list, is not taken for that of an emulator.
func TestReadApplyOfAnObjectOfTopics(t *testing.T) {
	t.Parallel()
	const text = `{"topics":{"orders":{"inputSchema":"EventGridSchema"},"shop":[]}}`
	file, err := readApply([]byte(text), applyFlags{})
	require.NoError(t, err)
	require.JSONEq(t, text, encoded(t, file.objects), "the server rejects it")
	require.Empty(t, file.notes)
}
