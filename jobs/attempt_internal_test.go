package jobs

import (
	"context"
	"testing"
	"time"

	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/require"

	"postrider/jobs/queue"
	"postrider/policy"
)

// If the age of a delivery cannot be read, the next due check is at once, and no attempt comes before its time.
func TestUnknownAgeIsCheckedAgain(t *testing.T) {
	t.Parallel()
	finished := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, p := range policy.Builtins() {
		facts := policy.Attempt{
			Result: policy.Result{Status: 503}, Kind: policy.KindWebhook, Number: 3,
			TimeToLiveSince: finished.Add(-7 * 24 * time.Hour),
			FirstAttemptAt:  finished.Add(-time.Minute), ScheduledAt: finished, FinishedAt: finished,
			Limits: policy.Limits{TTL: time.Minute},
		}
		v := (&attempt{rules: policy.Rules{Policy: &p}}).checkAgain(facts)
		require.Equal(t, policy.Retry, v.Action, p.Name)
		require.Equal(t, finished, v.At, p.Name)
		facts.TimeToLiveSince, facts.Limits.TTL = finished, 24*time.Hour
		require.Equal(t, policy.Decide(&p, facts).At, v.NotBefore, p.Name)
	}
}

func TestCombine(t *testing.T) {
	t.Parallel()
	at := func(seconds int) policy.Verdict {
		return policy.Verdict{Action: policy.Retry, At: time.Unix(int64(seconds), 0)}
	}
	delivered := policy.Verdict{Action: policy.Delivered}
	dead := policy.Verdict{Action: policy.DeadLetter, Reason: policy.ReasonTimeToLiveExceeded}
	drop := policy.Verdict{Action: policy.Drop, Reason: policy.ReasonHTTPBadRequest}
	for name, row := range map[string]struct {
		verdicts []policy.Verdict
		want     policy.Verdict
		separate []int
	}{
		"all delivered":                   {[]policy.Verdict{delivered, delivered}, delivered, nil},
		"all at the same time":            {[]policy.Verdict{at(5), at(5), at(5)}, at(5), nil},
		"the latest time wins":            {[]policy.Verdict{at(5), at(9), at(7), at(9)}, at(9), []int{0, 2}},
		"one has no time left":            {[]policy.Verdict{dead, at(9)}, at(9), []int{0}},
		"the last has no time left":       {[]policy.Verdict{at(9), dead}, at(9), []int{1}},
		"each dead letter is its own row": {[]policy.Verdict{dead, dead}, dead, []int{0, 1}},
		"a drop needs no row":             {[]policy.Verdict{drop, drop}, drop, nil},
		"all end, one for a different reason": {
			[]policy.Verdict{drop, {Action: policy.Drop, Reason: policy.ReasonTimeToLiveExceeded}, drop}, drop, []int{1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, separate := combine(row.verdicts)
			require.Equal(t, row.want, got)
			require.Equal(t, row.separate, separate)
		})
	}
}

func TestLateVerdict(t *testing.T) {
	t.Parallel()
	p, _ := policy.Builtin("ga-2021")
	tests := map[string]struct {
		result  policy.Result
		success bool
		why     string
	}{
		"success": {
			policy.Result{Status: 204}, true, "response after the ack timeout: 204: success",
		},
		"a failure":                   {policy.Result{Status: 503}, false, "response after the ack timeout: 503"},
		"a failure never retried":     {policy.Result{Status: 400}, false, "response after the ack timeout: 400"},
		"no success under the policy": {policy.Result{Status: 302}, false, "response after the ack timeout: 302"},
		"a broker's response":         {policy.Result{Err: policy.ErrorFull}, false, "response after the ack timeout: full"},
		"the window is over":          {policy.Result{Err: policy.ErrorTimeout}, false, ""},
		"the connection broke":        {policy.Result{Err: policy.ErrorSocket}, false, ""},
		"interrupted":                 {policy.Result{}, false, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			success, why, counts := lateVerdict(&p, policy.KindWebhook, tt.result)
			require.Equal(t, tt.why != "", counts)
			require.Equal(t, tt.success, success)
			require.Equal(t, tt.why, why)
		})
	}
}

// SetProgressInterval sets the interval of the check, for tests.
func (o *Options) SetProgressInterval(interval time.Duration) { o.stallInterval = interval }

// SetReleaseTimeout sets the time limit of a release, for tests.
func (o *Options) SetReleaseTimeout(limit time.Duration) { o.releaseTimeout = limit }

func TestProgress(t *testing.T) {
	t.Parallel()
	h := queue.NewHandoff(1, queue.NewJobSet(), queue.NewWake())
	w := stallWatch{runs: &runs{Queue: Queue{Handoff: h}}}
	require.False(t, w.moves(), "nothing happens")
	h.Begin()
	require.True(t, w.moves(), "an attempt was begun")
	require.True(t, w.moves(), "it is in flight")
	h.End()
	require.False(t, w.moves())
	h.Begin()
	h.End()
	require.True(t, w.moves(), "an attempt was begun and has ended since the last check")
	require.False(t, w.moves())
}

