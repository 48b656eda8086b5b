package query

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/internal/postgres"
)

const (
	// meterAge is how old a reading may be: a node queries the database at most every 5 s.
	meterAge = 5 * time.Second
	// meterKeys is the number of separate counts, five to ten for each event subscription; others are added up as Others.
	// meterBacklog is the same for backlogs. Both bound the size of a scrape.
	meterKeys, meterBacklog = 10_000, 1000
	// meterHeldLimit bounds the counts of deliveries on hold and of dead letters to export: 100,000 take 20 to 40 ms.
	meterHeldLimit = 100_000
	// Others names the topics and event subscriptions without separate counts. No name has parentheses.
	Others = "(others)"
)

// countKey are columns of postrider.delivery_counts. Topic and Subscription are "" if the kind has none.
type countKey struct{ Topic, Subscription, Kind, Detail string }

// Total is a count since this node began.
type Total struct {
	countKey
	Count int64
	// Latency is that of attempts; nil for other kinds.
	Latency *Latency
}

func (t Total) plus(count int64, latency *Latency) Total {
	if t.Count += count; latency != nil {
		t.Latency = t.Latency.Plus(latency)
	}
	return t
}

// Backlog is the number of pending deliveries of an event subscription.
type Backlog struct {
	Topic, Subscription string
	Pending             int64
	// OldestSeconds is the age of the oldest one; 0 if it is being finished at this moment.
	OldestSeconds float64
}

// MeteredRate is the rate limit of an event subscription's deliveries.
type MeteredRate struct {
	Topic, Subscription string
	// Own is the limit that is set; nil = the endpoint is closed.
	Own *float64
	// DrainSeconds is how long the backlog takes at this rate; nil without one.
	DrainSeconds *float64
	// TooLate: the time to live of some deliveries ends before.
	TooLate bool
}

// MeteredProblems is the number of failing problems of an event subscription; acknowledged ones do not count.
type MeteredProblems struct {
	Topic, Subscription string
	Failing             int64
}

// MeteredDeadLetters is the number of open dead letters of an event subscription, up to 10,000.
type MeteredDeadLetters struct {
	Topic, Subscription string
	Open                int64
}

// Vitals describe the state of all nodes together, and of the database.
type Vitals struct {
	// PendingDeliveries are pending; OldestPendingSeconds is the age of the oldest one.
	PendingDeliveries    int64
	OldestPendingSeconds float64
	// Nodes have written a heartbeat in the last 15 s. OldestBeatSeconds is the age of the oldest last heartbeat of any
	// node.
	Nodes             int
	OldestBeatSeconds float64
	// PartitionDays is for how many days from today on partitions exist.
	PartitionDays int
	// DeadJobs are the rows of the table of jobs that wait for a vacuum; DatabaseBytes is the size of the database.
	DeadJobs, DatabaseBytes int64
	// OldestTransactionSeconds is the age of the oldest open transaction that this role may see.
	OldestTransactionSeconds float64
	// AvailableDeliveries may be received by consumers, and LockedDeliveries were; up to 100,000 each.
	AvailableDeliveries, LockedDeliveries int64
	// UnexportedDeadLetters are the dead letters that are to be exported, up to 100,000; OldestExportSeconds is the age of
	// the oldest file that is being written, 0 without one.
	UnexportedDeadLetters int64
	OldestExportSeconds   float64
}

// Reading is a result of a Meter.
type Reading struct {
	Totals   []Total
	Backlogs []Backlog // the largest first
	Rates    []MeteredRate
	// Problems has the event subscriptions with problems, and DeadLetters those with open dead letters; up to 1,000 each.
	Problems    []MeteredProblems
	DeadLetters []MeteredDeadLetters
	// Held counts the deliveries on hold by hold, up to 100,000 of them.
	Held   []Counted
	Vitals Vitals
	// Took is the duration of the query.
	Took time.Duration
}

// Meter reads the counts of the whole service from the database, for metrics. Each node counts from its own start.
type Meter struct {
	db    *postgres.DB
	began time.Time
	limit int // of counts

	mu      sync.Mutex
	counts  map[countKey]Total // of settled minutes
	from    time.Time          // the first minute whose counts may still grow; zero before the first reading
	reading *Reading
	err     error
	at      time.Time
}

