package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// The scenarios of Noisy.
const (
	ScenarioHang    = "hang"    // one endpoint that never responds, with a large backlog
	ScenarioHang20  = "hang20"  // twenty such endpoints
	ScenarioRetries = "retries" // the retries of one endpoint that responds 503 become due at the same time
	ScenarioLimit   = "limit"   // one endpoint with a rate limit and a large backlog; it responds 503
	ScenarioTopics  = "topics"  // many topics compared with one, without noise
)

const (
	warmUpShare = 5                      // the warm-up lasts baseline / 5: the first second of a load is its slowest
	loadTail    = 300 * time.Millisecond // the load lasts longer than the last phase, so that its last second is whole
)

// NoisyOptions are the options of Noisy, with the tags of their flags. "The others" are the measured event
// subscriptions, "noise" is the bad endpoints.
type NoisyOptions struct {
	Binary  string `kong:"-"` // path of the postrider program
	Command string `kong:"-"` // for the report

	Scenarios     []string      `name:"scenario" help:"Scenarios: ${enum}; repeat the flag or separate them by commas." enum:"all,hang,hang20,retries,limit,topics" default:"all" placeholder:"NAME"`
	Baseline      time.Duration `help:"Duration of the measurement without noise." default:"15s" range:"1.."`
	Duration      time.Duration `help:"Duration of the measurement with noise." default:"30s" range:"1.."`
	Subscriptions int           `help:"Measured event subscriptions; they receive the events in turn." default:"1000" range:"1..99999"`
	Topics        int           `help:"Topics of these event subscriptions." default:"1" range:"1.."`
	Clients       int           `help:"Publishers, each with one connection; 0 = 256." range:"0.."`
	Rate          float64       `help:"Events per second; 0 = as fast as the publishers can." range:"0.."`
	EventBytes    int           `help:"Size of an event in bytes." default:"1024" range:"320.."`
	Backlog       int           `name:"backlog" help:"hang, limit: pending deliveries of the bad endpoint." default:"500000" range:"1.."`
	Endpoints     int           `help:"hang20: number of endpoints that hang." default:"20" range:"1..99999"`
	BacklogEach   int           `name:"backlog-each" help:"hang20: pending deliveries of each endpoint." default:"5000" range:"1.."`
	NoiseRate     float64       `help:"hang, hang20, limit: events per second published for these endpoints." default:"200" range:"0.."`
	Retries       int           `help:"retries: number of retries due at the same time." default:"90000" range:"1.."`
	ManyTopics    int           `help:"topics: number of topics, each with one event subscription." default:"10000" range:"1..99999"`
	Policy        string        `help:"Retry policy of the bad endpoints." default:"ga-2018"`
}

// Validate is called by kong. It returns an error if the options contradict each other.
func (o *NoisyOptions) Validate() error {
	if o.Topics > o.Subscriptions {
		return errors.New("there must be an event subscription for each topic")
	}
	return nil
}

// Noisy measures what a bad endpoint costs the other event subscriptions, first without it and then with it. Only
// measurements of one run can be compared. It writes progress to log.
//
// An error means that there is no report. Lost events and exceeded limits are in the report: see NoisyReport.Err and
// NoisyReport.Unmet.
func Noisy(ctx context.Context, o NoisyOptions, log io.Writer) (report NoisyReport, err error) {
	o.Clients = cmp.Or(o.Clients, defaultClients)
	report = NoisyReport{Command: o.Command, Machine: thisMachine()}
	for _, name := range o.Scenarios {
		r := &noisyRun{o: o, result: NoisyResult{Scenario: name, Clients: o.Clients, EventBytes: o.EventBytes}}
		if err := withSystem(ctx, o.Binary, "", name, log, func(s *system) (err error) {
			r.system = s
			if report.Settings, err = s.readSettings(ctx); err != nil {
				return err
			}
			return r.measure(ctx)
		}); err != nil {
			return report, err
		}
		report.Results = append(report.Results, r.result)
	}
	return report, nil
}

// noisyRun is one scenario.
type noisyRun struct {
	*system
	o      NoisyOptions
	result NoisyResult
	noise  noise

	baseline, noisy, again span // again: only of topics
}

// measure runs the scenario and completes its result.
func (r *noisyRun) measure(ctx context.Context) error {
	scenario := r.measureNoise
	if r.result.Scenario == ScenarioTopics {
		scenario = r.measureTopics
	}
	if err := r.guarded(ctx, scenario); err != nil {
		return err
	}
	counted, arrivals, err := r.conclude(ctx, &r.result.outcome)
	if err != nil {
		return err
	}
	r.result.Ended = counted.otherwise + counted.deadLettered
	r.result.addArrivals(arrivals, r.baseline, r.noisy, r.again)
	return nil
}

