package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"postrider/internal/terminal"
)

// noisyCmd: "the others" are the measured event subscriptions, "noise" is the bad endpoints.
type noisyCmd struct {
	terminal.OutputFlag
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
	Check         bool          `help:"Exit with 1 also if a limit is exceeded."`
}

// Validate is called by kong.
func (c *noisyCmd) Validate() error {
	if c.Topics > c.Subscriptions {
		return errors.New("there must be an event subscription for each topic")
	}
	return nil
}

type noisyReport struct {
	Results []*noisyResult `json:"results"`
	common
}

// noisyResult is the result of one scenario, for the others unless it names the noise.
type noisyResult struct {
	Scenario      string `json:"scenario"`
	Topics        int    `json:"topics"`
	Subscriptions int    `json:"subscriptions"`
	Clients       int    `json:"clients"`
	EventBytes    int    `json:"eventBytes"`
	// Baseline is without noise, Noisy with it. In topics they are one topic and many, and Again is the one once more.
	Baseline phaseReport  `json:"baseline"`
	Noisy    phaseReport  `json:"noisy"`
	Again    *phaseReport `json:"again,omitempty"`
	// FirstSecond and FirstFiveSeconds are latencies at the beginning of the noise.
	FirstSecond      map[string]float64 `json:"firstSecondMs"`
	FirstFiveSeconds map[string]float64 `json:"firstFiveSecondsMs"`
	// Seconds are those of the noise. Latency is of the events sent in it; in the first second also of those in progress
	// when the noise began. ratio is to the baseline's average second.
	Seconds     []map[string]float64 `json:"secondsOfNoise"`
	WorstSecond int                  `json:"worstSecond"` // index of the lowest throughput in Seconds
	Ratios      map[string]float64   `json:"ratios"`      // the noise's figures divided by the baseline's
	Bounds      []bound              `json:"bounds"`
	Noise       noiseReport          `json:"noise"`

	outcome       // of the whole load, including the warm-up
	Ended   int64 `json:"ended"` // deliveries that were dead-lettered, dropped or canceled
}

// phaseReport is about the events that arrived in one phase, without duplicates.
type phaseReport struct {
	StartedAt          time.Time `json:"startedAt"`
	Seconds            float64   `json:"seconds"`
	Delivered          int64     `json:"delivered"`
	DeliveredPerSecond float64   `json:"deliveredPerSecond"`
	// Latency is from an event's publish to its arrival. With noise, it includes events sent before the noise that
	// arrived later.
	Latency    map[string]float64 `json:"latencyMs"`
	CPUSeconds map[string]float64 `json:"cpuSeconds"` // as in figures

	span span
	took []time.Duration // of the events sent in it
}

// noiseReport is about the bad endpoints. It is empty for topics.
type noiseReport struct {
	Endpoints int    `json:"endpoints"`
	Policy    string `json:"policy,omitempty"`
	Backlog   int64  `json:"backlog"`   // pending deliveries when the noise began
	Published int64  `json:"published"` // events, including those of Backlog
	// Calls are the delivery attempts during the noise. FirstCallAfter is 0 if there was none.
	Calls          int64   `json:"calls"`
	FirstCallAfter float64 `json:"firstCallAfterSeconds"`
	// Unaccounted are accepted events without a delivery in the database.
	Unaccounted int64 `json:"unaccounted"`
}

// bound is the limit of a ratio.
type bound struct {
	Name   string  `json:"name"` // throughput or p99
	AtMost bool    `json:"atMost"`
	Limit  float64 `json:"limit"`
	Value  float64 `json:"value"`
	Met    bool    `json:"met"`
}

