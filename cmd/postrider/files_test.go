package main

import (
	"encoding/json"
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
	raw, err := os.ReadFile(filepath.Join("..", "..", name))
	require.NoError(t, err)
	return string(raw)
}

var (
	commandLine  = regexp.MustCompile(`(?m)^\s*(?:command:|CMD) (\[.*\])$`)
	variableName = regexp.MustCompile(`POSTRIDER_[A-Z_]+`)
	fence        = regexp.MustCompile("(?ms)^```[a-z ]*\n(.*?)^```")
	explainShown = regexp.MustCompile(`(?m)^\$ bin/postrider (policy explain .*)$`)
	makeCommand  = regexp.MustCompile(`(?m)^\s*(?:\$ )?make ([a-z-]+)`)
)

// The files that start the program are checked without Docker: a verb or flag that was renamed is found here.
func TestContainerFilesNameWhatExists(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		file     string
		has      []string // lines, without what is around them
		commands []string
	}{
		{
			"compose.yaml",
			[]string{"services:", "  postgres:", "  migrate:", "  postrider: &node", "  postrider-2:", "  sink:", "        " +
				"condition: service_completed_successfully"},
			[]string{"migrate up", "serve", "sink --listen 0.0.0.0:7481"},
		},
		{
			"Dockerfile",
			[]string{
				`ENTRYPOINT ["/usr/local/bin/postrider"]`, "USER nonroot:nonroot",
				"COPY --from=build --chown=65532:65532 /state /var/lib/postrider",
				`HEALTHCHECK --interval=5s --timeout=4s --start-period=30s CMD ["/usr/local/bin/postrider", "ready", "--live"]`,
			},
			[]string{"dev --listen 0.0.0.0:7480 --sink-listen 0.0.0.0:7481 --keep /var/lib/postrider/data", "serve"},
		},
	} {
		t.Run(row.file, func(t *testing.T) {
			t.Parallel()
			text := fromRoot(t, row.file)
			for _, line := range row.has {
				require.Contains(t, "\n"+text, "\n"+line+"\n")
			}
			var commands []string
			for _, match := range commandLine.FindAllStringSubmatch(text, -1) {
				var args []string
				require.NoError(t, json.Unmarshal([]byte(match[1]), &args))
				_, err := newParser(t).Parse(args)
				require.NoError(t, err, match[1])
				commands = append(commands, strings.Join(args, " "))
			}
			require.Equal(t, row.commands, commands)
			require.Subset(t, append(variables(t), ofTheImage...), variableName.FindAllString(text, -1))
		})
	}
}

// ofTheImage are the variables that compose builds it by; no flag reads them.
var ofTheImage = []string{"POSTRIDER_VERSION", "POSTRIDER_REVISION"}

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

// docs/operate/install.md promises it.
func TestEachFlagOfServeHasAVariable(t *testing.T) {
	t.Parallel()
	context, err := newParser(t).Parse([]string{"serve"})
	require.NoError(t, err)
	for _, flag := range context.Selected().Flags {
		require.NotEmpty(t, flag.Envs, "--%s", flag.Name)
	}
}

// variables are the environment variables that some flag reads.
func variables(t *testing.T) (names []string) {
	t.Helper()
	for _, leaf := range newParser(t).Model.Leaves(false) {
		for _, flag := range leaf.Flags {
			names = append(names, flag.Envs...)
		}
	}
	require.Contains(t, names, "POSTRIDER_DATABASE_URL")
	return names
}

func TestScriptParses(t *testing.T) {
	t.Parallel()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash here")
	}
	out, err := exec.Command(bash, "-n", filepath.Join("..", "..", ".ci", "run")).CombinedOutput()
	require.NoError(t, err, string(out))
}

func TestReadmeNamesTargetsThatExist(t *testing.T) {
	t.Parallel()
	makefile := fromRoot(t, "Makefile")
	named := map[string]bool{}
	for _, block := range fence.FindAllStringSubmatch(fromRoot(t, "README.md"), -1) {
		for _, match := range makeCommand.FindAllStringSubmatch(block[1], -1) {
			named[match[1]] = true
			require.Regexp(t, `(?m)^`+match[1]+`:`, makefile, "make %s", match[1])
		}
	}
	require.True(t, named["dev"], "the README says how to try it")
	require.True(t, named["test"], "the README says how to test it")
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
