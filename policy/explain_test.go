package policy_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"postrider/policy"

	"github.com/stretchr/testify/require"
)

func ptr[T any](v T) *T { return &v }

// hourly returns from, from + 1 h, … up to and including to, in seconds.
func hourly(from, to float64) []float64 {
	var times []float64
	for at := from; at <= to; at += 3600 {
		times = append(times, at)
	}
	return times
}

func onGaps(p *policy.Policy) { p.Basis = policy.BasisGap }

func onOffsets(p *policy.Policy) { p.Basis = policy.BasisOffset }

// "every 12 hours up to 24 hours", read as offsets: 12 h and 24 h after the first attempt.
func onOffsets2021(p *policy.Policy) {
	p.Basis = policy.BasisOffset
	p.Steps = append(p.Steps, 12*hour)
}

type (
	explain = policy.ExplainOptions
	offsets = []float64
)

const (
	exhausted, expired = policy.Reason("MaxDeliveryAttemptsExceeded"), policy.Reason("TimeToLiveExceeded")
	documented         = policy.BehaviorDocumented
	rateLimit          = "the rate limit of 50 requests/s"
)

func dead(at float64, r policy.Reason) policy.ExplainedEnd {
	return policy.ExplainedEnd{AtSeconds: at, State: "dead_lettered", Reason: r}
}

func dropped(at float64, r policy.Reason) policy.ExplainedEnd {
	return policy.ExplainedEnd{AtSeconds: at, State: "dropped", Reason: r}
}

// The schedules in seconds: those of the pages up to 2019 read as gaps and as offsets, and the namespace's offsets.
var (
	classic      = offsets{0, 10, 40, 100, 400, 1000, 2800, 6400}
	classicDay   = slices.Concat(classic, hourly(10000, 85600))
	classic2021  = slices.Concat(classic, offsets{17200, 38800, 82000})
	classicMarks = slices.Concat(offsets{0, 10, 30, 60, 300, 600, 1800, 3600}, hourly(7200, 82800))
	marks2021    = slices.Concat(classicMarks[:8], offsets{10800, 21600, 43200})

	namespace     = offsets{0, 10, 30, 60, 300, 600, 900, 1200, 1500, 1800}
	namespace503  = offsets{0, 30, 60, 90, 300, 600, 900, 1200, 1500, 1800}
	namespace408  = offsets{0, 120, 240, 360, 480, 600, 900, 1200, 1500, 1800}
	namespaceGaps = offsets{0, 10, 40, 100, 400, 700, 1000, 1300, 1600, 1900}
)

