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
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"postrider/internal/catalog"
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

// Parts are the objects that an engine works with. All are required but Failpoint.
type Parts struct {
	Node      string
	DB        *postgres.DB
	Commits   *postgres.Commits
	Failpoint postgres.Failpoint

	Cache         *catalog.Cache
	Subscriptions *catalog.Subscriptions
	Holds         *catalog.Holds
	Handshakes    *catalog.Handshakes
	Operator      *operator.Operator

	Nodes        *queue.Nodes
	Notifier     *queue.Notifier
	Traffic      *queue.Traffic
	JobRows      *queue.JobRows
	Active       *queue.JobSet
	Wake         *queue.Wake
	Arrivals     *queue.Arrivals
	Handoff      *queue.Handoff
	Gate         *queue.Gate
	Backpressure *queue.Backpressure
	Closed       *queue.ClosedEndpoints

	Publisher   *publish.Publisher
	Loader      *delivery.Loader
	Recorder    *delivery.Recorder
	Releaser    *delivery.Releaser
	Exports     *export.Exports
	Receiver    *pull.Receiver
	Maintenance *Maintenance
	// Cleaners remove unused rows.
	Cleaners []func(context.Context) error
}

// Options of an Engine. Parts is required, with workers.
type Options struct {
	Parts  Parts
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
	parts     Parts
	log       *slog.Logger
	logLimit  logLimit
	host      string
	river     *river.Client[pgx.Tx]
	endpoint  *endpoint.Client
	cut       context.CancelFunc // ends the requests in flight
	locations *export.Locations  // of dead letters

	requests context.Context //nolint:containedctx // the lifetime of requests and local attempts, which Stop cuts
	failures *joberrors
	local    sync.WaitGroup // attempts of the local handoff

	ended                     *queue.JobSet // jobs that River is not to complete: their row is gone, or Stop returns it
	interrupted               *queue.JobSet // jobs whose attempt was cut by Stop
	notBegun                  *queue.JobSet // jobs that Stop cut before their attempt began
	progress                  progress
	leases                    leaseWatch
	stalls                    stallWatch
	refills                   int
	releases, limitedReleases releases
	stalled                   atomic.Int64 // a duration, see Stalled

	died     chan struct{} // a node was found dead
	exported chan struct{} // an export has ended: more may be due

	stopLoops, stopLocal context.CancelFunc
	loops, beginning     sync.WaitGroup // beginning: attempts of jobs from publishes
}

