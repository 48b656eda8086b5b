package v1

import (
	"cmp"
	"fmt"

	"postrider/internal/catalog"
	"postrider/internal/catalog/spec"
	"postrider/internal/event"
	"postrider/server/api"
)

const queuePath = "deliveryConfiguration.queue"

// deliveryMode checks deliveryConfiguration and normalizes it. It moves what has another name to that name, and returns
// the names as stated by those.
func (p *problems) deliveryMode(t *catalog.Topic, s *catalog.SubscriptionSpec) (aliases map[string]string) {
	c := s.DeliveryConfiguration
	switch {
	case c == nil:
		return nil
	case !s.Pulled():
		switch {
		case c.Queue != nil:
			p.Value(queuePath, "must be absent unless deliveryMode is %s", catalog.ModeQueue)
		case c.DeliveryMode == catalog.ModePush, c.DeliveryMode == "":
			s.DeliveryConfiguration = nil // the default
		}
		return nil
	}
	if t.InputSchema != event.CloudEvents {
		p.Value("deliveryConfiguration.deliveryMode", "must be %s: the topic's input schema is %s, and %s requires %s",
			catalog.ModePush, t.InputSchema, catalog.ModeQueue, event.CloudEvents)
	}
	if s.RetryPolicy.Policy != "" && s.RetryPolicy.Policy != catalog.NamespacePolicy {
		p.Value("retryPolicy.policy", "must be %s with deliveryMode %s, not %s", catalog.NamespacePolicy,
			catalog.ModeQueue, api.Shorten(s.RetryPolicy.Policy))
		s.RetryPolicy.Policy = "" // for the checks of its limits
	}
	p.absent(s, spec.OfRequests, fmt.Sprintf("must be absent with deliveryMode %s: consumers receive the events; set it "+
		"to null", catalog.ModeQueue))
	aliases = map[string]string{}
	if c.Queue != nil {
		move(p, aliases, queuePath+".maxDeliveryCount", c.Queue.MaxDeliveryCount,
			"retryPolicy.maxDeliveryCount", &s.RetryPolicy.MaxDeliveryCount)
		move(p, aliases, queuePath+".eventTimeToLive", c.Queue.EventTimeToLive,
			"retryPolicy.eventTimeToLive", &s.RetryPolicy.EventTimeToLive)
		move(p, aliases, queuePath+".deadLetterDestination", c.Queue.DeadLetterDestination,
			"deadLetterDestination", &s.DeadLetterDestination)
		if with := c.Queue.DeadLetterWithIdentity; with != nil {
			move(p, aliases, queuePath+".deadLetterDestinationWithResourceIdentity.deadLetterDestination",
				with.DeadLetterDestination, "deadLetterDestination", &s.DeadLetterDestination)
		}
	}
	s.DeliveryConfiguration = &catalog.DeliveryConfiguration{DeliveryMode: catalog.ModeQueue}
	if c.Queue != nil && c.Queue.ReceiveLockDurationInSeconds != nil {
		s.DeliveryConfiguration.Queue = &catalog.QueueSettings{
			ReceiveLockDurationInSeconds: c.Queue.ReceiveLockDurationInSeconds,
		}
	}
	return aliases
}

// move moves a value that was stated as alias to its name. Both are names of one setting.
func move[T any](p *problems, aliases map[string]string, alias string, value *T, name string, into **T) {
	switch {
	case value == nil:
	case *into != nil:
		p.Value(alias, "must be absent with %s: both are names of one setting", cmp.Or(aliases[name], name))
	default:
		*into, aliases[name] = value, alias
	}
}
