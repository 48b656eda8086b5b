package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/alecthomas/kong"

	"postrider/internal/terminal"
)

// throughputCmd is throughput and, in an open loop, latency.
type throughputCmd struct {
	loadFlags
	nodesFlag
	Rate         float64       `help:"Events per second; 0 = as fast as the publishers can." default:"${rate}" range:"0.."`
	Subs         int           `name:"subscriptions" help:"Event subscriptions that match each event." default:"1" range:"1.."`
	ResponseTime time.Duration `help:"Response time of the endpoint." range:"0.."`
}

// Run publishes to event subscriptions at one endpoint, each with its own path.
func (c *throughputCmd) Run(ctx context.Context, p *program, k *kong.Context) error {
	r := &run{
		loadFlags: c.loadFlags, rate: c.Rate, report: report{Scenario: k.Command(), Subscriptions: c.Subs, Nodes: c.Nodes},
	}
	return r.scenario(ctx, p, func() {
		var subs []subscription
		for i := range c.Subs {
			name := fmt.Sprintf("sink-%d", i+1)
			subs = append(subs, subscription{name, fmt.Sprintf("/%s?ms=%d", name, c.ResponseTime.Milliseconds()), nil})
		}
		r.measure(phase{name: k.Command(), target: r.measuredTopic("bench", subs...)})
	})
}

type publishCmd struct {
	loadFlags
	Events int `name:"events-per-request" help:"Events in a request." default:"100" range:"1..5000"`
}

// Run measures publishing, and then delivers the events to prove that none is lost.
func (c *publishCmd) Run(ctx context.Context, p *program) error {
	r := &run{loadFlags: c.loadFlags, report: report{Scenario: "publish", EventsPerRequest: c.Events}}
	return r.scenario(ctx, p, func() {
		r.publishPaused(max(c.Events, 100))
		r.say("delivering what was published")
		r.act("resume", r.topics[0], "batches")
		r.drain(r.expected)
	})
}

type batchedCmd struct {
	loadFlags
	Events int `name:"events-per-request" help:"Events in a request of the publishers." default:"100" range:"1..5000"`
	Batch  int `name:"events-per-batch" help:"Events in a delivered batch, at most." default:"100" range:"1..5000"`
}

// Run measures publishing while delivery is paused, then the delivery of these events, then both at once.
func (c *batchedCmd) Run(ctx context.Context, p *program) error {
	r := &run{loadFlags: c.loadFlags, report: report{Scenario: "batched", EventsPerRequest: c.Events}}
	return r.scenario(ctx, p, func() {
		r.publishPaused(c.Batch)
		r.measureDrain("delivering what was paused")
		r.measure(phase{name: "publishing and delivering", target: r.phases[0].target})
	})
}

type failingCmd struct {
	loadFlags
	Rate    float64 `help:"Events per second; 0 = as fast as the publishers can." range:"0.."`
	Percent int     `help:"Percentage of requests with the response 503." default:"20" range:"0..99"`
}

// Run measures without failures and then with them. Retries follow after 6 s: within the measurement, and late enough
// (more than 5 s) to be promoted jobs like the retries of the built-in policies.
func (c *failingCmd) Run(ctx context.Context, p *program) error {
	r := &run{loadFlags: c.loadFlags, rate: c.Rate, report: report{Scenario: "failing"}}
	return r.scenario(ctx, p, func() {
		policy := "bench-failing" + r.suffix
		r.copyPolicy("ga-2018", policy, settings{
			"stepsInSeconds": []int{6}, "tailInSeconds": 6, "jitterFraction": 0.1, "jitterCapInSeconds": 0.6,
		})
		for _, percent := range []int{0, c.Percent} {
			t := r.measuredTopic(fmt.Sprintf("failing-%d", percent), subscription{
				"sink", fmt.Sprintf("/failing-%d?failing=%d", percent, percent),
				settings{"retryPolicy": settings{"policy": policy}},
			})
			r.measure(phase{name: fmt.Sprintf("%d %% failing", percent), target: t, duringPublish: true})
		}
	})
}

type backlogCmd struct {
	loadFlags
	nodesFlag
	Rate    float64 `help:"Events per second; 0 = as fast as the publishers can." range:"0.."`
	Waiting int     `help:"Pending deliveries of another event subscription." default:"1000000" range:"0.."`
	Waits   string  `help:"State of these deliveries: paused (on hold) or scheduled (for a retry in hours)." enum:"paused,scheduled" default:"paused"`
}

// Run measures an event subscription alone, and then with many pending deliveries of another.
func (c *backlogCmd) Run(ctx context.Context, p *program) error {
	r := &run{loadFlags: c.loadFlags, rate: c.Rate, report: report{Scenario: "backlog", Nodes: c.Nodes}}
	return r.scenario(ctx, p, func() {
		t := r.measuredTopic("bench", subscription{"sink", "/sink", nil})
		r.warmUp(t)
		r.measure(phase{name: "alone", target: t})
		waiting := "waiting" + r.suffix
		other := r.createTopic(waiting, settings{}, subscription{"later", "/later", nil})
		r.act("pause", waiting, "later")
		accepted := r.publishBulk([]target{other}, c.Waiting)
		if c.Waits == "scheduled" {
			r.schedule(waiting, time.Now().Add(12*time.Hour))
			r.act("resume", waiting, "later")
		}
		r.measure(phase{name: fmt.Sprintf("beside %d %s", c.Waiting, c.Waits), target: t})
		r.report.Waiting = r.pending([]string{waiting})
		r.report.Unaccounted = accepted - r.report.Waiting
	})
}

