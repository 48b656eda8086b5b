package cli_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The exit codes of docs/guides/command-line.md: 0 done, 1 failed or not found, 2 wrong usage. Errors name the mistake.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.topic("orders")
	const missing = "0198c5a0-7b1e-7c3a-9d52-5f3a1c2b4d60"
	const none, erase = `topic "orders" has no event subscription "none"`, "name either an event, or --topic and --subject"
	for code, rows := range map[int]map[string]string{ // what is printed, and the lines that print it
		0: {
			"": "topic list; topic show orders; subscription list; event list --from 1h --to 10m; " +
				"delivery list --from 2026-11-20; batch list; deadletter list; operation list; audit list --until 7d; " +
				"policy list; policy show ga-2021; deadletter purge --all --dry-run; deadletter export --from 1d12h; " +
				"topic create parcels; topic delete parcels --yes",
		},
		1: {
			none: "subscription show orders none; subscription delete orders none --yes; " +
				"subscription test-filter orders none; subscription pause orders none; " +
				"event redeliver --topic orders --to none --from 1h",
			`topic "none" does not exist`: "topic show none; topic delete none --yes; delivery retry-now --topic none; " +
				"deadletter redeliver --topic none; deadletter purge --topic none --yes",
			`retry policy "none" does not exist`: "policy show none; policy delete none --yes; policy explain none",
			`dead letter "` + missing + `" does not exist`: "deadletter show " + missing +
				"; deadletter purge --yes " + missing,
			`operation "` + missing + `" does not exist`: "operation cancel " + missing + "; operation show " + missing,
			"does not exist": "event show " + missing + "; event erase --yes " + missing +
				"; deadletter redeliver " + missing,
			"delivery 7 does not exist":               "delivery show 7; delivery cancel 7 --yes",
			"batch 7 does not exist":                  "batch show 7",
			"built in and never changes":              "policy delete ga-2021 --yes",
			"no such file":                            "deadletter export -o " + t.TempDir() + "/missing/file",
			"check that the service is running":       "topic list --url http://127.0.0.1:1",
			"set POSTRIDER_API_KEY or pass --api-key": "topic list --api-key wrong",
			"does not use TLS: use http://":           "topic list --url " + strings.Replace(h.url, "http:", "https:", 1),
		},
		2: {
			"topic is required with subscription": "deadletter redeliver --all --to-subscription none",
			"must be 3 to 64 characters":          "topic create x",
			"add --yes": "topic delete orders; policy delete mine; delivery cancel 7; deadletter purge " + missing +
				"; event erase " + missing,
			"unknown flag --loud":     "topic list --loud",
			"--output must be one of": "topic list -o xml",
			"not a URL":               "topic list --url orders:1; topic list --url ftp://x",
			"no such file": "topic list --ca-file /none; policy put mine -f /none; publish orders /none; " +
				"apply -f /none",
			"--file":                          "policy put mine",
			"must be 1 to 10000":              "event list --limit 0; audit list --limit 10001",
			"must be an age":                  "event list --from soon",
			"such as 30s, 20m, 24h or 7d":     "policy explain ga-2021 --ttl soon; problem list --within 1x",
			"must be before --until":          "event list --from 1h --to 2h",
			"postrider \"7\": must be a UUID": "event show 7",
			erase: "event erase --yes; event erase --yes --topic orders; " +
				"event erase --yes --topic orders " + missing,
			`must be one of pending, `:                    "delivery list --state dead; batch list --state dead",
			"must be one of topic_created, ":              "audit list --action dead",
			"Id of the operation \"x\": must be a UUID":   "operation show x",
			"Id of the dead letter \"x\": must be a UUID": "deadletter show x",
			"choose deliveries with one of":               "delivery cancel",
			"are for many deliveries":                     "delivery cancel 1 --rate 5",
			"choose dead letters with ids":                "deadletter purge",
			"use either ids or filters":                   "deadletter purge --topic orders " + missing,
			"--rate -1: must be 1 or more":                "deadletter purge --all --rate=-1",
			"require a filter or":                         "deadletter purge --dry-run " + missing,
			"--state all is not supported here": "deadletter redeliver --topic orders --state all --dry-run; " +
				"deadletter resolve --topic orders --state all --no-wait; " +
				"deadletter patch --topic orders --state all --merge-patch - --no-wait",
			"requires --to-subscription":     "deadletter redeliver --all --to-topic orders",
			"must begin with file://":        "deadletter export -o gs://bucket/x",
			"must name a file in the bucket": "deadletter export -o s3://bucket",
			"requires --ack or --lock":       "receive orders billing --follow",
			"--ack":                          "receive orders billing --ack --lock",
			"--sql":                          "query run; query run sum --sql x",
			"": "topic; delivery show x; tail --subscription billing; topic create abc --input-mapping-fields kind; " +
				"subscription create orders abc --endpoint-type eventhub; " +
				"subscription create orders abc --advanced-filter data.total; " +
				"subscription create orders abc --expiration-date tomorrow; " +
				"subscription create orders abc --subject-case-sensitive=perhaps; subscription update orders abc; " +
				"subscription update orders abc --unset labels --labels a; " +
				"subscription signing-secrets orders abc --previous-valid-for-hours 1; publish orders --count 2; " +
				"publish orders --sample file; publish orders --type A --data {; listen --respond 99; " +
				"listen --forward-to here; listen --listen 127.0.0.1:0 --policy ga-2019",
		},
	} {
		for says, lines := range rows {
			for line := range strings.SplitSeq(lines, "; ") {
				r := postrider(t, h.reached(strings.Fields(line))...)
				assert.Equal(t, code, r.code, "%s: %s%s", line, r.stdout, r.stderr)
				assert.Equal(t, code == 0, r.stderr == "", "%s: %s", line, r.stderr)
				assert.Contains(t, r.stderr, says, line)
			}
		}
	}
}

