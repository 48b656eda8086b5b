package e2e

import (
	"bytes"
	"encoding/json"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// explained is the JSON of policy explain, to the last member.
type explained struct {
	Policy   string `json:"policy"`
	Attempts []struct {
		Number    int     `json:"number"`
		AtSeconds float64 `json:"atSeconds"`
		Why       string  `json:"why"`
	} `json:"attempts"`
	End struct {
		AtSeconds float64 `json:"atSeconds"`
		State     string  `json:"state"`
		Reason    *string `json:"reason,omitempty"`
	} `json:"end"`
}

const (
	tooMany = "MaxDeliveryAttemptsExceeded"
	tooOld  = "TimeToLiveExceeded"
)

// The attempts of a delivery whose endpoint always responds 500 unless the flags say otherwise, worked out by hand from
// the pages.
var explainRows = []struct {
	name     string
	args     string
	attempts []float64
	end      float64
	state    string
	reason   string // "": the member is absent
}{
	{
		"preview-2017: 8 attempts in 2 h", "preview-2017 --behavior documented",
		[]float64{0, 10, 40, 100, 400, 1000, 2800, 6400},
		7200, "dropped", tooOld,
	},
	{
		"ga-2018: 30 attempts in 24 h", "ga-2018",
		[]float64{
			0, 10, 40, 100, 400, 1000, 2800, 6400, 10000, 13600, 17200, 20800, 24400, 28000, 31600, 35200, 38800, 42400,
			46000, 49600,
			53200, 56800, 60400, 64000, 67600, 71200, 74800, 78400, 82000, 85600,
		},
		85600, "dead_lettered", tooMany,
	},
	{
		"ga-2019: 30 attempts in 24 h", "ga-2019",
		[]float64{
			0, 10, 40, 100, 400, 1000, 2800, 6400, 10000, 13600, 17200, 20800, 24400, 28000, 31600, 35200, 38800, 42400,
			46000, 49600,
			53200, 56800, 60400, 64000, 67600, 71200, 74800, 78400, 82000, 85600,
		},
		85600, "dead_lettered", tooMany,
	},
	{
		"ga-2021: 11 attempts in 24 h", "ga-2021",
		[]float64{0, 10, 40, 100, 400, 1000, 2800, 6400, 17200, 38800, 82000},
		86400, "dead_lettered", tooOld,
	},
	{
		"namespace-2023: 10 attempts in 30 min", "namespace-2023",
		[]float64{0, 10, 30, 60, 300, 600, 900, 1200, 1500, 1800},
		1800, "dead_lettered", tooMany,
	},
	{
		"namespace-2023 with 20 min: the page's example, its 8th turn finds the event dead", "namespace-2023 --ttl 20m",
		[]float64{0, 10, 30, 60, 300, 600, 900},
		1200, "dead_lettered", tooOld,
	},
	{
		"ga-2021 with 30 min: the mark after the time to live finds the event dead", "ga-2021 --ttl 30m",
		[]float64{0, 10, 40, 100, 400, 1000},
		2800, "dead_lettered", tooOld,
	},
	{
		"ga-2021 with 3 attempts", "ga-2021 --max-attempts 3 --ttl 24h",
		[]float64{0, 10, 40},
		40, "dead_lettered", tooMany,
	},
	{
		"ga-2021 without a dead-letter destination", "ga-2021 --dead-letter none --ttl 1m",
		[]float64{0, 10, 40},
		100, "dropped", tooOld,
	},
	{
		"preview-2017 with a dead-letter destination", "preview-2017 --behavior documented --dead-letter rows",
		[]float64{0, 10, 40, 100, 400, 1000, 2800, 6400},
		7200, "dead_lettered", tooOld,
	},
	{
		"preview-2017, safe", "preview-2017",
		[]float64{0, 10, 40, 100, 400, 1000, 2800, 6400},
		7200, "dead_lettered", tooOld,
	},
	{"delivered", "ga-2021 --status 200", []float64{0}, 0, "delivered", ""},
	{"201 was a failure in 2017", "preview-2017 --status 201 " +
		"--max-attempts 2", []float64{0, 10}, 10, "dead_lettered", tooMany},
	{"400 is never retried", "ga-2021 --status 400", []float64{0}, 0, "dead_lettered", "UndeliverableDueToHttpBadRequest"},
	{"400 in 2019, safe", "ga-2019 --status 400 " +
		"--behavior safe", []float64{0}, 0, "dead_lettered", "UndeliverableDueToHttpBadRequest"},
	{"400 in 2019 as documented, without a destination", "ga-2019 --status 400 --behavior documented " +
		"--max-attempts 3", []float64{0, 300, 600}, 600, "dropped", tooMany},
	{"503 waits 30 s at least", "ga-2021 --status 503 " +
		"--max-attempts 4", []float64{0, 30, 60, 120}, 120, "dead_lettered", tooMany},
	{"404 of a webhook", "ga-2021 --endpoint-kind webhook " +
		"--status 404", []float64{0}, 0, "dead_lettered", "UndeliverableDueToClientError"},
	{
		"404 of an Azure resource waits 5 min at least", "ga-2021 --endpoint-kind azure-resource --status 404",
		[]float64{0, 300, 600, 900, 1200, 1800, 3600, 7200, 18000, 39600, 82800},
		86400, "dead_lettered", tooOld,
	},
	{
		"a timeout in a namespace as documented is never retried", "namespace-2023 --error timeout --behavior documented",
		[]float64{0},
		0, "dropped", "UndeliverableDueToClientError",
	},
	{
		"a timeout in a namespace, safe", "namespace-2023 --error timeout --max-attempts 3",
		[]float64{0, 10, 30},
		30, "dead_lettered", tooMany,
	},
	{
		"Retry-After past the cap", "ga-2021 --status 503 --retry-after 24h --max-attempts 3",
		[]float64{0, 3600, 7200},
		7200, "dead_lettered", tooMany,
	},
}

func TestPolicyExplain(t *testing.T) {
	t.Parallel()
	for _, row := range explainRows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := postrider(t, nil, append(strings.Fields("policy explain -o json"), strings.Fields(row.args)...)...)
			require.Zero(t, r.code, r.stderr)
			require.Empty(t, r.stderr)
			var x explained
			decoder := json.NewDecoder(strings.NewReader(r.stdout))
			decoder.DisallowUnknownFields()
			require.NoError(t, decoder.Decode(&x), r.stdout)
			var at []float64
			for i, a := range x.Attempts {
				require.Equal(t, i+1, a.Number)
				require.NotEmpty(t, a.Why)
				at = append(at, a.AtSeconds)
			}
			require.Equal(t, strings.Fields(row.args)[0], x.Policy)
			require.Equal(t, row.attempts, at)
			require.Equal(t, row.end, x.End.AtSeconds)
			require.Equal(t, row.state, x.End.State)
			if row.reason == "" {
				require.Nil(t, x.End.Reason, "a delivery that worked has no reason, not an empty one")
			} else {
				require.NotNil(t, x.End.Reason)
				require.Equal(t, row.reason, *x.End.Reason)
			}
		})
	}
}