// The result is a wait whatever the header: never negative, never so long that adding it to a time overflows.
func FuzzRetryAfter(f *testing.F) {
	for _, seed := range []string{
		"", "120", "-1", "0", "1e3", "9223372036854775807", "99999999999999999999", "Wed, 21 Oct 2099 07:28:00 GMT",
		"Wednesday, 21-Oct-99 07:28:00 GMT", "soon", " 5",
	} {
		f.Add(seed)
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, value string) {
		wait := retryAfter(value, now)
		require.GreaterOrEqual(t, wait, time.Duration(0))
		require.False(t, now.Add(wait).Before(now))
	})
}

func TestRetryAfterValues(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"120": 2 * time.Minute, "0": 0, "-120": 0, "soon": 0, "120.5": 0, "120, 240": 0, "": 0,
		"99999999999999999999": 0, "Wed, 21 Oct 2015 07:28:00 GMT": 0, "Wed, 21 Oct 2099 07:28:00": 0,
	} {
		require.Equal(t, want, retryAfter(value, now), value)
	}
	later := time.Date(2099, 10, 21, 7, 26, 0, 0, time.UTC) // of the database
	require.Equal(t, 2*time.Minute, retryAfter("Wed, 21 Oct 2099 07:28:00 GMT", later))
	require.Zero(t, retryAfter("Wed, 21 Oct 2099 07:28:00 GMT", later.Add(time.Hour)))
	require.Equal(t, maxRetryAfter, retryAfter("9223372036854775807", now))
}

// River's own retries are for attempts that could not begin.
func TestRetryPolicyOfRiver(t *testing.T) {
	t.Parallel()
	for attempt, want := range map[int]time.Duration{
		0: time.Second, 1: time.Second, 2: 2 * time.Second, 6: 32 * time.Second, 7: time.Minute, 999: time.Minute,
	} {
		got := time.Until(retryPolicy{}.NextRetry(&rivertype.JobRow{Attempt: attempt}))
		require.InDelta(t, want.Seconds(), got.Seconds(), 0.9, "attempt %d", attempt)
	}
}

// NoteFailure notes a failed request to an event subscription's endpoint.
func (e *Engine) NoteFailure(subscription int64) {
	e.deliverer.Gate.Observe(subscription, policy.OutcomeTimedOut, policy.Result{Err: policy.ErrorTimeout}, 0)
}

// KnowsEndpoint reports whether the engine knows an event subscription's endpoint.
func (e *Engine) KnowsEndpoint(subscription int64) bool { return e.deliverer.Gate.Knows(subscription) }

// OpenHandoff takes jobs from the publishes of this node, as Start does.
func (e *Engine) OpenHandoff() { e.runs.Handoff.Open(fetchPollInterval, idlePollInterval) }

// ReturnUnbegun does what Stop does with local jobs that were never begun.
func (e *Engine) ReturnUnbegun(ctx context.Context) error {
	return e.upkeep.giveBack(ctx, e.runs.Handoff.Close())
}

func TestLeaseWatch(t *testing.T) {
	t.Parallel()
	const absent = -1
	rows := []struct {
		name  string
		beats []int64 // of the other node, as read after each own heartbeat
		dead  int     // the own heartbeat, counted from 0, after which it is dead; absent = never
	}{
		{"dead after four own heartbeats", []int64{7, 7, 7, 7, 7}, 4},
		{"three are not enough", []int64{7, 7, 7, 7}, absent},
		{"a heartbeat begins the count anew", []int64{7, 7, 7, 7, 8, 8, 8, 8, 8}, 8},
		{"one that beats is never dead", []int64{1, 2, 3, 4, 5, 6, 7, 8, 9}, absent},
		{"one that beats at every third", []int64{1, 1, 1, 2, 2, 2, 3, 3, 3, 4}, absent},
		{"a counter that went back beats", []int64{7, 7, 7, 7, 1, 1, 1, 1}, absent},
		{"registered again begins anew", []int64{7, 7, 7, 7, absent, 7, 7, 7, 7}, absent},
		{"never seen", []int64{absent, absent, absent, absent, absent, absent}, absent},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			watch := leaseWatch{}
			died := absent
			for i, beat := range row.beats {
				read := map[string]int64{"alive": int64(i)}
				if beat != absent {
					read["other"] = beat
				}
				dead := watch.dead(read)
				require.NotContains(t, dead, "alive")
				if last, ok := dead["other"]; ok && died == absent {
					died = i
					require.Equal(t, beat, last, "the heartbeat that is removed: a node that beats again stays")
				}
			}
			require.Equal(t, row.dead, died)
		})
	}
}

// A node whose removal failed is dead at the next heartbeat, too.
func TestLeaseWatchReportsAgain(t *testing.T) {
	t.Parallel()
	watch := leaseWatch{}
	for range 5 {
		watch.dead(map[string]int64{"other": 7})
	}
	require.Equal(t, map[string]int64{"other": 7}, watch.dead(map[string]int64{"other": 7}))
}

// RunStale runs the next jobs of the local handoff, whose deliveries were read too long ago.
func (e *Engine) RunStale() {
	<-e.runs.Handoff.Ready()
	for _, work := range e.runs.Handoff.Take() {
		work.AsOf = time.Time{}
		e.deliverer.local.Add(1)
		e.deliverer.deliverLocal(work)
	}
	e.deliverer.local.Wait()
}
