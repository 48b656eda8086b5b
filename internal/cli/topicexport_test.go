package cli_test

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/cli/rest"
)

// A topic that is exported by one service and applied at another is the same there, with its keys and secrets.
func TestTopicExport(t *testing.T) {
	t.Parallel()
	a, b := newHost(t), newHost(t)
	declared, err := os.ReadFile("config/testdata/apply.yaml")
	require.NoError(t, err)
	text := strings.ReplaceAll(string(declared), "ENDPOINT", a.url+"/healthz")
	a.run(0, "apply", "-f", writtenFile(t, text), "--yes")
	a.run(0, "subscription", "create", "applied", "queue", "--delivery-mode", "Queue", "--max-delivery-count", "3")
	a.run(0, "subscription", "update", "applied", "two", "--signing", "true", "--description", "Invoices",
		"--max-events-per-batch", "1", "--preferred-batch-size-in-kilobytes", "100")

	exported := a.run(0, "topic", "export", "applied").stdout
	secret := a.object("subscription", "signing-secrets", "applied", "two")["value"].([]any)[0].(map[string]any)["secret"]
	for _, part := range []string{"?code=secret", "s3cret", secret.(string), `"name": "applied"`, "9007199254740993"} {
		require.Contains(t, exported, part)
	}
	file := writtenFile(t, exported)
	require.Contains(t, b.run(0, "apply", "-f", file, "--yes").stdout, "created subscription applied/two\n")
	require.Equal(t, a.object("topic", "keys", "applied"), b.object("topic", "keys", "applied"))
	require.Equal(t, exported, b.run(0, "topic", "export", "applied").stdout)
	for _, h := range []*host{a, b} {
		require.Contains(t, h.run(0, "apply", "-f", file, "--dry-run").stdout, "(0 to create, 0 to change, 0 to delete, 5 "+
			"unchanged)")
	}
}

// An exported event subscription follows its retry policy and behavior like the original: their values are not in the
// file.
func TestTopicExportKeepsDefaults(t *testing.T) {
	t.Parallel()
	a, b := newHost(t), newHost(t)
	const policy = "policies: [{name: own, ackTimeoutInSeconds: 2.5, maxDeliveryAttempts: {default: %s, most: 9}}]"
	a.run(0, "apply", "--yes", "-f", writtenFile(t, strings.ReplaceAll(policy, "%s", "4")+`
topics:
  - name: orders
    inputSchema: CloudEventSchemaV1_0
    subscriptions:
      - name: default
        endpointUrl: `+a.url+`/healthz
        endpointValidation: skip
        retryPolicy: {policy: own}
      - name: stated
        endpointUrl: `+a.url+`/healthz
        endpointValidation: skip
        retryPolicy: {policy: own, maxDeliveryAttempts: 5, eventTimeToLiveInMinutes: 60}
        maxEventsPerBatch: 1
        preferredBatchSizeInKilobytes: 100
        responseTimeoutInSeconds: 7
        honorRetryAfter: false
        deadLetterDestination: {endpointType: None}
      - name: binary
        destination: {endpointType: Kafka, properties: {
          servers: ["broker.example.com:9093"], topic: orders, contentMode: binary, saslMechanism: OAUTHBEARER}}
        endpointValidation: skip
        oauth2: {tokenUrl: "https://login.example.com/token", clientId: c, clientSecret: hidden}
`))
	var exported struct {
		Topics []struct{ Subscriptions []rest.Object }
	}
	text := a.run(0, "topic", "export", "orders").stdout
	require.NoError(t, json.Unmarshal([]byte(text), &exported))
	subs := exported.Topics[0].Subscriptions
	require.JSONEq(t, `{"name":"default","deliveryConfiguration":{"deliveryMode":"Push"},"endpointUrl":"`+a.url+
		`/healthz","endpointValidation":"skip","eventDeliverySchema":"CloudEventSchemaV1_0","behavior":"safe",
		"retryPolicy":{"policy":"own"}}`, mustJSON(t, subs[1]))
	require.JSONEq(t, `{"name":"stated","deliveryConfiguration":{"deliveryMode":"Push"},"endpointUrl":"`+a.url+
		`/healthz","endpointValidation":"skip","eventDeliverySchema":"CloudEventSchemaV1_0","behavior":"safe",
		"retryPolicy":{"policy":"own","maxDeliveryAttempts":5,"eventTimeToLiveInMinutes":60},"maxEventsPerBatch":1,
		"preferredBatchSizeInKilobytes":100,"responseTimeoutInSeconds":7,"honorRetryAfter":false,
		"deadLetterDestination":{"endpointType":"None"}}`, mustJSON(t, subs[2]))

	b.run(0, "apply", "--yes", "-f", writtenFile(t, strings.Replace(text, `"clientId"`,
		`"clientSecret": "hidden", "clientId"`, 1)))
	require.Equal(t, text, b.run(0, "topic", "export", "orders").stdout)
	b.run(0, "apply", "--yes", "-f", writtenFile(t, strings.ReplaceAll(policy, "%s", "8")))
	b.run(0, "subscription", "update", "orders", "default", "--behavior", "documented")
	now := b.object("subscription", "show", "orders", "default")
	require.EqualValues(t, 8, rest.ValueAt(now, "retryPolicy.maxDeliveryAttempts"))
	require.Equal(t, false, now["honorRetryAfter"])
	require.EqualValues(t, 5, rest.ValueAt(b.object("subscription", "show", "orders", "stated"),
		"retryPolicy.maxDeliveryAttempts"))
}