// Run measures what a bad endpoint costs the other event subscriptions, first without it and then with it. Only
// measurements of one run can be compared.
func (c *noisyCmd) Run(ctx context.Context, p *program) error {
	if slices.Contains(c.Scenarios, "all") {
		c.Scenarios = []string{"hang", "hang20", "retries", "limit", "topics"}
	}
	c.Clients = cmp.Or(c.Clients, defaultClients)
	var o noisyReport
	var lost error
	for _, name := range c.Scenarios {
		r := &noisyRun{noisyCmd: c, result: &noisyResult{Scenario: name, Clients: c.Clients, EventBytes: c.EventBytes}}
		if err := withSystem(ctx, p, "", name, &o.common, func(s *system) {
			r.system = s
			if name == "topics" {
				r.measureTopics()
			} else {
				r.measureNoise()
			}
			counted, arrivals := s.conclude(&r.result.outcome)
			r.result.Ended = counted.otherwise + counted.deadLettered
			r.result.addArrivals(arrivals)
		}); err != nil {
			return err
		}
		o.Results = append(o.Results, r.result)
		lost = errors.Join(lost, r.result.err(c.Check))
	}
	return finish(c.OutputFlag, o, lost)
}

// noisyRun is one scenario.
type noisyRun struct {
	*system
	*noisyCmd
	result *noisyResult

	topic   string    // of the noise
	names   []string  // of its event subscriptions
	targets []target  // of the noise
	at      time.Time // when the retries are due; zero: startNoise starts the noise
}

// measureNoise measures the others without and then with the noise, under one continuous load.
func (r *noisyRun) measureNoise() {
	others := r.createOthers("bench", r.Topics, r.Subscriptions)
	r.prepareNoise()
	begins := r.warmedUp()
	if !r.at.IsZero() {
		begins = r.at.Add(-r.Baseline)
	}
	r.publish(others, begins.Add(r.Baseline+r.Duration), func() {
		r.waitUntil(begins)
		r.stretch("baseline", &r.result.Baseline, r.Baseline, func() {})
		r.stretch("noise", &r.result.Noisy, r.Duration, r.startNoise)
		r.actOnNoise("pause")
	})
	var known int64
	r.row("SELECT count(*) FROM postrider.deliveries WHERE topic = $1", []any{r.topic}, &known)
	r.result.Noise.Unaccounted = max(r.result.Noise.Published-known, 0)
}

// measureTopics measures one topic, then many with one event subscription each, then the one again, which shows whether
// the machine's speed changed while the topics were created.
func (r *noisyRun) measureTopics() {
	r.result.Again = &phaseReport{}
	alone := func(name string, targets []target, report *phaseReport, length time.Duration) {
		r.settle()
		begins := r.warmedUp()
		r.publish(targets, begins.Add(length), func() {
			r.waitUntil(begins)
			r.stretch(name, report, length, func() {})
		})
	}
	one := r.createOthers("one", 1, 1)
	alone("one topic", one, &r.result.Baseline, r.Baseline)
	alone("many topics", r.createOthers("many", r.ManyTopics, r.ManyTopics), &r.result.Noisy, r.Duration)
	alone("one topic again", one, r.result.Again, r.Baseline)
}

// warmedUp is the end of a warm-up that begins now: the first second of a load is its slowest.
func (r *noisyRun) warmedUp() time.Time { return time.Now().Add(r.Baseline / 5) }

// publish calls measure while it publishes to the targets, and waits until everything is delivered. It publishes a bit
// longer, so that the last second is whole.
func (r *noisyRun) publish(targets []target, end time.Time, measure func()) {
	r.result.addLoad(r.publishLoad(&load{
		targets: targets, clients: r.Clients, rate: r.Rate, duration: time.Until(end) + 300*time.Millisecond,
		eventBytes: r.EventBytes, eventsPerRequest: 1,
	}, measure))
	r.drain(r.result.Published)
}

// stretch measures a part of a load.
func (r *noisyRun) stretch(name string, report *phaseReport, length time.Duration, start func()) {
	r.say("%s, %s", name, length)
	before, now := r.cpu(), time.Now()
	report.span = span{now, now.Add(length)}
	start()
	r.waitUntil(report.span.to)
	report.CPUSeconds = used(before, r.cpu())
}

