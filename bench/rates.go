package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"syscall"
	"time"

	"postrider/internal/terminal"
)

type ratesCmd struct {
	terminal.OutputFlag
	nodesFlag
	Pending      int           `help:"Pending deliveries at the start." default:"20000" range:"1.."`
	Limit        int           `help:"deliveryRate of the event subscription, in requests per second with burst 1; 0 = none." range:"0..100000"`
	Accepts      int           `help:"Requests per second that the endpoint accepts, with a burst of 10. It responds 429 to the others. 0 = all." range:"0..100000"`
	AtOnce       int           `name:"at-once" help:"Requests that the endpoint accepts at once. It responds 429 to the others. 0 = all." range:"0.."`
	RetryAfter   int           `name:"retry-after" help:"Retry-After of the responses 429 in seconds; 0 = none." range:"0..86400"`
	ResponseTime time.Duration `name:"response-time" help:"Response time of accepted requests." range:"0.."`
	Kill         bool          `help:"Kill a node halfway."`
	WarmUp       time.Duration `name:"warm-up" help:"Duration before the measurement." default:"30s" range:"0.."`
	Duration     time.Duration `help:"Duration of the measurement." default:"60s" range:"10.."`
}

// Validate is called by kong.
func (c *ratesCmd) Validate() error {
	if c.Kill && c.Nodes < 2 {
		return errors.New("--kill requires at least 2 --nodes")
	}
	return nil
}

// ratesReport has rates in requests per second, after the warm-up.
type ratesReport struct {
	Nodes    int     `json:"nodes"`
	Pending  int     `json:"pending"`
	Accepted float64 `json:"acceptedPerSecond"`
	// Lowest and Highest are of all spans of 10 s, one beginning every 0.1 s.
	Lowest  float64 `json:"lowestPerSecond"`
	Highest float64 `json:"highestPerSecond"`
	// Throttled is the percentage of the responses that were 429; MostThrottled is that of the worst span of 10 s.
	Throttled     float64 `json:"throttledPercent"`
	MostThrottled float64 `json:"mostThrottledPercent"`
	// DeadLettered are deliveries whose attempts were exhausted, in all. Killed is the node that was killed; "" = none.
	DeadLettered int64  `json:"deadLettered"`
	Killed       string `json:"killed,omitempty"`
	common
}

// Run measures how exactly nodes keep a rate limit together, or what an endpoint that responds 429 accepts. It stores
// the backlog while delivery is paused, and then lets the nodes deliver it.
func (c *ratesCmd) Run(ctx context.Context, p *program) error {
	r := &ratesReport{Nodes: c.Nodes, Pending: c.Pending}
	if err := withSystem(ctx, p, "", "rates", &r.common, func(s *system) {
		path, more := fmt.Sprintf("/limited?perSecond=%d&atOnce=%d&retryAfter=%d&ms=%d", c.Accepts, c.AtOnce, c.RetryAfter,
			c.ResponseTime.Milliseconds()), settings{}
		if c.Limit > 0 {
			more["deliveryRate"] = settings{"limit": c.Limit, "burst": 1}
		}
		to := s.measuredTopic("bench", subscription{"limited", path, more})
		s.startNodes(c.Nodes)
		s.act("pause", s.topics[0], "limited")
		s.publishBulk([]target{to}, c.Pending)
		s.settle()
		s.act("resume", s.topics[0], "limited")
		from := time.Now().Add(c.WarmUp)
		measured := span{from, from.Add(c.Duration)}
		if c.Kill && s.waitUntil(from.Add(c.Duration/2)) {
			node := s.nodes[len(s.nodes)-1]
			r.Killed = node.name
			s.check(node.stop(syscall.SIGKILL))
		}
		s.waitUntil(measured.to)
		s.act("pause", s.topics[0], "limited")
		r.DeadLettered = s.count().deadLettered
		arrivals, err := s.sink.close()
		s.check(err)
		r.addArrivals(arrivals, measured)
	}); err != nil {
		return err
	}
	var lost error
	if r.DeadLettered > 0 {
		lost = fmt.Errorf("%d deliveries became dead letters", r.DeadLettered)
	}
	return finish(c.OutputFlag, r, lost)
}

// addArrivals computes the rates of a span.
func (r *ratesReport) addArrivals(arrivals []arrival, measured span) {
	count := func(s span) (perSecond, throttledPercent float64) {
		var accepted, throttled float64
		for _, a := range arrivals {
			switch {
			case !s.holds(a.at):
			case a.acknowledged:
				accepted++
			default:
				throttled++
			}
		}
		return round(accepted/s.length().Seconds(), 2), round(100*throttled/max(accepted+throttled, 1), 2)
	}
	r.Accepted, r.Throttled = count(measured)
	r.Lowest = math.Inf(1)
	const window = 10 * time.Second
	for from := measured.from; !from.Add(window).After(measured.to); from = from.Add(100 * time.Millisecond) {
		rate, throttled := count(span{from, from.Add(window)})
		r.Lowest, r.Highest = min(r.Lowest, rate), max(r.Highest, rate)
		r.MostThrottled = max(r.MostThrottled, throttled)
	}
}