// measureNoise measures the others without and then with the noise, under one continuous load.
func (r *noisyRun) measureNoise(ctx context.Context) error {
	targets, err := r.createOthers(ctx, "bench", r.o.Topics, r.o.Subscriptions)
	if err != nil {
		return err
	}
	if err := r.prepareNoise(ctx); err != nil {
		return err
	}
	begins := time.Now().Add(r.warmUp())
	if !r.noise.at.IsZero() {
		begins = r.noise.at.Add(-r.o.Baseline)
	}
	if err := r.measureStretches(ctx, targets, begins,
		stretch{"baseline", r.o.Baseline, &r.baseline, &r.result.Baseline, nil},
		stretch{"noise", r.o.Duration, &r.noisy, &r.result.Noisy, r.startNoise}); err != nil {
		return err
	}
	return r.countNoise(ctx)
}

// measureTopics measures one topic, then many with one event subscription each, then the one again, which shows whether
// the machine's speed changed while the topics were created.
func (r *noisyRun) measureTopics(ctx context.Context) error {
	one, err := r.createOthers(ctx, "one", 1, 1)
	if err != nil {
		return err
	}
	r.result.Again = &PhaseReport{}
	alone := func(targets []target, s stretch) error {
		if err := r.settle(ctx); err != nil {
			return err
		}
		return r.measureStretches(ctx, targets, time.Now().Add(r.warmUp()), s)
	}
	if err := alone(one, stretch{"one topic", r.o.Baseline, &r.baseline, &r.result.Baseline, nil}); err != nil {
		return err
	}
	many, err := r.createOthers(ctx, "many", r.o.ManyTopics, r.o.ManyTopics)
	if err != nil {
		return err
	}
	if err := alone(many, stretch{"many topics", r.o.Duration, &r.noisy, &r.result.Noisy, nil}); err != nil {
		return err
	}
	return alone(one, stretch{"one topic again", r.o.Baseline, &r.again, r.result.Again, nil})
}

func (r *noisyRun) warmUp() time.Duration { return r.o.Baseline / warmUpShare }

// stretch is a measured part of a load.
type stretch struct {
	name   string
	length time.Duration
	span   *span
	report *PhaseReport
	start  func(context.Context) error // called at its beginning, unless nil
}

// measureStretches publishes to the targets, measures the stretches one after another, and waits until everything is
// delivered. The noise is paused after the last stretch.
func (r *noisyRun) measureStretches(
	ctx context.Context, targets []target, begins time.Time, stretches ...stretch,
) error {
	until := begins.Add(loadTail)
	for _, s := range stretches {
		until = until.Add(s.length)
	}
	loaded, err := r.publishLoad(ctx, loadOptions{
		targets: targets, clients: r.o.Clients, rate: r.o.Rate, duration: time.Until(until), eventBytes: r.o.EventBytes,
		eventsPerRequest: 1,
	}, func(ctx context.Context) error {
		waitUntil(ctx, begins)
		for _, s := range stretches {
			r.say("%s, %s", s.name, s.length)
			before, now := r.cpu(), time.Now()
			*s.span = span{now, now.Add(s.length)}
			if s.start != nil {
				if err := s.start(ctx); err != nil {
					return err
				}
			}
			if !waitUntil(ctx, s.span.to) {
				return ctx.Err()
			}
			s.report.CPUSeconds = used(before, r.cpu())
		}
		return r.noise.forAll(ctx, r.api.pause)
	})
	r.result.addLoad(loaded)
	if err != nil {
		return err
	}
	return r.drain(ctx, r.result.Published)
}

// createOthers creates topics and event subscriptions, each with its own path at the endpoint.
func (r *noisyRun) createOthers(ctx context.Context, name string, topics, subscriptions int) ([]target, error) {
	keys, names := make([]string, topics), make([]string, topics)
	r.say("creating topics: %d, event subscriptions: %d", topics, subscriptions)
	err := parallel(ctx, parallelChanges, topics, func(ctx context.Context, i int) (err error) {
		names[i] = fmt.Sprintf("%s-%05d", name, i)
		keys[i], err = r.api.createTopic(ctx, names[i])
		return err
	})
	if err != nil {
		return nil, err
	}
	r.topics = append(r.topics, names...)
	r.result.Topics, r.result.Subscriptions = topics, subscriptions
	targets := make([]target, subscriptions)
	return targets, parallel(ctx, parallelChanges, subscriptions, func(ctx context.Context, i int) error {
		sub, topic := fmt.Sprintf("sub-%05d", i), i%topics
		targets[i] = target{
			url: r.publishURL(names[topic]), key: keys[topic], subject: "/" + sub + "/load",
			prefixes: []string{sub + "/"},
		}
		return r.api.subscribe(ctx, names[topic], sub, r.sinkAPI.base+"/"+sub, settings{"filter": bySubject("/" + sub + "/")})
	})
}

const (
	noiseTopic    = "noise"
	noiseClients  = 16 // enough for the noise's rate
	noiseLimit    = 50 // requests per second
	failingPath   = "/failing/100/"
	retriesPolicy = "bench-retries" // a copy of the retry policy with steps of an hour: one retry of each delivery

	// Time to schedule the retries and to vacuum afterwards.
	scheduleTime       = 5 * time.Second
	schedulesPerSecond = 8_000
)

