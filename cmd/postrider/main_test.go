package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"postrider/pgdev"
)

// program is the binary under test. Most tests here drive it as a user would: as a process, over HTTP, by SQL and by signals.
var program string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	if url := os.Getenv(applicationEnv); url != "" {
		return runApplication(url)
	}
	dir, err := os.MkdirTemp("", "postrider-cmd-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	program = filepath.Join(dir, "postrider")
	// Without -race, also when the tests have it: what is timed here is the product.
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", program, ".").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the program: %v\n%s", err, out)
		return 1
	}
	// Most tests here wait: for a database that restarts, for a node to be called dead. With as many at once as there are CPUs, which is the
	// default, two CPUs would be idle half of the time. The command line has the last word.
	if !slices.ContainsFunc(os.Args, func(arg string) bool { return strings.HasPrefix(arg, "-test.parallel") }) {
		_ = flag.Set("test.parallel", "4")
	}
	return pgdev.RunTests(m, nil)
}
