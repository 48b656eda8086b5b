// Command bench measures a build of postrider. It starts the program like a user, publishes events, receives them in
// another process, and reports throughput, latency, cost and losses.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"postrider/cmd/postrider/terminal"
)

// verbs has a verb for each scenario.
type verbs struct {
	Binary string `help:"Program to measure: a build of any commit." default:"bin/postrider" placeholder:"PATH"`

	Throughput throughputCmd `cmd:"" help:"Publish as fast as possible and deliver everything to an endpoint in another process." example:"throughput -o json; throughput --subscriptions 10; throughput --response-time 100ms --rate 1000"`
	Publish    publishCmd    `cmd:"" help:"Publish requests of 100 events while delivery is paused." example:"publish --events-per-request 10"`
	Latency    latencyCmd    `cmd:"" help:"Measure latency at 100 events per second." detail:"Events are due at fixed times, and latency counts from then. It includes the delay by stalls." example:"latency --rate 500"`
	Failing    failingCmd    `cmd:"" help:"Measure the cost of an endpoint that responds 503 to a fifth of the requests." detail:"Measures without failures, and then with them. Retries follow 6 seconds after a failure." example:"failing --percent 50"`
	Batched    batchedCmd    `cmd:"" help:"Measure the delivery of batches of 100 events." detail:"Measures publishing while delivery is paused, then the delivery of these events, then both at once." example:"batched --events-per-batch 1000"`
	Backlog    backlogCmd    `cmd:"" help:"Measure the cost of a million pending deliveries." detail:"Measures an event subscription alone, and then with the backlog of another." example:"backlog --waits scheduled"`
	Noisy      noisyCmd      `cmd:"" help:"Measure whether a bad endpoint, or many topics, slow down the other event subscriptions."`
	Rates      ratesCmd      `cmd:"" help:"Measure how exactly nodes keep a rate limit, or what an endpoint that responds 429 accepts." example:"rates --limit 50 --warm-up 1s --kill; rates --nodes 2 --accepts 100; rates --nodes 1 --at-once 5 --response-time 200ms"`
	Pull       pullCmd       `cmd:"" help:"Measure consumers of a queue: a backlog, latency, and waiting receivers." example:"pull --consumers 16"`
	Sink       sinkCmd       `cmd:"" hidden:"" help:"The endpoint of a scenario."`
}

const description = `Measure how many events a build of postrider publishes and delivers per second on this machine, and
check that none is lost.

Publishers, service, database and endpoint share this machine. Durability is on (fsync, synchronous_commit,
full_page_writes), and each phase includes a checkpoint. The exit code is 1 if an event is lost or pending at the end.`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := execute(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

// execute runs one command line and returns the exit code: 0 success, 1 failure, 2 wrong usage.
func execute(ctx context.Context, args []string) int {
	v := &verbs{}
	parser := kong.Must(v, kong.Name("bench"), kong.Description(description), kong.ShortUsageOnError(),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}), kong.BindTo(ctx, (*context.Context)(nil)),
		kong.PostBuild(terminal.DescribeVerbs), kong.Exit(func(code int) { os.Exit(min(code*2, 2)) }))
	kctx, err := parser.Parse(args)
	if err != nil {
		parser.Stdout = os.Stderr // the usage must not go into a pipe
		parser.FatalIfErrorf(err)
	}
	program := &program{command: "bench " + strings.Join(args, " ")}
	if program.binary, err = filepath.Abs(v.Binary); err == nil {
		if _, notFound := os.Stat(program.binary); notFound != nil && kctx.Command() != "sink" {
			err = terminal.Usagef("--binary %s: there is no such file: build it with make build", v.Binary)
		}
	}
	if err == nil {
		err = terminal.CheckRanges(kctx)
	}
	if err == nil {
		err = kctx.Run(program)
	}
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "bench:", terminal.PlainLines(err.Error()))
	return terminal.Either(terminal.IsUsage(err), 2, 1)
}

