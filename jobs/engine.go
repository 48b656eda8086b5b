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
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"postrider/jobs/endpoint"
	"postrider/jobs/export"
	"postrider/jobs/queue"
	"postrider/migrations"
	"postrider/policy"
	"postrider/query"
)

// giveBackTimeout is how long a stop tries to give jobs back. The rest is reclaimed when the lease is gone.
const giveBackTimeout = 3 * time.Second

// Options of an Engine. Parts is required, and must be one with MaxWorkers.
type Options struct {
	Parts  Parts
	Logger *slog.Logger // default slog.Default()
	// AllowCIDR opens address ranges that policy.Address refuses, such as loopback in dev.
	AllowCIDR []netip.Prefix
	// AllowHTTP lets endpoints at public addresses be called without TLS. Those in AllowCIDR always may be.
	AllowHTTP bool
	// Proxy is what every request goes through; nil = none. Then it is the proxy that must refuse addresses that are not
	// public: names are resolved there.
	Proxy *url.URL
	// Jitter gives a number in [0,1) per decision; default random. Tests switch it off.
	Jitter func() float64
	// StopTimeout is how long Stop lets attempts finish before it cuts them; default 20 s. A cut attempt has no
	// outcome and is made again.
	StopTimeout time.Duration
	// PollOnly never listens for notifications: behind PgBouncer in transaction mode none arrive.
	PollOnly bool
	// UserAgent of the requests; default "postrider".
	UserAgent string
	// WebhookOrigin is who asks endpoints of CloudEvents for permission; default eventgrid.azure.net. WebhookRequestRate
	// is how many requests a minute it is asked for; 0 = that is not said.
	WebhookOrigin      string
	WebhookRequestRate int
	// HandshakeTimeout is how long an endpoint may take to answer one request of a handshake, default 30 s; HandshakePause
	// is the time between two of them, default 5 s.
	HandshakeTimeout, HandshakePause time.Duration
	// Retention is how long what is over is kept; its zero value keeps everything.
	Retention query.Retention
	// MaxHeaderBytes bounds the value of a custom header that comes from an event; Event Grid's 4,096 for zero.
	MaxHeaderBytes int
	// DeadLetters are the locations outside that dead letters may be written to; zero for none.
	DeadLetters policy.ExportLocations
	// LogAttempts says which attempts leave a line in the log at level info; default LogFailed. At level debug all do.
	LogAttempts LogAttempts
	// OnAttempt is told of every recorded attempt, and again where a late success ended the delivery; nil = nobody.
	OnAttempt func(AttemptReport)

	stallInterval time.Duration // tests check more often
}

func (o *Options) withDefaults() {
	if o.Jitter == nil {
		o.Jitter = rand.Float64
	}
	o.Logger = cmp.Or(o.Logger, slog.Default())
	o.StopTimeout = cmp.Or(o.StopTimeout, 20*time.Second)
	o.stallInterval = cmp.Or(o.stallInterval, stallInterval)
	o.LogAttempts = cmp.Or(o.LogAttempts, LogFailed)
	o.UserAgent = cmp.Or(o.UserAgent, "postrider")
	o.WebhookOrigin = cmp.Or(o.WebhookOrigin, DefaultWebhookOrigin)
	o.HandshakeTimeout = cmp.Or(o.HandshakeTimeout, policy.HandshakeTimeout)
	o.HandshakePause = cmp.Or(o.HandshakePause, policy.HandshakePause)
}

// Engine makes delivery attempts. One per process.
type Engine struct {
	options  Options
	parts    Parts
	log      *slog.Logger
	lines    ration // of the log
	host     string
	river    *river.Client[pgx.Tx]
	endpoint *endpoint.Client
	cut      context.CancelFunc // ends the requests in flight
	places   *export.Locations  // outside, for dead letters

	ended       *queue.JobSet // jobs whose row is gone, until River completes them
	interrupted *queue.JobSet // jobs whose attempt was cut by Stop
	progress    progress
	leases      *leaseWatch
	stalls      stallWatch
	refills     int
	stalled     atomic.Int64 // a duration, see Stalled

	died     chan struct{} // a node was found dead
	exported chan struct{} // an export has ended: more may be due

	stopClockwork context.CancelFunc
	clockwork     sync.WaitGroup
}

// New prepares an engine; Start sets it going.
func New(o Options) (*Engine, error) {
	if o.Parts.Handoff == nil {
		return nil, errors.New("jobs: a Store with MaxWorkers is required")
	}
	o.withDefaults()
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	e := &Engine{
		options: o, parts: o.Parts, log: o.Logger, host: host, died: make(chan struct{}, 1), exported: make(chan struct{}, 1),
		interrupted: queue.NewJobSet(), ended: queue.NewJobSet(), leases: newLeaseWatch(),
		places: export.NewLocations(o.DeadLetters),
	}
	requests, cut := context.WithCancel(context.Background())
	e.cut, e.endpoint = cut, endpoint.NewClient(requests, endpoint.Options{
		UserAgent: o.UserAgent, AllowCIDR: o.AllowCIDR, AllowHTTP: o.AllowHTTP, Proxy: o.Proxy,
		MaxIdleConnections: o.Parts.Handoff.Workers(), Sent: func() { e.parts.Failpoint.Reach(PointSent) },
	})
	d := driver{riverpgxv5.New(o.Parts.DB.Pool), e}
	if e.river, err = river.NewClient(d, e.riverConfig()); err != nil {
		return nil, fmt.Errorf("set up River: %w", err)
	}
	return e, nil
}

