package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"postrider/internal/endpointconf"
	"postrider/internal/filter"
	"postrider/internal/local"
	"postrider/internal/node"
	"postrider/internal/postgres"
	"postrider/internal/terminal"
	"postrider/internal/version"
	"postrider/jobs"
	"postrider/server"
	"postrider/server/auth"
)

// stopGrace is how long a clean stop may take beyond the attempts in flight.
const stopGrace = 10 * time.Second

type serveCmd struct {
	databaseFlags
	logFlags
	LogAttempts jobs.LogAttempts `help:"Delivery attempts to log: none, failed or all." enum:"none,failed,all" default:"failed" env:"POSTRIDER_LOG_ATTEMPTS"`
	Role        role             `help:"all, api (REST API and dashboard, delivers nothing) or worker (delivers, serves only /healthz, /readyz and /metrics)." enum:"all,api,worker" default:"all" env:"POSTRIDER_ROLE"`
	AdminToken  string           `help:"Token for /v1, 32 characters or more; also creates the first admin of the dashboard. Generated and printed once if absent." env:"POSTRIDER_ADMIN_TOKEN" placeholder:"TOKEN"`
	Listen      string           `help:"Address of the REST API and the dashboard." default:"127.0.0.1:7480" env:"POSTRIDER_LISTEN"`
	MaxConns    int              `help:"Connections to the database." default:"16" range:"2..1000" env:"POSTRIDER_MAX_CONNS"`
	MaxWorkers  int              `help:"Delivery attempts in flight on this node, half of them of one event subscription at most." default:"1000" range:"1..10000" env:"POSTRIDER_MAX_WORKERS"`
	StopTimeout time.Duration    `help:"How long a stop waits for attempts in flight before it interrupts them." default:"20s" range:"0.." env:"POSTRIDER_STOP_TIMEOUT"`
	ReadyFile   string           `help:"File to write (JSON) when the node is ready; the node removes it when it stops." env:"POSTRIDER_READY_FILE" placeholder:"FILE"`
	debugFlags
	encryptionFlags
	ingressFlags
	tlsFlags
	egressFlags
	queryFlags
	filterFlags
	retentionFlags
	headerFlags
	webhookFlags
	deadLetterFlags
}

func (serveCmd) Help() string {
	return `Example:
  export POSTRIDER_DATABASE_URL=postgres://postrider:secret@db:5432/postrider
  export POSTRIDER_ENCRYPTION_KEY=$(openssl rand -base64 32)
  postrider migrate up && postrider serve --listen 0.0.0.0:7480
  postrider serve --listen 0.0.0.0:7480 --tls-cert /etc/postrider/cert.pem --tls-key /etc/postrider/key.pem`
}

func (c *serveCmd) Run(ctx context.Context, std terminal.Streams) error {
	o, err := c.options(std.Err)
	if err != nil {
		return err
	}
	base, err := c.listen(ctx, &o)
	if err != nil {
		return err
	}
	if o.debugListener, err = c.listenDebug(ctx); err != nil {
		return err
	}
	a, err := startApp(ctx, o)
	if err != nil {
		return err
	}
	if err = warnUnsafeSettings(ctx, a.store, o.log); err == nil {
		err = local.WriteReadyFile(c.ReadyFile, c.announce(a, o, base))
	}
	if err == nil {
		err = a.wait(ctx)
		local.RemoveReadyFile(c.ReadyFile)
		o.log.Info("stopping", "attempts_may_finish_within", c.StopTimeout)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.StopTimeout+stopGrace)
	defer cancel()
	if stopErr := a.stop(ctx); stopErr != nil && err == nil {
		return fmt.Errorf("stop: %w", stopErr)
	}
	return err
}

