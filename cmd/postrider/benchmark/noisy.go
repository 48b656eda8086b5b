package benchmark

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"postrider/bench"
	"postrider/cmd/postrider/terminal"
)

type noisyCmd struct {
	terminal.OutputFlag
	Scenario   []string      `help:"What to measure: ${enum}; may be repeated or have several." enum:"all,hang,hang20,retries,topics" default:"all" placeholder:"NAME"`
	Baseline   time.Duration `help:"How long to measure without the noise." default:"15s" range:"1.."`
	Duration   time.Duration `help:"How long to measure with it." default:"30s" range:"1.."`
	Subs       int           `name:"subscriptions" help:"Event subscriptions that are measured; each event goes to one of them, in turn." default:"1000" range:"1..99999"`
	Topics     int           `help:"Their topics." default:"1" range:"1.."`
	Clients    int           `help:"Publishers, each with one connection; 0 = a good default." range:"0.."`
	Rate       float64       `help:"Events per second; 0 = as fast as the publishers can." range:"0.."`
	EventBytes int           `help:"Size of an event in bytes." default:"1024" range:"320.."`
	Owed       int           `help:"hang: pending deliveries of the endpoint that hangs." default:"500000" range:"1.."`
	Endpoints  int           `help:"hang20: how many endpoints hang." default:"20" range:"1..99999"`
	OwedEach   int           `help:"hang20: pending deliveries of each of them." default:"5000" range:"1.."`
	NoiseRate  float64       `help:"hang, hang20: events per second published for them meanwhile." default:"200" range:"0.."`
	Retries    int           `help:"retries: how many become due at the same time." default:"90000" range:"1.."`
	ManyTopics int           `help:"topics: how many, each with one event subscription." default:"10000" range:"1..99999"`
	Policy     string        `help:"Retry policy of the bad endpoints." default:"ga-2018"`
	Check      bool          `help:"Exit with 1 also if a bound is not met."`
}

// Help is shown by bench noisy --help.
func (noisyCmd) Help() string {
	return `Measures throughput and latency of event subscriptions without a bad endpoint and then with it, in one run;
only the ratios count. Each scenario has its own database, with all of its durability.

  hang     1,000 event subscriptions beside one whose endpoint hangs and has 500,000 pending deliveries
  hang20   the same beside twenty that hang, each with 5,000
  retries  the same beside 90,000 retries that become due at the same time, of an endpoint that answers 503
  topics   no noise: 10,000 topics with one event subscription each, against one

Bounds: throughput at least 0.8 of the baseline's, p99 of the latency at most 2 times the baseline's (not of topics).
The exit code is 1 if an event is lost; with --check also if a bound is not met.

Example:
  postrider bench noisy --scenario hang --check`
}

// Run executes bench noisy.
func (c *noisyCmd) Run(ctx context.Context) (err error) {
	o := bench.NoisyOptions{
		Scenarios: c.Scenario, Baseline: c.Baseline, Duration: c.Duration, Subscriptions: c.Subs, Topics: c.Topics,
		Clients: c.Clients, Rate: c.Rate, EventBytes: c.EventBytes, Owed: c.Owed, Endpoints: c.Endpoints,
		OwedEach: c.OwedEach, NoiseRate: c.NoiseRate, Retries: c.Retries, ManyTopics: c.ManyTopics, Policy: c.Policy,
	}
	if slices.Contains(o.Scenarios, "all") {
		o.Scenarios = []string{bench.ScenarioHang, bench.ScenarioHang20, bench.ScenarioRetries, bench.ScenarioTopics}
	}
	if err := o.Validate(); err != nil {
		return terminal.Usagef("bench noisy: %s", err)
	}
	if o.Binary, o.Command, err = program(""); err != nil {
		return err
	}
	report, err := bench.Noisy(ctx, o, os.Stderr)
	if err != nil {
		return err
	}
	if err := c.Print(report, func(w io.Writer) { fmt.Fprintln(w, report) }); err != nil {
		return fmt.Errorf("print the report: %w", err)
	}
	if c.Check {
		return errors.Join(report.Err(), report.Unmet())
	}
	return report.Err()
}
