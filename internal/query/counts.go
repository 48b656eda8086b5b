package query

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/internal/postgres"
	"postrider/policy"
)

// Minute has the counts of one minute, or of a step of several minutes.
type Minute struct {
	At                                                                    time.Time
	Published, Matched, Attempts, Failures, Delivered, DeadLetters, Ended int64
	// FirstAttempt is how many of Delivered needed one attempt.
	FirstAttempt int64
	// Outcomes counts the attempts by outcome.
	Outcomes map[string]int64
	// Latency is that of the attempts.
	Latency Latency
}

// latencyBuckets is the number of buckets for the latency of attempts.
const latencyBuckets = 14

// Latency has the number of attempts in each bucket of postrider.delivery_counts.
type Latency [latencyBuckets]int64

// latencyBounds are the ends of the buckets, in milliseconds; the last one has none.
var latencyBounds = [latencyBuckets - 1]float64{5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000, 60000}

// Quantile returns the q-quantile of the latency in milliseconds, interpolated within its bucket; false without
// attempts.
func (l *Latency) Quantile(q float64) (ms float64, ok bool) {
	var all, below int64
	for _, n := range l {
		all += n
	}
	rank := q * float64(all)
	for i, n := range l {
		if n > 0 && float64(below+n) >= rank {
			return l.within(i, (rank-float64(below))/float64(n)), true
		}
		below += n
	}
	return 0, false
}

// within returns the latency at a share of bucket i.
func (l *Latency) within(i int, share float64) float64 {
	if i == len(latencyBounds) {
		return latencyBounds[i-1]
	}
	from := 0.0
	if i > 0 {
		from = latencyBounds[i-1]
	}
	return from + share*(latencyBounds[i]-from)
}

// Counted is a count with the name of what was counted, such as an outcome.
type Counted struct {
	Name  string
	Count int64
}

// Counts has the counts of a span of time.
type Counts struct {
	// Minutes are all of the span, the oldest first. The last one has not ended.
	Minutes []Minute
	// Total is the sum of all; At is not set.
	Total    Minute
	Outcomes []Counted // of attempts, the most frequent first
	Reasons  []Counted // of dead letters
}

// countsFilter selects counts; "" = of all.
type countsFilter struct{ Topic, Subscription string }

// counted is a row of counts.sql.
type counted struct {
	At             time.Time
	Kind, Detail   string
	Count          int64
	LatencyBuckets []int64
}

// source chooses the counts to add up for a step: the sums of rollup_sums, or those by the minute, and how many minutes
// each covers.
func (f *countsFilter) source(step time.Duration) (sums bool, grain int) {
	switch {
	case f.Subscription != "" && step >= time.Hour:
		return true, 60
	case f.Subscription != "":
		return false, 1
	case step >= 15*time.Minute:
		return true, 15
	default:
		return f.Topic == "", 1
	}
}

// readCounts reads the counts of a span up to now, which is a whole number of steps. A step is a number of minutes, or
// whole hours.
func readCounts(r *reading, f countsFilter, span, step time.Duration) *Counts {
	args := pgx.NamedArgs{
		"topic": given(f.Topic), "subscription": given(f.Subscription), "step": int(step / time.Minute),
	}
	scope := row[struct {
		Last                  time.Time
		Topics, Subscriptions []int64
	}](r, "counts_scope", args)
	from := scope.Last.Add(-span)
	args["from"], args["topics"], args["subscriptions"] = from, scope.Topics, scope.Subscriptions
	args["sums"], args["grain"] = f.source(step)
	return countsOf(rows[counted](r, "counts", args), from, step, int(span/step)+1)
}

// countsOf adds the rows to their steps. Charts need steps without counts too.
func countsOf(rows []counted, from time.Time, step time.Duration, steps int) *Counts {
	c := &Counts{Minutes: make([]Minute, steps), Total: Minute{Outcomes: map[string]int64{}}}
	for i := range c.Minutes {
		c.Minutes[i].At, c.Minutes[i].Outcomes = from.Add(time.Duration(i)*step), map[string]int64{}
	}
	reasons := map[string]int64{}
	for i := range rows {
		r := &rows[i]
		c.Minutes[min(max(0, int(r.At.Sub(from)/step)), steps-1)].add(r)
		c.Total.add(r)
		if r.Kind == "dead_lettered" {
			reasons[r.Detail] += r.Count
		}
	}
	c.Outcomes, c.Reasons = byCount(c.Total.Outcomes), byCount(reasons)
	return c
}

func (m *Minute) add(r *counted) {
	switch r.Kind {
	case "published":
		m.Published += r.Count
	case "matched":
		m.Matched += r.Count
	case "attempt":
		m.Attempts += r.Count
		m.Outcomes[r.Detail] += r.Count
		m.Latency.add(r.LatencyBuckets)
		if !policy.Outcome(r.Detail).Success() {
			m.Failures += r.Count
		}
	case "delivered":
		m.Delivered, m.Ended = m.Delivered+r.Count, m.Ended+r.Count
		if r.Detail == "FirstAttempt" {
			m.FirstAttempt += r.Count
		}
	case "dead_lettered":
		m.DeadLetters, m.Ended = m.DeadLetters+r.Count, m.Ended+r.Count
	case "dropped":
		m.Ended += r.Count
	}
}

func (l *Latency) add(buckets []int64) {
	for i, n := range buckets {
		l[i] += n
	}
}

// Plus adds up two latencies. Either may be nil.
func (l *Latency) Plus(other *Latency) *Latency {
	all := &Latency{}
	for _, part := range []*Latency{l, other} {
		if part != nil {
			all.add(part[:])
		}
	}
	return all
}

// Distribution returns the latency with bounds in nanoseconds. Its sum takes each attempt for the middle of its bucket.
func (l *Latency) Distribution() postgres.Distribution {
	d := postgres.Distribution{Bounds: make([]int64, len(latencyBounds)), Counts: l[:]}
	for i, bound := range latencyBounds {
		d.Bounds[i] = int64(bound) * int64(time.Millisecond)
	}
	for i, n := range l {
		d.Sum += n * int64(l.within(i, 0.5)*float64(time.Millisecond))
	}
	return d
}

// byCount sorts counts, the most frequent first.
func byCount(counts map[string]int64) []Counted {
	list := make([]Counted, 0, len(counts))
	for name, n := range counts {
		list = append(list, Counted{name, n})
	}
	slices.SortFunc(list, func(a, b Counted) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Name, b.Name))
	})
	return list
}
