// Command bench measures a build of postrider. It starts the program like a user, publishes events, receives them, and
// reports throughput, latency, cost and losses.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"postrider/internal/terminal"
)

// verbs has a verb for each scenario.
type verbs struct {
	Binary string `help:"Program to measure: a build of any commit." default:"bin/postrider" placeholder:"PATH"`

	Throughput throughputCmd `cmd:"" set:"rate=0" help:"Publish as fast as possible and deliver everything." example:"throughput -o json; throughput --subscriptions 10; throughput --response-time 100ms --rate 1000"`
	Publish    publishCmd    `cmd:"" help:"Publish requests of 100 events while delivery is paused." example:"publish --events-per-request 10"`
	Latency    throughputCmd `cmd:"" set:"rate=100" help:"Measure latency at 100 events per second." detail:"Events are due at fixed times, and latency counts from then. It includes the delay by stalls." example:"latency --rate 500"`
	Failing    failingCmd    `cmd:"" help:"Measure the cost of an endpoint that responds 503 to a fifth of the requests." detail:"Measures without failures, and then with them. Retries follow 6 seconds after a failure." example:"failing --percent 50"`
	Batched    batchedCmd    `cmd:"" help:"Measure the delivery of batches of 100 events." detail:"Measures publishing while delivery is paused, then the delivery of these events, then both at once." example:"batched --events-per-batch 1000"`
	Backlog    backlogCmd    `cmd:"" help:"Measure the cost of a million pending deliveries." detail:"Measures an event subscription alone, and then with the backlog of another." example:"backlog --waits scheduled"`
	Noisy      noisyCmd      `cmd:"" help:"Measure whether a bad endpoint, or many topics, slow down the other event subscriptions." example:"noisy --scenario hang --check"`
	Rates      ratesCmd      `cmd:"" set:"nodes=3" help:"Measure how exactly nodes keep a rate limit, or what an endpoint that responds 429 accepts." example:"rates --limit 50 --warm-up 1s --kill; rates --nodes 2 --accepts 100; rates --nodes 1 --at-once 5 --response-time 200ms"`
	Held       heldCmd       `cmd:"" help:"Measure what a long transaction costs, which keeps vacuum from removing rows." detail:"Measures while the transaction is open, and how soon the figures recover after it." example:"held --kind slot; held --duration 60s --after 20s; held --kind none"`
	Chart      chartCmd      `cmd:"" help:"Print an SVG image of reports of held." example:"chart snapshot.json queries.json slot.json none.json"`
	River      riverCmd      `cmd:"" help:"Measure River without postrider: jobs that only send a request." detail:"They are inserted before. It is what River and this machine allow: nothing is published, stored, loaded or recorded." example:"river --workers 500"`
	Pull       pullCmd       `cmd:"" help:"Measure consumers of a queue: a backlog, latency, and waiting receivers." example:"pull --consumers 16"`
}

const description = `Measure how many events a build of postrider publishes and delivers per second on this machine, and
check that none is lost.

Publishers, service, database and endpoint share this machine. Durability is on (fsync, synchronous_commit,
full_page_writes), and each phase includes a checkpoint. The exit code is 1 if an event is lost or pending at the end.`

func main() {
	// Linux ends a child when the thread that started it ends. This thread starts all, and does not end.
	runtime.LockOSThread()
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
	if err := v.run(kctx, args); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", terminal.PlainLines(err.Error()))
		return terminal.Either(terminal.IsUsage(err), 2, 1)
	}
	return 0
}

func (v *verbs) run(kctx *kong.Context, args []string) error {
	if _, err := os.Stat(v.Binary); err != nil && len(v.Chart.Files) == 0 {
		return terminal.Usagef("--binary %s: there is no such file: build it with make build", v.Binary)
	}
	if err := terminal.CheckRanges(kctx); err != nil {
		return err
	}
	path, _ := filepath.Abs(v.Binary) // exec would search a bare name in PATH
	return kctx.Run(&program{path, "bench " + strings.Join(args, " ")})
}

// program is what is measured.
type program struct {
	binary  string
	command string // of bench, for the report
}

// loadFlags are the flags of the scenarios of run.
type loadFlags struct {
	terminal.OutputFlag
	Duration    time.Duration `help:"Duration of publishing in each phase." default:"30s" range:"1.."`
	Clients     int           `help:"Publishers, each with one connection; 0 = 256, or 32 with several events per request." range:"0.."`
	EventBytes  int           `help:"Size of an event in bytes." default:"1024" range:"320.."`
	DatabaseURL string        `help:"Use this empty database instead of a private one." placeholder:"URL"`
}

// finish prints a report, and returns the error of lost events.
func finish(f terminal.OutputFlag, report any, lost error) error {
	f.Output = strings.Replace(f.Output, "table", "yaml", 1) // for people
	return errors.Join(f.Print(os.Stdout, report, nil), lost)
}
