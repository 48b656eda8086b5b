package destination_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/destination"
	"postrider/internal/filter"
)

const rule = "SharedAccessKeyName=send;SharedAccessKey=" + busKey

func TestNormalizeConnectionStrings(t *testing.T) {
	t.Parallel()
	key := func(endpoint, entity string) destination.Properties {
		return destination.Properties{
			Endpoint: endpoint, EntityName: entity, SharedAccessKeyName: "send", PrimaryKey: busKey,
		}
	}
	account := func(endpoint string) destination.Properties {
		return destination.Properties{Endpoint: endpoint, PrimaryKey: storageKey}
	}
	const keys = "AccountKey=" + storageKey
	for _, tt := range []struct {
		kind destination.Type
		text string
		want destination.Properties
	}{
		{sb, "Endpoint=sb://Shop.servicebus.windows.net/;" + rule, key("https://shop.servicebus.windows.net", "")},
		{
			eh, "endpoint=sb://shop.servicebus.windows.net; " + rule + " ;EntityPath=Orders;TransportType=Amqp;",
			key("https://shop.servicebus.windows.net", "Orders"),
		},
		{relay, "Endpoint=sb://a.servicebus.chinacloudapi.cn/;" + rule, key("https://a.servicebus.chinacloudapi.cn", "")},
		{sb, "Endpoint=sb://a.servicebus.usgovcloudapi.net/;" + rule, key("https://a.servicebus.usgovcloudapi.net", "")},
		{sb, "Endpoint=https://bus.test:443/;" + rule, key("https://bus.test", "")},
		{
			eh, "Endpoint=sb://a.b;SharedAccessSignature=SharedAccessSignature sr=a&sig=b%3D",
			destination.Properties{Endpoint: "https://a.b", SharedAccessSignature: "SharedAccessSignature sr=a&sig=b%3D"},
		},
		{
			queue, "DefaultEndpointsProtocol=https;AccountName=shop;" + keys + ";EndpointSuffix=core.windows.net",
			account("https://shop.queue.core.windows.net"),
		},
		{queue, "AccountName=shop;" + keys, account("https://shop.queue.core.windows.net")},
		{
			queue, "AccountName=shop;EndpointSuffix=core.chinacloudapi.cn;" + keys,
			account("https://shop.queue.core.chinacloudapi.cn"),
		},
		{
			queue, "AccountName=shop;EndpointSuffix=core.usgovcloudapi.net;" + keys,
			account("https://shop.queue.core.usgovcloudapi.net"),
		},
		{
			queue, "BlobEndpoint=https://shop.blob.core.windows.net/;QueueEndpoint=https://shop.queue.core.windows.net/;" +
				"SharedAccessSignature=?sv=2022&sig=x%3D",
			destination.Properties{Endpoint: "https://shop.queue.core.windows.net", SharedAccessSignature: "sv=2022&sig=x%3D"},
		},
		{
			queue, "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;" + keys +
				";QueueEndpoint=http://azurite:10001/devstoreaccount1;",
			account("http://azurite:10001/devstoreaccount1"),
		},
		{queue, "UseDevelopmentStorage=true", account("http://127.0.0.1:10001/devstoreaccount1")},
		{
			queue, "UseDevelopmentStorage=true;DevelopmentStorageProxyUri=http://azurite",
			account("http://azurite:10001/devstoreaccount1"),
		},
	} {
		given := &destination.Destination{
			EndpointType: tt.kind, Properties: &destination.Properties{ConnectionString: tt.text},
		}
		got, mistakes := given.Normalize()
		require.Empty(t, mistakes, tt.text)
		require.Equal(t, tt.want, *got.Properties, tt.text)
		require.Equal(t, tt.text, given.Properties.ConnectionString, "the given one is not changed")
		again, _ := got.Normalize()
		require.Equal(t, got, again)
	}
}