// warnUnsafeSettings logs settings with which PostgreSQL may lose commits in a crash.
func warnUnsafeSettings(ctx context.Context, s *node.System, log *slog.Logger) error {
	names, err := postgres.UnsafeSettings(ctx, s.DB.Pool)
	if len(names) > 0 {
		log.Warn("PostgreSQL can lose accepted events in a crash; switch these settings on for cluster, database and role",
			"settings", strings.Join(names, ", "))
	}
	return err
}

// listen opens the node's port, for TLS if there is a certificate, and returns its URL.
func (c *serveCmd) listen(ctx context.Context, o *appOptions) (base string, err error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return "", fmt.Errorf("listen on %s: %w", c.Listen, err)
	}
	listener = local.LimitAddresses(listener, c.MaxConnections, c.TrustedProxies)
	if o.certificate == nil {
		o.listener = listener
		return "http://" + listener.Addr().String(), nil
	}
	o.secureListener = listener
	o.log.Info("serving TLS", "certificate_ends", o.certificate.ends())
	return "https://" + listener.Addr().String(), nil
}

// announce logs and returns the URLs of the node.
func (c *serveCmd) announce(a *instance, o appOptions, base string) local.ReadyInfo {
	log := o.log.With("version", version.Number(), "node", a.store.Node, "role", c.Role)
	if !c.Role.serves() {
		log.Info("ready", "health", base+"/healthz")
		return local.ReadyInfo{Health: base}
	}
	log.Info("ready", "api", base, "dashboard", base+"/ui/")
	return local.ReadyInfo{API: base}
}

func (c *serveCmd) options(stderr io.Writer) (o appOptions, err error) {
	if err := cmp.Or(c.require(), c.checkKey(), checkAdminToken(c.AdminToken, c.EncryptionKey),
		c.webhookFlags.check()); err != nil {
		return o, err
	}
	log := c.logger(stderr)
	o = appOptions{
		database: c.databaseFlags, role: c.Role, maxConns: c.MaxConns, maxWorkers: c.MaxWorkers, log: log,
		query: c.queryFlags.options(),
		api: server.Options{
			AllowCIDR: c.AllowCIDR, AllowHTTP: c.AllowHTTP, FilterLimits: filter.Limits{
				MaxFilters: c.MaxAdvancedFilters, MaxValues: c.MaxFilterValues, MaxStringLength: c.MaxFilterString,
			},
			HeaderLimits: endpointconf.HeaderLimits{
				MaxHeaders: c.MaxDeliveryHeaders, MaxValueBytes: c.MaxDeliveryHeaderBytes,
			},
			PublicURL: strings.TrimRight(c.PublicURL, "/"), DevKey: devAccessKey,
			TrustedProxies: c.TrustedProxies, RequestsPerSecond: c.RequestsPerSecond,
			ForwardedHeader: auth.ForwardedHeader(http.CanonicalHeaderKey(c.ForwardedHeader)),
		},
		engine: jobs.Options{
			PublicURL:   strings.TrimRight(c.PublicURL, "/"),
			StopTimeout: max(c.StopTimeout, time.Millisecond), LogAttempts: c.LogAttempts, Retention: c.retention(),
			WebhookOrigin: c.WebhookOrigin, WebhookRequestRate: c.WebhookRequestRate,
		},
	}
	if o.sealer, err = c.sealer(); err != nil {
		return o, err
	}
	if o.engine.Proxy, err = c.proxy(); err != nil {
		return o, err
	}
	if o.api.DeadLetters, err = c.locations(); err != nil {
		return o, err
	}
	if o.certificate, err = c.tlsFlags.open(log); err != nil {
		return o, err
	}
	o.api.AdminToken = c.token(stderr)
	return o, nil
}

// token returns the admin token, and creates and prints one if the flag is not set. A worker needs none.
func (c *serveCmd) token(stderr io.Writer) string {
	if c.AdminToken != "" {
		return c.AdminToken
	}
	token := newSecret()
	if c.Role.serves() {
		fmt.Fprintf(stderr, "Admin token of this process (set POSTRIDER_ADMIN_TOKEN to choose your own): %s\n", token)
	}
	return token
}
