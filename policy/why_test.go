package policy_test

import (
	"testing"
	"time"

	"postrider/policy"

	"github.com/stretchr/testify/require"
)

type attempt = policy.Attempt

func TestWhyString(t *testing.T) {
	t.Parallel()
	step1 := "500: step 1 is 10 s after the failure"
	retryAfter := func(d time.Duration) func(*attempt) {
		return func(a *attempt) { a.HonorRetryAfter, a.RetryAfter = true, d }
	}
	for _, tt := range []struct {
		policy string
		met    policy.Result
		given  func(*attempt)
		want   string
	}{
		{"ga-2021", status(204), nil, "204: success"},
		{"ga-2021", status(503), func(a *attempt) { a.Number = 2 }, "503: at least 30 s; step 2 is 30 s after the failure"},
		{"ga-2018", failure(policy.ErrorTimeout), nil, "timeout: step 1 is 10 s after the failure"},
		{
			"ga-2021", status(418), func(a *attempt) { a.Number = 7 }, // no cell of its own
			"418 (other): at least 10 s; step 7 is 1 h after the failure",
		},
		{"ga-2018", status(500), func(a *attempt) { a.Jitter = 0.25 }, step1 + "; jitter 250 ms"},
		{
			"ga-2018", status(500), func(a *attempt) { a.Number, a.Jitter = 4, 0.75 },
			"500: step 4 is 5 min after the failure; jitter 2.25 s",
		},
		{"ga-2018", status(500), func(a *attempt) { a.Jitter = 1 }, step1 + "; jitter 1 s"},
		{"ga-2018", status(500), retryAfter(50 * time.Minute), step1 + "; Retry-After requests 50 min"},
		{"ga-2018", status(500), retryAfter(24 * time.Hour), step1 + "; Retry-After requests 24 h, capped at 1 h"},
		{
			"ga-2018", status(500), func(a *attempt) { retryAfter(24 * time.Hour)(a); a.Limits.TTL = 20 * time.Minute },
			step1 + "; Retry-After requests 24 h, capped at 1 h, shortened for a last attempt before the delivery ends",
		},
		{"ga-2018", status(500), retryAfter(time.Second), step1}, // it does not decide
		{"namespace-2023", status(503), nil, "503: at least 30 s; offset 1 is 10 s after the first attempt"},
		{
			"namespace-2023", status(408), func(a *attempt) { a.FinishedAt = seconds(65) },
			"408: at least 2 min; offsets skipped: 3; offset 4 is 5 min after the first attempt",
		},
		{
			"ga-2018", status(500), func(a *attempt) { a.Number, a.Limits.TTL = 7, 30*time.Minute },
			"500: step 7 is 1 h after the failure; but the delivery ends after 30 min",
		},
		{"ga-2021", status(404), func(a *attempt) { a.Limits.MaxAttempts = 1 }, "404: attempt 1 of 1 failed"},
		{"ga-2021", status(404), nil, "404: never retried"},
		{
			"ga-2021", status(429), func(a *attempt) { a.Throttled = true },
			"429 (other): at least 10 s; step 1 is 10 s after the failure; lowers the concurrency",
		},
		{"ga-2021", status(200), func(a *attempt) { a.WaitedFor = rateLimit }, "200: success; waited for " + rateLimit},
		{
			"ga-2018", status(429), func(a *attempt) {
				a.Limits.TTL, a.FinishedAt, a.Throttled, a.WaitedFor = time.Minute, seconds(61), true, rateLimit
			},
			"429: the time to live of 1 min had passed before the attempt ended; lowers the concurrency; " +
				"waited for " + rateLimit,
		},
		{
			"ga-2018", status(500), func(a *attempt) { a.Limits.TTL, a.FinishedAt = time.Minute, seconds(61) },
			"500: the time to live of 1 min had passed before the attempt ended",
		},
	} {
		p := builtin(t, tt.policy)
		a := firstAttempt(p, tt.met)
		if tt.given != nil {
			tt.given(&a)
		}
		require.Equal(t, tt.want, policy.Decide(p, a).Why.String())
	}
}

func TestWhyOfADueCheck(t *testing.T) {
	t.Parallel()
	v, due := dueAt(builtin(t, "ga-2021"), 48*time.Hour, 24*time.Hour)
	require.False(t, due)
	require.Equal(t, "the time to live of 24 h has passed", v.Why.String())
	v, due = policy.Due(builtin(t, "ga-2021"), policy.DueCheck{
		Attempts: 3, TimeToLiveSince: published, Now: published, Limits: policy.Limits{MaxAttempts: 2, TTL: 24 * time.Hour},
	})
	require.False(t, due)
	require.Equal(t, policy.ReasonMaxDeliveryAttemptsExceeded, v.Reason)
	require.Equal(t, "no further attempt: maxDeliveryAttempts is 2", v.Why.String())
	require.Empty(t, policy.Why{}.String())
}
