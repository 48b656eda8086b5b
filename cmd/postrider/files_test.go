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

	"postrider/internal/metrics"
)

var (
	commandLine  = regexp.MustCompile(`(?m)^\s*(?:command:|CMD) (\[.*\])$`)
	variableName = regexp.MustCompile(`POSTRIDER_[A-Z_]+`)
	fence        = regexp.MustCompile("(?ms)^```[a-z ]*\n(.*?)^```")
	explained    = regexp.MustCompile(`(?m)^\$ postrider (policy explain .*)$`)
	metricName   = regexp.MustCompile(`postrider_[a-z_]+`)
	shellCaller  = regexp.MustCompile("`(postrider\\(\\) \\{ .* \\})`")
	alertRule    = regexp.MustCompile(`- alert: (\w+)`)
	makeCommand  = regexp.MustCompile(`(?m)^\s*(?:\$ )?make ([a-z0-9-]+)`)
)

// fromRoot reads a file of the repository.
func fromRoot(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", name))
	require.NoError(t, err)
	return string(raw)
}

// The files that start the program are checked without Docker: a verb or flag that was renamed is found here.
func TestContainerFilesNameWhatExists(t *testing.T) {
	t.Parallel()
	require.Contains(t, fromRoot(t, "Dockerfile"), "\nUSER nonroot:nonroot\n")
	for file, want := range map[string][]string{
		"compose.yaml": {"migrate up", "serve", "sink --listen 0.0.0.0:7481"},
		"Dockerfile": {
			"dev --listen=0.0.0.0:7480 --sink-listen=0.0.0.0:7481 --tls-listen=0.0.0.0:7483 --keep=/var/lib/postrider/data",
			"serve",
		},
	} {
		text := fromRoot(t, file)
		var commands []string
		for _, match := range commandLine.FindAllStringSubmatch(text, -1) {
			var args []string
			require.NoError(t, json.Unmarshal([]byte(match[1]), &args))
			_, err := newParser(t).Parse(args)
			require.NoError(t, err, match[1])
			commands = append(commands, strings.Join(args, " "))
		}
		require.Equal(t, want, commands)
		require.Subset(t, append(variables(t), ofTheImage...), variableName.FindAllString(text, -1))
	}
}

// ofTheImage are the variables that compose builds it by; no flag reads them.
var ofTheImage = []string{"POSTRIDER_VERSION", "POSTRIDER_REVISION"}

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
		command := explained.FindStringSubmatch(block[1])
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

const prometheusDir = "deploy/examples/prometheus/"

// The Grafana dashboard and the alerts name existing metrics only.
func TestNamedMetricsExist(t *testing.T) {
	t.Parallel()
	defined := map[string]bool{"postrider_internal": true}
	for _, m := range metrics.List() {
		defined[m.Name] = true
	}
	for _, file := range []string{
		prometheusDir + "alerts.yaml", prometheusDir + "alerts_test.yaml", "deploy/examples/grafana/postrider.json",
	} {
		names := metricName.FindAllString(fromRoot(t, file), -1)
		require.NotEmpty(t, names)
		for _, name := range names {
			base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count"), "_sum")
			require.True(t, defined[base] || defined[name], "%s names %s", file, name)
		}
	}
}

// Each alert has a test, and a runbook that it links.
func TestEachAlertHasItsRunbook(t *testing.T) {
	t.Parallel()
	rules, tests := fromRoot(t, prometheusDir+"alerts.yaml"), fromRoot(t, prometheusDir+"alerts_test.yaml")
	names := alertRule.FindAllStringSubmatch(rules, -1)
	require.NotEmpty(t, names)
	for _, name := range names {
		require.Contains(t, fromRoot(t, "docs/operate/monitor.md"), "\n### "+name[1]+"\n")
		require.Contains(t, rules, "https://docs.example.com/postrider/operate/monitor.md#"+strings.ToLower(name[1])+"\n")
		require.Contains(t, tests, name[1])
	}
}

// The shell functions of docs/operate/troubleshoot.md pass each word unchanged.
func TestVerbsRunWhereTheNodesRun(t *testing.T) {
	t.Parallel()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash here")
	}
	callers := shellCaller.FindAllStringSubmatch(fromRoot(t, "docs/operate/troubleshoot.md"), -1)
	require.Len(t, callers, 3)
	for _, caller := range callers {
		out, err := exec.CommandContext(t.Context(), bash, "-c",
			`say() { printf '%s\n' "$@"; }; kubectl() { say "$@"; }; docker() { say "$@"; }; systemd-run() { say "$@"; }
`+caller[1]+`
postrider sql "select 1"`).CombinedOutput()
		require.NoError(t, err, caller[1])
		require.Regexp(t, `(?s)\n(/usr/local/bin/)?postrider\nsql\nselect 1\n$`, string(out), caller[1])
	}
}
