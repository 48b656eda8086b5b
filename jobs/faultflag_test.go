package jobs_test

import "flag"

var faults = flag.Bool("faults", false, "run the long fault tests")
