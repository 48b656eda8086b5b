package policy_test

import (
	"testing"
	"time"

	"postrider/policy"

	"github.com/stretchr/testify/require"
)

func TestBuiltinsInOrderAndValid(t *testing.T) {
	t.Parallel()
	var names []string
	for _, p := range policy.Builtins() {
		require.Empty(t, p.Mistakes(), p.Name)
		require.True(t, p.BuiltIn)
		require.Contains(t, p.Source, "Microsoft, ")
		require.False(t, p.HonorRetryAfter, "no page mentions Retry-After")
		names = append(names, p.Name)
	}
	require.Equal(t, []string{"preview-2017", "ga-2018", "ga-2019", "ga-2021", "namespace-2023"}, names)
	require.Contains(t, names, policy.DefaultName)
	_, ok := policy.Builtin("ga-2020")
	require.False(t, ok)
}

// The rows of this table are the values of the pages' text.
func TestBuiltinValues(t *testing.T) {
	t.Parallel()
	const s, m, h = time.Second, time.Minute, time.Hour
	tests := []struct {
		name                                         string
		ack, late, tail, window, delay, exportWindow time.Duration
		steps                                        []time.Duration
		basis                                        policy.Basis
		expiry                                       policy.Expiry
		jitter                                       float64
		deadLetter                                   string
		batching                                     bool
	}{
		{"preview-2017", 60 *
			s, 0, h, 0, 0, 0, []time.Duration{10 * s, 30 * s, m, 5 * m, 10 * m, 30 * m, h}, "gap", "at_ttl", 0.1, "none", false},
		{"ga-2018", 60 *
			s, 0, h, 0, 0, 0, []time.Duration{10 * s, 30 * s, m, 5 * m, 10 * m, 30 * m, h}, "gap", "at_ttl", 0.1, "none", false},
		{"ga-2019", 30 * s, 3 * m, h, 24 * h, 5 * m, 4 *
			h, []time.Duration{10 * s, 30 * s, m, 5 * m, 10 * m, 30 * m, h}, "gap", "at_ttl", 0.1, "none", false},
		{
			"ga-2021", 30 * s, 3 * m, 12 * h, 24 * h, 5 * m, 4 * h,
			[]time.Duration{10 * s, 30 * s, m, 5 * m, 10 * m, 30 * m, h, 3 * h, 6 * h},
			"gap", "next_attempt", 0.1, "none", true,
		},
		{"namespace-2023", 30 * s, 0, 5 * m, 0, 5 * m, 4 *
			h, []time.Duration{10 * s, 30 * s, m, 5 * m}, "offset", "next_attempt", 0, "none", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := builtin(t, tt.name)
			require.Equal(t, tt.ack, p.AckTimeout)
			require.Equal(t, tt.late, p.LateResponseWindow)
			require.Equal(t, tt.steps, p.Steps)
			require.Equal(t, tt.tail, p.Tail)
			require.Equal(t, tt.window, p.RetryWindow)
			require.Equal(t, tt.basis, p.Basis)
			require.Equal(t, tt.expiry, p.Expiry)
			require.InDelta(t, tt.jitter, p.JitterFraction, 0)
			require.Equal(t, tt.deadLetter, p.DeadLetterDefault)
			require.Equal(t, tt.delay, p.DeadLetterDelay)
			require.Equal(t, tt.exportWindow, p.DeadLetterExportWindow)
			require.Equal(t, tt.batching, p.Batching)
		})
	}
}

func TestBuiltinProbation(t *testing.T) {
	t.Parallel()
	none := policy.Probation{Scope: "none", Action: "hold"}
	delayed := policy.Probation{Scope: "endpoint", Trigger: 10, First: 5 * time.Minute, Max: 4 * time.Hour, Action: "hold"}
	for name, want := range map[string]policy.Probation{
		"preview-2017": none, "ga-2018": none, "ga-2019": delayed, "ga-2021": delayed,
		"namespace-2023": {
			Scope: "event_subscription", Trigger: 1, Action: "documented",
			ByOutcome: map[policy.Outcome]time.Duration{
				"Busy": 10 * time.Second, "TimedOut": 10 * time.Second, "SocketError": 30 * time.Second,
				"NotFound": 5 * time.Minute, "ResolutionError": 5 * time.Minute, "Disabled": 5 * time.Minute,
				"Full":         5 * time.Minute,
				"Unauthorized": 5 * time.Minute, "Forbidden": 5 * time.Minute, "InvalidAzureFunctionDestination": 10 * time.Minute,
			},
		},
	} {
		require.Equal(t, want, builtin(t, name).Probation, name)
	}
}

