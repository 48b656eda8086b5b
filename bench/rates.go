package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"
)

const (
	ratesTopic        = "bench"
	ratesSubscription = "limited"
	// ratesWindow is the length of the spans that are compared; one begins each ratesStep.
	ratesWindow = 10 * time.Second
	ratesStep   = 100 * time.Millisecond
)

// RatesOptions are the options of Rates, with the tags of their flags.
type RatesOptions struct {
	Binary  string `kong:"-"` // path of the postrider program
	Command string `kong:"-"` // for the report

	Nodes        int           `help:"Nodes that deliver." default:"3" range:"1.."`
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

// Validate is called by kong. It returns an error if the options contradict each other.
func (o *RatesOptions) Validate() error {
	if o.Kill && o.Nodes < 2 {
		return errors.New("--kill requires at least 2 --nodes")
	}
	return nil
}

// RatesReport is the result of Rates. Rates are in requests per second, after the warm-up.
type RatesReport struct {
	Command string `json:"command"`
	Nodes   int    `json:"nodes"`
	Pending int    `json:"pending"`

	Accepted float64 `json:"acceptedPerSecond"`
	// Lowest and Highest are of all spans of 10 s, one beginning every 0.1 s.
	Lowest  float64 `json:"lowestPerSecond"`
	Highest float64 `json:"highestPerSecond"`
	// Throttled is the percentage of the responses that were 429; MostThrottled is that of the worst span of 10 s.
	Throttled     float64 `json:"throttledPercent"`
	MostThrottled float64 `json:"mostThrottledPercent"`
	// DeadLettered are deliveries whose attempts were exhausted, in all. Killed is the node that was killed; "" = none.
	DeadLettered int64    `json:"deadLettered"`
	Killed       string   `json:"killed,omitempty"`
	Settings     Settings `json:"settings"`
	Machine      Machine  `json:"machine"`
}

// Err returns an error if deliveries became dead letters.
func (r RatesReport) Err() error {
	if r.DeadLettered > 0 {
		return fmt.Errorf("%d deliveries became dead letters", r.DeadLettered)
	}
	return nil
}

// String formats the report for people.
func (r RatesReport) String() string {
	var p printer
	p.line("accepted", "%.1f requests/s; lowest and highest in 10 s: %.1f, %.1f", r.Accepted, r.Lowest, r.Highest)
	p.line("throttled", "%.1f %% of the responses; most in 10 s: %.1f %%", r.Throttled, r.MostThrottled)
	if r.Killed != "" {
		p.line("killed", "%s, halfway", r.Killed)
	}
	p.line("dead letters", "%d", r.DeadLettered)
	p.line("PostgreSQL", "%s", r.Settings)
	p.line("machine", "%s", r.Machine)
	p.line("command", "%s", r.Command)
	return strings.TrimSuffix(p.String(), "\n")
}

// Rates measures how exactly nodes keep a rate limit together, or follow an endpoint that responds 429. It writes
// progress to log. An error means that there is no report.
func Rates(ctx context.Context, o RatesOptions, log io.Writer) (report RatesReport, err error) {
	report = RatesReport{Command: o.Command, Nodes: o.Nodes, Pending: o.Pending, Machine: thisMachine()}
	err = withSystem(ctx, o.Binary, "", "rates", log, func(s *system) error {
		r := &ratesRun{system: s, o: o, report: &report}
		return s.guarded(ctx, r.measure)
	})
	return report, err
}

// ratesRun is one run of Rates.
type ratesRun struct {
	*system
	o      RatesOptions
	report *RatesReport
}

// measure publishes the backlog while delivery is paused, and then lets the nodes deliver it.
func (r *ratesRun) measure(ctx context.Context) (err error) {
	if r.report.Settings, err = r.readSettings(ctx); err != nil {
		return err
	}
	path, more := fmt.Sprintf("/quota?perSecond=%d&atOnce=%d&retryAfter=%d&ms=%d", r.o.Accepts, r.o.AtOnce,
		r.o.RetryAfter, r.o.ResponseTime.Milliseconds()), settings{}
	if r.o.Limit > 0 {
		more["deliveryRate"] = settings{"limit": r.o.Limit, "burst": 1}
	}
	to, err := r.measuredTopic(ctx, ratesTopic, endpoint{ratesSubscription, path, more})
	if err != nil {
		return err
	}
	for n := 2; n <= r.o.Nodes; n++ {
		node, _, err := r.startNode(ctx, fmt.Sprintf("node-%d", n))
		if err != nil {
			return err
		}
		r.nodes = append(r.nodes, node)
	}
	if err := r.api.pause(ctx, ratesTopic, ratesSubscription); err != nil {
		return err
	}
	if err := r.publishBulk(ctx, []target{to}, r.o.Pending); err != nil {
		return err
	}
	if err := r.settle(ctx); err != nil {
		return err
	}
	measured, err := r.deliver(ctx)
	if err != nil {
		return err
	}
	counted, err := r.countDeliveries(ctx)
	if err := errors.Join(err, r.sink.stop()); err != nil {
		return err
	}
	arrivals, err := readArrivals(r.arrivalsPath())
	r.report.DeadLettered = counted.deadLettered
	r.report.addArrivals(arrivals, measured)
	return err
}

// deliver returns the span after the warm-up.
func (r *ratesRun) deliver(ctx context.Context) (measured span, err error) {
	if err := r.api.resume(ctx, ratesTopic, ratesSubscription); err != nil {
		return measured, err
	}
	from := time.Now().Add(r.o.WarmUp)
	measured = span{from, from.Add(r.o.Duration)}
	halfway := from.Add(r.o.Duration / 2)
	if r.o.Kill && waitUntil(ctx, halfway) {
		node := r.nodes[len(r.nodes)-1]
		r.report.Killed = node.name
		if err := node.cmd.Process.Kill(); err != nil {
			return measured, fmt.Errorf("kill %s: %w", node.name, err)
		}
	}
	if !waitUntil(ctx, measured.to) {
		return measured, ctx.Err()
	}
	return measured, r.api.pause(ctx, ratesTopic, ratesSubscription)
}

// addArrivals computes the rates of a span.
func (r *RatesReport) addArrivals(arrivals []arrival, measured span) {
	type counts struct{ accepted, throttled int }
	count := func(s span) (c counts) {
		for _, a := range arrivals {
			switch {
			case !s.holds(a.At):
			case a.Acknowledged:
				c.accepted++
			default:
				c.throttled++
			}
		}
		return c
	}
	percent := func(c counts) float64 {
		return round(100*float64(c.throttled)/float64(max(c.accepted+c.throttled, 1)), 2)
	}
	rate := func(c counts, d time.Duration) float64 { return round(float64(c.accepted)/d.Seconds(), 2) }
	all := count(measured)
	r.Accepted, r.Throttled, r.Lowest = rate(all, measured.length()), percent(all), math.Inf(1)
	for from := measured.from; !from.Add(ratesWindow).After(measured.to); from = from.Add(ratesStep) {
		c := count(span{from, from.Add(ratesWindow)})
		r.Lowest, r.Highest = min(r.Lowest, rate(c, ratesWindow)), max(r.Highest, rate(c, ratesWindow))
		r.MostThrottled = max(r.MostThrottled, percent(c))
	}
}