func (e *Engine) riverConfig() *river.Config {
	return &river.Config{
		ID:                  e.parts.Node,
		Schema:              migrations.Schema,
		Workers:             e.workers(),
		Queues:              e.queues(),
		FetchCooldown:       fetchCooldown,
		FetchPollInterval:   e.poll(fetchPollInterval, pollOnlyInterval),
		FetchOnlyKnownKinds: true,
		MaxAttempts:         1000,
		RetryPolicy:         retryPolicy{},
		// Every wait of a job has its own bound, except the one that must not have one: until results can be recorded.
		// River's timeout would cost a goroutine and two timers for each attempt, 4 % of the service's time.
		JobTimeout: -1,
		// River's leader does four things that every node does here, or none: its scheduler makes up to 10,000 due jobs
		// available at once, past the gate (one endpoint's 90,000 retries so kept everybody else waiting for 12 s); its
		// rescuer gives a stuck job out again under the same id, which breaks "a job row is one attempt", and discards kinds
		// it does not know, such as a newer version's; its cleaner is Maintenance.Clean; its reindexer is for operators, see
		// docs/operate/configure.md.
		LeaderElectionDisabled: true,
		SoftStopTimeout:        e.options.StopTimeout,
		Middleware:             []rivertype.Middleware{&joberrors{log: e.log, node: e.parts.Node}},
		Logger:                 slog.New(onlyErrors{e.log.Handler()}),
	}
}

// Start announces the node, sets the clockwork going and begins to fetch.
func (e *Engine) Start(ctx context.Context) error {
	if err := e.parts.Maintenance.EnsurePartitions(ctx); err != nil {
		return err
	}
	if err := e.parts.Nodes.Register(ctx, e.host); err != nil {
		return err
	}
	e.parts.Handoff.Open(fetchPollInterval, e.poll(idlePollInterval, 0)) // 0: an idle node polls like a busy one
	clockwork, stop := context.WithCancel(context.WithoutCancel(ctx))
	e.stopClockwork = stop
	e.clockwork.Go(func() { e.collect(clockwork) })
	for _, l := range e.loops() {
		e.clockwork.Go(func() { e.repeat(clockwork, l) })
	}
	if err := e.river.Start(context.WithoutCancel(ctx)); err != nil {
		stop()
		return fmt.Errorf("start River: %w", err)
	}
	return nil
}

// Stop lets attempts in flight finish for StopTimeout, cuts the others (they go back and are made again by another
// node), and gives the lease back last.
func (e *Engine) Stop(ctx context.Context) error {
	e.endpoint.CloseLate()
	timer := time.AfterFunc(e.options.StopTimeout, e.cut)
	defer timer.Stop()
	neverBegun := e.parts.Handoff.Close()
	err := e.river.Stop(ctx)
	neverBegun = append(neverBegun, e.parts.Handoff.Close()...)
	if err != nil {
		err = fmt.Errorf("stop River: %w", err)
	} else {
		e.endpoint.WaitLate() // for what was answered already; a worker that does not stop would keep its call
	}
	e.cut()
	e.endpoint.CloseIdle()
	e.places.Close()
	e.stopClockwork()
	e.clockwork.Wait()
	return errors.Join(err, e.giveBack(context.WithoutCancel(ctx), neverBegun))
}

// giveBack leaves what this node could not end to the others, and its lease last. Only what was cut is a rerun. Each
// has its own time, and none waits for a job that somebody has locked: once the lease is gone, another node takes that
// one up as a rerun.
func (e *Engine) giveBack(ctx context.Context, neverBegun []int64) error {
	cut := within(ctx, giveBackTimeout, func(ctx context.Context) error {
		_, err := e.parts.JobRows.Reclaim(ctx, e.interrupted.IDs())
		return err
	})
	unbegun := within(ctx, giveBackTimeout, func(ctx context.Context) error {
		_, err := e.parts.JobRows.GiveBack(ctx, neverBegun)
		return err
	})
	lease := within(ctx, clockworkTimeout,
		func(ctx context.Context) error { return e.parts.Nodes.Unregister(ctx, e.parts.Node, nil) })
	return errors.Join(cut, unbegun, lease)
}

func within(ctx context.Context, timeout time.Duration, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return do(ctx)
}

// onlyErrors passes River's errors on and drops the rest: it warns of every job row that is gone when it comes to
// complete it, which is how every attempt ends here.
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

// errNoPolicy is not store.ErrNotFound, which would end the job and leave the delivery without one.
var errNoPolicy = errors.New("its retry policy does not exist")
