package policy_test

import (
	"testing"
	"time"

	"postrider/policy"

	"github.com/stretchr/testify/require"
)

func TestScaledWaits(t *testing.T) {
	t.Parallel()
	p := builtin(t, "ga-2021")
	before := p.Clone()
	fast := p.Scaled(60)
	require.Equal(t, before, *p, "the policy itself stays")
	require.Equal(t, []policy.Seconds{
		second / 6, second / 2, second, 5 * second, 10 * second, 30 * second, minute, 3 * minute, 6 * minute,
	}, roundedTo(time.Millisecond, fast.Steps, second/6))
	require.Equal(t, []policy.Seconds{12 * minute, 24 * minute, 24 * minute},
		[]policy.Seconds{fast.Tail, policy.Seconds(fast.RetryWindow), policy.Seconds(fast.TTL.Default)})
	require.Equal(t, []policy.Seconds{second / 20, 5 * second, 4 * minute},
		[]policy.Seconds{fast.JitterCap, fast.DeadLetterDelay, fast.DeadLetterExportWindow})
	require.Equal(t, []policy.Seconds{5 * second, 4 * minute},
		[]policy.Seconds{fast.Probation.First, fast.Probation.Max})
	require.Equal(t, minute, fast.RetryAfterCap)
	require.Equal(t, 2*second, fast.Cell(policy.KindWebhook, status(408)).MinDelay)
	require.Equal(t, []policy.Seconds{p.AckTimeout, p.LateResponseWindow},
		[]policy.Seconds{fast.AckTimeout, fast.LateResponseWindow}, "the network is no faster")

	namespace := builtin(t, "namespace-2023")
	require.Equal(t, 5*second, namespace.Scaled(60).Probation.ByOutcome[policy.OutcomeNotFound])
	require.Equal(t, 5*minute, namespace.Probation.ByOutcome[policy.OutcomeNotFound])
	require.Same(t, p, p.Scaled(1))
	rules := p.Resolve(policy.Overrides{TTLMinutes: ptr(60)}).Scaled(60)
	require.Equal(t, time.Minute, rules.Limits.TTL)
	require.Equal(t, 12*minute, rules.Policy.Tail)
	require.Equal(t, 2*time.Second, rules.Wait(2*time.Minute))
	require.Equal(t, 2*time.Minute, p.Resolve(policy.Overrides{}).Wait(2*time.Minute))
}

// roundedTo rounds, because a sixth of a second is periodic.
func roundedTo(unit time.Duration, spans []policy.Seconds, first policy.Seconds) []policy.Seconds {
	out := []policy.Seconds{first}
	for _, span := range spans[1:] {
		out = append(out, policy.Seconds(time.Duration(span).Round(unit)))
	}
	return out
}

// A wait of 0 means "none" or "no bound", so scaling must not produce it.
func TestScaledWaitsAreNeverZero(t *testing.T) {
	t.Parallel()
	for _, p := range policy.Builtins() {
		fast := p.Scaled(1 << 40)
		for i, span := range [][2]policy.Seconds{
			{p.Tail, fast.Tail},
			{policy.Seconds(p.RetryWindow), policy.Seconds(fast.RetryWindow)},
			{p.JitterCap, fast.JitterCap},
			{policy.Seconds(p.TTL.Default), policy.Seconds(fast.TTL.Default)},
			{p.DeadLetterDelay, fast.DeadLetterDelay},
			{p.Probation.First, fast.Probation.First},
			{p.Probation.Max, fast.Probation.Max},
		} {
			require.Equal(t, span[0] == 0, span[1] == 0, "%s %d", p.Name, i)
		}
		for i := range p.Cells {
			require.Equal(t, p.Cells[i].MinDelay == 0, fast.Cells[i].MinDelay == 0)
		}
	}
}

// A delivery under a scaled policy has the same attempt history, with every time divided.
func TestScaledDeliveriesHaveTheSameHistory(t *testing.T) {
	t.Parallel()
	const scale = 600
	for _, p := range policy.Builtins() {
		exact, fast := historyOf(t, p.Resolve(policy.Overrides{})), historyOf(t, p.Resolve(policy.Overrides{}).Scaled(scale))
		require.Len(t, fast, len(exact), p.Name)
		for i := range exact {
			require.InDelta(t, exact[i].Seconds()/scale, fast[i].Seconds(), 1e-5, "%s, attempt %d", p.Name, i+2)
		}
	}
}

// historyOf are the times after the first attempt of a delivery whose every result is 503.
func historyOf(t *testing.T, rules policy.Rules) (course []time.Duration) {
	t.Helper()
	a := firstAttempt(rules.Policy, status(503))
	a.Limits = rules.Limits
	for len(course) < 100 {
		v := policy.Decide(rules.Policy, a)
		if v.Action != policy.Retry {
			return course
		}
		course = append(course, v.At.Sub(a.TimeToLiveSince))
		if _, due := dueAt(rules.Policy, v.At.Sub(published), a.Limits.TTL); !due {
			return course
		}
		a.Number, a.ScheduledAt, a.FinishedAt, a.SkippedOffsets = a.Number+1, v.At, v.At, v.SkippedOffsets
	}
	t.Fatal("the delivery does not end")
	return nil
}
