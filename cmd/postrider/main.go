// Command postrider delivers events over HTTP with Azure Event Grid's retry semantics, on one PostgreSQL. This package
// has the verbs that run or inspect the service, and the configuration: only it reads the environment.
package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"reflect"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
	kongcompletion "github.com/jotaen/kong-completion"

	"postrider/internal/cli"
	"postrider/internal/cli/config"
	"postrider/internal/mcp"
	"postrider/internal/terminal"
	"postrider/internal/version"
)

// groups are the groups of verbs in --help. Each title says what its verbs use.
var groups = kong.ExplicitGroups([]kong.Group{
	{Key: "local", Title: "This machine (neither REST API nor database):"},
	{Key: "database", Title: "Service (database, --database-url):"},
	{Key: "settings", Title: "Configuration (REST API, --url):"},
	{Key: "events", Title: "Publishing and receiving (REST API, --url):"},
	{Key: "deliveries", Title: "Events and deliveries (REST API, --url):"},
	{Key: "access", Title: "Access (REST API, --url):"},
})

// verbs are all verbs with their flags and environment variables.
type verbs struct {
	ShowVersion kong.VersionFlag `name:"version" help:"Print version and build."`

	Dev        devCmd        `cmd:"" group:"local" help:"Run everything on this machine: a private PostgreSQL, the service, a demo endpoint and a demo topic."`
	Sink       sinkCmd       `cmd:"" group:"local" help:"Run the demo endpoint: /ok /flaky /slow /status/{code} /hang." detail:"Paths: /ok responds with 200, /flaky with 500 twice and then 204, /slow after ?ms= milliseconds, /status/{code} with that code, /hang never." example:"sink --listen 127.0.0.1:7481"`
	Ready      readyCmd      `cmd:"" group:"local" help:"Check that a node on this machine is ready, or alive, for health checks of containers." detail:"The exit code is 0 if it is, and 1 if it is not; the reason is printed." example:"ready --listen 127.0.0.1:7480; ready --live"`
	Completion completionCmd `cmd:"" group:"local" help:"Print the completion script of a shell."`
	Version    versionCmd    `cmd:"" group:"local" help:"Print version and build." example:"version -o json"`
	Commands   commandsCmd   `cmd:"" hidden:"" help:"Print all commands and their flags as JSON."`

	Serve   serveCmd   `cmd:"" group:"database" help:"Run the service: REST API, dashboard and deliveries."`
	Migrate migrateCmd `cmd:"" group:"database" help:"Upgrade the database's schema, or show its version."`
	Doctor  doctorCmd  `cmd:"" group:"database" help:"Check the database, its settings and the nodes, and report what to fix."`
	Keys    keysCmd    `cmd:"" group:"database" help:"Rotate the key that encrypts the secrets in the database."`
	SQL     sqlCmd     `cmd:"" group:"database" name:"sql" help:"Run one read-only SQL statement and print its rows."`

	Topic        config.TopicCmd        `cmd:"" group:"settings" help:"Create, list, show and delete topics, and show their access keys."`
	Subscription config.SubscriptionCmd `cmd:"" group:"settings" help:"Create, change, list, show and delete event subscriptions; test them, and hold or release their deliveries."`
	Policy       config.PolicyCmd       `cmd:"" group:"settings" help:"Show the retry policies, explain what they do, and create your own. The built-in ones need no database."`
	Relay        cli.RelayCmd           `cmd:"" group:"settings" help:"List the event subscriptions of Azure that deliver into relay topics."`
	Apply        config.ApplyCmd        `cmd:"" group:"settings" help:"Create and change topics, event subscriptions and retry policies as a file declares them, after showing what would change."`

	Publish     cli.PublishCmd `cmd:"" group:"events" help:"Publish events from files, from standard input, or generated samples."`
	Listen      cli.ListenCmd  `cmd:"" group:"events" help:"Receive events on this machine: print them, respond to them or forward them."`
	Receive     cli.ReceiveCmd `cmd:"" group:"events" help:"Receive events of an event subscription with delivery mode Queue, and print them."`
	Acknowledge cli.SettleCmd  `cmd:"" group:"events" help:"End deliveries of received events as delivered, by their lock tokens." example:"acknowledge orders ledger TOKEN"`
	Release     cli.ReleaseCmd `cmd:"" group:"events" help:"Make received events available again, by their lock tokens." example:"release orders ledger TOKEN --delay 60"`
	Reject      cli.SettleCmd  `cmd:"" group:"events" help:"End deliveries of received events as dead letters, by their lock tokens." example:"reject orders ledger TOKEN"`
	Tail        cli.TailCmd    `cmd:"" group:"events" help:"Follow published events and delivery attempts as they happen." detail:"Published events (-->) and attempts (<--) are shown within about a second. If more than 200 of either happen in a second, the newest 200 are shown. Ctrl-C ends it." example:"tail; tail --topic orders --state pending,dead_lettered; tail --topic orders --subscription billing -o json"`

	Delivery   cli.DeliveryCmd   `cmd:"" group:"deliveries" help:"List, show, cancel, retry or dead-letter deliveries."`
	Event      cli.EventCmd      `cmd:"" group:"deliveries" help:"List, show and erase events."`
	Batch      cli.BatchCmd      `cmd:"" group:"deliveries" help:"List and show batches."`
	Problem    cli.ProblemCmd    `cmd:"" group:"deliveries" help:"List what fails: outcomes of failed attempts."`
	Deadletter cli.DeadletterCmd `cmd:"" group:"deliveries" help:"List, redeliver, purge and export dead letters, one by one or in bulk."`
	Operation  cli.OperationCmd  `cmd:"" group:"deliveries" help:"List and show bulk operations: redeliveries, purges and erasures."`
	Query      cli.QueryCmd      `cmd:"" group:"deliveries" help:"List, save and run SQL queries on the server."`
	MCP        mcp.Cmd           `cmd:"" group:"deliveries" name:"mcp" help:"Serve the tools of AI assistants over standard input and output (Model Context Protocol)."`

	Whoami cli.WhoamiCmd `cmd:"" group:"access" help:"Show the server that verbs call, and who you are there." detail:"Shows the server, your name and role, and until when the key works." example:"whoami; whoami --url https://events.example.com -o json"`
	Audit  cli.AuditCmd  `cmd:"" group:"access" help:"List the actions of users and programs."`
	Apikey apikeyCmd     `cmd:"" group:"access" help:"Create, list and revoke API keys of programs."`
	User   userCmd       `cmd:"" group:"access" help:"Add, list and change users of the dashboard."`
}

