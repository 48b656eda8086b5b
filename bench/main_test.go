package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// roleVariable turns this test binary into one of the programs that tests start.
const roleVariable = "BENCH_TEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) == "bench" {
		main()
	}
	os.Exit(m.Run())
}

// bench runs this program.
func bench(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, problems strings.Builder
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), roleVariable+"=bench")
	cmd.Stdout, cmd.Stderr = &out, &problems
	_ = cmd.Run()
	return out.String(), problems.String(), cmd.ProcessState.ExitCode()
}

func TestWrongUsage(t *testing.T) {
	t.Parallel()
	for args, says := range map[string]string{
		"speed":                             "unexpected argument speed",
		"throughput --binary /none":         "--binary /none: there is no such file",
		"throughput --duration 10ms":        "--duration 10ms: must be 1s or more",
		"throughput -o xml":                 `--output must be one of "table","json"`,
		"publish --events-per-request 2000": "bench publish: a request has 1048576 bytes at most",
		"backlog --nodes 0":                 "--nodes 0: must be 1 or more",
		"failing --percent 100":             "--percent 100: must be 0 to 99",
		"backlog --waits long":              `--waits must be one of "paused","scheduled"`,
		"rates --nodes 1 --kill":            "--kill requires at least 2 --nodes",
		"held --kind lock":                  `--kind must be one of "snapshot","queries","slot","none"`,
		"noisy --topics 2000":               "there must be an event subscription for each topic",
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			verb, flags, _ := strings.Cut(args, " ")
			_, stderr, code := bench(t, append([]string{verb, "--binary", os.Args[0]}, strings.Fields(flags)...)...)
			require.Equal(t, 2, code, stderr)
			require.Contains(t, stderr, says)
		})
	}
}

// TestThroughput measures a real build for a second, and River.
func TestThroughput(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds and runs the whole program")
	}
	binary := filepath.Join(t.TempDir(), "postrider")
	build := exec.CommandContext(t.Context(), "go", "build", "-C", "..", "-ldflags=-s -w", "-o", binary, "./cmd/postrider")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	stdout, stderr, code := bench(t, "throughput", "--binary", binary, "--duration", "1s", "--rate", "50", "--nodes", "2",
		"-o", "json")
	require.Zero(t, code, stderr)
	var report report
	require.NoError(t, json.Unmarshal([]byte(stdout), &report))
	require.Equal(t, 2, report.Nodes)
	require.EqualValues(t, 50, report.Published)
	require.EqualValues(t, 50, report.Delivered)
	require.EqualValues(t, 50, report.Received)
	require.Zero(t, report.Lost+report.Duplicates+report.Changed)
	require.Positive(t, report.LatencyMs["p95"])
	for _, process := range []string{"service", "postgres"} {
		require.Contains(t, report.CPUSecondsPer10k, process)
	}
	require.Contains(t, stderr, "throughput: starting", "progress is not in the report")

	_, stderr, code = bench(t, "river", "--binary", binary, "--duration", "1s", "--jobs", "20")
	require.Equal(t, 2, code, stderr)
	require.Contains(t, stderr, "all 20 jobs ended before 1s were over: use more --jobs")
}
