package main

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// docs/cli.md has every verb with a command line that the program understands.
func TestEveryVerbIsOnThePage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/cli.md")
	require.NoError(t, err)
	for _, verb := range leaves(t) {
		require.Regexp(t, `(^|\W)postrider `+verb+`\b`, string(page))
	}
	for flag := range parsedFlags(string(page)) {
		require.True(t, knownFlag(t, flag), "the page says --%s", flag)
	}
}

func parsedFlags(page string) map[string]bool {
	found := map[string]bool{}
	for _, match := range regexp.MustCompile("`--([a-z0-9-]+)").FindAllStringSubmatch(page, -1) {
		found[match[1]] = true
	}
	return found
}

func knownFlag(t *testing.T, name string) bool {
	t.Helper()
	for _, leaf := range newParser(t).Model.Leaves(true) {
		for _, group := range leaf.AllFlags(false) { // the page also names some that are refused
			for _, flag := range group {
				if flag.Name == name || slices.Contains(flag.Aliases, name) {
					return true
				}
			}
		}
	}
	return name == "include-full-endpoint-url" // the Azure CLI's
}

func TestCompletions(t *testing.T) {
	t.Parallel()
	node := newParser(t).Model.Node
	require.Contains(t, completions(node, nil), "subscription")
	require.NotContains(t, completions(node, nil), "complete-words")
	require.Equal(t, []string{"create"}, completions(node, []string{"topic", "cr"}))
	require.Equal(t, []string{"--advanced-filter"},
		completions(node, []string{"subscription", "create", "orders", "billing", "--endpoint", "x", "--adv"}))
	require.Equal(t, []string{"json", "table", "yaml"}, completions(node, []string{"topic", "list", "-o", ""}))
	require.Equal(t, []string{"bash", "fish", "zsh"}, completions(node, []string{"completion", ""}))
	require.Empty(t, completions(node, []string{"publish", "--key", ""}))
	for _, shell := range []string{"bash", "zsh", "fish"} {
		require.Contains(t, postrider(t, nil, "completion", shell).stdout, "complete-words")
	}
	piped := startProcess(t, nil, "/bin/bash", "--norc", "-c",
		`source <("$0" completion bash); COMP_WORDS=("$0" topic cr); COMP_CWORD=2; _postrider; echo "${COMPREPLY[@]}"`,
		program)
	require.Zero(t, piped.wait(), piped.stderr.String())
	require.Equal(t, "create\n", piped.stdout.String())
}

func TestTimesThatAreWrong(t *testing.T) {
	t.Parallel()
	r := postrider(t, os.Environ(), "event", "list", "--from", "yesterday")
	require.Equal(t, 2, r.code)
	require.Contains(t, r.stderr,
		`--from: "yesterday" is no time: write 1h, 30m or 7d for that long ago, 2026-11-20T09:30:00Z, or 2026-11-20`)
}
