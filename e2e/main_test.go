package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"postrider/internal/pgdev"
	"postrider/internal/testdb"
	"postrider/internal/testnode"
)

// program is the binary under test. Most tests here drive it as a user would: as a process, over HTTP, by SQL and by
// signals.
var program string

// stripped leaves out what debuggers read: a quarter of the CPU that linking takes. Nothing that runs is another.
const stripped = "-ldflags=-s -w"

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	if slices.ContainsFunc(os.Args, func(arg string) bool { return strings.HasPrefix(arg, "-test.list=") }) {
		return m.Run() // it runs no test
	}
	if config := os.Getenv(natsVariable); config != "" {
		return serveNATS(config)
	}
	dir, err := os.MkdirTemp("", "postrider-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	program = filepath.Join(dir, "postrider")
	pgdev.TempInMemory() // but for the program, 50 MB that a run which is killed leaves behind
	if out, err := buildProgram(program); err != nil {
		fmt.Fprintf(os.Stderr, "build the program: %v\n%s", err, out)
		return 1
	}
	// Most tests here wait: for a database that restarts, for a node to be called dead. With as many at once as there are
	// CPUs, which is the default, two CPUs would be idle half of the time. The command line has the last word.
	if !slices.ContainsFunc(os.Args, func(arg string) bool { return strings.HasPrefix(arg, "-test.parallel") }) {
		_ = flag.Set("test.parallel", "4")
	}
	return testdb.Run(m, testdb.Template{Fill: migrate})
}

// buildProgram builds the program as `make build` does, so that both share the build cache.
func buildProgram(file string, flags ...string) (out []byte, err error) {
	return buildFromRoot("./cmd/postrider", file, flags...)
}

// buildFromRoot builds a program of the main module. file is an absolute path.
func buildFromRoot(folder, file string, flags ...string) (out []byte, err error) {
	args := append([]string{"build", "-C", "..", "-trimpath", "-buildvcs=false", stripped, "-o", file}, flags...)
	build := exec.Command("go", append(args, folder)...)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	return build.CombinedOutput()
}

// migrate fills the template of migratedDatabase: by the program, as a user does, and then the partitions that a node
// makes when it starts.
func migrate(ctx context.Context, url string) error {
	up := exec.CommandContext(ctx, program, "migrate", "up")
	up.Env = []string{"POSTRIDER_DATABASE_URL=" + url}
	if out, err := up.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return testnode.Migrate(ctx, url)
}

var faults = flag.Bool("faults", false, "run the long fault tests")

// onlyWithFaults skips a test that make e2e has no time for.
func onlyWithFaults(t *testing.T) {
	t.Helper()
	if !*faults {
		t.Skip("a long fault: make test-faults")
	}
}
