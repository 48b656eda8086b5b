package policy_test

import (
	"fmt"
	"testing"
	"time"

	"postrider/policy"

	"github.com/stretchr/testify/require"
)

// describe writes the rules that an event subscription may override.
func describe(r policy.Rules) string {
	return fmt.Sprint(r.Policy.HonorRetryAfter, " ", r.Policy.Probation.Action, " ", r.Policy.RetryTransportErrors, " ",
		r.DeadLetter)
}

func TestResolve(t *testing.T) {
	t.Parallel()
	// A copied policy with the opposite of safe in every column.
	literal := copyOf(t, "ga-2021", func(p *policy.Policy) {
		p.HonorRetryAfter, p.Probation.Action, p.RetryTransportErrors, p.DeadLetterDefault = false,
			policy.ProbationDocumented, false, policy.DeadLetterNone
	})
	generous := copyOf(t, "ga-2021",
		func(p *policy.Policy) { p.HonorRetryAfter, p.DeadLetterDefault = true, policy.DeadLetterRows })
	for _, row := range []struct {
		policy           *policy.Policy
		safe, documented string // Retry-After, probation, transport errors, dead letters
	}{
		{builtin(t, "preview-2017"), "true hold true true", "false hold true false"},
		{builtin(t, "ga-2018"), "true hold true true", "false hold true false"},
		{builtin(t, "ga-2019"), "true hold true true", "false hold true false"},
		{builtin(t, "ga-2021"), "true hold true true", "false hold true false"},
		{builtin(t, "namespace-2023"), "true hold true true", "false documented false false"},
		{literal, "true hold true true", "false documented false false"},
		{generous, "true hold true true", "true hold true true"},
	} {
		before := row.policy.Clone()
		for b, want := range map[policy.Behavior]string{
			"": row.safe, policy.BehaviorSafe: row.safe, documented: row.documented,
		} {
			require.Equal(t, want, describe(row.policy.Resolve(policy.Overrides{Behavior: b})), row.policy.Name)
			for which := range 16 {
				action := policy.ProbationHold
				if which&2 != 0 {
					action = policy.ProbationDocumented
				}
				w := policy.Overrides{
					Behavior: b, HonorRetryAfter: ptr(which&1 != 0), ProbationAction: &action,
					RetryTransportErrors: ptr(which&4 != 0), DeadLetter: ptr(which&8 != 0),
				}
				want := fmt.Sprint(which&1 != 0, " ", action, " ", which&4 != 0, " ", which&8 != 0)
				require.Equal(t, want, describe(row.policy.Resolve(w)), "overrides come first")
			}
		}
		require.Equal(t, before, *row.policy, "the policy is unchanged")
	}
}

// Without a destination, behavior safe makes a copy of a built-in policy decide as the built-in one, whatever its
// columns.
func TestResolvedRulesDecide(t *testing.T) {
	t.Parallel()
	decide := func(name string, w policy.Overrides, met policy.Result, retryAfter time.Duration) policy.Verdict {
		r := builtin(t, name).Resolve(w)
		a := firstAttempt(r.Policy, met)
		a.Limits, a.DeadLetter, a.HonorRetryAfter, a.RetryAfter = r.Limits, r.DeadLetter, r.Policy.HonorRetryAfter, retryAfter
		return policy.Decide(r.Policy, a)
	}
	safe, documented := policy.Overrides{}, policy.Overrides{Behavior: documented}
	for _, name := range []string{"ga-2018", "ga-2019"} {
		require.Equal(t, policy.DeadLetter, decide(name, safe, status(400), 0).Action, name)
		require.Equal(t, policy.Retry, decide(name, documented, status(400), 0).Action,
			"%s: nowhere to put it, so it is retried", name)
		stated := documented
		stated.DeadLetter = ptr(true)
		require.Equal(t, policy.DeadLetter, decide(name, stated, status(400), 0).Action,
			"%s: a destination that is stated wins", name)
	}
	require.Equal(t, policy.DeadLetter, decide("ga-2021", safe, status(404), 0).Action)
	require.Equal(t, policy.Drop, decide("ga-2021", documented, status(404), 0).Action)
	require.Equal(t, seconds(120), decide("ga-2021", safe, status(503), 2*time.Minute).At)
	require.Equal(t, seconds(30), decide("ga-2021", documented, status(503), 2*time.Minute).At)
	literal, retried := documented, documented
	literal.RetryTransportErrors, retried.RetryTransportErrors = ptr(false), ptr(true)
	for _, row := range errorTable {
		require.Equal(t, policy.Retry, decide("namespace-2023", safe, row.met, 0).Action, row.met)
		require.Equal(t, seconds(10), decide("namespace-2023", safe, row.met, 0).At, row.met)
		require.Equal(t, policy.Drop, decide("namespace-2023", documented, row.met, 0).Action, row.met)
		require.Equal(t, policy.Drop, decide("namespace-2023", literal, row.met, 0).Action, row.met)
		require.Equal(t, policy.Retry, decide("namespace-2023", retried, row.met, 0).Action, row.met)
	}
	require.Equal(t, policy.Drop, decide("namespace-2023", retried, status(404), 0).Action, "a response is no error")
	for _, row := range brokerTable {
		own := copyOf(t, "ga-2021", neverAfter(row.met.String(), 0)).Resolve(safe)
		a := firstAttempt(own.Policy, row.met)
		require.Equal(t, policy.Drop, policy.Decide(own.Policy, a).Action, "%s: a broker's response is no error", row.met)
	}
	never := policy.Overrides{RetryTransportErrors: ptr(false)}
	require.Equal(t, policy.DeadLetter, decide("namespace-2023", never, failure(policy.ErrorTimeout), 0).Action,
		"its own property wins")
}

func TestResolvedLimits(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for name, row := range map[string]struct {
		policy   string
		wishes   policy.Overrides
		attempts int
		ttl      time.Duration
	}{
		"above the range":     {"ga-2021", policy.Overrides{MaxAttempts: ptr(300), TTLMinutes: ptr(9000)}, 30, day},
		"below them":          {"ga-2021", policy.Overrides{MaxAttempts: ptr(0), TTLMinutes: ptr(0)}, 1, time.Minute},
		"retention: default":  {"namespace-2023", policy.Overrides{MaxTTL: 3 * day}, 10, 3 * day},
		"retention: override": {"namespace-2023", policy.Overrides{TTLMinutes: ptr(7 * 1440), MaxTTL: day}, 10, day},
		"the wish first":      {"namespace-2023", policy.Overrides{TTLMinutes: ptr(5), MaxTTL: day}, 10, 5 * time.Minute},
	} {
		require.Equal(t, policy.Limits{MaxAttempts: row.attempts, TTL: row.ttl},
			builtin(t, row.policy).Resolve(row.wishes).Limits, name)
	}
}
