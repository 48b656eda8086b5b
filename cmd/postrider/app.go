package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"postrider/catalog"
	"postrider/cmd/postrider/app"
	"postrider/cmd/postrider/metrics"
	"postrider/cmd/postrider/version"
	"postrider/jobs"
	"postrider/policy"
	"postrider/policy/filter"
	"postrider/postgres"
	"postrider/query"
	"postrider/server"
	"postrider/web"
)

// appOptions is what serve and dev say of one running service.
type appOptions struct {
	database   databaseFlags
	role       role
	maxConns   int
	timeScale  int // see store.Options; 0 and 1 are real time
	sealer     *postgres.Sealer
	adminToken string
	// listener answers without TLS, secureListener with it, showing the certificate. One of them, or both.
	listener       net.Listener
	secureListener net.Listener
	certificate    *certificate
	egress         egress
	ingress        ingress
	// filterLimits bound the filters of event subscriptions; zero for Event Grid's.
	filterLimits filter.Limits
	// retention is how long what is over is kept; zero for ever, as in dev.
	retention query.Retention
	// headerLimits bound the custom headers of event subscriptions; zero for Event Grid's.
	headerLimits policy.HeaderLimits
	// deadLetters are the locations outside that dead letters may be written to; zero for none.
	deadLetters policy.ExportLocations
	maxWorkers  int
	stopTimeout time.Duration
	log         *slog.Logger
	logAttempts jobs.LogAttempts

	publicURL string
	webhook   webhookFlags
	// defaultValidation is endpointValidation of who states none; nil for required.
	defaultValidation func(host string) catalog.EndpointValidation

	openUI   bool   // dashboard without login: dev on loopback
	devKey   string // well-known access key, refused unless allowDevKey
	allowDev bool
	// openMetrics answers /metrics to everybody: dev.
	openMetrics bool
	onPublish   func(server.PublishReport)
	onAttempt   func(jobs.AttemptReport)
}

// instance is one running service. Parts are started in the order of the fields and stopped in reverse.
type instance struct {
	pool    *pgxpool.Pool
	store   *app.System
	engine  *jobs.Engine
	http    *http.Server
	tracing *tracing // nil where it is off
	stopRun context.CancelFunc
	running sync.WaitGroup
	ready   atomic.Bool
	looked  lastLook
	keyID   string
	failed  chan error
}

// gcPercent lets the heap grow to four times what is in use before it is collected. Little is in use (tens of MB) and
// thousands of goroutines wait for endpoints: scanning their stacks again and again took 11 % of the CPU per event.
const gcPercent = 300

func startApp(ctx context.Context, o appOptions) (_ *instance, err error) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	a := &instance{keyID: o.sealer.KeyID(), failed: make(chan error, 2)} // one for each listener
	defer func() {
		if err != nil {
			_ = a.stop(context.WithoutCancel(ctx))
		}
	}()
	node := nodeName()
	if err = a.startTracing(ctx, node, &o); err != nil {
		return nil, err
	}
	if a.pool, err = openDatabase(ctx, o.database, o.maxConns, o.log); err != nil {
		return nil, err
	}
	if err = checkDatabase(ctx, a.pool, o); err != nil {
		return nil, err
	}
	s := app.Options{
		Pool: a.pool, Sealer: o.sealer, Logger: o.log, Node: node, Version: version.Number(), TimeScale: o.timeScale,
	}
	if o.role.delivers() {
		s.MaxWorkers = cmp.Or(o.maxWorkers, app.DefaultMaxWorkers)
	}
	if a.store, err = app.New(ctx, withFailpoint(s)); err != nil {
		return nil, err
	}
	if err = a.store.Topics.EnsureSystem(ctx); err != nil {
		return nil, err
	}
	run, stopRun := context.WithCancel(context.Background())
	a.stopRun = stopRun
	a.running.Go(func() { a.store.Run(run) })
	start := a.startEngine
	if !o.role.delivers() {
		start = func(ctx context.Context, o appOptions) error { return a.keepPartitions(ctx, run, o) }
	}
	if err = start(ctx, o); err != nil {
		return nil, err
	}
	return a, a.listen(run, o)
}

// startTracing has what is done told to a collector, where there is one.
func (a *instance) startTracing(ctx context.Context, node string, o *appOptions) (err error) {
	if a.tracing, err = startTracing(ctx, node); err != nil || a.tracing == nil {
		return err
	}
	o.onPublish, o.onAttempt = both(o.onPublish, a.tracing.published), both(o.onAttempt, a.tracing.attempted)
	return nil
}

func checkDatabase(ctx context.Context, pool *pgxpool.Pool, o appOptions) error {
	if err := requireSchema(ctx, pool); err != nil {
		return err
	}
	if err := adviseOnSettings(ctx, pool, o.log); err != nil {
		return err
	}
	return catalog.CheckKey(ctx, pool, o.sealer)
}

