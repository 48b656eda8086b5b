package policy_test

import (
	"testing"
	"time"

	"postrider/policy"

	"github.com/stretchr/testify/require"
)

// FuzzDecide follows a delivery to its end. Every attempt may be held, take long, and have another result. No attempt
// is scheduled before its failure or after the retry window; the count of skipped offsets never falls; the limit of
// attempts is exact; decisions are repeatable; and the delivery ends.
func FuzzDecide(f *testing.F) {
	f.Add(uint8(0), uint8(0), uint16(0), false, []byte{})
	f.Add(uint8(3), uint8(0), uint16(1440), false, []byte{11, 0, 0, 0})
	f.Add(uint8(4), uint8(10), uint16(20), true, []byte{12, 30, 0, 9, 17, 255, 4, 0})
	f.Add(uint8(9), uint8(9), uint16(10080), true, []byte{14, 255, 255, 255, 7, 3, 0, 128})
	f.Fuzz(func(t *testing.T, which, attempts uint8, minutes uint16, deadLetter bool, input []byte) {
		p := fuzzPolicy(which)
		a := firstAttempt(&p, status(500))
		a.DeadLetter, a.HonorRetryAfter = deadLetter, which%2 == 0
		a.Limits = fuzzLimits(t, &p, int(attempts), int(minutes))
		for ended := false; !ended; a.Number++ {
			require.LessOrEqual(t, a.Number, 20_000, "7 days hold 2,016 offsets of 5 min: this delivery does not end")
			met := take(&input)
			ended = step(t, &p, &a, met)
		}
	})
}

// step makes one attempt, checks the verdict, and sets the time to its At. It returns true at the end.
func step(t *testing.T, p *policy.Policy, a *policy.Attempt, met [4]byte) bool {
	held, slow := time.Duration(met[1])*time.Minute, time.Duration(met[2])*time.Second
	a.Result, a.RetryAfter, a.Jitter = fuzzResult(met[0]), time.Duration(met[3])*time.Minute, float64(met[3])/256
	now := a.ScheduledAt.Add(held)
	if _, due := policy.Due(p, policy.DueCheck{a.Number - 1, a.TimeToLiveSince, now, a.Limits, a.DeadLetter}); !due {
		return true
	}
	if a.Number == 1 {
		a.FirstAttemptAt = now
	}
	a.FinishedAt = now.Add(slow)
	v := policy.Decide(p, *a)
	require.Equal(t, v, policy.Decide(p, *a))
	requireRetryAfter(t, p, *a, v)
	require.NotEmpty(t, v.Why.String())
	require.GreaterOrEqual(t, v.SkippedOffsets, a.SkippedOffsets)
	if v.Action != policy.Retry {
		require.Equal(t, v.Action == policy.Delivered, v.Reason == "")
		return true
	}
	require.False(t, v.At.Before(a.FinishedAt), "scheduled at %s, before the failure at %s", v.At, a.FinishedAt)
	require.False(t, p.RetryWindow > 0 && v.At.After(a.TimeToLiveSince.Add(time.Duration(p.RetryWindow))),
		"scheduled past the window: %s", v.At)
	require.False(t, p.Expiry == policy.ExpiryAtTTL && v.At.After(p.Deadline(a.TimeToLiveSince, a.Limits.TTL)),
		"past the time to live")
	require.True(t, v.NotBefore.IsZero() || v.NotBefore.After(v.At))
	require.False(t, v.NotBefore.IsZero() && v.At.Before(a.FinishedAt.Add(v.Why.Floor)),
		"earlier than the floor")
	require.True(t, a.Limits.MaxAttempts == 0 || a.Number < a.Limits.MaxAttempts, "retried after the last allowed attempt")
	a.ScheduledAt, a.SkippedOffsets = v.At, v.SkippedOffsets
	return false
}

// requireRetryAfter: Retry-After only delays, by the cap at most, and never prevents the last attempt.
func requireRetryAfter(t *testing.T, p *policy.Policy, a policy.Attempt, v policy.Verdict) {
	t.Helper()
	a.RetryAfter = 0
	without, deadline := policy.Decide(p, a), p.Deadline(a.TimeToLiveSince, a.Limits.TTL)
	require.Equal(t, without.Action, v.Action)
	require.Equal(t, without.NotBefore, v.NotBefore)
	if !v.At.Equal(without.At) {
		require.True(t, v.At.After(without.At), "sooner than the schedule")
		require.False(t, v.At.After(a.FinishedAt.Add(time.Duration(p.RetryAfterCap))), "later than the cap")
		require.False(t, v.At.Add(time.Duration(p.AckTimeout)).After(deadline), "the attempt ends before the delivery")
	}
}

// fuzzPolicy is a built-in policy, or a copy with the other basis that retries all errors.
func fuzzPolicy(which uint8) policy.Policy {
	all := policy.Builtins()
	p := all[int(which)%len(all)]
	if int(which)/len(all)%2 == 0 {
		return p
	}
	p.RetryTransportErrors = true
	p.JitterFraction, p.JitterCap = 0.5, minute
	if p.Basis == policy.BasisGap {
		p.Basis = policy.BasisOffset
	} else {
		p.Basis = policy.BasisGap
	}
	return p
}

// fuzzLimits maps any numbers to the policy's range; 0 is the default.
func fuzzLimits(t *testing.T, p *policy.Policy, attempts, minutes int) policy.Limits {
	t.Helper()
	var maxAttempts, ttl *int
	if attempts > 0 {
		maxAttempts = ptr(p.MaxAttempts.Least + attempts%p.MaxAttempts.Most)
	}
	if minutes > 0 {
		ttl = ptr(1 + minutes%p.TTL.Most.Whole())
	}
	require.NoError(t, p.CheckLimits(maxAttempts, ttl))
	return p.Resolve(policy.Overrides{MaxAttempts: maxAttempts, TTLMinutes: ttl}).Limits
}

var fuzzStatuses = []int{200, 201, 302, 400, 401, 403, 404, 408, 413, 414, 429, 500, 503, 599}

func fuzzResult(n byte) policy.Result {
	i := int(n) % (len(fuzzStatuses) + len(errorTable))
	if i < len(fuzzStatuses) {
		return status(fuzzStatuses[i])
	}
	return errorTable[i-len(fuzzStatuses)].met
}

// take removes the data of the next attempt from the input: result, minutes held, seconds until the response,
// Retry-After in minutes. Without input the result is 500 at once.
func take(input *[]byte) [4]byte {
	met := [4]byte{11, 0, 0, 0}
	if len(*input) >= 4 {
		copy(met[:], *input)
		*input = (*input)[4:]
	}
	return met
}

func BenchmarkDecide(b *testing.B) {
	for _, p := range policy.Builtins() {
		b.Run(p.Name, func(b *testing.B) {
			a := firstAttempt(&p, status(503))
			a.Number, a.Jitter = 5, 0.5
			a.ScheduledAt, a.FinishedAt = seconds(600), seconds(601)
			b.ReportAllocs()
			for b.Loop() {
				policy.Decide(&p, a)
			}
		})
	}
}
