package policy_test

import (
	"maps"
	"slices"
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
		spans := slices.Concat(p.Steps, slices.Collect(maps.Values(p.Probation.ByOutcome)), []policy.Seconds{
			p.AckTimeout, p.LateResponseWindow, p.Tail, policy.Seconds(p.RetryWindow), p.JitterCap, p.RetryAfterCap,
			policy.Seconds(p.TTL.Default), policy.Seconds(p.TTL.Least), policy.Seconds(p.TTL.Most), p.DeadLetterDelay,
			p.DeadLetterExportWindow, p.Probation.First, p.Probation.Max,
		})
		for _, c := range p.Cells {
			spans = append(spans, c.MinDelay)
		}
		for _, d := range spans {
			require.Zero(t, d%second, "%s: %d would lose its fraction in the seed", p.Name, d)
		}
	}
	require.Equal(t, []string{"preview-2017", "ga-2018", "ga-2019", "ga-2021", "namespace-2023", "ga-2026"}, names)
	require.Contains(t, names, policy.DefaultName)
	_, ok := policy.Builtin("ga-2020")
	require.False(t, ok)
}

// The rows of this table are the values of the pages' text.
func TestBuiltinValues(t *testing.T) {
	t.Parallel()
	const s, m, h = second, minute, hour
	early := []policy.Seconds{10 * s, 30 * s, m, 5 * m, 10 * m, 30 * m, h}
	for _, tt := range []struct {
		name                                         string
		ack, late, tail, window, delay, exportWindow policy.Seconds
		steps                                        []policy.Seconds
		basis                                        policy.Basis
		expiry                                       policy.Expiry
		jitter                                       float64
		batching                                     bool
	}{
		{"preview-2017", 60 * s, 0, h, 0, 0, 0, early, "gap", "at_ttl", 0.1, false},
		{"ga-2018", 60 * s, 0, h, 0, 0, 0, early, "gap", "at_ttl", 0.1, false},
		{"ga-2019", 30 * s, 3 * m, h, 24 * h, 5 * m, 4 * h, early, "gap", "at_ttl", 0.1, false},
		{
			"ga-2021", 30 * s, 3 * m, 12 * h, 24 * h, 5 * m, 4 * h, append(slices.Clone(early), 3*h, 6*h),
			"gap", "next_attempt", 0.1, true,
		},
		{"namespace-2023", 30 * s, 0, 5 * m, 0, 5 * m, 4 * h, early[:4], "offset", "next_attempt", 0, true},
		{
			"ga-2026", 30 * s, 3 * m, 12 * h, 24 * h, 5 * m, 4 * h, append(slices.Clone(early), 3*h, 6*h),
			"gap", "next_attempt", 0.1, true,
		},
	} {
		p := builtin(t, tt.name)
		require.Equal(t, tt.ack, p.AckTimeout, tt.name)
		require.Equal(t, tt.late, p.LateResponseWindow, tt.name)
		require.Equal(t, tt.steps, p.Steps, tt.name)
		require.Equal(t, tt.tail, p.Tail, tt.name)
		require.Equal(t, policy.OptionalSeconds(tt.window), p.RetryWindow, tt.name)
		require.Equal(t, tt.basis, p.Basis, tt.name)
		require.Equal(t, tt.expiry, p.Expiry, tt.name)
		require.InDelta(t, tt.jitter, p.JitterFraction, 0, tt.name)
		require.Equal(t, "none", p.DeadLetterDefault, tt.name)
		require.Equal(t, tt.delay, p.DeadLetterDelay, tt.name)
		require.Equal(t, tt.exportWindow, p.DeadLetterExportWindow, tt.name)
		require.Equal(t, tt.batching, p.Batching, tt.name)
	}
}

func TestBuiltinProbation(t *testing.T) {
	t.Parallel()
	none := policy.Probation{Scope: "none", Action: "hold"}
	delayed := policy.Probation{Scope: "endpoint", Trigger: 10, First: 5 * minute, Max: 4 * hour, Action: "hold"}
	for name, want := range map[string]policy.Probation{
		"preview-2017": none, "ga-2018": none, "ga-2019": delayed, "ga-2021": delayed,
		"namespace-2023": {Scope: "event_subscription", Trigger: 1, Action: "documented", ByOutcome: namespaceHolds},
		"ga-2026": {
			Scope: "both", Trigger: 10, First: 5 * minute, Max: 4 * hour, Action: "documented", ByOutcome: namespaceHolds,
		},
	} {
		require.Equal(t, want, builtin(t, name).Probation, name)
	}
}

func TestBuiltinsShareNoMemory(t *testing.T) {
	t.Parallel()
	spoil := func(p *policy.Policy) {
		p.Steps[0] = hour
		p.Cells[0].Action = policy.ActionNever
		p.Probation.ByOutcome[policy.OutcomeBusy] = hour
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
	const day = 24 * time.Hour
	for _, tt := range []struct {
		name, policy      string
		attempts, minutes *int
		want              policy.Limits
		message           string // after "must be between "
	}{
		{"by default", "preview-2017", nil, nil, policy.Limits{0, 2 * time.Hour}, ""},
		{"by default", "ga-2018", nil, nil, policy.Limits{30, day}, ""},
		{"by default", "ga-2019", nil, nil, policy.Limits{30, day}, ""},
		{"by default", "ga-2021", nil, nil, policy.Limits{30, day}, ""},
		{"by default", "namespace-2023", nil, nil, policy.Limits{10, 7 * day}, ""},
		{"by default", "ga-2026", nil, nil, policy.Limits{30, day}, ""},
		{"all set", "preview-2017", ptr(30), ptr(1440), policy.Limits{30, day}, ""},
		{"the least", "ga-2021", ptr(1), ptr(1), policy.Limits{1, time.Minute}, ""},
		{"7 days", "namespace-2023", ptr(10), ptr(10080), policy.Limits{10, 7 * day}, ""},
		{"0 attempts", "preview-2017", ptr(0), nil, policy.Limits{}, "1 and 30 under retry policy preview-2017, not 0"},
		{"31 attempts", "ga-2021", ptr(31), nil, policy.Limits{}, "1 and 30 under retry policy ga-2021, not 31"},
		{"11", "namespace-2023", ptr(11), nil, policy.Limits{}, "1 and 10 under retry policy namespace-2023, not 11"},
		{"0 minutes", "ga-2019", nil, ptr(0), policy.Limits{}, "1 and 1440 minutes under retry policy ga-2019, not 0"},
		{"1441", "ga-2018", nil, ptr(1441), policy.Limits{}, "1 and 1440 minutes under retry policy ga-2018, not 1441"},
		{
			"minutes beyond any duration", "namespace-2023", nil, ptr(1 << 62),
			policy.Limits{},
			"1 and 10080 minutes under retry policy namespace-2023, not 4611686018427387904",
		},
	} {
		p, field := builtin(t, tt.policy), "retryPolicy.maxDeliveryAttempts"
		if tt.minutes != nil {
			field = "retryPolicy.eventTimeToLiveInMinutes"
		}
		err := p.CheckLimits(tt.attempts, tt.minutes)
		if tt.message != "" {
			require.Equal(t, "must be between "+tt.message, requireField(t, err, field).Message)
			continue
		}
		require.NoError(t, err, tt.name)
		set := policy.Overrides{MaxAttempts: tt.attempts, TTLMinutes: tt.minutes}
		require.Equal(t, tt.want, p.Resolve(set).Limits, tt.policy+" "+tt.name)
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
