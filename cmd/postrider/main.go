// Command postrider delivers events over HTTP with Azure Event Grid's retry semantics, on one PostgreSQL. This package
// is verbs, configuration (the only reader of the environment) and wiring; no rule of the product lives here.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	kongcompletion "github.com/jotaen/kong-completion"

	"postrider/cmd/postrider/benchmark"
	"postrider/cmd/postrider/cli"
	"postrider/cmd/postrider/cli/management"
	"postrider/cmd/postrider/terminal"
	"postrider/cmd/postrider/version"
)

// verbs are all verbs with their flags and environment variables.
type verbs struct {
	Dev     devCmd               `cmd:"" help:"Run everything on this machine: a private PostgreSQL, the service, a demo endpoint and a demo topic."`
	Serve   serveCmd             `cmd:"" help:"Run the service: REST API, dashboard and deliveries."`
	Migrate migrateCmd           `cmd:"" help:"Bring the database's schema up to date, or show how far it is."`
	Keys    keysCmd              `cmd:"" help:"Rotate the key that secrets in the database are sealed with."`
	Policy  management.PolicyCmd `cmd:"" help:"Show the retry policies, explain what they do, and create your own. The built-in ones need no database."`
	SQL     sqlCmd               `cmd:"" name:"sql" help:"Run one SQL statement, read only, and print its rows."`
	Sink    sinkCmd              `cmd:"" help:"Run the demo endpoint: /ok /flaky /slow /status/{code} /hang." detail:"Paths: /ok responds with 200, /flaky with 500 twice and then 204, /slow after ?ms= milliseconds, /status/{code} with that code, /hang never." example:"sink --listen 127.0.0.1:7481"`
	Bench   benchmark.Cmd        `cmd:"" help:"Measure this machine: events published and delivered per second, nothing lost."`
	Ready   readyCmd             `cmd:"" help:"Check that a node on this machine is ready, or alive, for health checks of containers." detail:"The exit code is 0 if it is, and 1 if it is not; the reason is printed." example:"ready --listen 127.0.0.1:7480; ready --live"`
	Version versionCmd           `cmd:"" help:"Print version and build." example:"version -o json"`

	Topic   management.TopicCmd `cmd:"" help:"Create, list, show and delete topics, and show their access keys."`
	Publish cli.PublishCmd      `cmd:"" help:"Publish events from files, from standard input, or made up."`
	Listen  cli.ListenCmd       `cmd:"" help:"Receive events on this machine: print, answer and forward them."`
	Tail    cli.TailCmd         `cmd:"" help:"Follow published events and delivery attempts as they happen." detail:"Published events (-->) and attempts (<--) are shown within about a second. If more than 200 of either happen in a second, the newest 200 are shown. Ctrl-C ends it." example:"tail; tail --topic orders --state pending,dead_lettered; tail --topic orders --subscription billing -o json"`
	Apply   management.ApplyCmd `cmd:"" help:"Create and change topics, event subscriptions and retry policies as a file declares them, after showing what would change." detail:"The file has topics, subscriptions and policies with the property names of the API; settings that it leaves out take their defaults. It may also be the output of az eventgrid event-subscription list --include-full-endpoint-url true: parts that postrider does not have are listed. The whole file is checked first. Then policies, topics and event subscriptions are written in this order, until the first error. Changes that other clients make meanwhile are not overwritten." example:"apply -f postrider.yaml; apply -f postrider.yaml --dry-run; apply -f azure.json --topic orders --yes"`
	Doctor  doctorCmd           `cmd:"" help:"Look for what is wrong with the database, its settings and the nodes, and say what to do."`

	Completion completionCmd `cmd:"" help:"Print the completion script of a shell."`

	Subscription management.SubscriptionCmd `cmd:"" help:"Create, change, list, show and delete event subscriptions; test them, and hold or release their deliveries."`
	Delivery     cli.DeliveryCmd            `cmd:"" help:"List, show, cancel, retry or give up deliveries."`
	Event        cli.EventCmd               `cmd:"" help:"List, show and erase events."`
	Batch        cli.BatchCmd               `cmd:"" help:"List and show batches."`
	ShowVersion  versionFlag                `name:"version" help:"Print version and build."`
	Deadletter   cli.DeadletterCmd          `cmd:"" help:"List, redeliver, purge and export dead letters, one by one or many at once."`
	Operation    cli.OperationCmd           `cmd:"" help:"List and show what is being done, or was done, to many."`

	Login  cli.LoginCmd  `cmd:"" help:"Get a personal key for a server: you approve it in a browser."`
	Logout cli.LogoutCmd `cmd:"" help:"Revoke your personal key for a server, and remove it from this computer." detail:"If the server does not respond, the key is removed here all the same; it works at the server until it expires, or until you revoke it on your account page." example:"logout; logout staging"`
	Whoami cli.WhoamiCmd `cmd:"" help:"Show the server that verbs call, and who you are there." detail:"Shows the server, your name and role, and until when the key works." example:"whoami; whoami --server staging -o json"`
	Server cli.ServerCmd `cmd:"" help:"List the servers that you have logged in to, and choose the default one."`

	Audit  cli.AuditCmd `cmd:"" help:"List who did what."`
	Apikey apikeyCmd    `cmd:"" help:"Make, list and revoke the keys that programs send."`
	User   userCmd      `cmd:"" help:"Add, list and change the people who sign in to the dashboard."`
}

