package e2e

import "flag"

var faults = flag.Bool("faults", false, "run the long fault tests")