// NewMeter returns a meter that counts from the beginning of this minute on.
func NewMeter(db *postgres.DB) *Meter {
	return &Meter{db: db, began: time.Now(), limit: meterKeys, counts: map[countKey]Total{}}
}

// Read queries the database, or returns the last result or error if that is less than 5 s old. Concurrent callers wait
// for the same query. The result must not be changed.
func (m *Meter) Read(ctx context.Context) (*Reading, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.at.IsZero() && time.Since(m.at) < meterAge {
		return m.reading, m.err
	}
	began := time.Now()
	m.reading, m.err = m.read(ctx)
	if m.at = time.Now(); m.err == nil {
		m.reading.Took = m.at.Sub(began)
	}
	return m.reading, m.err
}

func (m *Meter) read(ctx context.Context) (*Reading, error) {
	var found Reading
	err := m.db.ReadAlways(ctx, "metrics", func(tx pgx.Tx) error {
		r := &reading{ctx: ctx, tx: tx}
		limit, names := pgx.NamedArgs{"limit": meterHeldLimit}, pgx.NamedArgs{"limit": meterBacklog}
		found = Reading{
			Totals: m.readTotals(r), Backlogs: rows[Backlog](r, "meter_backlogs"),
			Rates:       rows[MeteredRate](r, "meter_rates", names),
			Problems:    rows[MeteredProblems](r, "meter_problems", names),
			DeadLetters: rows[MeteredDeadLetters](r, "meter_open", names),
			Held:        rows[Counted](r, "meter_held", limit), Vitals: row[Vitals](r, "meter_vitals", limit),
		}
		return r.err
	})
	if err != nil {
		return nil, err
	}
	for _, b := range found.Backlogs {
		found.Vitals.PendingDeliveries += b.Pending
		found.Vitals.OldestPendingSeconds = max(found.Vitals.OldestPendingSeconds, b.OldestSeconds)
	}
	found.Backlogs = fewer(found.Backlogs)
	return &found, nil
}

// fewer adds up all but the largest backlogs.
func fewer(all []Backlog) []Backlog {
	if len(all) <= meterBacklog {
		return all
	}
	others := Backlog{Topic: Others, Subscription: Others}
	for _, b := range all[meterBacklog:] {
		others.Pending += b.Pending
		others.OldestSeconds = max(others.OldestSeconds, b.OldestSeconds)
	}
	return append(all[:meterBacklog:meterBacklog], others)
}

// metered is a row of meter_totals.sql.
type metered struct {
	countKey
	Over    bool
	Count   int64
	Latency []int64 // nil for other kinds than attempts
	Settled time.Time
}

// readTotals is exact: the counts of a minute are added once, when it is settled, and read again each time before.
func (m *Meter) readTotals(r *reading) []Total {
	args := pgx.NamedArgs{"from": nil, "since": time.Since(m.began).Seconds()}
	if !m.from.IsZero() {
		args["from"] = m.from
	}
	recent := map[countKey]Total{}
	for _, c := range rows[metered](r, "meter_totals", args) {
		key, counts := m.keyOf(c.countKey), recent
		if c.Over {
			counts = m.counts
		}
		var latency *Latency
		if len(c.Latency) == latencyBuckets {
			latency = (*Latency)(c.Latency)
		}
		counts[key] = counts[key].plus(c.Count, latency)
		m.from = c.Settled
	}
	all := make([]Total, 0, len(m.counts))
	for key, settled := range m.counts {
		total := settled.plus(recent[key].Count, recent[key].Latency)
		total.countKey = key
		all = append(all, total)
	}
	slices.SortFunc(all, func(a, b Total) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Subscription, b.Subscription),
			cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Detail, b.Detail))
	})
	return all
}

// keyOf returns the key that a count is added to: its own, or that of Others if there are too many.
func (m *Meter) keyOf(key countKey) countKey {
	count, known := m.counts[key]
	if !known && len(m.counts) >= m.limit {
		key.Topic, key.Subscription = Others, Others
		count = m.counts[key]
	}
	m.counts[key] = count // a new key begins with a zero count
	return key
}
