// Package bench measures postrider. It starts the program like a user, publishes events, receives them in another
// process, and reports throughput, latency, cost and losses. Tests use its ledgers to detect lost events.
package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"
)

// Options are the options of Run. Scenarios ignore options that they do not need.
type Options struct {
	Binary           string        // path of the postrider program
	Command          string        // for the report
	Scenario         string        // one of Scenarios
	Duration         time.Duration // of publishing in each phase, at least 1 s
	Clients          int           // connections, each with one request in progress; 0: 256, or 32 if requests have many
	Rate             float64       // events per second in an open loop; 0: each client publishes after the last response
	EventBytes       int           // of an event's JSON object
	EventsPerRequest int
	EventsPerBatch   int
	Subscriptions    int           // that match each event
	ResponseTime     time.Duration // response time of the endpoint of throughput
	FailurePercent   int           // percentage of responses 503 of the endpoint of failing
	Waiting          int           // pending deliveries of another event subscription in backlog
	Waits            string        // WaitPaused or WaitScheduled
	DatabaseURL      string        // an empty database, which keeps the events; "": a private server, removed at the end
}

// maxRequestBytes is the limit of a request.
const maxRequestBytes = 1 << 20

// Validate returns an error if the options contradict each other. It does not check their ranges.
func (o *Options) Validate() error {
	if request := o.EventsPerRequest*(o.EventBytes+1) + 1; request > maxRequestBytes {
		return fmt.Errorf("a request has %d bytes at most, and %d events of %d bytes are %d", maxRequestBytes,
			o.EventsPerRequest, o.EventBytes, request)
	}
	return nil
}

// Run measures one scenario and ends all processes that it started. It writes progress to log.
//
// After an error there is no report: a process ended (with the end of its log), no event was accepted, or ctx ended.
// Lost and pending events are in the report, see Report.Err.
func Run(ctx context.Context, o Options, log io.Writer) (report Report, err error) {
	if o.Clients == 0 && o.EventsPerRequest > 1 {
		o.Clients = 32
	}
	o.Clients = cmp.Or(o.Clients, defaultClients)
	r := &run{o: o, report: newReport(o)}
	err = withSystem(ctx, o.Binary, o.DatabaseURL, o.Scenario, log, func(s *system) error {
		r.system = s
		if err := s.guarded(ctx, r.runScenario); err != nil {
			return err
		}
		return r.conclude(ctx)
	})
	return r.report, err
}

// run is one run of a scenario.
type run struct {
	*system
	o        Options
	report   Report
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

	sent    span // from the first publish to the last response; if nothing is published, the phase
	figures Figures
}

// snapshot has the counters of processes and database.
type snapshot struct {
	cpu        map[string]float64
	written    written
	deliveries deliveries
	sink       receiverStats
}

func (r *run) runScenario(ctx context.Context) (err error) {
	if r.report.Settings, err = r.readSettings(ctx); err != nil {
		return err
	}
	return scenarios[r.o.Scenario](r, ctx)
}

// conclude completes the report after the last phase.
func (r *run) conclude(ctx context.Context) error {
	counted, arrivals, err := r.system.conclude(ctx, &r.report.outcome)
	if err == nil {
		r.report.Ended, r.report.DeadLettered = counted.otherwise, counted.deadLettered
		r.report.addPhases(r.phases, arrivals)
	}
	return err
}

// measure publishes for the duration and waits until everything is delivered. It forces a checkpoint in the middle:
// PostgreSQL runs one every few minutes, and 30 s without one would look better than the average.
func (r *run) measure(ctx context.Context, p phase) error {
	return r.measurePhase(ctx, p, func(p *phase, _ snapshot) error {
		loaded, err := r.publishLoad(ctx, loadOptions{
			targets: []target{p.target}, clients: r.o.Clients, rate: r.o.Rate, duration: r.o.Duration,
			eventBytes: r.o.EventBytes, eventsPerRequest: r.o.EventsPerRequest,
		}, func(ctx context.Context) error {
			if !pause(ctx, r.o.Duration/2) {
				return nil
			}
			return r.checkpoint(ctx)
		})
		r.report.addLoad(loaded)
		r.expected += loaded.published * int64(len(p.target.prefixes))
		p.sent = span{loaded.from, loaded.to}
		p.figures.addPublish(loaded)
		if err != nil || p.paused {
			return err
		}
		return r.drain(ctx, r.expected)
	})
}

