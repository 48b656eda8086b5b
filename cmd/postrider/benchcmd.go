package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"postrider/bench"
)

type benchCmd struct {
	Throughput benchThroughputCmd `cmd:"" help:"Publish as fast as possible over HTTP and deliver everything to a sink in another process."`
	Noisy      benchNoisyCmd      `cmd:"" help:"Measure whether a bad endpoint, or many topics, slow the other event subscriptions down."`
	Sink       benchSinkCmd       `cmd:"" hidden:"" help:"The sink of a benchmark."`
}

type benchThroughputCmd struct {
	Duration    time.Duration `help:"How long to publish." default:"30s"`
	Clients     int           `help:"Publishers, each with one connection; 0 = a good default."`
	Rate        float64       `help:"Events per second; 0 = as fast as the publishers can."`
	EventBytes  int           `help:"Size of an event in bytes." default:"1024"`
	Subs        int           `name:"subscriptions" help:"Event subscriptions that want every event." default:"1"`
	DatabaseURL string        `help:"Use this empty database instead of a private one." placeholder:"URL"`
	Output      string        `short:"o" help:"table or json." enum:"table,json" default:"table"`
}

// Help is shown by bench throughput --help.
func (benchThroughputCmd) Help() string {
	return `Load, service, database and sink share this machine. Durability is on (fsync, synchronous_commit, full_page_writes) and
printed with the figures. Nothing may be left or lost at the end: exit code 1 otherwise.

Example:
  postrider bench throughput -o json`
}

// Run executes bench throughput.
func (c *benchThroughputCmd) Run(ctx context.Context) error {
	binary, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program's file: %w", err)
	}
	report, err := bench.Throughput(ctx, bench.ThroughputOptions{
		Binary: binary, Duration: c.Duration, Clients: c.Clients, Rate: c.Rate, EventBytes: c.EventBytes, DatabaseURL: c.DatabaseURL, Subscriptions: c.Subs,
	}, os.Stderr)
	if err != nil {
		return err
	}
	if err := printReport(report, c.Output); err != nil {
		return err
	}
	return report.Err()
}

// printReport prints a benchmark's report as JSON or for a person.
func printReport(report fmt.Stringer, form string) (err error) {
	if form == "json" {
		encoder := json.NewEncoder(os.Stdout)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(report)
	} else {
		_, err = fmt.Fprintln(os.Stdout, report.String())
	}
	if err != nil {
		return fmt.Errorf("print the report: %w", err)
	}
	return nil
}

type benchSinkCmd struct {
	Listen    string `help:"Address to listen on." default:"127.0.0.1:0"`
	ReadyFile string `help:"Written (JSON) when it answers." placeholder:"FILE"`
	Ledger    string `help:"File that gets a line per event received." placeholder:"FILE"`
	Arrivals  string `help:"File that gets a record of when each event arrived." placeholder:"FILE"`
}

// Run executes bench sink until ctx ends.
func (c *benchSinkCmd) Run(ctx context.Context) error {
	return bench.RunSink(ctx, bench.SinkOptions{Listen: c.Listen, ReadyFile: c.ReadyFile, Ledger: c.Ledger, Arrivals: c.Arrivals})
}
