package policy_test

import (
	"math"
	"testing"
	"time"

	"postrider/policy"

	"github.com/stretchr/testify/require"
)

var published = time.Date(2026, 1, 31, 23, 59, 30, 0, time.UTC)

func after(d time.Duration) time.Time { return published.Add(d) }

func seconds(n int) time.Time { return after(time.Duration(n) * time.Second) }

func builtin(t testing.TB, name string) *policy.Policy {
	t.Helper()
	p, ok := policy.Builtin(name)
	require.True(t, ok, name)
	return &p
}

// firstAttempt has its result at the time of publishing, without a dead-letter destination.
func firstAttempt(p *policy.Policy, met policy.Result) policy.Attempt {
	return policy.Attempt{
		Result: met, Kind: policy.KindWebhook, Number: 1,
		TimeToLiveSince: published, FirstAttemptAt: published, ScheduledAt: published, FinishedAt: published,
		Limits: policy.Limits{MaxAttempts: p.MaxAttempts.Default, TTL: time.Duration(p.TTL.Default)},
	}
}

func TestOrderOfReasons(t *testing.T) {
	t.Parallel()
	late := func(a *policy.Attempt) { a.ScheduledAt, a.FinishedAt = after(25*time.Hour), after(25*time.Hour) }
	only := func(a *policy.Attempt) { a.Limits.MaxAttempts = 1 }
	both := func(a *policy.Attempt) { late(a); only(a) }
	for _, tt := range []struct {
		name   string
		policy string
		met    policy.Result
		given  func(*policy.Attempt)
		want   policy.Reason // "" = delivered
	}{
		{"a success ends the last attempt, past its time", "ga-2019", status(200), both, ""},
		{"the last allowed attempt wins over 404", "ga-2021", status(404), only, exhausted},
		{"the last allowed attempt wins over 400", "ga-2021", status(400), only, exhausted},
		{"the last allowed attempt wins over the time to live", "ga-2019", status(500), both, exhausted},
		{"400 wins over the time to live", "ga-2021", status(400), late, "UndeliverableDueToHttpBadRequest"},
		{"413 wins over the time to live", "ga-2021", status(413), late, "UndeliverableDueToClientError"},
		{"the time to live comes last", "ga-2019", status(500), late, expired},
	} {
		p := builtin(t, tt.policy)
		a := firstAttempt(p, tt.met)
		tt.given(&a)
		for _, a.DeadLetter = range []bool{false, true} {
			v := policy.Decide(p, a)
			if tt.want == "" {
				require.Equal(t, policy.Delivered, v.Action, tt.name)
				require.Empty(t, v.Reason, tt.name)
				continue
			}
			requireEnd(t, a, v, tt.want, tt.name)
		}
	}
}

func TestAttemptLimitIsDecidedAtTheFailureOfTheLastAttempt(t *testing.T) {
	t.Parallel()
	p := builtin(t, "ga-2018")
	a := firstAttempt(p, status(500))
	a.Limits.MaxAttempts = 3
	for _, a.Number = range []int{1, 2} {
		require.Equal(t, policy.Retry, policy.Decide(p, a).Action, a.Number)
	}
	for _, a.Number = range []int{3, 4} {
		requireEnd(t, a, policy.Decide(p, a), "MaxDeliveryAttemptsExceeded")
	}
	a.Limits.MaxAttempts, a.Number = 0, 1_000_000
	require.Equal(t, policy.Retry, policy.Decide(p, a).Action, "0 is no limit")
}

func TestExpiryIsInclusive(t *testing.T) {
	t.Parallel()
	const ttl = 20 * time.Minute
	for _, p := range policy.Builtins() {
		_, due := dueAt(&p, ttl-time.Nanosecond, ttl)
		require.True(t, due, p.Name)
		for _, at := range []time.Duration{ttl, time.Hour} {
			v, due := dueAt(&p, at, ttl)
			require.False(t, due, p.Name)
			require.Equal(t, policy.DeadLetter, v.Action)
			require.Equal(t, expired, v.Reason)
		}
		v, due := policy.Due(&p, policy.DueCheck{
			TimeToLiveSince: published, Now: after(ttl), Limits: policy.Limits{TTL: ttl},
		})
		require.False(t, due, p.Name)
		require.Equal(t, policy.Drop, v.Action, "without a dead-letter destination")
		require.Equal(t, expired, v.Reason)
	}
}

