package benchmark

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"postrider/bench"
	"postrider/cmd/postrider/terminal"
)

// Cmd is bench, with a verb for each measurement.
type Cmd struct {
	Throughput  benchThroughputCmd  `cmd:"" help:"Publish as fast as possible over HTTP and deliver everything to a sink in another process."`
	Publish     benchPublishCmd     `cmd:"" help:"Publish requests of 100 events while delivery is paused."`
	SQL         benchSQLCmd         `cmd:"" name:"sql" help:"Publish by SQL, in a transaction for each event, from 16 sessions."`
	Latency     benchLatencyCmd     `cmd:"" help:"Measure latency at 100 events per second."`
	Remote      benchRemoteCmd      `cmd:"" help:"Deliver to an endpoint that takes 100 ms to answer."`
	Fanout      benchFanoutCmd      `cmd:"" help:"Deliver each event to ten event subscriptions."`
	Failing     benchFailingCmd     `cmd:"" help:"Measure what it costs when a fifth of the requests is answered 503."`
	Deadletters benchDeadlettersCmd `cmd:"" help:"Measure dead letters: every request is answered 400; or how fast SQL answers about millions."`
	Batched     benchBatchedCmd     `cmd:"" help:"Deliver in batches of 100: what was paused, and while publishing."`
	Backlog     benchBacklogCmd     `cmd:"" help:"Measure beside a million deliveries that wait."`
	Dashboard   benchDashboardCmd   `cmd:"" help:"Measure how long each page of the dashboard takes at a million deliveries."`
	Retention   benchRetentionCmd   `cmd:"" help:"Measure while days whose time is over are removed."`
	Noisy       benchNoisyCmd       `cmd:"" help:"Measure whether a bad endpoint, or many topics, slow the other event subscriptions down."`
	Sink        benchSinkCmd        `cmd:"" hidden:"" help:"The sink of a benchmark."`
}

// benchFlags are what every scenario of bench.Run has.
type benchFlags struct {
	Duration    time.Duration `help:"How long to publish, in each phase." default:"30s"`
	Clients     int           `help:"Publishers, each with one connection; 0 = a good default."`
	EventBytes  int           `help:"Size of an event in bytes." default:"1024"`
	DatabaseURL string        `help:"Use this empty database instead of a private one." placeholder:"URL"`
	NoCeilings  bool          `help:"Do not measure what the parts reach alone."`
	CeilingTime time.Duration `help:"How long to measure each of them." default:"5s"`
	Output      string        `short:"o" help:"table, json or yaml." enum:"table,json,yaml" default:"table"`
}

// rateFlag is of those scenarios whose load may be an open loop.
type rateFlag struct {
	Rate float64 `help:"Events per second; 0 = as fast as the publishers can."`
}

const (
	benchHelp = `Load, service, database and sink share this machine. Durability is on (fsync, synchronous_commit,` +
		` full_page_writes) and
printed with the figures, and a checkpoint falls into the middle of each phase. First comes what the parts reach ` +
		`alone (ceilings).
Nothing may be left or lost at the end: exit code 1 otherwise.

Example:
  postrider bench `
)

// run measures a scenario and prints its report.
func (f *benchFlags) run(ctx context.Context, scenario string, o bench.Options) error {
	binary, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program's file: %w", err)
	}
	o.Binary, o.Scenario, o.Duration, o.Clients, o.EventBytes = binary, scenario, f.Duration, f.Clients, f.EventBytes
	o.DatabaseURL, o.NoCeilings, o.CeilingTime = f.DatabaseURL, f.NoCeilings, f.CeilingTime
	if f.Duration <= 0 || f.EventBytes <= 0 || f.CeilingTime <= 0 {
		return terminal.Usagef("bench %s: --duration, --event-bytes and --ceiling-time must be positive", scenario)
	}
	if err := o.Prepare(); err != nil {
		return terminal.Usagef("bench %s: %s", scenario, err)
	}
	report, err := bench.Run(ctx, o, os.Stderr)
	if err != nil {
		return err
	}
	if err := printReport(report, f.Output); err != nil {
		return err
	}
	return report.Err()
}

// printReport prints a benchmark's report as JSON or for a person.
func printReport(report fmt.Stringer, form string) error {
	if err := (terminal.OutputFlag{Output: form}).Print(report,
		func(w io.Writer) { fmt.Fprintln(w, report.String()) }); err != nil {
		return fmt.Errorf("print the report: %w", err)
	}
	return nil
}

type benchThroughputCmd struct {
	benchFlags
	rateFlag
	Subs int `name:"subscriptions" help:"Event subscriptions that want every event." default:"1"`
}

// Help is shown by bench throughput --help.
func (benchThroughputCmd) Help() string { return benchHelp + "throughput -o json" }

