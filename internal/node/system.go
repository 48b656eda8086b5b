// Package node wires the parts of a node, without flags and environment.
package node

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"postrider/internal/access"
	"postrider/internal/catalog"
	"postrider/internal/operator"
	"postrider/internal/postgres"
	"postrider/internal/query"
	"postrider/internal/sqlquery"
	"postrider/jobs"
	"postrider/jobs/delivery"
	"postrider/jobs/export"
	"postrider/jobs/publish"
	"postrider/jobs/pull"
	"postrider/jobs/queue"
)

// Options of a System. Pool and Sealer are required.
type Options struct {
	// Pool is the database; the system does not close it.
	Pool *pgxpool.Pool
	// Sealer opens and seals the secret columns.
	Sealer *postgres.Sealer
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
	// RouteThreshold is the most deliveries that the transaction of a publish request creates; default 10,000. For more,
	// it inserts a route job, which creates them in steps.
	RouteThreshold int
	// TimeScale divides every wait between attempts, see policy.Rules.Scaled: for trying a day of retries in minutes.
	// Settings are stored and shown undivided. 0 and 1 are real time.
	TimeScale int
	// QueueCapacity is how many jobs of an event subscription may be queued while others have so many; default: the
	// gate's. Only tests set it.
	QueueCapacity func(subscription int64, others int) int
	// PartitionsAhead is the number of days after today that have partitions; default jobs.PartitionsAhead. Only tests set
	// it: PostgreSQL plans statements on fewer partitions in less time.
	PartitionsAhead int
	// Query configures the queries of users.
	Query sqlquery.Options
	// Failpoint is called at certain moments, by tests only.
	Failpoint postgres.Failpoint
}

// System is the wired parts of a node: everything but the REST API, the dashboard and the engine. Publishing, loading
// and recording need Run.
type System struct {
	// Parts are those of the engine. Active, Wake, Handoff, Gate and Backpressure are nil on a node that makes no
	// attempts.
	jobs.Parts

	// Clock is the database's time.
	Clock        *postgres.Clock
	Access       *access.Access
	SavedQueries *sqlquery.Store
	IDs          *postgres.IDs
	Topics       *catalog.Topics
	Relays       *catalog.Relays
	Policies     *catalog.Policies
	Reader       *query.Reader
	Memory       *queue.Memory
	Queries      *sqlquery.Runner
}

// New wires a system and reads the catalog once.
func New(ctx context.Context, o Options) (*System, error) {
	if o.Pool == nil || o.Sealer == nil {
		return nil, errors.New("node: Pool and Sealer are required")
	}
	o.Logger = cmp.Or(o.Logger, slog.Default())
	o.MaxBodyBytes = cmp.Or(o.MaxBodyBytes, 64<<20)
	o.PartitionsAhead = cmp.Or(o.PartitionsAhead, jobs.PartitionsAhead)
	db, clock := postgres.NewDB(o.Pool), postgres.NewClock()
	cache, err := catalog.NewCache(ctx, db, o.Sealer, clock, o.TimeScale, o.Logger)
	if err != nil {
		return nil, err
	}
	s := &System{
		Clock: clock, IDs: postgres.NewIDs(clock), Reader: query.NewReader(db, clock),
		Memory: queue.NewMemory(o.MaxBodyBytes),
	}
	s.Node, s.DB, s.Commits, s.Failpoint = o.Node, db, postgres.NewCommits(db, o.Logger), o.Failpoint
	s.Cache, s.Access, s.SavedQueries = cache, access.NewAccess(db, o.Logger), sqlquery.NewStore(db)
	if s.Queries, err = sqlquery.NewRunner(db, o.Sealer, o.Query); err != nil {
		return nil, err
	}
	s.Topics, s.Subscriptions, s.Holds, s.Handshakes, s.Policies = catalog.NewParts(cache, o.Node, o.Failpoint)
	s.Relays = catalog.NewRelays(cache)
	s.Nodes = queue.NewNodes(o.Pool.Config().ConnConfig, o.Node, o.Version, o.TimeScale, o.Sealer.KeyIDs())
	if o.MaxWorkers > 0 {
		s.Active, s.Wake = queue.NewJobSet(), queue.NewWake()
		s.Handoff, s.Gate = queue.NewHandoff(o.MaxWorkers, s.Active, s.Wake), queue.NewGate(o.MaxWorkers, s.Nodes)
		s.Backpressure = queue.NewBackpressure(s.Gate)
		if o.QueueCapacity == nil {
			o.QueueCapacity = s.Gate.Capacity
		}
	}
	s.Arrivals = queue.NewArrivals()
	s.Notifier = queue.NewNotifier(db, s.Nodes, s.Wake, s.Arrivals, o.Logger)
	s.Receiver = pull.NewReceiver(db, cache, s.Notifier, s.Arrivals, o.Node, s.Wake != nil && !db.ThroughPgBouncer)
	s.Maintenance = jobs.NewMaintenance(db, cache, s.Notifier, o.Logger, o.Failpoint, o.PartitionsAhead)
	s.Operator = operator.NewOperator(db, s.Reader, clock, s.Subscriptions, s.Notifier.RequestDeliveries, o.Logger)
	s.Closed = queue.NewClosedEndpoints(db, cache)
	s.Traffic = queue.NewTraffic(db, cache, s.Closed, o.QueueCapacity)
	s.JobRows = queue.NewJobRows(db, o.Node, s.Notifier, s.Traffic, o.Failpoint)
	s.Publisher = publish.NewPublisher(publish.PublisherParts{
		DB: db, Cache: cache, IDs: s.IDs, Traffic: s.Traffic, Notifier: s.Notifier, Handoff: s.Handoff,
		Backpressure: s.Backpressure, Memory: s.Memory, Commits: s.Commits,
	}, publish.PublisherOptions{Node: o.Node, Threshold: o.RouteThreshold, Log: o.Logger, Failpoint: o.Failpoint})
	s.Loader = delivery.NewLoader(delivery.LoaderParts{
		DB: db, Cache: cache, Memory: s.Memory, Traffic: s.Traffic, Notifier: s.Notifier,
		Failpoint: o.Failpoint,
	})
	s.Recorder = delivery.NewRecorder(delivery.RecorderParts{
		DB: db, Cache: cache, IDs: s.IDs, Traffic: s.Traffic, Gate: s.Gate, Notifier: s.Notifier, Commits: s.Commits,
		Log: o.Logger, Node: o.Node, TimeScale: o.TimeScale, MaxWorkers: o.MaxWorkers,
		Failpoint: o.Failpoint,
	})
	s.Releaser = delivery.NewReleaser(db, cache, s.Traffic, s.Notifier, o.Failpoint)
	s.Exports = export.NewExports(db, s.Notifier)
	s.Cleaners = []func(context.Context) error{
		s.Maintenance.Clean, s.Handshakes.Clean, s.Operator.CleanOperations, s.Access.CleanSessions, s.SavedQueries.Clean,
	}
	return s, nil
}

// Run drives the system's loops until ctx ends. Accepted publishes and results are committed first, if the database is
// available; the connection of the heartbeat is closed last.
func (s *System) Run(ctx context.Context) {
	var group sync.WaitGroup
	for _, loop := range []func(context.Context){
		s.Publisher.Run, s.Recorder.Run, s.Loader.Run, s.Notifier.Run, s.Traffic.Run, s.Cache.Run, s.Commits.Watch,
		s.Receiver.Run,
	} {
		group.Go(func() { loop(ctx) })
	}
	group.Wait()
	s.Nodes.Close()
}
