package benchmark

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"postrider/bench"
)

type benchNoisyCmd struct {
	Scenario   []string      `help:"What to measure: ${enum}; may be repeated or hold several." enum:"all,hang,hang20,retries,topics" default:"all" placeholder:"NAME"`
	Baseline   time.Duration `help:"How long to measure without the noise." default:"15s"`
	Duration   time.Duration `help:"How long to measure with it." default:"30s"`
	Subs       int           `name:"subscriptions" help:"Event subscriptions that are measured; each event goes to one of them, in turn." default:"1000"`
	Topics     int           `help:"Topics they are spread over." default:"1"`
	Clients    int           `help:"Publishers, each with one connection; 0 = a good default."`
	Rate       float64       `help:"Events per second; 0 = as fast as the publishers can."`
	EventBytes int           `help:"Size of an event in bytes." default:"1024"`
	Owed       int           `help:"hang: deliveries owed to the endpoint that hangs." default:"500000"`
	Endpoints  int           `help:"hang20: how many endpoints hang." default:"20"`
	OwedEach   int           `help:"hang20: deliveries owed to each of them." default:"5000"`
	NoiseRate  float64       `help:"hang, hang20: events per second published for them meanwhile." default:"200"`
	Retries    int           `help:"retries: how many come due at one moment." default:"90000"`
	ManyTopics int           `help:"topics: how many, each with one event subscription." default:"10000"`
	Policy     string        `help:"Retry policy of the bad endpoints." default:"ga-2018"`
	Check      bool          `help:"Exit with 1 when a bound is not met, too."`
	Output     string        `short:"o" help:"table or json." enum:"table,json" default:"table"`
}

// Help is shown by bench noisy --help.
func (benchNoisyCmd) Help() string {
	return `Does a bad endpoint hurt the others? Their throughput and latency are measured without it and then with it,` +
		` in one run; only the
ratios count. Each scenario has a database of its own, with all of its durability.

  hang     1,000 event subscriptions beside one whose endpoint hangs and is owed 500,000 deliveries
  hang20   the same beside twenty that hang, each owed 5,000
  retries  the same beside 90,000 retries that come due at one moment, at an endpoint that answers 503
  topics   no noise: 10,000 topics with one event subscription each, against one

Bounds: throughput 0.8 or more of the baseline's, p99 of the latency 2 times the baseline's or less; of topics,` +
		` throughput alone.
Exit code 1 when something was lost; with --check also when a bound is not met.

Example:
  postrider bench noisy --scenario hang --check`
}

// Run executes bench noisy.
func (c *benchNoisyCmd) Run(ctx context.Context) error {
	binary, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program's file: %w", err)
	}
	report, err := bench.Noisy(ctx, bench.NoisyOptions{
		Binary: binary, Scenarios: c.scenarios(), Baseline: c.Baseline, Duration: c.Duration, Subscriptions: c.Subs,
		Topics:  c.Topics,
		Clients: c.Clients, Rate: c.Rate, EventBytes: c.EventBytes, Owed: c.Owed, Endpoints: c.Endpoints,
		OwedEach:  c.OwedEach,
		NoiseRate: c.NoiseRate, Retries: c.Retries, ManyTopics: c.ManyTopics, Policy: c.Policy,
	}, os.Stderr)
	if err != nil {
		return err
	}
	if err := printReport(report, c.Output); err != nil {
		return err
	}
	if c.Check {
		return errors.Join(report.Err(), report.Unmet())
	}
	return report.Err()
}

// scenarios are none for all.
func (c *benchNoisyCmd) scenarios() []string {
	for _, name := range c.Scenario {
		if name == "all" {
			return nil
		}
	}
	return c.Scenario
}
