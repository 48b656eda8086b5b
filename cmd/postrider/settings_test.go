package main

import (
	"strings"
	"testing"

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
	for _, row := range []struct { //nolint:paralleltest // as above
		name string
		env  []string
		args []string
		says string
	}{
		{"no database", []string{key}, nil, "POSTRIDER_DATABASE_URL"},
		{
			"malformed database URL",
			[]string{key, "POSTRIDER_DATABASE_URL=postgres://user:hunter2@host:port/db"},
			nil,
			"POSTRIDER_DATABASE_URL",
		},
		{"no encryption key", []string{url}, nil, "POSTRIDER_ENCRYPTION_KEY"},
		{"encryption key that is no base64", []string{url, "POSTRIDER_ENCRYPTION_KEY=!!"}, nil, "POSTRIDER_ENCRYPTION_KEY"},
		{
			"encryption key that is too short",
			[]string{url, "POSTRIDER_ENCRYPTION_KEY=c2hvcnQ="},
			nil,
			"POSTRIDER_ENCRYPTION_KEY",
		},
		{"address range without its length", []string{url, key}, []string{"--allow-cidr", "10.0.0.0"}, "--allow-cidr: " +
			`"10.0.0.0": must be an address range such as 10.0.0.0/8`},
		{"no connections", []string{url, key}, []string{"--max-conns", "0"}, "--max-conns 0: must be 2 to 1000"},
		{"connections that are no number", []string{url, key}, []string{"--max-conns", "many"}, "--max-conns"},
		{"no workers", []string{url, key}, []string{"--max-workers", "0"}, "--max-workers 0: must be 1 to 10000"},
		{"no filter values", []string{url, key}, []string{"--max-filter-values", "0"}, "--max-filter-values 0: must be 1 " +
			"to 10000"},
		{"no custom headers", []string{url, key}, []string{"--max-delivery-headers", "0"}, "--max-delivery-headers 0: must " +
			"be 1 to 100"},
		{
			"custom headers of a megabyte",
			[]string{url, key, "POSTRIDER_MAX_DELIVERY_HEADER_BYTES=1048576"},
			nil,
			"--max-delivery-header-bytes 1048576: must be 1 to 65536",
		},
		{
			"public URL without its scheme",
			[]string{url, key},
			[]string{"--public-url", "events.example.com"},
			`--public-url "events.example.com"`,
		},
		{"public URL with a query", []string{url, key}, []string{"--public-url", "https://example.com/?a=b"}, "--public-url"},
		{"origin of two words", []string{url, key}, []string{"--webhook-origin", "a b"}, `--webhook-origin "a b"`},
		{"negative request rate", []string{url, key}, []string{"--webhook-request-rate=-1"}, "--webhook-request-rate -1"},
		{"negative stop timeout", []string{url, key}, []string{"--stop-timeout=-1s"}, "--stop-timeout -1s"},
		{"unknown log level", []string{url, key}, []string{"--log-level", "loud"}, "--log-level"},
		{"unknown log format in the environment", []string{url, key, "POSTRIDER_LOG_FORMAT=xml"}, nil, "--log-format"},
		{"unknown role", []string{url, key}, []string{"--role", "both"}, "--role"},
		{"unknown role in the environment", []string{url, key, "POSTRIDER_ROLE=both"}, nil, "--role"},
		{
			"pgbouncer that is neither yes nor no",
			[]string{url, key, "POSTRIDER_PGBOUNCER=perhaps"},
			nil,
			"POSTRIDER_PGBOUNCER",
		},
		{"unknown flag", []string{url, key}, []string{"--maximum"}, "--maximum"},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := inEnvironment(t, row.env, append([]string{"serve", "--listen", "127.0.0.1:0"}, row.args...)...)
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

func TestDeadLetterLocationsOfTheCommandLine(t *testing.T) { //nolint:paralleltest // it sets environment variables
	for flag, says := range map[string]string{
		"--dead-letter-location=/var/dead":                    `--dead-letter-location "/var/dead": must begin with file://`,
		"--dead-letter-location=file://var/dead":              "three slashes",
		"--dead-letter-location=s3://dead?role=arn:x":         `must have no parameter "role" in its query; s3:// has`,
		"--dead-letter-container=mystorage=s3://bucket":       "must be ACCOUNT/CONTAINER=URL",
		"--dead-letter-container=mystorage/dead=http://local": "must begin with file://",
	} {
		r := inEnvironment(t, []string{
			"POSTRIDER_DATABASE_URL=postgres://nowhere.invalid/x", "POSTRIDER_ENCRYPTION_KEY=" + testEncryptionKey,
		}, "serve", "--listen", "127.0.0.1:0", flag)
		require.Equal(t, 2, r.code)
		require.Contains(t, r.stderr, says)
	}
}
