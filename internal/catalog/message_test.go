package catalog

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/access"
	"postrider/internal/message"
)

const pagerDutyURL = "https://events.pagerduty.com/v2/enqueue"

// Messages exist on postrider.system only, one event each. No mistake repeats the routing key.
func TestMessageMistakes(t *testing.T) {
	t.Parallel()
	stored := &SubscriptionSpec{EndpointURL: pagerDutyURL, PagerDutyRoutingKey: "planted"}
	for _, row := range []struct {
		topic string
		spec  SubscriptionSpec
		want  string
	}{
		{SystemTopic, SubscriptionSpec{}, ""},
		{"orders", SubscriptionSpec{MessageFormat: message.None}, ""},
		{SystemTopic, SubscriptionSpec{MessageFormat: message.Slack, MaxEventsPerBatch: new(1)}, ""},
		{
			"orders",
			SubscriptionSpec{MessageFormat: message.Slack},
			`messageFormat must be None on topic "orders", not Slack: only events of postrider.system become messages`,
		},
		{
			SystemTopic,
			SubscriptionSpec{MessageFormat: message.Teams, MaxEventsPerBatch: new(10)},
			"maxEventsPerBatch must be 1 or null with messageFormat Teams, not 10: a message is about one event",
		},
		{
			SystemTopic,
			SubscriptionSpec{MessageFormat: message.Teams, PreferredBatchSizeInKilobytes: new(64)},
			"preferredBatchSizeInKilobytes must be null with messageFormat Teams, not 64: a message is about one event",
		},
		{
			SystemTopic,
			SubscriptionSpec{MessageFormat: message.PagerDuty},
			"pagerDutyRoutingKey is required with messageFormat PagerDuty: none is stored for this endpointUrl",
		},
		{SystemTopic, SubscriptionSpec{MessageFormat: message.PagerDuty, EndpointURL: pagerDutyURL}, ""},
		{
			SystemTopic,
			SubscriptionSpec{MessageFormat: message.PagerDuty, EndpointURL: "https://other.example.com/"},
			"pagerDutyRoutingKey is required with messageFormat PagerDuty: none is stored for this endpointUrl",
		},
		{
			SystemTopic,
			SubscriptionSpec{MessageFormat: message.Slack, PagerDutyRoutingKey: "planted"},
			"pagerDutyRoutingKey requires messageFormat PagerDuty",
		},
		{
			SystemTopic,
			SubscriptionSpec{PagerDutyRoutingKey: "planted"},
			"pagerDutyRoutingKey requires messageFormat PagerDuty",
		},
		{
			SystemTopic,
			SubscriptionSpec{MessageFormat: message.PagerDuty, PagerDutyRoutingKey: "planted\n"},
			"pagerDutyRoutingKey must consist of visible ASCII characters",
		},
	} {
		var texts []string
		for _, mistake := range row.spec.MessageMistakes(row.topic, stored) {
			texts = append(texts, mistake.Field+" "+mistake.Message)
		}
		require.Equal(t, row.want, strings.Join(texts, "; "))
	}
}

// The routing key is kept for its endpoint only.
func TestRoutingKeyIsKeptForItsEndpoint(t *testing.T) {
	t.Parallel()
	existing := &Subscription{Stated: SubscriptionSpec{EndpointURL: pagerDutyURL, PagerDutyRoutingKey: "planted"}}
	s := SubscriptionSpec{EndpointURL: pagerDutyURL, MessageFormat: message.PagerDuty}
	require.NoError(t, s.keepSecrets(existing))
	require.Equal(t, "planted", s.PagerDutyRoutingKey)
	s = SubscriptionSpec{EndpointURL: pagerDutyURL}
	require.NoError(t, s.keepSecrets(existing))
	require.Empty(t, s.PagerDutyRoutingKey, "not for another format")
	s = SubscriptionSpec{EndpointURL: "https://other.example.com/", MessageFormat: message.PagerDuty}
	require.ErrorContains(t, s.keepSecrets(existing), "pagerDutyRoutingKey")
}

// A webhook's path is not shown, and the audit has neither it nor the routing key.
func TestMessageSecretsAreNotShown(t *testing.T) {
	t.Parallel()
	s := SubscriptionSpec{
		EndpointURL: "https://hooks.slack.com/services/planted?planted", MessageFormat: message.Slack,
		PagerDutyRoutingKey: "planted",
	}
	require.Equal(t, "https://hooks.slack.com", s.EndpointBaseURL())
	changes := s.changesFrom(&SubscriptionSpec{})
	require.Equal(t, access.Changed, changes["endpointUrl"])
	require.Equal(t, access.Changed, changes["pagerDutyRoutingKey"])
	changes = (&SubscriptionSpec{EndpointURL: "https://example.com/in"}).changesFrom(&s)
	require.Equal(t, access.Changed, changes["endpointUrl"], "the old one had a secret")
	plain := SubscriptionSpec{EndpointURL: "https://example.com/in?code=1"}
	require.Equal(t, "https://example.com/in", plain.EndpointBaseURL())
	require.Equal(t, "no *** or *** here", s.secrets().Redact("no planted or /services/planted here"))
}