// The API's messages may change: hints follow its codes and targets.
func TestHintsFollowCodes(t *testing.T) {
	t.Parallel()
	const redeliver, listen = "deadletter redeliver " + zeroID, "listen --listen 127.0.0.1:0 --topic orders"
	const target = `{"error":{"code":"InvalidRequest","message":"endpointUrl","details":[{"target":%q,"message":"a"}]}}`
	const code = `{"error":{"code":%q,"message":"was redelivered already"}}`
	for _, row := range []struct {
		body         string
		status, code int
		args, hint   string
		hinted       bool
	}{
		{fmt.Sprintf(code, "DeadLetterRedelivered"), http.StatusConflict, 1, redeliver, "--again", true},
		{fmt.Sprintf(code, "DeadLetterExporting"), http.StatusConflict, 1, redeliver, "--again", false},
		{fmt.Sprintf(target, "endpointUrl"), http.StatusBadRequest, 2, listen, "--allow-cidr", true},
		{fmt.Sprintf(target, "retryPolicy"), http.StatusBadRequest, 2, listen, "--allow-cidr", false},
	} {
		api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(row.status)
			_, _ = w.Write([]byte(row.body))
		}))
		r := postrider(t, append(strings.Fields(row.args), "--url", api.URL)...)
		api.Close()
		require.Equal(t, row.code, r.code, r.stderr)
		require.Equal(t, row.hinted, strings.Contains(r.stderr, row.hint), r.stderr)
	}
}

// A server's mistakes are listed with their targets.
func TestRejectionsListEachMistake(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.topic("refusing")
	require.Equal(t, `postrider: the server found 2 mistakes
  retryPolicy.maxDeliveryAttempts: must be between 1 and 30 under retry policy ga-2021, not 900
  retryPolicy.eventTimeToLiveInMinutes: must be between 1 and 1440 minutes under retry policy ga-2021, not 0
`, h.run(2, "subscription", "create", "refusing", "abc", "--endpoint", h.url, "--max-delivery-attempts", "900",
		"--event-ttl", "0").stderr)
	require.Contains(t, postrider(t, "topic", "list", "--url", "https://events.example.com", "--api-key", "").stderr,
		"no key for https://events.example.com")
	h.run(2, "subscription", "create", "refusing", "abc", "--delivery-attribute-mapping", "X-A static")
}