// Secrets that are never shown are named by their settings, and apply requires them.
func TestTopicExportNamesHiddenSecrets(t *testing.T) {
	t.Parallel()
	a, b := newHost(t), newHost(t)
	a.topic("orders")
	servers := `"servers":["broker.example.com:9093"]`
	for name, settings := range map[string]string{
		"a-token": `"endpointUrl":"https://billing.example.com/events",
			"oauth2":{"tokenUrl":"https://billing.example.com/token","clientId":"c","clientSecret":"hidden"}`,
		"b-bus": `"destination":{"endpointType":"ServiceBusQueue","properties":{"resourceId":"` + busID + `",
			"sharedAccessKeyName":"send","primaryKey":"hidden"}}`,
		"c-kafka": `"destination":{"endpointType":"Kafka","properties":{` + servers + `,"topic":"orders"}}`,
		"d-kafka": `"destination":{"endpointType":"Kafka","properties":{` + servers + `,"topic":"orders",
			"saslMechanism":"PLAIN","username":"u","password":"hidden"}}`,
		"e-nats": `"destination":{"endpointType":"NatsJetStream","properties":{` + servers + `,"subject":"orders"}}`,
	} {
		if !strings.HasSuffix(name, "bus") {
			settings += `,"endpointValidation":"skip"`
		}
		a.manage(http.StatusCreated, http.MethodPut, "/v1/topics/orders/subscriptions/"+name, "{"+settings+"}")
	}
	done := a.run(0, "topic", "export", "orders")
	require.NotContains(t, done.stdout, "hidden")
	require.Equal(t, []string{
		"a-token: oauth2.clientSecret",
		"b-bus: destination.properties.primaryKey, if it is set",
		"b-bus: destination.properties.secondaryKey, if it is set",
		"b-bus: destination.properties.sharedAccessSignature, if it is set",
		"d-kafka: destination.properties.password",
		"e-nats: destination.properties.password, if it is set",
		"e-nats: destination.properties.credentials, if it is set",
	}, strings.Split(strings.NewReplacer("not exported: event subscription ", "", ": add it to the file\n", "\n").
		Replace(strings.TrimSuffix(done.stderr, ": add it to the file\n")), "\n"))
	rejected := b.run(2, "apply", "-f", writtenFile(t, done.stdout), "--yes")
	for _, secret := range []string{"oauth2.clientSecret", "primaryKey", "password"} {
		require.Contains(t, rejected.stderr, secret)
	}

	require.NoError(t, a.System.Topics.EnsureSystem(t.Context()))
	system := a.run(1, "topic", "export", "postrider.system")
	require.Empty(t, system.stdout)
	require.Contains(t, system.stderr, "topic postrider.system is not exported: every service has its own")
}