// program is what is measured.
type program struct {
	binary  string
	command string // of bench, for the report
}

// loadFlags are the flags of all scenarios except noisy.
type loadFlags struct {
	terminal.OutputFlag
	Duration    time.Duration `help:"Duration of publishing in each phase." default:"30s" range:"1.."`
	Clients     int           `help:"Publishers, each with one connection; 0 = 256, or 32 with several events per request." range:"0.."`
	EventBytes  int           `help:"Size of an event in bytes." default:"1024" range:"320.."`
	DatabaseURL string        `help:"Use this empty database instead of a private one." placeholder:"URL"`
}

// rateFlag is the flag of scenarios whose load can be an open loop.
type rateFlag struct {
	Rate float64 `help:"Events per second; 0 = as fast as the publishers can." range:"0.."`
}

// run measures a scenario and prints its report.
func (f *loadFlags) run(ctx context.Context, p *program, o Options) error {
	o.Duration, o.Clients, o.EventBytes, o.DatabaseURL = f.Duration, f.Clients, f.EventBytes, f.DatabaseURL
	o.Subscriptions, o.EventsPerRequest = max(o.Subscriptions, 1), max(o.EventsPerRequest, 1)
	o.EventsPerBatch = max(o.EventsPerBatch, 1)
	if err := o.Validate(); err != nil {
		return terminal.Usagef("bench %s: %s", o.Scenario, err)
	}
	o.Binary, o.Command = p.binary, p.command
	if f.DatabaseURL != "" {
		o.Command = strings.ReplaceAll(o.Command, f.DatabaseURL, "URL") // it has a password
	}
	report, err := Run(ctx, o, os.Stderr)
	if err != nil {
		return err
	}
	return errors.Join(f.Print(report, func(w io.Writer) { fmt.Fprintln(w, report) }), report.Err())
}

type throughputCmd struct {
	loadFlags
	rateFlag
	Subs         int           `name:"subscriptions" help:"Event subscriptions that match each event." default:"1" range:"1.."`
	ResponseTime time.Duration `help:"Response time of the endpoint." range:"0.."`
}

func (c *throughputCmd) Run(ctx context.Context, p *program) error {
	return c.run(ctx, p, Options{
		Scenario: "throughput", Rate: c.Rate, Subscriptions: c.Subs, ResponseTime: c.ResponseTime,
	})
}

type publishCmd struct {
	loadFlags
	Events int `name:"events-per-request" help:"Events in a request." default:"100" range:"1..5000"`
}

func (c *publishCmd) Run(ctx context.Context, p *program) error {
	return c.run(ctx, p, Options{Scenario: "publish", EventsPerRequest: c.Events})
}

type latencyCmd struct {
	loadFlags
	Rate float64 `help:"Events per second." default:"100" range:"0.001.."`
}

func (c *latencyCmd) Run(ctx context.Context, p *program) error {
	return c.run(ctx, p, Options{Scenario: "latency", Rate: c.Rate})
}

type failingCmd struct {
	loadFlags
	rateFlag
	Percent int `help:"Percentage of requests with the response 503." default:"20" range:"0..99"`
}

func (c *failingCmd) Run(ctx context.Context, p *program) error {
	return c.run(ctx, p, Options{Scenario: "failing", Rate: c.Rate, FailurePercent: c.Percent})
}

type batchedCmd struct {
	loadFlags
	Events int `name:"events-per-request" help:"Events in a request of the publishers." default:"100" range:"1..5000"`
	Batch  int `name:"events-per-batch" help:"Events in a delivered batch, at most." default:"100" range:"1..5000"`
}

func (c *batchedCmd) Run(ctx context.Context, p *program) error {
	return c.run(ctx, p, Options{Scenario: "batched", EventsPerRequest: c.Events, EventsPerBatch: c.Batch})
}

