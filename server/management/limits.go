package management

import (
	"time"

	"postrider/catalog"
	"postrider/policy"
	"postrider/server/api"
)

// retryPolicy checks the limits of attempts, time to live and batches, and stores limits under one name. Without a policy
// (nil) it checks only the names: namespace topics have other ones.
func (p *problems) retryPolicy(under *policy.Policy, t *catalog.Topic, s *catalog.SubscriptionSpec) {
	stated := s.RetryPolicy
	if t.Kind != catalog.TopicNamespace {
		p.namespaceOnly(&stated)
	} else if !p.namespaceNames(&stated, &s.RetryPolicy) {
		return
	}
	s.RetryPolicy.MaxDeliveryCount, s.RetryPolicy.EventTimeToLive = nil, nil
	if under == nil {
		return
	}
	p.attempts(under, &stated, s.RetryPolicy.MaxDeliveryAttempts)
	p.timeToLive(under, t, &stated, s.RetryPolicy.EventTimeToLiveInMinutes)
	p.Check(under.CheckBatch(s.MaxEventsPerBatch, s.PreferredBatchSizeInKilobytes))
}

func (p *problems) namespaceOnly(b *catalog.RetryPolicySpec) {
	if b.MaxDeliveryCount != nil {
		p.Value("retryPolicy.maxDeliveryCount", "must be absent: it is for namespace topics; set maxDeliveryAttempts")
	}
	if b.EventTimeToLive != nil {
		p.Value("retryPolicy.eventTimeToLive",
			"must be absent: it is for namespace topics; set eventTimeToLiveInMinutes")
	}
}

// namespaceNames moves the limits to the names that are stored. It returns false after a mistake.
func (p *problems) namespaceNames(b, into *catalog.RetryPolicySpec) (readable bool) {
	before := len(p.Problems)
	switch {
	case b.MaxDeliveryCount == nil:
	case b.MaxDeliveryAttempts != nil:
		p.Value("retryPolicy.maxDeliveryCount", "must be absent with maxDeliveryAttempts: both are names of one limit")
	default:
		into.MaxDeliveryAttempts = b.MaxDeliveryCount
	}
	switch {
	case b.EventTimeToLive == nil:
	case b.EventTimeToLiveInMinutes != nil:
		p.Value("retryPolicy.eventTimeToLive",
			"must be absent with eventTimeToLiveInMinutes: both are names of one limit")
	default:
		minutes, err := policy.ParseMinutes(*b.EventTimeToLive)
		if err != nil {
			p.Value("retryPolicy.eventTimeToLive", "%v, not %q", err, api.Shorten(*b.EventTimeToLive))
		}
		into.EventTimeToLiveInMinutes = &minutes
	}
	return len(p.Problems) == before
}

func (p *problems) attempts(under *policy.Policy, b *catalog.RetryPolicySpec, attempts *int) {
	err := under.CheckLimits(attempts, nil)
	if err != nil && b.MaxDeliveryCount != nil {
		p.Value("retryPolicy.maxDeliveryCount", "must be between %d and %d under retry policy %s, not %d",
			under.MinMaxAttempts, under.MaxMaxAttempts, under.Name, *attempts)
		return
	}
	p.Check(err)
}

// timeToLive checks the time to live against the policy's range and a namespace topic's retention.
func (p *problems) timeToLive(under *policy.Policy, t *catalog.Topic, b *catalog.RetryPolicySpec, ttl *int) {
	if ttl == nil {
		return
	}
	member := "retryPolicy.eventTimeToLiveInMinutes"
	if b.EventTimeToLive != nil {
		member = "retryPolicy.eventTimeToLive"
	}
	err := under.CheckLimits(nil, ttl)
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
