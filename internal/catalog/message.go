package catalog

import (
	"fmt"
	"net/url"
	"strings"

	"postrider/internal/endpointconf"
	"postrider/internal/filter"
	"postrider/internal/message"
)

// MessageMistakes lists what is wrong with the settings of messages for a topic. stored are the settings that are
// replaced: a routing key may be omitted if it is stored for this endpoint. No message repeats the key.
func (s *SubscriptionSpec) MessageMistakes(topic string, stored *SubscriptionSpec) (found []filter.ValidationError) {
	add := func(field, format string, args ...any) {
		found = append(found, filter.ValidationError{Field: field, Message: fmt.Sprintf(format, args...)})
	}
	if key := s.PagerDutyRoutingKey; strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		add(routingKeySetting, "must consist of visible ASCII characters")
	} else if key != "" && s.MessageFormat != message.PagerDuty {
		add(routingKeySetting, "requires messageFormat %s", message.PagerDuty)
	}
	if !s.MessageFormat.IsMessage() {
		return found
	}
	const one = "with messageFormat %s, not %d: a message is about one event"
	if topic != SystemTopic {
		add("messageFormat", "must be %s on topic %q, not %s: only events of %s become messages", message.None, topic,
			s.MessageFormat, SystemTopic)
	}
	if n := s.MaxEventsPerBatch; n != nil && *n > 1 {
		add("maxEventsPerBatch", "must be 1 or null "+one, s.MessageFormat, *n)
	}
	if n := s.PreferredBatchSizeInKilobytes; n != nil && s.Batching() {
		add("preferredBatchSizeInKilobytes", "must be null "+one, s.MessageFormat, *n)
	}
	if s.MessageFormat == message.PagerDuty && s.routingKey(stored) == "" {
		add(routingKeySetting, "is required with messageFormat %s: none is stored for this endpointUrl", message.PagerDuty)
	}
	return found
}

const routingKeySetting = "pagerDutyRoutingKey"

// routingKey is the key that was sent, or the stored one for the same endpoint: otherwise a user who does not know it
// could have it sent to an address of their choice.
func (s *SubscriptionSpec) routingKey(stored *SubscriptionSpec) string {
	if s.PagerDutyRoutingKey == "" && s.MessageFormat == message.PagerDuty && s.EndpointURL == stored.EndpointURL {
		return stored.PagerDutyRoutingKey
	}
	return s.PagerDutyRoutingKey
}

// minPathSecret: shorter paths of endpoints occur in many texts.
const minPathSecret = 8

// secrets are removed from stored responses; nil = none.
func (s *SubscriptionSpec) secrets() *endpointconf.Secrets {
	list := endpointconf.NewSecrets(s.DeliveryAttributes, s.EndpointURL).With(s.Destination.Secrets()...)
	if !s.MessageFormat.IsMessage() {
		return list
	}
	path := ""
	if u, err := url.Parse(s.EndpointURL); err == nil && len(u.Path) >= minPathSecret {
		path = u.Path
	}
	return list.With(s.PagerDutyRoutingKey, path)
}
