package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// fromRoot reads a file of the repository.
func fromRoot(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", name))
	require.NoError(t, err)
	return string(raw)
}

var (
	fence        = regexp.MustCompile("(?ms)^```[a-z ]*\n(.*?)^```")
	explainShown = regexp.MustCompile(`(?m)^\$ bin/postrider (policy explain .*)$`)
)

var caller3am = regexp.MustCompile("`(postrider\\(\\) \\{ .* \\})`")

// The shell function of docs/operate/troubleshoot.md passes each word unchanged.
func TestVerbsRunWhereTheNodesRun(t *testing.T) {
	t.Parallel()
	bash := tool(t, "bash", "bash")
	callers := caller3am.FindAllStringSubmatch(fromRoot(t, "docs/operate/troubleshoot.md"), -1)
	require.Len(t, callers, 3)
	for _, caller := range callers {
		out, err := exec.Command(bash, "-c",
			`say() { printf '%s\n' "$@"; }; kubectl() { say "$@"; }; docker() { say "$@"; }; systemd-run() { say "$@"; }
`+caller[1]+`
postrider sql "select 1"`).CombinedOutput()
		require.NoError(t, err, caller[1])
		require.Regexp(t, `(?s)\n(/usr/local/bin/)?postrider\nsql\nselect 1\n$`, string(out), caller[1])
	}
}

func TestScriptParses(t *testing.T) {
	t.Parallel()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash here")
	}
	out, err := exec.Command(bash, "-n", filepath.Join("..", ".ci", "run")).CombinedOutput()
	require.NoError(t, err, string(out))
}

// What the README shows of policy explain is what it prints, but for the width of the columns; "…" stands for lines
// left out.
func TestReadmeShowsWhatPolicyExplainPrints(t *testing.T) {
	t.Parallel()
	shown := 0
	for _, block := range fence.FindAllStringSubmatch(fromRoot(t, "README.md"), -1) {
		command := explainShown.FindStringSubmatch(block[1])
		if command == nil {
			continue
		}
		shown++
		r := postrider(t, nil, strings.Fields(command[1])...)
		require.Zero(t, r.code, r.stderr)
		printed := words(r.stdout)
		for _, line := range words(block[1]) {
			if line != "…" && !strings.HasPrefix(line, "$ ") {
				require.Contains(t, printed, line)
			}
		}
	}
	require.NotZero(t, shown)
}

// words are the lines of a text with one space between their words.
func words(text string) (lines []string) {
	for line := range strings.Lines(text) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return lines
}
