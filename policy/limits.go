package policy

import (
	"fmt"
	"time"
)

// Limits are the two ends of a delivery, after an event subscription's own wishes and the policy's defaults are merged.
type Limits struct {
	MaxAttempts int           // 0 = no limit
	TTL         time.Duration // time to live, counted from when the event was owed
}

// Limits merges an event subscription's retry policy with the defaults; nil asks for the default.
// A value outside this policy's range is a *ValidationError that names the field and the range.
func (p *Policy) Limits(maxAttempts, ttlMinutes *int) (Limits, error) {
	l := Limits{MaxAttempts: p.DefaultMaxAttempts, TTL: p.DefaultTTL}
	if maxAttempts != nil {
		err := p.inRange("retryPolicy.maxDeliveryAttempts", "", *maxAttempts, p.MinMaxAttempts, p.MaxMaxAttempts)
		if err != nil {
			return Limits{}, err
		}
		l.MaxAttempts = *maxAttempts
	}
	if ttlMinutes != nil {
		least, most := int(p.MinTTL/time.Minute), int(p.MaxTTL/time.Minute)
		err := p.inRange("retryPolicy.eventTimeToLiveInMinutes", " minutes", *ttlMinutes, least, most)
		if err != nil {
			return Limits{}, err
		}
		l.TTL = time.Duration(*ttlMinutes) * time.Minute
	}
	return l, nil
}

func (p *Policy) inRange(field, unit string, value, least, most int) error {
	if value >= least && value <= most {
		return nil
	}
	message := fmt.Sprintf("must be between %d and %d%s under retry policy %s, not %d", least, most, unit, p.Name, value)
	return &ValidationError{Field: field, Message: message}
}

// Deadline returns the moment from which a delivery is expired: at it or after it, no attempt is made. It is the time
// to live after the event was owed, or the policy's retry window where that ends sooner.
func (p *Policy) Deadline(timeToLiveSince time.Time, ttl time.Duration) time.Time {
	if p.RetryWindow > 0 && p.RetryWindow < ttl {
		ttl = p.RetryWindow
	}
	return timeToLiveSince.Add(ttl)
}
