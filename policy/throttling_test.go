package policy_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/policy"
)

// throttling is an endpoint that accepts a rate, after a burst of 10, and responds 429 to the other requests at once.
type throttling struct {
	perSecond, responseTime, retryAfter float64

	tokens, filled float64
}

func (e *throttling) accepts(now float64) bool {
	const burst = 10
	e.tokens, e.filled = min(e.tokens+(now-e.filled)*e.perSecond, burst), now
	if e.tokens < 1 {
		return false
	}
	e.tokens--
	return true
}

// throttledNode is a node with a backlog for one endpoint: requests in flight with their next events, in seconds.
type throttledNode struct {
	cap      policy.Cap
	requests []throttledRequest

	next, loweredAt, closedUntil float64
	halfOpen, trying             bool
}

type throttledRequest struct {
	at, sentAt                float64
	responds, accepted, trial bool
}

// released is how long it takes until a delivery is released to an endpoint that is open again.
const released = 0.15

func (n *throttledNode) begin(now, responseTime float64) {
	for now >= n.closedUntil && !n.trying && len(n.requests) < n.cap.Value() {
		at := max(now, n.next)
		n.next = at + n.cap.Spacing(time.Duration(responseTime*float64(time.Second))).Seconds()
		n.requests = append(n.requests, throttledRequest{at: at, sentAt: at, trial: n.halfOpen})
		n.trying, n.halfOpen = n.halfOpen, false
	}
}

func (n *throttledNode) end(r throttledRequest, retryAfter float64) {
	inFlight := len(n.requests) + 1
	if r.trial {
		n.trying, n.closedUntil = false, r.at+released
	}
	if r.accepted {
		n.cap = n.cap.After(policy.OutcomeDelivered, policy.Result{Status: 200})
		return
	}
	again := r.sentAt <= n.loweredAt
	if n.cap = n.cap.Throttled(inFlight, again); !again {
		n.loweredAt = r.at
	}
	if retryAfter == 0 && (inFlight == 1 || r.trial) {
		retryAfter = 1
	}
	if retryAfter > 0 {
		n.closedUntil, n.halfOpen = max(n.closedUntil, r.at+retryAfter+released), true
	}
}

// run returns the part of its rate that the endpoint got within a minute after 30 s, and the part that was 429.
func (e *throttling) run() (accepted, throttled float64) {
	n := &throttledNode{cap: policy.NewCap(0, 1000), loweredAt: -1}
	e.tokens = 10
	ok, rejected := 0.0, 0.0
	for now := 0.0; now < 90; {
		n.begin(now, e.responseTime)
		if len(n.requests) == 0 {
			now = n.closedUntil
			continue
		}
		i := slices.Index(n.requests, slices.MinFunc(n.requests, func(a, b throttledRequest) int {
			return cmp.Compare(a.at, b.at)
		}))
		r := n.requests[i]
		now = max(now, r.at)
		if !r.responds {
			r.responds, r.accepted = true, e.accepts(now)
			if r.accepted {
				r.at += e.responseTime
			}
			n.requests[i] = r
			continue
		}
		n.requests = slices.Delete(n.requests, i, i+1)
		n.end(r, e.retryAfter)
		if now >= 30 && r.accepted {
			ok++
		} else if now >= 30 {
			rejected++
		}
	}
	return ok / (60 * e.perSecond), rejected / (ok + rejected)
}

// An endpoint that responds 429 beyond its rate gets most of it, and throttles few requests, with Retry-After or not.
func TestCapFollowsTheEndpoint(t *testing.T) {
	t.Parallel()
	for _, e := range []throttling{
		{perSecond: 10, responseTime: 0.02},
		{perSecond: 10, responseTime: 0.02, retryAfter: 1},
		{perSecond: 100, responseTime: 1},
		{perSecond: 100, responseTime: 1, retryAfter: 1},
		{perSecond: 10, responseTime: 0.2},
		{perSecond: 10, responseTime: 1},
		{perSecond: 50, responseTime: 0.1},
		{perSecond: 100, responseTime: 0.02},
		{perSecond: 1000, responseTime: 0.02},
	} {
		accepted, throttled := e.run()
		about := fmt.Sprintf("%g/s, %g s, Retry-After %g: accepted %.2f, throttled %.2f", e.perSecond, e.responseTime,
			e.retryAfter, accepted, throttled)
		require.Greater(t, accepted, 0.7, about)
		require.Less(t, throttled, 0.15, about)
		t.Log(about)
	}
}
