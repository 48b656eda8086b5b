package policy

// startingCap is how many calls to a new endpoint may be in flight: enough that a healthy one that answers in 10 ms
// takes 6,400 events/s at once, few enough that a hanging one keeps 64 workers, not all of them, until its ack timeout.
const startingCap = 64

// Cap is how many delivery attempts of one event subscription may be in flight at the same time. It adapts to the
// endpoint: halved where a call met no answer, one more after each success. So an endpoint that hangs is down to a
// single call after six of them (64, 32, 16, 8, 4, 2, 1), and one that answers doubles its cap with every full round.
//
// A cap is at least 1, for without a call nothing would tell that the endpoint is back; and at most half the workers,
// so that no event subscription keeps the others of a node waiting. A value: it compares with ==. The zero Cap allows
// one call for ever; make one with NewCap.
//
// The numbers are ours. Event Grid's pages say no more than that it may skip retries where an endpoint appears to be
// overwhelmed (Microsoft, Event Grid message delivery and retry, 2019-05-15).
type Cap struct {
	value, most int
}

// NewCap returns the cap of an event subscription whose endpoint is not known yet. limit is its
// maxConcurrentDeliveries, 0 for none; workers is how many attempts one node has in flight in all.
func NewCap(limit, workers int) Cap {
	most := workers / 2
	if limit > 0 {
		most = min(most, limit)
	}
	return Cap{most: most}.At(startingCap)
}

// At returns the cap at a value that was kept, brought into the bounds of c: the limit may have been changed meanwhile,
// or this node have fewer workers than the one that learned the value.
func (c Cap) At(value int) Cap {
	c.most = max(c.most, 1)
	c.value = min(max(value, 1), c.most)
	return c
}

// After returns the cap after an attempt of this outcome, which met r. Only an attempt that got no answer halves it
// (timeout, socket, dns): a status, 408 or 503 too, is the answer of an endpoint that keeps up with its calls, and its
// waits are the status table's. A call that was given up on our side, or never made, says nothing about the endpoint.
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

// Value returns how many attempts may be in flight, 1 or more.
func (c Cap) Value() int { return max(c.value, 1) }
