package e2e

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// completions are what a shell gets for a command line, in order.
func completions(t *testing.T, words string) []string {
	t.Helper()
	line := "postrider " + words
	r := postrider(t, []string{"COMP_LINE=" + line, "COMP_POINT=" + strconv.Itoa(len(line))})
	require.Zero(t, r.code, r.stderr)
	return slices.Sorted(strings.Lines(r.stdout))
}

func TestCompletions(t *testing.T) {
	t.Parallel()
	require.Contains(t, completions(t, ""), "subscription\n")
	require.Equal(t, []string{"create\n"}, completions(t, "topic cr"))
	require.Equal(t, []string{"--advanced-filter\n"},
		completions(t, "subscription create orders billing --endpoint x --adv"))
	require.Equal(t, []string{"json\n", "table\n", "yaml\n"}, completions(t, "topic list -o "))
	require.Equal(t, []string{"bash\n", "fish\n", "zsh\n"}, completions(t, "completion "))
	require.Empty(t, completions(t, "publish --key "))
	require.Empty(t, completions(t, "subscription create --source"), "of the Azure CLI, and rejected")
	for _, shell := range []string{"bash", "zsh", "fish"} {
		require.Contains(t, postrider(t, nil, "completion", shell).stdout, program)
	}
	sourced := startProcess(t, nil, "/bin/bash", "--norc", "-c", `source <("$0" completion bash); complete -p postrider`,
		program)
	require.Zero(t, sourced.wait(), sourced.stderr.String())
	require.Equal(t, "complete -o bashdefault -o default -C '"+program+"' postrider\n", sourced.stdout.String())
}
