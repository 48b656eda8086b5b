package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/destination"
	"postrider/internal/testdb"
	"postrider/internal/testnode"
	"postrider/server"
)

const (
	namespaceHost = "https://shop.servicebus.windows.net"
	plantedKey    = "cGxhbnRlZC1rZXktb2YtdGhlLWJ1cw=="
	storageKey    = "cGxhbnRlZC1zdG9yYWdlLWtleQ=="
)

// withTarget is the body of an event subscription with a destination; more are other settings.
func withTarget(kind destination.Type, properties string, more ...string) string {
	body := fmt.Sprintf(`{"destination":{"endpointType":%q,"properties":{%s}}`, kind, properties)
	for _, setting := range more {
		body += "," + setting
	}
	return body + "}"
}

const busProperties = `"endpoint":"` + namespaceHost + `","entityName":"orders","sharedAccessKeyName":"sender"`

// target is the destination that a response shows.
func (a response) target() string {
	a.t.Helper()
	var shown struct{ Destination json.RawMessage }
	require.NoError(a.t, json.Unmarshal([]byte(a.body), &shown))
	return string(shown.Destination)
}

// storedTarget is the destination with its secrets, as deliveries use it.
func (s *service) storedTarget() *destination.Properties {
	s.t.Helper()
	sub, err := s.store.Subscriptions.Get(s.t.Context(), "orders", "billing")
	require.NoError(s.t, err)
	return sub.Destination.Properties
}

// A connection string is divided into its parts. Nothing shows a secret, and a PUT without secrets keeps them unless
// they would be sent to another place.
func TestDestinationIsStored(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.topic("orders", "")
	require.Equal(t, "required", s.put("/v1/topics/orders/subscriptions/default", withTarget(destination.Kafka,
		`"servers":["a.example.com:9092"],"topic":"a"`)).json(201)["endpointValidation"])
	const shown = `{"endpointType":"ServiceBusQueue","properties":{` + busProperties + `}}`
	made := s.put(billing, withTarget(destination.ServiceBusQueue, `"connectionString":"Endpoint=sb://Shop.servicebus.`+
		`windows.net/;SharedAccessKeyName=sender;SharedAccessKey=`+plantedKey+`;EntityPath=orders"`)).is(201)
	require.JSONEq(t, shown, made.target())
	require.JSONEq(t, shown, s.get(billing).target())
	require.Equal(t, plantedKey, s.storedTarget().PrimaryKey)
	require.Empty(t, s.storedTarget().ConnectionString)
	view := s.tn.Text(t, "SELECT to_json(s)::text || (SELECT json_agg(a)::text FROM postrider.audit a) "+
		"FROM postrider.event_subscriptions s")
	require.Contains(t, view, `"endpoint_base_url":"servicebus://shop.servicebus.windows.net/orders"`)
	require.Contains(t, view, `"ServiceBusQueue"`)
	for _, text := range []string{made.body, s.get(billing).body, s.get("/v1/topics/orders/subscriptions").body, view} {
		require.NotContains(t, text, plantedKey)
	}

	s.put(billing, withTarget(destination.ServiceBusQueue, busProperties)).is(200)
	require.Equal(t, plantedKey, s.storedTarget().PrimaryKey)
	s.patch(billing, `{"labels":["x"]}`).is(200)
	require.Equal(t, plantedKey, s.storedTarget().PrimaryKey)
	for _, elsewhere := range []string{
		`"endpoint":"https://evil.servicebus.windows.net","entityName":"orders","sharedAccessKeyName":"sender"`,
		`"endpoint":"` + namespaceHost + `","entityName":"other","sharedAccessKeyName":"sender"`,
		`"endpoint":"` + namespaceHost + `","entityName":"orders","sharedAccessKeyName":"other"`,
	} {
		e := s.put(billing, withTarget(destination.ServiceBusQueue, elsewhere)).rejected(400, "InvalidRequest")
		require.Equal(t, []string{"destination.properties.primaryKey"}, targets(e))
	}
	e := s.put(billing, withTarget(destination.ServiceBusTopic, busProperties)).rejected(400, "InvalidRequest")
	require.Equal(t, []string{"destination.properties.primaryKey"}, targets(e), "another type is another place")

	// A patch of one part needs the secrets again if they would go to another place.
	const patched = `{"destination":{"properties":{%s}}}`
	e = s.patch(billing, fmt.Sprintf(patched, `"endpoint":"https://evil.servicebus.windows.net"`)).
		rejected(400, "InvalidRequest")
	require.Equal(t, []string{"destination.properties.primaryKey"}, targets(e))
	s.patch(billing, fmt.Sprintf(patched, `"maxMessageSizeInKilobytes":1024`)).is(200)
	require.Equal(t, plantedKey, s.storedTarget().PrimaryKey)
	s.patch(billing, fmt.Sprintf(patched, `"primaryKey":"new","secondaryKey":"second"`)).is(200)
	require.Equal(t, "new second", s.storedTarget().PrimaryKey+" "+s.storedTarget().SecondaryKey)
	require.Equal(t, 1024, *s.storedTarget().MaxMessageSizeInKilobytes)
	s.patch(billing,
		fmt.Sprintf(patched, `"endpoint":"https://other.servicebus.windows.net","primaryKey":"third"`)).is(200)
	require.Equal(t, "third ", s.storedTarget().PrimaryKey+" "+s.storedTarget().SecondaryKey)

	// Back to a webhook, and to another type.
	s.patch(billing, `{"destination":null}`).rejected(400, "InvalidRequest")
	hook := s.patch(billing, `{"destination":null,"endpointUrl":"https://example.com/"}`).is(200)
	require.Equal(t, "null", hook.target())
	kafka := `"servers":["Broker-1.example.com:9092"],"topic":"orders"`
	require.JSONEq(t, `{"endpointType":"Kafka","properties":{"servers":["broker-1.example.com:9092"],"topic":"orders"}}`,
		s.patch(billing, withTarget(destination.Kafka, kafka)).is(200).target())
	require.Equal(t, 1, s.count("SELECT count(*) FROM postrider.event_subscriptions WHERE endpoint_base_url = "+
		"'kafka://broker-1.example.com:9092/orders'"))
}