func TestPolicyExplainPrintsJSON(t *testing.T) {
	t.Parallel()
	r := postrider(t, nil, "policy", "explain", "ga-2021", "--status", "503", "--max-attempts", "2", "-o", "json")
	require.Zero(t, r.code, r.stderr)
	var compact bytes.Buffer
	require.NoError(t, json.Compact(&compact, []byte(r.stdout)))
	require.Equal(t, `{"policy":"ga-2021","attempts":[{"number":1,"atSeconds":0,"why":"published"},`+
		`{"number":2,"atSeconds":30,"why":"503: at least 30 s; step 1 is 10 s after the failure"}],`+
		`"end":{"atSeconds":30,"state":"dead_lettered","reason":"MaxDeliveryAttemptsExceeded"}}`, compact.String())
}

func TestPolicyExplainPrintsATable(t *testing.T) {
	t.Parallel()
	r := postrider(t, nil, "policy", "explain", "ga-2018", "--status", "400", "--dead-letter", "none", "--ttl", "2m")
	require.Zero(t, r.code, r.stderr)
	require.Equal(t, `
ATTEMPT  AT SECOND         REASON
1        0          0s     published
2        10         10s    400: step 1 is 10 s after the failure
3        40         40s    400: step 2 is 30 s after the failure
4        100        1m40s  400: step 3 is 1 min after the failure
end      120        2m     dropped TimeToLiveExceeded
`, "\n"+r.stdout)
}

