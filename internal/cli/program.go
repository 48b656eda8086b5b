package cli

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/alecthomas/kong"
	kongcompletion "github.com/jotaen/kong-completion"

	"postrider/internal/cli/config"
	"postrider/internal/mcp"
	"postrider/internal/terminal"
)

// Verbs are the verbs that are clients of the REST API, without those of users and API keys.
type Verbs struct {
	Topic        config.TopicCmd        `cmd:"" group:"settings" help:"Create, list, show and delete topics, and show their access keys."`
	Subscription config.SubscriptionCmd `cmd:"" group:"settings" help:"Create, change, list, show and delete event subscriptions; test them, and hold or release their deliveries."`
	Policy       config.PolicyCmd       `cmd:"" group:"settings" help:"Show the retry policies, explain what they do, and create your own. The built-in ones need no database."`
	Relay        RelayCmd               `cmd:"" group:"settings" help:"List the event subscriptions of Azure that deliver into relay topics."`
	Apply        config.ApplyCmd        `cmd:"" group:"settings" help:"Create and change topics, event subscriptions and retry policies as a file declares them, after showing what would change."`

	Publish     PublishCmd `cmd:"" group:"events" help:"Publish events from files, from standard input, or generated samples."`
	Listen      ListenCmd  `cmd:"" group:"events" help:"Receive events on this machine: print them, respond to them or forward them."`
	Receive     ReceiveCmd `cmd:"" group:"events" help:"Receive events of an event subscription with delivery mode Queue, and print them."`
	Acknowledge SettleCmd  `cmd:"" group:"events" help:"End deliveries of received events as delivered, by their lock tokens." example:"acknowledge orders ledger TOKEN"`
	Release     ReleaseCmd `cmd:"" group:"events" help:"Make received events available again, by their lock tokens." example:"release orders ledger TOKEN --delay 60"`
	Reject      SettleCmd  `cmd:"" group:"events" help:"End deliveries of received events as dead letters, by their lock tokens." example:"reject orders ledger TOKEN"`
	Tail        TailCmd    `cmd:"" group:"events" help:"Follow published events and delivery attempts as they happen." detail:"Published events (-->) and attempts (<--) are shown within about a second. If more than 200 of either happen in a second, the newest 200 are shown. Ctrl-C ends it." example:"tail; tail --topic orders --state pending,dead_lettered; tail --topic orders --subscription billing -o json"`

	Delivery   DeliveryCmd   `cmd:"" group:"deliveries" help:"List, show, cancel, retry or dead-letter deliveries."`
	Event      EventCmd      `cmd:"" group:"deliveries" help:"List, show and erase events."`
	Batch      BatchCmd      `cmd:"" group:"deliveries" help:"List and show batches."`
	Problem    ProblemCmd    `cmd:"" group:"deliveries" help:"List what fails: outcomes of failed attempts."`
	Deadletter DeadletterCmd `cmd:"" group:"deliveries" help:"List, redeliver, purge and export dead letters, one by one or in bulk."`
	Operation  OperationCmd  `cmd:"" group:"deliveries" help:"List, show and cancel bulk operations: redeliveries, purges and erasures."`
	Query      QueryCmd      `cmd:"" group:"deliveries" help:"List, save and run SQL queries on the server."`
	MCP        mcp.Cmd       `cmd:"" group:"deliveries" name:"mcp" help:"Serve the tools of AI assistants over standard input and output (Model Context Protocol)."`

	Whoami WhoamiCmd `cmd:"" group:"access" help:"Show the server that verbs call, and who you are there." detail:"Shows the server, your name and role, and until when the key works." example:"whoami; whoami --url https://events.example.com -o json"`
	Audit  AuditCmd  `cmd:"" group:"access" help:"List the actions of users and programs."`
}

// NewVerbs returns the verbs with flags for all settings.
func NewVerbs() Verbs {
	return Verbs{Topic: config.NewTopicCmd(), Subscription: config.NewSubscriptionCmd(), Listen: newListenCmd()}
}

// Program is a command line with verbs.
type Program struct {
	Verbs   any // for kong: a pointer to a struct of verbs
	Options []kong.Option
}

// exitCode is the panic by which kong ends a run: after --help, --version and wrong usage.
type exitCode int

// Run executes one command line and returns the exit code: 0 success, 1 failure, 2 wrong usage (also bad values,
// which the server may find).
func (p Program) Run(ctx context.Context, std terminal.Streams, args []string) (code int) {
	defer func() {
		if ended := recover(); ended != nil {
			exit, ok := ended.(exitCode)
			if !ok {
				panic(ended)
			}
			code = min(int(exit)*2, 2) // kong's own code: 80 for wrong usage, 1 for a bad value in the environment
		}
	}()
	parser, err := kong.New(p.Verbs, append(p.Options,
		kong.Name("postrider"),
		kong.ShortUsageOnError(),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.Writers(std.Out, std.Err),
		kong.Bind(std),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.TypeMapper(reflect.TypeFor[*time.Time](), kong.MapperFunc(terminal.TimeFlag)),
		kong.TypeMapper(reflect.TypeFor[time.Duration](), kong.MapperFunc(terminal.DurationFlag)),
		kong.PostBuild(terminal.DescribeVerbs), kong.PostBuild(DescribeFilters),
		kong.Exit(func(code int) { panic(exitCode(code)) }),
	)...)
	if err != nil {
		fmt.Fprintln(std.Err, "postrider:", err)
		return 1
	}
	kongcompletion.Register(parser, kongcompletion.WithPredictors(predictors)) // exits if a shell requests completions
	k, err := parser.Parse(args)
	if err != nil {
		if k = spacedLists(parser, args); k == nil {
			parser.Stdout = std.Err // the usage must not go into a pipe
			if !listVerbs(err) {
				parser.FatalIfErrorf(err)
			}
			parser.Errorf("%s", err)
			return 2
		}
	}
	if err = terminal.CheckRanges(k); err == nil {
		err = k.Run()
	}
	if err == nil {
		return 0
	}
	if coded, ok := errors.AsType[*terminal.ExitError](err); ok {
		return coded.Code
	}
	fmt.Fprintln(std.Err, "postrider:", terminal.PlainLines(err.Error()))
	return terminal.Either(terminal.IsUsage(err), 2, 1)
}

// listVerbs prints the verbs of a noun if the rejected command line has none.
func listVerbs(err error) bool {
	parse, ok := errors.AsType[*kong.ParseError](err)
	if !ok || parse.Context.Error != nil {
		return false
	}
	noun := parse.Context.Selected()
	return noun != nil && len(noun.Children) > 0 && parse.Context.PrintUsage(false) == nil
}

// spacedLists reads a rejected command line again, with lists in the Azure CLI's syntax; nil: it is still rejected.
func spacedLists(parser *kong.Kong, args []string) *kong.Context {
	rewritten := config.SpacedLists(args)
	if rewritten == nil {
		return nil
	}
	k, err := parser.Parse(rewritten)
	if err != nil {
		return nil
	}
	return k
}