// dueAt checks a delivery with a dead-letter destination so long after its publishing.
func dueAt(p *policy.Policy, now, ttl time.Duration) (policy.Verdict, bool) {
	return policy.Due(p, policy.DueCheck{
		TimeToLiveSince: published, Now: after(now), Limits: policy.Limits{TTL: ttl}, DeadLetter: true,
	})
}

func TestDueKeepsTheRetryWindow(t *testing.T) {
	t.Parallel()
	_, due := dueAt(builtin(t, "ga-2021"), 24*time.Hour, 72*time.Hour)
	require.False(t, due, "no attempt later than 24 hours")
	_, due = dueAt(builtin(t, "namespace-2023"), 24*time.Hour, 72*time.Hour)
	require.True(t, due)
}

func TestExpiryAtTTLAndAtTheNextAttempt(t *testing.T) {
	t.Parallel()
	const ttl = 30 * time.Minute
	for _, tt := range []struct {
		name     string
		policy   string
		number   int
		finished time.Duration
		want     time.Duration // 0 = ends at once
	}{
		{"at_ttl: a step inside the time to live is kept", "ga-2019", 5, 400 * time.Second, 1000 * time.Second},
		{"at_ttl: a step beyond it becomes the time to live", "ga-2019", 6, 1000 * time.Second, ttl},
		{"at_ttl: an attempt that ends at it ends the delivery", "ga-2019", 6, ttl, 0},
		{"at_ttl: an attempt that ends after it ends the delivery", "ga-2019", 6, ttl + time.Second, 0},
		{"next_attempt: a step beyond it is kept, to find it expired", "ga-2021", 6, 1000 * time.Second, 2800 * time.Second},
		{"next_attempt: one that ends after it waits for its step", "ga-2021", 6, ttl + time.Second, 2*ttl + time.Second},
	} {
		p := builtin(t, tt.policy)
		a := firstAttempt(p, status(500))
		a.Limits.TTL, a.Number = ttl, tt.number
		a.ScheduledAt, a.FinishedAt = after(tt.finished), after(tt.finished)
		v := policy.Decide(p, a)
		if tt.want == 0 {
			requireEnd(t, a, v, expired, tt.name)
			continue
		}
		require.Equal(t, policy.Retry, v.Action, tt.name)
		require.Equal(t, after(tt.want), v.At, tt.name)
	}
}

func TestRetryWindowClipsTheTail(t *testing.T) {
	t.Parallel()
	p := builtin(t, "ga-2021")
	a := firstAttempt(p, status(500))
	a.Number, a.ScheduledAt, a.FinishedAt = 11, seconds(82000), seconds(82000)
	v := policy.Decide(p, a)
	require.Equal(t, policy.Retry, v.Action)
	require.Equal(t, after(24*time.Hour), v.At, "not 34 h 46 m")
	_, due := dueAt(p, 24*time.Hour, a.Limits.TTL)
	require.False(t, due)
	a.FinishedAt = after(24 * time.Hour)
	requireEnd(t, a, policy.Decide(p, a), "TimeToLiveExceeded")
}

