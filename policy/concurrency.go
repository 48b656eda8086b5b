package policy

import "time"

// startingCap is the number of requests in flight to a new endpoint: an endpoint that responds in 10 ms takes 6,400
// events/s at once, and one that hangs occupies 64 workers, not all of them, until its ack timeout.
const startingCap = 64

// After 429, one more request is in flight per round of successes, of at least this many, while the concurrency is near
// that of the response. An endpoint that allows 10 requests/s, with a burst of 10, gets them one at a time: it rejects
// one of 12.
const leastRound = 16

// Cap is the number of delivery attempts of one event subscription that may be in flight at once. It adapts to the
// endpoint: halved after a request without a response, one more after each success. An endpoint that hangs has one
// request in flight after six of them (64, 32, 16, 8, 4, 2, 1); a healthy one doubles its cap with every full round.
// An endpoint that throttles halves its cap, see Throttled.
//
// A cap is at least 1, because only a request shows that the endpoint has recovered, and at most half the workers, so
// that no event subscription blocks the others of a node. Compare caps with ==. The zero Cap stays at one request;
// create one with NewCap.
//
// The numbers are ours. Event Grid's pages only say that it may skip retries if an endpoint appears to be overwhelmed
// (Microsoft, Event Grid message delivery and retry, 2019-05-15).
type Cap struct {
	value, most int
	// throttled is how many requests were in flight when the endpoint last responded 429; 0 = it has not.
	throttled int
	successes int // since value or throttled changed
}

// NewCap returns the cap of a new endpoint, see Within.
func NewCap(limit, workers int) Cap {
	return Cap{value: startingCap}.Within(limit, workers)
}

// Within returns the cap with other bounds. limit is the event subscription's maxConcurrentDeliveries, 0 for none;
// workers is how many attempts one node has in flight in all.
func (c Cap) Within(limit, workers int) Cap {
	c.most = workers / 2
	if limit > 0 {
		c.most = min(c.most, limit)
	}
	c.value = min(c.Value(), max(c.most, 1))
	return c
}

// at returns the cap with a value within its bounds, after which successes count anew.
func (c Cap) at(value int) Cap {
	c.value, c.successes = min(max(value, 1), max(c.most, 1)), 0
	return c
}

// After returns the cap after an attempt. Only an attempt without a response (timeout, socket, dns) halves it: an
// endpoint that responds, even with 408, 503 or full, keeps up with its requests, and the status table has its waits. A
// request that postrider canceled or never sent does not count.
func (c Cap) After(o Outcome, r Result) Cap {
	switch {
	case o == OutcomeDelivered && c.isNearThrottled():
		if c.successes++; c.successes < max(c.Value(), leastRound) {
			return c
		}
		return c.at(c.Value() + 1)
	case o == OutcomeDelivered:
		return c.at(c.Value() + 1)
	case r.Err == ErrorTimeout, r.Err == ErrorSocket, r.Err == ErrorDNS:
		return c.at(c.Value() / 2)
	default:
		return c
	}
}

// isNearThrottled reports whether as many requests may be in flight as when the endpoint responded 429, within an
// eighth. Once there are more, the endpoint allows more than then: the requests of a burst were too many at once.
func (c Cap) isNearThrottled() bool {
	near := c.throttled/8 + 1
	return c.throttled > 0 && c.Value() >= c.throttled-near && c.Value() <= c.throttled+near
}

// Throttled returns the cap after a response that requests fewer requests, see Rules.Throttles. inFlight counts the
// requests with this one. The first such response halves them. Further ones, to requests that began before (again),
// lower the cap to the other requests: the endpoint has accepted those.
func (c Cap) Throttled(inFlight int, again bool) Cap {
	others := inFlight - 1
	if !again || others == 0 {
		c.throttled = max(inFlight, 1)
		others = inFlight / 2
	}
	return c.at(min(c.Value(), others))
}

// Closed returns the cap of an endpoint that this node or another one has found to throttle.
func (c Cap) Closed() Cap {
	if c.throttled == 0 {
		c.throttled, c.successes = c.Value(), 0
	}
	return c
}

// Unthrottled returns the cap of an endpoint that has not responded 429 for long.
func (c Cap) Unthrottled() Cap {
	c.throttled, c.successes = 0, 0
	return c
}

// Spacing is the least time between the beginnings of two requests to an endpoint that throttles and whose responses
// take so long. Without it, requests that end together begin together, and exceed the limit together: an endpoint of
// 100/s with responses of 1 s got 10/s. Below 1, because each delay would last.
func (c Cap) Spacing(responseTime time.Duration) time.Duration {
	if c.throttled == 0 {
		return 0
	}
	return responseTime * 4 / 5 / time.Duration(c.Value())
}

// IsThrottled reports whether the endpoint has responded 429.
func (c Cap) IsThrottled() bool { return c.throttled > 0 }

// Value returns how many attempts may be in flight, 1 or more.
func (c Cap) Value() int { return max(c.value, 1) }