func TestPolicyExplainWaitsForARateLimit(t *testing.T) {
	t.Parallel()
	limited := []string{"policy", "explain", "ga-2021", "--ttl", "6m", "--rate-period", "60"}
	r := postrider(t, nil, append(limited, "--rate-limit", "300", "--backlog", "1500")...)
	require.Zero(t, r.code, r.stderr)
	require.Equal(t, `
ATTEMPT  AT SECOND         REASON
1        300        5m     published; waited for the rate limit of 5 requests/s
2        310        5m10s  500 (other): at least 10 s; step 1 is 10 s after the failure
3        340        5m40s  500 (other): at least 10 s; step 2 is 30 s after the failure
end      400        6m40s  dead_lettered TimeToLiveExceeded
`, "\n"+r.stdout)
	r = postrider(t, nil, append(limited, "--rate-limit", "1", "--backlog", "1500")...)
	require.Zero(t, r.code, r.stderr)
	require.Equal(t, "ATTEMPT  AT SECOND      REASON\nend      360        6m  dead_lettered TimeToLiveExceeded: "+
		"its time to live ended while it waited for the rate limit of 1 request/min\n", r.stdout)
}

func TestPolicyExplainRejects(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, args, says string }{
		{"unknown policy", "ga-2020", "they are preview-2017, ga-2018, ga-2019, ga-2021, namespace-2023"},
		{"no policy", "", "<name>"},
		{"too many attempts", "ga-2021 --max-attempts 31", "between 1 and 30"},
		{"no attempts", "ga-2021 --max-attempts 0", "between 1 and 30"},
		{"too long a life", "ga-2021 --ttl 25h", "between 1 and 1440 minutes"},
		{"no life", "ga-2021 --ttl 0s", "between 1 and 1440 minutes"},
		{"seconds of life", "ga-2021 --ttl 90s", "whole minutes"},
		{"status outside the range", "ga-2021 --status 99", "between 200 and 599"},
		{"status 0", "ga-2021 --status 0", "between 200 and 599"},
		{"status that is no number", "ga-2021 --status fine", "--status"},
		{"unknown error", "ga-2021 --error gremlins", `"timeout","canceled","socket","dns","unauthorized","argument"`},
		{"status and error at once", "ga-2021 --status 500 --error timeout", "with an error"},
		{"a backlog without a rate limit", "ga-2021 --backlog 5", "must be set together"},
		{"a rate limit without a backlog", "ga-2021 --rate-limit 5", "must be set together"},
		{"a rate period alone", "ga-2021 --rate-period 60", "--rate-period only with them"},
		{"a negative backlog", "ga-2021 --rate-limit 5 --backlog=-1", "must be 0 or more, not -1"},
		{"no rate", "ga-2021 --rate-limit 0 --backlog 5", "--rate-limit: must be between 1 and 100000, not 0"},
		{"too long a period", "ga-2021 --rate-limit 5 --rate-period 100000 --backlog 5", "between 1 and 86400"},
		{"a wait into the past", "ga-2021 --retry-after=-5m", "must be 0 or more, not -5m0s"},
		{"unknown kind of endpoint", "ga-2021 --endpoint-kind pigeon", `"webhook","azure-resource"`},
		{"unknown dead-letter destination", "ga-2021 --dead-letter blob", `"rows","none"`},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := postrider(t, nil, append([]string{"policy", "explain"}, strings.Fields(row.args)...)...)
			if row.args == "ga-2020" && strings.Contains(r.stderr, "does not exist") {
				return // a developer runs `make dev`, which serves policies
			}
			require.Equal(t, 2, r.code, r.stderr)
			require.Contains(t, r.stderr, row.says)
		})
	}
}

