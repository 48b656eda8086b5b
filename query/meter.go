package query

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/postgres"
)

const (
	// meterAge is how old a reading may be: however many scrape, a node asks the database once in 5 s.
	meterAge = 5 * time.Second
	// meterKeys is how many counts are told apart, five to ten of each event subscription; what comes later is counted for
	// all others together. meterBacklog is how many backlogs are. Both bound what a scrape has to carry.
	meterKeys, meterBacklog = 10_000, 1000
	// meterHeldLimit is how far held deliveries are counted, and dead letters that wait for their location: 100,000 take
	// 20 to 40 ms.
	meterHeldLimit = 100_000
	// Others stands for the topics and event subscriptions that are not told apart. No name has parentheses.
	Others = "(others)"
)

// Total counts what has happened since this node began. Topic and Subscription are "" where the kind has none.
type Total struct {
	// Topic, Subscription, Kind and Detail are those of postrider.delivery_counts.
	Topic, Subscription, Kind, Detail string
	Count                             int64
	// Latency is that of attempts, nil of everything else.
	Latency *Latency
}

// Backlog is what an event subscription is owed.
type Backlog struct {
	Topic, Subscription string
	Owed                int64
	// OldestSeconds is since when the oldest is owed; 0 where it is being finished at this moment.
	OldestSeconds float64
}

// Vitals are how the service stands, on all nodes together, and the database under it.
type Vitals struct {
	// OwedDeliveries are not finished; OldestOwedSeconds is the age of the one that is owed for the longest.
	OwedDeliveries    int64
	OldestOwedSeconds float64
	// Nodes that deliver and have written a heartbeat in the last 15 s. OldestBeatSeconds is how long ago the one that is
	// silent for the longest wrote its last one, be it among them or not.
	Nodes             int
	OldestBeatSeconds float64
	// PartitionDays is for how many days from today on there are partitions already.
	PartitionDays int
	// DeadJobs are the rows of the table of jobs that wait for a vacuum; DatabaseBytes is the whole database's size.
	DeadJobs, DatabaseBytes int64
	// OldestTransactionSeconds is the age of the oldest open transaction, of those that this role may see.
	OldestTransactionSeconds float64
	// UnexportedLetters are the dead letters that are still to be written to a location outside, up to 100,000 of them;
	// OldestExportSeconds is for how long the oldest of the files that are being written has been tried, 0 where there is
	// none.
	UnexportedLetters   int64
	OldestExportSeconds float64
}

// Reading is what a Meter has read.
type Reading struct {
	Totals   []Total
	Backlogs []Backlog // the largest first
	// Held counts the deliveries on hold by hold, up to 100,000 of them.
	Held   []Counted
	Vitals Vitals
	// Took is how long the database needed.
	Took time.Duration
}

// Meter reads what the database knows of the whole service, for metrics. The counts of all nodes are the same, but for
// when each began.
type Meter struct {
	db    *postgres.DB
	began time.Time
	limit int // of counts

	mu      sync.Mutex
	counts  map[countKey]*Total // of minutes that are over
	from    time.Time           // the first minute that may still be added to; zero before the first reading
	reading *Reading
	err     error
	at      time.Time
}

type countKey struct{ topic, subscription, kind, detail string }

// NewMeter makes a meter that counts from now on, to be exact from the beginning of this minute.
func NewMeter(db *postgres.DB) *Meter {
	return &Meter{db: db, began: time.Now(), limit: meterKeys, counts: map[countKey]*Total{}}
}

// Read asks the database, or gives the last answer where that is younger than 5 s, an error included: those who come
// meanwhile wait for the one who asks. What was read is not to be changed.
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

func (m *Meter) read(ctx context.Context) (r *Reading, err error) {
	r = &Reading{}
	err = m.db.ReadAlways(ctx, "metrics", func(tx pgx.Tx) error {
		if r.Totals, err = m.readTotals(ctx, tx); err != nil {
			return err
		}
		if r.Backlogs, err = postgres.Rows[Backlog](ctx, tx, meterBacklogs, nil); err != nil {
			return err
		}
		if r.Held, err = postgres.Rows[Counted](ctx, tx, meterHeld, pgx.NamedArgs{"limit": meterHeldLimit}); err != nil {
			return err
		}
		vitals, err := postgres.Row[Vitals](ctx, tx, meterVitals, pgx.NamedArgs{"limit": meterHeldLimit})
		if err != nil {
			return err
		}
		r.Vitals = *vitals
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, b := range r.Backlogs {
		r.Vitals.OwedDeliveries += b.Owed
		r.Vitals.OldestOwedSeconds = max(r.Vitals.OldestOwedSeconds, b.OldestSeconds)
	}
	r.Backlogs = fewer(r.Backlogs)
	return r, nil
}

// fewer makes one of all but the largest backlogs.
func fewer(all []Backlog) []Backlog {
	if len(all) <= meterBacklog {
		return all
	}
	others := Backlog{Topic: Others, Subscription: Others}
	for _, b := range all[meterBacklog:] {
		others.Owed += b.Owed
		others.OldestSeconds = max(others.OldestSeconds, b.OldestSeconds)
	}
	return append(all[:meterBacklog:meterBacklog], others)
}
