package queue

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/require"

	"postrider/policy"
)

// job is a job of a published delivery that was fetched after this time.
func job(subscription int64, waited time.Duration) *rivertype.JobRow {
	due := time.Now()
	return &rivertype.JobRow{
		CreatedAt: due, ScheduledAt: due, AttemptedAt: new(due.Add(waited)),
		EncodedArgs: fmt.Appendf(nil, `{"s":%d}`, subscription),
	}
}

// fetch reports many fetches that had all requested jobs, each a job like this.
func fetch(p *Backpressure, j *rivertype.JobRow) {
	for range 100 {
		p.Fetched([]*rivertype.JobRow{j}, 1)
	}
}

func TestPause(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		lag                   time.Duration
		perSecond, deliveries int
		want                  time.Duration
	}{
		{0, 1000, 100, 0},
		{time.Second, 1000, 100, 0},
		{2 * time.Second, 1000, 100, 200 * time.Millisecond},
		{4 * time.Second, 1000, 100, 400 * time.Millisecond},
		{2 * time.Second, 1000, 0, 0},
		{2 * time.Second, 1000, 100_000, maxPause},
		{time.Hour, 1000, 5000, maxPause},
		{2 * time.Second, 0, 1, maxPause},
	} {
		require.Equal(t, row.want, pause(row.lag, row.perSecond, row.deliveries), row)
	}
}

func TestLagIsThatOfTheLastFetches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := NewBackpressure(NewGate(1000, nil))
		require.Zero(t, p.Lag())
		p.Fetched([]*rivertype.JobRow{job(subA, time.Hour)}, 2)
		require.Zero(t, p.Lag(), "no further job is due")
		p.Fetched([]*rivertype.JobRow{job(subA, 800*time.Millisecond)}, 1)
		require.Equal(t, 100*time.Millisecond, p.Lag())
		fetch(p, job(subA, 800*time.Millisecond))
		require.InDelta(t, 800*time.Millisecond, p.Lag(), float64(time.Millisecond))
		fetch(p, job(subA, 5*time.Second))
		require.InDelta(t, 5*time.Second, p.Lag(), float64(time.Millisecond))
		<-time.After(3 * time.Second)
		require.InDelta(t, 8*time.Second, p.Lag(), float64(time.Millisecond), "no worker was free since")
		p.Fetched(nil, 1)
		require.Zero(t, p.Lag())
	})
}

// The backlog of one endpoint waits for the endpoint, and not for workers.
func TestLagLeavesOutJobsThatWaitForTheirEndpoint(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gate := NewGate(1000, nil)
		p := NewBackpressure(gate)
		timeouts(gate, subA, 10)
		require.False(t, gate.full(subA))
		require.True(t, gate.Enter(t.Context(), subA, 0))
		require.True(t, gate.full(subA))
		fetch(p, job(subA, 5*time.Second))
		require.Zero(t, p.Lag())
		require.Zero(t, p.Next(100))
		require.Zero(t, p.Next(100), "publishes for others do not wait")
		gate.Leave(subA)
		fetch(p, job(subA, 5*time.Second))
		require.Greater(t, p.Lag(), 4*time.Second)

		p = NewBackpressure(gate)
		gate.Observe(subB, policy.OutcomeDelivered, policy.Result{Status: 200}, 0)
		gate.Block(subB, 1000)
		fetch(p, job(subB, 5*time.Second))
		require.Zero(t, p.Lag(), "results behind a locked row")
	})
}

// Many retries of one endpoint that are due at once wait to be promoted.
func TestLagLeavesOutRetriesThatWerePromotedLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, retry := NewBackpressure(NewGate(1000, nil)), job(subA, 5*time.Second)
		retry.CreatedAt = retry.ScheduledAt.Add(-time.Minute)
		fetch(p, retry)
		require.Zero(t, p.Lag())
	})
}

// A fetch that had all requested jobs may have had the last ones.
func TestLagDoesNotGrowAfterAJobThatDidNotWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := NewBackpressure(NewGate(1000, nil))
		fetch(p, job(subA, time.Millisecond))
		<-time.After(time.Minute)
		require.Less(t, p.Lag(), minLag)
	})
}

func TestNextGroupWaitsForTheOneBefore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := NewBackpressure(NewGate(1000, nil))
		require.Zero(t, p.Next(1000))
		require.Zero(t, p.Next(1000), "no lag")
		fetch(p, job(subA, 2*time.Second)) // 100 jobs in this second
		require.Zero(t, p.Next(10))
		near := func(want, wait time.Duration) { require.InDelta(t, want, wait, float64(time.Millisecond)) }
		near(200*time.Millisecond, p.Next(10))
		near(400*time.Millisecond, p.Next(1000))
		require.Zero(t, p.Next(0), "a group without jobs does not wait")
		require.Equal(t, maxPause, p.Next(1))
		<-time.After(maxPause)
		require.Zero(t, p.Next(1), "publishers that are slower than the workers do not wait")
	})
}
