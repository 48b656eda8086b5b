package server_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/server"
)

const (
	onCall       = "/v1/topics/" + catalog.SystemTopic + "/subscriptions/oncall"
	slackPut     = `{"endpointUrl":"https://hooks.slack.com/services/planted","messageFormat":"Slack"}`
	pagerDutyPut = `{"endpointUrl":"https://events.pagerduty.com/v2/enqueue","messageFormat":"PagerDuty"`
)

// The format is shown, and skips the handshake; the routing key and the webhook's path are in no response, view or log.
func TestMessageSettings(t *testing.T) {
	t.Parallel()
	log := &lines{}
	s := setup(t, log.all, func(o *server.Options) { o.DefaultValidation = nil }) // required
	require.NoError(t, s.store.Topics.EnsureSystem(t.Context()))
	made := s.put(onCall, slackPut)
	shown := made.json(201)
	require.Equal(t, "Slack", shown["messageFormat"])
	require.Equal(t, "skip", shown["endpointValidation"])
	require.Equal(t, "Succeeded", shown["provisioningState"])
	require.Equal(t, "https://hooks.slack.com", shown["endpointBaseUrl"])
	require.Equal(t, "CloudEventSchemaV1_0", shown["eventDeliverySchema"])
	responses := []response{made}
	require.Equal(t, "https://hooks.slack.com/services/planted",
		s.post(onCall+"/getFullUrl", "").json(200)["endpointUrl"], "to an administrator, audited")

	change := func(method func(path, body string) response, body string) map[string]any {
		t.Helper()
		a := method(onCall, body)
		responses = append(responses, a, s.get(onCall), s.get("/v1/topics/"+catalog.SystemTopic+"/subscriptions"))
		return a.json(200)
	}
	change(s.put, pagerDutyPut+`,"pagerDutyRoutingKey":"planted","signing":{"enabled":true}}`)
	change(s.put, pagerDutyPut+`}`)
	require.Equal(t, "PagerDuty", change(s.patch, `{"description":"the key stays"}`)["messageFormat"])
	sub, err := s.store.Subscriptions.Get(t.Context(), catalog.SystemTopic, "oncall")
	require.NoError(t, err)
	require.Equal(t, "planted", sub.PagerDutyRoutingKey)
	change(s.patch, `{"messageFormat":"Teams"}`)
	sub, err = s.store.Subscriptions.Get(t.Context(), catalog.SystemTopic, "oncall")
	require.NoError(t, err)
	require.Empty(t, sub.PagerDutyRoutingKey, "dropped with its format")
	shown = change(s.patch, `{"endpointUrl":"https://prod.logic.azure.com/x?sig=planted"}`)
	require.Equal(t, "skip", shown["endpointValidation"])
	for _, none := range []string{`null`, `"None"`} {
		a := s.patch(onCall, `{"endpointValidation":"skip","messageFormat":`+none+`}`)
		require.Equal(t, "endpointUrl is required if messageFormat becomes None: the path of the stored one is a secret",
			a.rejected(400, "InvalidRequest").Message)
	}
	shown = change(s.patch,
		`{"endpointValidation":"skip","endpointUrl":"https://example.com/in","messageFormat":null}`)
	require.Equal(t, "https://example.com/in", shown["endpointBaseUrl"])
	require.NotContains(t, s.get(onCall).json(200), "messageFormat")

	for _, a := range responses {
		require.NotContains(t, a.body, "planted")
		require.NotContains(t, a.body, "pagerDutyRoutingKey")
	}
	require.NotContains(t, log.String(), "planted")
	for _, from := range []string{
		"postrider.audit", "postrider.event_subscriptions", "postrider_internal.event_subscriptions",
	} {
		require.Zero(t, s.count("SELECT count(*) FROM "+from+" v WHERE v::text LIKE '%planted%'"), from)
	}
}

// A rejection names the setting, the value and what is allowed; nothing is stored. catalog.TestMessageMistakes has the
// mistakes of messages.
func TestMessageSettingsAreChecked(t *testing.T) {
	t.Parallel()
	s := setup(t)
	require.NoError(t, s.store.Topics.EnsureSystem(t.Context()))
	s.topic("orders", `{"inputSchema":"CloudEventSchemaV1_0"}`)
	const slack = `{"endpointUrl":"https://hooks.slack.com/services/planted","messageFormat":"Slack",`
	for _, row := range []struct{ path, body, want string }{
		{
			billing, slackPut, `messageFormat must be None on topic "orders", not Slack: only events of postrider.system ` +
				`become messages`,
		},
		{
			onCall, `{"endpointUrl":"https://example.com/","messageFormat":"Discord"}`,
			"messageFormat must be None, Slack, Teams or PagerDuty",
		},
		{
			onCall, slack + `"eventDeliverySchema":"EventGridSchema"}`,
			"eventDeliverySchema must be CloudEventSchemaV1_0: the topic's input schema is CloudEventSchemaV1_0, which " +
				"cannot become EventGridSchema",
		},
		{
			onCall, `{"deliveryConfiguration":{"deliveryMode":"Queue"},"messageFormat":"Slack"}`,
			"messageFormat must be absent with deliveryMode Queue: consumers receive the events; set it to null",
		},
	} {
		require.Equal(t, row.want, s.put(row.path, row.body).rejected(400, "InvalidRequest").Message)
	}
	require.Zero(t, s.count("SELECT count(*) FROM postrider.event_subscriptions"))
	s.put(billing, `{"endpointUrl":"https://example.com/in","messageFormat":"None"}`).json(201)
	s.put(billing, `{"deliveryConfiguration":{"deliveryMode":"Queue"},"messageFormat":"None"}`).json(200)

	s.put(onCall, pagerDutyPut+`,"pagerDutyRoutingKey":"planted"}`).json(201)
	rejected := s.patch(onCall, `{"endpointUrl":"https://elsewhere.example.com/"}`).rejected(400, "InvalidRequest")
	require.Equal(t, "pagerDutyRoutingKey is required with messageFormat PagerDuty: none is stored for this endpointUrl",
		rejected.Message, "the key is not sent to another address")
}