// A due check that was to end a delivery is deferred if its time to live was extended: to the scheduled time, or to the
// new end.
func TestDefer(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"ga-2019", "ga-2021"} {
		p := copyOf(t, name, func(p *policy.Policy) { p.RetryWindow = policy.OptionalSeconds(time.Minute) })
		a := firstAttempt(p, status(408)) // at least 2 min
		a.Limits.TTL = time.Minute
		v := policy.Decide(p, a)
		require.Equal(t, after(time.Minute), v.At, name)
		require.Equal(t, after(2*time.Minute), v.NotBefore, "the floor")

		p.RetryWindow = 0
		at, off := p.Defer(v.NotBefore, published, v.At, policy.Limits{TTL: 24 * time.Hour})
		require.True(t, off)
		require.Equal(t, v.NotBefore, at)
		_, off = p.Defer(v.NotBefore, published, v.NotBefore, policy.Limits{TTL: 24 * time.Hour})
		require.False(t, off, "its time has come")
	}
	p := builtin(t, "ga-2019")
	at, off := p.Defer(after(5*time.Minute), published, after(time.Minute), policy.Limits{TTL: 3 * time.Minute})
	require.True(t, off)
	require.Equal(t, after(3*time.Minute), at, "the new end comes first")

	p = builtin(t, "ga-2021")
	a := firstAttempt(p, status(500))
	a.Number, a.ScheduledAt, a.FinishedAt = 11, seconds(82000), seconds(82000)
	require.Equal(t, seconds(125200), policy.Decide(p, a).NotBefore, "past the retry window")
	at, _ = p.Defer(seconds(125200), after(time.Hour), after(24*time.Hour), policy.Limits{TTL: time.Hour})
	require.Equal(t, after(25*time.Hour), at, "the window's end, as it is now")

	p = builtin(t, "ga-2019")
	require.Zero(t, policy.Decide(p, firstAttempt(p, status(500))).NotBefore, "there is time enough")
	_, off = p.Defer(time.Time{}, published, published, policy.Limits{TTL: time.Minute})
	require.False(t, off)
}

func TestGapIsMeasuredFromTheFailure(t *testing.T) {
	t.Parallel()
	p := builtin(t, "ga-2021")
	a := firstAttempt(p, failure(policy.ErrorTimeout))
	a.FinishedAt = seconds(30)
	require.Equal(t, seconds(40), policy.Decide(p, a).At, "30 s of silence, then 10 s")
	a.Number, a.ScheduledAt, a.FinishedAt = 2, seconds(40), seconds(70)
	require.Equal(t, seconds(100), policy.Decide(p, a).At)
	require.Zero(t, policy.Decide(p, a).SkippedOffsets)
}

func TestOffsetsThatPassedAreSkipped(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name                        string
		number, skipped             int
		scheduled, finished, wantAt int
		wantSkipped                 int
	}{
		{"a response at once", 1, 0, 0, 0, 10, 0},
		{"a slow response passes one offset", 1, 0, 0, 11, 30, 1},
		{"a slow response ends on an offset", 1, 0, 0, 30, 60, 2},
		{"floor of the failure reaches past the offset", 1, 0, 0, 25, 35, 1},
		{"held over 10 s, 30 s and 1 min", 1, 0, 0, 200, 300, 3},
		{"held for an hour, into the tail", 1, 0, 0, 3600, 3900, 15},
		{"skipped earlier, none now", 2, 2, 60, 61, 300, 2},
		{"skipped earlier, and again", 2, 2, 60, 700, 900, 4},
		{"its own offset is not skipped", 3, 0, 30, 31, 60, 0},
		{"held in the tail", 6, 0, 600, 1500, 1800, 3},
		{"a status floor put it past its offset: that one is kept", 4, 0, 90, 90, 300, 0},
		{"an early attempt, requested by an operator, skips nothing", 5, 0, 100, 100, 600, 0},
	} {
		p := builtin(t, "namespace-2023")
		a := firstAttempt(p, status(500))
		a.Number, a.SkippedOffsets = tt.number, tt.skipped
		a.ScheduledAt, a.FinishedAt = seconds(tt.scheduled), seconds(tt.finished)
		v := policy.Decide(p, a)
		require.Equal(t, policy.Retry, v.Action, tt.name)
		require.Equal(t, seconds(tt.wantAt), v.At, tt.name)
		require.Equal(t, tt.wantSkipped, v.SkippedOffsets, tt.name)
	}
}

