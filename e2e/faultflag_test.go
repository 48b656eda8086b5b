package e2e

import (
	"flag"
	"testing"
)

var faults = flag.Bool("faults", false, "run the long fault tests")

// onlyWithFaults skips a test that make e2e has no time for.
func onlyWithFaults(t *testing.T) {
	t.Helper()
	if !*faults {
		t.Skip("a long fault: make test-faults")
	}
}
