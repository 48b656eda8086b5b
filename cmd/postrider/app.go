package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
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

	"postrider/internal/catalog"
	"postrider/internal/metrics"
	"postrider/internal/node"
	"postrider/internal/postgres"
	"postrider/internal/sqlquery"
	"postrider/internal/version"
	"postrider/jobs"
	"postrider/server"
	"postrider/web"
)

// appOptions are the options of one node, from the flags of serve or dev.
type appOptions struct {
	database   databaseFlags
	role       role
	maxConns   int
	maxWorkers int
	timeScale  int // see node.Options; 0 and 1 are real time
	sealer     *postgres.Sealer
	query      sqlquery.Options
	// listener serves without TLS, secureListener with it and the certificate. At least one is set.
	listener       net.Listener
	secureListener net.Listener
	certificate    *certificate
	issue          func(*tls.ClientHelloInfo) (*tls.Certificate, error) // instead of certificate: dev's
	notReady       bool                                                 // the caller sets ready
	debugListener  net.Listener                                         // nil = no profiles
	log            *slog.Logger
	// startApp adds the parts of the system, and copies the options that the engine shares with the API.
	api    server.Options
	engine jobs.Options
	openUI bool // the dashboard requires no login: dev on loopback
}

// instance is one running node. startApp starts its parts in the order of the fields.
type instance struct {
	pool    *pgxpool.Pool
	store   *node.System
	engine  *jobs.Engine
	http    *http.Server
	debug   *http.Server // nil without --debug-listen
	tracing *tracing     // nil if no collector is configured
	stopRun context.CancelFunc
	running sync.WaitGroup
	ready   atomic.Bool
	checked lastCheck
	keyID   string
	failed  chan error
}

// startApp opens the database, starts all parts of a node and listens. After an error nothing runs.
func startApp(ctx context.Context, o appOptions) (_ *instance, err error) {
	if os.Getenv("GOGC") == "" {
		newHeapTuner(func(percent int) { debug.SetGCPercent(percent) }).watch()
	}
	a := &instance{keyID: o.sealer.KeyID(), failed: make(chan error, 2)} // one for each listener
	defer func() {
		if err != nil {
			_ = a.stop(context.WithoutCancel(ctx))
		}
	}()
	if o.debugListener != nil { // first, to show what a slow start does
		a.debug = serveDebug(o.debugListener, o.log)
	}
	name := nodeName()
	if a.tracing, err = startTracing(ctx, name); err != nil {
		return nil, err
	}
	if a.tracing != nil { // a collector is configured
		o.api.OnPublish = both(o.api.OnPublish, a.tracing.published)
		o.engine.OnAttempt = both(o.engine.OnAttempt, a.tracing.attempted)
	}
	if a.pool, err = openDatabase(ctx, o.database, o.maxConns, o.log); err != nil {
		return nil, err
	}
	if err = requireWritable(ctx, a.pool); err != nil {
		return nil, err
	}
	if err = adviseOnSettings(ctx, a.pool, o.log); err != nil {
		return nil, err
	}
	if err = catalog.CheckKey(ctx, a.pool, o.sealer); err != nil {
		return nil, err
	}
	s := node.Options{
		Pool: a.pool, Sealer: o.sealer, Logger: o.log, Node: name, Version: version.Number(), TimeScale: o.timeScale,
		Query: o.query,
	}
	if o.role.delivers() {
		s.MaxWorkers = o.maxWorkers
	}
	if a.store, err = node.New(ctx, withFailpoint(s)); err != nil {
		return nil, err
	}
	if err = a.store.Topics.EnsureSystem(ctx); err != nil {
		return nil, err
	}
	run, stopRun := context.WithCancel(context.Background())
	a.stopRun = stopRun
	a.running.Go(func() { a.store.Run(run) })
	if o.role.delivers() {
		err = a.startEngine(ctx, o)
	} else {
		err = a.keepPartitions(ctx, run, o)
	}
	if err != nil {
		return nil, err
	}
	return a, a.listen(run, o)
}

