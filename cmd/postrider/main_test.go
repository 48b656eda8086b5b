package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"postrider/pgdev"
)

// program is the binary under test. Most tests here drive it as a user would: as a process, over HTTP, by SQL and by signals.
var program string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
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
	return pgdev.RunTests(m, nil)
}
