package policy_test

import (
	"testing"
	"time"

	"postrider/policy"

	"github.com/stretchr/testify/require"
)

func TestWhyString(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		policy string
		met    policy.Result
		given  func(*policy.Attempt)
		want   string
	}{
		{"success", "ga-2021", status(204), nil, "204: success"},
		{
			"a step with a floor", "ga-2021", status(503), func(a *policy.Attempt) { a.Number = 2 },
			"503: at least 30 s; step 2 is 30 s after the failure",
		},
		{"a step without a floor", "ga-2018", failure(policy.ErrorTimeout), nil, "timeout: step 1 is 10 s after the failure"},
		{
			"a status without a cell of its own", "ga-2021", status(418), func(a *policy.Attempt) { a.Number = 7 },
			"418 (other): at least 10 s; step 7 is 1 h after the failure",
		},
		{
			"jitter", "ga-2018", status(500), func(a *policy.Attempt) { a.Jitter = 0.25 },
			"500: step 1 is 10 s after the failure; jitter 250 ms",
		},
		{
			"jitter of seconds", "ga-2018", status(500), func(a *policy.Attempt) { a.Number, a.Jitter = 4, 0.75 },
			"500: step 4 is 5 min after the failure; jitter 2.25 s",
		},
		{
			"jitter of one second", "ga-2018", status(500), func(a *policy.Attempt) { a.Jitter = 1 },
			"500: step 1 is 10 s after the failure; jitter 1 s",
		},
		{
			"Retry-After", "ga-2018", status(500),
			func(a *policy.Attempt) { a.HonorRetryAfter, a.RetryAfter = true, 50*time.Minute },
			"500: step 1 is 10 s after the failure; Retry-After requests 50 min",
		},
		{
			"Retry-After past the cap", "ga-2018", status(500),
			func(a *policy.Attempt) { a.HonorRetryAfter, a.RetryAfter = true, 24*time.Hour },
			"500: step 1 is 10 s after the failure; Retry-After requests 24 h, capped at 1 h",
		},
		{
			"Retry-After past the time to live", "ga-2018", status(500), func(a *policy.Attempt) {
				a.HonorRetryAfter, a.RetryAfter, a.Limits.TTL = true, 24*time.Hour, 20*time.Minute
			},
			"500: step 1 is 10 s after the failure; Retry-After requests 24 h, capped at 1 h, shortened for a last attempt " +
				"before the delivery ends",
		},
		{
			"Retry-After that does not decide", "ga-2018", status(500),
			func(a *policy.Attempt) { a.HonorRetryAfter, a.RetryAfter = true, time.Second },
			"500: step 1 is 10 s after the failure",
		},
		{"a mark", "namespace-2023", status(503), nil, "503: at least 30 s; offset 1 is 10 s after the first attempt"},
		{
			"skipped marks", "namespace-2023", status(408), func(a *policy.Attempt) { a.FinishedAt = seconds(65) },
			"408: at least 2 min; offsets skipped: 3; offset 4 is 5 min after the first attempt",
		},
		{
			"cut by the time to live", "ga-2018", status(500),
			func(a *policy.Attempt) { a.Number, a.Limits.TTL = 7, 30*time.Minute },
			"500: step 7 is 1 h after the failure; but the delivery ends after 30 min",
		},
		{
			"the last allowed attempt", "ga-2021", status(404), func(a *policy.Attempt) { a.Limits.MaxAttempts = 1 },
			"404: attempt 1 of 1 failed",
		},
		{"never retried", "ga-2021", status(404), nil, "404: never retried"},
		{
			"a throttled attempt", "ga-2021", status(429), func(a *policy.Attempt) { a.Throttled = true },
			"429 (other): at least 10 s; step 1 is 10 s after the failure; lowers the concurrency",
		},
		{
			"a rate limit", "ga-2021", status(200), func(a *policy.Attempt) { a.WaitedFor = "the rate limit of 5 requests/s" },
			"200: success; waited for the rate limit of 5 requests/s",
		},
		{
			"over before a throttled attempt ended", "ga-2018", status(429), func(a *policy.Attempt) {
				a.Limits.TTL, a.FinishedAt, a.Throttled, a.WaitedFor = time.Minute, seconds(61), true, "the rate limit"
			},
			"429: the time to live of 1 min had passed before the attempt ended; lowers the concurrency; " +
				"waited for the rate limit",
		},
		{
			"over before the attempt ended", "ga-2018", status(500),
			func(a *policy.Attempt) { a.Limits.TTL, a.FinishedAt = time.Minute, seconds(61) },
			"500: the time to live of 1 min had passed before the attempt ended",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := builtin(t, tt.policy)
			a := firstAttempt(p, tt.met)
			if tt.given != nil {
				tt.given(&a)
			}
			require.Equal(t, tt.want, policy.Decide(p, a).Why.String())
		})
	}
}

func TestWhyOfADueCheck(t *testing.T) {
	t.Parallel()
	v, due := policy.Due(builtin(t, "ga-2021"), policy.DueCheck{
		TimeToLiveSince: published, Now: after(48 * time.Hour), Limits: policy.Limits{TTL: 24 * time.Hour}, DeadLetter: true,
	})
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
