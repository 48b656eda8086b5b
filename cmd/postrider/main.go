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

	cli.Verbs

	Apikey apikeyCmd `cmd:"" group:"access" help:"Create, list and revoke API keys of programs."`
	User   userCmd   `cmd:"" group:"access" help:"Add, list and change users of the dashboard."`
}

func newVerbs() *verbs { return &verbs{Verbs: cli.NewVerbs()} }

// grammar returns the verbs, or only the one that the arguments name: kong takes half of a start to build them all.
func grammar(args []string) any {
	all := reflect.ValueOf(newVerbs()).Elem()
	version, _ := all.Type().FieldByName("ShowVersion")
	for _, field := range reflect.VisibleFields(all.Type()) {
		if len(args) > 0 && !field.Anonymous && strings.ToLower(field.Name) == args[0] {
			one := reflect.New(reflect.StructOf([]reflect.StructField{field, version}))
			one.Elem().Field(0).Set(all.FieldByIndex(field.Index))
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