// The settings of another type and of webhooks are rejected, each under its own name. destination.TestMistakes has
// those of each type.
func TestDestinationsAreChecked(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.topic("orders", "")
	const p = "destination.properties"
	bus := busProperties + `,"primaryKey":"a"`
	for body, target := range map[string]string{
		`{"destination":{"endpointType":"ServiceBusQueue"}}`:                                 p,
		`{"destination":{"endpointType":"Pigeon","properties":{}}}`:                          "destination.endpointType",
		`{"endpointUrl":"https://example.com/","destination":{"properties":{"topic":"a"}}}`:  p,
		`{"destination":{"endpointType":"WebHook"}}`:                                         "endpointUrl",
		withTarget(destination.WebHook, bus, `"endpointUrl":"https://example.com/"`):         p,
		withTarget(destination.ServiceBusQueue, bus, `"endpointUrl":"https://example.com/"`): "endpointUrl",
		withTarget(destination.ServiceBusQueue, bus, `"signing":{"enabled":true}`):           "signing.enabled",
		withTarget(destination.StorageQueue, `"endpoint":"https://a.queue.core.windows.net","queueName":"orders",`+
			`"primaryKey":"`+storageKey+`"`, `"maxEventsPerBatch":10`): "maxEventsPerBatch",
		withTarget(destination.ServiceBusQueue, bus+`,"servers":["a:1"]`):        p + ".servers",
		withTarget(destination.ServiceBusQueue, bus+`,"port":1`):                 p + ".port",
		withTarget(destination.EventHub, `"connectionString":"planted"`):         p + ".connectionString",
		withTarget(destination.Kafka, `"servers":["10.0.0.1:9092"],"topic":"a"`): p + ".servers[0]",
		withTarget(destination.ServiceBusQueue, `"endpoint":"http://127.0.0.1:1","entityName":"a"`+
			`,"primaryKey":"a","sharedAccessKeyName":"b"`): p + ".endpoint",
		withTarget(destination.ServiceBusQueue, bus, `"deliveryConfiguration":{"deliveryMode":"Queue"}`): "",
	} {
		e := s.put(billing, body).rejected(400, "InvalidRequest")
		if target != "" {
			require.Equal(t, []string{target}, targets(e), "%s: %v", body, e)
		}
		require.NotContains(t, fmt.Sprint(e), "planted")
	}
	s.put(billing, withTarget(destination.EventHub, bus, `"endpointUrl":null,"endpointValidation":null,"signing":null`,
		`"deliveryAttributeMappings":[{"name":"PartitionKey","type":"Dynamic","properties":{"sourceField":"subject"}}]`,
		`"retryPolicy":{"policy":"ga-2018"}`)).is(201)
	s.post(billing+"/validate", "").rejected(409, "NoEndpoint")

	cert, key := selfSigned(t)
	ca := `"minimumTlsVersionAllowed":"1.3","certificateAuthorities":` + cert + `,"clientCertificate":{"certificate":` +
		cert + `,"privateKey":` + key + "}"
	s.put(billing, withTarget(destination.ServiceBusQueue, bus, ca)).is(200)
	kafka := `"servers":["a.example.com:9092"],"topic":"a"`
	s.put(billing, withTarget(destination.Kafka, kafka, ca)).is(200)
	plain := s.with(func(o *server.Options) { o.AllowHTTP = true })
	e := plain.put(billing, withTarget(destination.Kafka, kafka+`,"tls":false`, ca)).rejected(400, "InvalidRequest")
	require.Equal(t, []string{p + ".tls"}, targets(e))
	s.put(billing, withTarget(destination.ServiceBusTopic, `"endpoint":"`+namespaceHost+`","entityName":"a"`,
		`"oauth2":{"tokenUrl":"https://login.example.com/","clientId":"a","clientSecret":"b"}`)).is(200)
	require.NotContains(t, s.get(billing).json(200), "endpointValidation", "it has no check")
}