// explainVectors are attempt times calculated by hand, for status 500 unless the options have another result.
var explainVectors = []struct {
	policy string
	change func(*policy.Policy)
	with   explain
	want   []float64
	end    policy.ExplainedEnd
}{
	{"preview-2017", nil, explain{Behavior: documented}, classic, dropped(7200, expired)},
	{"preview-2017", nil, explain{TTLMinutes: ptr(1440), Behavior: documented}, classicDay, dropped(86400, expired)},
	{"preview-2017", nil, explain{MaxAttempts: ptr(3), DeadLetter: ptr(true)}, classic[:3], dead(40, exhausted)},
	{"ga-2018", nil, explain{}, classicDay, dead(85600, exhausted)}, // 30 attempts are 24 h
	{"ga-2019", nil, explain{DeadLetter: ptr(false)}, classicDay, dropped(85600, exhausted)},
	{"ga-2019", nil, explain{TTLMinutes: ptr(30)}, classic[:6], dead(1800, expired)},
	{"ga-2021", nil, explain{}, classic2021, dead(86400, expired)}, // 11 attempts, 24 h clip
	{"ga-2021", nil, explain{TTLMinutes: ptr(30), MaxAttempts: ptr(10)}, classic[:6], dead(2800, expired)},
	{"ga-2021", nil, explain{MaxAttempts: ptr(11)}, classic2021, dead(82000, exhausted)},
	{"namespace-2023", nil, explain{}, namespace, dead(1800, exhausted)},
	// The page's example: attempt 8 finds it expired.
	{"namespace-2023", nil, explain{TTLMinutes: ptr(20)}, namespace[:7], dead(1200, expired)},
	{"namespace-2023", nil, explain{Result: status(503)}, namespace503, dead(1800, exhausted)},
	{"namespace-2023", nil, explain{Result: status(408)}, namespace408, dead(1800, exhausted)},
	{"namespace-2023", onGaps, explain{}, namespaceGaps, dead(1900, exhausted)}, // without the 0 s of the page
	{"preview-2017", onOffsets, explain{Behavior: documented}, classicMarks[:8], dropped(7200, expired)},
	{"ga-2018", onOffsets, explain{}, classicMarks, dead(82800, exhausted)},
	{"ga-2019", onOffsets, explain{}, classicMarks, dead(82800, exhausted)},
	{"ga-2021", onOffsets2021, explain{}, marks2021, dead(86400, expired)},
	{"ga-2021", onOffsets2021, explain{TTLMinutes: ptr(30)}, classicMarks[:6], dead(1800, expired)},
	{"ga-2021", nil, explain{Result: status(400)}, offsets{0}, dead(0, "UndeliverableDueToHttpBadRequest")},
	{
		"ga-2021", nil,
		explain{Kind: policy.KindAzureResource, Result: status(404), MaxAttempts: ptr(4)},
		offsets{0, 300, 600, 900},
		dead(900, exhausted),
	},
	{
		"ga-2019", nil,
		explain{Result: status(400), DeadLetter: ptr(false), MaxAttempts: ptr(3)},
		offsets{0, 300, 600},
		dropped(600, exhausted),
	},
	// Retry-After requests a day; its cap is an hour.
	{"ga-2021", nil, busy(explain{MaxAttempts: ptr(3)}), offsets{0, 3600, 7200}, dead(7200, exhausted)},
	{"ga-2019", nil, busy(explain{TTLMinutes: ptr(60)}), offsets{0, 3570}, dead(3600, expired)},
	{"ga-2021", nil, busy(explain{MaxAttempts: ptr(2), Behavior: documented}), offsets{0, 30}, dropped(30, exhausted)},
	// The first attempt waits for a rate limit, until just before its time to live ends, and until it ends.
	{"ga-2021", nil, waits(400, explain{MaxAttempts: ptr(3)}), offsets{400, 410, 440}, dead(440, exhausted)},
	{"ga-2021", nil, waits(86370, explain{}), offsets{86370, 86380}, dead(86400, expired)},
	{
		"namespace-2023", nil, waits(172800, explain{TTLMinutes: ptr(20)}),
		[]float64{},
		policy.ExplainedEnd{1200, "dead_lettered", expired, "its time to live ended while it waited for " + rateLimit},
	},
	{"ga-2021", nil, explain{Result: status(200)}, offsets{0}, policy.ExplainedEnd{State: "delivered"}},
	{"ga-2026", nil, explain{}, classic2021, dead(86400, expired)},
	// The page's example: 6 attempts.
	{"ga-2026", nil, explain{TTLMinutes: ptr(30), MaxAttempts: ptr(10)}, classic[:6], dead(2800, expired)},
	{"ga-2026", nil, explain{Result: status(404), MaxAttempts: ptr(3)}, classic[:3], dead(40, exhausted)},
	{"ga-2026", nil, explain{Result: status(401)}, offsets{0}, dead(0, "UndeliverableDueToClientError")},
}

func busy(with explain) explain {
	with.Result, with.RetryAfter = status(503), 24*time.Hour
	return with
}

func waits(seconds int, with explain) explain {
	with.Wait, with.WaitedFor = time.Duration(seconds)*time.Second, rateLimit
	return with
}

