package queue

import (
	"context"
	"fmt"
	"slices"
	"sync"
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
		p.Created(time.Now(), 5000)
		require.Zero(t, p.Lag())
		require.False(t, p.Wait(t.Context()), "publishes for others do not wait")
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

// publishing lets workers fetch 10 jobs each 10 ms while each group of publishes creates 250 jobs, in transactions of
// this length. It returns how long each group waited and how many jobs were queued after it.
func publishing(t *testing.T, transaction time.Duration) (waits []time.Duration, queued []int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := NewBackpressure(NewGate(100, nil))
		var mu sync.Mutex
		var created []time.Time
		stop := make(chan struct{})
		go func() {
			for tick := time.NewTicker(10 * time.Millisecond); ; {
				select {
				case <-stop:
					return
				case <-tick.C:
				}
				mu.Lock()
				var jobs []*rivertype.JobRow
				for _, at := range created[:min(10, len(created))] {
					j := job(subA, 0)
					j.CreatedAt, j.ScheduledAt = at, at
					jobs = append(jobs, j)
				}
				created = created[len(jobs):]
				mu.Unlock()
				p.Fetched(jobs, 10)
			}
		}()
		for began := time.Now(); time.Since(began) < 20*time.Second; {
			due := time.Now()
			require.Equal(t, p.Wait(t.Context()), time.Since(due) > 0)
			waits = append(waits, time.Since(due))
			at := time.Now()
			time.Sleep(transaction) //nolint:forbidigo // virtual time
			mu.Lock()
			created = append(created, slices.Repeat([]time.Time{at}, 250)...)
			queued = append(queued, len(created))
			mu.Unlock()
			p.Created(at, 250)
		}
		close(stop)
	})
	return waits, queued
}

// Workers need 250 ms for a group, publishers 50. The pauses are even, and keep the queue at a second of work.
func TestPublishesThatAreFasterThanTheWorkersWait(t *testing.T) {
	t.Parallel()
	waits, queued := publishing(t, 50*time.Millisecond)
	require.InDelta(t, 20*1000/250, len(waits), 8, "as many groups as the workers need")
	require.Less(t, slices.Max(waits), 700*time.Millisecond, "at first, little is known of the workers")
	require.Less(t, slices.Max(queued), 1750)
	settled := len(waits) / 4
	require.Less(t, slices.Max(waits[settled:]), 400*time.Millisecond)
	require.Greater(t, slices.Min(waits[settled:]), 100*time.Millisecond)
	require.Greater(t, slices.Min(queued[settled:]), 750, "workers have jobs")
}

func TestPublishesThatAreSlowerThanTheWorkersDoNotWait(t *testing.T) {
	t.Parallel()
	waits, queued := publishing(t, 260*time.Millisecond)
	require.Zero(t, slices.Max(waits))
	require.LessOrEqual(t, slices.Max(queued), 250)
}

// The jobs of a backlog that was not published here are fetched first.
func TestPublishesWaitBehindABacklog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := NewBackpressure(NewGate(1000, nil))
		fetch(p, job(subA, 10*time.Second)) // 100 jobs in this second
		require.False(t, p.Wait(t.Context()), "none of this node's jobs waits")
		p.Created(time.Now(), 1001)
		began := time.Now()
		require.True(t, p.Wait(t.Context()))
		require.Equal(t, maxPause, time.Since(began))
		stopping, stop := context.WithCancel(t.Context())
		stop()
		began = time.Now()
		p.Wait(stopping)
		require.Zero(t, time.Since(began))
		p.Fetched(nil, 1)
		require.False(t, p.Wait(t.Context()), "no job waits")
	})
}

func TestNodeWithoutBackpressure(t *testing.T) {
	t.Parallel()
	var none *Backpressure
	none.Created(time.Now(), 1)
	require.False(t, none.Wait(t.Context()))
}

// A stop ends the wait of publishes: nothing is fetched any more.
func TestPublishesDoNotWaitAtAStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := NewBackpressure(NewGate(1000, nil))
		fetch(p, job(subA, 5*time.Second))
		p.Created(time.Now(), 50_000)
		began, waited := time.Now(), make(chan time.Duration)
		go func() {
			p.Wait(t.Context())
			waited <- time.Since(began)
		}()
		synctest.Wait()
		p.Stop()
		require.Zero(t, <-waited)
		require.False(t, p.Wait(t.Context()))
	})
}
