package policy

import (
	"strconv"
	"strings"
	"time"
)

// Pace is what postrider has learned about the rate that an endpoint accepts, from its responses 429, and 503 with
// Retry-After. The zero Pace is no limit.
//
// The numbers are ours. Event Grid's pages only say that it may delay deliveries to an endpoint that appears to be
// overwhelmed (Microsoft, Event Grid message delivery and retry, 2019-05-15).
type Pace struct {
	// PerSecond is the limit in requests per second; 0 = none.
	PerSecond float64
	// Before is where the ramp ends: the limit before Retry-After closed the endpoint, or far above a first pace. 0 =
	// there is no ramp.
	Before float64
	// ClosedUntil is the time until which the endpoint requested to wait.
	ClosedUntil time.Time
	// ChangedAt is when PerSecond last changed, or when a closed endpoint opens. LoweredAt is when PerSecond was last
	// lowered, or when the last ramp ended.
	ChangedAt, LoweredAt time.Time
}

// Responses are those of one endpoint to one node within a window.
type Responses struct {
	// Accepted responses were not throttled, whatever their status. Throttled ones were 429, or 503 with Retry-After.
	Accepted, Throttled int
	Window              time.Duration
	// Until is the latest time that Retry-After or RateLimit-Reset named; zero = none.
	Until time.Time
}

const (
	// PaceKept is how long a pace is kept without a change.
	PaceKept = time.Hour
	// paceInterval is the least time between two changes of a pace, over all nodes.
	paceInterval = time.Second
	// lowestPace is a request each ten seconds. highestPace is far above what an endpoint gets.
	lowestPace, highestPace = 0.1, 100_000
	// lowered is the part of the rate that remains after a throttled response. Then raised is the part that is added for
	// each second since, at most mostRaised: 1 % after the first second, 2 % after the next. So an endpoint that allows
	// 100 requests/s gets 95 to 105, and throttles one of 60. A rate that is much too low is 90 times as high after 30 s.
	lowered, raised, mostRaised = 0.95, 0.01, 0.5
	// again: throttled once more within this time, the rate falls to the part that the endpoint accepts. The first time
	// may be a burst of late requests: after a stall of 0.5 s, an endpoint that allows 100/s throttled half of a window.
	again = 3 * time.Second
	// restricts: a pace is raised only if at least this part of it was used.
	restricts = 0.5
	// firstPace is the rate after Retry-After: one request tries first. It doubles each second.
	firstPace = 1.0
	// firstRamp: a first pace doubles each second until it is throttled, or so many times as high. Few responses show it:
	// one of 25/s began at 1/s, and was found after 55 s instead of 10 s.
	firstRamp = 1000
	// shortWait: after a Retry-After of at most this, the second step of the ramp is half the rate before. An endpoint of
	// 100/s that requests to wait 1 s got 31/s with the whole ramp.
	shortWait = 5 * time.Second
)

// Knows reports whether something was learned.
func (p Pace) Knows() bool { return p.PerSecond > 0 }

// After returns the pace after the responses of a window. nodes share the endpoint.
func (p Pace) After(r Responses, nodes int, now time.Time) Pace {
	recent := now.Sub(p.ChangedAt) < paceInterval
	switch {
	case r.Until.After(now):
		return p.closed(r, nodes, now)
	case r.Throttled > 0 && recent:
		return p
	case r.Throttled > 0:
		share, ramp := float64(r.Accepted)/float64(r.Accepted+r.Throttled), 0.0
		if !p.Knows() {
			p.PerSecond = max(r.perSecond()*float64(max(nodes, 1)), firstPace/lowered)
			share, ramp = 1, firstRamp*p.PerSecond // only the first accepted responses were counted
		} else if now.Sub(p.LoweredAt) > again {
			share = 1
		}
		p.PerSecond, p.Before = max(p.PerSecond*max(share, 0.5)*lowered, lowestPace), min(ramp, highestPace)
		p.ChangedAt, p.LoweredAt = now, now
		return p
	case !p.Knows() || recent || r.Accepted == 0 || now.Before(p.ClosedUntil):
		return p
	case p.Before > 0:
		next := 2 * p.PerSecond
		if p.ClosedUntil.Sub(p.LoweredAt) <= shortWait && p.Before < firstRamp {
			next = max(next, p.Before/2)
		}
		if p.PerSecond, p.ChangedAt = min(next, p.Before), now; p.PerSecond == p.Before {
			p.Before, p.LoweredAt = 0, now
		}
		return p
	case r.perSecond()*float64(max(nodes, 1)) < restricts*p.PerSecond:
		return p
	default:
		more := p.PerSecond * min(raised*now.Sub(p.LoweredAt).Seconds(), mostRaised)
		p.PerSecond, p.ChangedAt = min(p.PerSecond+max(more, lowestPace), highestPace), now
		return p
	}
}

// closed is the pace of an endpoint that requested to wait.
func (p Pace) closed(r Responses, nodes int, now time.Time) Pace {
	if !r.Until.After(p.ClosedUntil) {
		return p
	}
	switch opened := now.After(p.ClosedUntil); {
	case !p.Knows():
		p.Before = min(firstRamp*max(r.perSecond()*float64(max(nodes, 1)), firstPace), highestPace)
	case opened && (r.Accepted > 0 || p.Before == 0):
		p.Before = max(p.PerSecond*lowered, firstPace)
	}
	p.PerSecond, p.ClosedUntil, p.ChangedAt, p.LoweredAt = firstPace, r.Until, r.Until, now
	return p
}

func (r *Responses) perSecond() float64 {
	return float64(r.Accepted) / max(r.Window.Seconds(), 0.001)
}

// Throttles reports whether a response requests a lower rate: 429, or 503 with Retry-After. Such a response
// lowers the endpoint's pace and is no failure of the endpoint, unless the behavior is documented.
func (r *Rules) Throttles(result Result, retryAfter bool) bool {
	return r.Paced && result.Err == ErrorNone && (result.Status == 429 || result.Status == 503 && retryAfter)
}

// RateLimitReset returns how long an endpoint accepts no further request, by the header RateLimit of its response, or
// the older RateLimit-Remaining and RateLimit-Reset; 0 if it accepts some, or sends no such header. Of several quotas,
// the longest wait counts. header returns the value of a header.
// Source: IETF, RateLimit header fields for HTTP, draft-ietf-httpapi-ratelimit-headers.
func RateLimitReset(header func(name string) string) time.Duration {
	wait := resetIn(header("RateLimit-Remaining"), header("RateLimit-Reset"))
	var remaining, reset string
	for quota := range strings.SplitSeq(header("RateLimit"), ",") {
		if strings.Contains(quota, ";") { // else one of limit=100, remaining=0, reset=5
			remaining, reset = "", ""
		}
		for field := range strings.SplitSeq(quota, ";") {
			switch name, value, _ := strings.Cut(strings.TrimSpace(field), "="); name {
			case "r", "remaining":
				remaining = value
			case "t", "reset":
				reset = value
			}
		}
		wait = max(wait, resetIn(remaining, reset))
	}
	return wait
}

// resetIn is 0 for more than a day, too: some servers send the time of the reset instead of the seconds until then.
func resetIn(remaining, reset string) time.Duration {
	seconds, err := strconv.Atoi(reset)
	if remaining != "0" || err != nil || seconds < 0 || seconds > 86_400 {
		return 0
	}
	return min(time.Duration(seconds)*time.Second, PaceKept)
}
