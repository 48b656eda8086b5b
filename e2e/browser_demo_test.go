package e2e

import (
	_ "embed"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/postgres"
	"postrider/internal/testnode"
	"postrider/policy"
)

var (
	//go:embed testdata/browser/demo.sql
	demoSQL string
	//go:embed testdata/browser/demo_attempt.sql
	demoAttemptSQL string
)

const (
	// demoDeliveries are about thirty a minute: enough for charts, created in half a minute.
	demoDeliveries = 300_000
	// demoNewest is a delivery of the event subscription of docs/guides/dashboard.md.
	demoNewest = `SELECT id FROM postrider_internal.deliveries
		WHERE subscription_id = 11 AND event_day = (now() AT TIME ZONE 'UTC')::date ORDER BY id DESC LIMIT 1`
)

// fillDemo fills a database with a shop that has failures.
func fillDemo(t *testing.T, db *database) {
	t.Helper()
	require.NoError(t, testnode.FillWeek(t.Context(), db.pool, demoDeliveries))
	sealer, err := postgres.NewSealer(testnode.Key)
	require.NoError(t, err)
	db.exec("UPDATE postrider_internal.event_subscriptions SET secrets_sealed = $1",
		sealer.Seal("event_subscriptions.secrets_sealed", `{"endpointUrl":"https://contoso.example/"}`))
	db.exec(demoSQL)
	db.exec("VACUUM (ANALYZE) postrider_internal.rollups, postrider_internal.rollup_sums, postrider_internal.dead_letters")
	delivery := one[int64](db, demoNewest)
	db.exec("DELETE FROM postrider_internal.delivery_attempts WHERE delivery_id = $1", delivery)
	insertDemoAttempts(t, db, delivery)
}

// demoAttempt is an attempt of the delivery in docs/guides/dashboard.md: the response and the random part of the
// jitter. The retry policy computes the due time and the reason.
type demoAttempt struct {
	result  policy.Result
	took    time.Duration
	phases  [4]time.Duration // name resolution, connect, TLS, first byte
	err     string
	headers string
	excerpt string
	jitter  float64
}

func demoAttempts() []demoAttempt {
	const plain, rebuilt = "Content-Type: application/json\r\n", `{"error":"the search index is being rebuilt"}`
	ms := func(n float64) time.Duration { return time.Duration(n * float64(time.Millisecond)) }
	busy := policy.Result{Status: 503}
	return []demoAttempt{
		{
			result: busy, took: ms(412), phases: [4]time.Duration{ms(9.4), ms(12.4), ms(24.3), ms(363)},
			headers: plain + "Retry-After: 20\r\n", excerpt: rebuilt, jitter: 0.74,
		},
		{
			result: policy.Result{Err: policy.ErrorTimeout}, took: 30 * time.Second,
			phases: [4]time.Duration{0, ms(20.4), ms(24.5)},
			err:    "no response within 30 s", jitter: 0.63,
		},
		{result: busy, took: ms(96), phases: [4]time.Duration{3: ms(95)}, headers: plain, excerpt: rebuilt, jitter: 0.87},
		{result: busy, took: ms(31), phases: [4]time.Duration{3: ms(30)}, headers: plain, excerpt: rebuilt, jitter: 0.31},
	}
}

// insertDemoAttempts gives a delivery an attempt history as the engine records it. The last attempt was 14 s ago.
func insertDemoAttempts(t *testing.T, db *database, delivery int64) {
	t.Helper()
	const update = `UPDATE postrider_internal.deliveries SET attempts = $2, time_to_live_since = now() + $3,
		       first_attempt_at = now() + $3, last_attempt_at = now() + $4, next_attempt_at = now() + $5,
		       last_outcome = 'Busy', last_status = 503 WHERE id = $1`
	p, ok := policy.Builtin("ga-2021")
	require.True(t, ok)
	rules := p.Resolve(policy.Overrides{})
	attempts, due := demoAttempts(), time.Unix(0, 0)
	verdicts, starts := make([]policy.Verdict, len(attempts)), make([]time.Time, len(attempts))
	for i, m := range attempts {
		starts[i] = due
		verdicts[i] = policy.Decide(rules.Policy, policy.Attempt{
			Result: m.result, Kind: policy.KindWebhook, Number: i + 1, TimeToLiveSince: starts[0], FirstAttemptAt: starts[0],
			ScheduledAt: due, FinishedAt: due.Add(m.took), Limits: rules.Limits, DeadLetter: true, Jitter: m.jitter,
		})
		require.Equal(t, policy.Retry, verdicts[i].Action)
		due = verdicts[i].At
	}
	ago := func(at time.Time) time.Duration { return at.Sub(starts[len(starts)-1]) - 14*time.Second }
	for i, m := range attempts {
		why := verdicts[i].Why
		db.exec(demoAttemptSQL, delivery, i+1, ago(starts[i]), m.took.Microseconds(), m.phases[0].Microseconds(),
			m.phases[1].Microseconds(), m.phases[2].Microseconds(), m.phases[3].Microseconds(), m.result.Status,
			string(rules.Policy.Classify(policy.KindWebhook, m.result)), m.err, ago(verdicts[i].At), why.String(),
			why.Step.Milliseconds(), why.Floor.Milliseconds(), why.Jitter.Milliseconds(), m.headers, m.excerpt)
	}
	db.exec(update, delivery, len(attempts), ago(starts[0]), ago(starts[len(starts)-1]), ago(due))
	db.exec(`UPDATE postrider_internal.events SET published_at = now() + $2
		WHERE id = (SELECT event_uuid FROM postrider_internal.deliveries WHERE id = $1)`, delivery, ago(starts[0]))
}