// run is one run of a scenario.
type run struct {
	*system
	loadFlags
	rate     float64 // events per second in an open loop; 0: each client publishes after the last response
	report   report
	phases   []phase
	expected int64 // deliveries of the accepted events
}

// phase is a measured part of a run.
type phase struct {
	name   string
	target target
	paused bool // delivery is paused
	// duringPublish counts only deliveries while events are published, because the last retries are much later.
	duringPublish bool
	sent          span // from the first publish to the last response; if nothing is published, the phase
	figures       figures
}

// scenario measures, and prints the report. After an error there is none. Lost and pending events are in the report.
func (r *run) scenario(ctx context.Context, p *program, measure func()) error {
	o := &r.report
	o.EventsPerRequest, o.Subscriptions, o.Nodes = max(o.EventsPerRequest, 1), max(o.Subscriptions, 1), max(o.Nodes, 1)
	if request := o.EventsPerRequest*(r.EventBytes+1) + 1; request > maxRequestBytes {
		return terminal.Usagef("bench %s: a request has %d bytes at most, and %d events of %d bytes are %d", o.Scenario,
			maxRequestBytes, o.EventsPerRequest, r.EventBytes, request)
	}
	if r.Clients == 0 && o.EventsPerRequest > 1 {
		r.Clients = 32
	}
	r.Clients = cmp.Or(r.Clients, defaultClients)
	o.Clients, o.EventBytes = r.Clients, r.EventBytes
	if err := withSystem(ctx, p, r.DatabaseURL, o.Scenario, &o.common, func(s *system) {
		r.system = s
		s.startNodes(o.Nodes)
		measure()
		counted, arrivals := s.conclude(&o.outcome)
		o.Ended, o.DeadLettered = counted.otherwise, counted.deadLettered
		if s.ctx.Err() == nil {
			o.addPhases(r.phases, arrivals)
		}
	}); err != nil {
		return err
	}
	return finish(r.OutputFlag, o, o.err(o.DeadLettered+o.Ended, o.Unaccounted))
}

// publishPaused measures publishing to an event subscription with batches while delivery is paused. Only the number of
// events limits a batch.
func (r *run) publishPaused(batch int) {
	t := r.measuredTopic("bench", subscription{"batches", "/batches", settings{
		"maxEventsPerBatch": batch, "preferredBatchSizeInKilobytes": maxRequestBytes >> 10,
	}})
	r.act("pause", r.topics[0], "batches")
	r.measure(phase{name: "publishing, delivery paused", target: t, paused: true})
}

// warmUp is measure without the figures, for a third of the duration. Without it, the first of two phases is slower: it
// meets empty tables without statistics, new connections and a small heap.
func (r *run) warmUp(t target) {
	r.say("warming up, %s", r.Duration/3)
	r.deliver(t, r.Duration/3, false, func() {})
	r.settle()
}

// deliver publishes for the duration, calls do meanwhile, and waits until everything is delivered, unless paused.
func (r *run) deliver(t target, duration time.Duration, paused bool, do func()) *load {
	loaded := r.publishLoad(&load{
		targets: []target{t}, clients: r.Clients, rate: r.rate, duration: duration, eventBytes: r.EventBytes,
		eventsPerRequest: r.report.EventsPerRequest,
	}, do)
	r.report.addLoad(loaded)
	r.expected += loaded.published * int64(len(t.prefixes))
	if !paused {
		r.drain(r.expected)
	}
	return loaded
}

// measure publishes for the duration and waits until everything is delivered. It forces a checkpoint in the middle:
// PostgreSQL runs one every few minutes, and 30 s without one would look better than the average.
func (r *run) measure(p phase) {
	r.measurePhase(&p, func(counts) {
		loaded := r.deliver(p.target, r.Duration, p.paused, func() {
			if pause(r.ctx, r.Duration/2) {
				r.checkpoint()
			}
		})
		p.sent = span{loaded.from, loaded.to}
		p.figures.addPublish(loaded)
	})
}

// measureDrain measures the delivery of the pending batches, with a checkpoint in the middle.
func (r *run) measureDrain(name string) {
	p := phase{name: name}
	r.measurePhase(&p, func(before counts) {
		p.sent.from = time.Now()
		r.act("resume", r.topics[0], "batches")
		half := (before.sink.distinct + r.expected) / 2
		r.await(r.sink.attempts, func() bool { return r.sink.counters().distinct >= half })
		r.checkpoint()
		r.drain(r.expected)
		p.sent.to = time.Now()
	})
}

func (r *run) measurePhase(p *phase, do func(before counts)) {
	r.say("%s, %s", p.name, r.Duration)
	if len(r.phases) > 0 {
		r.settle()
	}
	r.resetPeaks()
	before, checkpoints := r.count(), r.checkpoints
	before.cpu = r.cpu() // without the time to count rows
	do(before)
	after := r.count()
	p.figures.Phase, p.figures.RSSPeakMB = p.name, r.peakMB()
	n := after.delivered - before.delivered
	if p.paused {
		n = after.left - before.left
	}
	p.figures.addCounts(before, after, p.sent.from, n)
	r.phases, r.report.Checkpoints = append(r.phases, *p), r.report.Checkpoints+r.checkpoints-checkpoints
}
