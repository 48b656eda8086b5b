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
	var marks []float64
	for at := from; at <= to; at += 3600 {
		marks = append(marks, at)
	}
	return marks
}

func onOffsets(p *policy.Policy) { p.Basis = policy.BasisOffset }

// "every 12 hours up to 24 hours", read as offsets: 12 h and 24 h after the first attempt.
func onOffsets2021(p *policy.Policy) {
	p.Basis = policy.BasisOffset
	p.Steps = append(p.Steps, 12*time.Hour)
}

const exhausted, expired = policy.Reason("MaxDeliveryAttemptsExceeded"), policy.Reason("TimeToLiveExceeded")

const rateLimit = "the rate limit of 50 requests/s"

// The schedules in seconds: those of the pages up to 2019 read as gaps and as offsets, and the namespace's offsets.
var (
	classic      = []float64{0, 10, 40, 100, 400, 1000, 2800, 6400}
	classicMarks = []float64{0, 10, 30, 60, 300, 600, 1800, 3600}
	namespace    = []float64{0, 10, 30, 60, 300, 600, 900, 1200, 1500, 1800}
)

// explainVectors are attempt times calculated by hand, for status 500 unless the options have another result.
var explainVectors = []struct {
	name   string
	policy string
	change func(*policy.Policy)
	with   policy.ExplainOptions
	want   []float64
	end    policy.ExplainedEnd
}{
	{
		"preview-2017, 2 h", "preview-2017", nil,
		policy.ExplainOptions{Behavior: policy.BehaviorDocumented},
		classic,
		policy.ExplainedEnd{AtSeconds: 7200, State: "dropped", Reason: expired},
	},
	{
		"preview-2017, 24 h, no limit of attempts", "preview-2017", nil,
		policy.ExplainOptions{TTLMinutes: ptr(1440), Behavior: policy.BehaviorDocumented},
		slices.Concat(classic, hourly(10000, 85600)),
		policy.ExplainedEnd{AtSeconds: 86400, State: "dropped", Reason: expired},
	},
	{
		"preview-2017, 3 attempts", "preview-2017", nil,
		policy.ExplainOptions{MaxAttempts: ptr(3), DeadLetter: ptr(true)},
		classic[:3],
		policy.ExplainedEnd{AtSeconds: 40, State: "dead_lettered", Reason: exhausted},
	},
	{
		"ga-2018: 30 attempts are 24 h", "ga-2018", nil,
		policy.ExplainOptions{},
		slices.Concat(classic, hourly(10000, 85600)),
		policy.ExplainedEnd{AtSeconds: 85600, State: "dead_lettered", Reason: exhausted},
	},
	{
		"ga-2019: 30 attempts are 24 h", "ga-2019", nil,
		policy.ExplainOptions{DeadLetter: ptr(false)},
		slices.Concat(classic, hourly(10000, 85600)),
		policy.ExplainedEnd{AtSeconds: 85600, State: "dropped", Reason: exhausted},
	},
	{
		"ga-2019, 30 min", "ga-2019", nil,
		policy.ExplainOptions{TTLMinutes: ptr(30)},
		classic[:6],
		policy.ExplainedEnd{AtSeconds: 1800, State: "dead_lettered", Reason: expired},
	},
	{
		"ga-2021: 11 attempts, 24 h clip", "ga-2021", nil,
		policy.ExplainOptions{},
		slices.Concat(classic, []float64{17200, 38800, 82000}),
		policy.ExplainedEnd{AtSeconds: 86400, State: "dead_lettered", Reason: expired},
	},
	{
		"ga-2021, 30 min, 10 attempts", "ga-2021", nil,
		policy.ExplainOptions{TTLMinutes: ptr(30), MaxAttempts: ptr(10)},
		classic[:6],
		policy.ExplainedEnd{AtSeconds: 2800, State: "dead_lettered", Reason: expired},
	},
	{
		"ga-2021, 11 attempts: the limit binds", "ga-2021", nil,
		policy.ExplainOptions{MaxAttempts: ptr(11)},
		slices.Concat(classic, []float64{17200, 38800, 82000}),
		policy.ExplainedEnd{AtSeconds: 82000, State: "dead_lettered", Reason: exhausted},
	},
	{
		"namespace-2023: 10 attempts", "namespace-2023", nil,
		policy.ExplainOptions{},
		namespace,
		policy.ExplainedEnd{AtSeconds: 1800, State: "dead_lettered", Reason: exhausted},
	},
	{
		"namespace-2023, 20 min: the page's example, #8 finds it dead", "namespace-2023", nil,
		policy.ExplainOptions{TTLMinutes: ptr(20)},
		namespace[:7],
		policy.ExplainedEnd{AtSeconds: 1200, State: "dead_lettered", Reason: expired},
	},
	{
		"namespace-2023, always 503", "namespace-2023", nil,
		policy.ExplainOptions{Result: status(503)},
		[]float64{0, 30, 60, 90, 300, 600, 900, 1200, 1500, 1800},
		policy.ExplainedEnd{AtSeconds: 1800, State: "dead_lettered", Reason: exhausted},
	},
	{
		"namespace-2023, always 408", "namespace-2023", nil,
		policy.ExplainOptions{Result: status(408)},
		[]float64{0, 120, 240, 360, 480, 600, 900, 1200, 1500, 1800},
		policy.ExplainedEnd{AtSeconds: 1800, State: "dead_lettered", Reason: exhausted},
	},
	{
		"namespace-2023 read as gaps, without its 0 s", "namespace-2023", func(p *policy.Policy) {
			p.Basis = policy.BasisGap
		},
		policy.ExplainOptions{},
		[]float64{0, 10, 40, 100, 400, 700, 1000, 1300, 1600, 1900},
		policy.ExplainedEnd{AtSeconds: 1900, State: "dead_lettered", Reason: exhausted},
	},
	{
		"preview-2017 read as marks", "preview-2017", onOffsets,
		policy.ExplainOptions{Behavior: policy.BehaviorDocumented},
		classicMarks,
		policy.ExplainedEnd{AtSeconds: 7200, State: "dropped", Reason: expired},
	},
	{
		"ga-2018 read as marks", "ga-2018", onOffsets,
		policy.ExplainOptions{},
		slices.Concat(classicMarks, hourly(7200, 82800)),
		policy.ExplainedEnd{AtSeconds: 82800, State: "dead_lettered", Reason: exhausted},
	},
	{
		"ga-2019 read as marks", "ga-2019", onOffsets,
		policy.ExplainOptions{},
		slices.Concat(classicMarks, hourly(7200, 82800)),
		policy.ExplainedEnd{AtSeconds: 82800, State: "dead_lettered", Reason: exhausted},
	},
	{
		"ga-2021 read as marks", "ga-2021", onOffsets2021,
		policy.ExplainOptions{},
		slices.Concat(classicMarks, []float64{10800, 21600, 43200}),
		policy.ExplainedEnd{AtSeconds: 86400, State: "dead_lettered", Reason: expired},
	},
	{
		"ga-2021 read as marks, 30 min", "ga-2021", onOffsets2021,
		policy.ExplainOptions{TTLMinutes: ptr(30)},
		classicMarks[:6],
		policy.ExplainedEnd{AtSeconds: 1800, State: "dead_lettered", Reason: expired},
	},
	{
		"400 is never retried", "ga-2021", nil,
		policy.ExplainOptions{Result: status(400)},
		[]float64{0},
		policy.ExplainedEnd{State: "dead_lettered", Reason: "UndeliverableDueToHttpBadRequest"},
	},
	{
		"404 of an Azure resource", "ga-2021", nil,
		policy.ExplainOptions{Kind: policy.KindAzureResource, Result: status(404), MaxAttempts: ptr(4)},
		[]float64{0, 300, 600, 900},
		policy.ExplainedEnd{AtSeconds: 900, State: "dead_lettered", Reason: exhausted},
	},
	{
		"400 in ga-2019 without a destination", "ga-2019", nil,
		policy.ExplainOptions{Result: status(400), DeadLetter: ptr(false), MaxAttempts: ptr(3)},
		[]float64{0, 300, 600},
		policy.ExplainedEnd{AtSeconds: 600, State: "dropped", Reason: exhausted},
	},
	{
		"a timeout in the namespace", "namespace-2023", nil,
		policy.ExplainOptions{Result: failure(policy.ErrorTimeout), Behavior: policy.BehaviorDocumented},
		[]float64{0},
		policy.ExplainedEnd{State: "dropped", Reason: "UndeliverableDueToClientError"},
	},
	{
		"a timeout in the namespace, under safe", "namespace-2023", nil,
		policy.ExplainOptions{Result: failure(policy.ErrorTimeout), MaxAttempts: ptr(3)},
		[]float64{0, 10, 30},
		policy.ExplainedEnd{AtSeconds: 30, State: "dead_lettered", Reason: exhausted},
	},
	{
		"Retry-After of a day, capped at 1 h", "ga-2021", nil,
		policy.ExplainOptions{Result: status(503), RetryAfter: 24 * time.Hour, MaxAttempts: ptr(3)},
		[]float64{0, 3600, 7200},
		policy.ExplainedEnd{AtSeconds: 7200, State: "dead_lettered", Reason: exhausted},
	},
	{
		"Retry-After of a day, in an hour to live", "ga-2019", nil,
		policy.ExplainOptions{Result: status(503), RetryAfter: 24 * time.Hour, TTLMinutes: ptr(60)},
		[]float64{0, 3570},
		policy.ExplainedEnd{AtSeconds: 3600, State: "dead_lettered", Reason: expired},
	},
	{
		"Retry-After under documented", "ga-2021", nil,
		policy.ExplainOptions{
			Result: status(503), RetryAfter: 24 * time.Hour, MaxAttempts: ptr(2), Behavior: policy.BehaviorDocumented,
		},
		[]float64{0, 30},
		policy.ExplainedEnd{AtSeconds: 30, State: "dropped", Reason: exhausted},
	},
	{
		"the first attempt waits for a rate limit", "ga-2021", nil,
		policy.ExplainOptions{Wait: 400 * time.Second, WaitedFor: rateLimit, MaxAttempts: ptr(3)},
		[]float64{400, 410, 440},
		policy.ExplainedEnd{AtSeconds: 440, State: "dead_lettered", Reason: exhausted},
	},
	{
		"it waits until just before its time to live ends", "ga-2021", nil,
		policy.ExplainOptions{Wait: 86370 * time.Second, WaitedFor: rateLimit},
		[]float64{86370, 86380},
		policy.ExplainedEnd{AtSeconds: 86400, State: "dead_lettered", Reason: expired},
	},
	{
		"it waits until its time to live ends", "namespace-2023", nil,
		policy.ExplainOptions{Wait: 48 * time.Hour, WaitedFor: rateLimit, TTLMinutes: ptr(20)},
		[]float64{},
		policy.ExplainedEnd{
			AtSeconds: 1200, State: "dead_lettered", Reason: expired,
			Error: "its time to live ended while it waited for the rate limit of 50 requests/s",
		},
	},
	{
		"delivered", "ga-2021", nil,
		policy.ExplainOptions{Result: status(200)},
		[]float64{0},
		policy.ExplainedEnd{State: "delivered"},
	},
}