func TestOffsetCountsFromTheFirstAttempt(t *testing.T) {
	t.Parallel()
	p := builtin(t, "namespace-2023")
	a := firstAttempt(p, status(500))
	a.FirstAttemptAt, a.ScheduledAt, a.FinishedAt = seconds(400), seconds(400), seconds(400)
	v := policy.Decide(p, a)
	require.Equal(t, seconds(410), v.At)
	require.Zero(t, v.SkippedOffsets)
	a.ScheduledAt = published // due at once, but held for 400 s before the first attempt
	require.Equal(t, v, policy.Decide(p, a))
}

func TestSkippedOffsetsDoNotCountAsAttempts(t *testing.T) {
	t.Parallel()
	p := builtin(t, "namespace-2023")
	a := firstAttempt(p, status(500))
	a.Number, a.SkippedOffsets = 9, 50
	a.ScheduledAt, a.FinishedAt = after(5*time.Hour), after(5*time.Hour)
	require.Equal(t, policy.Retry, policy.Decide(p, a).Action, "the tenth attempt is still to come")
}

func TestJitterOnlyAdds(t *testing.T) {
	t.Parallel()
	almostOne := math.Nextafter(1, 0)
	for _, tt := range []struct {
		name, policy string
		number       int
		jitter       float64
		step, most   time.Duration
	}{
		{"off", "ga-2021", 1, 0, 10 * time.Second, 0},
		{"half of 10 % of 10 s", "ga-2021", 1, 0.5, 10 * time.Second, 500 * time.Millisecond},
		{"10 % of 10 s", "ga-2021", 1, almostOne, 10 * time.Second, time.Second},
		{"10 % of 30 s", "preview-2017", 2, almostOne, 30 * time.Second, 3 * time.Second},
		{"capped at 3 s", "ga-2018", 7, almostOne, time.Hour, 3 * time.Second},
		{"none in the namespace", "namespace-2023", 1, almostOne, 10 * time.Second, 0},
		{"a caller's slip cannot pull it earlier", "ga-2021", 1, -1, 10 * time.Second, 0},
		{"a caller's slip cannot push it further", "ga-2021", 1, 7, 10 * time.Second, time.Second},
		{"not a number", "ga-2021", 1, math.NaN(), 10 * time.Second, 0},
	} {
		p := builtin(t, tt.policy)
		a := firstAttempt(p, status(500))
		a.Number, a.Jitter = tt.number, tt.jitter
		v := policy.Decide(p, a)
		added := v.At.Sub(a.FinishedAt) - tt.step
		require.Equal(t, v.Why.Jitter, added, tt.name)
		require.LessOrEqual(t, added, tt.most, tt.name)
		require.InDelta(t, float64(tt.most), float64(added), float64(time.Microsecond), tt.name)
	}
	p := copyOf(t, "namespace-2023", func(p *policy.Policy) { p.JitterFraction, p.JitterCap = 0.1, hour })
	a := firstAttempt(p, status(500))
	a.Number, a.Jitter = 3, 0.5
	a.ScheduledAt, a.FinishedAt = seconds(30), seconds(30)
	require.Equal(t, 1500*time.Millisecond, policy.Decide(p, a).Why.Jitter, "30 s lie between 30 s and 1 min")
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	const ack, h, day = 30 * time.Second, time.Hour, 24 * time.Hour // ack is that of the last attempt
	for _, tt := range []struct {
		name, policy         string
		ttl, requested, want time.Duration
		ignored              bool
	}{
		{"not honored", "ga-2021", day, h, 30 * time.Second, true},
		{"none given", "ga-2021", day, 0, 30 * time.Second, false},
		{"sooner than the policy's time", "ga-2021", day, 20 * time.Second, 30 * time.Second, false},
		{"later than the policy's time", "ga-2021", day, h, h, false},
		{"later, by offsets", "namespace-2023", day, h, h, false},
		{"past the time to live", "ga-2019", h, 2 * h, h - ack, false},
		{"past the time to live, which only the next attempt checks", "namespace-2023", h, math.MaxInt64, h - ack, false},
		{"past the retry window", "ga-2021", 2 * day, math.MaxInt64, h, false},
		{"past the cap", "ga-2021", day, day, h, false},
		{"past the cap, by offsets", "namespace-2023", 7 * day, day, h, false},
		{"no time before the end but for the policy's attempt", "ga-2019", time.Minute, h, 30 * time.Second, false},
		{"no time at all", "ga-2018", time.Minute, h, 10 * time.Second, false},
	} {
		p := builtin(t, tt.policy)
		a := firstAttempt(p, status(503))
		a.Limits.TTL, a.HonorRetryAfter, a.RetryAfter = tt.ttl, !tt.ignored, tt.requested
		v := policy.Decide(p, a)
		require.Equal(t, policy.Retry, v.Action, tt.name)
		require.Equal(t, after(tt.want), v.At, tt.name)
	}
}