// createOthers creates topics and event subscriptions, each with its own path at the endpoint.
func (r *noisyRun) createOthers(name string, topics, subscriptions int) []target {
	r.say("creating topics: %d, event subscriptions: %d", topics, subscriptions)
	created, targets, first := make([]target, topics), make([]target, subscriptions), len(r.topics)
	for i := range topics {
		r.topics = append(r.topics, fmt.Sprintf("%s-%05d", name, i))
	}
	r.parallel(topics, func(i int) { created[i] = r.createTopic(r.topics[first+i], settings{}) })
	r.parallel(subscriptions, func(i int) {
		sub := fmt.Sprintf("sub-%05d", i)
		targets[i] = created[i%topics]
		targets[i].subject, targets[i].prefixes = "/"+sub+"/load", []string{sub + "/"}
		r.subscribe(r.topics[first+i%topics], subscription{sub, "/" + sub, settings{"filter": bySubject(targets[i])}})
	})
	r.result.Topics, r.result.Subscriptions = topics, subscriptions
	return targets
}

// actOnNoise pauses or resumes the bad endpoints.
func (r *noisyRun) actOnNoise(action string) {
	r.parallel(len(r.names), func(i int) { r.act(action, r.topic, r.names[i]) })
}

// prepareNoise creates the bad endpoints and their backlog. They are paused until startNoise, or until the retries are
// due.
func (r *noisyRun) prepareNoise() {
	report, each, policy, query := &r.result.Noise, r.Backlog, r.Policy, "?hang=1"
	*report = noiseReport{Endpoints: 1, Policy: r.Policy}
	var limit settings
	switch r.result.Scenario {
	case "hang20":
		report.Endpoints, each = r.Endpoints, r.BacklogEach
	case "limit":
		query, limit = "?failing=100", settings{"limit": 50, "burst": 1}
	case "retries":
		each, policy, query = r.Retries, "bench-retries", "?failing=100" // one retry of each delivery, after an hour
		r.copyPolicy(r.Policy, policy, settings{"stepsInSeconds": []int{3600}, "jitterFraction": 0})
	}
	r.topic = "noise" + r.suffix
	t := r.createTopic(r.topic, settings{})
	for i := range report.Endpoints {
		name := fmt.Sprintf("noise-%05d", i)
		t.subject = "/" + name + "/load"
		r.names, r.targets = append(r.names, name), append(r.targets, t)
	}
	r.parallel(len(r.names), func(i int) {
		r.subscribe(r.topic, subscription{r.names[i], "/" + r.names[i] + query, settings{
			"retryPolicy": settings{"policy": policy}, "filter": bySubject(r.targets[i]), "deliveryRate": limit,
		}})
	})
	r.actOnNoise("pause")
	report.Backlog = r.publishBulk(r.targets, each)
	report.Published = report.Backlog
	if r.result.Scenario == "retries" {
		// All are due at the same time, after warm-up, baseline, and the time to schedule them and to vacuum.
		r.at = r.warmedUp().Add(r.Baseline + 5*time.Second + time.Duration(r.Retries)*time.Second/8000)
		r.schedule(r.topic, r.at)
		r.actOnNoise("resume")
	}
	r.settle()
	if !r.at.IsZero() && r.warmedUp().Add(r.Baseline).After(r.at) {
		r.fail(fmt.Errorf("the database is too slow for %d retries: choose fewer (--retries)", r.Retries))
	}
}

// startNoise resumes the bad endpoints and publishes more events for them, except for retries.
func (r *noisyRun) startNoise() {
	if !r.at.IsZero() {
		return
	}
	r.actOnNoise("resume")
	if r.NoiseRate == 0 {
		return
	}
	r.result.Noise.Published += (&load{
		targets: r.targets, clients: 16, rate: r.NoiseRate, duration: r.Duration, eventBytes: bulkBytes,
		eventsPerRequest: 1,
	}).publish(r.system).published
}