func TestExplainVectors(t *testing.T) {
	t.Parallel()
	for _, tt := range explainVectors {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
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
			require.Equal(t, tt.want, at)
			require.Equal(t, tt.end, x.End)
			require.Equal(t, p.Name, x.Policy)
		})
	}
}

func TestExplainAsJSON(t *testing.T) {
	t.Parallel()
	p := builtin(t, "namespace-2023")
	x, err := policy.Explain(p, policy.ExplainOptions{MaxAttempts: ptr(2), Result: status(503)})
	require.NoError(t, err)
	text, err := json.Marshal(x)
	require.NoError(t, err)
	require.JSONEq(t, `{"policy":"namespace-2023","attempts":[
		{"number":1,"atSeconds":0,"why":"published"},
		{"number":2,"atSeconds":30,"why":"503: at least 30 s; offset 1 is 10 s after the first attempt"}],
		"end":{"atSeconds":30,"state":"dead_lettered","reason":"MaxDeliveryAttemptsExceeded"}}`, string(text))

	x, err = policy.Explain(p, policy.ExplainOptions{Result: status(204)})
	require.NoError(t, err)
	text, err = json.Marshal(x.End)
	require.NoError(t, err)
	require.JSONEq(t, `{"atSeconds":0,"state":"delivered"}`, string(text))
}

