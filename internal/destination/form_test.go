package destination_test

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/destination"
)

const (
	busKey     = "c2VjcmV0LWtleS1vZi10aGUtYnVz+/="
	storageKey = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
	otherKey   = "b3RoZXI="
)

// signedAt is Tue, 14 Nov 2023 22:13:20 GMT.
var signedAt = time.Unix(1_700_000_000, 0)

func form(t *testing.T, kind destination.Type, p destination.Properties) destination.Form {
	t.Helper()
	f, err := (&destination.Destination{EndpointType: kind, Properties: &p}).Form()
	require.NoError(t, err)
	return f
}

func bus(kind destination.Type) destination.Properties {
	p := destination.Properties{Endpoint: "https://shop.servicebus.windows.net", EntityName: "orders"}
	if kind == destination.StorageQueue {
		p = destination.Properties{Endpoint: "https://shop.queue.core.windows.net", QueueName: "orders"}
	}
	return p
}

// The signatures are of openssl: printf 'SR\n1700000330' | openssl dgst -sha256 -hmac KEY -binary | base64.
func TestSharedAccessSignatures(t *testing.T) {
	t.Parallel()
	p := destination.Properties{
		Endpoint: "https://Shop.servicebus.windows.net", EntityName: "Billing/Orders", SharedAccessKeyName: "send & more",
		PrimaryKey: busKey, SecondaryKey: otherKey,
	}
	const token = "SharedAccessSignature sr=https%3A%2F%2Fshop.servicebus.windows.net%2Fbilling%2Forders" +
		"&sig=qwdK9T74v0Vaq%2BANU2kYTkHKgkttwwHEgEg8nhm%2B%2Fz8%3D&se=1700000330&skn=send+%26+more"
	for kind, query := range map[destination.Type]string{
		destination.ServiceBusQueue: "?timeout=30", destination.ServiceBusTopic: "?timeout=30",
		destination.EventHub: "?timeout=30&api-version=2014-01",
	} {
		h := http.Header{"Authorization": {"of a user"}}
		url, ok := form(t, kind, p).Authorize(h, nil, signedAt, false)
		require.True(t, ok)
		require.Equal(t, "https://Shop.servicebus.windows.net/Billing/Orders/messages"+query, url)
		require.Equal(t, http.Header{
			"Authorization": {token}, "X-Ms-Retrypolicy": {"NoRetry"},
			"Content-Type": {"application/vnd.microsoft.servicebus.json"},
		}, h)
		second := http.Header{}
		_, ok = form(t, kind, p).Authorize(second, nil, signedAt, true)
		require.True(t, ok)
		require.NotEqual(t, token, second.Get("Authorization"))
	}
	p.EntityName = "hook"
	h := http.Header{}
	url, ok := form(t, destination.HybridConnection, p).Authorize(h, nil, signedAt, false)
	require.True(t, ok)
	require.Equal(t, "https://Shop.servicebus.windows.net/hook", url)
	require.Equal(t, http.Header{"Servicebusauthorization": {
		"SharedAccessSignature sr=http%3A%2F%2Fshop.servicebus.windows.net%2Fhook" +
			"&sig=yOshLtzXyfS9tYmzOgI2NLBF0MnLvTP%2BEKsfelCqhl8%3D&se=1700000330&skn=send+%26+more",
	}}, h)
}

func TestCredentialsWithoutASecondKey(t *testing.T) {
	t.Parallel()
	for _, kind := range []destination.Type{
		destination.ServiceBusQueue, destination.EventHub, destination.HybridConnection, destination.StorageQueue,
	} {
		f := form(t, kind, bus(kind))
		h := http.Header{}
		_, ok := f.Authorize(h, nil, signedAt, false)
		require.True(t, ok, kind)
		require.Empty(t, h.Get("Authorization")+h.Get("ServiceBusAuthorization"), kind)
		_, ok = f.Authorize(http.Header{}, nil, signedAt, true)
		require.False(t, ok, kind)
	}
	p := bus(destination.EventHub)
	for _, given := range []string{"sr=a&sig=b&se=1&skn=c", "SharedAccessSignature sr=a&sig=b&se=1&skn=c"} {
		p.SharedAccessSignature = given
		h := http.Header{}
		_, ok := form(t, destination.EventHub, p).Authorize(h, nil, signedAt, false)
		require.True(t, ok)
		require.Equal(t, "SharedAccessSignature sr=a&sig=b&se=1&skn=c", h.Get("Authorization"))
	}
}

