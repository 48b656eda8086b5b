package store

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Options of a Store. Pool and Sealer are required.
type Options struct {
	// Pool is where everything is stored; the store does not close it.
	Pool *pgxpool.Pool
	// Sealer opens and seals the secret columns.
	Sealer *Sealer
	// Logger defaults to slog.Default().
	Logger *slog.Logger
	// Node names this process in attempts, in the lease and in River; it must be unique per process start.
	Node string
	// Version of the program, shown beside the node.
	Version string
	// MaxWorkers is how many attempts this node has in flight; 0 on a node that makes none.
	MaxWorkers int
	// MaxBodyBytes bounds the bodies of attempts in flight on this node, in bytes; default 64 MiB.
	MaxBodyBytes int64
	// RouteThreshold is how many deliveries a publish request may owe before they are made in steps, by a route job, and not
	// in the transaction that it is answered after; default 10,000.
	RouteThreshold int
	// TimeScale makes every wait between attempts that many times as short, see policy.Rules.Scaled: for trying a day of retries out
	// in minutes. What is configured is stored and shown as it was said. 0 and 1 are real time.
	TimeScale int
	// Failpoint is called at certain moments, by tests only.
	Failpoint Failpoint
}

// Store is the product's memory. Its methods may be called from any goroutine. Publish, Load, Record and Route need Run.
type Store struct {
	*Reader
	*Disk
	Failpoint
	*Cache
	*Topics
	*Subscriptions
	*Holds
	*Handshakes
	*Policies
	*Nodes
	*Notifier
	*Maintenance
	*Traffic
	*JobRows
	*Publisher
	*Exports
	*Loader
	*Recorder
	*Releaser

	// Active, Wake, Handoff and Gate are those of a node that makes attempts, nil on others.
	Active  *JobSet
	Wake    *Wake
	Handoff *Handoff
	Gate    *Gate
	memory  *Memory

	sealer  *Sealer
	log     *slog.Logger
	node    string
	version string

	db    *DB
	clock *Clock
	ids   *IDs

	access   *Access
	operator *Operator
}

// New makes a store and reads the catalogue once.
func New(ctx context.Context, o Options) (*Store, error) {
	if o.Pool == nil || o.Sealer == nil {
		return nil, errors.New("store: Pool and Sealer are required")
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.MaxBodyBytes == 0 {
		o.MaxBodyBytes = 64 << 20
	}
	db, clock := NewDB(o.Pool), NewClock()
	cache, err := NewCache(ctx, db, o.Sealer, clock, o.TimeScale, o.Logger)
	if err != nil {
		return nil, err
	}
	s := &Store{Cache: cache, db: db, clock: clock, sealer: o.Sealer, log: o.Logger, node: o.Node, version: o.Version, Failpoint: o.Failpoint, Disk: NewDisk(db, o.Logger)}
	s.Topics, s.Subscriptions, s.Holds, s.Handshakes, s.Policies = newParts(cache, o.Node, o.Failpoint)
	s.ids = NewIDs(s.clock)
	s.Reader = NewReader(db, clock)
	s.Nodes = NewNodes(o.Pool.Config().ConnConfig, o.Node, o.Version, o.TimeScale)
	if o.MaxWorkers > 0 {
		s.Active, s.Wake = NewJobSet(), NewWake()
		s.Handoff, s.Gate = NewHandoff(o.MaxWorkers, s.Active, s.Wake), NewGate(o.MaxWorkers, s.Nodes)
	}
	s.Notifier = NewNotifier(db, s.Nodes, s.Wake, o.Logger)
	s.memory = NewMemory(o.MaxBodyBytes)
	s.Maintenance = NewMaintenance(db, cache, s.Notifier, o.Logger, o.Failpoint)
	s.operator = NewOperator(db, clock, s.Subscriptions, s.Notifier.poke, o.Logger)
	s.access = newAccess(db, o.Logger)
	s.Traffic = NewTraffic(db, cache, s.Gate)
	s.JobRows = NewJobRows(db, o.Node, s.Notifier, s.Traffic, o.Failpoint)
	s.Publisher = NewPublisher(PublisherParts{
		DB: db, Cache: cache, IDs: s.ids, Traffic: s.Traffic, Notifier: s.Notifier, Handoff: s.Handoff, Memory: s.memory,
		Disk: s.Disk,
	}, PublisherOptions{Node: o.Node, Threshold: o.RouteThreshold, Log: o.Logger, Failpoint: o.Failpoint})
	s.Loader = NewLoader(LoaderParts{
		DB: db, Cache: cache, Memory: s.memory, Jobs: s.JobRows, Traffic: s.Traffic, Notifier: s.Notifier,
	}, o.Failpoint)
	s.Recorder = NewRecorder(RecorderParts{
		DB: db, Cache: cache, IDs: s.ids, Traffic: s.Traffic, Notifier: s.Notifier, Disk: s.Disk, Log: o.Logger,
		Node: o.Node, TimeScale: o.TimeScale,
	}, o.Failpoint)
	s.Releaser = NewReleaser(db, cache, s.Traffic, s.Notifier, o.Failpoint)
	s.Exports = NewExports(db, s.Notifier)
	return s, nil
}

// Now is the database's time.
func (s *Store) Now() time.Time { return s.clock.Now() }

// Access manages the users, sessions and API keys of the database.
func (s *Store) Access() *Access { return s.access }

// Operator acts on the store's database.
func (s *Store) Operator() *Operator { return s.operator }

// Node is the name of this process in the lease and in recorded attempts.
func (s *Store) Node() string { return s.node }

// DB is the database.
func (s *Store) DB() *DB { return s.db }

// Pool is the connection pool, for River's client, for health checks and for what is read without a store.
func (s *Store) Pool() *pgxpool.Pool { return s.db.Pool }

// Run drives committer, recorder, router, loader, notifier and the catalogue's reload until ctx ends. Whatever Publish and
// Record were handed before is finished first, as long as the database answers; the heartbeat's connection is closed last.
func (s *Store) Run(ctx context.Context) {
	var group sync.WaitGroup
	for _, loop := range []func(context.Context){s.Publisher.run, s.Recorder.run, s.Loader.run, s.Notifier.run, s.Traffic.run, s.Cache.Run, s.Disk.Watch} {
		group.Go(func() { loop(ctx) })
	}
	group.Wait()
	s.Nodes.close()
}

// Forget drops what this process remembers of event subscriptions that were deleted.
func (s *Store) Forget() {
	s.Loader.forget()
	s.Recorder.forget()
}
