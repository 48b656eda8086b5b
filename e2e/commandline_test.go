package e2e

import (
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The command line as a process: exit codes, streams and signals. internal/cli and cmd/postrider test the verbs in
// process.
func TestCommandLineIsAProcess(t *testing.T) {
	t.Parallel()
	db := migratedDatabase(t)
	n := startNode(t, db)
	env := append(n.cliEnv(), db.env()...)
	for _, row := range []struct {
		code                 int
		line, stdout, stderr string // regular expressions
	}{
		{0, "topic create orders", `(?m)^topic +orders$`, "^$"},
		{0, "--version", `^postrider \S+ go1\.\S+ \w+/\w+\n$`, "^$"},
		{0, "help topic create", `Usage: postrider topic create`, "^$"},
		{0, "apikey create billing --scope publish --database-url " + db.url, `(?m)^prk_\S+$`, "^$"},
		{1, "topic show none", "^$", `^postrider: topic "none" does not exist\n$`},
		{2, "topic delete orders", "^$", "add --yes"},
	} {
		r := postrider(t, env, strings.Fields(row.line)...)
		require.Equal(t, row.code, r.code, "%s: %s%s", row.line, r.stdout, r.stderr)
		require.Regexp(t, row.stdout, r.stdout, row.line)
		require.Regexp(t, row.stderr, r.stderr, row.line)
	}
	require.Equal(t, "cli postrider", one[string](db,
		"SELECT string_agg(DISTINCT actor, ' ' ORDER BY actor) FROM postrider.audit WHERE actor <> 'admin'"))

	postrider(t, env, "subscription", "create", "orders", "billing", "--endpoint", "http://127.0.0.1:1/",
		"--endpoint-validation", "skip")
	for line, want := range map[string]string{
		"topic show or": "orders\n", "subscription show orders ": "billing\n", "policy show ga-202": "ga-2021\nga-2026\n",
		"subscription show none ": "",
	} {
		line = "postrider " + line
		r := postrider(t, append(env, "COMP_LINE="+line, "COMP_POINT="+strconv.Itoa(len(line))))
		require.Equal(t, want, r.stdout, "%s: %s", line, r.stderr)
	}

	piped := exec.CommandContext(t.Context(), program, "publish", "orders", "-o", "json")
	piped.Env = env
	piped.Stdin = strings.NewReader("[" + demoEvent("1", "2026-01-01T00:00:00Z") + "]")
	out, err := piped.Output()
	require.NoError(t, err)
	require.Contains(t, string(out), `"accepted": 1`)

	tail := startProcess(t, n.cliEnv(), program, "tail")
	eventually(t, "it follows", func() bool { return strings.Contains(tail.stderr.String(), "Following") })
	require.Zero(t, tail.stop(), "a signal ends it in good order")
}

func TestCompletions(t *testing.T) {
	t.Parallel()
	for line, want := range map[string][]string{
		"topic cr": {"create\n"}, "subscription create orders billing --endpoint x --adv": {"--advanced-filter\n"},
		"topic list -o ": {"json\n", "table\n", "yaml\n"}, "completion ": {"bash\n", "fish\n", "zsh\n"},
		"publish --key ": nil, "subscription create --source": nil, // of the Azure CLI, and rejected
	} {
		line = "postrider " + line
		r := postrider(t, []string{"COMP_LINE=" + line, "COMP_POINT=" + strconv.Itoa(len(line))})
		require.Zero(t, r.code, r.stderr)
		require.Equal(t, want, slices.Sorted(strings.Lines(r.stdout)), line)
	}
	for _, shell := range []string{"zsh", "fish"} {
		require.Contains(t, postrider(t, nil, "completion", shell).stdout, program)
	}
	sourced := startProcess(t, nil, "/bin/bash", "--norc", "-c", `source <("$0" completion bash); complete -p postrider`,
		program)
	require.Zero(t, sourced.wait(), sourced.stderr.String())
	require.Equal(t, "complete -o bashdefault -o default -C '"+program+"' postrider\n", sourced.stdout.String())
}