func TestPolicyListAndShow(t *testing.T) {
	t.Parallel()
	list := postrider(t, nil, "policy", "list")
	require.Zero(t, list.code, list.stderr)
	for _, name := range []string{"preview-2017", "ga-2018", "ga-2019", "ga-2021", "namespace-2023"} {
		require.Contains(t, list.stdout, "\n"+name+" ")
		show := postrider(t, nil, "policy", "show", name, "-o", "json")
		require.Zero(t, show.code, show.stderr)
		require.True(t, json.Valid([]byte(show.stdout)))
	}
}

// The head of policy show, above the status-code table, is everything but that table.
func TestPolicyShowPrintsATable(t *testing.T) {
	t.Parallel()
	for name, head := range map[string]string{
		"preview-2017": `
preview-2017  (Microsoft, Event Grid message delivery and retry, 2017-08-11)

schedule        10s 30s 1m 5m 10m 30m 1h, then every 1h (measured from the failed attempt)
retry window    none
jitter          up to 10 %, 3s at most
attempts        no limit (may be set to 1-30)
time to live    2h (may be set to 1m-24h), expires at_ttl
ack timeout     1m
late responses  ignored
no response     always retried
Retry-After     documented: not honored; safe: honored up to 1h
dead letters    none by default
batching        never: one event per request
probation       none
`,
		"ga-2021": `
ga-2021  (Microsoft, Event Grid message delivery and retry, 2020-10-29)

schedule        10s 30s 1m 5m 10m 30m 1h 3h 6h, then every 12h (measured from the failed attempt)
retry window    no attempt later than 24h after publishing
jitter          up to 10 %, 3s at most
attempts        30 (may be set to 1-30)
time to live    24h (may be set to 1m-24h), expires next_attempt
ack timeout     30s
late responses  a success up to 3m after the request cancels the retry
no response     always retried
Retry-After     documented: not honored; safe: honored up to 1h
dead letters    none by default; exported 5m after the last attempt; export abandoned after 4h
batching        if the event subscription sets it
probation       endpoint, after 10 of its events failed in a row (hold): 5m, doubled up to 4h
`,
		"namespace-2023": `
namespace-2023  (Microsoft, Event Grid namespace push delivery and retry, 2023-11)

schedule        10s 30s 1m 5m, then every 5m (measured from the first attempt)
retry window    none
jitter          none
attempts        10 (may be set to 1-10)
time to live    168h (may be set to 1m-168h), expires next_attempt
ack timeout     30s
late responses  ignored
no response     documented: as in the table; safe: always retried
Retry-After     documented: not honored; safe: honored up to 1h
dead letters    none by default; exported 5m after the last attempt; export abandoned after 4h
batching        if the event subscription sets it
probation       event_subscription, after one failure (documented), by outcome:
                10s after Busy TimedOut
                30s after SocketError
                5m after Disabled Forbidden Full NotFound ResolutionError Unauthorized
                10m after InvalidAzureFunctionDestination
`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := postrider(t, nil, "policy", "show", name)
			require.Zero(t, r.code, r.stderr)
			shown, table, found := strings.Cut(r.stdout, "\nENDPOINT ")
			require.True(t, found)
			require.Equal(t, head, "\n"+shown)
			require.Contains(t, table, "\nazure-resource  other ")
		})
	}
}

func TestPolicyShowRejectsAnUnknownPolicy(t *testing.T) {
	t.Parallel()
	r := postrider(t, nil, "policy", "show", "ga-2020")
	if conn, err := net.Dial("tcp", "127.0.0.1:7480"); err == nil { // a developer runs `make dev`, which is called
		require.NoError(t, conn.Close())
		require.Contains(t, r.stderr, `retry policy "ga-2020" does not exist`)
		return
	}
	require.Equal(t, 2, r.code, r.stderr)
	require.Contains(t, r.stderr, "they are preview-2017, ga-2018, ga-2019, ga-2021, namespace-2023")
}