func TestExplainVectors(t *testing.T) {
	t.Parallel()
	for _, tt := range explainVectors {
		p := builtin(t, tt.policy)
		if tt.change != nil {
			p = copyOf(t, tt.policy, tt.change)
		}
		x, err := policy.Explain(p, tt.with)
		require.NoError(t, err)
		at := make([]float64, 0, len(x.Attempts))
		for i, a := range x.Attempts {
			require.Equal(t, i+1, a.Number)
			require.NotEmpty(t, a.Why)
			at = append(at, a.AtSeconds)
		}
		require.Equal(t, tt.want, at, "%s %+v", p.Name, tt.with)
		require.Equal(t, tt.end, x.End, "%s %+v", p.Name, tt.with)
		require.Equal(t, p.Name, x.Policy)
	}
}

func TestExplainAsJSON(t *testing.T) {
	t.Parallel()
	p := builtin(t, "namespace-2023")
	x, err := policy.Explain(p, explain{MaxAttempts: ptr(2), Result: status(503)})
	require.NoError(t, err)
	text, err := json.Marshal(x)
	require.NoError(t, err)
	require.JSONEq(t, `{"policy":"namespace-2023","attempts":[
		{"number":1,"atSeconds":0,"why":"published"},
		{"number":2,"atSeconds":30,"why":"503: at least 30 s; offset 1 is 10 s after the first attempt"}],
		"end":{"atSeconds":30,"state":"dead_lettered","reason":"MaxDeliveryAttemptsExceeded"}}`, string(text))

	text, err = json.Marshal(policy.ExplainedEnd{State: "delivered"})
	require.NoError(t, err)
	require.JSONEq(t, `{"atSeconds":0,"state":"delivered"}`, string(text))
}

func TestExplainErrors(t *testing.T) {
	t.Parallel()
	for field, with := range map[string]explain{
		"retryPolicy.maxDeliveryAttempts":      {MaxAttempts: ptr(31)},
		"retryPolicy.eventTimeToLiveInMinutes": {TTLMinutes: ptr(1441)},
		"wait":                                 {Wait: -1},
		"endpointKind":                         {Kind: "pigeon"},
		"behavior":                             {Behavior: "gentle"},
		"retryAfter":                           {RetryAfter: -1},
		"error":                                {Result: failure("gremlins")},
	} {
		_, err := policy.Explain(builtin(t, "ga-2021"), with)
		requireField(t, err, field)
	}
	for _, invalid := range []policy.Result{status(100), {Status: 500, Err: policy.ErrorDNS}} {
		_, err := policy.Explain(builtin(t, "ga-2021"), explain{Result: invalid})
		requireField(t, err, "status")
	}
}

// requireField requires a *ValidationError on that field and returns it.
func requireField(t *testing.T, err error, field string) policy.ValidationError {
	t.Helper()
	var invalid *policy.ValidationError
	require.ErrorAs(t, err, &invalid)
	require.Equal(t, field, invalid.Field)
	require.NotEmpty(t, invalid.Message)
	return *invalid
}

func TestExplainEndsForEveryPolicy(t *testing.T) {
	t.Parallel()
	p := copyOf(t, "preview-2017", func(p *policy.Policy) {
		p.Steps, p.Tail = []policy.Seconds{second}, second
		p.TTL.Default, p.TTL.Most = 30*24*60*minutes, 30*24*60*minutes
	})
	_, err := policy.Explain(p, explain{})
	require.ErrorContains(t, err, "more than 100000 attempts")
}

// A response that throttles says so, unless the behavior is documented.
func TestExplainNamesThrottling(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		with      explain
		throttled bool
	}{
		{explain{Result: status(429)}, true},
		{explain{Result: status(429), Behavior: documented}, false},
		{explain{Result: status(503)}, false},
		{explain{Result: status(503), RetryAfter: time.Minute}, true},
	} {
		x, err := policy.Explain(builtin(t, "ga-2021"), row.with)
		require.NoError(t, err)
		require.Equal(t, row.throttled, strings.HasSuffix(x.Attempts[1].Why, "; lowers the concurrency"), x.Attempts[1].Why)
	}
}
