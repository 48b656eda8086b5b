package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"postrider/internal/catalog"
	"postrider/internal/cli/config"
	"postrider/internal/cli/rest"
	"postrider/internal/endpointconf"
	"postrider/internal/event"
	"postrider/internal/local"
	"postrider/internal/node"
	"postrider/internal/pgdev"
	"postrider/internal/postgres"
	"postrider/internal/terminal"
	"postrider/jobs"
	"postrider/policy"
	"postrider/server"
	v1 "postrider/server/v1"
)

// devAccessKey is the access key of dev's topic, always the same so that samples run unchanged. It is no secret: serve
// rejects it, and dev uses it on loopback only. devAccessKey is devEncryptionKey in base64.
const (
	devAccessKey     = "cG9zdHJpZGVyLWRldi1rZXktbm90LWEtc2VjcmV0ISE="
	devEncryptionKey = "postrider-dev-key-not-a-secret!!"
)

const (
	devDatabase    = "postrider"
	devStopTimeout = 2 * time.Second
	devStopWithin  = 4 * time.Second
)

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

type devCmd struct {
	Action string `arg:"" optional:"" help:"reset: bring the running dev back to the state that it had when it was ready, and exit. It is found by --url."`
	rest.ServerFlags
	Listen     string         `help:"Address of the REST API and the dashboard; a free port is chosen if this one is taken." default:"127.0.0.1:7480"`
	SinkListen string         `help:"Address of the demo endpoint; a free port is chosen if this one is taken." default:"127.0.0.1:7481"`
	Keep       string         `help:"Keep the database in this directory instead of removing it at exit." placeholder:"DIR"`
	File       []string       `short:"f" help:"Apply this file before dev is ready; may be repeated. It is a file of apply: YAML or JSON, an Azure Resource Manager template, a list of the Azure CLI, or the configuration of another emulator." placeholder:"FILE"`
	TLS        bool           `name:"tls" help:"Serve TLS as well, with a certificate of dev's own authority, for localhost, names under it, 127.0.0.1, ::1 and --tls-name."`
	TLSName    []string       `name:"tls-name" help:"Name of this host in certificates, beside localhost: that of the container. Names under it are included. Another name creates a new authority." placeholder:"NAME"`
	TLSDir     string         `name:"tls-dir" help:"Folder of dev's certificate authority: ca.pem, which clients trust, and its key. Files of another authority are not replaced. Default: tls beside the database." placeholder:"DIR"`
	TLSListen  string         `name:"tls-listen" help:"Address of the REST API and the dashboard with TLS; a free port is chosen if this one is taken." default:"127.0.0.1:7483"`
	PGPort     int            `name:"pg-port" help:"Port of the private PostgreSQL; a free one is chosen if it is taken." default:"7482"`
	ReadyFile  string         `help:"File to write (JSON) when everything is ready: api, sink, databaseUrl, adminToken, topicKey; with --tls also apiTls, caFile." placeholder:"FILE"`
	AllowCIDR  []netip.Prefix `name:"allow-cidr" help:"Private address ranges in which endpoints are allowed, beside this machine; the dev image allows all private ones." env:"POSTRIDER_ALLOW_CIDR" placeholder:"CIDR"`
	AdminToken string         `help:"Token for the management API, instead of the well-known or the generated one." env:"POSTRIDER_DEV_ADMIN_TOKEN" placeholder:"TOKEN"`
	TopicKey   string         `help:"Access key of the demo topic, and of those of --file without a key, also if --keep has them with another key. Base64 of 16 bytes or more." env:"POSTRIDER_DEV_TOPIC_KEY" placeholder:"KEY"`
	AnyBearer  bool           `help:"Accept every bearer token of publishers and consumers, as Azure's SDKs send it with a TokenCredential." default:"true"`
	deadLetterFlags
	debugFlags
	// The limit is a day in a second: the engine polls for due attempts every 100 ms.
	TimeScale int        `name:"time-scale" help:"Divide every wait between attempts by this, 1 to 86400: with 60 a day of retries takes 24 minutes." default:"1" range:"1..86400" placeholder:"N"`
	Validate  bool       `help:"Require the validation handshake of endpoints on this machine, too."`
	LogLevel  slog.Level `help:"debug, info, warn or error." default:"warn" env:"POSTRIDER_LOG_LEVEL"`
}

