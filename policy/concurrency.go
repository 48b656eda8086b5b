package policy

// startingCap is the number of requests in flight to a new endpoint: an endpoint that responds in 10 ms takes 6,400
// events/s at once, and one that hangs occupies 64 workers, not all of them, until its ack timeout.
const startingCap = 64

// Cap is the number of delivery attempts of one event subscription that may be in flight at once. It adapts to the
// endpoint: halved after a request without a response, one more after each success. An endpoint that hangs has one
// request in flight after six of them (64, 32, 16, 8, 4, 2, 1); a healthy one doubles its cap with every full round. An
// endpoint that throttles gets as many as it has accepted, see Throttled.
//
// A cap is at least 1, because only a request shows that the endpoint has recovered, and at most half the workers, so
// that no event subscription blocks the others of a node. Compare caps with ==. The zero Cap stays at one request;
// create one with NewCap.
//
// The numbers are ours. Event Grid's pages only say that it may skip retries if an endpoint appears to be overwhelmed
// (Microsoft, Event Grid message delivery and retry, 2019-05-15).
type Cap struct {
	value, most int
}

// NewCap returns the cap of a new endpoint. limit is the event subscription's maxConcurrentDeliveries, 0 for none;
// workers is how many attempts one node has in flight in all.
func NewCap(limit, workers int) Cap {
	most := workers / 2
	if limit > 0 {
		most = min(most, limit)
	}
	return Cap{most: most}.At(startingCap)
}

// At returns the cap with a value learned earlier, within the bounds of c: the limit may have changed since, or this
// node have fewer workers than the one that learned it.
func (c Cap) At(value int) Cap {
	c.most = max(c.most, 1)
	c.value = min(max(value, 1), c.most)
	return c
}

// After returns the cap after an attempt. Only an attempt without a response (timeout, socket, dns) halves it: an
// endpoint that responds, even with 408 or 503, keeps up with its requests, and the status table has its waits. A
// request that postrider canceled or never sent does not count.
func (c Cap) After(o Outcome, r Result) Cap {
	switch {
	case o == OutcomeDelivered:
		return c.At(c.Value() + 1)
	case r.Err == ErrorTimeout, r.Err == ErrorSocket, r.Err == ErrorDNS:
		return c.At(c.Value() / 2)
	default:
		return c
	}
}

// Throttled returns the cap after a response that requests a lower rate, see Rules.Throttles, while so many other
// requests were in flight: the endpoint has accepted those. The cap then grows by one per success, as always: with one
// per round, or per eight successes, an endpoint of 100/s with responses of 1 s got 72/s instead of 95/s.
func (c Cap) Throttled(others int) Cap { return c.At(min(c.Value(), others)) }

// Value returns how many attempts may be in flight, 1 or more.
func (c Cap) Value() int { return max(c.value, 1) }
