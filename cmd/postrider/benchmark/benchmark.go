// Package benchmark is the verbs of bench: each runs a scenario of package bench and prints its report.
package benchmark

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"postrider/bench"
	"postrider/cmd/postrider/local"
	"postrider/cmd/postrider/terminal"
)

// Cmd is bench, with a verb for each scenario.
type Cmd struct {
	Throughput throughputCmd `cmd:"" help:"Publish as fast as possible and deliver everything to an endpoint in another process." example:"bench throughput -o json; bench throughput --subscriptions 10; bench throughput --answer-after 100ms --rate 1000"`
	Publish    publishCmd    `cmd:"" help:"Publish requests of 100 events while delivery is paused." example:"bench publish --events-per-request 10"`
	Latency    latencyCmd    `cmd:"" help:"Measure latency at 100 events per second." detail:"Events are due at fixed times, and latency counts from then: a stall also counts for the events that it delays." example:"bench latency --rate 500"`
	Failing    failingCmd    `cmd:"" help:"Measure the cost of an endpoint that answers a fifth of the requests with 503." detail:"Measures without failures, and then with them. Retries come 6 seconds after a failure." example:"bench failing --percent 50"`
	Batched    batchedCmd    `cmd:"" help:"Deliver batches of 100 events: what was paused, and while publishing." detail:"Measures publishing while delivery is paused, then delivering that, then both at once." example:"bench batched --events-per-batch 1000"`
	Backlog    backlogCmd    `cmd:"" help:"Measure beside a million deliveries that wait." detail:"Measures an event subscription alone, and then beside the backlog of another." example:"bench backlog --waits scheduled"`
	Noisy      noisyCmd      `cmd:"" help:"Measure whether a bad endpoint, or many topics, slow down the other event subscriptions."`
	Sink       sinkCmd       `cmd:"" hidden:"" help:"The endpoint of a benchmark."`
}

// Help is shown by bench --help.
func (Cmd) Help() string {
	return `Publishers, service, database and endpoint share this machine. Durability is on (fsync,
synchronous_commit, full_page_writes), and a checkpoint falls into the middle of each phase. The exit code is 1 if an
event is lost or left at the end.`
}

// loadFlags are the flags of every scenario but noisy.
type loadFlags struct {
	terminal.OutputFlag
	Duration    time.Duration `help:"How long to publish, in each phase." default:"30s" range:"1.."`
	Clients     int           `help:"Publishers, each with one connection; 0 = a good default." range:"0.."`
	EventBytes  int           `help:"Size of an event in bytes." default:"1024" range:"320.."`
	DatabaseURL string        `help:"Use this empty database instead of a private one." placeholder:"URL"`
}

// rateFlag is of the scenarios whose load may be an open loop.
type rateFlag struct {
	Rate float64 `help:"Events per second; 0 = as fast as the publishers can." range:"0.."`
}

// run measures a scenario and prints its report.
func (f *loadFlags) run(ctx context.Context, o bench.Options) (err error) {
	o.Duration, o.Clients, o.EventBytes, o.DatabaseURL = f.Duration, f.Clients, f.EventBytes, f.DatabaseURL
	o.Subscriptions, o.EventsPerRequest = max(o.Subscriptions, 1), max(o.EventsPerRequest, 1)
	o.EventsPerBatch = max(o.EventsPerBatch, 1)
	if err := o.Validate(); err != nil {
		return terminal.Usagef("bench %s: %s", o.Scenario, err)
	}
	if o.Binary, o.Command, err = program(f.DatabaseURL); err != nil {
		return err
	}
	report, err := bench.Run(ctx, o, os.Stderr)
	if err != nil {
		return err
	}
	if err := f.Print(report, func(w io.Writer) { fmt.Fprintln(w, report) }); err != nil {
		return fmt.Errorf("print the report: %w", err)
	}
	return report.Err()
}

// program is this program's file, and how it was called, without the secret.
func program(secret string) (binary, command string, err error) {
	if binary, err = os.Executable(); err != nil {
		return "", "", fmt.Errorf("find this program's file: %w", err)
	}
	command = "postrider " + strings.Join(os.Args[1:], " ")
	if secret != "" {
		command = strings.ReplaceAll(command, secret, "URL")
	}
	return binary, command, nil
}

type throughputCmd struct {
	loadFlags
	rateFlag
	Subs        int           `name:"subscriptions" help:"Event subscriptions that match each event." default:"1" range:"1.."`
	AnswerAfter time.Duration `help:"How long the endpoint takes to respond." range:"0.."`
}

// Run executes bench throughput.
func (c *throughputCmd) Run(ctx context.Context) error {
	return c.run(ctx, bench.Options{
		Scenario: "throughput", Rate: c.Rate, Subscriptions: c.Subs, AnswerAfter: c.AnswerAfter,
	})
}

type publishCmd struct {
	loadFlags
	Events int `name:"events-per-request" help:"Events in a request." default:"100" range:"1..5000"`
}

// Run executes bench publish.
func (c *publishCmd) Run(ctx context.Context) error {
	return c.run(ctx, bench.Options{Scenario: "publish", EventsPerRequest: c.Events})
}

type latencyCmd struct {
	loadFlags
	Rate float64 `help:"Events per second." default:"100" range:"0.001.."`
}

// Run executes bench latency.
func (c *latencyCmd) Run(ctx context.Context) error {
	return c.run(ctx, bench.Options{Scenario: "latency", Rate: c.Rate})
}

type failingCmd struct {
	loadFlags
	rateFlag
	Percent int `help:"How many of a hundred requests are answered 503." default:"20" range:"0..99"`
}

// Run executes bench failing.
func (c *failingCmd) Run(ctx context.Context) error {
	return c.run(ctx, bench.Options{Scenario: "failing", Rate: c.Rate, FailurePercent: c.Percent})
}

type batchedCmd struct {
	loadFlags
	Events int `name:"events-per-request" help:"Events in a request of the publishers." default:"100" range:"1..5000"`
	Batch  int `name:"events-per-batch" help:"Events in a delivered batch, at most." default:"100" range:"1..5000"`
}

// Run executes bench batched.
func (c *batchedCmd) Run(ctx context.Context) error {
	return c.run(ctx, bench.Options{Scenario: "batched", EventsPerRequest: c.Events, EventsPerBatch: c.Batch})
}

type backlogCmd struct {
	loadFlags
	rateFlag
	Waiting int    `help:"How many deliveries of another event subscription wait." default:"1000000" range:"0.."`
	Waits   string `help:"How: paused (on hold) or scheduled (for a retry in hours)." enum:"paused,scheduled" default:"paused"`
}

// Run executes bench backlog.
func (c *backlogCmd) Run(ctx context.Context) error {
	return c.run(ctx, bench.Options{Scenario: "backlog", Rate: c.Rate, Waiting: c.Waiting, Waits: c.Waits})
}

type sinkCmd struct {
	Listen    string `help:"Address to listen on." default:"127.0.0.1:0"`
	ReadyFile string `help:"Written (JSON) when it listens." placeholder:"FILE"`
	Ledger    string `help:"File for a line per received event." placeholder:"FILE"`
	Arrivals  string `help:"File for the times of arrival." placeholder:"FILE"`
}

// Run executes bench sink until ctx ends.
func (c *sinkCmd) Run(ctx context.Context) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", c.Listen, err)
	}
	ready := local.ReadyInfo{Sink: "http://" + local.Reachable(listener.Addr())}
	if err := local.WriteReadyFile(c.ReadyFile, ready); err != nil {
		return err
	}
	return bench.RunSink(ctx, listener, c.Ledger, c.Arrivals)
}