// newVerbs has the flags of all settings.
func newVerbs() *verbs {
	return &verbs{
		Topic: management.NewTopicCmd(), Subscription: management.NewSubscriptionCmd(), Listen: cli.NewListenCmd(),
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

// run executes one command line and returns the exit code: 0 success, 1 failure, 2 wrong usage (also bad values).
func run(ctx context.Context, args []string) int {
	var hint string // after wrong usage
	parser, err := kong.New(newVerbs(), append(terminal.TimeFlags(),
		kong.Name("postrider"),
		kong.Description("Azure Event Grid's delivery and retry semantics as one service on your own PostgreSQL."),
		kong.ShortUsageOnError(),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.PostBuild(describeVerbs),
		kong.TypeMapper(reflect.TypeFor[netip.Prefix](), kong.MapperFunc(addressRange)),
		kong.Exit(func(code int) { // kong's own code: 80 for wrong usage, 1 for a bad value in the environment
			fmt.Fprint(os.Stderr, hint)
			os.Exit(min(code*2, 2))
		}),
	)...)
	if err != nil {
		fmt.Fprintln(os.Stderr, "postrider:", err)
		return 1
	}
	kongcompletion.Register(parser)         // exits if a shell requests completions
	if len(args) > 0 && args[0] == "help" { // as many programs have it: help topic create
		args = append(slices.Clone(args[1:]), "--help")
	}
	kctx, err := parser.Parse(args)
	if err != nil {
		hint = management.MisreadList(args, err)
		parser.Stdout = os.Stderr // of the usage: a pipe wants none
		parser.FatalIfErrorf(err)
		return 2
	}
	if err = checkRanges(kctx); err == nil {
		err = kctx.Run()
	}
	var usage *terminal.UsageError
	var coded *terminal.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &coded):
		return coded.Code
	case errors.As(err, &usage):
		fmt.Fprintln(os.Stderr, "postrider:", terminal.PlainLines(err.Error()))
		return 2
	default:
		fmt.Fprintln(os.Stderr, "postrider:", terminal.PlainLines(err.Error()))
		return 1
	}
}

// describeVerbs completes the help of verbs from their tags: detail:"A sentence." and example:"user list; user show a".
func describeVerbs(k *kong.Kong) error {
	for _, leaf := range k.Model.Leaves(false) {
		if detail := leaf.Tag.Get("detail"); detail != "" {
			leaf.Detail = detail + "\n\n"
		}
		examples := strings.Split(leaf.Tag.Get("example"), "; ")
		if examples[0] != "" {
			leaf.Detail += terminal.Either(len(examples) == 1, "Example:", "Examples:")
		}
		for _, line := range examples {
			leaf.Detail += terminal.Either(line == "", "", "\n  "+k.Model.Name+" "+line)
		}
	}
	return nil
}

type completionCmd struct {
	Shell string `arg:"" help:"bash, zsh or fish." enum:"bash,zsh,fish"`
}

// Help is shown by completion --help.
func (completionCmd) Help() string {
	return `The script calls this program, which completes verbs, flags and the values of flags that have a fixed set of
them. In bash and zsh everything else is completed as a file name.

Examples:
  postrider completion bash > /etc/bash_completion.d/postrider
  postrider completion zsh >> ~/.zshrc
  postrider completion fish > ~/.config/fish/completions/postrider.fish`
}

// Run executes completion.
func (c *completionCmd) Run(k *kong.Context) error {
	return (&kongcompletion.Completion{Shell: c.Shell, Code: true}).Run(k)
}

// versionFlag is --version, which is understood without a verb.
type versionFlag bool

// BeforeReset is called by kong as soon as it has met the flag.
func (versionFlag) BeforeReset(app *kong.Kong) error { //nolint:unparam // the signature is kong's
	fmt.Fprintln(app.Stdout, version.Read())
	app.Exit(0)
	return nil
}

type versionCmd struct {
	terminal.OutputFlag
}

// Run executes version.
func (c versionCmd) Run() error {
	return c.PrintOne(version.Read(), version.Read().String())
}

// checkRanges rejects the first flag whose value is outside the range that its tag declares: range:"1..1000", or
// range:"0.." without an upper limit. Those of durations are in seconds.
func checkRanges(k *kong.Context) error {
	for _, flag := range k.Flags() {
		low, high, declared := strings.Cut(flag.Tag.Get("range"), "..")
		if !declared {
			continue
		}
		var value float64
		unit := ""
		switch v := flag.Target.Interface().(type) {
		case int:
			value = float64(v)
		case float64:
			value = v
		case time.Duration:
			value, unit = v.Seconds(), "s"
		}
		least, err := strconv.ParseFloat(low, 64)
		if err != nil {
			return err
		}
		most, err := strconv.ParseFloat(cmp.Or(high, "inf"), 64)
		if err != nil {
			return err
		}
		if value >= least && value <= most {
			continue
		}
		allowed := "be " + low + unit + terminal.Either(high == "", " or more", " to "+high+unit)
		if low == "0" && high == "" {
			allowed = "not be negative"
		}
		return terminal.Usagef("--%s %v: must %s", flag.Name, flag.Target.Interface(), allowed)
	}
	return nil
}

// addressRange reads flags that are address ranges.
func addressRange(k *kong.DecodeContext, target reflect.Value) error {
	var text string
	if err := k.Scan.PopValueInto("address range", &text); err != nil {
		return err
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return fmt.Errorf("expected an address range such as 10.0.0.0/8 but got %q", text)
	}
	target.Set(reflect.ValueOf(prefix))
	return nil
}
