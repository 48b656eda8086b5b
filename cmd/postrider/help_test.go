package main

import (
	"context"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"

	"postrider/internal/terminal"
)

// newParser parses command lines as the program does, without running the verbs.
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
	require.Subset(t, verbs, []string{"dev", "serve", "migrate up", "policy explain", "subscription test-filter", "sql"})
	all := help(t)
	for _, verb := range verbs {
		require.Regexp(t, `(?m)^  `+verb+` `, all)
		text := helpOf(t, strings.Fields(verb)...)
		require.Contains(t, text, "Usage: postrider "+verb)
		require.Regexp(t, `(?s)Examples?:\s.*\n +(\S.* )?postrider `+verb, text)
	}
	require.Equal(t, helpOf(t, "policy", "explain"), help(t, "policy", "explain"), "help is --help")
}

// help returns what the verb help prints.
func help(t *testing.T, words ...string) string {
	t.Helper()
	r := postrider(t, strings.NewReader(""), append([]string{"help"}, words...)...)
	require.Zero(t, r.code)
	return r.stdout
}

// helpOf returns what --help prints after these words.
func helpOf(t *testing.T, words ...string) string {
	t.Helper()
	r := postrider(t, strings.NewReader(""), append(words, "--help")...)
	require.Zero(t, r.code)
	return r.stdout
}

// The group of a verb in --help says what the verb uses: its flags agree. dev is its own service,
// which dev reset calls.
func TestGroupsSayWhatVerbsUse(t *testing.T) {
	t.Parallel()
	require.Regexp(t, `(?ms)^Service \(database, --database-url\):$.*^Access \(REST API, --url\):$`, helpOf(t))
	for _, leaf := range newParser(t).Model.Leaves(true) {
		uses := "local"
		for _, flag := range slices.Concat(leaf.AllFlags(true)...) {
			switch flag.Name {
			case "url":
				uses = "REST API"
			case "database-url":
				uses = terminal.Either(uses == "local", "database", uses)
			}
		}
		if leaf.Name == "dev" {
			require.Equal(t, "REST API", uses)
			uses = "local"
		}
		group := leaf.ClosestGroup()
		require.NotNil(t, group, leaf.FullPath())
		require.Equal(t, uses, terminal.Either(slices.Contains([]string{"local", "database"}, group.Key), group.Key,
			"REST API"), leaf.FullPath())
	}
}

// The flags of filters have the texts of the API's parameters, in the words of the command line.
func TestFlagsOfFilters(t *testing.T) {
	t.Parallel()
	for verb, flags := range map[string][]string{
		"deadletter purge": {
			"--state=STATE open, redelivered or resolved, or all (default: open).",
		},
		"delivery list": {
			"--state=STATE In this state: pending, delivered, dead_lettered, dropped or canceled.",
			"--hold=HOLD On this hold: paused, not_validated, probation, admission or rate_limited.",
			"--operation=ID Redelivered by the operation with this id.",
		},
	} {
		help := strings.Join(strings.Fields(helpOf(t, strings.Fields(verb)...)), " ")
		for _, flag := range flags {
			require.Contains(t, help, flag)
		}
	}
}

func TestNounWithoutAVerb(t *testing.T) {
	t.Parallel()
	r := postrider(t, nil, "topic")
	require.Equal(t, 2, r.code)
	require.Empty(t, r.stdout)
	require.Regexp(t, `(?s)topic keys +Show a topic's access keys.*expected one of`, r.stderr)
	require.NotContains(t, postrider(t, nil, "topic", "none").stderr, "topic keys")
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

// silent are the verbs that print no data, have one format, or run until they are ended.
var silent = []string{
	"commands", "completion", "deadletter export", "dev", "mcp", "migrate up", "ready", "serve", "sink", "topic export",
}

// Every verb that prints data, or changes something, prints it as JSON, too. Help about the end of sessions also names
// personal keys.
func TestEveryVerbHasJSON(t *testing.T) {
	t.Parallel()
	for _, leaf := range newParser(t).Model.Leaves(false) {
		_, verb, _ := strings.Cut(leaf.FullPath(), " ")
		has := slices.ContainsFunc(slices.Concat(leaf.AllFlags(true)...),
			func(f *kong.Flag) bool { return f.Name == "output" && strings.Contains(f.Enum, "json") })
		require.True(t, has || slices.Contains(silent, verb), "%s prints data and has no -o json", verb)
		if strings.Contains(strings.ToLower(leaf.Help), "their sessions") {
			require.Contains(t, leaf.Help, "personal keys", leaf.FullPath())
		}
	}
}

// The pages written by hand have every command, and docs/guides/command-line.md names no flag that does not exist.
func TestEveryVerbIsOnThePage(t *testing.T) {
	t.Parallel()
	var pages strings.Builder
	pages.WriteString(fromRoot(t, "README.md"))
	for _, folder := range []string{"docs", "deploy"} {
		require.NoError(t, filepath.WalkDir("../../"+folder, func(file string, _ fs.DirEntry, err error) error {
			if filepath.Ext(file) == ".md" {
				page := fromRoot(t, strings.TrimPrefix(filepath.ToSlash(file), "../../"))
				if !strings.HasPrefix(page, "<!-- generated by ") {
					pages.WriteString(page)
				}
			}
			return err
		}))
	}
	for _, verb := range leaves(t) {
		require.Regexp(t, `postrider `+verb+`\b`, pages.String())
	}
	known := map[string]bool{"include-full-endpoint-url": true} // the Azure CLI's
	for _, leaf := range newParser(t).Model.Leaves(true) {
		for _, flag := range slices.Concat(leaf.AllFlags(false)...) { // also rejected ones, which the page names, too
			for _, name := range append(flag.Aliases, flag.Name) {
				known[name] = true
			}
		}
	}
	page := fromRoot(t, "docs/guides/command-line.md")
	for _, match := range regexp.MustCompile("`--([a-z0-9-]+)").FindAllStringSubmatch(page, -1) {
		require.True(t, known[match[1]], "the page says --%s", match[1])
	}
}