func TestNormalizeRejectsConnectionStrings(t *testing.T) {
	t.Parallel()
	const (
		endpoint = "Endpoint=sb://shop.servicebus.windows.net/;"
		id       = "/subscriptions/1/resourceGroups/g/providers/Microsoft.ServiceBus/namespaces/"
	)
	for _, tt := range []struct {
		kind    destination.Type
		text    string
		beside  destination.Properties
		message string
	}{
		{sb, busKey, destination.Properties{}, "must have Endpoint=sb://NAMESPACE…;"},
		{sb, "secret", destination.Properties{}, "must have the form name=value;name=value"},
		{sb, endpoint + endpoint, destination.Properties{}, "must have each member once"},
		{sb, rule, destination.Properties{}, "must have Endpoint=sb://NAMESPACE…;"},
		{
			sb, endpoint + "SharedAccessKeyName=x",
			destination.Properties{},
			"must have SharedAccessKeyName and SharedAccessKey, or SharedAccessSignature",
		},
		{
			eh, "Endpoint=sb://localhost;" + rule + ";UseDevelopmentEmulator=true;",
			destination.Properties{},
			"must not be an emulator's: the emulators of Service Bus and Event Hubs have no HTTP API; that of Event Hubs can " +
				"be a destination of type Kafka",
		},
		{sb, endpoint + rule, destination.Properties{Endpoint: "other"}, "contradicts endpoint: omit one of them"},
		{
			sb, endpoint + rule + ";EntityPath=a",
			destination.Properties{EntityName: "b"},
			"contradicts entityName: omit one of them",
		},
		{
			sb, endpoint + rule,
			destination.Properties{SharedAccessKeyName: "x"},
			"contradicts sharedAccessKeyName: omit one of them",
		},
		{sb, endpoint + rule, destination.Properties{PrimaryKey: "x"}, "contradicts primaryKey: omit one of them"},
		{
			sb, endpoint + rule,
			destination.Properties{ResourceID: id + "other/queues/orders"},
			"contradicts resourceId: omit one of them",
		},
		{
			sb, endpoint + rule + ";EntityPath=a",
			destination.Properties{ResourceID: id + "shop/queues/b"},
			"contradicts resourceId: omit one of them",
		},
		{queue, "AccountKey=" + storageKey, destination.Properties{}, "must have AccountName or QueueEndpoint"},
		{queue, "AccountName=shop", destination.Properties{}, "must have AccountKey or SharedAccessSignature"},
		{
			queue, "AccountName=shop;AccountKey=a;SharedAccessSignature=b",
			destination.Properties{},
			"must have AccountKey or SharedAccessSignature",
		},
		{
			queue, "AccountName=a;AccountKey=b;QueueEndpoint=https://c.queue.core.windows.net",
			destination.Properties{},
			"must have the same account in AccountName and QueueEndpoint",
		},
		{queue, "QueueEndpoint=https://a b:c;AccountKey=x", destination.Properties{}, "must have a URL as QueueEndpoint"},
	} {
		tt.beside.ConnectionString = tt.text
		_, mistakes := (&destination.Destination{EndpointType: tt.kind, Properties: &tt.beside}).Normalize()
		require.Equal(t, []filter.ValidationError{
			{Field: "destination.properties.connectionString", Message: tt.message},
		}, mistakes, tt.text)
	}
	agreeing := destination.Properties{
		ConnectionString: endpoint + rule, Endpoint: "SHOP.servicebus.windows.net", PrimaryKey: busKey,
		SecondaryKey: otherKey, ResourceID: id + "shop/queues/orders",
	}
	got, mistakes := (&destination.Destination{EndpointType: sb, Properties: &agreeing}).Normalize()
	require.Empty(t, mistakes)
	require.Equal(t, otherKey, got.Properties.SecondaryKey)
	require.Equal(t, "servicebus://shop.servicebus.windows.net/orders", got.Target())
}

func TestNormalizeAddresses(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"Shop.servicebus.windows.net": "https://shop.servicebus.windows.net", "SB://a.b/": "https://a.b",
		"https://a.b:443//": "https://a.b", "http://A.b:80": "http://a.b:80", "http://[::1]:10001/x/": "http://[::1]:10001/x",
		"https://": "https://", "": "",
	} {
		got, _ := (&destination.Destination{
			EndpointType: eh, Properties: &destination.Properties{Endpoint: given},
		}).Normalize()
		require.Equal(t, want, got.Properties.Endpoint, given)
	}
	plain := false
	for _, tt := range []struct {
		kind        destination.Type
		given, want string
		tls         *bool
	}{
		{destination.NatsJetStream, "nats://A.test", "a.test:4222", nil},
		{destination.NatsJetStream, "tls://a.test:4443", "a.test:4443", nil},
		{destination.NatsJetStream, "[::1]", "[::1]:4222", nil},
		{destination.NatsJetStream, "tls://a.test:4443", "tls://a.test:4443", &plain},
		{destination.NatsJetStream, "a/b", "a/b", nil},
		{destination.Kafka, " Broker:9092", "broker:9092", nil},
		{destination.Kafka, "broker", "broker", nil},
	} {
		p := &destination.Properties{Servers: []string{tt.given}, TLS: tt.tls}
		got, mistakes := (&destination.Destination{EndpointType: tt.kind, Properties: p}).Normalize()
		require.Empty(t, mistakes)
		require.Equal(t, []string{tt.want}, got.Properties.Servers)
		require.Equal(t, []string{tt.given}, p.Servers)
	}
}