// addArrivals counts by the time of arrival and measures latency by the time of sending. Events in progress when the
// noise began count as sent then.
func (r *noisyResult) addArrivals(arrivals []arrival) {
	began := r.Noisy.span.from
	firstFive := &phaseReport{span: span{began, began.Add(min(5*time.Second, r.Noisy.span.length()))}}
	parts := []*phaseReport{&r.Baseline, &r.Noisy, firstFive}
	if r.Again != nil {
		parts = append(parts, r.Again)
	}
	seconds := len(parts)
	for from := began; !from.Add(time.Second).After(r.Noisy.span.to); from = from.Add(time.Second) {
		parts = append(parts, &phaseReport{span: span{from, from.Add(time.Second)}})
	}
	for _, a := range arrivals {
		if n := &r.Noise; !a.acknowledged && r.Noisy.span.holds(a.at) { // a delivery attempt of a bad endpoint
			after := round(float64(a.at-began.UnixNano())/1e9, 3)
			n.Calls++
			n.FirstCallAfter = terminal.Either(n.Calls == 1, after, min(n.FirstCallAfter, after))
		}
		if !a.acknowledged {
			continue
		}
		sent := a.sentAt
		if a.at >= began.UnixNano() && r.Baseline.span.holds(sent) {
			sent = began.UnixNano()
		}
		for _, p := range parts {
			if p.span.holds(a.at) {
				p.Delivered++
			}
			if p.span.holds(sent) {
				p.took = append(p.took, time.Duration(a.at-a.sentAt))
			}
		}
	}
	for _, p := range parts {
		p.StartedAt, p.Latency = p.span.from.UTC(), latencies(p.took)
		p.Seconds = round(p.span.length().Seconds(), 3)
		_, p.DeliveredPerSecond = perSecond(p.Delivered, p.span.length())
	}
	r.FirstFiveSeconds = firstFive.Latency
	for i, s := range parts[seconds:] {
		r.Seconds = append(r.Seconds, map[string]float64{
			"delivered": float64(s.Delivered), "ratio": ratio(float64(s.Delivered), r.Baseline.DeliveredPerSecond),
			"p50Ms": s.Latency["p50"], "p99Ms": s.Latency["p99"],
		})
		if i == 0 {
			r.FirstSecond = s.Latency
		}
		if float64(s.Delivered) < r.Seconds[r.WorstSecond]["delivered"] {
			r.WorstSecond = i
		}
	}
	r.compare()
}

func (r *noisyResult) compare() {
	was, is := r.Baseline, r.Noisy
	throughput, p99 := ratio(is.DeliveredPerSecond, was.DeliveredPerSecond), ratio(is.Latency["p99"], was.Latency["p99"])
	r.Ratios = map[string]float64{
		"throughput": throughput, "worstSecondThroughput": 0, "p50": ratio(is.Latency["p50"], was.Latency["p50"]), "p99": p99,
		"firstSecondP99":      ratio(r.FirstSecond["p99"], was.Latency["p99"]),
		"firstFiveSecondsP99": ratio(r.FirstFiveSeconds["p99"], was.Latency["p99"]),
	}
	if len(r.Seconds) > 0 {
		r.Ratios["worstSecondThroughput"] = r.Seconds[r.WorstSecond]["ratio"]
	}
	r.Bounds = []bound{{"throughput", false, 0.8, throughput, throughput >= 0.8}}
	if r.Scenario != "topics" {
		// Without arrivals there is no p99, and the bound is not met.
		r.Bounds = append(r.Bounds, bound{"p99", true, 2, p99, p99 > 0 && p99 <= 2})
	}
}

// err returns nil if nothing was lost: every accepted event of the others was delivered unchanged and recorded, and the
// database has a delivery for every accepted event of the noise. With bounds, it also returns those that were not met.
func (r *noisyResult) err(bounds bool) error {
	var err error
	if lost := r.outcome.err(r.Ended, r.Noise.Unaccounted); lost != nil {
		err = fmt.Errorf("%s: %w", r.Scenario, lost)
	}
	for _, b := range r.Bounds {
		if bounds && !b.Met {
			err = errors.Join(err, fmt.Errorf("%s: %s %g %s %g: not met", r.Scenario, b.Name, b.Value,
				terminal.Either(b.AtMost, "<=", ">="), b.Limit))
		}
	}
	return err
}