func TestBuiltinsShareNoMemory(t *testing.T) {
	t.Parallel()
	spoil := func(p *policy.Policy) {
		p.Steps[0] = time.Hour
		p.Cells[0].Action = policy.ActionNever
		p.Probation.ByOutcome[policy.OutcomeBusy] = time.Hour
	}
	original := builtin(t, "namespace-2023")
	clone := original.Clone()
	require.Equal(t, *original, clone)
	spoil(&clone)
	require.Equal(t, builtin(t, "namespace-2023"), original, "clones share no memory")
	spoil(original)
	require.NotEqual(t, original, builtin(t, "namespace-2023"), "copies share no memory")
	for _, p := range policy.Builtins() {
		p.Cells[0].Condition = "spoiled"
	}
	for _, p := range policy.Builtins() {
		require.Empty(t, p.Mistakes())
	}
}

func TestCheckLimits(t *testing.T) {
	t.Parallel()
	const attempts, ttl = "retryPolicy.maxDeliveryAttempts", "retryPolicy.eventTimeToLiveInMinutes"
	tests := []struct {
		name, policy      string
		attempts, minutes *int
		want              policy.Limits
		field, message    string
	}{
		{"preview-2017 by default", "preview-2017", nil, nil, policy.Limits{TTL: 2 * time.Hour}, "", ""},
		{"ga-2018 by default", "ga-2018", nil, nil, policy.Limits{MaxAttempts: 30, TTL: 24 * time.Hour}, "", ""},
		{"ga-2019 by default", "ga-2019", nil, nil, policy.Limits{MaxAttempts: 30, TTL: 24 * time.Hour}, "", ""},
		{"ga-2021 by default", "ga-2021", nil, nil, policy.Limits{MaxAttempts: 30, TTL: 24 * time.Hour}, "", ""},
		{
			"namespace-2023 by default", "namespace-2023", nil, nil,
			policy.Limits{MaxAttempts: 10, TTL: 7 * 24 * time.Hour},
			"", "",
		},
		{
			"preview-2017, all set", "preview-2017", ptr(30), ptr(1440),
			policy.Limits{MaxAttempts: 30, TTL: 24 * time.Hour},
			"", "",
		},
		{"the least", "ga-2021", ptr(1), ptr(1), policy.Limits{MaxAttempts: 1, TTL: time.Minute}, "", ""},
		{
			"7 days in the namespace", "namespace-2023", ptr(10), ptr(10080),
			policy.Limits{MaxAttempts: 10, TTL: 7 * 24 * time.Hour},
			"", "",
		},
		{"0 attempts", "preview-2017", ptr(0), nil, policy.Limits{}, attempts, "must be between 1 and 30 under retry " +
			"policy preview-2017, not 0"},
		{"31 attempts", "ga-2021", ptr(31), nil, policy.Limits{}, attempts, "must be between 1 and 30 under retry policy " +
			"ga-2021, not 31"},
		{"11 attempts in the namespace", "namespace-2023", ptr(11), nil, policy.Limits{}, attempts, "must be between 1 and " +
			"10 under retry policy namespace-2023, not 11"},
		{"0 minutes", "ga-2019", nil, ptr(0), policy.Limits{}, ttl, "must be between 1 and 1440 minutes under retry policy " +
			"ga-2019, not 0"},
		{"1441 minutes", "ga-2018", nil, ptr(1441), policy.Limits{}, ttl, "must be between 1 and 1440 minutes under retry " +
			"policy ga-2018, not 1441"},
		{"minutes beyond any duration", "namespace-2023", nil, ptr(1 << 62), policy.Limits{}, ttl, "must be between 1 and " +
			"10080 minutes under retry policy namespace-2023, not 4611686018427387904"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := builtin(t, tt.policy)
			err := p.CheckLimits(tt.attempts, tt.minutes)
			if tt.field == "" {
				require.NoError(t, err)
				require.Equal(t, tt.want, p.Resolve(policy.Overrides{MaxAttempts: tt.attempts, TTLMinutes: tt.minutes}).Limits)
				return
			}
			require.Equal(t, tt.message, requireField(t, err, tt.field).Message)
		})
	}
}

func TestReasonSentences(t *testing.T) {
	t.Parallel()
	require.Equal(t, "Maximum delivery attempts was exceeded.", policy.Reason("MaxDeliveryAttemptsExceeded").Sentence())
	for _, r := range []policy.Reason{
		policy.ReasonTimeToLiveExceeded, policy.ReasonHTTPBadRequest, policy.ReasonClientError, policy.ReasonProbation,
		policy.ReasonTooManyReruns, policy.ReasonEventSubscriptionDeleted, policy.ReasonEventSubscriptionExpired,
		policy.ReasonEventMissing,
	} {
		require.Regexp(t, `^[A-Z].* .*\.$`, r.Sentence())
	}
	require.Equal(t, "SomethingNewer", policy.Reason("SomethingNewer").Sentence())
}