// The signatures are of openssl, over the text that Microsoft's page Authorize with Shared Key describes:
// printf 'POST\n\n\n72\n\napplication/xml\n\n\n\n\n\n\nx-ms-date:DATE\nx-ms-version:2021-12-02\nRESOURCE' |
// openssl dgst -sha256 -mac HMAC -macopt hexkey:KEY -binary | base64.
func TestSharedKey(t *testing.T) {
	t.Parallel()
	never := -1
	message := []destination.Message{{Body: []byte(`{"id":"1"}`)}}
	for _, tt := range []struct{ endpoint, url, authorization string }{
		{
			"https://shop.queue.core.windows.net", "https://shop.queue.core.windows.net/orders/messages?messagettl=-1",
			"SharedKey shop:julbtZK+QCk6ZiHwYy7hWWE4mXplerEAMtTAyd3RnU4=",
		},
		{
			"http://127.0.0.1:10001/devstoreaccount1", "http://127.0.0.1:10001/devstoreaccount1/orders/messages",
			"SharedKey devstoreaccount1:O6e/uZ7YeHPmM5T4pjXxtG2acRCz4IjFEQwvQIuZWcI=",
		},
	} {
		p := destination.Properties{Endpoint: tt.endpoint, QueueName: "orders", PrimaryKey: storageKey}
		if strings.Contains(tt.url, "ttl") {
			p.QueueMessageTimeToLiveInSeconds = &never
		}
		f := form(t, destination.StorageQueue, p)
		body, contentType := f.Write(message)
		require.Equal(t, "<QueueMessage><MessageText>eyJpZCI6IjEifQ==</MessageText></QueueMessage>", string(body))
		require.Equal(t, "application/xml", contentType)
		h := http.Header{}
		url, ok := f.Authorize(h, body, signedAt, false)
		require.True(t, ok)
		require.Equal(t, tt.url, url)
		require.Equal(t, http.Header{
			"Authorization": {tt.authorization}, "Content-Type": {"application/xml"},
			"X-Ms-Date": {"Tue, 14 Nov 2023 22:13:20 GMT"}, "X-Ms-Version": {"2021-12-02"},
		}, h)
	}
	p := bus(destination.StorageQueue)
	p.PrimaryKey, p.SecondaryKey = otherKey, storageKey
	p.QueueMessageTimeToLiveInSeconds = &never
	f := form(t, destination.StorageQueue, p)
	body, _ := f.Write(message)
	h := http.Header{}
	_, ok := f.Authorize(h, body, signedAt, true)
	require.True(t, ok)
	require.Equal(t, "SharedKey shop:julbtZK+QCk6ZiHwYy7hWWE4mXplerEAMtTAyd3RnU4=", h.Get("Authorization"))
}

func TestStorageQueueSignatureInTheQuery(t *testing.T) {
	t.Parallel()
	hour := 3600
	p := bus(destination.StorageQueue)
	p.SharedAccessSignature, p.QueueMessageTimeToLiveInSeconds = "sv=2022&sp=a&sig=x%2By%3D", &hour
	f := form(t, destination.StorageQueue, p)
	h := http.Header{}
	url, ok := f.Authorize(h, []byte("x"), signedAt, false)
	require.True(t, ok)
	require.Equal(t,
		"https://shop.queue.core.windows.net/orders/messages?messagettl=3600&sv=2022&sp=a&sig=x%2By%3D", url)
	require.Empty(t, h.Get("Authorization"))
	url, _, ok = f.Check(signedAt, false)
	require.True(t, ok)
	require.Equal(t, "https://shop.queue.core.windows.net/orders?comp=metadata&sv=2022&sp=a&sig=x%2By%3D", url)
}

func TestCheck(t *testing.T) {
	t.Parallel()
	p := bus(destination.StorageQueue)
	p.PrimaryKey = storageKey
	url, h, ok := form(t, destination.StorageQueue, p).Check(signedAt, false)
	require.True(t, ok)
	require.Equal(t, "https://shop.queue.core.windows.net/orders?comp=metadata", url)
	require.Equal(t, "SharedKey shop:P/ZIlheLZm7eB6rcwJhvltkFmk8dCBpoyVbtpLs9/mE=", h.Get("Authorization"))
	for _, kind := range []destination.Type{
		destination.ServiceBusQueue, destination.ServiceBusTopic, destination.EventHub, destination.HybridConnection,
	} {
		_, _, ok := form(t, kind, bus(kind)).Check(signedAt, false)
		require.False(t, ok, kind)
	}
}

// golden are two messages: all of Service Bus's own properties, letter case, quotes, control characters, other scripts.
var golden = []destination.Message{
	{
		ID: "7-1", Body: []byte("{\"id\":\"7\",\"data\":\"<Zo\u00eb \u6771> & \\\"q\\\" \\u0001\"}"),
		ContentType: "application/json; charset=utf-8", Attributes: []destination.Attribute{
			{Name: "aeg-event-type", Value: "Notification"},
			{Name: "MessageId", Value: "m"},
			{Name: "SessionId", Value: "s"},
			{Name: "PartitionKey", Value: "s"},
			{Name: "CorrelationId", Value: "c"},
			{Name: "Label", Value: "l"},
			{Name: "ReplyTo", Value: "r"},
			{Name: "ReplyToSessionId", Value: "rs"},
			{Name: "To", Value: "t"},
			{Name: "ViaPartitionKey", Value: "v"},
			{Name: "sessionid", Value: "of the user"},
			{Name: "X-Tenant", Value: "K\u00f6ln \"<a>\"\t"},
		},
	},
	{ID: "8", Body: []byte(`{}`), ContentType: "application/cloudevents+json; charset=utf-8"},
}

