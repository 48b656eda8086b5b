//go:build unix

package e2e

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/jobs"
	"postrider/jobs/delivery"
	"postrider/jobs/publish"
	"postrider/jobs/queue"
)

var (
	gentleLoad = faultShape{clients: 4, events: 10, pause: 300 * time.Millisecond, routed: 80, every: 15, backlog: 5000}
	heavyLoad  = faultShape{clients: 8, events: 50, pause: 60 * time.Millisecond, routed: 200, every: 15, backlog: 5000}
)

// faultRounds are all points that a postgres.Failpoint is called with, in the order of the kills. Jobs are reclaimed
// after a kill that leaves some.
var faultRounds = map[string][]string{
	"publishing": {
		publish.PointPublishBefore, publish.PointPublishInside, publish.PointPublishAfter, publish.PointRoute,
		publish.PointCollect, jobs.PointFetched, delivery.PointClaim,
		jobs.PointPartition, jobs.PointDetach, jobs.PointDrop, queue.PointReclaim,
	},
	"delivering": {
		jobs.PointSent, jobs.PointResponded, delivery.PointRecordBefore, delivery.PointRecordInside,
		delivery.PointRecordAfter, delivery.PointDeadLetter,
		catalog.PointRelease, delivery.PointRefill, queue.PointPromote,
	},
}

func failpoints() []string { return slices.Concat(slices.Collect(maps.Values(faultRounds))...) }

// A node that is killed at any point loses nothing that it has acknowledged: see docs/internals/reliability.md.
// The kills follow one another while events are published; without a pause between them.
func TestFaultKillAtEachPoint(t *testing.T) {
	t.Parallel()
	for name, points := range faultRounds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFaultFleet(t, migratedDatabase(t), 2, gentleLoad)
			f.round(0, points)
			f.end(patience)
			f.requireNothingLost()
		})
	}
}

// The released program has no failpoints.
func TestFaultPointsAreNotInTheProgram(t *testing.T) {
	t.Parallel()
	armed, err := faultProgram()
	require.NoError(t, err)
	for path, has := range map[string]bool{program: false, armed: true} {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, has, bytes.Contains(text, []byte("POSTRIDER_FAILPOINT")), path)
	}
}

// The campaign: at least 500 kills, which takes some ten minutes.
func TestFaultCampaign(t *testing.T) { //nolint:paralleltest // it has the machine for itself
	onlyWithFaults(t)
	const kills, events, quiet = 500, 1_000_000, 20 * time.Minute // on a quiet machine
	_, db := ownCluster(t)
	f := newFaultFleet(t, db, 2, heavyLoad)
	f.out, f.strict = os.Stderr, true
	done := f.tell(quiet)
	defer done()
	points := slices.DeleteFunc(failpoints(), func(p string) bool { return p == queue.PointReclaim })
	for round := 0; len(f.kills) < kills || f.load.acked.Load() < events; round++ {
		rand.Shuffle(len(points), func(i, k int) { points[i], points[k] = points[k], points[i] })
		f.round(round%2, append(slices.Clone(points), queue.PointReclaim))
	}
	f.end(3 * time.Minute)
	f.requireNothingLost()
}

// A single node, killed and started again at once: no other node continues meanwhile.
func TestFaultKillOfTheOnlyNode(t *testing.T) { //nolint:paralleltest // it measures times
	onlyWithFaults(t)
	_, db := ownCluster(t)
	f := newFaultFleet(t, db, 1, gentleLoad)
	f.out, f.strict = os.Stderr, true
	f.round(0, slices.DeleteFunc(failpoints(), func(p string) bool { return p == queue.PointReclaim }))
	f.end(patience)
	f.requireNothingLost()
}