// newVerbs has the flags of all settings.
func newVerbs() *verbs {
	return &verbs{
		Topic: config.NewTopicCmd(), Subscription: config.NewSubscriptionCmd(), Listen: cli.NewListenCmd(),
	}
}

// grammar returns the verbs, or only the one that the arguments name: kong takes half of a start to build them all.
func grammar(args []string) any {
	all := reflect.ValueOf(newVerbs()).Elem()
	version, _ := all.Type().FieldByName("ShowVersion")
	for field, value := range all.Fields() {
		if len(args) > 0 && strings.ToLower(field.Name) == args[0] {
			one := reflect.New(reflect.StructOf([]reflect.StructField{field, version}))
			one.Elem().Field(0).Set(value)
			return one.Interface()
		}
	}
	return all.Addr().Interface()
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, terminal.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}, os.Args[1:])
	stop()
	os.Exit(code)
}

// run executes one command line and returns the exit code.
func run(ctx context.Context, std terminal.Streams, args []string) int {
	if len(args) > 0 && args[0] == "help" { // help topic create = topic create --help
		args = append(slices.Clone(args[1:]), "--help")
	}
	program := cli.Program{Verbs: grammar(args), Options: []kong.Option{
		groups,
		kong.Description("Azure Event Grid's delivery and retry semantics as one service on your own PostgreSQL."),
		kong.Vars{"version": version.Read().String()},
		kong.TypeMapper(reflect.TypeFor[netip.Prefix](), kong.MapperFunc(addressRange)),
	}}
	return program.Run(ctx, std, args)
}

type completionCmd struct {
	Shell string `arg:"" help:"bash, zsh or fish." enum:"bash,zsh,fish"`
}

func (completionCmd) Help() string {
	return `The script calls this program, which completes verbs, flags, the values of flags that have a fixed set, and
the names of topics, event subscriptions and retry policies. It reads names with POSTRIDER_URL and POSTRIDER_API_KEY. In
bash and zsh everything else completes as a file name.

Examples:
  postrider completion bash > /etc/bash_completion.d/postrider
  postrider completion zsh >> ~/.zshrc
  postrider completion fish > ~/.config/fish/completions/postrider.fish`
}

func (c *completionCmd) Run(k *kong.Context) error {
	return (&kongcompletion.Completion{Shell: c.Shell, Code: true}).Run(k)
}

type versionCmd struct{ terminal.OutputFlag }

func (c versionCmd) Run(std terminal.Streams) error {
	return c.PrintOne(std.Out, version.Read(), version.Read().String())
}

// addressRange reads flags of type netip.Prefix.
func addressRange(k *kong.DecodeContext, target reflect.Value) error {
	var text string
	if err := k.Scan.PopValueInto("address range", &text); err != nil {
		return err
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return fmt.Errorf("%q: must be an address range such as 10.0.0.0/8", text)
	}
	target.Set(reflect.ValueOf(prefix))
	return nil
}