// noise has the bad endpoints: event subscriptions of one topic.
type noise struct {
	names   []string
	targets []target
	at      time.Time // when the retries are due; zero: startNoise starts the noise
}

// forAll calls a function of the API for each event subscription.
func (n *noise) forAll(ctx context.Context, call func(ctx context.Context, topic, name string) error) error {
	return parallel(ctx, parallelChanges, len(n.names), func(ctx context.Context, i int) error {
		return call(ctx, noiseTopic, n.names[i])
	})
}

// prepareNoise creates the backlog of the bad endpoints. They are paused until startNoise, or until the retries are
// due.
func (r *noisyRun) prepareNoise(ctx context.Context) error {
	report := &r.result.Noise
	*report = NoiseReport{Endpoints: 1, Policy: r.o.Policy}
	each, policy, path := r.o.Backlog, r.o.Policy, "/hang"
	var limit settings
	switch r.result.Scenario {
	case ScenarioHang20:
		report.Endpoints, each = r.o.Endpoints, r.o.BacklogEach
	case ScenarioLimit:
		path, limit = failingPath, settings{"limit": noiseLimit, "burst": 1}
	case ScenarioRetries:
		each, policy, path = r.o.Retries, retriesPolicy, failingPath
		changes := settings{"stepsInSeconds": []int{3600}, "jitterFraction": 0}
		if err := r.api.copyPolicy(ctx, r.o.Policy, policy, changes); err != nil {
			return err
		}
	}
	if err := r.createNoise(ctx, policy, path, limit); err != nil {
		return err
	}
	if err := r.noise.forAll(ctx, r.api.pause); err != nil {
		return err
	}
	if err := r.publishBulk(ctx, r.noise.targets, each); err != nil {
		return err
	}
	report.Backlog = int64(each * report.Endpoints)
	report.Published = report.Backlog
	if r.result.Scenario == ScenarioRetries {
		return r.scheduleRetries(ctx)
	}
	return r.settle(ctx)
}

func (r *noisyRun) createNoise(ctx context.Context, policy, path string, limit settings) error {
	key, err := r.api.createTopic(ctx, noiseTopic)
	if err != nil {
		return err
	}
	for i := range r.result.Noise.Endpoints {
		name := fmt.Sprintf("noise-%05d", i)
		r.noise.names = append(r.noise.names, name)
		r.noise.targets = append(r.noise.targets,
			target{url: r.publishURL(noiseTopic), key: key, subject: "/" + name + "/load"})
	}
	return r.noise.forAll(ctx, func(ctx context.Context, topic, name string) error {
		return r.api.subscribe(ctx, topic, name, r.sinkAPI.base+path+name, settings{
			"retryPolicy": settings{"policy": policy}, "filter": bySubject("/" + name + "/"), "deliveryRate": limit,
		})
	})
}

// startNoise resumes the bad endpoints and publishes more events for them, except for retries.
func (r *noisyRun) startNoise(ctx context.Context) error {
	if !r.noise.at.IsZero() {
		return nil
	}
	if err := r.noise.forAll(ctx, r.api.resume); err != nil || r.o.NoiseRate == 0 {
		return err
	}
	l, err := newLoad(loadOptions{
		targets: r.noise.targets, clients: noiseClients, rate: r.o.NoiseRate, duration: r.o.Duration,
		eventBytes: bulkBytes, eventsPerRequest: 1,
	})
	if err != nil {
		return err
	}
	loaded, err := l.publish(ctx)
	r.result.Noise.Published += loaded.published
	return err
}

// scheduleRetries makes all retries due at the same time, after warm-up and baseline.
func (r *noisyRun) scheduleRetries(ctx context.Context) error {
	needed := r.warmUp() + r.o.Baseline
	r.noise.at = time.Now().Add(needed + scheduleTime + time.Duration(r.o.Retries)*time.Second/schedulesPerSecond)
	if err := r.schedule(ctx, noiseTopic, r.noise.at); err != nil {
		return err
	}
	if err := r.noise.forAll(ctx, r.api.resume); err != nil {
		return err
	}
	if err := r.settle(ctx); err != nil {
		return err
	}
	if time.Until(r.noise.at) < needed {
		return fmt.Errorf("the database is too slow for %d retries: choose fewer (--retries)", r.o.Retries)
	}
	return nil
}

// countNoise counts accepted events for bad endpoints without a delivery in the database.
func (r *noisyRun) countNoise(ctx context.Context) error {
	var known int64
	if err := r.conn.QueryRow(ctx, "SELECT count(*) FROM postrider.deliveries WHERE topic = $1", noiseTopic).
		Scan(&known); err != nil {
		return fmt.Errorf("count the noise's deliveries: %w", err)
	}
	r.result.Noise.Unaccounted = max(r.result.Noise.Published-known, 0)
	return nil
}
