package query

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/postgres"
)

var (
	meterTotals   = sqlFile("meter_totals.sql")
	meterBacklogs = sqlFile("meter_backlogs.sql")
	meterHeld     = sqlFile("meter_held.sql")
	meterVitals   = sqlFile("meter_vitals.sql")
)

// metered is a row of meterTotals.
type metered struct {
	Topic, Subscription, Kind, Detail string
	Over                              bool
	Count                             int64
	Latency                           []int64
	Settled                           time.Time
}

func (m *Meter) since() float64 { return time.Since(m.began).Seconds() }

// readTotals is exact: the counts of a minute are added once, when it is settled, and read again each time before.
func (m *Meter) readTotals(ctx context.Context, tx pgx.Tx) ([]Total, error) {
	var from *time.Time
	if !m.from.IsZero() {
		from = &m.from
	}
	rows, err := postgres.Rows[metered](ctx, tx, meterTotals, pgx.NamedArgs{"from": from, "since": m.since()})
	if err != nil {
		return nil, err
	}
	fresh := map[countKey]*Total{}
	for i := range rows {
		into := fresh
		if rows[i].Over {
			into = m.counts
		}
		m.add(into, &rows[i])
		m.from = rows[i].Settled
	}
	return m.sum(fresh), nil
}

// add adds a row to the counts of its names, or to those of Others.
func (m *Meter) add(into map[countKey]*Total, row *metered) {
	key := countKey{row.Topic, row.Subscription, row.Kind, row.Detail}
	if m.counts[key] == nil {
		if len(m.counts) >= m.limit {
			key = countKey{Others, Others, row.Kind, row.Detail}
		}
		if m.counts[key] == nil {
			m.counts[key] = newTotal(key)
		}
	}
	if into[key] == nil {
		into[key] = newTotal(key)
	}
	into[key].add(row.Count, row.latency())
}

// latency is that of attempts; nil for other kinds.
func (row *metered) latency() *Latency {
	if len(row.Latency) != latencyBuckets {
		return nil
	}
	return (*Latency)(row.Latency)
}

func newTotal(k countKey) *Total {
	return &Total{Topic: k.topic, Subscription: k.subscription, Kind: k.kind, Detail: k.detail}
}

func (t *Total) add(count int64, latency *Latency) {
	t.Count += count
	if latency != nil {
		t.Latency = t.Latency.Plus(latency)
	}
}

// sum adds up all minutes and sorts the totals.
func (m *Meter) sum(fresh map[countKey]*Total) []Total {
	all := make([]Total, 0, len(m.counts))
	for key, over := range m.counts {
		total := *newTotal(key)
		for _, part := range []*Total{over, fresh[key]} {
			if part != nil {
				total.add(part.Count, part.Latency)
			}
		}
		all = append(all, total)
	}
	slices.SortFunc(all, func(a, b Total) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Subscription, b.Subscription),
			cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Detail, b.Detail))
	})
	return all
}

// Plus adds up two latencies. Either may be nil.
func (l *Latency) Plus(other *Latency) *Latency {
	all := &Latency{}
	for _, part := range []*Latency{l, other} {
		if part == nil {
			continue
		}
		for i, n := range part {
			all[i] += n
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