// Run executes bench throughput.
func (c *benchThroughputCmd) Run(ctx context.Context) error {
	return c.run(ctx, "throughput", bench.Options{Rate: c.Rate, Subscriptions: c.Subs})
}

type benchPublishCmd struct {
	benchFlags
	Events int `name:"events-per-request" help:"Events in a request." default:"100"`
}

// Help is shown by bench publish --help.
func (benchPublishCmd) Help() string { return benchHelp + "publish --events-per-request 10" }

// Run executes bench publish.
func (c *benchPublishCmd) Run(ctx context.Context) error {
	return c.run(ctx, "publish", bench.Options{EventsPerRequest: c.Events})
}

type benchSQLCmd struct {
	benchFlags
	rateFlag
	Events int `name:"events-per-request" help:"Events in a transaction." default:"1"`
}

// Help is shown by bench sql --help.
func (benchSQLCmd) Help() string {
	return `Latency counts from the moment before the statement is sent: the commit is part of it. Bytes are not ` +
		`compared, for PostgreSQL's jsonb writes
JSON its own way.

` + benchHelp + "sql --rate 100"
}

// Run executes bench sql.
func (c *benchSQLCmd) Run(ctx context.Context) error {
	return c.run(ctx, "sql", bench.Options{Rate: c.Rate, EventsPerRequest: c.Events})
}

type benchLatencyCmd struct {
	benchFlags
	Rate float64 `help:"Events per second." default:"100"`
}

// Help is shown by bench latency --help.
func (benchLatencyCmd) Help() string {
	return `Events are due at fixed times, whatever the answers take, and latency counts from then: a stall is not ` +
		`hidden by asking less
often (coordinated omission).

` + benchHelp + "latency --rate 500"
}

// Run executes bench latency.
func (c *benchLatencyCmd) Run(ctx context.Context) error {
	if c.Rate <= 0 {
		return terminal.Usagef("bench latency: --rate must be positive")
	}
	return c.run(ctx, "latency", bench.Options{Rate: c.Rate})
}

type benchRemoteCmd struct {
	benchFlags
	rateFlag
	AnswerAfter time.Duration `help:"How long the endpoint takes to answer." default:"100ms"`
}

// Help is shown by bench remote --help.
func (benchRemoteCmd) Help() string { return benchHelp + "remote --answer-after 250ms --rate 1000" }

// Run executes bench remote.
func (c *benchRemoteCmd) Run(ctx context.Context) error {
	return c.run(ctx, "remote", bench.Options{Rate: c.Rate, AnswerAfter: c.AnswerAfter})
}

type benchFanoutCmd struct {
	benchFlags
	rateFlag
	Subs int `name:"subscriptions" help:"Event subscriptions that want every event." default:"10"`
}

// Help is shown by bench fanout --help.
func (benchFanoutCmd) Help() string { return benchHelp + "fanout --subscriptions 50" }

// Run executes bench fanout.
func (c *benchFanoutCmd) Run(ctx context.Context) error {
	return c.run(ctx, "fanout", bench.Options{Rate: c.Rate, Subscriptions: c.Subs})
}

type benchFailingCmd struct {
	benchFlags
	rateFlag
	Percent int `help:"How many of a hundred requests are answered 503." default:"20"`
}

// Help is shown by bench failing --help.
func (benchFailingCmd) Help() string {
	return `Measures without failures, and then with them. Retries come 6 seconds after a failure, so that they are ` +
		`part of what is measured.

` + benchHelp + "failing --percent 50"
}

// Run executes bench failing.
func (c *benchFailingCmd) Run(ctx context.Context) error {
	return c.run(ctx, "failing", bench.Options{Rate: c.Rate, FailurePercent: c.Percent})
}

type benchDeadlettersCmd struct {
	benchFlags
	rateFlag
	Deliveries int `help:"Make a database of that many deliveries, a tenth of them dead letters, and time the questions of docs/sql.md instead." placeholder:"N"`
	Rounds     int `help:"How many times to ask each of them." default:"20"`
}

// Help is shown by bench deadletters --help.
func (benchDeadlettersCmd) Help() string {
	return `With --deliveries nothing is published: a private database is filled with a week's deliveries by SQL (ten ` +
		`million take
11 GB and some minutes), and each of the questions that postrider sql --questions lists is asked as postrider sql ` +
		`does. Times are reported,
and nothing is judged.

` + benchHelp + `deadletters -o json
  postrider bench deadletters --deliveries 10000000`
}

// Run executes bench deadletters.
func (c *benchDeadlettersCmd) Run(ctx context.Context) error {
	if c.Deliveries != 0 {
		return c.ask(ctx)
	}
	return c.run(ctx, "deadletters", bench.Options{Rate: c.Rate})
}

