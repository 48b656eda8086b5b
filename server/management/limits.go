package management

import (
	"time"

	"postrider/catalog"
	"postrider/policy"
	"postrider/server/api"
)

// limits reads the limits of attempts and of time, which have other names on namespace topics, and judges them; of an
// unknown policy (nil) it judges no more than the names.
func (p *problems) limits(
	under *policy.Policy, t *catalog.Topic, b *api.RetryPolicySettings, spec *catalog.SubscriptionSpec,
) {
	spec.MaxDeliveryAttempts, spec.EventTimeToLiveInMinutes = b.MaxDeliveryAttempts, b.EventTimeToLiveInMinutes
	if t.Kind != catalog.TopicNamespace {
		p.namespaceOnly(b)
	} else if !p.namespaceNames(b, spec) {
		return
	}
	if under == nil {
		return
	}
	p.attempts(under, b, spec)
	p.timeToLive(under, t, b, spec)
}

func (p *problems) namespaceOnly(b *api.RetryPolicySettings) {
	if b.MaxDeliveryCount != nil {
		p.Value("retryPolicy.maxDeliveryCount", "must be absent: it is for namespace topics, here say maxDeliveryAttempts")
	}
	if b.EventTimeToLive != nil {
		p.Value("retryPolicy.eventTimeToLive",
			"must be absent: it is for namespace topics, here say eventTimeToLiveInMinutes")
	}
}

// namespaceNames reports false where a limit cannot be read.
func (p *problems) namespaceNames(b *api.RetryPolicySettings, spec *catalog.SubscriptionSpec) (readable bool) {
	before := len(p.Problems)
	switch {
	case b.MaxDeliveryCount == nil:
	case b.MaxDeliveryAttempts != nil:
		p.Value("retryPolicy.maxDeliveryCount", "must not stand beside maxDeliveryAttempts: they are two names of one limit")
	default:
		spec.MaxDeliveryAttempts = b.MaxDeliveryCount
	}
	switch {
	case b.EventTimeToLive == nil:
	case b.EventTimeToLiveInMinutes != nil:
		p.Value("retryPolicy.eventTimeToLive",
			"must not stand beside eventTimeToLiveInMinutes: they are two names of one limit")
	default:
		minutes, err := policy.ParseMinutes(*b.EventTimeToLive)
		if err != nil {
			p.Value("retryPolicy.eventTimeToLive", "%v, not %q", err, api.Shorten(*b.EventTimeToLive))
		}
		spec.EventTimeToLiveInMinutes = &minutes
	}
	return len(p.Problems) == before
}

func (p *problems) attempts(under *policy.Policy, b *api.RetryPolicySettings, spec *catalog.SubscriptionSpec) {
	_, err := under.Limits(spec.MaxDeliveryAttempts, nil)
	if err != nil && b.MaxDeliveryCount != nil {
		p.Value("retryPolicy.maxDeliveryCount", "must be between %d and %d under retry policy %s, not %d",
			under.MinMaxAttempts, under.MaxMaxAttempts, under.Name, *spec.MaxDeliveryAttempts)
		return
	}
	p.Check(err)
}

// timeToLive judges by the policy's range and, of a namespace topic, by its retention.
func (p *problems) timeToLive(
	under *policy.Policy, t *catalog.Topic, b *api.RetryPolicySettings, spec *catalog.SubscriptionSpec,
) {
	ttl := spec.EventTimeToLiveInMinutes
	if ttl == nil {
		return
	}
	member := "retryPolicy.eventTimeToLiveInMinutes"
	if b.EventTimeToLive != nil {
		member = "retryPolicy.eventTimeToLive"
	}
	_, err := under.Limits(nil, ttl)
	switch retention := t.EventRetentionInDays; {
	case err != nil && b.EventTimeToLive != nil:
		p.Value(member, "must be between %s and %s under retry policy %s, not %s", span(under.MinTTL), span(under.MaxTTL),
			under.Name, api.Shorten(*b.EventTimeToLive))
	case err != nil:
		p.Check(err)
	case t.Kind == catalog.TopicNamespace && *ttl > retention*24*60:
		p.Value(member, "must be no longer than the topic's eventRetentionInDays, which is %d (%d minutes, P%dD)", retention,
			retention*24*60, retention)
	}
}

func span(d time.Duration) string { return policy.FormatMinutes(minutes(d)) }
