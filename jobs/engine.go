// Package jobs runs River and the maintenance loops. Its workers make one delivery attempt per job, and one step,
// request or try per job of the other kinds. Package policy decides what an attempt means; the packages below (queue,
// publish, delivery) have the database's side. Every node runs the maintenance loops; there is no leader.
package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"postrider/internal/catalog"
	"postrider/internal/destination"
	"postrider/internal/endpointconf"
	"postrider/internal/operator"
	"postrider/internal/postgres"
	"postrider/internal/query"
	"postrider/jobs/delivery"
	"postrider/jobs/endpoint"
	"postrider/jobs/export"
	"postrider/jobs/publish"
	"postrider/jobs/pull"
	"postrider/jobs/queue"
	"postrider/migrations"
)

// giveBackTimeout is how long a stop tries to give jobs back. Other nodes reclaim the rest once the lease is gone.
const giveBackTimeout = 3 * time.Second

// Parts are what an engine works with. All are required but Failpoint. New gives each worker and loop those that it
// needs.
type Parts struct {
	Queue
	Admission
	Delivery

	Node      string
	DB        *postgres.DB
	Commits   *postgres.Commits
	Failpoint postgres.Failpoint

	Cache         *catalog.Cache
	Subscriptions *catalog.Subscriptions
	Holds         *catalog.Holds
	Handshakes    *catalog.Handshakes
	Operator      *operator.Operator

	Nodes       *queue.Nodes
	Releaser    *delivery.Releaser
	Publisher   *publish.Publisher
	Exports     *export.Exports
	Receiver    *pull.Receiver
	Maintenance *Maintenance
	// Cleaners remove unused rows.
	Cleaners []func(context.Context) error
}

// Queue is a node's part of the queue of jobs.
type Queue struct {
	Notifier     *queue.Notifier
	JobRows      *queue.JobRows
	Active       *queue.JobSet
	Wake         *queue.Wake
	Arrivals     *queue.Arrivals
	Handoff      *queue.Handoff
	Backpressure *queue.Backpressure
}

// Admission bounds the jobs and requests of each event subscription.
type Admission struct {
	Traffic *queue.Traffic
	Gate    *queue.Gate
	Closed  *queue.ClosedEndpoints
}

// Delivery loads what attempts send, and records their results.
type Delivery struct {
	Loader   *delivery.Loader
	Recorder *delivery.Recorder
}

// Options of an Engine.
type Options struct {
	Logger *slog.Logger // default slog.Default()
	// AllowCIDR opens address ranges that endpointconf.Address denies, such as loopback in dev.
	AllowCIDR []netip.Prefix
	// AllowHTTP allows requests without TLS to public addresses. In AllowCIDR they are always allowed.
	AllowHTTP bool
	// Proxy is the proxy of all requests; nil = none. It resolves names, so it must itself reject internal addresses.
	Proxy *url.URL
	// Jitter returns a number in [0,1) per decision; default random. Tests switch it off.
	Jitter func() float64
	// StopTimeout is how long Stop lets attempts finish before it cuts them; default 20 s. A cut attempt has no outcome
	// and is repeated.
	StopTimeout time.Duration
	// PollOnly never listens for notifications: behind PgBouncer in transaction mode none arrive.
	PollOnly bool
	// UserAgent of the requests; default "postrider".
	UserAgent string
	// PublicURL is the URL at which operators reach the dashboard, without a slash at its end; messages have links to it.
	// "" = they have none.
	PublicURL string
	// WebhookOrigin is the origin for which CloudEvents endpoints grant permission; default defaultWebhookOrigin.
	// WebhookRequestRate is the requested number of requests per minute; 0 requests none.
	WebhookOrigin      string
	WebhookRequestRate int
	// HandshakeTimeout is how long an endpoint may take to respond to one request of a handshake, default 30 s;
	// HandshakePause is the time between two of them, default 5 s.
	HandshakeTimeout, HandshakePause time.Duration
	// Retention is how long data is kept; its zero value keeps everything.
	Retention query.Retention
	// MaxHeaderBytes bounds the value of a custom header that comes from an event; 0 = Event Grid's 4,096.
	MaxHeaderBytes int
	// Brokers open the clients of destinations that are brokers, by their type.
	Brokers map[destination.Type]destination.Open
	// DeadLetters are the external locations for dead letters; zero = none.
	DeadLetters endpointconf.ExportLocations
	// LogAttempts selects the attempts that are logged at level info; default LogFailed. Level debug has all.
	LogAttempts LogAttempts
	// OnAttempt gets every recorded attempt, and again a late success that ended its delivery; nil = none.
	OnAttempt func(AttemptReport)

	stallInterval  time.Duration // tests check more often
	releaseTimeout time.Duration // tests let a release wait longer
}