// ask times the questions.
func (c *benchDeadlettersCmd) ask(ctx context.Context) error {
	o := bench.QuestionsOptions{Deliveries: c.Deliveries, Rounds: c.Rounds, DatabaseURL: c.DatabaseURL}
	if err := o.Prepare(); err != nil || c.Rounds == 0 {
		return terminal.Usagef("bench deadletters: %v", cmp.Or(err, errors.New("--rounds must be positive")))
	}
	report, err := bench.RunQuestions(ctx, o, os.Stderr)
	if err != nil {
		return err
	}
	return printReport(report, c.Output)
}

type benchDashboardCmd struct {
	Deliveries  int    `help:"How many deliveries there are, a tenth of them dead letters." default:"1000000" placeholder:"N"`
	Rounds      int    `help:"How many times to ask for each page." default:"20"`
	DatabaseURL string `help:"Use this empty database instead of a private one." placeholder:"URL"`
	Output      string `short:"o" help:"table, json or yaml." enum:"table,json,yaml" default:"table"`
}

// Help is shown by bench dashboard --help.
func (benchDashboardCmd) Help() string {
	return `A private database is filled with a week's deliveries by SQL, as bench deadletters --deliveries does (a ` +
		`million take 1.1 GB and a minute or two), and
every page of the dashboard is asked for over HTTP, with filters that find much, little and nothing. Times are ` +
		`reported, and nothing is judged.
"CPU ms" is what a page costs PostgreSQL and the service, however busy the machine is.

Example:
  postrider bench dashboard --deliveries 100000
  postrider bench dashboard -o json`
}

// Run executes bench dashboard.
func (c *benchDashboardCmd) Run(ctx context.Context) error {
	o := bench.DashboardOptions{Deliveries: c.Deliveries, Rounds: c.Rounds, DatabaseURL: c.DatabaseURL}
	if c.Deliveries == 0 || c.Rounds == 0 {
		return terminal.Usagef("bench dashboard: --deliveries and --rounds must be positive")
	}
	if err := o.Prepare(); err != nil {
		return terminal.Usagef("bench dashboard: %s", err)
	}
	report, err := bench.RunDashboard(ctx, o, os.Stderr)
	if err != nil {
		return err
	}
	return printReport(report, c.Output)
}

type benchBatchedCmd struct {
	benchFlags
	Events int `name:"events-per-request" help:"Events in a request of the publishers." default:"100"`
	Batch  int `name:"events-per-batch" help:"Events in a batch that is delivered, at most." default:"100"`
}

// Help is shown by bench batched --help.
func (benchBatchedCmd) Help() string {
	return `Measures publishing while delivery is paused, then delivering that, then both at once.

` + benchHelp + "batched --events-per-batch 1000"
}

// Run executes bench batched.
func (c *benchBatchedCmd) Run(ctx context.Context) error {
	return c.run(ctx, "batched", bench.Options{EventsPerRequest: c.Events, EventsPerBatch: c.Batch})
}

type benchBacklogCmd struct {
	benchFlags
	rateFlag
	Waiting int    `help:"How many deliveries wait, for another event subscription." default:"1000000"`
	Waits   string `help:"How: paused (on hold) or scheduled (for a retry in hours)." enum:"paused,scheduled" default:"paused"`
}

// Help is shown by bench backlog --help.
func (benchBacklogCmd) Help() string {
	return `Measures an event subscription alone, and then beside the backlog of another.

` + benchHelp + "backlog --waits scheduled"
}

// Run executes bench backlog.
func (c *benchBacklogCmd) Run(ctx context.Context) error {
	return c.run(ctx, "backlog", bench.Options{Rate: c.Rate, Waiting: c.Waiting, Waits: c.Waits})
}

type benchRetentionCmd struct {
	benchFlags
	rateFlag
	Days int `help:"How many days are removed, each as large as what was published before." default:"7"`
}

// Help is shown by bench retention --help.
func (benchRetentionCmd) Help() string {
	return `Measures while everything is kept, and then while old days are removed. The longest silence says how long ` +
		`that kept anybody waiting.

` + benchHelp + "retention --days 20"
}

// Run executes bench retention.
func (c *benchRetentionCmd) Run(ctx context.Context) error {
	return c.run(ctx, "retention", bench.Options{Rate: c.Rate, Days: c.Days})
}

type benchSinkCmd struct {
	Listen    string `help:"Address to listen on." default:"127.0.0.1:0"`
	ReadyFile string `help:"Written (JSON) when it answers." placeholder:"FILE"`
	Ledger    string `help:"File that gets a line per event received." placeholder:"FILE"`
	Arrivals  string `help:"File that gets a record of when each event arrived." placeholder:"FILE"`
}

// Run executes bench sink until ctx ends.
func (c *benchSinkCmd) Run(ctx context.Context) error {
	return bench.RunSink(ctx,
		bench.SinkOptions{Listen: c.Listen, ReadyFile: c.ReadyFile, Ledger: c.Ledger, Arrivals: c.Arrivals})
}