func TestExplainErrors(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		with  policy.ExplainOptions
		field string
	}{
		{"too many attempts", policy.ExplainOptions{MaxAttempts: ptr(31)}, "retryPolicy.maxDeliveryAttempts"},
		{"too long time to live", policy.ExplainOptions{TTLMinutes: ptr(1441)}, "retryPolicy.eventTimeToLiveInMinutes"},
		{"a negative wait", policy.ExplainOptions{Wait: -1}, "wait"},
		{"an unknown kind", policy.ExplainOptions{Kind: "pigeon"}, "endpointKind"},
		{"an informational status", policy.ExplainOptions{Result: status(100)}, "status"},
		{"negative Retry-After", policy.ExplainOptions{RetryAfter: -1}, "retryAfter"},
		{"an unknown error", policy.ExplainOptions{Result: failure("gremlins")}, "error"},
		{
			"both a status and an error",
			policy.ExplainOptions{Result: policy.Result{Status: 500, Err: policy.ErrorDNS}},
			"status",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := policy.Explain(builtin(t, "ga-2021"), tt.with)
			requireField(t, err, tt.field)
		})
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
		p.Steps, p.Tail = []time.Duration{time.Second}, time.Second
		p.DefaultTTL, p.MaxTTL = 30*24*time.Hour, 30*24*time.Hour
	})
	_, err := policy.Explain(p, policy.ExplainOptions{})
	require.ErrorContains(t, err, "more than 100000 attempts")
}

// A response that throttles says so, unless the behavior is documented.
func TestExplainNamesThrottling(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		with      policy.ExplainOptions
		throttled bool
	}{
		{policy.ExplainOptions{Result: policy.Result{Status: 429}}, true},
		{policy.ExplainOptions{Result: policy.Result{Status: 429}, Behavior: policy.BehaviorDocumented}, false},
		{policy.ExplainOptions{Result: policy.Result{Status: 503}}, false},
		{policy.ExplainOptions{Result: policy.Result{Status: 503}, RetryAfter: time.Minute}, true},
	} {
		x, err := policy.Explain(builtin(t, "ga-2021"), row.with)
		require.NoError(t, err)
		require.Equal(t, row.throttled, strings.HasSuffix(x.Attempts[1].Why, "; lowers the concurrency"), x.Attempts[1].Why)
	}
}
