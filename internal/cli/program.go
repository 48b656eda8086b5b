package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/alecthomas/kong"
	kongcompletion "github.com/jotaen/kong-completion"

	"postrider/internal/cli/config"
	"postrider/internal/terminal"
)

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
	parser, err := kong.New(p.Verbs, append(append(terminal.TimeFlags(), p.Options...),
		kong.Name("postrider"),
		kong.ShortUsageOnError(),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.Writers(std.Out, std.Err),
		kong.Bind(std),
		kong.BindTo(ctx, (*context.Context)(nil)),
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