// Engine makes delivery attempts. One per process.
type Engine struct {
	options   Options
	river     *river.Client[pgx.Tx]
	cut       context.CancelFunc // ends the requests in flight
	runs      *runs
	deliverer *deliverer
	upkeep    *upkeep
	stalls    *stallWatch
	locations *export.Locations // of dead letters
	tasks     []loop

	stopLoops, stopLocal context.CancelFunc
	loops, beginning     sync.WaitGroup // beginning: attempts of jobs from publishes
}

// New prepares an engine of a node with workers.
func New(p Parts, o Options) (*Engine, error) {
	if p.Handoff == nil {
		return nil, errors.New("jobs: Parts with MaxWorkers are required")
	}
	if o.Jitter == nil {
		o.Jitter = rand.Float64
	}
	o.Logger = cmp.Or(o.Logger, slog.Default())
	o.StopTimeout = cmp.Or(o.StopTimeout, 20*time.Second)
	o.stallInterval, o.releaseTimeout = cmp.Or(o.stallInterval, occasionally), cmp.Or(o.releaseTimeout, releaseTimeout)
	o.LogAttempts = cmp.Or(o.LogAttempts, LogFailed)
	o.UserAgent = cmp.Or(o.UserAgent, "postrider")
	o.WebhookOrigin = cmp.Or(o.WebhookOrigin, defaultWebhookOrigin)
	o.HandshakeTimeout = cmp.Or(o.HandshakeTimeout, endpointconf.HandshakeTimeout)
	o.HandshakePause = cmp.Or(o.HandshakePause, endpointconf.HandshakePause)
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	r := &runs{
		Queue: p.Queue, node: p.Node, log: o.Logger, interrupted: queue.NewJobSet(), notBegun: queue.NewJobSet(),
	}
	failures := &joberrors{log: o.Logger}
	requests, cut := context.WithCancel(context.Background())
	client := endpoint.NewClient(requests, endpoint.Options{
		UserAgent: o.UserAgent, AllowCIDR: o.AllowCIDR, AllowHTTP: o.AllowHTTP, Proxy: o.Proxy,
		MaxIdleConnections: p.Handoff.Workers(), Sent: func() { p.Failpoint.Reach(PointSent) },
		Open: o.Brokers, Log: o.Logger,
	})
	e := &Engine{options: o, cut: cut, runs: r, locations: export.NewLocations(o.DeadLetters)}
	e.deliverer = &deliverer{
		runs: r, Admission: p.Admission, Delivery: p.Delivery, cache: p.Cache, subscriptions: p.Subscriptions,
		nodes: p.Nodes, options: &e.options, endpoint: client, requests: requests, failures: failures, fail: p.Failpoint,
	}
	e.deliverer.era.Store(newEra(requests))
	e.upkeep = &upkeep{
		runs: r, host: host, nodes: p.Nodes, commits: p.Commits, maintenance: p.Maintenance,
		watch: leaseWatch{}, died: make(chan struct{}, 1),
	}
	e.stalls = &stallWatch{runs: r, db: p.DB, interval: o.stallInterval}
	exports := &exporter{runs: r, exports: p.Exports, locations: e.locations, exported: make(chan struct{}, 1)}
	due := &promoter{
		Queue: p.Queue, Admission: p.Admission, cache: p.Cache, holds: p.Holds, releaser: p.Releaser, loops: &e.loops,
		timeout: o.releaseTimeout, releases: newReleases(), limited: newReleases(),
	}
	collector := &collector{runs: r, publisher: p.Publisher, again: make(chan struct{}, 1)}
	e.tasks = e.maintenanceLoops(&p, due, collector, exports.exported)

	workers := river.NewWorkers()
	for _, kind := range []queue.AttemptArgs{{Delivery: 1}, {Batch: 1}} {
		river.AddWorkerArgs(workers, kind, river.WorkFunc(e.deliverer.deliver))
	}
	handshakes := &handshaker{runs: r, cache: p.Cache, handshakes: p.Handshakes, endpoint: client, options: &e.options}
	for kind, work := range map[string]func(context.Context, *river.Job[ownedArgs]) error{
		queue.RouteKind: func(ctx context.Context, job *river.Job[ownedArgs]) error {
			return p.Publisher.Route(ctx, job.ID)
		},
		queue.HandshakeKind: handshakes.handshake,
		queue.ExportKind:    exports.export,
		queue.OperationKind: func(ctx context.Context, job *river.Job[ownedArgs]) error {
			return r.operate(ctx, p.Operator, job.ID)
		},
	} {
		river.AddWorkerArgs(workers, ownedArgs{kind: kind},
			river.WorkFunc(func(ctx context.Context, job *river.Job[ownedArgs]) error {
				return r.run(job.ID, func() error { return work(ctx, job) })
			}))
	}
	if e.river, err = newRiver(&p, &o, r, workers, failures); err != nil {
		return nil, fmt.Errorf("set up River: %w", err)
	}
	return e, nil
}