func TestWriteServiceBus(t *testing.T) {
	t.Parallel()
	const want = `[{"Body":"{\"id\":\"7\",\"data\":\"<Zoë 東> & \\\"q\\\" \\u0001\"}",` +
		`"BrokerProperties":{"ContentType":"application/json; charset=utf-8","CorrelationId":"c","Label":"l",` +
		`"MessageId":"m","PartitionKey":"s","ReplyTo":"r","ReplyToSessionId":"rs","SessionId":"s","To":"t",` +
		`"ViaPartitionKey":"v"},` +
		`"UserProperties":{"X-Tenant":"Köln \"<a>\"\t","aeg-event-type":"Notification","sessionid":"of the user"}},` +
		`{"Body":"{}","BrokerProperties":{"ContentType":"application/cloudevents+json; charset=utf-8","MessageId":"8"}}]`
	for _, kind := range []destination.Type{destination.ServiceBusQueue, destination.ServiceBusTopic} {
		body, contentType := form(t, kind, bus(kind)).Write(golden)
		require.Equal(t, want, string(body))
		require.Equal(t, "application/vnd.microsoft.servicebus.json", contentType)
		var read []struct{ Body string }
		require.NoError(t, json.Unmarshal(body, &read))
		require.Equal(t, string(golden[0].Body), read[0].Body)
	}
}

func TestWriteEventHubs(t *testing.T) {
	t.Parallel()
	body, contentType := form(t, destination.EventHub, bus(destination.EventHub)).Write(golden)
	require.Equal(t, `[{"Body":"{\"id\":\"7\",\"data\":\"<Zoë 東> & \\\"q\\\" \\u0001\"}",`+
		`"BrokerProperties":{"PartitionKey":"s"},`+
		`"UserProperties":{"CorrelationId":"c","Label":"l","MessageId":"m","ReplyTo":"r","ReplyToSessionId":"rs",`+
		`"SessionId":"s","To":"t","ViaPartitionKey":"v","X-Tenant":"Köln \"<a>\"\t","aeg-event-type":"Notification",`+
		`"sessionid":"of the user"}},{"Body":"{}"}]`, string(body))
	require.Equal(t, "application/vnd.microsoft.servicebus.json", contentType)
	body, _ = form(t, destination.EventHub, bus(destination.EventHub)).Write(golden[1:])
	require.Equal(t, `[{"Body":"{}"}]`, string(body), "one message is a batch, too")
}

func TestRelaySendsTheWebhooksBody(t *testing.T) {
	t.Parallel()
	body, contentType := form(t, destination.HybridConnection, bus(destination.HybridConnection)).Write(golden)
	require.Nil(t, body)
	require.Empty(t, contentType)
}

func TestMaxBytes(t *testing.T) {
	t.Parallel()
	for kind, most := range map[destination.Type]int{
		destination.ServiceBusQueue: 262_144, destination.ServiceBusTopic: 262_144, destination.EventHub: 1_048_576,
	} {
		p := bus(kind)
		require.Equal(t, most, form(t, kind, p).MaxBytes())
		kilobytes := 1024
		p.MaxMessageSizeInKilobytes = &kilobytes
		require.Equal(t, 1_048_576, form(t, kind, p).MaxBytes())
	}
	require.Zero(t, form(t, destination.HybridConnection, bus(destination.HybridConnection)).MaxBytes())
	queue := form(t, destination.StorageQueue, bus(destination.StorageQueue))
	for size, fits := range map[int]bool{49_152: true, 49_153: false} {
		body, _ := queue.Write([]destination.Message{{Body: make([]byte, size)}})
		text := strings.TrimSuffix(strings.TrimPrefix(string(body), "<QueueMessage><MessageText>"),
			"</MessageText></QueueMessage>")
		require.Equal(t, fits, len(text) <= 65_536)
		require.Equal(t, fits, len(body) <= queue.MaxBytes())
		decoded, err := base64.StdEncoding.DecodeString(text)
		require.NoError(t, err)
		require.Len(t, decoded, size)
	}
}

func TestFormsOfOthers(t *testing.T) {
	t.Parallel()
	for kind, p := range map[destination.Type]destination.Properties{
		destination.WebHook: {}, destination.Kafka: {}, destination.NatsJetStream: {},
		destination.EventHub:        {Endpoint: "https://shop.servicebus.windows.net"}, // no hub
		destination.ServiceBusQueue: {EntityName: "orders"},                            // no host
		destination.StorageQueue:    {Endpoint: "https://a.queue.b", QueueName: "orders", PrimaryKey: "no base64!"},
	} {
		_, err := (&destination.Destination{EndpointType: kind, Properties: &p}).Form()
		require.Error(t, err, kind)
		require.NotContains(t, err.Error(), "no base64!")
	}
	var none *destination.Destination
	_, err := none.Form()
	require.Error(t, err)
}