// New prepares an engine.
func New(o Options) (*Engine, error) {
	if o.Parts.Handoff == nil {
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
	e := &Engine{
		options: o, parts: o.Parts, log: o.Logger, host: host, died: make(chan struct{}, 1), exported: make(chan struct{}, 1),
		interrupted: queue.NewJobSet(), notBegun: queue.NewJobSet(), ended: queue.NewJobSet(), leases: leaseWatch{},
		releases: newReleases(), limitedReleases: newReleases(),
		locations: export.NewLocations(o.DeadLetters), failures: &joberrors{log: o.Logger, node: o.Parts.Node},
	}
	e.requests, e.cut = context.WithCancel(context.Background())
	e.endpoint = endpoint.NewClient(e.requests, endpoint.Options{
		UserAgent: o.UserAgent, AllowCIDR: o.AllowCIDR, AllowHTTP: o.AllowHTTP, Proxy: o.Proxy,
		MaxIdleConnections: o.Parts.Handoff.Workers(), Sent: func() { e.parts.Failpoint.Reach(PointSent) },
	})
	d := driver{riverpgxv5.New(o.Parts.DB.Pool), e}
	if e.river, err = river.NewClient(d, &river.Config{
		ID:      e.parts.Node,
		Schema:  migrations.Schema,
		Workers: e.workers(),
		Queues: map[string]river.QueueConfig{
			queue.DeliverQueue: {MaxWorkers: e.parts.Handoff.Workers()},
			queue.RouteQueue:   {MaxWorkers: routeWorkers, FetchPollInterval: routePollInterval},
			queue.HandshakeQueue: {
				MaxWorkers: handshakeWorkers, FetchPollInterval: e.poll(handshakePollInterval, rarePollOnly),
				FetchCooldown: rareCooldown,
			},
			queue.ExportQueue: {MaxWorkers: exportWorkers, FetchPollInterval: exportPollInterval, FetchCooldown: rareCooldown},
			queue.OperationQueue: {
				MaxWorkers: operationWorkers, FetchPollInterval: e.poll(operationPollInterval, rarePollOnly),
				FetchCooldown: rareCooldown,
			},
		},
		FetchCooldown:       fetchCooldown,
		FetchPollInterval:   e.poll(fetchPollInterval, pollOnlyInterval),
		FetchOnlyKnownKinds: true,
		MaxAttempts:         1000,
		RetryPolicy:         retryPolicy{},
		// Each step of a job has its own timeout, except the wait until results can be recorded, which must have none.
		// River's timeout would cost a goroutine and two timers for each attempt, 4 % of the service's time.
		JobTimeout: -1,
		// Nodes do here what River's leader does, or do without it. Its scheduler makes up to 10,000 due jobs available at
		// once, past the gate: one endpoint's 90,000 retries delayed all others by 12 s. Its rescuer runs a stuck job again
		// under the same id, and discards kinds of newer versions. Its cleaner is Maintenance.Clean. Its reindexer is for
		// operators, see docs/operate/configure.md.
		LeaderElectionDisabled: true,
		SoftStopTimeout:        e.options.StopTimeout,
		Middleware:             []rivertype.Middleware{e.failures},
		Logger:                 slog.New(onlyErrors{e.log.Handler()}),
	}); err != nil {
		return nil, fmt.Errorf("set up River: %w", err)
	}
	return e, nil
}

// Start registers the node, and starts the maintenance loops and the fetchers.
func (e *Engine) Start(ctx context.Context) error {
	if err := e.parts.Maintenance.EnsurePartitions(ctx); err != nil {
		return err
	}
	if err := e.parts.Nodes.Register(ctx, e.host); err != nil {
		return err
	}
	e.parts.Handoff.Open(fetchPollInterval, e.poll(idlePollInterval, 0)) // 0: an idle node polls like a busy one
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	e.stopLoops = stop
	e.loops.Go(func() { e.collect(running) })
	beginning, stopLocal := context.WithCancel(running)
	e.stopLocal = stopLocal
	e.beginning.Go(func() {
		for {
			select {
			case <-beginning.Done():
				return
			case <-e.parts.Handoff.Ready():
			}
			for _, work := range e.parts.Handoff.Take() {
				e.local.Add(1)
				e.deliverLocal(work)
			}
		}
	})
	// Started together, they would always run together, each on its own connection. In its first seconds,
	// a node uses 20 % less of PostgreSQL's CPU.
	loops := e.maintenanceLoops()
	for i, l := range loops {
		wait := time.Duration(i) * promptly / time.Duration(len(loops))
		if l.interval >= eachMinute {
			wait += firstMinute
		}
		e.loops.Go(func() {
			pause(running, wait)
			l.repeat(running, e.log)
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
	e.endpoint.CloseLate()
	timer := time.AfterFunc(e.options.StopTimeout, e.cut)
	defer timer.Stop()
	notBegun := e.parts.Handoff.Close()
	e.stopLocal()
	e.beginning.Wait()
	err := e.river.Stop(ctx)
	if err == nil {
		err = waitFor(ctx, &e.local)
	}
	notBegun = slices.Concat(notBegun, e.parts.Handoff.Close(), e.notBegun.IDs())
	if err != nil {
		err = fmt.Errorf("stop the attempts: %w", err)
	} else {
		e.endpoint.WaitLate() // not after an error: a worker that does not stop would keep its call
	}
	e.cut()
	e.endpoint.CloseIdle()
	e.locations.Close()
	e.stopLoops()
	e.loops.Wait()
	return errors.Join(err, e.giveBack(context.WithoutCancel(ctx), notBegun))
}

// waitFor waits for a group until ctx ends.
func waitFor(ctx context.Context, group *sync.WaitGroup) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		group.Wait()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// giveBack gives the jobs that this node did not end to other nodes, and removes its lease last. Only cut jobs are
// reruns. No step waits for a job that another transaction has locked: another node reclaims that job as a rerun.
func (e *Engine) giveBack(ctx context.Context, notBegun []int64) error {
	rows := e.parts.JobRows
	return errors.Join(
		within(ctx, giveBackTimeout,
			uncounted(func(ctx context.Context) (int, error) { return rows.Reclaim(ctx, e.interrupted.IDs()) })),
		within(ctx, giveBackTimeout,
			uncounted(func(ctx context.Context) (int, error) { return rows.GiveBack(ctx, notBegun) })),
		within(ctx, taskTimeout,
			func(ctx context.Context) error { return e.parts.Nodes.Unregister(ctx, e.parts.Node, nil) }))
}

func within(ctx context.Context, timeout time.Duration, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return do(ctx)
}

// onlyErrors drops what River logs below level error: it warns when a job's row is gone at completion, as every
// attempt's is.
type onlyErrors struct{ slog.Handler }

// Enabled implements slog.Handler.
func (h onlyErrors) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelError && h.Handler.Enabled(ctx, level)
}

// WithAttrs implements slog.Handler.
func (h onlyErrors) WithAttrs(attrs []slog.Attr) slog.Handler {
	return onlyErrors{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h onlyErrors) WithGroup(name string) slog.Handler { return onlyErrors{h.Handler.WithGroup(name)} }
