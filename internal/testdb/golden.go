package testdb

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
)

// Update is set by -update: tests record what they read instead of comparing it.
var Update = flag.Bool("update", false, "rewrite the golden files")

// Golden compares a text with the golden file of this name in testdata, or writes that file with the flag -update.
func Golden(tb testing.TB, name, text string) {
	tb.Helper()
	file := filepath.Join("testdata", name)
	if *Update {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			tb.Fatalf("testdb: write a golden file: %v", err)
		}
		return
	}
	golden, err := os.ReadFile(file)
	if err != nil {
		tb.Fatalf("testdb: read a golden file: %v", err)
	}
	if string(golden) != text {
		tb.Errorf("%s differs: run this test with -update, and review the change", file)
	}
}