func newRiver(
	p *Parts, o *Options, r *runs, workers *river.Workers, failures *joberrors,
) (*river.Client[pgx.Tx], error) {
	return river.NewClient(driver{riverpgxv5.New(p.DB.Pool), r, o.PollOnly}, &river.Config{
		ID:      p.Node,
		Schema:  migrations.Schema,
		Workers: workers,
		Queues: map[string]river.QueueConfig{
			queue.DeliverQueue: {MaxWorkers: p.Handoff.Workers()},
			queue.RouteQueue:   {MaxWorkers: routeWorkers, FetchPollInterval: eachSecond},
			queue.HandshakeQueue: {
				MaxWorkers: handshakeWorkers, FetchPollInterval: o.poll(eachSecond, rarePollOnly),
				FetchCooldown: rareCooldown,
			},
			queue.ExportQueue: {MaxWorkers: exportWorkers, FetchPollInterval: rarePollInterval, FetchCooldown: rareCooldown},
			queue.OperationQueue: {
				MaxWorkers: operationWorkers, FetchPollInterval: o.poll(rarePollInterval, rarePollOnly),
				FetchCooldown: rareCooldown,
			},
		},
		FetchCooldown:       fetchCooldown,
		FetchPollInterval:   o.poll(fetchPollInterval, pollOnlyInterval),
		FetchOnlyKnownKinds: true,
		RetryPolicy:         retryPolicy{},
		// Each step of a job has its own timeout, except the wait until results can be recorded, which must have none.
		// River's timeout would cost a goroutine and two timers for each attempt, 4 % of the service's time.
		JobTimeout: -1,
		// Nodes do here what River's leader does, or do without it. Its scheduler makes up to 10,000 due jobs available at
		// once, past the gate: one endpoint's 90,000 retries delayed all others by 12 s. Its rescuer runs a stuck job again
		// under the same id, and discards kinds of newer versions. Its cleaner is Maintenance.Clean. Its reindexer is for
		// operators, see docs/operate/configure.md.
		LeaderElectionDisabled: true,
		SoftStopTimeout:        o.StopTimeout,
		Middleware:             []rivertype.Middleware{failures},
		Logger:                 slog.New(onlyErrors{o.Logger.Handler()}),
	})
}

