package main

import (
	"io"
	"strings"
	"testing"

	"postrider/internal/endpointconf"
	"postrider/internal/filter"
	"postrider/internal/testnode"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"
)

const testEncryptionKey = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="

// inEnvironment runs a verb in this process with these environment variables, until the test ends.
func inEnvironment(t *testing.T, env []string, args ...string) result {
	t.Helper()
	for _, variable := range env {
		name, value, _ := strings.Cut(variable, "=")
		t.Setenv(name, value)
	}
	return postrider(t, strings.NewReader(""), args...)
}

func TestServeNamesTheSettingThatIsWrong(t *testing.T) { //nolint:paralleltest // it sets environment variables
	const url = "POSTRIDER_DATABASE_URL=postgres://user:hunter2@127.0.0.1:1/db"
	const key = "POSTRIDER_ENCRYPTION_KEY=" + testEncryptionKey
	const maxHeaderBytes = "POSTRIDER_MAX_DELIVERY_HEADER_BYTES=1048576"
	for _, row := range []struct { //nolint:paralleltest // as above
		env  []string
		args string
		says string
	}{
		{[]string{key}, "", "POSTRIDER_DATABASE_URL"},
		{
			[]string{key, "POSTRIDER_DATABASE_URL=postgres://user:hunter2@host:port/db"}, "", "POSTRIDER_DATABASE_URL",
		},
		{[]string{url}, "", "POSTRIDER_ENCRYPTION_KEY"},
		{[]string{url, "POSTRIDER_ENCRYPTION_KEY=!!"}, "", "POSTRIDER_ENCRYPTION_KEY"},
		{[]string{url, "POSTRIDER_ENCRYPTION_KEY=c2hvcnQ="}, "", "POSTRIDER_ENCRYPTION_KEY"},
		{[]string{url, key, maxHeaderBytes}, "", "--max-delivery-header-bytes 1048576: must be 1 to 65536"},
		{[]string{url, key, "POSTRIDER_LOG_FORMAT=xml"}, "", "--log-format"},
		{[]string{url, key, "POSTRIDER_ROLE=both"}, "", "--role"},
		{[]string{url, key, "POSTRIDER_PGBOUNCER=perhaps"}, "", "POSTRIDER_PGBOUNCER"},
		{nil, "--allow-cidr 10.0.0.0", `--allow-cidr: "10.0.0.0": must be an address range such as 10.0.0.0/8`},
		{nil, "--max-conns 0", "--max-conns 0: must be 2 to 1000"},
		{nil, "--public-url events.example.com", `--public-url "events.example.com"`},
		{nil, "--public-url https://example.com/?a=b", "--public-url"},
		{nil, "--webhook-origin é.example.com", `--webhook-origin "é.example.com"`},
		{nil, "--webhook-request-rate=-1", "--webhook-request-rate -1"},
		{nil, "--stop-timeout=-1s", "--stop-timeout -1s"},
		{nil, "--log-level loud", "--log-level"},
		{nil, "--dead-letter-location=/var/dead", `--dead-letter-location "/var/dead": must begin with file://`},
		{nil, "--dead-letter-container=mystorage=s3://bucket", "must be ACCOUNT/CONTAINER=URL"},
	} {
		t.Run(row.says, func(t *testing.T) {
			if row.env == nil {
				row.env = []string{url, key}
			}
			r := inEnvironment(t, row.env, append([]string{"serve", "--listen", "127.0.0.1:0"}, strings.Fields(row.args)...)...)
			require.Equal(t, 2, r.code, r.stderr)
			require.Contains(t, r.stderr, row.says)
			require.NotContains(t, r.stderr, "hunter2", "the database's password is no business of the log")
		})
	}
}

// The cases are in TestWeakSecretsAreRejected. A service with one of them does not start.
func TestServeRejectsWeakSecrets(t *testing.T) { //nolint:paralleltest // it sets environment variables
	// In base64, the encryption key of postrider dev is its access key.
	for _, verb := range [][]string{{"serve", "--listen", "127.0.0.1:0"}, {"keys", "rotate"}} {
		r := inEnvironment(t, []string{
			"POSTRIDER_DATABASE_URL=postgres://nowhere.invalid/x", "POSTRIDER_ENCRYPTION_KEY=" + devAccessKey,
		}, verb...)
		require.Equal(t, 2, r.code, r.stderr)
		require.Contains(t, r.stderr, "--encryption-key (POSTRIDER_ENCRYPTION_KEY) is the key of postrider dev")
		require.Contains(t, r.stderr, "openssl rand -base64 32")
		require.NotContains(t, r.stderr, devAccessKey)
	}
	r := inEnvironment(t, []string{
		"POSTRIDER_DATABASE_URL=postgres://nowhere.invalid/x", "POSTRIDER_ENCRYPTION_KEY=" + testEncryptionKey,
		"POSTRIDER_ADMIN_TOKEN=" + devAccessKey,
	}, "serve", "--listen", "127.0.0.1:0")
	require.Equal(t, 2, r.code, r.stderr)
	require.Contains(t, r.stderr, "--admin-token (POSTRIDER_ADMIN_TOKEN) is a secret of postrider dev")
	require.NotContains(t, r.stderr, devAccessKey)
}

func TestServeFlagsReachTheNode(t *testing.T) {
	t.Parallel()
	verbs := newVerbs()
	parser, err := kong.New(verbs)
	require.NoError(t, err)
	_, err = parser.Parse([]string{
		"serve", "--database-url", "postgres://127.0.0.1:1/db", "--encryption-key", testEncryptionKey,
		"--admin-token", "a2tM9xQ4vR7sL1pZ8wB3nC6dF5gH0jK-", "--max-advanced-filters", "3", "--max-filter-values", "4",
		"--max-filter-string", "5", "--max-delivery-headers", "6", "--max-delivery-header-bytes", "7",
		"--allow-cidr", "127.0.0.0/8", "--allow-http", "--requests-per-second", "8", "--webhook-origin", "origin",
		"--webhook-request-rate", "9", "--keep-delivered-days", "10", "--max-workers", "11", "--max-conns", "12",
	})
	require.NoError(t, err)
	o, err := verbs.Serve.options(io.Discard)
	require.NoError(t, err)
	require.Equal(t, filter.Limits{MaxFilters: 3, MaxValues: 4, MaxStringLength: 5}, o.api.FilterLimits)
	require.Equal(t, endpointconf.HeaderLimits{MaxHeaders: 6, MaxValueBytes: 7}, o.api.HeaderLimits)
	require.Equal(t, testnode.Loopback[:1], o.api.AllowCIDR)
	require.True(t, o.api.AllowHTTP)
	require.Equal(t, []any{8, "origin", 9, 10, 11, 12}, []any{
		o.api.RequestsPerSecond, o.engine.WebhookOrigin,
		o.engine.WebhookRequestRate, o.engine.Retention.DeliveredDays, o.maxWorkers, o.maxConns,
	})
}

func TestAWorkerNeedsNoAdminToken(t *testing.T) {
	t.Parallel()
	for role, printed := range map[role]bool{roleWorker: false, roleAPI: true, roleAll: true} {
		var stderr strings.Builder
		require.NotEmpty(t, (&serveCmd{Role: role}).token(&stderr))
		require.Equal(t, printed, strings.Contains(stderr.String(), "Admin token of this process"), role)
	}
}

func TestTracingRejectsAProtocol(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
	_, err := startTracing(t.Context(), "node-1")
	require.ErrorContains(t, err, "must be http/protobuf")
}