type backlogCmd struct {
	loadFlags
	rateFlag
	Waiting int    `help:"Pending deliveries of another event subscription." default:"1000000" range:"0.."`
	Waits   string `help:"State of these deliveries: paused (on hold) or scheduled (for a retry in hours)." enum:"paused,scheduled" default:"paused"`
}

func (c *backlogCmd) Run(ctx context.Context, p *program) error {
	return c.run(ctx, p, Options{Scenario: "backlog", Rate: c.Rate, Waiting: c.Waiting, Waits: c.Waits})
}

type sinkCmd struct {
	Ledger   string `help:"File with a line for each received event." placeholder:"FILE"`
	Arrivals string `help:"File for the times of arrival." placeholder:"FILE"`
}

// Run serves the listener that startSink opened.
func (c *sinkCmd) Run(ctx context.Context) error {
	listener, err := net.FileListener(os.NewFile(3, "listener"))
	if err != nil {
		return fmt.Errorf("open the listener of the parent process: %w", err)
	}
	return RunSink(ctx, listener, c.Ledger, c.Arrivals)
}

type noisyCmd struct {
	terminal.OutputFlag
	NoisyOptions
	Check bool `help:"Exit with 1 also if a limit is exceeded."`
}

func (noisyCmd) Help() string {
	return `Measures throughput and latency of event subscriptions without a bad endpoint and then with it, in one run.
Compare only the ratios. Each scenario has its own durable database.

  hang     1,000 event subscriptions and one whose endpoint hangs and has 500,000 pending deliveries
  hang20   1,000 event subscriptions and twenty that hang, each with 5,000 pending deliveries
  retries  1,000 event subscriptions and one with 90,000 retries due at the same time, whose endpoint responds 503
  limit    1,000 event subscriptions and one with a limit of 50 requests/s and 500,000 pending deliveries, whose
           endpoint responds 503
  topics   10,000 topics with one event subscription each, compared with one topic

Limits: throughput at least 0.8 times the baseline, p99 of the latency at most 2 times the baseline (except topics).
The exit code is 1 if an event is lost; with --check also if a limit is exceeded.

Example:
  bench noisy --scenario hang --check`
}

func (c *noisyCmd) Run(ctx context.Context, p *program) error {
	o := c.NoisyOptions
	if slices.Contains(o.Scenarios, "all") {
		o.Scenarios = []string{
			ScenarioHang, ScenarioHang20, ScenarioRetries, ScenarioLimit, ScenarioTopics,
		}
	}
	o.Binary, o.Command = p.binary, p.command
	report, err := Noisy(ctx, o, os.Stderr)
	if err != nil {
		return err
	}
	err = errors.Join(c.Print(report, func(w io.Writer) { fmt.Fprintln(w, report) }), report.Err())
	if c.Check {
		err = errors.Join(err, report.Unmet())
	}
	return err
}

type ratesCmd struct {
	terminal.OutputFlag
	RatesOptions
}

func (c *ratesCmd) Run(ctx context.Context, p *program) error {
	o := c.RatesOptions
	o.Binary, o.Command = p.binary, p.command
	report, err := Rates(ctx, o, os.Stderr)
	if err != nil {
		return err
	}
	return errors.Join(c.Print(report, func(w io.Writer) { fmt.Fprintln(w, report) }), report.Err())
}

type pullCmd struct {
	terminal.OutputFlag
	PullOptions
}

func (pullCmd) Help() string {
	return `Publishes a backlog, stops, and has consumers receive and acknowledge it over HTTP. Then it measures the
latency from a publish to a waiting receiver, and the CPU time of receivers that wait without events.
The exit code is 1 if an event is lost or pending at the end.`
}

func (c *pullCmd) Run(ctx context.Context, p *program) error {
	o := c.PullOptions
	o.Binary, o.Command = p.binary, p.command
	report, err := Pull(ctx, o, os.Stderr)
	if err != nil {
		return err
	}
	return errors.Join(c.Print(report, func(w io.Writer) { fmt.Fprintln(w, report) }), report.Err())
}
