package main

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"
)

// newParser reads command lines as the program does, without running them.
func newParser(t *testing.T) *kong.Kong {
	t.Helper()
	parser, err := kong.New(newVerbs(), kong.BindTo(t.Context(), (*context.Context)(nil)), kong.Exit(func(int) {}))
	require.NoError(t, err)
	return parser
}

// leaves are the verbs that do something, in words.
func leaves(t *testing.T) (verbs []string) {
	t.Helper()
	for _, leaf := range newParser(t).Model.Leaves(true) {
		_, verb, _ := strings.Cut(leaf.FullPath(), " ")
		verbs = append(verbs, verb)
	}
	return verbs
}

func TestEveryVerbHelps(t *testing.T) {
	t.Parallel()
	verbs := leaves(t)
	require.Subset(t, verbs,
		[]string{
			"dev", "serve", "migrate up", "migrate status", "policy explain", "subscription test-filter", "sql", "sink",
			"version",
		})
	for _, verb := range verbs {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			r := postrider(t, nil, append(strings.Fields(verb), "--help")...)
			require.Zero(t, r.code, r.stderr)
			require.Contains(t, r.stdout, "Usage: postrider "+verb)
			require.Regexp(t, `(?s)Examples?:\s.*\n +(\S.* )?postrider `+verb, r.stdout)
		})
	}
}

func TestGrammarOfOneVerbIsThatOfAll(t *testing.T) {
	t.Parallel()
	for _, verb := range newParser(t).Model.Children {
		one, err := kong.New(grammar([]string{verb.Name, "all else is ignored"}),
			kong.BindTo(t.Context(), (*context.Context)(nil)))
		require.NoError(t, err)
		require.Len(t, one.Model.Children, 1)
		require.Equal(t, described(verb), described(one.Model.Children[0]))
	}
	require.IsType(t, newVerbs(), grammar(nil))
	require.IsType(t, newVerbs(), grammar([]string{"--version", "topic"}))
}

// described are the verbs below a verb with their flags.
func described(verb *kong.Node) (lines []string) {
	for _, leaf := range verb.Leaves(true) {
		lines = append(lines, leaf.Summary())
		for _, flag := range slices.Concat(leaf.AllFlags(true)...) {
			lines = append(lines, flag.String()+" "+flag.Help)
		}
	}
	return lines
}

// silent are the verbs that print no data, or run until they are ended.
var silent = []string{
	"completion", "deadletter export", "dev", "mcp", "migrate up", "ready", "serve", "sink",
}

// Every verb that prints data, or changes something, prints it as JSON, too.
func TestEveryVerbHasJSON(t *testing.T) {
	t.Parallel()
	for _, leaf := range newParser(t).Model.Leaves(false) {
		_, verb, _ := strings.Cut(leaf.FullPath(), " ")
		if slices.Contains(silent, verb) {
			continue
		}
		has := slices.ContainsFunc(slices.Concat(leaf.AllFlags(true)...),
			func(f *kong.Flag) bool { return f.Name == "output" && strings.Contains(f.Enum, "json") })
		require.True(t, has, "%s prints data and has no -o json", verb)
	}
}

func TestHelpListsTheVerbs(t *testing.T) {
	t.Parallel()
	r := postrider(t, nil, "--help")
	require.Zero(t, r.code, r.stderr)
	for _, verb := range leaves(t) {
		require.Regexp(t, `(?m)^  `+verb+` `, r.stdout)
	}
	require.Equal(t, r.stdout, postrider(t, nil, "help").stdout)
	require.Equal(t, postrider(t, nil, "topic", "create", "--help").stdout,
		postrider(t, nil, "help", "topic", "create").stdout)
}

func TestWrongUsage(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, args, says string }{
		{"unknown verb", "deliver", "unexpected argument deliver"},
		{"no verb", "", "expected one of"},
		{"group without its verb", "migrate", "expected one of"},
		{"unknown flag", "version --loud", "unknown flag --loud"},
		{"missing argument", "sql", "<statement>"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := postrider(t, nil, strings.Fields(row.args)...)
			require.Equal(t, 2, r.code)
			require.Contains(t, r.stderr, row.says)
			require.NotContains(t, r.stderr, "goroutine")
		})
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	r := postrider(t, nil, "version")
	require.Zero(t, r.code, r.stderr)
	require.Regexp(t, `^postrider \S+ go1\.\S+ \w+/\w+\n$`, r.stdout)
}
