//go:build unix

package e2e

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/ledger"
	"postrider/jobs/publish"
)

// requireNothingLost holds the ledgers against each other, prints what the kills met, and holds the tables against what
// is promised of them.
func (f *faultFleet) requireNothingLost() {
	f.t.Helper()
	require.NoError(f.t, f.watch.failed)
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
	f.requireReported(v)
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

// requireReported: a kill between the commit and the responses leaves stored events without acknowledgment. Without
// any, the point would be at the wrong place.
func (f *faultFleet) requireReported(v ledger.Verdict) {
	f.t.Helper()
	for _, row := range f.rows(v) {
		if row.point == publish.PointPublishAfter {
			require.NotZero(f.t, row.withoutResponse, "stored without a response")
		}
	}
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

// faultRow is what the kills at one point met.
type faultRow struct {
	point            string
	kills, events    int
	lost, duplicates int
	withoutResponse  int // stored, but the publisher got no response
	unfinished       []int
	next, takenUp    []time.Duration
}

func (f *faultFleet) rows(v ledger.Verdict) []*faultRow {
	rows, of := map[string]*faultRow{}, map[int32]*faultRow{}
	for _, k := range f.kills {
		row := rows[k.point]
		if row == nil {
			row = &faultRow{point: k.point}
			rows[k.point] = row
		}
		row.kills++
		row.unfinished = append(row.unfinished, k.unfinished)
		row.next = append(row.next, k.next)
		if k.takenUp > 0 {
			row.takenUp = append(row.takenUp, k.takenUp)
		}
		of[k.period] = row
	}
	for period, events := range f.load.inPeriod {
		if row := of[period]; row != nil {
			row.events += events
		}
	}
	for _, name := range v.Lost {
		if row := of[periodOf(name)]; row != nil {
			row.lost++
		}
	}
	for _, name := range v.Unacknowledged {
		if row := of[periodOf(name)]; row != nil {
			row.withoutResponse++
		}
	}
	for period, n := range f.sink.duplicates {
		if row := of[period]; row != nil {
			row.duplicates += n
		}
	}
	var list []*faultRow
	for _, row := range rows {
		list = append(list, row)
	}
	slices.SortFunc(list, func(a, b *faultRow) int { return cmp.Compare(a.point, b.point) })
	return list
}

// periodOf reads when an event was published: before which kill.
func periodOf(name string) (period int32) {
	_, id, _ := strings.Cut(name, "/")
	_, _ = fmt.Sscanf(id, "k%d-", &period) // 0 where there is none
	return period
}

// report is the table of a campaign.
func (f *faultFleet) report(v ledger.Verdict) string {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "killed at\tkills\tevents\tunfinished min\tmedian\tlost\tduplicates\tunanswered\tnext delivery "+
		"s median\tmax\ttaken up s median\tmax\t")
	for _, r := range f.rows(v) {
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t%s\t%s\t%s\t\n", r.point, r.kills, r.events,
			slices.Min(r.unfinished), median(r.unfinished), r.lost, r.duplicates, r.withoutResponse, inSeconds(median(r.next)),
			inSeconds(slices.Max(r.next)), inSeconds(median(r.takenUp)), inSeconds(longest(r.takenUp)))
	}
	_ = table.Flush()
	fmt.Fprintf(&text,
		"%d kills in %s; %d events acknowledged, %d deliveries expected; %d received, %d of them duplicates "+
			"(the dead had %d in hand); %d lost, %d changed\n",
		len(f.kills), time.Since(f.began).Round(time.Second), f.load.acked.Load(), v.Published, v.Received, v.Duplicates,
		f.inHand(), len(v.Lost), len(v.Changed))
	return text.String()
}

func median[T cmp.Ordered](values []T) (middle T) {
	if len(values) == 0 {
		return middle
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

func longest(values []time.Duration) time.Duration {
	if len(values) == 0 {
		return 0
	}
	return slices.Max(values)
}

func inSeconds(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", d.Seconds())
}
