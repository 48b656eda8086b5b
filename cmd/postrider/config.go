package main

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"postrider/internal/endpointconf"
	"postrider/internal/query"
	"postrider/internal/sqlquery"
	"postrider/internal/terminal"
)

// databaseFlags are the flags of verbs that use the database.
type databaseFlags struct {
	DatabaseURL string `help:"PostgreSQL 15 or newer, for example postgres://user:password@host:5432/name." env:"POSTRIDER_DATABASE_URL,DATABASE_URL" placeholder:"URL"`
	PgBouncer   bool   `name:"pgbouncer" help:"The URL leads to PgBouncer in transaction mode: prepare no statements, poll instead of listening." env:"POSTRIDER_PGBOUNCER"`
}

func (f databaseFlags) require() error {
	if f.DatabaseURL == "" {
		return terminal.Usagef("no database: set POSTRIDER_DATABASE_URL or --database-url, for example " +
			"postgres://user:password@host:5432/name (or try `postrider dev`, which brings its own)")
	}
	return nil
}

// logFlags choose what is logged, to standard error.
type logFlags struct {
	LogLevel  slog.Level `help:"debug, info, warn or error." default:"info" env:"POSTRIDER_LOG_LEVEL"`
	LogFormat string     `help:"json or text." enum:"json,text" default:"json" env:"POSTRIDER_LOG_FORMAT"`
}

func (f logFlags) logger(stderr io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: f.LogLevel}
	if f.LogFormat == "text" {
		return slog.New(slog.NewTextHandler(stderr, options))
	}
	return slog.New(slog.NewJSONHandler(stderr, options))
}

// queryFlags configure the queries of users.
type queryFlags struct {
	QueryDatabaseURL []string      `name:"query-database-url" sep:" " help:"URL of the database with a login role that may only read, for the queries of users; several, separated by spaces, run one query each at a time. Default: the login roles that migrate up creates." env:"POSTRIDER_QUERY_DATABASE_URL" placeholder:"URL"`
	QueryTimeout     time.Duration `help:"Time limit of a query." default:"30s" range:"1..50" env:"POSTRIDER_QUERY_TIMEOUT"`
}

func (f queryFlags) options() sqlquery.Options {
	return sqlquery.Options{URLs: f.QueryDatabaseURL, Timeout: f.QueryTimeout}
}

// filterFlags limit the filters of event subscriptions when they are stored. The defaults are Event Grid's.
type filterFlags struct {
	MaxAdvancedFilters int `help:"Advanced filters of an event subscription." default:"25" range:"1..1000" env:"POSTRIDER_MAX_ADVANCED_FILTERS"`
	MaxFilterValues    int `help:"Values in all advanced filters of an event subscription together." default:"25" range:"1..10000" env:"POSTRIDER_MAX_FILTER_VALUES"`
	MaxFilterString    int `help:"Characters of one string value." default:"512" range:"1..10000" env:"POSTRIDER_MAX_FILTER_STRING"`
}

// retentionFlags are in whole days (UTC) before today. The nodes of one database should have the same values: the
// shortest applies.
type retentionFlags struct {
	KeepDeliveredDays   int `help:"Days to keep events, finished deliveries and batches; an event with a pending delivery stays. 0 = forever." default:"30" range:"0..36500" env:"POSTRIDER_KEEP_DELIVERED_DAYS"`
	KeepAttemptsDays    int `help:"Days to keep delivery attempts; 0 = forever." default:"30" range:"0..36500" env:"POSTRIDER_KEEP_ATTEMPTS_DAYS"`
	KeepDeadLettersDays int `help:"Days to keep dead letters; 0 = forever." default:"0" range:"0..36500" env:"POSTRIDER_KEEP_DEAD_LETTERS_DAYS"`
	KeepCountsDays      int `help:"Days to keep counts by the minute; 0 = forever." default:"400" range:"0..36500" env:"POSTRIDER_KEEP_COUNTS_DAYS"`
	KeepAuditDays       int `help:"Days to keep the audit; 0 = forever." default:"400" range:"0..36500" env:"POSTRIDER_KEEP_AUDIT_DAYS"`
	KeepKeysDays        int `help:"Days to list API keys that are revoked or have expired; 0 = forever." default:"400" range:"0..36500" env:"POSTRIDER_KEEP_KEYS_DAYS"`
}

func (f retentionFlags) retention() query.Retention {
	return query.Retention{
		DeliveredDays: f.KeepDeliveredDays, AttemptsDays: f.KeepAttemptsDays, DeadLettersDays: f.KeepDeadLettersDays,
		CountsDays: f.KeepCountsDays, AuditDays: f.KeepAuditDays, KeysDays: f.KeepKeysDays,
	}
}

// headerFlags limit the custom headers of event subscriptions when they are stored. The defaults are Event Grid's.
type headerFlags struct {
	MaxDeliveryHeaders     int `help:"Custom headers of an event subscription." default:"10" range:"1..100" env:"POSTRIDER_MAX_DELIVERY_HEADERS"`
	MaxDeliveryHeaderBytes int `help:"Bytes of a custom header's value. A longer value from an event is not sent." default:"4096" range:"1..65536" env:"POSTRIDER_MAX_DELIVERY_HEADER_BYTES"`
}

