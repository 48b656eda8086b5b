package v1

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/catalog/spec"
	"postrider/internal/destination"
)

// The text of a secret setting is in no comparison, whatever its name.
func TestSecretsAreMasked(t *testing.T) {
	t.Parallel()
	text := []byte(`{"endpointUrl":"https://example.com/in?code=planted","signing":{"enabled":true,"secret":"planted"},
		"deliveryAttributeMappings":[{"name":"X-Key","type":"Static","properties":{"value":"planted","isSecret":true}}],
		"clientCertificate":{"certificate":"c","privateKey":"planted"},
		"oauth2":{"tokenUrl":"https://login.example.com","clientId":"i","clientSecret":"planted"},
		"messageFormat":"PagerDuty","pagerDutyRoutingKey":"planted"}`)
	var declared catalog.SubscriptionSpec
	require.NoError(t, json.Unmarshal(text, &declared))
	masked := withSecrets(text, &declared, &catalog.SubscriptionSpec{})
	require.NotContains(t, string(masked), "planted")
	slack := []byte(`{"endpointUrl":"https://hooks.slack.com/services/planted","messageFormat":"Slack"}`)
	declared = catalog.SubscriptionSpec{}
	require.NoError(t, json.Unmarshal(slack, &declared))
	require.NotContains(t, string(withSecrets(slack, &declared, &catalog.SubscriptionSpec{})), "planted",
		"the path of a chat service's webhook is a secret")
	bus := []byte(`{"destination":{"endpointType":"ServiceBusQueue","properties":{"connectionString":"planted",
		"primaryKey":"planted","secondaryKey":"planted","sharedAccessSignature":"planted"}}}`)
	declared = catalog.SubscriptionSpec{}
	require.NoError(t, json.Unmarshal(bus, &declared))
	declared.Destination.Properties.ConnectionString = "" // divided into its parts
	masked = withSecrets(bus, &declared, &catalog.SubscriptionSpec{})
	require.NotContains(t, string(masked), "planted")
	require.NotContains(t, string(masked), "changed")
	before := catalog.SubscriptionSpec{Destination: &destination.Destination{
		EndpointType: destination.ServiceBusQueue, Properties: &destination.Properties{PrimaryKey: "was planted"},
	}}
	require.Contains(t, string(withSecrets(bus, &declared, &before)), `"primaryKey":"*** (changed)"`)
	require.NotContains(t, string(withSecrets(bus, &declared, &before)), "planted")
	for _, s := range spec.Subscription {
		if s.Secret && s.Section != spec.Destination {
			require.NotEmpty(t, spec.At(text, s.Name), "%s is planted above", s.Name)
		}
	}
}

// A new row of the table is compared, without further code.
func TestANewSettingIsCompared(t *testing.T) {
	t.Parallel()
	table := []spec.Setting{{Name: "outer.brandNew", Section: spec.Advanced, Kind: spec.Whole}}
	require.Equal(t, []PropertyChange{{"outer.brandNew", "1", "2"}},
		changedProperties(table, []byte(`{"outer":{"brandNew":1}}`), []byte(`{"outer":{"brandNew":2}}`)))
}
