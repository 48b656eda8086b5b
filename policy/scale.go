package policy

import "time"

// Scaled returns p with every wait n times as short: steps and tail, floors, jitter, retry window, Retry-After cap,
// times to live, probations, and what a dead letter's export waits. Nothing that waits becomes 0, which would mean
// something else: a microsecond is the least, and all that a database's timestamp tells apart. What is waited for over
// the network stays as it is (AckTimeout, LateResponseWindow): an endpoint does not answer faster because a day is
// shorter. n of 1 or less is p itself.
func (p *Policy) Scaled(n int) *Policy {
	if n <= 1 {
		return p
	}
	c := p.Clone()
	c.scale = n
	for _, wait := range []*time.Duration{
		&c.Tail, &c.RetryWindow, &c.JitterCap, &c.RetryAfterCap, &c.DefaultTTL, &c.MinTTL, &c.MaxTTL,
		&c.DeadLetterDelay, &c.DeadLetterExportWindow, &c.Probation.First, &c.Probation.Max,
	} {
		*wait = scaled(*wait, n)
	}
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

// Scaled returns the rules with every wait n times as short, the time to live that an event subscription asked for as
// well.
func (r Rules) Scaled(n int) Rules {
	if n <= 1 {
		return r
	}
	r.Policy, r.Limits.TTL = r.Policy.Scaled(n), scaled(r.Limits.TTL, n)
	return r
}

// Wait is how long a wait that somebody else asked for, as an endpoint by Retry-After, takes under these rules.
func (r Rules) Wait(asked time.Duration) time.Duration { return scaled(asked, r.Policy.scale) }

func scaled(d time.Duration, n int) time.Duration {
	if d <= 0 || n <= 1 {
		return d
	}
	return max(d/time.Duration(n), time.Microsecond)
}