// measureDrain measures the delivery of the pending events after start, with a checkpoint in the middle.
func (r *run) measureDrain(ctx context.Context, name string, start func(context.Context) error) error {
	return r.measurePhase(ctx, phase{name: name}, func(p *phase, before snapshot) error {
		p.sent.from = time.Now()
		if err := start(ctx); err != nil {
			return err
		}
		half := (before.sink.Distinct + r.expected) / 2
		if err := r.awaitSink(ctx, func(s receiverStats) (bool, error) { return s.Distinct >= half, nil }); err != nil {
			return err
		}
		if err := r.checkpoint(ctx); err != nil {
			return err
		}
		err := r.drain(ctx, r.expected)
		p.sent.to = time.Now()
		return err
	})
}

func (r *run) measurePhase(ctx context.Context, p phase, do func(p *phase, before snapshot) error) error {
	r.say("%s, %s", p.name, r.o.Duration)
	if len(r.phases) > 0 {
		if err := r.settle(ctx); err != nil {
			return err
		}
	}
	service := r.service.cmd.Process.Pid
	resetPeak(service)
	before, err := r.snapshot(ctx)
	if err != nil {
		return err
	}
	before.cpu = r.cpu() // without the time to count rows
	checkpoints := r.checkpoints
	if err := do(&p, before); err != nil {
		return err
	}
	after, err := r.snapshot(ctx)
	if err != nil {
		return err
	}
	p.figures.Phase, p.figures.RSSPeakMB = p.name, peakMB(service)
	p.figures.CPUSeconds = used(before.cpu, after.cpu)
	p.figures.addDeliveries(before, after, p.sent.from)
	n := after.deliveries.delivered - before.deliveries.delivered
	if p.paused {
		n = after.deliveries.left - before.deliveries.left
	}
	p.figures.addCost(before, after, n)
	r.phases, r.report.Checkpoints = append(r.phases, p), r.report.Checkpoints+r.checkpoints-checkpoints
	return nil
}

func (r *run) snapshot(ctx context.Context) (s snapshot, err error) {
	s.cpu = r.cpu()
	if s.sink, err = r.sinkAPI.stats(ctx); err != nil {
		return s, err
	}
	if s.deliveries, err = r.countDeliveries(ctx); err != nil {
		return s, err
	}
	s.written, err = r.countWritten(ctx)
	return s, err
}

// States of the backlog's deliveries.
const (
	WaitPaused    = "paused"    // as rows, on hold
	WaitScheduled = "scheduled" // as rows with a job each, due in hours
)

var scenarios = map[string]func(*run, context.Context) error{
	"throughput": (*run).throughput,
	"publish":    (*run).publish,
	"latency":    (*run).throughput, // in an open loop
	"batched":    (*run).batched,
	"backlog":    (*run).backlog,
	"failing":    (*run).failing,
}

// Scenarios are the names of the scenarios of Run.
func Scenarios() []string { return slices.Sorted(maps.Keys(scenarios)) }

// throughput publishes to event subscriptions at one endpoint, each with its own path.
func (r *run) throughput(ctx context.Context) error {
	base := ""
	if r.o.ResponseTime > 0 {
		base = fmt.Sprintf("/slow/%d", r.o.ResponseTime.Milliseconds())
	}
	var endpoints []endpoint
	for i := range r.o.Subscriptions {
		name := fmt.Sprintf("sink-%d", i+1)
		endpoints = append(endpoints, endpoint{name, base + "/" + name, nil})
	}
	target, err := r.measuredTopic(ctx, "bench", endpoints...)
	if err != nil {
		return err
	}
	return r.measure(ctx, phase{name: r.o.Scenario, target: target})
}

