package e2e

import (
	"os/exec"
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
	page := fromRoot(t, "docs/guides/command-line.md")
	for _, row := range []struct {
		code                 int
		line, stdout, stderr string // regular expressions
	}{
		{0, "topic create orders", `(?m)^topic +orders$`, "^$"},
		{0, "--version", `^postrider \S+ go1\.\S+ \w+/\w+\n$`, "^$"},
		{0, "version -o json", `"platform":"`, "^$"},
		{0, "apikey create billing --scope publish", `(?m)^prk_\S+$`, "^$"},
		{1, "topic show none", "^$", `^postrider: topic "none" does not exist\n$`},
		{1, "policy explain none", "^$", `"none" does not exist`},
		{2, "topic delete orders", "^$", "add --yes"},
		{2, "version --loud", "^$", "unknown flag --loud"},
		{2, "sql", "^$", "<statement>"},
		{2, "topic list --url ftp://x", "^$", "not a URL"},
	} {
		require.Contains(t, page, "\n| "+string(rune('0'+row.code))+" | ")
		r := postrider(t, env, strings.Fields(row.line)...)
		require.Equal(t, row.code, r.code, "%s: %s%s", row.line, r.stdout, r.stderr)
		require.Regexp(t, row.stdout, r.stdout, row.line)
		require.Regexp(t, row.stderr, r.stderr, row.line)
		require.NotContains(t, r.stderr, "goroutine")
	}
	require.Equal(t, postrider(t, nil, "--version").stdout, postrider(t, nil, "version").stdout)
	require.Equal(t, postrider(t, nil, "topic", "create", "--help").stdout,
		postrider(t, nil, "help", "topic", "create").stdout)
	require.Equal(t, "cli postrider", one[string](db,
		"SELECT string_agg(DISTINCT actor, ' ' ORDER BY actor) FROM postrider.audit WHERE actor <> 'admin'"))

	piped := exec.CommandContext(t.Context(), program, "publish", "orders", "-o", "json")
	piped.Env = env
	piped.Stdin = strings.NewReader(`{"id":"1","eventType":"T","subject":"s","eventTime":"2026-01-01T00:00:00Z",` +
		`"dataVersion":"1","data":{}}`)
	out, err := piped.Output()
	require.NoError(t, err)
	require.Contains(t, string(out), `"accepted": 1`)

	tail := startProcess(t, n.cliEnv(), program, "tail")
	eventually(t, "it follows", func() bool { return strings.Contains(tail.stderr.String(), "Following") })
	code := tail.stop()
	require.Zero(t, code, "a signal ends it in good order")
}
