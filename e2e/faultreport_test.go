//go:build unix

package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/ledger"
	"postrider/jobs/publish"
)

// requireNothingLost holds the ledgers against each other, prints what the kills met, and holds the tables against what
// is promised of them.
func (f *faultFleet) requireNothingLost() {
	f.t.Helper()
	v := f.load.compare(f.t, f.sink)
	fmt.Fprintf(f.out, "\n%s\n", f.report(v))
	require.NotZero(f.t, v.Published)
	require.Empty(f.t, v.Lost, "acknowledged and never received")
	require.Empty(f.t, v.Changed, "received with other bytes than were published")
	requireEnded(f.t, f.db, f.load.acked.Load())
	reruns := map[string]bool{}
	for _, name := range one[[]string](f.db, rerunQuery) {
		reruns[name] = true
	}
	for _, name := range f.sink.twice {
		require.True(f.t, reruns[name], "%s was received twice, and is not marked as made again", name)
	}
	f.requireUnanswered(v)
	if f.strict {
		require.LessOrEqual(f.t, v.Duplicates, f.inHand(), "received again: no more than the dead had in hand")
	}
}

func (f *faultFleet) inHand() (sum int) {
	for _, k := range f.kills {
		sum += k.inHand
	}
	return sum
}

// requireUnanswered: a kill between the commit and the responses leaves stored events without acknowledgment. Without
// any, the point would be at the wrong place.
func (f *faultFleet) requireUnanswered(v ledger.Verdict) {
	f.t.Helper()
	at := map[int32]bool{}
	for _, k := range f.kills {
		if k.point == publish.PointPublishAfter {
			at[k.period] = true
		}
	}
	found := slices.ContainsFunc(v.Unacknowledged, func(name string) bool { return at[periodOf(name)] })
	require.Equal(f.t, len(at) > 0, found, "stored without a response")
}

// periodOf reads when an event was published: before which kill.
func periodOf(name string) (period int32) {
	_, id, _ := strings.Cut(name, "/")
	_, _ = fmt.Sscanf(id, "k%d-", &period) // 0 where there is none
	return period
}

// tell prints the progress of the campaign until done is called.
func (f *faultFleet) tell(limit time.Duration) (done func()) {
	stop := make(chan struct{})
	go func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Second):
			}
			fmt.Fprintf(os.Stderr, "%s of %s: %d kills, %d events acknowledged, %d deliveries unfinished\n",
				time.Since(f.began).Round(time.Second), limit, f.period.Load(), f.load.acked.Load(), f.watch.unfinished.Load())
		}
	}()
	return func() { close(stop) }
}

// report is the result of a campaign.
func (f *faultFleet) report(v ledger.Verdict) string {
	var next, takenUp []time.Duration
	for _, k := range f.kills {
		next, takenUp = append(next, k.next), append(takenUp, k.takenUp)
	}
	took := time.Since(f.began).Round(time.Second)
	return fmt.Sprintf("%d kills in %s; %d events acknowledged, %d deliveries expected; %d received, %d duplicates "+
		"(the dead had %d in hand); %d lost, %d changed; %d stored without a response\nfrom a kill to the next delivery: "+
		"%s; until nothing was left to the dead: %s", len(f.kills), took, f.load.acked.Load(),
		v.Published, v.Received, v.Duplicates, f.inHand(), len(v.Lost), len(v.Changed), len(v.Unacknowledged), spread(next),
		spread(takenUp))
}

// spread is the median and the longest of some times.
func spread(times []time.Duration) string {
	if len(times) == 0 {
		return "no kill"
	}
	slices.Sort(times)
	return fmt.Sprintf("%.1f s, at most %.1f s", times[len(times)/2].Seconds(), times[len(times)-1].Seconds())
}