func TestRetryAfterCap(t *testing.T) {
	t.Parallel()
	p := copyOf(t, "ga-2021", func(p *policy.Policy) { p.RetryAfterCap = 10 * hour })
	a := firstAttempt(p, status(503))
	a.HonorRetryAfter, a.RetryAfter = true, 24*time.Hour
	require.Equal(t, after(10*time.Hour), policy.Decide(p, a).At)
	p.RetryAfterCap = 0
	require.Equal(t, after(24*time.Hour-30*time.Second), policy.Decide(p, a).At, "the retry window, less the ack timeout")
}

// Under a time scale Retry-After is honored, with the cap and the time of the last attempt scaled as well.
func TestRetryAfterUnderATimeScale(t *testing.T) {
	t.Parallel()
	rules := builtin(t, "ga-2021").Resolve(policy.Overrides{}).Scaled(8640) // a day in 10 s, less than the ack timeout
	a := firstAttempt(rules.Policy, status(503))
	a.Limits, a.HonorRetryAfter = rules.Limits, true
	for requested, want := range map[time.Duration]time.Duration{
		30 * time.Minute: 30 * time.Minute, 24 * time.Hour: time.Hour,
	} {
		a.RetryAfter = rules.Wait(requested)
		require.InDelta(t, want.Seconds()/8640, policy.Decide(rules.Policy, a).At.Sub(published).Seconds(), 1e-5)
	}
}

func copyOf(t *testing.T, name string, change func(*policy.Policy)) *policy.Policy {
	t.Helper()
	p := builtin(t, name).Clone()
	p.Name, p.BuiltIn = "copy-of-"+name, false
	change(&p)
	require.Empty(t, p.Mistakes())
	return &p
}

func TestCopyWithOneChangedCell(t *testing.T) {
	t.Parallel()
	p := copyOf(t, "ga-2021", func(p *policy.Policy) {
		for i, c := range p.Cells {
			if c.EndpointKind == policy.KindWebhook && c.Condition == "404" {
				p.Cells[i].Action, p.Cells[i].MinDelay = policy.ActionRetry, 7*minute
			}
		}
	})
	testCell(t, p, policy.KindWebhook, status(404), ">=7m")
	testCell(t, p, policy.KindWebhook, status(403), "never")
	testCell(t, builtin(t, "ga-2021"), policy.KindWebhook, status(404), "never")
}

func TestCopyWith207AsSuccess(t *testing.T) {
	t.Parallel()
	p := copyOf(t, "ga-2021", func(p *policy.Policy) {
		p.Cells = append(p.Cells, cell("207", policy.ActionSuccess))
	})
	testCell(t, p, policy.KindWebhook, status(207), "ok")
	testCell(t, builtin(t, "ga-2021"), policy.KindWebhook, status(207), ">=10s")
}

// A policy with mistakes must not make the engine divide by zero or panic.
func TestDecideWithAnEmptyPolicy(t *testing.T) {
	t.Parallel()
	for _, basis := range []policy.Basis{"", policy.BasisGap, policy.BasisOffset} {
		p := &policy.Policy{Basis: basis}
		a := firstAttempt(p, policy.Result{})
		a.FinishedAt = seconds(60)
		a.Limits.TTL = time.Hour
		require.Equal(t, policy.Retry, policy.Decide(p, a).Action)
		require.False(t, policy.Decide(p, a).At.Before(a.FinishedAt))
	}
}