// A new target is called once before it is stored, unless endpointValidation is skip; a known one is not called.
func TestDestinationIsCheckedWhenItIsSaved(t *testing.T) {
	t.Parallel()
	s := (&service{t: t}).node(testdb.New(t), 1) // an engine needs a worker
	var status, requests atomic.Int64
	queue := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if r.Method != http.MethodGet || r.URL.Path != "/account/orders" || r.URL.RawQuery != "comp=metadata" {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		w.WriteHeader(int(status.Load()))
	}))
	t.Cleanup(queue.Close)
	engine := s.tn.Engine(t)
	s = s.with(func(o *server.Options) { o.Check, o.AllowCIDR = engine.Check, testnode.Loopback })
	s.topic("orders", "")
	body := func(key, more string) string {
		return withTarget(destination.StorageQueue, `"endpoint":"`+queue.URL+`/account","queueName":"orders",`+
			`"primaryKey":"`+key+`"`+more)
	}
	for rejected, text := range map[int]string{
		401: "Storage Queue responded 401: Unauthorized", 404: "Storage Queue responded 404: Not Found",
		403: "Storage Queue responded 403: Forbidden", 503: "Storage Queue responded 503",
	} {
		status.Store(int64(rejected))
		e := s.put(billing, body(storageKey, "")).rejected(400, "EndpointValidationFailed")
		require.Contains(t, e.Message, text)
		require.Contains(t, e.Message, "storagequeue://127.0.0.1:")
		require.NotContains(t, e.Message, storageKey)
	}
	s.get(billing).rejected(404, "NotFound")
	requests.Store(0)
	status.Store(401)
	s.put(billing, body(storageKey, `,"secondaryKey":"YQ=="`)).rejected(400, "EndpointValidationFailed")
	require.EqualValues(t, 2, requests.Swap(0), "each key is tried")
	status.Store(200)
	s.put(billing, body(storageKey, "")).is(201)
	s.put(billing, body(storageKey, "")).is(200)
	s.patch(billing, `{"labels":["x"]}`).is(200)
	require.EqualValues(t, 1, requests.Load(), "a known one")
	status.Store(404)
	const patch = `{"destination":{"properties":{"primaryKey":"YQ=="}}%s}`
	s.patch(billing, fmt.Sprintf(patch, "")).rejected(400, "EndpointValidationFailed")
	require.Equal(t, storageKey, s.storedTarget().PrimaryKey)
	s.patch(billing, fmt.Sprintf(patch, `,"endpointValidation":"skip"`)).is(200)
	require.Equal(t, "YQ==", s.storedTarget().PrimaryKey)
	require.EqualValues(t, 2, requests.Load())
	queue.Close()
	e := s.put("/v1/topics/orders/subscriptions/down", body(storageKey, "")).rejected(400, "EndpointValidationFailed")
	require.Contains(t, e.Message, "Connection refused")
}
