package config

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const hook = `"destination":{"endpointType":"WebHook","properties":{"endpointUrl":"https://a.example/in"}}`

// Templates as az bicep build, people and Terraform write them.
func TestReadApplyOfTemplates(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		text, want      string
		notes           []string
		endpoints, keys map[string]string
	}{
		"bicep": {
			text: `{"$schema":"https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#",
				"parameters":{"prefix":{"type":"string","defaultValue":"shop"},"url":{"type":"secureString"},
					"topicName":{"type":"string","defaultValue":"[format('{0}-orders', parameters('prefix'))]"}},
				"variables":{"limits":{"attempts":5},"host":"[concat('https://', 'it''s')]"},
				"resources":[
				{"type":"Microsoft.EventGrid/topics","apiVersion":"2025-02-15","name":"[parameters('topicName')]",
					"location":"[resourceGroup().location]","properties":{"inputSchema":"CloudEventSchemaV1_0",
					"disableLocalAuth":false}},
				{"type":"Microsoft.EventGrid/topics/eventSubscriptions",
					"name":"[format('{0}/{1}', parameters('topicName'), 'one')]",
					"dependsOn":["[resourceId('Microsoft.EventGrid/topics', parameters('topicName'))]"],
					"properties":{"eventDeliverySchema":"CloudEventSchemaV1_0",` + hook + `,
					"labels":["[variables('host')]","[[x]"],
					"retryPolicy":{"maxDeliveryAttempts":"[variables('limits').attempts]"}}},
				{"type":"Microsoft.EventGrid/eventSubscriptions","name":"two",
					"scope":"[format('Microsoft.EventGrid/topics/{0}', parameters('topicName'))]",
					"properties":{"destination":{"endpointType":"WebHook","properties":{"endpointUrl":"[parameters('url')]"}}}},
				{"type":"Microsoft.EventGrid/eventSubscriptions","name":"three",
					"scope":"[resourceId('Microsoft.EventGrid/topics', parameters('topicName'))]",
					"properties":{"destination":{"endpointType":"AzureFunction","properties":{"resourceId":"[resourceId('a/b', 'c')]",
					"maxEventsPerBatch":3}}}},
				{"type":"Microsoft.EventGrid/eventSubscriptions","name":"blobs",
					"scope":"[resourceId('Microsoft.Storage/storageAccounts', 'acc')]","properties":{` + hook + `}},
				{"type":"Microsoft.EventGrid/systemTopics","name":"system"},
				{"type":"Microsoft.EventGrid/topics","name":"many","copy":{"count":3}},
				{"type":"Microsoft.EventGrid/topics","name":"off","condition":"[false()]"},
				{"type":"Microsoft.Storage/storageAccounts","name":"[uniqueString('x')]"}]}`,
			endpoints: map[string]string{"shop-orders/three": "http://localhost:8080/"},
			want: `{"topics":[{"name":"shop-orders","inputSchema":"CloudEventSchemaV1_0"}],"subscriptions":[
				{"topic":"shop-orders","name":"one","eventDeliverySchema":"CloudEventSchemaV1_0",
					"endpointUrl":"https://a.example/in",
					"labels":["https://it's","[x]"],"retryPolicy":{"maxDeliveryAttempts":5}},
				{"topic":"shop-orders","name":"three","endpointUrl":"http://localhost:8080/","maxEventsPerBatch":3}]}`,
			notes: []string{
				"resources[2].properties.destination.properties.endpointUrl: [parameters('url')] is not supported: parameter url " +
					"has no default value",
				"resources[5]: resources of type Microsoft.EventGrid/systemTopics are not supported",
				"resources[6]: copy is not supported", "resources[7]: omitted, because its condition is not true",
				"two: the list has no endpointUrl", "two: omitted, because it has no endpoint",
				"blobs: omitted, because /providers/Microsoft.Storage/storageAccounts/acc is not a topic",
			},
		},
		"destinations": {
			text: `{"parameters":{"bus":{"defaultValue":"shop"}},"resources":[
				{"type":"Microsoft.EventGrid/topics/eventSubscriptions","name":"t-1/bus","properties":{
					"deliveryWithResourceIdentity":{"identity":{"type":"SystemAssigned"},"destination":{
					"endpointType":"ServiceBusQueue","properties":{
					"resourceId":"[resourceId('Microsoft.ServiceBus/namespaces/queues', parameters('bus'), 'orders')]",
					"deliveryAttributeMappings":[{"name":"SessionId","type":"Dynamic","properties":{"sourceField":"data.c"}}]}}}}},
				{"type":"Microsoft.EventGrid/topics/eventSubscriptions","name":"t-1/store","properties":{"destination":{
					"endpointType":"StorageQueue","properties":{"resourceId":"/a","queueName":"q",
					"queueMessageTimeToLiveInSeconds":60}}}},
				{"type":"Microsoft.EventGrid/topics/eventSubscriptions","name":"t-1/relay","properties":{"destination":{
					"endpointType":"hybridconnection","properties":{"resourceId":"/h"}}}},
				{"type":"Microsoft.EventGrid/topics/eventSubscriptions","name":"t-1/f","properties":{"destination":{
					"endpointType":"AzureFunction","properties":{"resourceId":"/f"}}}},
				{"type":"Microsoft.EventGrid/topics/eventSubscriptions","name":"t-1/alert","properties":{"destination":{
					"endpointType":"MonitorAlert","properties":{}}}},
				{"type":"Microsoft.EventGrid/topics/eventSubscriptions","name":"t-1/hub","properties":{"destination":{
					"endpointType":"EventHub","properties":{"resourceId":"/e"}}}}]}`,
			endpoints: map[string]string{"hub": "http://localhost/"}, keys: map[string]string{"t-1/store": "AccountKey=k"},
			want: `{"topics":[{"name":"t-1","createOnly":true}],"subscriptions":[
				{"topic":"t-1","name":"bus","destination":{"endpointType":"ServiceBusQueue","properties":{
					"resourceId":"/providers/Microsoft.ServiceBus/namespaces/shop/queues/orders"}},"deliveryAttributeMappings":[
					{"name":"SessionId","type":"Dynamic","properties":{"sourceField":"data.c"}}]},
				{"topic":"t-1","name":"store","destination":{"endpointType":"StorageQueue","properties":{"resourceId":"/a",
					"queueName":"q","queueMessageTimeToLiveInSeconds":60,"connectionString":"AccountKey=k"}}},
				{"topic":"t-1","name":"relay","destination":{"endpointType":"HybridConnection","properties":{"resourceId":"/h"}}},
				{"topic":"t-1","name":"hub","endpointUrl":"http://localhost/"}]}`,
			notes: []string{
				"bus: deliveryWithResourceIdentity is not supported: deliveries have no token of Azure's",
				"bus: the file has no key of its ServiceBusQueue: use --connection-string bus=FILE",
				"relay: the file has no key of its HybridConnection: use --connection-string relay=FILE",
				"f: omitted, because endpointType AzureFunction is not supported; use --endpoint f=URL with the URL of the " +
					"function's HTTP trigger",
				"alert: omitted, because endpointType MonitorAlert is not supported; use --endpoint alert=URL",
			},
		},
		"nested resources and templates": {
			text: `{"languageVersion":"2.0","resources":{
				"old":{"type":"Microsoft.EventGrid/topics","existing":true,"name":"old"},
				"orders":{"type":"Microsoft.EventGrid/topics","name":"orders","properties":{"inputSchema":"CustomEventSchema",
					"inputSchemaMapping":{"inputSchemaMappingType":"Json","properties":{"eventType":{"sourceField":"t"}}}},
					"resources":[{"type":"providers/eventSubscriptions","name":"Microsoft.EventGrid/one","properties":{` + hook + `}},
					{"type":"eventSubscriptions","name":"two","properties":{` + hook + `}}]},
				"module":{"type":"Microsoft.Resources/deployments","name":"m","properties":{
					"parameters":{"name":{"value":"[concat('par', 'cels')]"}},"template":{"parameters":{"name":{"type":"string"}},
					"resources":[{"type":"Microsoft.EventGrid/domains/topics","name":"[format('d/{0}', parameters('name'))]"},
						{"type":"Microsoft.EventGrid/domains/topics/eventSubscriptions",
						"name":"[format('d/{0}/three', parameters('name'))]","properties":{` + hook + `}}]}}}}}`,
			want: `{"topics":[{"name":"parcels"},{"name":"orders","inputSchema":"CustomEventSchema","inputSchemaMapping":
					{"inputSchemaMappingType":"Json","properties":{"eventType":{"sourceField":"t"}}}}],"subscriptions":[
				{"topic":"parcels","name":"three","endpointUrl":"https://a.example/in"},
				{"topic":"orders","name":"one","endpointUrl":"https://a.example/in"},
				{"topic":"orders","name":"two","endpointUrl":"https://a.example/in"}]}`,
		},
		"namespace": {
			text: `{"resources":[{"type":"Microsoft.EventGrid/namespaces","name":"n","resources":[
				{"type":"topics","name":"orders","properties":{"publisherType":"Custom","inputSchema":"CloudEventSchemaV1_0",
					"eventRetentionInDays":3},"resources":[
				{"type":"eventSubscriptions","name":"pulled","properties":{"eventDeliverySchema":"CloudEventSchemaV1_0",
					"deliveryConfiguration":{"deliveryMode":"Queue","queue":{"receiveLockDurationInSeconds":60,"maxDeliveryCount":4}},
					"filtersConfiguration":{"includedEventTypes":["A"]}}}]}]},
				{"type":"Microsoft.EventGrid/namespaces/topics/eventSubscriptions","name":"n/other/pushed","properties":{
					"deliveryConfiguration":{"deliveryMode":"Push","push":{"maxDeliveryCount":6,"eventTimeToLive":"P1D",` + hook + `,
					"deadLetterDestinationWithResourceIdentity":{"identity":{"type":"SystemAssigned"},"deadLetterDestination":
					{"endpointType":"StorageBlob","properties":{"resourceId":"/r","blobContainerName":"c"}}}}},
					"filtersConfiguration":{"filters":[{"operatorType":"StringIn","key":"data.a","values":["b"]}]}}}]}`,
			want: `{"topics":[{"name":"orders","kind":"namespace","inputSchema":"CloudEventSchemaV1_0","eventRetentionInDays":3},
					{"name":"other","kind":"namespace","inputSchema":"CloudEventSchemaV1_0","createOnly":true}],"subscriptions":[
				{"topic":"orders","name":"pulled","eventDeliverySchema":"CloudEventSchemaV1_0",
					"deliveryConfiguration":{"deliveryMode":"Queue","queue":{"receiveLockDurationInSeconds":60,"maxDeliveryCount":4}},
					"filter":{"includedEventTypes":["A"]}},
				{"topic":"other","name":"pushed","endpointUrl":"https://a.example/in",
					"retryPolicy":{"maxDeliveryCount":6,"eventTimeToLive":"P1D"},
					"deadLetterDestination":{"endpointType":"StorageBlob","properties":{"resourceId":"/r","blobContainerName":"c"}},
					"filter":{"advancedFilters":[{"operatorType":"StringIn","key":"data.a","values":["b"]}]}}]}`,
			notes: []string{"pushed: deadLetterWithResourceIdentity is not supported"},
		},
		"terraform": {
			text: `{"planned_values":{"root_module":{"resources":[{"type":"azapi_resource",
					"address":"azapi_resource.t","values":{
					"type":"Microsoft.EventGrid/topics@2025-02-15","name":"orders","parent_id":"/subscriptions/s/resourceGroups/g",
					"body":{"properties":{"inputSchema":"EventGridSchema"}}}},{"type":"random_id","values":{}}],
				"child_modules":[{"resources":[{"type":"azapi_resource","address":"module.m.azapi_resource.s","values":{
					"type":"Microsoft.EventGrid/topics/eventSubscriptions@2025-02-15","name":"one",
					"parent_id":"/subscriptions/s/resourceGroups/g/providers/Microsoft.EventGrid/topics/orders",
					"body":"{\"properties\":{\"destination\":{\"endpointType\":\"WebHook\",` +
				`\"properties\":{\"endpointUrl\":\"[x]\"}}}}"}}]}]}}}`,
			want: `{"topics":[{"name":"orders","inputSchema":"EventGridSchema"}],"subscriptions":[
				{"topic":"orders","name":"one","endpointUrl":"[x]"}]}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file, err := readApply([]byte(row.text), applyFlags{endpoints: row.endpoints, connectionStrings: row.keys})
			require.NoError(t, err)
			require.JSONEq(t, row.want, encoded(t, file.objects))
			require.True(t, file.azure)
			require.Len(t, file.notes, len(row.notes), "%q", file.notes)
			for i, note := range row.notes {
				require.Contains(t, file.notes[i], note)
			}
		})
	}
}

// An expression without a literal value is listed with its path and its reason.
func TestExpressionsWithoutALiteralValue(t *testing.T) {
	t.Parallel()
	for expression, why := range map[string]string{
		"[parameters('none')]": "parameter none has no default value", "[parameters('a')]": "too long, or contains itself",
		"[variables('b')]": "too long, or contains itself", "[variables('none')]": "function variables has no literal value",
		"[resourceGroup().location]": "function resourcegroup has no", "[concat('a'": "is not closed",
		"[concat('a' 'b')]": "is not closed", "[x]": "another form", "[concat('a')[0]]": "another form",
		"[variables('c').d]": "no value of d", "[variables('e')]": "other expressions",
		"[resourceId('a/b', 'c')]": "resourceid",
		"[" + strings.Repeat("concat(", 10_000) + strings.Repeat(")", 10_000) + "]": "too long",
	} {
		if !strings.HasSuffix(expression, "]") {
			expression += "]"
		}
		file, err := readApply([]byte(`{"parameters":{"a":{"defaultValue":"[parameters('a')]"}},
			"variables":{"b":"[concat(variables('b'), variables('b'))]","c":{"x":1},"e":["[reference('x')]"]},
			"resources":[{"type":"Microsoft.EventGrid/topics","name":"t-1","properties":{"inputSchema":"`+expression+`"}}]}`),
			applyFlags{})
		require.NoError(t, err)
		require.JSONEq(t, `{"topics":[{"name":"t-1"}]}`, encoded(t, file.objects))
		require.Len(t, file.notes, 1)
		require.Contains(t, file.notes[0], "resources[0].properties.inputSchema: [")
		require.Contains(t, file.notes[0], why)
	}
}

func TestEndpointsOfAFile(t *testing.T) {
	t.Parallel()
	const text = `topics: [{name: t-1, subscriptions: [{name: one, endpointUrl: "https://a.example/"}, {name: two}]}]
subscriptions: [{topic: t-2, name: one, endpointUrl: "https://b.example/"}]`
	file, err := readApply([]byte(text), applyFlags{
		endpoints: map[string]string{"t-1/one": "http://localhost/1", "two": "http://localhost/2"},
	})
	require.NoError(t, err)
	require.JSONEq(t, `{"topics":[{"name":"t-1","subscriptions":[{"name":"one","endpointUrl":"http://localhost/1"},
		{"name":"two","endpointUrl":"http://localhost/2"}]}],
		"subscriptions":[{"topic":"t-2","name":"one","endpointUrl":"https://b.example/"}]}`, encoded(t, file.objects))
	file, err = readApply([]byte(`subscriptions: [{topic: t-2, name: one, destination: {endpointType: EventHub}}]`),
		applyFlags{connectionStrings: map[string]string{"one": "Endpoint=sb://a"}})
	require.NoError(t, err)
	require.JSONEq(t, `{"subscriptions":[{"topic":"t-2","name":"one","destination":{"endpointType":"EventHub",
		"properties":{"connectionString":"Endpoint=sb://a"}}}]}`, encoded(t, file.objects))
	_, err = readApply([]byte(text), applyFlags{endpoints: map[string]string{"three": "http://localhost/"}})
	require.ErrorContains(t, err, "--endpoint three: the file has no event subscription three")
}
