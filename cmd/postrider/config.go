package main

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"os"
	"strings"

	"postrider/cmd/postrider/terminal"
	"postrider/jobs"
	"postrider/policy"
	"postrider/policy/filter"
	"postrider/query"
)

// databaseFlags are shared by every verb that needs the database.
type databaseFlags struct {
	DatabaseURL string `help:"PostgreSQL 15 or newer, for example postgres://user:password@host:5432/name." env:"POSTRIDER_DATABASE_URL,DATABASE_URL" placeholder:"URL"`
	PgBouncer   bool   `name:"pgbouncer" help:"The URL leads to PgBouncer in transaction mode: prepare nothing, poll instead of listening." env:"POSTRIDER_PGBOUNCER"`
}

func (f databaseFlags) require() error {
	if f.DatabaseURL == "" {
		return terminal.Usagef("no database: set POSTRIDER_DATABASE_URL or --database-url, for example " +
			"postgres://user:password@host:5432/name (or try `postrider dev`, which brings its own)")
	}
	return nil
}

// logFlags choose what is logged, to stderr.
type logFlags struct {
	LogLevel  slog.Level `help:"debug, info, warn or error." default:"info" env:"POSTRIDER_LOG_LEVEL"`
	LogFormat string     `help:"json or text." enum:"json,text" default:"json" env:"POSTRIDER_LOG_FORMAT"`
}

// attemptLogFlag chooses which attempts are logged.
type attemptLogFlag struct {
	LogAttempts jobs.LogAttempts `help:"Which delivery attempts leave a line in the log: none, failed or all." enum:"none,failed,all" default:"failed" env:"POSTRIDER_LOG_ATTEMPTS"`
}

func (f logFlags) logger() *slog.Logger {
	options := &slog.HandlerOptions{Level: f.LogLevel}
	if f.LogFormat == "text" {
		return slog.New(slog.NewTextHandler(os.Stderr, options))
	}
	return slog.New(slog.NewJSONHandler(os.Stderr, options))
}

// filterFlags bound the filter of each event subscription that is put from then on; the defaults are Event Grid's.
type filterFlags struct {
	MaxAdvancedFilters int `help:"Advanced filters of an event subscription." default:"25" env:"POSTRIDER_MAX_ADVANCED_FILTERS"`
	MaxFilterValues    int `help:"Values in all advanced filters of an event subscription together." default:"25" env:"POSTRIDER_MAX_FILTER_VALUES"`
	MaxFilterString    int `help:"Characters of one string value." default:"512" env:"POSTRIDER_MAX_FILTER_STRING"`
}

func (f filterFlags) limits() (filter.Limits, error) {
	for _, flag := range []struct {
		name        string
		value, most int
	}{
		{"--max-advanced-filters", f.MaxAdvancedFilters, 1000},
		{"--max-filter-values", f.MaxFilterValues, 10_000},
		{"--max-filter-string", f.MaxFilterString, 10_000},
	} {
		if flag.value < 1 || flag.value > flag.most {
			return filter.Limits{}, terminal.Usagef("%s %d: must be 1 to %d", flag.name, flag.value, flag.most)
		}
	}
	return filter.Limits{
		MaxFilters: f.MaxAdvancedFilters, MaxValues: f.MaxFilterValues, MaxStringLength: f.MaxFilterString,
	}, nil
}

// retentionFlags are in whole days (UTC) before the current one. The nodes of one database should agree: what the
// shortest says is gone.
type retentionFlags struct {
	KeepDeliveredDays   int `help:"Days for which events, finished deliveries and batches are kept; an event that is still owed stays. 0 = for ever." default:"30" env:"POSTRIDER_KEEP_DELIVERED_DAYS"`
	KeepAttemptsDays    int `help:"Days for which delivery attempts are kept; 0 = for ever." default:"30" env:"POSTRIDER_KEEP_ATTEMPTS_DAYS"`
	KeepDeadLettersDays int `help:"Days for which dead letters are kept; 0 = for ever." default:"0" env:"POSTRIDER_KEEP_DEAD_LETTERS_DAYS"`
	KeepCountsDays      int `help:"Days for which counts by the minute are kept; 0 = for ever." default:"400" env:"POSTRIDER_KEEP_COUNTS_DAYS"`
	KeepAuditDays       int `help:"Days for which the audit is kept; 0 = for ever." default:"400" env:"POSTRIDER_KEEP_AUDIT_DAYS"`
	KeepKeysDays        int `help:"Days for which API keys stay listed that were revoked or have expired; 0 = for ever." default:"400" env:"POSTRIDER_KEEP_KEYS_DAYS"`
}