func (a *instance) startEngine(ctx context.Context, o appOptions) error {
	e := o.engine
	e.Logger, e.PollOnly = o.log, o.database.PgBouncer
	e.UserAgent = "postrider/" + version.Number()
	e.AllowCIDR, e.AllowHTTP, e.DeadLetters = o.api.AllowCIDR, o.api.AllowHTTP, o.api.DeadLetters
	e.MaxHeaderBytes = o.api.HeaderLimits.MaxValueBytes
	e.Brokers = node.Brokers()
	engine, err := jobs.New(a.store.Parts, e)
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
	counters := server.NewCounters()
	api := o.api
	api.Parts, api.Logger, api.Ready, api.Stopping, api.Counters = a.store.API(), o.log, a.isReady, run, counters
	api.Metrics = metrics.NewHandler(a.store, a.engine, counters, string(o.role), o.log)
	if a.engine != nil {
		api.Check = a.engine.Check
	}
	srv, err := server.New(api)
	if err != nil {
		return err
	}
	a.running.Go(func() { srv.Run(run) })
	handler := healthOnly(srv.Handler())
	streams, stopStreams := context.WithCancel(run)
	if o.role.serves() {
		if err := web.Mount(srv.Echo(), web.Options{
			Parts: a.store.Dashboard(), API: srv.Handler(), AdminToken: api.AdminToken, Open: o.openUI,
			Retention: o.engine.Retention, Stopping: streams, Logger: o.log,
		}); err != nil {
			stopStreams()
			return err
		}
		handler = srv.Handler()
	}
	a.http = server.NewHTTPServer("", handler)
	a.http.ErrorLog = slog.NewLogLogger(o.log.Handler(), slog.LevelWarn)
	if o.certificate != nil {
		o.issue = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return o.certificate.inUse.Load(), nil }
		a.running.Go(func() { o.certificate.watch(run) })
	}
	if o.issue != nil {
		a.http.TLSConfig = &tls.Config{
			MinVersion:     tls.VersionTLS12,           // RFC 8996 withdraws those before
			NextProtos:     []string{"h2", "http/1.1"}, // net/http adds h2 only if all listeners of the server use TLS
			GetCertificate: o.issue,
		}
	}
	if o.listener != nil {
		a.serve(func() error { return a.http.Serve(o.listener) })
	}
	if o.secureListener != nil {
		a.serve(func() error { return a.http.ServeTLS(o.secureListener, "", "") })
	}
	// Otherwise the shutdown would wait for clients of the tail and for consumers.
	a.http.RegisterOnShutdown(stopStreams)
	a.http.RegisterOnShutdown(a.store.Receiver.Stop)
	a.ready.Store(!o.notReady)
	return nil
}

func (a *instance) serve(listen func() error) {
	a.running.Go(func() {
		if err := listen(); !errors.Is(err, http.ErrServerClosed) {
			a.failed <- fmt.Errorf("serve HTTP: %w", err)
		}
	})
}

// wait returns when ctx ends or a listener fails.
func (a *instance) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-a.failed:
		return err
	}
}

// stop accepts no new requests, waits for requests and attempts in progress, and closes everything.
func (a *instance) stop(ctx context.Context) (err error) {
	a.ready.Store(false)
	var shutdown sync.WaitGroup
	if a.http != nil {
		shutdown.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, httpGrace)
			defer cancel()
			if err := a.http.Shutdown(ctx); err != nil {
				_ = a.http.Close()
			}
		})
	}
	if a.engine != nil {
		err = a.engine.Stop(ctx)
	}
	shutdown.Wait()
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
	if a.debug != nil {
		_ = a.debug.Close()
	}
	return err
}

// httpGrace is how long a stop waits for requests in progress before it closes their connections. A publish takes
// milliseconds, and a client that sends half a request must not delay the stop.
const httpGrace = 2 * time.Second

// role is the part of the service that a node runs. Nodes of all roles share one database.
type role string

const (
	roleAll    role = "all"
	roleAPI    role = "api"    // serves REST API and dashboard
	roleWorker role = "worker" // delivers
)

func (r role) serves() bool   { return r != roleWorker }
func (r role) delivers() bool { return r != roleAPI }

// keepPartitions creates the partitions that a node without an engine publishes to, even if no worker runs.
func (a *instance) keepPartitions(ctx, run context.Context, o appOptions) error {
	if err := a.store.Maintenance.EnsurePartitions(ctx); err != nil {
		return err
	}
	a.running.Go(func() { jobs.KeepPartitions(run, a.store.Maintenance, o.log) })
	return nil
}

// healthOnly is the API of a worker: health and metrics. The response to other requests names the other roles.
func healthOnly(full http.Handler) http.Handler {
	paths := http.NewServeMux()
	paths.Handle("GET /healthz", full)
	paths.Handle("GET /readyz", full)
	paths.Handle("GET /metrics", full)
	paths.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]string{
			"code": "NotFound", "message": "this node only delivers (--role worker); use one with --role api or all",
		}})
	})
	return server.Guarded(paths)
}
