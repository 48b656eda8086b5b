package display

import (
	"time"

	"postrider/internal/query"
)

// Share is a part of a whole, with the width of its bar in percent.
type Share struct {
	Name, Href string
	Count      int64
	Percent    int
	Here       bool // the page is filtered by this value
}

// SharesOf are the counts of a list, each with the page that href returns.
func SharesOf(counts []query.Counted, href func(name string) string) []Share {
	var most int64 = 1
	for _, c := range counts {
		most = max(most, c.Count)
	}
	shares := make([]Share, len(counts))
	for i, c := range counts {
		shares[i] = Share{Name: c.Name, Href: href(c.Name), Count: c.Count, Percent: int((100*c.Count + most - 1) / most)}
	}
	return shares
}

var latencyNames = []string{
	"< 5 ms", "< 10 ms", "< 25 ms", "< 50 ms", "< 100 ms", "< 250 ms", "< 500 ms", "< 1 s", "< 2.5 s", "< 5 s", "< 10 s",
	"< 30 s", "< 60 s", "longer",
}

// LatencyShares is the distribution of durations. It leaves out the empty buckets at both ends.
func LatencyShares(l *query.Latency) []Share {
	var counts []query.Counted
	last := 0
	for i, n := range l {
		if n > 0 {
			last = i + 1
		}
		if n > 0 || len(counts) > 0 {
			counts = append(counts, query.Counted{Name: latencyNames[i], Count: n})
		}
	}
	counts = counts[:max(0, len(counts)-len(l)+last)]
	return SharesOf(counts, func(string) string { return "" })
}

// Progress is the progress of an operation.
type Progress struct {
	Running bool
	Seen    int64
	Percent int
	Took    string
	Rate    string // per second; "" if unknown
	Left    string // the time until its end; "" if unknown
}

// ProgressOf is the progress at the time now, or at its end.
func ProgressOf(o query.Operation, now time.Time) (pr Progress) {
	pr.Running, pr.Seen = o.State == query.OperationRunning, o.Done+o.Skipped+o.Failed
	if o.Matched != nil && !o.Counting {
		pr.Percent = int(100 * min(pr.Seen, *o.Matched) / max(1, *o.Matched))
	}
	if o.FinishedAt != nil {
		now = *o.FinishedAt
	}
	took := max(0, now.Sub(o.CreatedAt))
	pr.Took = Span(took)
	if pr.Seen == 0 || took < time.Second {
		return pr
	}
	rate := float64(pr.Seen) / took.Seconds()
	pr.Rate = PerSecond(rate)
	if pr.Running && o.Matched != nil && *o.Matched > pr.Seen {
		pr.Left = Span(time.Duration(float64(*o.Matched-pr.Seen) / rate * float64(time.Second)))
	}
	return pr
}