func (devCmd) Help() string {
	return `It needs no setup: the database is private and removed at exit. Ctrl-C stops everything.

--time-scale divides the waits of deliveries: the steps, minimum delays, jitter and probations of retry policies,
times to live, Retry-After and its cap, and the delay of dead letter exports. The ack timeout and the time to validate
an endpoint by hand are not divided. Settings keep the values that you write.

On loopback the secrets are well known. There the API and the dashboard accept requests to localhost, names under it
and IP addresses only.

A topic can be published to at the root of a host, as Azure's SDKs do: http://orders.localhost:7480/api/events is topic
orders. If there is one topic beside demo, every host is its host.

dev reset deletes events, deliveries, dead letters, counts and problems, cuts the requests in flight, and restores
topics, event subscriptions and retry policies. Users, API keys and exported files stay. So does DELETE /v1/dev/state.

Examples:
  postrider dev
  postrider dev -f events.yaml --topic-key "$(openssl rand -base64 32)"
  postrider dev reset
  postrider dev --keep ./data --ready-file /tmp/postrider.json
  postrider dev --tls --keep ./data     # the certificate is kept with the database
  postrider dev --time-scale 60         # a day of retries in 24 minutes`
}

// dev has the parts of one `postrider dev`.
type dev struct {
	options  *devCmd
	files    []*config.Declared
	out      io.Writer
	stderr   io.Writer
	postgres *pgdev.Server
	app      *instance
	state    *node.State // when it was ready
	sink     net.Listener
	api      net.Listener
	secure   net.Listener // nil without --tls
	debug    net.Listener // nil without --debug-listen
	ready    local.ReadyInfo
}

func (c *devCmd) Run(ctx context.Context, std terminal.Streams) error {
	switch c.Action {
	case "":
	case "reset":
		return c.reset(ctx)
	default:
		return terminal.Usagef("dev %s: the only action is reset", c.Action)
	}
	d := &dev{options: c, out: std.Out, stderr: std.Err}
	if err := d.readOptions(std.In); err != nil {
		return err
	}
	err := d.start(ctx)
	if err == nil {
		err = d.app.wait(ctx)
	}
	if ctx.Err() != nil {
		err = nil // Ctrl-C during the start is no failure
	}
	fmt.Fprintln(d.out, "Stopping …")
	return errors.Join(err, d.stop())
}

func (d *dev) start(ctx context.Context) error {
	var err error
	if d.debug, err = d.options.listenDebug(ctx); err != nil { // first: PostgreSQL takes seconds to start
		return err
	}
	for _, step := range []func(context.Context) error{d.startPostgres, d.migrate, d.startListeners, d.startService} {
		if err = step(ctx); err != nil {
			return err
		}
	}
	if err = d.setUpDemo(ctx); err != nil {
		return fmt.Errorf("set up the demo topic: %w", err)
	}
	if err = d.applyFiles(ctx); err != nil {
		return err
	}
	if d.state, err = d.app.store.KeepState(ctx); err != nil {
		return err
	}
	d.app.ready.Store(true)
	d.greet()
	if err = local.WriteReadyFile(d.options.ReadyFile, d.ready); err != nil || len(d.files) > 0 {
		return err
	}
	return d.publishFirst(ctx)
}

func (d *dev) startPostgres(ctx context.Context) error {
	started := time.Now()
	server, err := pgdev.Start(ctx,
		pgdev.Options{Dir: d.options.Keep, Port: d.options.PGPort, Durable: true, Log: d.out})
	if err != nil {
		return fmt.Errorf("start the private PostgreSQL: %w", err)
	}
	d.postgres = server
	if err := server.CreateDatabase(ctx, devDatabase); err != nil {
		return fmt.Errorf("create the database: %w", err)
	}
	d.ready.DatabaseURL = server.URL(devDatabase)
	kept := "removed at exit; --keep DIR keeps it"
	if d.options.Keep != "" {
		kept = "kept in " + server.Dir()
	}
	d.row("PostgreSQL",
		fmt.Sprintf("%s on port %d, data %s (%.1f s)", server.Version(), server.Port(), kept, time.Since(started).Seconds()))
	return nil
}