func (f retentionFlags) retention() (query.Retention, error) {
	const most = 36_500
	for _, flag := range []struct {
		name  string
		value int
	}{
		{"--keep-delivered-days", f.KeepDeliveredDays},
		{"--keep-attempts-days", f.KeepAttemptsDays},
		{"--keep-dead-letters-days", f.KeepDeadLettersDays},
		{"--keep-counts-days", f.KeepCountsDays},
		{"--keep-audit-days", f.KeepAuditDays},
		{"--keep-keys-days", f.KeepKeysDays},
	} {
		if flag.value < 0 || flag.value > most {
			return query.Retention{}, terminal.Usagef("%s %d: must be 0 (for ever) to %d", flag.name, flag.value, most)
		}
	}
	return query.Retention{
		DeliveredDays: f.KeepDeliveredDays, AttemptsDays: f.KeepAttemptsDays, DeadLettersDays: f.KeepDeadLettersDays,
		CountsDays: f.KeepCountsDays,
		AuditDays:  f.KeepAuditDays, KeysDays: f.KeepKeysDays,
	}, nil
}

// headerFlags bound the custom headers of each event subscription that is put from then on; the defaults are Event
// Grid's.
type headerFlags struct {
	MaxDeliveryHeaders     int `help:"Custom headers of an event subscription." default:"10" env:"POSTRIDER_MAX_DELIVERY_HEADERS"`
	MaxDeliveryHeaderBytes int `help:"Bytes of a custom header's value; one from an event that is longer is not sent." default:"4096" env:"POSTRIDER_MAX_DELIVERY_HEADER_BYTES"`
}

func (f headerFlags) limits() (policy.HeaderLimits, error) {
	switch {
	case f.MaxDeliveryHeaders < 1 || f.MaxDeliveryHeaders > 100:
		return policy.HeaderLimits{}, terminal.Usagef("--max-delivery-headers %d: must be 1 to 100", f.MaxDeliveryHeaders)
	case f.MaxDeliveryHeaderBytes < 1 || f.MaxDeliveryHeaderBytes > 65_536:
		return policy.HeaderLimits{}, terminal.Usagef("--max-delivery-header-bytes %d: must be 1 to 65536",
			f.MaxDeliveryHeaderBytes)
	}
	return policy.HeaderLimits{MaxHeaders: f.MaxDeliveryHeaders, MaxValueBytes: f.MaxDeliveryHeaderBytes}, nil
}

// webhookFlags are about the validation handshake with endpoints, see docs/endpoints.md.
type webhookFlags struct {
	PublicURL          string `name:"public-url" help:"How endpoints reach this service: what a handshake's validationUrl begins with. Default: what the management request was sent to." env:"POSTRIDER_PUBLIC_URL" placeholder:"URL"`
	WebhookOrigin      string `help:"Who asks endpoints of CloudEvents for permission (WebHook-Request-Origin)." default:"eventgrid.azure.net" env:"POSTRIDER_WEBHOOK_ORIGIN" placeholder:"NAME"`
	WebhookRequestRate int    `help:"Requests a minute that endpoints of CloudEvents are asked for (WebHook-Request-Rate); 0 does not ask." default:"0" env:"POSTRIDER_WEBHOOK_REQUEST_RATE"`
}

// parse judges the flags and returns the public URL without a slash at its end.
func (f webhookFlags) parse() (publicURL string, err error) {
	u, err := url.Parse(f.PublicURL)
	switch {
	case f.PublicURL != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil ||
		u.RawQuery != "" || u.Fragment != ""):
		return "", terminal.Usagef("--public-url %q: not a URL such as https://events.example.com", f.PublicURL)
	case f.WebhookOrigin == "" || strings.ContainsFunc(f.WebhookOrigin, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", terminal.Usagef("--webhook-origin %q: not a name such as events.example.com", f.WebhookOrigin)
	case f.WebhookRequestRate < 0:
		return "", terminal.Usagef("--webhook-request-rate %d: must not be negative", f.WebhookRequestRate)
	}
	return strings.TrimRight(f.PublicURL, "/"), nil
}

func parsePrefixes(flag string, values []string) ([]netip.Prefix, error) {
	prefixes := make([]netip.Prefix, 0, len(values))
	for _, value := range values {
		prefix, err := netip.ParsePrefix(value)
		if err != nil {
			return nil, terminal.Usagef("%s %q: not an address range such as 10.0.0.0/8", flag, value)
		}
		prefixes = append(prefixes, prefix)
	}
	return prefixes, nil
}

// newSecret is 32 random bytes in base64: a token or an encryption key.
func newSecret() string {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails since Go 1.24
	return base64.StdEncoding.EncodeToString(secret)
}

// nodeName is unique per process start: the jobs of a process that died must never look like those of its successor.
func nodeName() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "node"
	}
	unique := make([]byte, 4)
	_, _ = rand.Read(unique)
	return fmt.Sprintf("%s-%d-%s", host, os.Getpid(), hex.EncodeToString(unique))
}