// failing measures without failures and then with them. Retries follow after 6 s: within the measurement, and late
// enough (more than 5 s) to be promoted jobs like the retries of the built-in policies.
func (r *run) failing(ctx context.Context) error {
	policy := "bench-failing" + r.suffix
	if err := r.api.copyPolicy(ctx, "ga-2018", policy, settings{
		"stepsInSeconds": []int{6}, "tailInSeconds": 6, "jitterFraction": 0.1, "jitterCapInSeconds": 0.6,
	}); err != nil {
		return err
	}
	r.onClose("/v1/policies/" + policy)
	for _, percent := range []int{0, r.o.FailurePercent} {
		e := endpoint{"sink", fmt.Sprintf("/failing/%d", percent), settings{"retryPolicy": settings{"policy": policy}}}
		target, err := r.measuredTopic(ctx, fmt.Sprintf("failing-%d", percent), e)
		if err != nil {
			return err
		}
		p := phase{name: fmt.Sprintf("%d %% failing", percent), target: target, duringPublish: true}
		if err := r.measure(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// publishPaused measures publishing to an event subscription with batches while delivery is paused. Only the number of
// events limits a batch.
func (r *run) publishPaused(ctx context.Context, batch int) (target, error) {
	batches := endpoint{"batches", "/batches", settings{
		"maxEventsPerBatch": batch, "preferredBatchSizeInKilobytes": maxRequestBytes >> 10,
	}}
	target, err := r.measuredTopic(ctx, "bench", batches)
	if err != nil {
		return target, err
	}
	if err := r.api.pause(ctx, r.topics[0], "batches"); err != nil {
		return target, err
	}
	return target, r.measure(ctx, phase{name: "publishing, delivery paused", target: target, paused: true})
}

// publish measures publishing, and then delivers the events to prove that none is lost.
func (r *run) publish(ctx context.Context) error {
	if _, err := r.publishPaused(ctx, max(r.o.EventsPerRequest, 100)); err != nil {
		return err
	}
	r.say("delivering what was published")
	if err := r.api.resume(ctx, r.topics[0], "batches"); err != nil {
		return err
	}
	return r.drain(ctx, r.expected)
}

// batched measures publishing while delivery is paused, then the delivery of these events, then both at once.
func (r *run) batched(ctx context.Context) error {
	target, err := r.publishPaused(ctx, r.o.EventsPerBatch)
	if err != nil {
		return err
	}
	if err := r.measureDrain(ctx, "delivering what was paused", func(ctx context.Context) error {
		return r.api.resume(ctx, r.topics[0], "batches")
	}); err != nil {
		return err
	}
	return r.measure(ctx, phase{name: "publishing and delivering", target: target})
}

// backlog measures an event subscription alone, and then with many pending deliveries of another.
func (r *run) backlog(ctx context.Context) error {
	target, err := r.measuredTopic(ctx, "bench", endpoint{"sink", "/sink", nil})
	if err != nil {
		return err
	}
	if err := r.measure(ctx, phase{name: "alone", target: target}); err != nil {
		return err
	}
	if err := r.createBacklog(ctx); err != nil {
		return err
	}
	p := phase{name: fmt.Sprintf("beside %d %s", r.o.Waiting, r.o.Waits), target: target}
	if err := r.measure(ctx, p); err != nil {
		return err
	}
	known, err := r.pending(ctx, []string{"waiting" + r.suffix})
	r.report.Waiting, r.report.Unaccounted = known, int64(r.o.Waiting)-known
	return err
}

func (r *run) createBacklog(ctx context.Context) error {
	t, err := r.createTopic(ctx, "waiting", endpoint{"later", "/later", nil})
	if err != nil {
		return err
	}
	topic := "waiting" + r.suffix
	if err := r.api.pause(ctx, topic, "later"); err != nil {
		return err
	}
	if err := r.publishBulk(ctx, []target{t}, r.o.Waiting); err != nil {
		return err
	}
	if r.o.Waits == WaitScheduled {
		if err := r.schedule(ctx, topic, time.Now().Add(12*time.Hour)); err != nil {
			return err
		}
		if err := r.api.resume(ctx, topic, "later"); err != nil {
			return err
		}
	}
	return r.settle(ctx)
}