func (d *dev) migrate(ctx context.Context) error {
	sealer, err := postgres.NewSealer([]byte(devEncryptionKey))
	if err != nil {
		return err
	}
	std := terminal.Streams{Out: io.Discard, Err: d.stderr}
	return migrateUp(ctx, std, databaseFlags{DatabaseURL: d.ready.DatabaseURL}, "",
		logFlags{LogLevel: slog.LevelError, LogFormat: "text"}, func(pool, admin *pgxpool.Pool) string {
			return setUpQueries(ctx, postgres.NewDB(pool), postgres.NewDB(admin), sealer)
		})
}

func (d *dev) startListeners(ctx context.Context) error {
	var err error
	if d.api, err = local.ListenOrFree(ctx, d.options.Listen, d.out); err != nil {
		return err
	}
	if d.sink, err = local.ListenOrFree(ctx, d.options.SinkListen, d.out); err != nil {
		return err
	}
	if d.options.TLS {
		if d.secure, err = local.ListenOrFree(ctx, d.options.TLSListen, d.out); err != nil {
			return err
		}
		d.ready.APITLS = "https://" + local.Reachable(d.secure.Addr())
	}
	d.ready.API, d.ready.Sink = "http://"+local.Reachable(d.api.Addr()), "http://"+local.Reachable(d.sink.Addr())
	go func() {
		if err := serveSink(ctx, d.sink, local.NewDemoSink(nil)); err != nil {
			fmt.Fprintln(d.out, "The demo endpoint stopped: "+err.Error())
		}
	}()
	return nil
}

func (d *dev) startService(ctx context.Context) error {
	sealer, err := postgres.NewSealer([]byte(devEncryptionKey))
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(d.out, &slog.HandlerOptions{Level: d.options.LogLevel}))
	issue, err := d.authority()
	if err != nil {
		return err
	}
	deadLetters, err := d.deadLetters()
	if err != nil {
		return err
	}
	private := d.local()
	d.ready.AdminToken, d.ready.TopicKey = d.options.secrets(private)
	allowed := slices.Concat(loopback, d.options.AllowCIDR)
	validation := v1.SkipLocal(allowed)
	if d.options.Validate {
		validation = nil
	}
	d.app, err = startApp(ctx, appOptions{
		database: databaseFlags{DatabaseURL: d.ready.DatabaseURL}, role: roleAll, maxConns: 16, maxWorkers: 1000,
		timeScale: d.options.TimeScale, sealer: sealer, listener: d.api, secureListener: d.secure,
		issue: issue, notReady: true, debugListener: d.debug, log: log, openUI: private,
		api: server.Options{
			AdminToken: d.ready.AdminToken, AllowCIDR: allowed, AllowHTTP: true, DeadLetters: deadLetters,
			DefaultValidation: validation, DevKey: devAccessKey, LocalHostOnly: private,
			AllowDevKey: private || d.ready.TopicKey == devAccessKey, // chosen
			OpenMetrics: private, OnPublish: d.published,
			Dev: &server.Dev{AnyBearer: d.options.AnyBearer, DemoTopic: demoTopic, Reset: d.reset},
		},
		engine: jobs.Options{
			StopTimeout: devStopTimeout, LogAttempts: jobs.LogNone, // dev prints them itself
			OnAttempt: d.attempted,
		},
	})
	return err
}

// deadLetters returns the locations of the flags, and a directory beside the database that needs no flag.
func (d *dev) deadLetters() (endpointconf.ExportLocations, error) {
	locations, err := d.options.locations()
	if err != nil {
		return locations, err
	}
	folder, err := filepath.Abs(d.postgres.Dir())
	if err != nil {
		return locations, err
	}
	own := endpointconf.Location{Scheme: "file", Path: filepath.Join(folder, "dead-letters")}
	locations.Allowed = append(locations.Allowed, own)
	return locations, os.MkdirAll(own.Path, 0o750)
}

