//go:build unix

package e2e

import (
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

var previous = flag.String("previous", "", "program of an earlier commit, which TestFaultUpgrade replaces by this one")

// While events are published, the schema is migrated and two nodes are replaced one after the other, as
// docs/operate/backup-and-upgrade.md says. Nothing is lost, and no request is repeated: a node that stops waits for its
// requests. Without -previous, the nodes restart with the same program. With -faults, they go back to the earlier
// program and forth again, nine times more.
func TestFaultUpgrade(t *testing.T) {
	t.Parallel()
	old, db, shape, rounds, events := program, emptyDatabase(t), gentleLoad, 1, int64(unfinishedAtKill)
	if *previous != "" {
		old = *previous
	}
	if *faults {
		shape, rounds, events = heavyLoad, 19, 5_000
	}
	up := startProcess(t, db.env(), old, "migrate", "up")
	require.Zero(t, up.wait(), up.stderr.String())
	f := newFleetOf(t, db, old, 2, shape)
	if *faults {
		f.out = os.Stderr
	}
	db.migrate()
	for round := range rounds {
		f.program = []string{program, old}[round%2]
		for slot := range f.slots {
			f.enoughUnfinished()
			f.replace(slot)
			accepted := f.load.acked.Load()
			eventually(t, "publishers continue", func() bool { return f.load.acked.Load() > accepted+events })
		}
	}
	f.enoughUnfinished()
	f.end(patience)
	f.requireNothingLost()
	require.Empty(t, f.sink.twice, "repeated requests")
	for _, n := range f.slots {
		require.Positive(t, one[int](db, "SELECT count(*) FROM postrider.delivery_attempts WHERE node = $1", n.name))
	}
}

// replace stops a node and starts the fleet's program in its place.
func (f *faultFleet) replace(slot int) {
	f.t.Helper()
	n := f.slots[slot]
	f.put(slot, nil) // publishers use the other one
	require.Zero(f.t, n.stop(), n.stderr.String())
	f.requireSound(n)
	f.start(slot, "")
}