// poll selects a poll interval: with notifications, or without.
func (o *Options) poll(interval, pollOnly time.Duration) time.Duration {
	if o.PollOnly {
		return pollOnly
	}
	return interval
}

// Start registers the node, and starts the maintenance loops and the fetchers.
func (e *Engine) Start(ctx context.Context) error {
	if err := e.upkeep.maintenance.EnsurePartitions(ctx); err != nil {
		return err
	}
	if err := e.upkeep.nodes.Register(ctx, e.upkeep.host); err != nil {
		return err
	}
	e.runs.Handoff.Open(fetchPollInterval, e.options.poll(idlePollInterval, 0)) // 0: an idle node polls like a busy one
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	e.stopLoops = stop
	beginning, stopLocal := context.WithCancel(running)
	e.stopLocal = stopLocal
	e.beginning.Go(func() {
		for {
			select {
			case <-beginning.Done():
				return
			case <-e.runs.Handoff.Ready():
			}
			for _, work := range e.runs.Handoff.Take() {
				e.deliverer.local.Add(1)
				e.deliverer.deliverLocal(work)
			}
		}
	})
	// Started together, they would always run together, each on its own connection. In its first seconds,
	// a node uses 20 % less of PostgreSQL's CPU.
	for i, l := range e.tasks {
		wait := time.Duration(i) * promptly / time.Duration(len(e.tasks))
		if l.interval >= eachMinute {
			wait += firstMinute
		}
		e.loops.Go(func() {
			queue.Pause(running, wait)
			l.repeat(running, e.options.Logger)
		})
	}
	if err := e.river.Start(context.WithoutCancel(ctx)); err != nil {
		stop()
		return fmt.Errorf("start River: %w", err)
	}
	return nil
}

// Stop lets attempts in flight finish for StopTimeout, cuts the others (another node repeats them), and removes the
// lease last.
func (e *Engine) Stop(ctx context.Context) error {
	e.deliverer.endpoint.CloseLate()
	e.runs.Backpressure.Stop()
	timer := time.AfterFunc(e.options.StopTimeout, e.cut)
	defer timer.Stop()
	notBegun := e.runs.Handoff.Close()
	e.stopLocal()
	e.beginning.Wait()
	err := e.river.Stop(ctx)
	if err == nil {
		ended := make(chan struct{})
		go func() { defer close(ended); e.deliverer.local.Wait() }()
		select {
		case <-ended:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	notBegun = slices.Concat(notBegun, e.runs.Handoff.Close(), e.runs.notBegun.IDs())
	if err != nil {
		err = fmt.Errorf("stop the attempts: %w", err)
	} else {
		e.deliverer.endpoint.WaitLate() // not after an error: a worker that does not stop would keep its call
	}
	e.cut()
	e.deliverer.endpoint.CloseIdle()
	e.locations.Close()
	e.stopLoops()
	e.loops.Wait()
	return errors.Join(err, e.upkeep.giveBack(context.WithoutCancel(ctx), notBegun))
}

// Check checks that the target of a destination exists and accepts its credentials, if its protocol can show that
// without a message. now is the database's time.
func (e *Engine) Check(
	ctx context.Context, now time.Time, d *destination.Destination, by *endpointconf.Connection,
) destination.Result {
	return e.deliverer.endpoint.Check(ctx, now, d, by)
}

func within(ctx context.Context, timeout time.Duration, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return do(ctx)
}

// onlyErrors drops what River logs below level error: it calls a job stuck that waits until its result is recorded.
type onlyErrors struct{ slog.Handler }

// Enabled implements slog.Handler.
func (h onlyErrors) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelError && h.Handler.Enabled(ctx, level)
}
