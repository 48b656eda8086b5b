package policy

import "time"

// Scaled returns p with every wait divided by n: steps, delays, jitter, retry window, Retry-After cap, times to live,
// probations, and the waits of dead-letter exports. The least wait is a microsecond, PostgreSQL's resolution, because 0
// means something else. Network timeouts (AckTimeout, LateResponseWindow) do not change. It returns p itself for n of 1
// or less.
func (p *Policy) Scaled(n int) *Policy {
	if n <= 1 {
		return p
	}
	c := p.Clone()
	c.scale = n
	for _, wait := range []*Seconds{
		&c.Tail, &c.JitterCap, &c.RetryAfterCap, &c.DeadLetterDelay, &c.DeadLetterExportWindow, &c.Probation.First,
		&c.Probation.Max,
	} {
		*wait = scaled(*wait, n)
	}
	c.RetryWindow = scaled(c.RetryWindow, n)
	c.TTL = Range[Minutes]{scaled(c.TTL.Default, n), scaled(c.TTL.Least, n), scaled(c.TTL.Most, n)}
	for i := range c.Steps {
		c.Steps[i] = scaled(c.Steps[i], n)
	}
	for i := range c.Cells {
		c.Cells[i].MinDelay = scaled(c.Cells[i].MinDelay, n)
	}
	for outcome, hold := range c.Probation.ByOutcome {
		c.Probation.ByOutcome[outcome] = scaled(hold, n)
	}
	return &c
}

// Scaled returns the rules with every wait divided by n, including the event subscription's time to live.
func (r Rules) Scaled(n int) Rules {
	if n <= 1 {
		return r
	}
	r.Policy, r.Limits.TTL = r.Policy.Scaled(n), scaled(r.Limits.TTL, n)
	return r
}

// Wait returns a wait that an endpoint requested by Retry-After, scaled as these rules are.
func (r Rules) Wait(requested time.Duration) time.Duration { return scaled(requested, r.Policy.scale) }

func scaled[T ~int64](d T, n int) T {
	if d <= 0 || n <= 1 {
		return d
	}
	return max(d/T(n), T(time.Microsecond))
}