func (a *instance) startEngine(ctx context.Context, o appOptions) error {
	engine, err := jobs.New(jobs.Options{
		Parts: a.store.Engine(), Logger: o.log, AllowCIDR: o.egress.allow, AllowHTTP: o.egress.allowHTTP,
		Proxy: o.egress.proxy, StopTimeout: o.stopTimeout,
		PollOnly: o.database.PgBouncer, UserAgent: "postrider/" + version.Number(), LogAttempts: o.logAttempts,
		OnAttempt: o.onAttempt, Retention: o.retention,
		MaxHeaderBytes: o.headerLimits.MaxValueBytes, DeadLetters: o.deadLetters,
		WebhookOrigin: o.webhook.WebhookOrigin, WebhookRequestRate: o.webhook.WebhookRequestRate,
	})
	if err != nil {
		return err
	}
	if err := engine.Start(ctx); err != nil {
		return err
	}
	a.engine = engine
	return nil
}

func (a *instance) listen(run context.Context, o appOptions) error {
	m := &metrics.Collector{System: a.store, Engine: a.engine, Role: string(o.role), Log: o.log}
	srv, err := server.New(server.Options{
		Parts: a.store.API(), AdminToken: o.adminToken, AllowCIDR: o.egress.allow, AllowHTTP: o.egress.allowHTTP,
		FilterLimits: o.filterLimits, HeaderLimits: o.headerLimits, DeadLetters: o.deadLetters, AllowDevKey: o.allowDev,
		DevKey:        o.devKey,
		LocalHostOnly: o.allowDev, Ready: a.isReady, Stopping: run, Logger: o.log, OnPublish: o.onPublish,
		TrustedProxies: o.ingress.trusted, ForwardedHeader: o.ingress.header, RequestsPerSecond: o.ingress.perSecond,
		PublicURL: o.publicURL, DefaultValidation: o.defaultValidation, Metrics: m.Handler(), OpenMetrics: o.openMetrics,
		NoSignIn: o.openUI,
	})
	if err != nil {
		return err
	}
	m.Server = srv
	a.running.Go(func() { srv.Run(run) })
	handler := healthOnly(srv.Handler())
	streams, stopStreams := context.WithCancel(run)
	if o.role.answers() {
		if err := web.Mount(srv.Echo(),
			web.Options{
				Parts: a.store.Dashboard(), API: srv.Handler(), AdminToken: o.adminToken, Open: o.openUI, Retention: o.retention,
				Stopping: streams, Logger: o.log,
			}); err != nil {
			stopStreams()
			return err
		}
		handler = srv.Handler()
	}
	a.answer(run, o, handler)
	a.http.RegisterOnShutdown(stopStreams) // else the shutdown would wait for whoever follows the tail
	a.ready.Store(true)
	return nil
}

func (a *instance) answer(run context.Context, o appOptions, handler http.Handler) {
	a.http = server.NewHTTPServer("", handler)
	a.http.ErrorLog = slog.NewLogLogger(o.log.Handler(), slog.LevelWarn)
	if o.certificate != nil {
		a.http.TLSConfig = o.certificate.config()
		a.running.Go(func() { o.certificate.watch(run) })
	}
	if o.listener != nil {
		a.serve(func() error { return a.http.Serve(o.listener) })
	}
	if o.secureListener != nil {
		a.serve(func() error { return a.http.ServeTLS(o.secureListener, "", "") })
	}
}

func (a *instance) serve(listen func() error) {
	a.running.Go(func() {
		if err := listen(); !errors.Is(err, http.ErrServerClosed) {
			a.failed <- fmt.Errorf("serve HTTP: %w", err)
		}
	})
}

// wait returns when ctx ends or the service cannot go on.
func (a *instance) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-a.failed:
		return err
	}
}

// stop takes no new requests, lets those in progress and attempts in flight finish, records them, and closes.
func (a *instance) stop(ctx context.Context) error {
	a.ready.Store(false)
	var errs []error
	var doors sync.WaitGroup
	if a.http != nil {
		doors.Go(func() { a.stopHTTP(ctx) })
	}
	if a.engine != nil {
		errs = append(errs, a.engine.Stop(ctx))
	}
	doors.Wait()
	if a.stopRun != nil {
		a.stopRun()
	}
	a.running.Wait()
	if a.tracing != nil {
		a.tracing.stop(ctx)
	}
	if a.pool != nil {
		a.pool.Close()
	}
	return errors.Join(errs...)
}

// httpGrace is what requests in progress get before their connections are closed: a publish takes milliseconds, and a
// client that sends half a request must not hold up the stop.
const httpGrace = 2 * time.Second

func (a *instance) stopHTTP(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, httpGrace)
	defer cancel()
	if err := a.http.Shutdown(ctx); err != nil {
		_ = a.http.Close()
	}
}