// local reports whether only this machine can reach dev.
func (d *dev) local() bool {
	return isLoopback(d.api.Addr()) && (d.secure == nil || isLoopback(d.secure.Addr()))
}

// authority issues dev's certificates, in the directory of its database unless another is chosen; nil without --tls.
func (d *dev) authority() (func(*tls.ClientHelloInfo) (*tls.Certificate, error), error) {
	if d.secure == nil {
		return nil, nil
	}
	own := devTLS{cmp.Or(d.options.TLSDir, filepath.Join(d.postgres.Dir(), "tls")), d.options.TLSName}
	authority, err := own.prepare(time.Now())
	if err != nil {
		return nil, err
	}
	d.ready.CAFile = own.files().TLSCert
	return authority.certificate, nil
}

func (d *dev) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), devStopWithin)
	defer cancel()
	var errs []error
	if d.app != nil {
		errs = append(errs, d.app.stop(ctx))
	}
	if d.postgres != nil {
		errs = append(errs, d.postgres.Stop(ctx))
	}
	local.RemoveReadyFile(d.options.ReadyFile)
	return errors.Join(errs...)
}

// secrets are those of the flags, or else well known on loopback, and random if other machines can connect.
func (c *devCmd) secrets(local bool) (adminToken, topicKey string) {
	if local {
		return cmp.Or(c.AdminToken, rest.DevAdminToken), cmp.Or(c.TopicKey, devAccessKey)
	}
	return cmp.Or(c.AdminToken, newSecret()), cmp.Or(c.TopicKey, newSecret())
}

func isLoopback(a net.Addr) bool {
	addr, ok := a.(*net.TCPAddr)
	return ok && addr.IP.IsLoopback()
}

const demoTopic = "demo"

// setUpDemo creates dev's topic with three endpoints: one succeeds, one succeeds at the third attempt, one never does.
func (d *dev) setUpDemo(ctx context.Context) error {
	topics, subscriptions := d.app.store.Topics, d.app.store.Subscriptions
	keys := &catalog.AccessKeys{Key1: d.ready.TopicKey, Key2: newSecret()}
	spec := catalog.TopicSpec{Kind: catalog.TopicBasic, InputSchema: event.EventGrid, Keys: keys}
	_, created, err := topics.Put(ctx, demoTopic, spec)
	if err == nil && created == nil { // kept from an earlier run, with that run's keys
		err = topics.SetKeys(ctx, demoTopic, *keys)
	}
	if err != nil {
		return err
	}
	for name, path := range map[string]string{"accepted": "/ok", "flaky": "/flaky", "rejected": "/status/400"} {
		if _, _, err := subscriptions.Put(ctx, demoTopic, name, catalog.SubscriptionSpec{
			EndpointURL: d.ready.Sink + path, EndpointKind: policy.KindWebhook, EventDeliverySchema: event.EventGrid,
			RetryPolicy: catalog.RetryPolicySpec{Policy: policy.DefaultName},
		}); err != nil {
			return err
		}
	}
	return nil
}

// publishFirst publishes the first event over HTTP.
func (d *dev) publishFirst(ctx context.Context) error {
	client, err := rest.ServerFlags{URL: d.ready.API}.Connect()
	if err != nil {
		return err
	}
	now := time.Now().UTC()
	hello := json.RawMessage(demoEvent("hello-"+now.Format("150405"), now.Format(time.RFC3339)))
	if err := client.Call(ctx, http.MethodPost, "/topics/"+demoTopic+"/api/events?api-version=2018-01-01",
		[]json.RawMessage{hello}, nil, "Aeg-Sas-Key", d.ready.TopicKey); err != nil {
		return fmt.Errorf("publish the first event: %w", err)
	}
	return nil
}

func demoEvent(id, at string) string {
	return fmt.Sprintf(`{"id":%q,"eventType":"demo.hello","subject":"demo/greetings","eventTime":%q,"dataVersion":"1",`+
		`"data":{"text":"hello"}}`, id, at)
}