// webhookFlags configure the validation handshake with endpoints.
type webhookFlags struct {
	PublicURL          string `name:"public-url" help:"URL at which endpoints and operators reach this service; a handshake's validationUrl and the links in messages begin with it. Default: the URL of the management request, and no links in messages." env:"POSTRIDER_PUBLIC_URL" placeholder:"URL"`
	WebhookOrigin      string `help:"Origin in the handshake with CloudEvents endpoints (WebHook-Request-Origin)." default:"eventgrid.azure.net" env:"POSTRIDER_WEBHOOK_ORIGIN" placeholder:"NAME"`
	WebhookRequestRate int    `help:"Requests per minute in the handshake with CloudEvents endpoints (WebHook-Request-Rate); 0 sends no rate." default:"0" range:"0.." env:"POSTRIDER_WEBHOOK_REQUEST_RATE"`
}

func (f webhookFlags) check() error {
	u, err := url.Parse(f.PublicURL)
	switch {
	case f.PublicURL != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil ||
		u.RawQuery != "" || u.Fragment != "" || endpointconf.EncodingProblem(f.PublicURL) != ""):
		return terminal.Usagef("--public-url %q: not a URL such as https://events.example.com", f.PublicURL)
	case f.WebhookOrigin == "" || strings.ContainsFunc(f.WebhookOrigin, func(r rune) bool { return r <= ' ' || r > '~' }):
		return terminal.Usagef("--webhook-origin %q: not a name such as events.example.com", f.WebhookOrigin)
	}
	return nil
}

// egressFlags limit the addresses of endpoints, and choose a proxy.
type egressFlags struct {
	AllowCIDR     []netip.Prefix `name:"allow-cidr" help:"Private address ranges in which endpoints are allowed, for example 10.1.0.0/16." env:"POSTRIDER_ALLOW_CIDR" placeholder:"CIDR"`
	AllowHTTP     bool           `name:"allow-http" help:"Allow http URLs of endpoints at public addresses; within --allow-cidr they are always allowed." env:"POSTRIDER_ALLOW_HTTP"`
	DeliveryProxy string         `help:"Send requests to endpoints through this proxy (http, https or socks5). The proxy must reject private addresses." env:"POSTRIDER_DELIVERY_PROXY" placeholder:"URL"`
}

// proxy returns nil without a proxy. The error omits the URL, which may contain a password.
func (f egressFlags) proxy() (*url.URL, error) {
	if f.DeliveryProxy == "" {
		return nil, nil // no proxy
	}
	u, err := url.Parse(f.DeliveryProxy)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "socks5" || u.Hostname() == "" {
		return nil, terminal.Usagef("--delivery-proxy: not a URL such as http://proxy.example.com:3128")
	}
	return u, nil
}

// ingressFlags limit incoming requests and connections, and name trusted proxies.
type ingressFlags struct {
	TrustedProxies    []netip.Prefix `help:"Address ranges of the proxies in front of this service, which report the client's address." env:"POSTRIDER_TRUSTED_PROXIES" placeholder:"CIDR"`
	ForwardedHeader   string         `help:"Header in which those proxies report the client's address: x-forwarded-for or forwarded." enum:"x-forwarded-for,forwarded" default:"x-forwarded-for" env:"POSTRIDER_FORWARDED_HEADER"`
	RequestsPerSecond int            `help:"Requests per second of one credential on this node; more get the response 429. 0 = no limit." default:"0" range:"0..1000000" env:"POSTRIDER_REQUESTS_PER_SECOND"`
	MaxConnections    int            `help:"Connections to this node at a time; further ones wait. At most half come from one address that is no trusted proxy; further ones are closed." default:"10000" range:"1..1000000" env:"POSTRIDER_MAX_CONNECTIONS"`
}

// deadLetterFlags name the external locations that dead letters may be exported to. A user who changes an event
// subscription can choose no other: a node must not send its cloud credentials to another server. The nodes of one
// database should have the same values.
type deadLetterFlags struct {
	DeadLetterLocation  []string `help:"Locations to which, or within which, event subscriptions may export dead letters: file:///directory, s3://bucket?region=…, azblob://container." env:"POSTRIDER_DEAD_LETTER_LOCATION" placeholder:"URL"`
	DeadLetterContainer []string `help:"Location for one of Event Grid's storage containers (StorageBlob): ACCOUNT/CONTAINER=URL, with the account's name or resource id." env:"POSTRIDER_DEAD_LETTER_CONTAINER" placeholder:"CONTAINER=URL"`
}

func (f deadLetterFlags) locations() (found endpointconf.ExportLocations, err error) {
	for _, raw := range f.DeadLetterLocation {
		location, err := endpointconf.ParseLocation(raw)
		if err != nil {
			return found, terminal.Usagef("--dead-letter-location %q: %v", raw, err)
		}
		found.Allowed = append(found.Allowed, location)
	}
	for _, raw := range f.DeadLetterContainer {
		if err := found.AddContainer(raw); err != nil {
			return found, terminal.Usagef("--dead-letter-container %q: %v", raw, err)
		}
	}
	return found, nil
}

// newSecret returns 32 random bytes in base64: a token or an encryption key.
func newSecret() string {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	return base64.StdEncoding.EncodeToString(secret)
}

// nodeName returns a name that is unique per process start: a restarted process must not own its predecessor's jobs.
func nodeName() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "node"
	}
	return fmt.Sprintf("%s-%d-%s", host, os.Getpid(), strings.ToLower(rand.Text()[:8]))
}
