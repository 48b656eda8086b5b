package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// The scenarios of Noisy.
const (
	ScenarioHang    = "hang"    // one endpoint that accepts requests and never answers is owed very many deliveries
	ScenarioHang20  = "hang20"  // twenty such endpoints are owed many
	ScenarioRetries = "retries" // the retries of one endpoint that answers 503 come due at one moment
	ScenarioTopics  = "topics"  // no noise: very many topics against one
)

// NoisyScenarios are all scenarios, in the order in which they run.
func NoisyScenarios() []string {
	return []string{ScenarioHang, ScenarioHang20, ScenarioRetries, ScenarioTopics}
}

const (
	defaultBaseline = 15 * time.Second
	// warmUpShare of the baseline's length goes before it: the first second of a load is its slowest.
	warmUpShare = 5
	// loadTail is how long the load goes on after what is measured, so that the last second is a whole one.
	loadTail         = 300 * time.Millisecond
	defaultNoiseRate = 200
)

// NoisyOptions says what Noisy measures. Binary is required; the rest has defaults.
type NoisyOptions struct {
	// Binary is the path of the postrider program; it runs as service and as sink.
	Binary string
	// Scenarios to run, each on a database of its own; default all of them.
	Scenarios []string
	// Baseline is how long the others are measured without the noise, default 15 s; Duration how long with it, default 30
	// s. At least 1 s each.
	Baseline, Duration time.Duration

	// The others: Subscriptions (default 1,000) on Topics (default 1), each at an endpoint of its own that answers at
	// once. An event goes to one of them, in turn.
	Subscriptions, Topics int
	// Clients, Rate and EventBytes are of the load of the others, as in Options.
	Clients    int
	Rate       float64
	EventBytes int

	// Owed is what the endpoint of hang is owed when the noise begins; default 500,000.
	Owed int
	// Endpoints is how many hang in hang20, default 20; OwedEach what each of them is owed, default 5,000.
	Endpoints, OwedEach int
	// NoiseRate is how many events per second are published for the endpoints that hang while the noise lasts; default
	// 200.
	NoiseRate float64
	// Retries is how many come due at one moment in retries; default 90,000.
	Retries int
	// Policy is the retry policy of the bad endpoints; default ga-2018, which has no probation to help the others. retries
	// uses a copy of it that waits an hour after the first attempt, so that no retry comes due before it shall.
	Policy string
	// ManyTopics is the number of topics in topics, each with one event subscription; default 10,000.
	ManyTopics int
	// Command is what the report says was run; "" prints the options that matter.
	Command string
}

func (o *NoisyOptions) prepare() error {
	if len(o.Scenarios) == 0 {
		o.Scenarios = NoisyScenarios()
	}
	o.Baseline, o.Duration = orDefault(o.Baseline, defaultBaseline), orDefault(o.Duration, defaultDuration)
	o.Subscriptions, o.Topics = orDefault(o.Subscriptions, 1000), orDefault(o.Topics, 1)
	o.Clients, o.EventBytes = orDefault(o.Clients, defaultClients), orDefault(o.EventBytes, defaultEventBytes)
	o.Owed, o.Endpoints, o.OwedEach = orDefault(o.Owed, 500_000), orDefault(o.Endpoints, 20), orDefault(o.OwedEach, 5000)
	o.NoiseRate, o.Retries = orDefault(o.NoiseRate, defaultNoiseRate), orDefault(o.Retries, 90_000)
	o.Policy, o.ManyTopics = orDefault(o.Policy, "ga-2018"), orDefault(o.ManyTopics, 10_000)
	o.Command = orDefault(o.Command, o.command())
	return o.validate()
}

// command is what was run, with the flags that matter to its scenarios.
func (o *NoisyOptions) command() string {
	text := fmt.Sprintf("postrider bench noisy --scenario %s --baseline %s --duration %s --clients %d --event-bytes %d",
		strings.Join(o.Scenarios, ","), o.Baseline, o.Duration, o.Clients, o.EventBytes)
	add := func(format string, args ...any) { text += fmt.Sprintf(format, args...) }
	if o.Rate > 0 {
		add(" --rate %g", o.Rate)
	}
	if len(o.Scenarios) > 1 || o.Scenarios[0] != ScenarioTopics {
		add(" --subscriptions %d --topics %d --policy %s --noise-rate %g", o.Subscriptions, o.Topics, o.Policy, o.NoiseRate)
	}
	for _, name := range o.Scenarios {
		switch name {
		case ScenarioHang:
			add(" --owed %d", o.Owed)
		case ScenarioHang20:
			add(" --endpoints %d --owed-each %d", o.Endpoints, o.OwedEach)
		case ScenarioRetries:
			add(" --retries %d", o.Retries)
		case ScenarioTopics:
			add(" --many-topics %d", o.ManyTopics)
		}
	}
	return text
}

func (o *NoisyOptions) validate() error {
	for _, name := range o.Scenarios {
		if !slices.Contains(NoisyScenarios(), name) {
			return fmt.Errorf("noisy: there is no scenario %q, only %s", name, strings.Join(NoisyScenarios(), ", "))
		}
	}
	least := min(o.Clients, o.Subscriptions, o.Topics, o.Owed, o.Endpoints, o.OwedEach, o.Retries, o.ManyTopics)
	switch {
	case o.Binary == "":
		return errors.New("noisy: Binary is required")
	case min(o.Baseline, o.Duration) < minDuration:
		return fmt.Errorf("noisy: baseline and duration must be %s or more", minDuration)
	case least < 1 || o.Rate < 0 || o.NoiseRate < 0:
		return errors.New("noisy: all numbers must be positive")
	case o.Topics > o.Subscriptions:
		return errors.New("noisy: there must be an event subscription for each topic")
	case max(o.Subscriptions, o.Endpoints, o.ManyTopics) >= nameLimit:
		return fmt.Errorf("noisy: there may be fewer than %d topics, event subscriptions and endpoints", nameLimit)
	}
	return nil
}

// Noisy measures what a bad endpoint costs the other event subscriptions: on a postrider of its own, on this machine
// and in processes as users have them, it measures the others without the noise and then with it, in one run, because
// only what one run measured may be compared. Progress goes to log. Everything it started has ended when it returns.
//
// An error means that there is nothing to report, as with Run. What was lost, and a bound that is not met, are the
// report's: see NoisyReport.Err and NoisyReport.Unmet.
func Noisy(ctx context.Context, o NoisyOptions, log io.Writer) (report NoisyReport, err error) {
	if err := o.prepare(); err != nil {
		return report, err
	}
	report = NoisyReport{Command: o.Command, Machine: thisMachine()}
	log = &lockedWriter{Writer: log}
	for _, name := range o.Scenarios {
		t := &trial{o: o, result: NoisyResult{Scenario: name, Clients: o.Clients, EventBytes: o.EventBytes}}
		if err := t.try(ctx, log); err != nil {
			return report, fmt.Errorf("noisy: %s: %w", name, err)
		}
		report.Settings = t.settings
		report.Results = append(report.Results, t.result)
	}
	return report, nil
}
